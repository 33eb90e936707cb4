//! Watches: their start, and the reasons to forward them.

use super::*;
use crate::{
    cache::subscription::Begin,
    proxy::decide::{decide_watch, watch_candidate},
    websocket::Asked,
};

/// Returns the step for a watch of pods when a replica holds them at 10 and events since 8.
fn watch_step(query: &str, freshness: Freshness, session: &Session, waited: Duration) -> Step {
    step(query, freshness, session, waited, false)
}

/// The same, possibly after the apiserver's storage was restored.
fn step(
    query: &str,
    freshness: Freshness,
    session: &Session,
    waited: Duration,
    restored: bool,
) -> Step {
    step_beside(query, freshness, session, waited, |view| view.restored = restored)
}

/// The same, with another change of the replica's state.
fn step_beside(
    query: &str,
    freshness: Freshness,
    session: &Session,
    waited: Duration,
    change: impl FnOnce(&mut View),
) -> Step {
    let now = Instant::now();
    let (info, policy) =
        (info(&format!("{PODS}?watch=1&{query}")), policy(freshness, Rewrite::Keep));
    let media = Negotiated::Json;
    let rules = rules(&info, &policy, b"");
    let candidate = watch_candidate(&info, Caller::Own, media, &Asked::No, &rules, session);
    let candidate = match candidate {
        Ok(candidate) => candidate,
        Err(plan) => return Step::Act(plan),
    };
    let snapshot = pods(10, &[("shop", "a", "1", 5, "web"), ("shop", "b", "2", 6, "web")]);
    let mut view = view(candidate.watch.query.clone(), Some(snapshot), now);
    view.oldest = Some(version(8));
    change(&mut view);
    decide_watch(&candidate, &Lookup::Found(view), session, now, waited)
}

fn begins(query: &str, session: &Session) -> Result<(Begin, Level), ForwardReason> {
    match act(watch_step(query, Freshness::Session, session, Duration::MAX)) {
        Plan::Watch(watch) => Ok((watch.begin, watch.level)),
        plan => Err(reason(&plan)),
    }
}

const INITIAL: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
const NO_INITIAL: &str = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";

#[test]
fn a_watch_that_comes_while_a_replica_lists_again_is_forwarded_for_a_short_time() {
    let session = Session::default();
    for bookmarks in [true, false] {
        let query = format!("resourceVersion=9&allowWatchBookmarks={bookmarks}");
        let failing = |view: &mut View| (view.snapshot, view.state) = (None, SyncState::Failing);
        let step = step_beside(&query, Freshness::Session, &session, Duration::MAX, failing);
        let plan = act(step);
        assert_eq!(reason(&plan), ForwardReason::NotSynced);
        let is_brief =
            matches!(&plan, Plan::Forward(Forward { rewriting: Rewriting::Brief(_), .. }));
        assert_eq!(is_brief, bookmarks, "its client continues at a bookmark");
    }
}

#[test]
fn a_watch_starts_with_the_state_or_within_the_window() {
    let session = Session::default();
    let configured = Level::Configured(Freshness::Session);
    let at = |number: u64| format!("resourceVersion={number}");
    let rows = [
        (String::new(), Ok((Begin::State, configured))),
        (at(0), Ok((Begin::State, Level::Any))),
        (INITIAL.into(), Ok((Begin::State, configured))),
        (format!("{INITIAL}&{}", at(10)), Ok((Begin::State, Level::NotOlderThan))),
        (format!("{INITIAL}&{}", at(3)), Ok((Begin::State, Level::NotOlderThan))),
        (format!("{INITIAL}&{}", at(11)), Err(ForwardReason::Behind)),
        (NO_INITIAL.into(), Ok((Begin::Now, configured))),
        (at(10), Ok((Begin::After(version(10)), Level::NotOlderThan))),
        (at(8), Ok((Begin::After(version(8)), Level::NotOlderThan))),
        (at(7), Err(ForwardReason::BeforeWindow)),
        (at(11), Ok((Begin::After(version(11)), Level::NotOlderThan))),
    ];
    for (query, expected) in rows {
        assert_eq!(begins(&query, &session), expected, "{query}");
    }
}

#[test]
fn after_a_restore_a_watch_from_a_version_that_does_not_come_has_expired() {
    let session = Session::default();
    let step = |query: &str, waited| step(query, Freshness::Session, &session, waited, true);
    let Step::Await(wait) = step("resourceVersion=11", Duration::ZERO) else { panic!("no wait") };
    assert_eq!(wait.reach, Reach::Version(version(11)));
    let begin = |query: &str| match act(step(query, Duration::MAX)) {
        Plan::Watch(watch) => watch.begin,
        plan => panic!("{plan:?}"),
    };
    assert_eq!(begin("resourceVersion=11"), Begin::Expired);
    assert_eq!(begin("resourceVersion=10"), Begin::After(version(10)));
}

#[test]
fn a_watch_waits_for_a_version_that_is_about_to_arrive() {
    let session = Session::default();
    let waits = |query: &str| match watch_step(query, Freshness::Session, &session, Duration::ZERO)
    {
        Step::Await(wait) => (wait.reach, wait.patience),
        Step::Act(plan) => panic!("{plan:?}"),
    };
    let reach = Reach::Version(version(11));
    assert_eq!(waits(&format!("{INITIAL}&resourceVersion=11")), (reach, VERSION_PATIENCE));
}

#[test]
fn the_state_respects_the_session_and_events_continue_at_the_clients_version() {
    let mut session = Session::default();
    session.shown(&pod_resource(), &version(12), Source::Storage, Instant::now());
    for query in ["", "resourceVersion=0", INITIAL, NO_INITIAL] {
        assert_eq!(begins(query, &session), Err(ForwardReason::Behind), "{query}");
    }
    assert!(begins("resourceVersion=9", &session).is_ok());
    session.expired(query_of(&info(PODS)), None);
    assert_eq!(begins("", &session), Err(ForwardReason::AfterExpiry));
    assert!(begins("resourceVersion=9", &session).is_ok());
}

#[test]
fn a_most_recent_watch_is_forwarded_if_configured() {
    let session = Session::default();
    let forwarded =
        |query| match act(watch_step(query, Freshness::MostRecent, &session, Duration::ZERO)) {
            Plan::Forward(forward) => Some(forward.reason),
            _ => None,
        };
    assert_eq!(forwarded(""), Some(ForwardReason::MostRecent));
    assert_eq!(forwarded("resourceVersion=0"), None);
    assert_eq!(forwarded("resourceVersion=9"), None);
}

#[test]
fn a_watch_the_cache_cannot_serve_is_forwarded_with_its_reason() {
    let policy = policy(Freshness::Session, Rewrite::Keep);
    let session = Session::default();
    let refused = |target: &str, caller, media, asked: &Asked| {
        let info = info(target);
        watch_candidate(&info, caller, media, asked, &rules(&info, &policy, b""), &session)
            .err()
            .map(|plan| reason(&plan))
    };
    let watch = format!("{PODS}?watch=1");
    let (own, json) = (Caller::Own, Negotiated::Json);
    assert_eq!(refused(&watch, own, json, &Asked::No), None);
    assert_eq!(refused(&watch, own, json, &Asked::Other), Some(ForwardReason::Upgrade));
    let protobuf = Negotiated::Protobuf { json: true };
    assert_eq!(refused(&watch, own, protobuf, &Asked::No), None);
    assert_eq!(refused(&watch, own, protobuf, &Asked::Other), Some(ForwardReason::Upgrade));
    let table = Negotiated::Unmodelled(UnmodelledMedia::Table);
    let reason = Some(ForwardReason::MediaType(UnmodelledMedia::Table));
    assert_eq!(refused(&watch, own, table, &Asked::No), reason);
    let metadata = |kind: &str| {
        let accept = format!("application/json;as={kind};v=v1;g=meta.k8s.io");
        Negotiated::negotiate(Some(&accept), None, None)
    };
    assert_eq!(refused(&watch, own, metadata("PartialObjectMetadata"), &Asked::No), None);
    let reason = Some(ForwardReason::MediaType(UnmodelledMedia::PartialObjectMetadata));
    assert_eq!(refused(&watch, own, metadata("PartialObjectMetadataList"), &Asked::No), reason);
    let other_caller = Caller::Other(Unauthenticated::NoCredential);
    let reason = Some(ForwardReason::Caller(Unauthenticated::NoCredential));
    assert_eq!(refused(&watch, other_caller, json, &Asked::No), reason);
    let unknown = format!("{watch}&unheardOf=1");
    let reason = Some(ForwardReason::NotModelled(NotModelled::UnknownParameter));
    assert_eq!(refused(&unknown, own, json, &Asked::No), reason);
    let reason = Some(ForwardReason::NotModelled(NotModelled::UnusualPath));
    assert_eq!(refused("/api/v1/watch/pods", own, json, &Asked::No), reason);
}

#[test]
fn a_watch_with_bookmarks_is_forwarded_for_a_minute_if_the_cause_is_temporary() {
    let session = Session::default();
    let rewriting =
        |query: &str| match act(watch_step(query, Freshness::Session, &session, Duration::MAX)) {
            Plan::Forward(forward) => forward.rewriting,
            plan => panic!("{plan:?}"),
        };
    let brief = Rewriting::Brief(Duration::from_secs(60));
    for (query, expected) in [
        ("resourceVersion=7&allowWatchBookmarks=1", &brief),
        ("resourceVersion=7&allowWatchBookmarks=1&timeoutSeconds=61", &brief),
        ("resourceVersion=7&allowWatchBookmarks=1&timeoutSeconds=60", &Rewriting::Keep),
        ("resourceVersion=7", &Rewriting::Keep),
    ] {
        assert_eq!(rewriting(query), *expected, "{query}");
    }
}
