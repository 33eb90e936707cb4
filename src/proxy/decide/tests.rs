mod poll;
mod watch;

use http::{HeaderMap, Method};

use super::{proof::PROGRESS_MAX, *};
use crate::{
    api::{
        GroupResource, GroupVersionResource, ObjectKey, Scope, media::UnmodelledMedia,
        query::Query, request::NotModelled, version::ResourceVersion,
    },
    cache::{
        Absence, Link,
        store::Snapshot,
        testing::{pods, view},
    },
    limit::Rate,
    policy::{General, Mode, Policy, RepeatAction, RepeatPolls, ResourceName, Rule},
    proxy::{
        identify::Unauthenticated,
        session::{Expectation, KnownLabels, Source},
    },
};

const PODS: &str = "/api/v1/namespaces/shop/pods";

fn info(target: &str) -> RequestInfo {
    let uri = target.parse().expect("a URI");
    RequestInfo::parse(&Method::GET, &uri, &HeaderMap::new())
}

fn everything() -> Rule {
    Rule::of(vec![ResourceName::Any])
}

fn polls(action: RepeatAction) -> RepeatPolls {
    let (rate, max_delay) = (Rate::new(5.0, 2), Duration::from_secs(2));
    RepeatPolls { rate, action, max_delay, from_memory: Rate::new(200.0, 200) }
}

fn policy(freshness: Freshness, rewrite: Rewrite) -> Policy {
    let rule = Rule { freshness, ..everything() };
    let repeat_polls = polls(RepeatAction::Off);
    Policy::new(&General { mode: Mode::Enforce, rewrite, repeat_polls }, &[rule])
}

/// Returns the candidate of a request without a user agent.
fn candidate<'a>(
    info: &'a RequestInfo,
    caller: Caller,
    media: Negotiated,
    policy: &Policy,
    session: &Session,
) -> Result<Candidate<'a>, Plan> {
    super::candidate(info, caller, media, &rules(info, policy, b""), session)
}

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::parse(&number.to_string()).expect("a version")
}

fn pod_resource() -> GroupResource {
    GroupResource::new("", "pods")
}

/// Returns the query of a read.
fn query_of(info: &RequestInfo) -> &Query {
    let read = info.resource_request().and_then(|request| request.read.as_ref().ok());
    &read.expect("a read").query
}

/// Returns the forward of a read in a session; `None` if the cache could answer.
fn refused_in(session: &Session, target: &str) -> Option<Plan> {
    let policy = policy(Freshness::Session, Rewrite::NotOlderThan);
    candidate(&info(target), Caller::Own, Negotiated::Json, &policy, session).err()
}

/// Returns the reason of a forward that does not depend on the cached state; `None` if the cache
/// could answer.
fn refused(target: &str, caller: Caller, media: Negotiated, policy: &Policy) -> Option<Plan> {
    candidate(&info(target), caller, media, policy, &Session::default()).err()
}

fn reason(plan: &Plan) -> ForwardReason {
    match plan {
        Plan::Forward(forward) | Plan::Share(forward) => forward.reason,
        plan => panic!("not forwarded: {plan:?}"),
    }
}

/// Returns the step for a LIST or GET of pods when a replica holds them at 10.
fn step(target: &str, policy: &Policy, session: &Session, waited: Duration) -> Step {
    let now = Instant::now();
    let info = info(target);
    let candidate = candidate(&info, Caller::Own, Negotiated::Json, policy, session)
        .unwrap_or_else(|plan| panic!("{target}: {plan:?}"));
    let snapshot = pods(10, &[("shop", "a", "1", 5, "web"), ("shop", "b", "2", 6, "web")]);
    let view = view(candidate.read.query.clone(), Some(snapshot), now);
    decide(&candidate, &Lookup::Found(view), session, now, waited)
}

fn act(step: Step) -> Plan {
    match step {
        Step::Act(plan) => plan,
        Step::Await(wait) => panic!("waits for {:?}", wait.reach),
    }
}

#[test]
fn a_request_the_cache_can_never_answer_is_forwarded_with_its_reason() {
    let policy = policy(Freshness::Session, Rewrite::NotOlderThan);
    let rows = [
        ("/healthz", ForwardReason::NonResource),
        ("/apis/apps/v1", ForwardReason::NonResource),
        ("/api/v1/pods?watch=1", ForwardReason::NotModelled(NotModelled::Watch)),
        (
            "/api/v1/namespaces/shop/pods/a/log",
            ForwardReason::NotModelled(NotModelled::Subresource),
        ),
        ("/api/v1/pods?unheardOf=1", ForwardReason::NotModelled(NotModelled::UnknownParameter)),
        ("/api/v1/pods?continue=x", ForwardReason::NotModelled(NotModelled::Continue)),
        (
            "/api/v1/pods?fieldSelector=spec.x=1",
            ForwardReason::NotModelled(NotModelled::UnmodelledField),
        ),
        ("/api/v1/pods?resourceVersion=5&resourceVersionMatch=Exact", ForwardReason::ExactVersion),
        ("/api/v1/pods?resourceVersion=5&limit=1", ForwardReason::ExactVersion),
        ("/api/v1/secrets", ForwardReason::NeverCached),
        ("/apis/coordination.k8s.io/v1/leases", ForwardReason::NeverCached),
        ("/api/v1/events", ForwardReason::NeverCached),
    ];
    for (target, expected) in rows {
        let plan = refused(target, Caller::Own, Negotiated::Json, &policy);
        assert_eq!(reason(&plan.unwrap_or_else(|| panic!("{target}"))), expected, "{target}");
    }
    assert!(refused(PODS, Caller::Own, Negotiated::Json, &policy).is_none());
}

#[test]
fn only_our_own_user_is_answered_from_the_cache() {
    let policy = policy(Freshness::Session, Rewrite::NotOlderThan);
    for other_caller in [
        Unauthenticated::NoCredential,
        Unauthenticated::OtherCredential,
        Unauthenticated::Impersonating,
    ] {
        let plan = refused(PODS, Caller::Other(other_caller), Negotiated::Json, &policy);
        let expected = Forward { reason: other_caller.into(), rewriting: Rewriting::Keep };
        assert!(matches!(plan, Some(Plan::Forward(forward)) if forward == expected));
    }
}

#[test]
fn a_write_is_forwarded_as_a_write() {
    let uri = PODS.parse().expect("a URI");
    let info = RequestInfo::parse(&Method::POST, &uri, &HeaderMap::new());
    let policy = policy(Freshness::Session, Rewrite::NotOlderThan);
    let plan = candidate(&info, Caller::Own, Negotiated::Json, &policy, &Session::default()).err();
    assert_eq!(plan.as_ref().map(reason), Some(ForwardReason::Write));
}

#[test]
fn an_unsupported_media_type_is_forwarded_without_a_consistent_read() {
    let policy = policy(Freshness::Session, Rewrite::NotOlderThan);
    let table = Negotiated::Unmodelled(UnmodelledMedia::Table);
    let plan = refused(PODS, Caller::Own, table, &policy);
    let expected = Forward {
        reason: ForwardReason::MediaType(UnmodelledMedia::Table),
        rewriting: Rewriting::Any,
    };
    assert!(matches!(plan, Some(Plan::Share(forward)) if forward == expected));
}

#[test]
fn a_most_recent_read_is_shared_and_never_answered_from_the_cache() {
    let policy = policy(Freshness::MostRecent, Rewrite::NotOlderThan);
    let plan = refused(PODS, Caller::Own, Negotiated::Json, &policy);
    assert!(
        matches!(plan, Some(Plan::Share(forward)) if forward.reason == ForwardReason::MostRecent)
    );
    // The level applies only to reads that name no version.
    let versioned = format!("{PODS}?resourceVersion=0");
    assert!(refused(&versioned, Caller::Own, Negotiated::Json, &policy).is_none());
}

#[test]
fn the_rewriting_of_an_uncovered_read_keeps_its_meaning() {
    let mut session = Session::default();
    let rewriting = |target: &str, rewrite, session: &Session| {
        let policy = policy(Freshness::Session, rewrite);
        let info = info(target);
        let candidate = candidate(&info, Caller::Own, Negotiated::Json, &policy, session)
            .unwrap_or_else(|plan| panic!("{plan:?}"));
        let absent = Lookup::Absent(Absence::NotDemanded);
        match act(decide(&candidate, &absent, session, Instant::now(), Duration::ZERO)) {
            Plan::Forward(forward) => forward.rewriting,
            plan => panic!("{plan:?}"),
        }
    };
    assert_eq!(rewriting(PODS, Rewrite::Keep, &session), Rewriting::Keep);
    assert_eq!(rewriting(PODS, Rewrite::Any, &session), Rewriting::Any);
    assert_eq!(rewriting(PODS, Rewrite::NotOlderThan, &session), Rewriting::Any);
    let limited = format!("{PODS}?limit=500");
    assert_eq!(rewriting(&limited, Rewrite::NotOlderThan, &session), Rewriting::Keep);

    let now = Instant::now();
    session.shown(&pod_resource(), &version(7), Source::Cache, now);
    let floored = Rewriting::NotOlderThan(version(7));
    assert_eq!(rewriting(PODS, Rewrite::NotOlderThan, &session), floored);

    let key = ObjectKey::new(Some("shop"), "a");
    session.expect(&pod_resource(), key, Expectation::Uncertain, now);
    assert_eq!(rewriting(PODS, Rewrite::NotOlderThan, &session), Rewriting::Keep);
}

#[test]
fn a_covered_read_is_answered_from_the_cache() {
    let policy = policy(Freshness::Session, Rewrite::NotOlderThan);
    for target in [
        PODS.to_owned(),
        format!("{PODS}/a"),
        format!("{PODS}?resourceVersion=0"),
        format!("{PODS}?resourceVersion=10"),
        format!("{PODS}?resourceVersion=9&resourceVersionMatch=NotOlderThan"),
        format!("{PODS}?limit=2"),
        format!("{PODS}?limit=1&resourceVersion=0"),
    ] {
        let plan = act(step(&target, &policy, &Session::default(), Duration::ZERO));
        assert!(matches!(plan, Plan::Read(_)), "{target}: {plan:?}");
    }
}

#[test]
fn a_path_is_answered_only_when_it_is_known_to_exist() {
    let policy = policy(Freshness::Session, Rewrite::Keep);
    let everywhere = Query::all(GroupVersionResource::new("", "v1", "pods"), Scope::All);
    let known = |target: &str, held: Arc<Snapshot>| {
        let (info, session, now) = (info(target), Session::default(), Instant::now());
        let candidate = candidate(&info, Caller::Own, Negotiated::Json, &policy, &session)
            .unwrap_or_else(|plan| panic!("{plan:?}"));
        let lookup = Lookup::Found(view(everywhere.clone(), Some(held), now));
        match act(decide(&candidate, &lookup, &session, now, Duration::ZERO)) {
            Plan::Read(_) => true,
            plan => {
                assert_eq!(reason(&plan), ForwardReason::PathUnknown);
                false
            }
        }
    };
    let namespaced = || pods(10, &[("shop", "a", "1", 5, "web")]);
    assert!(known(PODS, namespaced()));
    assert!(known("/api/v1/pods", namespaced()));
    assert!(!known(PODS, pods(10, &[])), "it may be cluster-scoped");
    assert!(known("/api/v1/pods", pods(10, &[])));
    assert!(!known("/api/v1/pods/a", namespaced()), "it is not cluster-scoped");
    assert!(!known("/api/v1/pods/a", pods(10, &[])), "it may not be cluster-scoped");
}

#[test]
fn a_list_longer_than_its_limit_is_forwarded() {
    let policy = policy(Freshness::Session, Rewrite::NotOlderThan);
    let target = format!("{PODS}?limit=1");
    let plan = act(step(&target, &policy, &Session::default(), Duration::ZERO));
    assert_eq!(reason(&plan), ForwardReason::Limited);
}

#[test]
fn a_read_waits_briefly_for_its_own_write_then_is_forwarded_with_the_floor() {
    let policy = policy(Freshness::Session, Rewrite::NotOlderThan);
    let mut session = Session::default();
    let key = ObjectKey::new(Some("shop"), "a");
    let wrote = Expectation::AtLeast(version(12), KnownLabels::None);
    session.expect(&pod_resource(), key, wrote, Instant::now());
    match step(PODS, &policy, &session, Duration::ZERO) {
        Step::Await(wait) => {
            assert_eq!(wait.reach, Reach::Version(version(12)));
            assert_eq!(wait.patience, SESSION_PATIENCE);
        }
        Step::Act(plan) => panic!("{plan:?}"),
    }
    match act(step(PODS, &policy, &session, SESSION_PATIENCE)) {
        Plan::Forward(forward) => {
            assert_eq!(forward.reason, ForwardReason::Behind);
            assert_eq!(forward.rewriting, Rewriting::NotOlderThan(version(12)));
        }
        plan => panic!("{plan:?}"),
    }
}

#[test]
fn a_wait_ends_well_before_the_clients_timeout() {
    let policy = policy(Freshness::Session, Rewrite::NotOlderThan);
    let target = format!("{PODS}?resourceVersion=11&timeout=1s");
    match step(&target, &policy, &Session::default(), Duration::ZERO) {
        Step::Await(wait) => assert_eq!(wait.patience, Duration::from_millis(500)),
        Step::Act(plan) => panic!("{plan:?}"),
    }
}

#[test]
fn a_read_that_names_a_version_waits_as_long_as_the_apiserver_would() {
    let policy = policy(Freshness::Session, Rewrite::NotOlderThan);
    let target = format!("{PODS}?resourceVersion=11");
    assert!(matches!(
        step(&target, &policy, &Session::default(), VERSION_PATIENCE / 2),
        Step::Await(_)
    ));
    let plan = act(step(&target, &policy, &Session::default(), VERSION_PATIENCE));
    assert_eq!(reason(&plan), ForwardReason::Behind);
}

#[test]
fn a_replica_whose_freshness_is_not_proven_answers_nothing() {
    let policy = policy(Freshness::Any, Rewrite::NotOlderThan);
    let now = Instant::now();
    let later = now + Duration::from_secs(100);
    let info = info(PODS);
    let session = Session::default();
    let candidate = candidate(&info, Caller::Own, Negotiated::Json, &policy, &session)
        .unwrap_or_else(|plan| panic!("{plan:?}"));
    let max = candidate.max_staleness;
    let planned = |link, proven_at, at| {
        let held = Some(pods(10, &[]));
        let mut view = view(candidate.read.query.clone(), held, now);
        (view.link, view.proven_at) = (link, proven_at);
        act(decide(&candidate, &Lookup::Found(view), &session, at, Duration::ZERO))
    };
    let lost = Link::Lost { since: now };
    assert!(matches!(planned(lost, Some(now), now + max), Plan::Read(_)));
    let plan = planned(lost, Some(now), now + max + Duration::from_millis(1));
    assert_eq!(reason(&plan), ForwardReason::LinkLost);
    assert!(matches!(planned(Link::Up, Some(now), now + PROGRESS_MAX), Plan::Read(_)));
    assert_eq!(reason(&planned(Link::Up, Some(now), later)), ForwardReason::NoProgress);
    assert_eq!(reason(&planned(Link::Up, None, now)), ForwardReason::NoProgress);
}

#[test]
fn a_read_waits_for_a_replica_that_is_starting_but_not_for_one_that_fails() {
    let policy = policy(Freshness::Session, Rewrite::Keep);
    let now = Instant::now();
    let info = info(PODS);
    let session = Session::default();
    let candidate = candidate(&info, Caller::Own, Negotiated::Json, &policy, &session)
        .unwrap_or_else(|plan| panic!("{plan:?}"));
    let starting = || view(candidate.read.query.clone(), None, now);
    let step = decide(&candidate, &Lookup::Found(starting()), &session, now, Duration::ZERO);
    assert!(matches!(step, Step::Await(Await { reach: Reach::Synced, .. })));
    let step = decide(&candidate, &Lookup::Found(starting()), &session, now, START_PATIENCE);
    assert_eq!(reason(&act(step)), ForwardReason::NotSynced);
    let mut failing = starting();
    failing.state = SyncState::Failing;
    let step = decide(&candidate, &Lookup::Found(failing), &session, now, Duration::ZERO);
    assert_eq!(reason(&act(step)), ForwardReason::NotSynced);
}

#[test]
fn the_next_read_after_an_expiry_is_forwarded() {
    let policy = policy(Freshness::Session, Rewrite::NotOlderThan);
    let mut session = Session::default();
    let info = info(PODS);
    session.expired(query_of(&info), None);
    let plan = candidate(&info, Caller::Own, Negotiated::Json, &policy, &session).err();
    let expected = Forward { reason: ForwardReason::AfterExpiry, rewriting: Rewriting::Keep };
    assert!(matches!(plan, Some(Plan::Forward(forward)) if forward == expected));
    for other in
        [&format!("{PODS}?resourceVersion=5"), &format!("{PODS}?labelSelector=a"), "/api/v1/pods"]
    {
        assert!(refused_in(&session, other).is_none(), "{other}");
    }
}

#[test]
fn unsafe_reads_start_a_replica_and_others_when_they_repeat() {
    let policy = policy(Freshness::Session, Rewrite::NotOlderThan);
    let demand = |target: &str| {
        let (info, session) = (info(target), Session::default());
        candidate(&info, Caller::Own, Negotiated::Json, &policy, &session)
            .unwrap_or_else(|plan| panic!("{plan:?}"))
            .demand
    };
    assert_eq!(demand(PODS), Demand::Count);
    assert_eq!(demand(&format!("{PODS}/a")), Demand::Count);
    assert_eq!(demand(&format!("{PODS}?resourceVersion=0")), Demand::Repeated);
    assert_eq!(demand(&format!("{PODS}?resourceVersion=0&labelSelector=a")), Demand::Count);
    assert_eq!(demand(&format!("{PODS}?resourceVersion=5")), Demand::Repeated);
}

#[test]
fn events_count_as_complete_until_the_proof_expires() {
    let now = Instant::now();
    let query = Query::all(GroupVersionResource::new("", "v1", "pods"), Scope::All);
    let mut view = view(query, Some(pods(1, &[])), now);
    let staleness = Duration::from_secs(5);
    assert_eq!(proven_until(&view, staleness), Some(now + PROGRESS_MAX));
    view.link = Link::Lost { since: now + Duration::from_secs(1) };
    assert_eq!(proven_until(&view, staleness), Some(now + Duration::from_secs(6)));
    assert_eq!(proven_until(&view, Duration::ZERO), Some(now + Duration::from_secs(3)));
    assert_eq!(proven_until(&view, PROGRESS_MAX), Some(now + PROGRESS_MAX));
    view.proven_at = None;
    assert_eq!(proven_until(&view, staleness), None);
}
