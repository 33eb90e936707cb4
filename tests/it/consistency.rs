//! The consistency check: replicas are compared with the apiserver while they serve.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http::{Request, Response};
use http_body_util::BodyExt;
use listless::{
    api::{ObjectKey, Verb},
    body::Body,
    cache::{Consistency, OnDifference},
    simulator::{Effect, Fault, Simulator},
    upstream::{Client, Error, Lane},
};

use crate::harness::{
    Setup, TestProxy, checked_as_shipped, eventually, group_resource, is_check, pass, pod,
    populated, settle, widget,
};

const PODS: &str = "/api/v1/pods";

const METRIC: &str = "listless_replica_checks_total";

/// Queries of every style and scope.
const QUERIES: [&str; 6] = [
    PODS,
    "/api/v1/namespaces/a/services",
    "/api/v1/namespaces/a/configmaps?labelSelector=app%3Dweb",
    "/apis/x.io/v1/widgets",
    "/apis/x.io/v1/gadgets",
    "/apis/apps/v1/deployments?fieldSelector=metadata.name%3Dweb",
];

/// A way to the apiserver that loses events about an object while it is told to.
struct Lossy {
    simulator: Simulator,
    loses: Arc<AtomicBool>,
}

const LOST: &str = "\"name\":\"web-0\"";

impl Client for Lossy {
    fn send(
        &self,
        request: Request<Body>,
        lane: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let (answer, loses) = (self.simulator.send(request, lane), self.loses.clone());
        if lane == Lane::Short {
            return answer;
        }
        let kept = move |event: Bytes| {
            let is_lost = String::from_utf8_lossy(&event).contains(LOST);
            if is_lost && loses.load(Ordering::Relaxed) { Bytes::new() } else { event }
        };
        let lossy =
            move |body: Body| Body::wrap(body.map_frame(move |frame| frame.map_data(kept.clone())));
        async move { Ok(answer.await?.map(lossy)) }.boxed()
    }

    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.simulator.upgrade(request)
    }
}

/// A difference is found within this time.
const SOON: Duration = Duration::from_secs(15);

fn restarting() -> Consistency {
    Consistency {
        period: Some(Duration::from_secs(5)),
        on_difference: OnDifference::Restart,
        ..Consistency::default()
    }
}

fn counted(proxy: &TestProxy, result: &str) -> f64 {
    proxy.counted(METRIC, &format!("result=\"{result}\""))
}

fn write(proxy: &TestProxy, resource: &str, object: serde_json::Value) {
    proxy.simulator.put(&group_resource(resource), object).expect("served");
}

#[tokio::test(start_paused = true)]
async fn replicas_that_follow_what_others_write_never_differ() {
    let proxy = Setup::default().in_memory();
    for path in QUERIES {
        proxy.warm(path).await;
    }
    for round in 0..60 {
        let app = ["web", "db", ""][round % 3];
        write(
            &proxy,
            "pods",
            pod("a", ["db-0", "web-0", "web-1"][round % 3], &[("app", app)], "n1"),
        );
        write(&proxy, "widgets.x.io", widget("a", "w0", ["red", "blue"][round % 2]));
        if round % 4 == 0 {
            write(&proxy, "pods", pod("a", &format!("new-{round}"), &[("app", app)], "n2"));
        }
        if round % 4 == 2 {
            let key = ObjectKey::new(Some("a"), &format!("new-{}", round - 2));
            proxy.simulator.remove(&group_resource("pods"), &key).expect("it was there");
        }
        pass(Duration::from_secs(1)).await;
    }
    assert!(counted(&proxy, "equal") >= 10.0, "{}", counted(&proxy, "equal"));
    for other in ["different", "reshaped", "unanswered"] {
        assert_eq!(counted(&proxy, other), 0.0, "{other}");
    }
    let checks = proxy.upstream.checks();
    for path in QUERIES {
        let is_custom = path.contains("/x.io/");
        let (path, selector) = path.split_once('?').unwrap_or((path, ""));
        let of_path = |target: &str| target.starts_with(path) && target.contains(selector);
        let check = checks.iter().find(|seen| of_path(&seen.asked.path_and_query));
        let check = check.unwrap_or_else(|| panic!("no check of {path}"));
        assert_eq!(check.asked.verb, Verb::List);
        let accept = check.headers["accept"].to_str().expect("a text");
        assert_eq!(accept.contains("as=PartialObjectMetadataList"), !is_custom, "{accept}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_lost_an_event_is_found_stops_answering_and_begins_anew() {
    let simulator = populated();
    let loses = Arc::new(AtomicBool::new(false));
    let lossy = Lossy { simulator: simulator.clone(), loses: loses.clone() };
    // The bound is that of each list: two do not fit into it.
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let straight = Setup::of(simulator.clone()).in_memory().straight();
    let listed = straight.with("accept", metadata).get(PODS).await.body.len() as u64;
    let bounded = Consistency { bytes_max: listed * 3 / 2, ..restarting() };
    let setup = Setup::of(simulator).upstream(lossy).consistency(bounded);
    let proxy = setup.in_memory();
    proxy.warm(PODS).await;
    let client = proxy.client();
    loses.store(true, Ordering::Relaxed);
    write(&proxy, "pods", pod("a", "web-0", &[("app", "other")], "n1"));
    write(&proxy, "pods", pod("a", "db-0", &[("app", "db"), ("tier", "1")], "n1"));
    settle().await;
    loses.store(false, Ordering::Relaxed);
    let stale = client.get(PODS).await;
    assert!(stale.is_hit() && stale.json() != proxy.straight().get(PODS).await.json());

    // The replica's next list takes its time.
    let slow = Effect::Delay(Duration::from_secs(3));
    proxy.simulator.inject(Fault::next(1, slow, |asked| {
        asked.user_agent.starts_with("listless/") && asked.verb == Verb::List && !is_check(asked)
    }));
    let deadline = tokio::time::Instant::now() + SOON;
    while counted(&proxy, "different") == 0.0 {
        assert!(tokio::time::Instant::now() < deadline, "not found");
        pass(Duration::from_millis(100)).await;
    }
    let forwarded = client.get(PODS).await;
    assert!(!forwarded.is_hit(), "{}", forwarded.summary());
    assert_eq!(forwarded.json(), proxy.straight().get(PODS).await.json());
    let error = proxy.replicas()[0].last_error.clone().unwrap_or_default();
    assert!(error.contains("a/web-0 was held at "), "{error}");

    pass(Duration::from_secs(5)).await;
    let again = client.get(PODS).await;
    assert!(again.is_hit(), "{}", again.summary());
    assert_eq!(again.json(), proxy.straight().get(PODS).await.json());
    write(&proxy, "pods", pod("a", "web-0", &[("app", "web")], "n1"));
    pass(Duration::from_secs(30)).await;
    assert_eq!(counted(&proxy, "different"), 1.0);
    assert!(counted(&proxy, "equal") >= 1.0);
    assert_eq!(
        proxy.counted("listless_replica_watches_ended_total", "reason=\"inconsistent\""),
        1.0
    );
}

#[tokio::test(start_paused = true)]
async fn watches_of_a_replica_that_lost_an_event_end() {
    let simulator = populated();
    let loses = Arc::new(AtomicBool::new(true));
    let lossy = Lossy { simulator: simulator.clone(), loses: loses.clone() };
    let proxy = Setup::of(simulator).upstream(lossy).consistency(restarting()).in_memory();
    proxy.warm(PODS).await;
    let version = proxy.client().get(PODS).await.version();
    let path = format!("{PODS}?watch=true&resourceVersion={version}");
    let mut watch = proxy.client().watch(&path).await;
    write(&proxy, "pods", pod("a", "web-0", &[("app", "other")], "n1"));
    write(&proxy, "pods", pod("a", "db-0", &[("app", "db"), ("tier", "1")], "n1"));
    settle().await;
    loses.store(false, Ordering::Relaxed);
    let mut events = Vec::new();
    while let Some(event) = watch.next().await {
        events.push(event);
    }
    // Metrics are brought up to date every second.
    pass(Duration::from_secs(2)).await;
    assert_eq!(counted(&proxy, "different"), 1.0);
    assert!(events.len() <= 2, "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn an_apiserver_that_cannot_answer_exactly_is_asked_rarely() {
    for effect in [
        Effect::Answer { code: 400, retry_after_secs: None },
        Effect::Answer { code: 403, retry_after_secs: None },
        Effect::Answer { code: 406, retry_after_secs: None },
        Effect::Answer { code: 429, retry_after_secs: Some(1) },
        Effect::Expired,
        Effect::Close,
        Effect::Garbage,
        Effect::EndAfter(300),
        Effect::StallAfter(300),
    ] {
        let proxy = Setup::default().in_memory();
        proxy.simulator.inject(Fault::always(effect, is_check));
        proxy.warm(PODS).await;
        for round in 0..360 {
            write(&proxy, "pods", pod("a", "web-0", &[("round", &format!("{round}"))], "n1"));
            pass(Duration::from_secs(10)).await;
            let answer = proxy.client().get(PODS).await;
            assert!(answer.is_hit(), "{effect:?}: {}", answer.summary());
        }
        let checks = proxy.upstream.checks().len();
        // Three minutes of waits that double, and then one in five minutes and more.
        assert!((5..=6 + 60 / 5).contains(&checks), "{effect:?}: {checks}");
        // The last one may still be under way.
        let unanswered = counted(&proxy, "unanswered") as usize;
        assert!(
            (checks - 1..=checks).contains(&unanswered),
            "{effect:?}: {unanswered} of {checks}"
        );
        assert_eq!(counted(&proxy, "different"), 0.0, "{effect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_longer_than_the_bound_is_not_read_to_its_end() {
    let bounded = Consistency { bytes_max: 500, ..restarting() };
    let proxy = Setup::default().consistency(bounded).in_memory();
    proxy.warm(PODS).await;
    eventually("a check", || counted(&proxy, "unanswered") > 0.0).await;
    assert!(proxy.client().get(PODS).await.is_hit());
}

#[tokio::test(start_paused = true)]
async fn each_replica_is_checked_at_most_once_in_five_minutes() {
    let proxy = Setup::default().consistency(checked_as_shipped()).in_memory();
    let paths = [PODS, "/apis/x.io/v1/widgets", "/api/v1/nodes"];
    for path in paths {
        proxy.warm(path).await;
    }
    let mut minutes: Vec<[usize; 3]> = Vec::new();
    for minute in 0..120 {
        proxy.upstream.forget();
        for _ in 0..20 {
            write(&proxy, "pods", pod("a", "web-0", &[("minute", &format!("{minute}"))], "n1"));
            for path in paths {
                assert!(proxy.client().get(path).await.is_hit());
            }
            pass(Duration::from_secs(3)).await;
        }
        let checks = proxy.upstream.checks();
        let count =
            |path| checks.iter().filter(|seen| seen.asked.path_and_query.starts_with(path)).count();
        minutes.push(paths.map(count));
    }
    for (index, path) in paths.iter().enumerate() {
        let checks: Vec<_> = minutes.iter().map(|minute| minute[index]).collect();
        for five in checks.windows(5) {
            assert!(five.iter().sum::<usize>() <= 1, "{path}: {checks:?}");
        }
        assert!(checks.iter().sum::<usize>() >= 10, "{path}: {checks:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_was_checked_is_not_checked_again() {
    let proxy = TestProxy::warmed(PODS).await;
    for _ in 0..100 {
        assert!(proxy.client().get(PODS).await.is_hit());
        pass(Duration::from_secs(3)).await;
    }
    let checks = proxy.upstream.checks().len();
    assert_eq!((checks, counted(&proxy, "equal")), (1, 1.0));
}
