mod absence;
mod dates;
mod flight;
mod marks;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    record::{
        EXPECTED_BYTES_MAX, EXPECTED_MAX, IMMINENT, MARKS_MAX, SELECTOR_BYTES_MAX,
        UNFINISHED_BYTES_MAX,
    },
    *,
};
use crate::{
    api::{
        GroupVersionResource,
        selector::{FieldSelector, LabelSelector},
    },
    cache::{digest::Digest, store::Snapshot, testing::pods},
};

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::parse(&number.to_string()).expect("a version")
}

fn resource() -> GroupResource {
    GroupResource::new("", "pods")
}

fn query(namespace: Option<&str>, labels: &str) -> Query {
    let scope = namespace.map_or(Scope::All, |namespace| Scope::Namespace(namespace.into()));
    let labels = LabelSelector::parse(labels).expect("a selector");
    Query { labels, ..Query::all(GroupVersionResource::new("", "v1", "pods"), scope) }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Some("shop"), name)
}

fn web() -> KnownLabels {
    Some(Arc::new(BTreeMap::from([("app".to_owned(), "web".to_owned())])))
}

fn gone(uid: Option<&str>, at: Option<u64>) -> Expectation {
    Expectation::Gone { uid: uid.map(Into::into), version: at.map(version) }
}

/// Returns the verdict of a session that learned one fact about the pods `a` (uid `1`, version 5,
/// app `web`) at 10.
fn judged(query: &Query, learn: impl FnOnce(&mut Session, Instant)) -> Verdict {
    let now = Instant::now();
    let mut session = Session::default();
    learn(&mut session, now);
    judge(&session, query, &pods(10, &[("shop", "a", "1", 5, "web")]), now)
}

fn everything() -> Query {
    query(None, "")
}

/// Returns its verdict about a replica of all pods.
fn judge(session: &Session, query: &Query, snapshot: &Snapshot, now: Instant) -> Verdict {
    session.judge(query, Held { query: &everything(), snapshot }, now)
}

fn behind(number: u64) -> Verdict {
    Verdict::Behind(version(number), Imminence::Likely)
}

#[test]
fn a_session_without_facts_accepts_any_snapshot() {
    assert_eq!(judged(&query(None, ""), |_, _| {}), Verdict::Satisfied);
}

#[test]
fn no_query_shows_older_state_than_was_shown() {
    for query in [query(None, ""), query(Some("shop"), "app=web"), query(Some("other"), "")] {
        let shown = |at| {
            judged(&query, |session, now| {
                session.shown(&resource(), &version(at), Source::Cache, now);
            })
        };
        assert_eq!(shown(10), Verdict::Satisfied);
        assert_eq!(shown(11), behind(11));
    }
}

#[test]
fn a_read_does_not_wait_for_a_version_seen_long_ago() {
    let now = Instant::now();
    let mut session = Session::default();
    session.shown(&resource(), &version(11), Source::Cache, now);
    let snapshot = pods(10, &[]);
    let verdict = judge(&session, &query(None, ""), &snapshot, now + IMMINENT);
    assert_eq!(verdict, Verdict::Behind(version(11), Imminence::Unlikely));
}

#[test]
fn a_read_waits_for_an_own_write_only_if_it_could_select_it() {
    let wrote = |name: &'static str, at, labels, query: &Query| {
        judged(query, |session, now| {
            session.expect(&resource(), key(name), Expectation::AtLeast(version(at), labels), now);
        })
    };
    let all = query(None, "");
    assert_eq!(wrote("a", 5, web(), &all), Verdict::Satisfied, "already there");
    assert_eq!(wrote("a", 12, web(), &all), behind(12), "an older version is there");
    assert_eq!(wrote("b", 12, web(), &all), behind(12), "it is missing");
    assert_eq!(wrote("b", 9, web(), &all), Verdict::Satisfied, "it came and went");
    assert_eq!(wrote("b", 12, web(), &query(Some("shop"), "app=web")), behind(12));
    // S-WRITE-23: outside the selection, its event never arrives.
    assert_eq!(wrote("b", 12, web(), &query(Some("shop"), "app=db")), Verdict::Satisfied);
    assert_eq!(wrote("b", 12, web(), &query(Some("other"), "")), Verdict::Satisfied);
    // It is in the selection, and the replica must show that it leaves it.
    let db = || Some(Arc::new(BTreeMap::from([("app".to_owned(), "db".to_owned())])));
    assert_eq!(wrote("a", 12, db(), &query(Some("shop"), "app=web")), behind(12));
    // It was not in the selection and is not in it now.
    assert_eq!(wrote("a", 12, web(), &query(Some("shop"), "app=db")), Verdict::Satisfied);
    // Unknown labels could match.
    assert_eq!(wrote("b", 12, None, &query(Some("shop"), "app=db")), behind(12));
}

#[test]
fn a_read_of_another_object_does_not_wait_for_an_own_write() {
    let fields = FieldSelector::name("other");
    let get = Query { fields, ..query(Some("shop"), "") };
    let verdict = judged(&get, |session, now| {
        session.expect(&resource(), key("a"), Expectation::AtLeast(version(12), web()), now);
    });
    assert_eq!(verdict, Verdict::Satisfied);
}

#[test]
fn a_deleted_object_must_leave_the_snapshot_first() {
    let deleted = |name: &'static str, expectation| {
        judged(&query(None, ""), |session, now| {
            session.expect(&resource(), key(name), expectation, now);
        })
    };
    assert_eq!(deleted("a", gone(Some("1"), None)), Verdict::Leaving);
    assert_eq!(deleted("a", gone(None, None)), Verdict::Leaving);
    assert_eq!(deleted("a", gone(Some("2"), None)), Verdict::Leaving, "perhaps the one before");
    assert_eq!(deleted("b", gone(Some("1"), None)), Verdict::Satisfied, "it left");
    assert_eq!(deleted("a", gone(Some("1"), Some(12))), behind(12));
    assert_eq!(deleted("a", gone(Some("1"), Some(10))), Verdict::Satisfied);
}

#[test]
fn a_snapshot_from_before_an_own_create_waits_although_the_object_was_deleted() {
    let at_12 = || Expectation::AtLeast(version(12), web());
    let deleted = |query: &Query, name: &str, deletion: Expectation| {
        judged(query, |session, now| {
            session.expect(&resource(), key(name), at_12(), now);
            session.expect(&resource(), key(name), deletion, now);
        })
    };
    let all = query(None, "");
    // It may be a dry run.
    assert_eq!(deleted(&all, "b", gone(Some("2"), Some(14))), behind(12));
    // An object with another uid may be the previous one.
    let namesake = gone(Some("2"), Some(14));
    let namesake = judged(&all, |session, now| {
        session.expect(&resource(), key("a"), namesake, now);
    });
    assert_eq!(namesake, behind(14));
    for unknown in [gone(Some("2"), None), gone(None, None)] {
        for name in ["a", "b"] {
            assert_eq!(deleted(&all, name, unknown.clone()), behind(12), "{unknown:?}");
        }
    }
    assert_eq!(deleted(&all, "b", Expectation::Uncertain), behind(12));
    // It was not selected by this query.
    let others = query(None, "app=db");
    assert_eq!(deleted(&others, "b", gone(Some("2"), None)), Verdict::Satisfied);
}

#[test]
fn an_uncertain_write_bars_its_object_until_a_later_consistent_read() {
    let now = Instant::now();
    let before = now - Duration::from_millis(1);
    let uncertain = |proofs: &[(Instant, u64)]| {
        judged(&query(Some("shop"), ""), |session, now| {
            session.expect(&resource(), key("a"), Expectation::Uncertain, now);
            for (sent_at, at) in proofs {
                let sent_at = if *sent_at == before { before } else { now };
                session.proven(&resource(), sent_at, &version(*at));
            }
        })
    };
    assert_eq!(uncertain(&[]), Verdict::Barred);
    assert_eq!(uncertain(&[(before, 9)]), Verdict::Barred, "sent before the write ended");
    assert_eq!(uncertain(&[(now, 11)]), behind(11));
    assert_eq!(uncertain(&[(now, 10)]), Verdict::Satisfied);
    assert_eq!(uncertain(&[(now, 12), (now, 10)]), Verdict::Satisfied, "the earliest proof counts");
}

#[test]
fn a_sweep_bars_every_scope_that_overlaps_it() {
    let swept = |query: &Query, scope: Scope| {
        judged(query, |session, now| session.swept(&resource(), scope, now))
    };
    let shop = Scope::Namespace("shop".into());
    assert_eq!(swept(&query(Some("shop"), "app=web"), shop.clone()), Verdict::Barred);
    assert_eq!(swept(&query(None, ""), shop.clone()), Verdict::Barred);
    assert_eq!(swept(&query(Some("other"), ""), shop), Verdict::Satisfied);
    assert_eq!(swept(&query(Some("shop"), ""), Scope::All), Verdict::Barred);
}

#[test]
fn a_late_older_response_does_not_lower_an_expectation() {
    let verdict = judged(&query(None, ""), |session, now| {
        for at in [12, 11] {
            let wrote = Expectation::AtLeast(version(at), web());
            session.expect(&resource(), key("a"), wrote, now);
        }
    });
    assert_eq!(verdict, behind(12));
}

#[test]
fn both_event_groups_share_one_record() {
    let now = Instant::now();
    let mut session = Session::default();
    let new = GroupVersionResource::new("events.k8s.io", "v1", "events");
    session.shown(&new.group_resource(), &version(11), Source::Cache, now);
    let core = Query::all(GroupVersionResource::new("", "v1", "events"), Scope::All);
    assert_eq!(judge(&session, &core, &pods(10, &[]), now), behind(11));
}

#[test]
fn the_floor_of_a_forwarded_read_is_the_highest_version_it_must_show() {
    let now = Instant::now();
    let mut session = Session::default();
    let all = query(None, "");
    assert_eq!(session.floor(&all), Floor::Unknown);
    session.shown(&resource(), &version(11), Source::Cache, now);
    session.expect(&resource(), key("b"), Expectation::AtLeast(version(12), web()), now);
    assert_eq!(session.floor(&all), Floor::At(version(12)));
    assert_eq!(session.floor(&query(Some("other"), "")), Floor::At(version(11)));
    session.expect(&resource(), key("a"), gone(Some("1"), None), now);
    assert_eq!(session.floor(&all), Floor::Consistent);
    session.proven(&resource(), now, &version(13));
    assert_eq!(session.floor(&all), Floor::Consistent, "a cache may not reach 13 for long");
}

#[test]
fn state_above_a_limit_becomes_stricter() {
    let now = Instant::now();
    let mut session = Session::default();
    for number in 0..=EXPECTED_MAX as u64 {
        let wrote = Expectation::AtLeast(version(100 + number), web());
        session.expect(&resource(), key(&format!("pod-{number}")), wrote, now);
    }
    let last = 100 + EXPECTED_MAX as u64;
    assert_eq!(judge(&session, &query(Some("other"), ""), &pods(10, &[]), now), behind(last));

    for number in 0..=RECORDS_MAX {
        session.shown(
            &GroupResource::new("", &format!("things-{number}")),
            &version(1),
            Source::Cache,
            now,
        );
    }
    let unknown = Query::all(GroupVersionResource::new("", "v1", "others"), Scope::All);
    assert_eq!(judge(&session, &unknown, &pods(10, &[]), now), Verdict::Barred);
}

#[test]
fn only_state_that_every_replica_has_reached_is_pruned() {
    let (now, all) = (Instant::now(), everything());
    let mut session = Session::default();
    let wrote = |at| Expectation::AtLeast(version(at), web());
    session.expect(&resource(), key("a"), wrote(5), now);
    session.expect(&resource(), key("b"), wrote(12), now);
    session.expect(&resource(), key("c"), gone(Some("3"), Some(13)), now);
    session.expect(&resource(), key("d"), Expectation::Uncertain, now);
    let narrow = query(Some("other"), "");
    let has_both = pods(10, &[("shop", "a", "1", 5, "web"), ("shop", "b", "2", 12, "web")]);
    let (empty, later) = (pods(1, &[]), pods(14, &[]));
    let all_of = |snapshot| Some(Held { query: &all, snapshot });
    let of_narrow = Some(Held { query: &narrow, snapshot: &empty });
    let barriers = |session: &Session| session.barriers();
    session.prune(&resource(), &[all_of(&has_both), None]);
    assert_eq!(barriers(&session), 4, "one replica holds nothing yet");
    session.prune(&resource(), &[all_of(&has_both), of_narrow]);
    assert_eq!(barriers(&session), 2, "a deletion is only certain once its version is reached");
    assert_eq!(session.floor(&all), Floor::Consistent);
    session.proven(&resource(), now, &version(14));
    session.prune(&resource(), &[all_of(&later)]);
    assert_eq!(barriers(&session), 0);
    assert_eq!(session.floor(&all), Floor::Consistent, "what was forgotten remains a floor");
}

/// Returns the verdict about an empty replica of one query at a version, for a session that was
/// shown `shown`.
fn empty_at(session: &Session, read: &Query, replica: &Query, at: u64) -> Verdict {
    let snapshot = pods(at, &[]);
    session.judge(read, Held { query: replica, snapshot: &snapshot }, Instant::now())
}

#[test]
fn an_older_replica_answers_once_its_objects_are_known_unchanged() {
    let (now, wide, narrow) = (Instant::now(), everything(), query(Some("shop"), ""));
    let mut session = Session::default();
    session.shown_by((&wide, Form::Json), &version(20), Source::Storage, now);
    assert_eq!(empty_at(&session, &narrow, &narrow, 10), behind(20));
    assert_eq!(empty_at(&session, &narrow, &wide, 19), behind(20), "it has shown 20 itself");
    let snapshot = pods(10, &[]);
    let held = Held { query: &narrow, snapshot: &snapshot };
    let [doubt] = &session.doubts(&narrow, held).unwrap().marks[..] else { panic!("one doubt") };
    let versions = (doubt.after.clone(), doubt.until.clone());
    assert_eq!(versions, (version(10), version(20)));
    session.clear(doubt, &narrow, Evidence::From(None));
    assert_eq!(empty_at(&session, &narrow, &narrow, 10), Verdict::Satisfied);
    assert_eq!(empty_at(&session, &narrow, &narrow, 9), behind(10), "it went back");
    assert_eq!(session.list_version(&narrow, held), Some(version(20)), "lists never go back");
    // More is shown, and only the new part is examined.
    session.shown_by((&wide, Form::Json), &version(30), Source::Storage, now);
    let [doubt] = &session.doubts(&narrow, held).unwrap().marks[..] else { panic!("one doubt") };
    assert_eq!((doubt.after.clone(), doubt.until.clone()), (version(20), version(30)));
    session.clear(doubt, &narrow, Evidence::From(Some(version(25))));
    assert_eq!(empty_at(&session, &narrow, &narrow, 10), behind(25));
    assert_eq!(empty_at(&session, &narrow, &narrow, 25), Verdict::Satisfied);
}

#[test]
fn a_mark_binds_the_scope_of_its_objects_with_any_labels() {
    let now = Instant::now();
    let mut session = Session::default();
    let list = List::unread(query(Some("shop"), "app=web"), version(20), Source::Storage);
    session.listed(list, now);
    let replica = everything();
    for (read, bound) in [
        (query(Some("shop"), "app=web"), true),
        (query(Some("shop"), "app=db"), true),
        (query(None, ""), true),
        (query(Some("other"), ""), false),
    ] {
        let verdict = empty_at(&session, &read, &replica, 10);
        assert_eq!(verdict == behind(20), bound, "{read:?}");
    }
}

#[test]
fn a_list_of_equal_content_answers_at_the_last_shown_version() {
    let (now, all) = (Instant::now(), everything());
    let snapshot = pods(10, &[("shop", "a", "1", 5, "web")]);
    let held = Held { query: &all, snapshot: &snapshot };
    let listed = |digest: Digest| {
        let mut session = Session::default();
        let (query, version, compared) =
            (all.clone(), version(20), vec![(all.clone(), version(10))]);
        let list = List::unread(query, version, Source::Storage);
        let digest = Some(digest);
        session.listed(List { whole: true, digest, compared, ..list }, now);
        (session.judge(&all, held, now), session.list_version(&all, held))
    };
    let same = Digest::of(snapshot.select(&all).iter());
    assert_eq!(listed(same), (Verdict::Satisfied, Some(version(20))));
    assert_eq!(listed(Digest::default()).0, Verdict::Leaving, "the difference is on its way");
}

#[test]
fn an_object_that_left_a_list_returns_only_elsewhere_and_changed() {
    let now = Instant::now();
    let web = query(Some("shop"), "app=web");
    let left = |than| Expectation::Left {
        selection: Arc::new(web.clone()),
        than: version(than),
        version: version(20),
    };
    let verdict =
        |read: &Query, object: &[(&'static str, &'static str, &'static str, u64, &'static str)]| {
            let mut session = Session::default();
            session.leave(&resource(), key("a"), left(5), (Some(now), now));
            session.judge(read, Held { query: &everything(), snapshot: &pods(10, object) }, now)
        };
    let was = ("shop", "a", "1", 5, "web");
    assert_eq!(verdict(&web, &[was]), Verdict::Leaving);
    assert_eq!(verdict(&everything(), &[was]), Verdict::Leaving);
    assert_eq!(verdict(&web, &[("shop", "a", "1", 7, "web")]), Verdict::Leaving);
    assert_eq!(verdict(&everything(), &[("shop", "a", "1", 7, "db")]), Verdict::Satisfied);
    assert_eq!(verdict(&web, &[]), Verdict::Satisfied);
    let db = query(Some("shop"), "app=db");
    assert_eq!(verdict(&db, &[was]), Verdict::Leaving, "it may enter");
    assert_eq!(verdict(&db, &[("shop", "a", "1", 7, "x")]), Verdict::Satisfied);
}

#[test]
fn a_list_that_is_not_consistent_replaces_no_unknown_outcome_of_a_write() {
    let now = Instant::now();
    let later = now + Duration::from_secs(1);
    let judged = |sent_at| {
        let mut session = Session::default();
        session.expect(&resource(), key("a"), Expectation::Uncertain, now);
        let selection = Arc::new(everything());
        let left = Expectation::Left { selection, than: version(5), version: version(20) };
        session.leave(&resource(), key("a"), left, (sent_at, later));
        let held = Held { query: &everything(), snapshot: &pods(30, &[]) };
        session.judge(&everything(), held, later)
    };
    assert_eq!(judged(Some(later)), Verdict::Satisfied);
    assert_ne!(judged(None), Verdict::Satisfied);
}

#[test]
fn marks_and_pages_are_bounded_and_become_stricter() {
    let now = Instant::now();
    let mut session = Session::default();
    for number in 0..=MARKS_MAX as u64 {
        let of = query(Some(&format!("n{number}")), "");
        session.listed(List::unread(of, version(100 + number), Source::Storage), now);
    }
    assert!(session.barriers() <= MARKS_MAX + 1);
    assert!(session.has_overflowed(&resource()));
    assert!(!session.has_overflowed(&resource()));
    let elsewhere = query(Some("elsewhere"), "");
    assert_eq!(empty_at(&session, &elsewhere, &elsewhere, 99), behind(101));
    assert_eq!(empty_at(&session, &elsewhere, &elsewhere, 101), Verdict::Satisfied);
    let (all, snapshot) = (everything(), pods(99, &[]));
    let held = Held { query: &all, snapshot: &snapshot };
    assert_eq!(session.list_version(&elsewhere, held), Some(version(101)), "it is still a list");
    let labels = Some(Arc::new(BTreeMap::from([("a".to_owned(), "x".repeat(60_000))])));
    for number in 0..100 {
        let wrote = Expectation::AtLeast(version(200 + number), labels.clone());
        session.expect(&resource(), key(&format!("o{number}")), wrote, now);
        assert!(session.bytes() <= EXPECTED_BYTES_MAX + 64 * 1024, "{}", session.bytes());
    }
}

#[test]
fn one_read_after_an_expiry_goes_upstream() {
    let mut session = Session::default();
    let (read, other) = (query(None, ""), query(None, "app=web"));
    session.expired(&read, None);
    assert!(session.must_go_upstream(&read, None));
    assert!(!session.must_go_upstream(&other, None) && !session.must_go_upstream(&read, Some("a")));
    session.went_upstream(&other, None);
    session.went_upstream(&read, Some("a"));
    assert!(session.must_go_upstream(&read, None));
    session.went_upstream(&read, None);
    assert!(!session.must_go_upstream(&read, None));
    for number in 0..100 {
        session.expired(&query(None, &format!("app=a{number}")), None);
    }
    let left = |number| session.must_go_upstream(&query(None, &format!("app=a{number}")), None);
    assert!((0..100).filter(|number| left(*number)).eq(84..100), "the newest");
}

#[test]
fn a_bounded_read_needs_a_recent_and_reached_proof() {
    let now = Instant::now();
    let mut session = Session::default();
    let all = query(None, "");
    session.proven(&resource(), now, &version(9));
    let proven = |at, since| {
        session.is_proven_since(&all, Held { query: &all, snapshot: &pods(at, &[]) }, since)
    };
    assert!(proven(9, now));
    assert!(!proven(8, now));
    assert!(!proven(9, now + Duration::from_millis(1)));
}

#[test]
fn only_versions_that_caches_reach_become_floors() {
    let now = Instant::now();
    let mut session = Session::default();
    let all = query(None, "");
    session.shown(&resource(), &version(11), Source::Storage, now);
    assert_eq!(session.floor(&all), Floor::Consistent);
    session.shown(&resource(), &version(11), Source::Cache, now);
    assert_eq!(session.floor(&all), Floor::At(version(11)));
    session.shown(&resource(), &version(12), Source::Storage, now);
    assert_eq!(session.floor(&all), Floor::Consistent);
    session.expect(&resource(), key("b"), Expectation::AtLeast(version(13), web()), now);
    assert_eq!(session.floor(&all), Floor::At(version(13)));
}

#[test]
fn forwarded_reads_after_an_unknown_past_stay_consistent_until_one_returned() {
    let now = Instant::now();
    let all = query(None, "");
    assert_eq!(Session::default().floor(&all), Floor::Unknown);
    let past = Arc::new(Session::of_unknown_past());
    let mut heir = past.heir();
    let mut of_dropped = Session::default();
    past.bequeath(&mut of_dropped, now);
    for session in [&*past, &heir, &of_dropped] {
        assert_eq!(session.floor(&all), Floor::Consistent);
        // A replica's first list is consistent, and later than everything that was seen.
        assert_eq!(judge(session, &all, &pods(10, &[]), now), Verdict::Satisfied);
    }
    heir.shown(&resource(), &version(11), Source::Cache, now);
    assert_eq!(heir.floor(&all), Floor::Consistent);
    heir.shown(&resource(), &version(12), Source::Storage, now);
    heir.shown(&resource(), &version(13), Source::Cache, now);
    assert_eq!(heir.floor(&all), Floor::At(version(13)));
}
