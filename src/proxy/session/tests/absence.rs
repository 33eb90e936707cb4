//! Objects that were shown as absent.

use super::*;

/// The pod `a` at 30, as app `db`.
fn wrote(session: &mut Session, now: Instant) {
    let db = Some(Arc::new(BTreeMap::from([("app".to_owned(), "db".to_owned())])));
    session.expect(&resource(), key("a"), Expectation::AtLeast(version(30), db), now);
}

#[test]
fn an_object_that_left_a_selection_still_exists_elsewhere() {
    let now = Instant::now();
    let (web, db) = (query(Some("shop"), "app=web"), query(Some("shop"), "app=db"));
    let left = || Expectation::Left {
        selection: Arc::new(web.clone()),
        than: version(40),
        version: version(40),
    };
    for by_watch in [true, false] {
        let mut session = Session::default();
        wrote(&mut session, now);
        if by_watch {
            session.raise(&resource(), key("a"), left(), now);
        } else {
            session.leave(&resource(), key("a"), left(), (Some(now), now));
        }
        let verdict = |query: &Query, at| judge(&session, query, &pods(at, &[]), now);
        assert_eq!(verdict(&everything(), 20), behind(30), "it was there at 30");
        assert_eq!(verdict(&everything(), 30), Verdict::Satisfied);
        assert_eq!(verdict(&web, 20), Verdict::Satisfied, "it is not selected");
        if by_watch {
            assert_eq!(verdict(&db, 20), behind(30));
            assert_eq!(verdict(&query(Some("shop"), "app=x"), 20), Verdict::Satisfied);
        }
    }
}

#[test]
fn an_absence_in_a_cache_of_the_apiserver_is_remembered() {
    let now = Instant::now();
    let absent = || gone(None, None);
    let shown = pods(10, &[("shop", "a", "1", 5, "web")]);
    let mut session = Session::default();
    session.raise(&resource(), key("a"), absent(), now);
    assert_eq!(judge(&session, &everything(), &shown, now), Verdict::Leaving);
    assert_eq!(judge(&session, &everything(), &pods(10, &[]), now), Verdict::Satisfied);

    // The cache may have been older than the session's own write.
    let mut session = Session::default();
    wrote(&mut session, now);
    session.raise(&resource(), key("a"), absent(), now);
    assert_eq!(judge(&session, &everything(), &pods(20, &[]), now), behind(30));
    assert_eq!(judge(&session, &everything(), &pods(31, &[]), now), Verdict::Barred);
    session.proven(&resource(), now, &version(31));
    assert_eq!(judge(&session, &everything(), &pods(31, &[]), now), Verdict::Satisfied);
}

#[test]
fn an_absence_that_contradicts_an_unknown_state_binds_reads_of_any_version() {
    let now = Instant::now();
    let mut session = Session::default();
    session.expect(&resource(), key("a"), Expectation::Exists, now);
    let selection = Arc::new(everything());
    let left = Expectation::Left { selection, than: version(5), version: version(20) };
    session.leave(&resource(), key("a"), left, (None, now));
    let snapshot = pods(10, &[("shop", "a", "1", 5, "web")]);
    let held = Held { query: &everything(), snapshot: &snapshot };
    assert_eq!(session.judge_monotonic(&everything(), held, now), Verdict::Barred);
}
