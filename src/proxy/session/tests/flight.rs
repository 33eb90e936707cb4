//! Responses in flight, and facts that a response of another kind must not replace.

use super::*;

/// The moments at which requests are sent and answered.
fn moments<const N: usize>() -> [Instant; N] {
    let start = Instant::now();
    std::array::from_fn(|index| start + Duration::from_millis(index as u64))
}

fn labels(app: &str) -> KnownLabels {
    Some(Arc::new(BTreeMap::from([("app".to_owned(), app.to_owned())])))
}

fn at_least(at: u64, app: &str) -> Expectation {
    Expectation::AtLeast(version(at), labels(app))
}

fn left(selection: &Query, than: u64, at: u64) -> Expectation {
    let selection = Arc::new(selection.clone());
    Expectation::Left { selection, than: version(than), version: version(at) }
}

/// A replica at a version that holds `a` as it was then.
fn held(at: u64, object: u64, app: &'static str) -> Arc<Snapshot> {
    pods(at, &[("shop", "a", "1", object, app)])
}

fn get() -> Query {
    Query { fields: FieldSelector::name("a"), ..query(Some("shop"), "") }
}

type Learn<'a> = &'a dyn Fn(&mut Session, [Instant; 3]);

/// It was changed at 105 and 110, left the list at 120, and was shown at 110.
#[test]
fn a_state_between_those_that_a_list_left_is_awaited() {
    let web = query(Some("shop"), "app=web");
    let [listed, sent, now] = moments();
    let shown: [(&str, Learn<'_>); 3] = [
        ("get", &|session, [_, sent, now]| {
            session.observe(&resource(), key("a"), at_least(110, "b"), (sent, now));
        }),
        ("watch", &|session, [_, _, now]| {
            session.raise(&resource(), key("a"), at_least(110, "b"), now);
        }),
        ("own write in flight", &|session, [listed, _, now]| {
            let before = listed.checked_sub(Duration::from_millis(1)).expect("a time before");
            session.written(&resource(), key("a"), at_least(110, "b"), (before, now));
        }),
    ];
    for (name, learn) in shown {
        let mut session = Session::default();
        session.leave(&resource(), key("a"), left(&web, 90, 120), (Some(listed), listed));
        learn(&mut session, [listed, sent, now]);
        assert_eq!(judge(&session, &get(), &held(105, 105, "a"), now), behind(110), "{name}");
        assert_eq!(judge(&session, &get(), &held(110, 110, "b"), now), Verdict::Satisfied);
        assert_eq!(judge(&session, &web, &held(105, 105, "a"), now), Verdict::Satisfied);
    }
}

#[test]
fn a_newer_state_in_flight_is_not_discarded() {
    let [sent, wrote, now] = moments();
    let session = |arrived: Expectation| {
        let mut session = Session::default();
        session.expect(&resource(), key("a"), at_least(105, "web"), wrote);
        session.observe(&resource(), key("a"), arrived, (sent, now));
        session
    };
    let newer = session(at_least(110, "web"));
    assert_eq!(judge(&newer, &get(), &held(105, 105, "web"), now), behind(110));
    let older = session(at_least(100, "web"));
    assert_eq!(judge(&older, &get(), &held(105, 105, "web"), now), Verdict::Satisfied);
    let missing = session(gone(None, None));
    assert_ne!(judge(&missing, &get(), &held(105, 105, "web"), now), Verdict::Satisfied);
}

#[test]
fn two_overlapping_reads_of_a_missing_object_bar_nothing() {
    let [sent, arrived, now] = moments();
    let mut session = Session::default();
    for at in [arrived, now] {
        session.observe(&resource(), key("a"), gone(None, None), (sent, at));
    }
    assert_eq!(judge(&session, &get(), &pods(90, &[]), now), Verdict::Satisfied);
}

#[test]
fn a_list_of_a_part_raises_the_proof_of_what_is_unknown() {
    let web = query(Some("shop"), "app=web");
    let [known_at, sent, now] = moments();
    let mut session = Session::default();
    session.expect(&resource(), key("a"), Expectation::Uncertain, known_at);
    session.proven(&resource(), known_at, &version(110));
    session.leave(&resource(), key("a"), left(&web, 105, 120), (Some(sent), now));
    session.proven(&resource(), sent, &version(115));
    assert_eq!(judge(&session, &get(), &held(112, 105, "web"), now), behind(120));
    assert_eq!(judge(&session, &get(), &pods(120, &[]), now), Verdict::Satisfied);
}

/// A create was refused, because the object exists. Then a list shows that it left a part.
#[test]
fn an_object_that_exists_is_not_shown_as_before_it_left_a_part() {
    let [known_at, sent, now] = moments();
    let (front, back) = (query(Some("shop"), "app=front"), query(Some("shop"), "app=back"));
    let mut session = Session::default();
    session.expect(&resource(), key("a"), at_least(105, "front"), known_at);
    session.expect(&resource(), key("a"), Expectation::Exists, known_at);
    session.leave(&resource(), key("a"), left(&front, 105, 120), (Some(sent), now));
    for selection in [&get(), &front, &back] {
        let before = judge(&session, selection, &held(110, 105, "front"), now);
        assert_ne!(before, Verdict::Satisfied, "{selection:?}");
        let after = judge(&session, selection, &held(120, 115, "back"), now);
        assert_eq!(after, Verdict::Satisfied, "{selection:?}");
    }
}

/// It left everything, then a part, and was created again in another part.
#[test]
fn an_own_create_between_two_absences_is_shown() {
    let [known_at, sent, now] = moments();
    let front = query(Some("shop"), "app=front");
    let mut session = Session::default();
    session.leave(&resource(), key("a"), left(&everything(), 105, 120), (Some(known_at), known_at));
    session.leave(&resource(), key("a"), left(&front, 105, 130), (Some(sent), now));
    session.written(&resource(), key("a"), at_least(125, "back"), (sent, now));
    assert_ne!(judge(&session, &get(), &pods(122, &[]), now), Verdict::Satisfied);
    assert_eq!(judge(&session, &get(), &held(130, 125, "back"), now), Verdict::Satisfied);
}

#[test]
fn a_list_of_a_part_replaces_nothing_that_is_known_of_more() {
    let front = query(Some("shop"), "app=front");
    let back = query(Some("shop"), "app=back");
    let [known_at, sent, now] = moments();
    let after = |known: Expectation| {
        let mut session = Session::default();
        session.expect(&resource(), key("a"), at_least(105, "back"), known_at);
        match known {
            known @ Expectation::Left { .. } => {
                session.leave(&resource(), key("a"), known, (Some(known_at), known_at));
            }
            known => session.expect(&resource(), key("a"), known, known_at),
        }
        session.leave(&resource(), key("a"), left(&front, 105, 130), (Some(sent), now));
        judge(&session, &get(), &held(105, 105, "back"), now)
    };
    assert_ne!(after(gone(None, None)), Verdict::Satisfied, "an own deletion");
    assert_ne!(after(Expectation::Uncertain), Verdict::Satisfied, "an own write");
    assert_ne!(after(left(&everything(), 105, 120)), Verdict::Satisfied, "it left everything");
    assert_ne!(after(left(&back, 105, 120)), Verdict::Satisfied, "it left another part");
}

#[test]
fn that_it_exists_does_not_undo_a_deletion_or_an_unknown_write() {
    let [known_at, _, now] = moments();
    let after = |known: Expectation| {
        let mut session = Session::default();
        session.expect(&resource(), key("a"), known, known_at);
        session.expect(&resource(), key("a"), Expectation::Exists, now);
        judge(&session, &get(), &held(85, 80, "web"), now)
    };
    assert_ne!(after(gone(None, None)), Verdict::Satisfied);
    assert_ne!(after(Expectation::Uncertain), Verdict::Satisfied);
    assert_ne!(after(left(&everything(), 80, 90)), Verdict::Satisfied);
    assert_eq!(after(at_least(80, "web")), Verdict::Satisfied);
}

/// `dryRun` in the body of a deletion: nothing is deleted, and the response does not tell.
#[test]
fn a_deletion_that_may_be_a_dry_run_does_not_excuse_an_own_create() {
    let [created, sent, now] = moments();
    for dry in [gone(Some("1"), None), gone(Some("1"), Some(100))] {
        let mut session = Session::default();
        session.expect(&resource(), key("a"), at_least(100, "web"), created);
        session.written(&resource(), key("a"), dry, (sent, now));
        session.proven(&resource(), now, &version(130));
        let before = pods(90, &[]);
        assert_eq!(judge(&session, &get(), &before, now), behind(100));
    }
}

#[test]
fn what_has_no_version_is_kept_without_a_replica() {
    let now = Instant::now();
    let mut session = Session::default();
    session.expect(&resource(), key("a"), gone(None, None), now);
    session.prune(&resource(), &[]);
    assert_eq!(judge(&session, &get(), &held(90, 80, "web"), now), Verdict::Leaving);
}

#[test]
fn what_was_also_shown_stays_a_floor_when_facts_are_collapsed() {
    let [sent, known_at, now] = moments();
    let mut session = Session::default();
    session.expect(&resource(), key("a"), Expectation::Uncertain, sent);
    session.raise(&resource(), key("a"), at_least(115, "web"), known_at);
    session.proven(&resource(), sent, &version(112));
    for number in 0..EXPECTED_MAX {
        let name = format!("b{number}");
        session.expect(&resource(), ObjectKey::new(Some("shop"), &name), at_least(1, "x"), now);
    }
    assert_eq!(judge(&session, &everything(), &pods(112, &[]), now), behind(115));
}
