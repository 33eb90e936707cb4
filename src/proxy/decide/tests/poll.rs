//! Polls that repeat: the ones that are held or refused, and the ones that never are.

use super::*;
use crate::{
    limit::{Bucket, WaiterPlace},
    metrics::PollLimit,
};

const BURST: usize = 2;

fn ruled(action: RepeatAction) -> Policy {
    let general =
        General { mode: Mode::Enforce, rewrite: Rewrite::Keep, repeat_polls: polls(action) };
    Policy::new(&general, &[everything()])
}

/// Returns the plan for a request that came too often, at `now`.
fn exhausted(info: &RequestInfo, caller: Caller, policy: &Policy, now: Instant) -> Option<Plan> {
    let poll = poll(info, caller, &rules(info, policy, b""))?;
    let limit = poll.upstream_limit()?;
    let bucket = Bucket::full(now);
    for _ in 0..BURST {
        assert!(poll.plan(limit, &bucket, now, Duration::ZERO).is_none(), "the burst is for free");
    }
    poll.plan(limit, &bucket, now, Duration::ZERO)
}

fn paced(target: &str) -> Option<Pace> {
    let now = Instant::now();
    let plan = exhausted(&info(target), Caller::Own, &ruled(RepeatAction::Pace), now)?;
    match plan {
        Plan::Pace(pace) => Some(pace),
        plan => panic!("{target}: {plan:?}"),
    }
}

#[test]
fn a_repeated_unsafe_read_is_held() {
    for target in [
        PODS,
        "/api/v1/namespaces/shop/pods/a",
        "/api/v1/pods?labelSelector=app",
        "/api/v1/pods?limit=500",
        "/api/v1/pods?labelSelector=app&resourceVersion=0",
        "/api/v1/configmaps",
        "/api/v1/pods?timeout=30s",
    ] {
        let pace = paced(target).unwrap_or_else(|| panic!("{target} is not held back"));
        assert_eq!((pace.until, pace.place), (pace.released_at, WaiterPlace::First), "{target}");
    }
}

#[test]
fn exempt_requests_are_never_held() {
    for target in [
        "/healthz",
        "/version",
        "/apis/apps/v1",
        "/api/v1/pods?watch=1",
        "/api/v1/pods?resourceVersion=0",
        "/api/v1/pods?resourceVersion=7",
        "/api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact",
        "/api/v1/pods?continue=x",
        "/api/v1/namespaces/shop/pods/a/log",
        "/api/v1/namespaces/shop/pods/a/status",
        "/apis/coordination.k8s.io/v1/namespaces/shop/leases/leader",
        "/apis/coordination.k8s.io/v1/leases",
        "/api/v1/namespaces/shop/configmaps/leader",
        "/api/v1/namespaces/shop/configmaps?fieldSelector=metadata.name%3Dleader",
        "/api/v1/namespaces/shop/endpoints/leader",
        "/api/v1/secrets",
        "/api/v1/pods?unheardOf=1",
    ] {
        assert_eq!(paced(target), None, "{target}");
    }
    let policy = ruled(RepeatAction::Pace);
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        let uri = PODS.parse().expect("a URI");
        let info = RequestInfo::parse(&method, &uri, &HeaderMap::new());
        assert!(poll(&info, Caller::Own, &rules(&info, &policy, b"")).is_none(), "{method}");
    }
    let info = info(PODS);
    for other_caller in [
        Unauthenticated::NoCredential,
        Unauthenticated::OtherCredential,
        Unauthenticated::Impersonating,
    ] {
        let caller = Caller::Other(other_caller);
        assert!(poll(&info, caller, &rules(&info, &policy, b"")).is_none(), "{other_caller:?}");
    }
}

#[test]
fn a_lease_is_never_held_even_if_a_rule_names_it() {
    let named = "leases.coordination.k8s.io".parse().expect("a name");
    let repeat_polls = Some(polls(RepeatAction::Reject));
    let rule = Rule { repeat_polls, ..Rule::of(vec![named]) };
    let repeat_polls = polls(RepeatAction::Pace);
    let general = General { mode: Mode::Enforce, rewrite: Rewrite::Keep, repeat_polls };
    let policy = Policy::new(&general, &[rule]);
    let info = info("/apis/coordination.k8s.io/v1/namespaces/shop/leases/leader");
    assert!(poll(&info, Caller::Own, &rules(&info, &policy, b"")).is_none());
}

#[test]
fn a_hold_ends_two_seconds_before_the_clients_timeout() {
    for (query, patience) in [
        ("timeout=60s", Some(200)),
        ("timeout=2100ms", Some(100)),
        ("timeoutSeconds=3", Some(200)),
        ("timeout=2s", None),
        ("timeout=1s", None),
        ("timeoutSeconds=1&timeout=30s", None),
    ] {
        let now = Instant::now();
        let info = info(&format!("{PODS}?{query}"));
        let plan = exhausted(&info, Caller::Own, &ruled(RepeatAction::Pace), now);
        let until = match plan {
            None => None,
            Some(Plan::Pace(pace)) => Some((pace.until - now).as_millis()),
            Some(plan) => panic!("{plan:?}"),
        };
        assert_eq!(until, patience, "{query}");
    }
}

#[test]
fn retry_after_is_a_whole_number_of_seconds_and_at_least_one() {
    let now = Instant::now();
    let plan = exhausted(&info(PODS), Caller::Own, &ruled(RepeatAction::Reject), now);
    let Some(Plan::Reject(reject)) = plan else { panic!("{plan:?}") };
    assert_eq!(reject.retry_after_secs.get(), 1);
    let rate = Rate::new(0.4, 1);
    let terms = RepeatPolls { rate, ..polls(RepeatAction::Reject) };
    let info = info(PODS);
    let rules = ResourcePolicy { repeat_polls: Some(terms), ..ResourcePolicy::LEFT_ALONE };
    let poll = poll(&info, Caller::Own, &rules).expect("a poll");
    let bucket = Bucket::full(now);
    let plan = || poll.plan(PollLimit::Upstream, &bucket, now, Duration::ZERO);
    assert!(plan().is_none());
    let Some(Plan::Reject(reject)) = plan() else { panic!("not refused") };
    assert_eq!(reject.retry_after_secs.get(), 3, "2.5 s, rounded up");
}

#[test]
fn polls_without_a_limit_take_no_token() {
    let now = Instant::now();
    assert!(exhausted(&info(PODS), Caller::Own, &ruled(RepeatAction::Off), now).is_none());
}

#[test]
fn the_key_of_a_poll_ignores_its_spelling() {
    let policy = ruled(RepeatAction::Pace);
    let hasher = crate::hash::RandomState::default();
    let key = |target: &str| {
        let info = info(target);
        let poll = poll(&info, Caller::Own, &rules(&info, &policy, b""));
        let poll = poll.unwrap_or_else(|| panic!("{target}"));
        std::hash::BuildHasher::hash_one(&hasher, poll.key())
    };
    let one = key("/api/v1/pods?labelSelector=app%3Dweb,tier%3Dx&timeout=9s");
    assert_eq!(one, key("/api/v1/pods?pretty=false&labelSelector=tier%3Dx,app%3Dweb"));
    for other in [
        "/api/v1/pods?labelSelector=app%3Dweb",
        "/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb,tier%3Dx",
        "/api/v1/pods?labelSelector=app%3Dweb,tier%3Dx&limit=5",
        "/api/v1/pods?labelSelector=app%3Dweb,tier%3Dx&resourceVersion=0",
    ] {
        assert_ne!(one, key(other), "{other}");
    }
    let object = key("/api/v1/namespaces/shop/pods/a");
    assert_ne!(object, key("/api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Da"));
}

#[test]
fn responses_from_memory_are_held_for_50_ms_at_most_and_never_refused() {
    let now = Instant::now();
    let info = info("/api/v1/pods?resourceVersion=0");
    for action in [RepeatAction::Pace, RepeatAction::Reject] {
        let mut poll =
            poll(&info, Caller::Own, &rules(&info, &ruled(action), b"")).expect("a poll");
        assert_eq!(poll.upstream_limit(), None, "{action:?}");
        let bucket = Bucket::full(now);
        let plan = || poll.plan(PollLimit::Memory, &bucket, now, Duration::ZERO);
        for number in 0..200 {
            assert!(plan().is_none(), "{number}");
        }
        let Some(Plan::Pace(pace)) = plan() else { panic!("{action:?}: not held") };
        assert_eq!((pace.until - now).as_millis(), 5, "{action:?}");
        poll.terms.from_memory = Rate::new(1.0, 1);
        let bucket = Bucket::full(now);
        let plan = |waited| poll.plan(PollLimit::Memory, &bucket, now, waited);
        assert!(plan(Duration::ZERO).is_none());
        let Some(Plan::Pace(pace)) = plan(Duration::ZERO) else { panic!("{action:?}: not held") };
        assert_eq!(pace.until - now, MEMORY_DELAY_MAX, "{action:?}");
        assert!(plan(MEMORY_DELAY_MAX).is_none(), "it waited before");
    }
}
