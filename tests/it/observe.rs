//! Mode `observe`: nothing changes, and the report knows the effect of enforce.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Request, Response, header::USER_AGENT};
use listless::{
    api::Verb,
    body::Body,
    simulator::{Effect, Fault, Simulator},
    upstream::{Client, Error, Lane},
};
use tokio::time::Instant;

use crate::harness::{
    Answer, DelimitedWatch, OWN_TOKEN, PROTOBUF, Protobuf, Setup, TestClient, TestProxy,
    group_resource, pass, pod, populated, settle,
};

const PODS: &str = "/api/v1/pods";
const WEB: &str = "/api/v1/namespaces/a/pods/web-0";
const NONE: &str = "/api/v1/namespaces/a/pods/none";
const SELECTED: &str = "/api/v1/pods?labelSelector=app%3Dweb";
const WIDGETS: &str = "/apis/x.io/v1/widgets";

fn observing(sections: &str) -> TestProxy {
    Setup::default().config(&format!("mode: observe\n{sections}")).in_memory()
}

/// The number of requests with this outcome under enforce.
fn would(proxy: &TestProxy, would: &str) -> u64 {
    proxy.counted("listless_would_have_total", &format!("would=\"{would}\"")) as u64
}

fn shadows(proxy: &TestProxy, result: &str) -> u64 {
    proxy.counted("listless_shadow_checks_total", &format!("result=\"{result}\"")) as u64
}

/// Requests that clients sent to the apiserver; the clients do not identify themselves.
fn sent(proxy: &TestProxy) -> Vec<String> {
    let mut seen = proxy.upstream.all();
    seen.retain(|seen| !seen.headers.contains_key(USER_AGENT));
    seen.into_iter().map(|seen| seen.asked.path_and_query).collect()
}

/// Reads until memory would answer.
async fn warmed(sections: &str, path: &str) -> TestProxy {
    let proxy = observing(sections);
    for _ in 0..2 {
        assert_eq!(proxy.client().get(path).await.status, 200);
        settle().await;
    }
    proxy
}

/// The names of a response's headers, without hop-by-hop headers, and the source of the response.
fn names(headers: &HeaderMap) -> Vec<&str> {
    let hop = ["cache-status", "connection", "content-length", "date", "transfer-encoding"];
    let mut names: Vec<_> = headers.keys().map(http::HeaderName::as_str).collect();
    names.retain(|name| !hop.contains(name));
    names.sort_unstable();
    names
}

#[tokio::test(start_paused = true)]
async fn observe_mode_changes_no_byte_of_requests_and_responses() {
    let polls = "repeatPolls: {perSecond: 0.1, burst: 1, action: reject}\n";
    let proxy = observing(polls);
    let client = proxy.client();
    for path in
        [PODS, WEB, NONE, SELECTED, WIDGETS, "/api/v1/pods?limit=2", "/api/v1/secrets", "/apis"]
    {
        for _ in 0..4 {
            let asked = Instant::now();
            let (answer, straight) = (client.get(path).await, proxy.straight().get(path).await);
            assert_eq!(answer.status, straight.status, "{path}");
            if !path.contains("limit") {
                assert_eq!(answer.text(), straight.text(), "{path}");
            }
            assert_eq!(names(&answer.headers), names(&straight.headers), "{path}");
            assert_eq!(answer.cache_status(), "listless; fwd=bypass; detail=observe", "{path}");
            assert_eq!(sent(&proxy), [path]);
            proxy.upstream.forget();
            assert!(asked.elapsed() < Duration::from_millis(5), "nobody is held back");
            settle().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn observe_mode_runs_replicas_as_enforce_does() {
    let proxy = warmed("", PODS).await;
    assert_eq!(proxy.replicas().len(), 1);
    assert_eq!((proxy.replicas()[0].objects, would(&proxy, "forward")), (6, 1));
    for _ in 0..5 {
        proxy.client().get(PODS).await;
    }
    assert_eq!((would(&proxy, "read"), would(&proxy, "forward")), (6, 1));
    // Enforce would have needed only two of the client's seven requests and one of the replica's.
    assert_eq!(proxy.upstream.count(Verb::List, "pods"), 8);
    assert_eq!(proxy.upstream.count(Verb::Watch, "pods"), 1);
    let eager = "cache: {rules: [{resources: [nodes], start: eager}]}\n";
    let proxy = observing(eager);
    settle().await;
    assert_eq!(proxy.replicas().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_decision_is_predicted() {
    let sections = "repeatPolls: {perSecond: 1, burst: 3, fromMemoryPerSecond: 3}\n\
        cache:\n  rules:\n\
        \x20 - {resources: [nodes], freshness: mostRecent, repeatPolls: {action: off}}\n\
        \x20 - {resources: [services], start: never, repeatPolls: {action: reject, burst: 1}}\n\
        \x20 - {resources: ['*']}\n";
    let proxy = warmed(sections, PODS).await;
    let client = proxy.client();
    for _ in 0..2 {
        client.get("/api/v1/nodes").await;
        client.get("/api/v1/services").await;
    }
    assert_eq!((would(&proxy, "share"), would(&proxy, "reject")), (2, 1));
    let watch = client.watch("/api/v1/pods?watch=1").await;
    assert_eq!((watch.head.status.as_u16(), would(&proxy, "watch")), (200, 1));
    for _ in 0..8 {
        client.get(PODS).await;
    }
    // One is the first of its version. Three are within the limit on responses from memory.
    assert_eq!((would(&proxy, "pace"), would(&proxy, "read")), (4, 9));
    let created = client.create("/api/v1/namespaces/a/pods", &pod("a", "new", &[], "")).await;
    assert_eq!((created.status, created.detail()), (201, "observe"));
    proxy.anybody().get(PODS).await;
    client.get("/version").await;
    // Beside those: one poll of pods, one of services.
    assert_eq!(would(&proxy, "forward"), 5);
    assert_eq!(proxy.counted("listless_forwarded_total", "observe"), 18.0);
}

/// A mixture of client requests, with writes in between.
async fn play(proxy: &TestProxy, mut each: impl FnMut(&Answer)) {
    let client = proxy.client();
    for round in 0..60_u32 {
        for path in [PODS, SELECTED, WEB, WIDGETS, "/api/v1/pods?limit=500", "/api/v1/secrets"] {
            each(&client.get(path).await);
        }
        if round % 5 == 0 {
            let name = format!("made-{round}");
            let object = pod("a", &name, &[("app", "web")], "n1");
            each(&client.create("/api/v1/namespaces/a/pods", &object).await);
            each(&client.get(&format!("/api/v1/namespaces/a/pods/{name}")).await);
            proxy.simulator.put(&group_resource("pods"), pod("b", &name, &[], "n2"));
        }
        if round % 7 == 0 {
            // As on a release before 1.31, other resources raise the version.
            proxy.simulator.skip_revisions(3);
        }
        pass(Duration::from_secs(3)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn predictions_equal_the_decisions_of_enforce() {
    let mut hits = 0_u32;
    let enforcing = Setup::default().in_memory();
    play(&enforcing, |answer| hits += u32::from(answer.is_hit())).await;
    let observed = observing("");
    play(&observed, |answer| assert_eq!(answer.detail(), "observe")).await;
    let predicted = would(&observed, "read");
    let difference = (f64::from(hits) - predicted as f64).abs() / f64::from(hits);
    assert!(hits > 200 && difference <= 0.05, "{hits} answered, {predicted} foreseen");
}

/// Reads beside a watch in protobuf that began before memory could serve it.
async fn read_beside_an_informer(proxy: &TestProxy) -> Vec<Answer> {
    let client = proxy.client();
    let informer = client.with("accept", &format!("{PROTOBUF},application/json"));
    let version = proxy.simulator.revision();
    proxy.simulator.put(&group_resource("pods"), pod("a", "late-0", &[], "n1"));
    for _ in 0..2 {
        client.get(PODS).await;
        settle().await;
    }
    let path = format!("{PODS}?watch=1&resourceVersion={version}");
    let mut watch = DelimitedWatch::open(&informer, &path).await;
    let said = watch.head.headers["cache-status"].to_str().expect("a text");
    assert!(said.ends_with("detail=not-demanded") || said.ends_with("detail=observe"), "{said}");
    watch.tells("ADDED", "late-0").await;
    let mut answers = Vec::new();
    for number in 1..=5 {
        let name = format!("late-{number}");
        proxy.simulator.put(&group_resource("pods"), pod("a", &name, &[], "n1"));
        watch.tells("ADDED", &name).await;
        let answer = client.get(PODS).await;
        assert!(answer.names().contains(&format!("a/{name}")), "{}", answer.summary());
        answers.push(answer);
    }
    answers
}

#[tokio::test(start_paused = true)]
async fn reads_beside_a_protobuf_watch_are_predicted() {
    let through = |sections: &str| {
        let simulator = populated();
        let protobuf = Protobuf::of(simulator.clone());
        Setup::of(simulator).upstream(protobuf).config(sections).in_memory()
    };
    let enforcing = read_beside_an_informer(&through("")).await;
    let details = |answers: &[Answer]| -> Vec<_> {
        answers.iter().map(|it| it.cache_status().to_owned()).collect()
    };
    assert!(enforcing.iter().all(Answer::is_hit), "{:?}", details(&enforcing));
    let observed = through("mode: observe\n");
    read_beside_an_informer(&observed).await;
    // The second of the two reads that started the replica.
    assert_eq!(would(&observed, "read"), 1 + enforcing.len() as u64);
}

#[tokio::test(start_paused = true)]
async fn after_a_switch_to_enforce_a_session_is_shown_nothing_older() {
    let proxy = warmed("", PODS).await;
    let client = proxy.client();
    for number in 0..20 {
        proxy.configure("mode: observe\n");
        // The replica does not receive these events for a while.
        proxy.simulator.hold_caches();
        let name = format!("p-{number}");
        proxy.simulator.put(&group_resource("pods"), pod("a", &name, &[], "n1"));
        let seen = client.get(PODS).await;
        proxy.configure("");
        let answer = client.get(PODS).await;
        proxy.simulator.release_caches();
        assert!(answer.version() >= seen.version(), "{}", answer.summary());
        let has = |answer: &Answer| answer.names().contains(&format!("a/{name}"));
        assert!(has(&answer) || !has(&seen), "{}", answer.summary());
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateways_callers_are_predicted_once_their_rights_are_known() {
    let proxy = Setup::default().config("mode: observe\n").gateway().in_memory();
    let ann = proxy.bearer(OWN_TOKEN);
    for _ in 0..6 {
        assert_eq!(ann.get(PODS).await.status, 200);
        settle().await;
    }
    assert!(would(&proxy, "read") >= 3, "{}", would(&proxy, "read"));
    // Reviews are sent beside the requests. A caller without the right is never predicted as a hit.
    let before = would(&proxy, "read");
    let nobody = proxy.bearer("nobody");
    for _ in 0..6 {
        assert_eq!(nobody.get(PODS).await.status, 401);
        settle().await;
    }
    assert_eq!(would(&proxy, "read"), before);
    pass(Duration::from_secs(60)).await;
    ann.get(PODS).await;
    assert_eq!(would(&proxy, "read"), before + 1, "the earlier state is still in use");
}

const ALL: &str = "observe: {checkShare: 1}\n";

#[tokio::test(start_paused = true)]
async fn memory_agrees_with_the_apiserver_in_observe_mode() {
    let proxy = warmed(ALL, PODS).await;
    let client = proxy.client();
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let gzip = client.with("accept-encoding", "gzip");
    for round in 0..5 {
        for path in [PODS, SELECTED, WEB, NONE] {
            client.get(path).await;
        }
        client.with("accept", metadata).get(PODS).await;
        gzip.get(PODS).await;
        // The replica receives this event after the next response.
        let name = format!("p-{round}");
        proxy.simulator.put(&group_resource("pods"), pod("a", &name, &[("app", "web")], "n1"));
        client.get(PODS).await;
        client.get(&format!("/api/v1/namespaces/a/pods/{name}")).await;
        pass(Duration::from_secs(1)).await;
    }
    // The comparison runs beside everything, on threads that the clock does not wait for.
    settled(&proxy).await;
    assert_eq!((shadows(&proxy, "different"), shadows(&proxy, "unknown")), (0, 0));
    assert!(shadows(&proxy, "equal") >= 30, "{}", shadows(&proxy, "equal"));
}

/// Waits until no check is running; checks run on threads of their own, in real time.
async fn settled(proxy: &TestProxy) {
    let all = || ["equal", "different", "unknown"].map(|result| shadows(proxy, result));
    for _ in 0..3 {
        let before = all();
        // Longer than the time limit for a replica.
        pass(Duration::from_secs(100)).await;
        tokio::task::spawn_blocking(|| {}).await.expect("no panic");
        if all() == before {
            return;
        }
    }
}

/// An apiserver that gives clients and replicas different responses.
struct TwoFaced(Simulator);

impl Client for TwoFaced {
    fn send(
        &self,
        request: Request<Body>,
        lane: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let agent = request.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        let is_ours = agent.is_some_and(|agent| agent.starts_with("listless/"));
        let answered = self.0.send(request, lane);
        Box::pin(async move {
            let response = answered.await?;
            if is_ours || !response.status().is_success() {
                return Ok(response);
            }
            let (head, body) = response.into_parts();
            let body = body.collect(1 << 20).await.map_err(Error::Broken)?;
            let text = String::from_utf8_lossy(&body).replace("\"web-0\"", "\"wib-0\"");
            Ok(Response::from_parts(head, Body::full(Bytes::from(text))))
        })
    }

    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.0.upgrade(request)
    }
}

#[tokio::test(start_paused = true)]
async fn a_differing_response_is_reported() {
    let simulator = populated();
    let two_faced = TwoFaced(simulator.clone());
    let config = format!("mode: observe\n{ALL}");
    let proxy = Setup::of(simulator).upstream(two_faced).config(&config).in_memory();
    let client = proxy.client();
    for _ in 0..5 {
        client.get("/api/v1/nodes").await;
        client.get(PODS).await;
        settle().await;
    }
    settled(&proxy).await;
    assert_eq!((shadows(&proxy, "different"), shadows(&proxy, "equal")), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn incomparable_responses_count_as_unknown() {
    let proxy = warmed(ALL, PODS).await;
    let client = proxy.client();
    let busy = Effect::Answer { code: 503, retry_after_secs: None };
    proxy.simulator.inject(Fault::next(2, busy, |asked| asked.verb == Verb::List));
    client.get(PODS).await;
    client.get(PODS).await;
    proxy.simulator.inject(Fault::next(1, Effect::Garbage, |asked| asked.verb == Verb::List));
    client.get(PODS).await;
    settled(&proxy).await;
    assert_eq!((shadows(&proxy, "unknown"), shadows(&proxy, "different")), (3, 0));
    // The apiserver's layout of an empty response depends on the other accepted types.
    let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    proxy.client().with("accept", metadata).get(NONE).await;
    settled(&proxy).await;
    assert_eq!((shadows(&proxy, "unknown"), shadows(&proxy, "different")), (4, 0));
    // A share of zero checks nothing.
    let proxy = warmed("observe: {checkShare: 0}\n", PODS).await;
    for _ in 0..5 {
        proxy.client().get(PODS).await;
    }
    settled(&proxy).await;
    let checks = ["equal", "different", "unknown"].map(|result| shadows(&proxy, result));
    assert_eq!(checks, [0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn an_observed_watch_keeps_its_replica_in_use() {
    let idle = "cache: {idleTimeout: 10s}\n";
    let proxy = warmed(idle, PODS).await;
    let client: TestClient = proxy.client();
    let watch = client.watch("/api/v1/pods?watch=1&timeoutSeconds=3000").await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(proxy.replicas().len(), 1);
    drop(watch);
    pass(Duration::from_secs(60)).await;
    assert!(proxy.replicas().is_empty());
}
