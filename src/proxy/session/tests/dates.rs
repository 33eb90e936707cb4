//! A read in flight: its content counts from its arrival, and its proof from the time it was sent.

use super::*;

#[test]
fn a_read_sent_before_a_known_absence_does_not_prove_it() {
    let sent = Instant::now();
    let [between, now, later] = [1, 2, 3].map(|millis| sent + Duration::from_millis(millis));
    let proven = |sent_at: Instant| {
        let mut session = Session::default();
        let gone = Expectation::Gone { uid: None, version: None };
        session.observe(&resource(), key("a"), gone, (sent, now));
        session.proven(&resource(), sent_at, &version(9));
        judge(&session, &query(None, ""), &pods(10, &[("shop", "a", "1", 5, "web")]), later)
    };
    assert_eq!(proven(between), Verdict::Leaving, "the object may have gone since");
    assert_eq!(proven(later), Verdict::Satisfied);
}

#[test]
fn a_list_sent_before_a_shown_object_is_not_a_restored_storage() {
    let sent = Instant::now();
    let [between, now] = [1, 2].map(|millis| sent + Duration::from_millis(millis));
    let mut session = Session::default();
    let seen = Expectation::AtLeast(version(9), web());
    session.observe(&resource(), key("a"), seen, (sent, now));
    let wrote = Expectation::AtLeast(version(8), web());
    session.expect(&resource(), key("b"), wrote, now);
    // The replica has reached the first version, which becomes the shown one.
    let (query, held) = (query(None, ""), pods(9, &[("shop", "a", "1", 9, "web")]));
    session.prune(&resource(), &[Some(Held { query: &query, snapshot: &held })]);
    session.expect(&resource(), key("b"), Expectation::AtLeast(version(12), web()), now);
    session.proven(&resource(), between, &version(7));
    assert_ne!(judge(&session, &query, &held, now), Verdict::Satisfied, "the write is forgotten");
}

#[test]
fn a_consistent_read_below_a_written_version_shows_a_restored_storage() {
    let wrote = Instant::now();
    let [sent, now] = [1, 2].map(|millis| wrote + Duration::from_millis(millis));
    let held = pods(45, &[("shop", "a", "1", 40, "web")]);
    let judged = |read: &dyn Fn(&mut Session)| {
        let mut session = Session::default();
        let written = Expectation::AtLeast(version(5_000), web());
        session.expect(&resource(), key("a"), written, wrote);
        read(&mut session);
        judge(&session, &query(None, ""), &held, now)
    };
    let list = |sent_at: Instant| {
        move |session: &mut Session| session.proven(&resource(), sent_at, &version(45))
    };
    let get = |sent_at: Instant| {
        move |session: &mut Session| {
            let seen = Expectation::AtLeast(version(40), web());
            session.observe(&resource(), key("a"), seen, (sent_at, now));
        }
    };
    assert_eq!(judged(&list(sent)), Verdict::Satisfied);
    assert_eq!(judged(&get(sent)), Verdict::Satisfied);
    // A read sent before the write is answered shows nothing about it.
    assert_ne!(judged(&list(wrote)), Verdict::Satisfied);
    assert_ne!(judged(&get(wrote)), Verdict::Satisfied);
}

#[test]
fn an_object_that_left_a_list_may_be_older_than_the_list() {
    let listed = Instant::now();
    let [sent, now] = [1, 2].map(|millis| listed + Duration::from_millis(millis));
    let selected = query(Some("shop"), "app=web");
    let left = Expectation::Left {
        selection: Arc::new(selected.clone()),
        than: version(5),
        version: version(20),
    };
    let mut session = Session::default();
    session.listed(List::unread(selected.clone(), version(20), Source::Storage), listed);
    session.leave(&resource(), key("a"), left, (Some(listed), listed));
    // It was changed at 7, between the list that showed it and the one that did not.
    let db = Some(Arc::new(BTreeMap::from([("app".to_owned(), "db".to_owned())])));
    session.observe(&resource(), key("a"), Expectation::AtLeast(version(7), db), (sent, now));
    let held = pods(10, &[("shop", "a", "1", 7, "db")]);
    assert_eq!(judge(&session, &selected, &held, now), behind(20), "lists never go back");
}

#[test]
fn a_get_replaces_only_what_was_known_before_it_was_sent() {
    let now = Instant::now();
    let later = now + Duration::from_millis(1);
    let observed = |known_at: Instant| {
        let mut session = Session::default();
        session.expect(&resource(), key("a"), Expectation::Uncertain, known_at);
        let seen = Expectation::AtLeast(version(5), web());
        session.observe(&resource(), key("a"), seen, (now, now));
        judge(&session, &query(None, ""), &pods(10, &[("shop", "a", "1", 5, "web")]), later)
    };
    assert_eq!(observed(now), Verdict::Satisfied);
    assert_eq!(observed(later), Verdict::Barred);
}

#[test]
fn a_state_shown_after_an_unknown_one_outlives_the_next_facts() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let seen = || Expectation::AtLeast(version(40), web());
    let judged = |next: &dyn Fn(&mut Session)| {
        let mut session = Session::default();
        session.expect(&resource(), key("a"), Expectation::Exists, at(1));
        session.raise(&resource(), key("a"), seen(), at(3));
        next(&mut session);
        judge(&session, &everything(), &pods(35, &[("shop", "a", "1", 20, "web")]), at(5))
    };
    assert_eq!(judged(&|_| ()), behind(40));
    let wrote = |session: &mut Session| {
        session.expect(&resource(), key("a"), Expectation::Exists, at(4));
    };
    assert_eq!(judged(&wrote), behind(40), "the outcome of another write is unknown");
    let read = |session: &mut Session| {
        let earlier = Expectation::AtLeast(version(20), web());
        session.observe(&resource(), key("a"), earlier, (at(2), at(4)));
    };
    assert_eq!(judged(&read), behind(40), "a read sent before it was shown");
}

#[test]
fn a_late_outcome_of_a_write_replaces_nothing_learned_since_it_was_sent() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let judged = |learned: Expectation, outcome: Expectation, snapshot: &Snapshot| {
        let mut session = Session::default();
        session.expect(&resource(), key("a"), learned, at(3));
        session.written(&resource(), key("a"), outcome, (at(2), at(4)));
        judge(&session, &everything(), snapshot, at(5))
    };
    let (created, removed) = (Expectation::AtLeast(version(5), web()), gone(None, None));
    let held = pods(10, &[("shop", "a", "1", 5, "web")]);
    assert_eq!(judged(Expectation::Uncertain, created, &held), Verdict::Barred);
    let created_since = Expectation::AtLeast(version(12), web());
    assert_ne!(judged(created_since, removed.clone(), &pods(11, &[])), Verdict::Satisfied);
    assert_eq!(judged(gone(None, Some(12)), removed, &pods(13, &[])), Verdict::Satisfied);
}
