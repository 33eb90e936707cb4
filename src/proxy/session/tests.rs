use std::time::Duration;

use super::{
    record::{EXPECTED_MAX, IMMINENT},
    *,
};
use crate::{
    api::{
        GroupVersionResource,
        selector::{FieldSelector, LabelSelector},
    },
    cache::testing::pods,
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

/// What a session that learned one thing says of the pods `a` (uid `1`, version 5, app `web`) at 10.
fn judged(query: &Query, learn: impl FnOnce(&mut Session, Instant)) -> Verdict {
    let now = Instant::now();
    let mut session = Session::default();
    learn(&mut session, now);
    session.judge(query, &pods(10, &[("shop", "a", "1", 5, "web")]), now)
}

fn behind(number: u64) -> Verdict {
    Verdict::Behind(version(number), Imminence::Likely)
}

#[test]
fn a_session_that_saw_nothing_is_content_with_anything() {
    assert_eq!(judged(&query(None, ""), |_, _| {}), Verdict::Satisfied);
}

#[test]
fn nothing_older_than_what_was_shown_is_shown_whatever_the_query() {
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
fn a_version_seen_long_ago_is_not_worth_waiting_for() {
    let now = Instant::now();
    let mut session = Session::default();
    session.shown(&resource(), &version(11), Source::Cache, now);
    let snapshot = pods(10, &[]);
    let verdict = session.judge(&query(None, ""), &snapshot, now + IMMINENT);
    assert_eq!(verdict, Verdict::Behind(version(11), Imminence::Unlikely));
}

#[test]
fn an_own_write_is_awaited_only_where_it_could_be_seen() {
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
    // S-WRITE-23: outside the selection its event never comes.
    assert_eq!(wrote("b", 12, web(), &query(Some("shop"), "app=db")), Verdict::Satisfied);
    assert_eq!(wrote("b", 12, web(), &query(Some("other"), "")), Verdict::Satisfied);
    // It was in the selection, and must be seen to leave it.
    assert_eq!(wrote("a", 12, web(), &query(Some("shop"), "app!=web")), behind(12));
    // Labels that were not seen could match.
    assert_eq!(wrote("b", 12, None, &query(Some("shop"), "app=db")), behind(12));
}

#[test]
fn an_own_write_is_not_awaited_by_a_read_of_another_object() {
    let fields = FieldSelector::name("other");
    let get = Query { fields, ..query(Some("shop"), "") };
    let verdict = judged(&get, |session, now| {
        session.expect(&resource(), key("a"), Expectation::AtLeast(version(12), web()), now);
    });
    assert_eq!(verdict, Verdict::Satisfied);
}

#[test]
fn a_deleted_object_must_leave_before_anything_is_shown() {
    let deleted = |name: &'static str, expectation| {
        judged(&query(None, ""), |session, now| {
            session.expect(&resource(), key(name), expectation, now);
        })
    };
    assert_eq!(deleted("a", gone(Some("1"), None)), Verdict::Leaving);
    assert_eq!(deleted("a", gone(None, None)), Verdict::Leaving);
    assert_eq!(deleted("a", gone(Some("2"), None)), Verdict::Satisfied, "made anew since");
    assert_eq!(deleted("b", gone(Some("1"), None)), Verdict::Satisfied, "it left");
    assert_eq!(deleted("a", gone(Some("1"), Some(12))), behind(12));
    assert_eq!(deleted("a", gone(Some("1"), Some(10))), Verdict::Satisfied);
}

#[test]
fn what_lacks_a_deleted_object_may_be_from_before_it_came() {
    let at_12 = || Expectation::AtLeast(version(12), web());
    let deleted = |query: &Query, name: &str, deletion: Expectation| {
        judged(query, |session, now| {
            session.expect(&resource(), key(name), at_12(), now);
            session.expect(&resource(), key(name), deletion, now);
        })
    };
    let all = query(None, "");
    assert_eq!(deleted(&all, "b", gone(Some("2"), Some(14))), behind(14));
    // Of another uid it may be the one before.
    assert_eq!(deleted(&all, "a", gone(Some("2"), Some(14))), behind(14));
    for unknown in [gone(Some("2"), None), gone(None, None), Expectation::Uncertain] {
        assert_eq!(deleted(&all, "b", unknown.clone()), behind(12), "{unknown:?}");
        assert_eq!(deleted(&all, "a", unknown.clone()), behind(12), "{unknown:?}");
    }
    // It was not of these.
    let others = query(None, "app=db");
    assert_eq!(deleted(&others, "b", gone(Some("2"), None)), Verdict::Satisfied);
}

#[test]
fn an_uncertain_write_bars_what_it_touches_until_a_later_consistent_read_is_reached() {
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
fn a_sweep_bars_its_scope_and_whatever_contains_it() {
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
fn a_get_replaces_only_what_was_known_before_it_was_sent() {
    let now = Instant::now();
    let later = now + Duration::from_millis(1);
    let observed = |known_at: Instant| {
        let mut session = Session::default();
        session.expect(&resource(), key("a"), Expectation::Uncertain, known_at);
        let seen = Expectation::AtLeast(version(5), web());
        session.observe(&resource(), key("a"), seen, now);
        session.judge(&query(None, ""), &pods(10, &[("shop", "a", "1", 5, "web")]), later)
    };
    assert_eq!(observed(now), Verdict::Satisfied);
    assert_eq!(observed(later), Verdict::Barred);
}

#[test]
fn an_older_answer_that_comes_late_does_not_lower_what_is_expected() {
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
    assert_eq!(session.judge(&core, &pods(10, &[]), now), behind(11));
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
fn what_does_not_fit_becomes_stricter_not_forgotten() {
    let now = Instant::now();
    let mut session = Session::default();
    for number in 0..=EXPECTED_MAX as u64 {
        let wrote = Expectation::AtLeast(version(100 + number), web());
        session.expect(&resource(), key(&format!("pod-{number}")), wrote, now);
    }
    let last = 100 + EXPECTED_MAX as u64;
    assert_eq!(session.judge(&query(Some("other"), ""), &pods(10, &[]), now), behind(last));

    for number in 0..=RECORDS_MAX {
        session.shown(
            &GroupResource::new("", &format!("things-{number}")),
            &version(1),
            Source::Cache,
            now,
        );
    }
    let unknown = Query::all(GroupVersionResource::new("", "v1", "others"), Scope::All);
    assert_eq!(session.judge(&unknown, &pods(10, &[]), now), Verdict::Barred);
}

#[test]
fn what_was_shown_makes_older_expectations_superfluous() {
    let now = Instant::now();
    let mut session = Session::default();
    session.expect(&resource(), key("a"), Expectation::AtLeast(version(5), web()), now);
    session.expect(&resource(), key("b"), Expectation::Uncertain, now);
    session.shown(&resource(), &version(9), Source::Cache, now);
    assert_eq!(session.barriers(), 1);
    session.proven(&resource(), now, &version(9));
    assert_eq!(session.barriers(), 0);
}

#[test]
fn after_an_expiry_the_next_read_goes_upstream_once() {
    let mut session = Session::default();
    assert!(!session.must_go_upstream(&resource()));
    session.expired(&resource());
    assert!(session.must_go_upstream(&resource()));
    session.went_upstream(&resource());
    assert!(!session.must_go_upstream(&resource()));
}

#[test]
fn a_watch_that_cannot_be_read_bars_until_it_ended_and_was_followed_by_a_consistent_read() {
    let now = Instant::now();
    let mut session = Session::default();
    let snapshot = pods(10, &[]);
    let all = query(None, "");
    session.blinded(&resource());
    session.proven(&resource(), now, &version(9));
    assert_eq!(session.judge(&all, &snapshot, now), Verdict::Barred);
    session.sighted(&resource(), now);
    assert_eq!(session.judge(&all, &snapshot, now), Verdict::Barred);
    session.proven(&resource(), now, &version(9));
    assert_eq!(session.judge(&all, &snapshot, now), Verdict::Satisfied);
}

#[test]
fn a_bounded_read_needs_a_proof_that_is_young_enough_and_reached() {
    let now = Instant::now();
    let mut session = Session::default();
    let all = query(None, "");
    session.proven(&resource(), now, &version(9));
    let proven = |at, since| session.is_proven_since(&all, &pods(at, &[]), since);
    assert!(proven(9, now));
    assert!(!proven(8, now));
    assert!(!proven(9, now + Duration::from_millis(1)));
}

#[test]
fn only_versions_that_caches_reach_become_floors_of_relaxed_reads() {
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
fn after_an_unknown_past_forwarded_reads_are_consistent_until_something_consistent_was_shown() {
    let now = Instant::now();
    let all = query(None, "");
    assert_eq!(Session::default().floor(&all), Floor::Unknown);
    let past = Session::of_unknown_past();
    let mut heir = past.heir();
    let mut of_dropped = Session::default();
    past.bequeath(&mut of_dropped, now);
    for session in [&past, &heir, &of_dropped] {
        assert_eq!(session.floor(&all), Floor::Consistent);
        // A replica's first list is consistent, and later than all that was seen.
        assert_eq!(session.judge(&all, &pods(10, &[]), now), Verdict::Satisfied);
    }
    heir.shown(&resource(), &version(11), Source::Cache, now);
    assert_eq!(heir.floor(&all), Floor::Consistent);
    heir.shown(&resource(), &version(12), Source::Storage, now);
    heir.shown(&resource(), &version(13), Source::Cache, now);
    assert_eq!(heir.floor(&all), Floor::At(version(13)));
}
