//! Replicas that marks do not bind.

use super::*;

#[test]
fn equal_content_proves_nothing_about_the_states_after_it() {
    let (now, wide, narrow) = (Instant::now(), everything(), query(Some("shop"), ""));
    let mut session = Session::default();
    let doubt_at = |session: &Session, at| {
        let snapshot = pods(at, &[]);
        let held = Held { query: &narrow, snapshot: &snapshot };
        let mut doubts = session.doubts(&narrow, held).expect("a record").marks;
        let doubt = doubts.pop().expect("a doubt");
        (doubt.after.clone(), doubt)
    };
    let verdict = |session: &Session, at| empty_at(session, &narrow, &narrow, at);
    session.shown_by((&wide, Form::Json), &version(49), Source::Storage, now);
    let (_, doubt) = doubt_at(&session, 45);
    session.clear(&doubt, &narrow, Evidence::Equal);
    assert_eq!(verdict(&session, 45), Verdict::Satisfied);
    assert_eq!(verdict(&session, 48), behind(49), "an object may have come and not yet gone");
    assert_eq!(verdict(&session, 49), Verdict::Satisfied);
    let (after, _) = doubt_at(&session, 48);
    assert_eq!(after, version(48), "it is examined again");

    // Later events show no change: the states in between are still unknown.
    session.shown_by((&wide, Form::Json), &version(60), Source::Storage, now);
    let (after, doubt) = doubt_at(&session, 45);
    assert_eq!(after, version(49));
    session.clear(&doubt, &narrow, Evidence::From(None));
    assert_eq!(verdict(&session, 45), Verdict::Satisfied);
    assert_eq!(verdict(&session, 48), behind(60));
    let (after, doubt) = doubt_at(&session, 49);
    assert_eq!(after, version(49));
    session.clear(&doubt, &narrow, Evidence::From(None));
    assert_eq!(verdict(&session, 49), Verdict::Satisfied);
    assert_eq!(verdict(&session, 48), behind(49));
}

#[test]
fn an_object_that_exists_and_is_shown_as_deleted_is_known_only_by_a_consistent_read() {
    let (now, key) = (Instant::now(), key("a"));
    let mut session = Session::default();
    session.expect(&resource(), key.clone(), Expectation::Exists, now);
    let gone = Expectation::Gone { uid: None, version: Some(version(49)) };
    session.raise(&resource(), key, gone, now);
    let object = pods(44, &[("shop", "a", "1", 27, "db")]);
    let held = Held { query: &everything(), snapshot: &object };
    assert_eq!(session.judge(&everything(), held, now), Verdict::Barred);
}

#[test]
fn long_selectors_fill_no_session() {
    let now = Instant::now();
    let mut session = Session::default();
    let long: Vec<_> = (0..60).map(|number| format!("k{number}={}", "v".repeat(60))).collect();
    let long = long.join(",");
    for number in 0..100 {
        let of = query(None, &format!("one=v{number},{long}"));
        session.listed(List::unread(of, version(100 + number), Source::Storage), now);
    }
    assert!(session.bytes() < 2 * SELECTOR_BYTES_MAX, "{} bytes", session.bytes());
    assert!(session.has_overflowed(&resource()));
    let narrow = query(None, "k=v");
    assert_ne!(empty_at(&session, &narrow, &narrow, 99), Verdict::Satisfied);
}

#[test]
fn the_queries_of_lists_are_bounded_in_bytes() {
    let (mut session, now) = (Session::default(), Instant::now());
    for number in 0..EXPECTED_MAX - 1 {
        let object = key(&format!("o{number}"));
        let values: Vec<_> = (0..40).map(|it| format!("{}{it}", "x".repeat(50))).collect();
        let list = Arc::new(query(None, &format!("app in ({number},{})", values.join(","))));
        let item = Expectation::AtLeast(version(100), web());
        session.list(&resource(), object, item, &list, (None, now));
        let (token, next) = (None, Some("c".repeat(1000).into()));
        let paging = Paging { token, next, last: None, digest: Digest::default() };
        session.page(&list, &version(100), paging);
        let bytes = session.bytes();
        let bytes_max = EXPECTED_BYTES_MAX + UNFINISHED_BYTES_MAX + 4096;
        assert!(bytes <= bytes_max, "{bytes} bytes after {number}");
    }
    assert!(session.has_overflowed(&resource()));
    let (narrow, older) = (query(None, "k=v"), pods(99, &[]));
    let held = Held { query: &narrow, snapshot: &older };
    assert_ne!(session.judge(&narrow, held, now), Verdict::Satisfied);
}

#[test]
fn the_queries_that_do_not_select_an_object_are_bounded_in_bytes() {
    let (mut session, now) = (Session::default(), Instant::now());
    for number in 0..EXPECTED_MAX / 4 {
        let object = key(&format!("o{number}"));
        let wrote = Expectation::AtLeast(version(100), web());
        session.expect(&resource(), object.clone(), wrote, now);
        for other in 0..4 {
            let values: Vec<_> = (0..40).map(|it| format!("{}{it}", "x".repeat(50))).collect();
            let long = format!("app in ({other},{})", values.join(","));
            session.exclude(&query(None, &long), &object, &version(100));
        }
    }
    assert!(session.bytes() <= EXPECTED_BYTES_MAX + 64 * 1024, "{} bytes", session.bytes());
    assert!(!session.has_overflowed(&resource()), "they only cost another look");
}

#[test]
fn an_unreadable_watch_bars_until_its_end_and_a_consistent_read() {
    let now = Instant::now();
    let mut session = Session::default();
    let snapshot = pods(10, &[]);
    let (all, other) = (query(None, ""), query(Some("other"), ""));
    let scope = Scope::Namespace("shop".into());
    session.blinded(&resource(), scope.clone());
    session.proven(&resource(), now, &version(9));
    assert_eq!(judge(&session, &all, &snapshot, now), Verdict::Barred);
    assert_eq!(judge(&session, &other, &snapshot, now), Verdict::Satisfied);
    session.sighted(&resource(), &scope, now);
    assert_eq!(judge(&session, &all, &snapshot, now), Verdict::Barred);
    assert_eq!(judge(&session, &other, &snapshot, now), Verdict::Satisfied);
    session.proven(&resource(), now, &version(9));
    assert_eq!(judge(&session, &all, &snapshot, now), Verdict::Satisfied);
}

/// Learns a list, or a page, that was compared with one replica of all pods.
fn compared(session: &mut Session, at: u64, whole: bool, from: Option<u64>) {
    let list = List::unread(everything(), version(at), Source::Storage);
    let compared = from.map(|from| (everything(), version(from))).into_iter().collect();
    session.listed(List { whole, compared, ..list }, Instant::now());
}

#[test]
fn a_replica_lacks_nothing_of_a_list_only_if_it_was_compared_with_every_page() {
    let narrow = query(Some("shop"), "");
    let verdict = |lists: &[(u64, bool, Option<u64>)]| {
        let mut session = Session::default();
        for (at, whole, from) in lists {
            compared(&mut session, *at, *whole, *from);
        }
        empty_at(&session, &narrow, &everything(), 10)
    };
    let (page, whole) = (false, true);
    assert_eq!(verdict(&[(20, page, Some(10)), (20, page, Some(10))]), Verdict::Satisfied);
    assert_eq!(verdict(&[(20, page, None), (20, page, Some(10))]), behind(20));
    assert_eq!(verdict(&[(20, page, Some(10)), (20, page, None)]), behind(20));
    assert_eq!(verdict(&[(20, page, Some(10)), (20, page, Some(12))]), behind(12));
    // The whole list is the same at the same version.
    assert_eq!(verdict(&[(20, whole, Some(10)), (20, page, None)]), Verdict::Satisfied);
    assert_eq!(verdict(&[(20, whole, None), (20, page, Some(10))]), behind(20));
    assert_eq!(verdict(&[(20, page, None), (20, whole, Some(10))]), Verdict::Satisfied);
    assert_eq!(verdict(&[(20, page, Some(10)), (20, whole, None)]), behind(20));
    // A page replaces what an older list showed elsewhere.
    assert_eq!(verdict(&[(20, whole, None), (30, whole, Some(10))]), Verdict::Satisfied);
    assert_eq!(verdict(&[(20, whole, None), (30, page, Some(10))]), behind(30));
    assert_eq!(verdict(&[(9, whole, None), (30, page, Some(10))]), Verdict::Satisfied);
    assert_eq!(verdict(&[(20, whole, Some(10)), (30, page, Some(9))]), Verdict::Satisfied);
    assert_eq!(verdict(&[(20, whole, Some(11)), (30, page, Some(9))]), behind(11));
}

/// The state at a version does not depend on the form: the older of two compared replicas counts.
#[test]
fn replicas_of_one_query_in_two_forms_show_as_much_from_the_same_version() {
    for froms in [[12, 10], [10, 12]] {
        let mut session = Session::default();
        let list = List::unread(everything(), version(20), Source::Storage);
        let compared = froms.map(|from| (everything(), version(from))).into();
        session.listed(List { whole: true, compared, ..list }, Instant::now());
        let narrow = query(Some("shop"), "");
        let verdict = |at| empty_at(&session, &narrow, &everything(), at);
        assert_eq!((verdict(9), verdict(10)), (behind(10), Verdict::Satisfied), "{froms:?}");
    }
}

/// A version that one form has shown is no reason to wait for it in another form.
#[test]
fn an_older_replica_of_another_form_is_examined_up_to_the_version_that_is_known() {
    let (now, all) = (Instant::now(), everything());
    let mut session = Session::default();
    let table = query(Some("shop"), "app=web");
    session.shown_by((&table, Form::Table), &version(20), Source::Storage, now);
    let doubts = |session: &Session, at| {
        let snapshot = pods(at, &[]);
        let doubts = session.doubts(&all, Held { query: &all, snapshot: &snapshot });
        let doubts = doubts.expect("a record").marks.into_iter();
        doubts.map(|doubt| ((doubt.after.clone(), doubt.until.clone()), doubt)).unzip()
    };
    let clear = |session: &mut Session, at, (after, until), evidence| {
        let (versions, found): (Vec<_>, Vec<_>) = doubts(session, at);
        assert_eq!(versions[..1], [(version(after), version(until))]);
        session.clear(&found[0], &all, evidence);
    };
    let verdict = |session: &Session, at| empty_at(session, &all, &all, at);
    // One form is at 15, and nothing changes; the other one is at 10.
    clear(&mut session, 15, (15, 20), Evidence::From(None));
    assert_eq!((verdict(&session, 15), verdict(&session, 10)), (Verdict::Satisfied, behind(15)));
    let unchanged = session.clone();
    clear(&mut session, 10, (10, 15), Evidence::From(Some(version(12))));
    assert_eq!((verdict(&session, 12), verdict(&session, 11)), (Verdict::Satisfied, behind(12)));
    clear(&mut session, 10, (10, 12), Evidence::From(Some(version(12))));
    assert_eq!(verdict(&session, 11), behind(12), "a change that it does not have yet");
    session = unchanged.clone();
    clear(&mut session, 10, (10, 15), Evidence::From(None));
    assert_eq!((verdict(&session, 10), verdict(&session, 9)), (Verdict::Satisfied, behind(10)));
    // More is shown meanwhile: both parts are examined, and one alone is not enough.
    session = unchanged;
    session.shown_by((&table, Form::Table), &version(30), Source::Storage, now);
    let (versions, found): (Vec<_>, Vec<_>) = doubts(&session, 10);
    let parts = [(10, 15), (20, 30)].map(|(after, until)| (version(after), version(until)));
    assert_eq!(versions, parts);
    session.clear(&found[0], &all, Evidence::From(None));
    assert_eq!(verdict(&session, 10), behind(30));
    session.clear(&found[1], &all, Evidence::Equal);
    assert_eq!((verdict(&session, 10), verdict(&session, 15)), (Verdict::Satisfied, behind(30)));
    // The finding of another read about the first part comes late: it says nothing about the second.
    session.clear(&found[0], &all, Evidence::From(Some(version(12))));
    assert_eq!((verdict(&session, 10), verdict(&session, 12)), (Verdict::Satisfied, behind(30)));
}

#[test]
fn expired_reads_with_long_selectors_are_counted_and_become_a_barrier() {
    let (mut session, now) = (Session::default(), Instant::now());
    let long: Vec<_> = (0..60).map(|number| format!("k{number}={}", "v".repeat(60))).collect();
    let read = |number| query(None, &format!("one=v{number},{}", long.join(",")));
    for number in 0..16 {
        session.expired(&read(number), None);
    }
    assert!(session.bytes() > 16 * 3600, "{} bytes", session.bytes());
    assert!(session.must_go_upstream(&read(15), None));
    session.coarsen(64 * 1024, now);
    assert!(session.bytes() < 2048, "{} bytes", session.bytes());
    assert!(!session.must_go_upstream(&read(15), None));
    assert_eq!(empty_at(&session, &read(15), &everything(), 10), Verdict::Barred);
    session.proven(&resource(), now, &version(10));
    assert_eq!(empty_at(&session, &read(15), &everything(), 10), Verdict::Satisfied);
}

/// Aborted writes to resources that do not exist need no permission.
#[test]
fn resources_of_which_nothing_was_shown_are_forgotten_first() {
    let (mut session, now) = (Session::default(), Instant::now());
    let thing = |number: usize| format!("{number}{}", "x".repeat(500));
    session.shown(&resource(), &version(20), Source::Cache, now);
    for number in 0..2000 {
        let of = (Some(key("a")), Scope::Namespace("shop".into()));
        session.lost_write(&GroupResource::new("", &thing(number)), of, now);
    }
    session.coarsen(256 * 1024, now);
    assert!(session.bytes() < 2048, "{} bytes", session.bytes());
    assert_eq!(judge(&session, &everything(), &pods(10, &[]), now), behind(20));
    assert_eq!(judge(&session, &everything(), &pods(20, &[]), now), Verdict::Satisfied);
    let of = Query::all(GroupVersionResource::new("", "v1", &thing(7)), Scope::All);
    assert_eq!(empty_at(&session, &of, &of, 10), Verdict::Barred);
    assert_eq!(session.floor(&of), Floor::Consistent);
    session.proven(&of.resource.group_resource(), now, &version(10));
    assert_eq!(empty_at(&session, &of, &of, 10), Verdict::Satisfied);
}

#[test]
fn forgotten_versions_bar_every_read_until_a_consistent_one() {
    let (mut session, now) = (Session::default(), Instant::now());
    let thing = |number: u64| GroupVersionResource::new("", "v1", &format!("things-{number}"));
    for number in 0..1000 {
        session.shown(&thing(number).group_resource(), &version(20), Source::Cache, now);
    }
    session.coarsen(64 * 1024, now);
    assert!(session.bytes() <= 32 * 1024, "{} bytes", session.bytes());
    let verdicts = |session: &Session, number, at| {
        let (of, snapshot) = (Query::all(thing(number), Scope::All), pods(at, &[]));
        let held = Held { query: &of, snapshot: &snapshot };
        (session.judge(&of, held, now), session.judge_monotonic(&of, held, now))
    };
    let barred = (Verdict::Barred, Verdict::Barred);
    let is_forgotten = |number: &u64| verdicts(&session, *number, 20) == barred;
    for number in (0..1000).filter(|number| !is_forgotten(number)) {
        assert_eq!(verdicts(&session, number, 19), (behind(20), behind(20)), "{number}");
    }
    let forgotten = (0..1000).find(is_forgotten).expect("one that does not fit");
    // A cache of the apiserver may be older than what was shown.
    let group_resource = thing(forgotten).group_resource();
    session.shown(&group_resource, &version(5), Source::Cache, now);
    assert_eq!(verdicts(&session, forgotten, 19), barred);
    let mut heir = Session::default();
    session.bequeath(&mut heir, now);
    assert_eq!(verdicts(&Arc::new(heir).heir(), forgotten, 19), barred);
    session.proven(&group_resource, now, &version(20));
    assert_eq!(verdicts(&session, forgotten, 19), (behind(20), behind(20)));
    assert_eq!(verdicts(&session, forgotten, 20), (Verdict::Satisfied, Verdict::Satisfied));
}

#[test]
fn an_unreadable_watch_is_never_forgotten() {
    let (mut session, now) = (Session::default(), Instant::now());
    session.blinded(&resource(), Scope::All);
    session.coarsen(0, now);
    session.proven(&resource(), now, &version(9));
    assert_eq!(empty_at(&session, &everything(), &everything(), 10), Verdict::Barred);
}

#[test]
fn an_heir_of_a_lost_write_is_barred_whatever_others_were_shown() {
    let now = Instant::now();
    let (mut past, mut writer) = (Session::default(), Session::default());
    past.shown(&resource(), &version(5), Source::Cache, now);
    let of = (Some(key("a")), Scope::Namespace("shop".into()));
    writer.lost_write(&resource(), of, now);
    writer.shown(&GroupResource::new("", "configmaps"), &version(5), Source::Cache, now);
    writer.bequeath(&mut past, now);
    let heir = Arc::new(past).heir();
    assert_eq!(empty_at(&heir, &everything(), &everything(), 10), Verdict::Barred);
}
