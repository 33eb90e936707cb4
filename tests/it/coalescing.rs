//! Identical reads share a request at the strictest level, and where memory cannot give the
//! representation. They never share a request sent before they arrived.

use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Request, Response};
use listless::{
    api::Verb,
    body::Body,
    simulator::{Effect, Fault, Simulator},
    upstream::{Client, Error, Lane},
};
use tokio::task::JoinHandle;

use crate::harness::{
    Answer, OTHER_TOKEN, Setup, TestClient, TestProxy, group_resource, pass, pod, populated,
};

const PODS: &str = "/api/v1/pods";

/// A slow way back from the apiserver: responses are a second old when they arrive.
struct Distant(Simulator);

impl Client for Distant {
    fn send(
        &self,
        request: Request<Body>,
        lane: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let answered = self.0.send(request, lane);
        Box::pin(async move {
            let answer = answered.await;
            pass(Duration::from_secs(1)).await;
            answer
        })
    }

    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.send(request, Lane::Long)
    }
}

/// A proxy at the strictest level, far from its apiserver.
fn distant() -> TestProxy {
    let rules = "cache:\n  rules:\n  - {resources: ['*'], freshness: mostRecent}\n";
    let simulator = populated();
    let distant = Distant(simulator.clone());
    Setup::of(simulator).upstream(distant).config(rules).in_memory()
}

fn read(client: &TestClient, path: &'static str) -> JoinHandle<Answer> {
    let client = client.apart();
    tokio::spawn(async move { client.get(path).await })
}

async fn all(reads: Vec<JoinHandle<Answer>>) -> Vec<Answer> {
    let answers = futures_util::future::join_all(reads).await;
    answers.into_iter().map(|answer| answer.expect("no panic")).collect()
}

#[tokio::test(start_paused = true)]
async fn many_concurrent_reads_cost_two_requests_and_agree() {
    let proxy = distant();
    let client = proxy.client();
    let answers = all((0..30).map(|_| read(&client, PODS)).collect()).await;
    assert_eq!(proxy.upstream.count(Verb::List, "pods"), 2);
    let straight = proxy.straight().get(PODS).await;
    for answer in &answers {
        assert_eq!(answer.text(), straight.text());
        assert_eq!(answer.header("content-type"), "application/json");
    }
    let shared = "listless; fwd=request; collapsed; detail=most-recent";
    assert_eq!(answers.iter().filter(|answer| answer.cache_status() == shared).count(), 28);
}

#[tokio::test(start_paused = true)]
async fn reads_that_memory_cannot_answer_share_a_request() {
    const INDENTED: &str = "/api/v1/pods?pretty=true";
    let proxy = TestProxy::warmed(PODS).await;
    let slow = Effect::Delay(Duration::from_secs(1));
    proxy.simulator.inject(Fault::always(slow, |asked| asked.verb == Verb::List));
    let client = proxy.client();
    proxy.upstream.forget();
    let answers = all((0..20).map(|_| read(&client, INDENTED)).collect()).await;
    assert_eq!(proxy.upstream.count(Verb::List, "pods"), 2);
    let straight = proxy.straight().get(INDENTED).await;
    for answer in &answers {
        assert_eq!((answer.text(), answer.detail()), (straight.text(), "pretty"));
    }
    let shared = answers.iter().filter(|answer| answer.cache_status().contains("collapsed"));
    assert_eq!(shared.count(), 18);
    // A shared response contains the writes of this session.
    let first = read(&client, INDENTED);
    pass(Duration::from_millis(300)).await;
    let created = client.create("/api/v1/namespaces/a/pods", &pod("a", "new", &[], "n1")).await;
    assert_eq!(created.status, 201);
    for answer in all((0..3).map(|_| read(&client, INDENTED)).collect()).await {
        assert!(answer.names().contains(&"a/new".to_owned()), "{}", answer.summary());
    }
    assert_eq!(first.await.expect("no panic").status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_read_never_shares_a_request_that_was_sent_before_it_came() {
    let proxy = distant();
    let client = proxy.client();
    let first = read(&client, PODS);
    for number in 0..5 {
        pass(Duration::from_millis(300)).await;
        let name = format!("p-{number}");
        let version = proxy.simulator.put(&group_resource("pods"), pod("a", &name, &[], "n1"));
        let reads = all((0..3).map(|_| read(&client, PODS)).collect()).await;
        for answer in reads {
            assert!(answer.names().contains(&format!("a/{name}")), "{}", answer.summary());
            assert!(Some(answer.version()) >= version);
        }
    }
    assert_eq!(first.await.expect("no panic").status, 200);
}

#[tokio::test(start_paused = true)]
async fn only_identical_reads_of_the_same_caller_share() {
    let proxy = distant();
    let client = proxy.client();
    let other_caller = proxy.anybody().with("authorization", &format!("Bearer {OTHER_TOKEN}"));
    let reads = vec![
        // The first is sent at once. Of the others only two are identical.
        read(&client, PODS),
        read(&client, "/api/v1/pods?labelSelector=app"),
        read(&client, "/api/v1/namespaces/a/pods"),
        read(&client.with("accept", "application/json"), PODS),
        read(&client.with("user-agent", "other"), PODS),
        read(&other_caller, PODS),
        read(&proxy.anybody(), PODS),
    ];
    let answers = all(reads).await;
    assert_eq!(proxy.upstream.count(Verb::List, "pods"), 7);
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 403]);
}

#[tokio::test(start_paused = true)]
async fn requests_of_unauthenticated_callers_and_writes_are_never_shared() {
    let proxy = distant();
    let other_caller = proxy.anybody().with("authorization", &format!("Bearer {OTHER_TOKEN}"));
    all((0..5).map(|_| read(&other_caller, PODS)).collect()).await;
    assert_eq!(proxy.upstream.count(Verb::List, "pods"), 5);
    let maps = "/api/v1/namespaces/a/configmaps";
    for _ in 0..3 {
        let created = serde_json::json!({"metadata": {"generateName": "c-"}});
        assert_eq!(proxy.client().create(maps, &created).await.status, 201);
    }
    assert_eq!(proxy.upstream.count(Verb::Create, "configmaps"), 3);
}

#[tokio::test(start_paused = true)]
async fn errors_are_shared_and_no_reader_waits_forever() {
    let proxy = distant();
    let refused = Effect::Answer { code: 429, retry_after_secs: Some(3) };
    proxy.simulator.inject(Fault::next(2, refused, |asked| asked.verb == Verb::List));
    let client = proxy.client();
    for answer in all((0..9).map(|_| read(&client, PODS)).collect()).await {
        assert!(matches!(answer.status, 200 | 429), "{}", answer.summary());
    }
    proxy.simulator.inject(Fault::next(9, Effect::Close, |asked| asked.verb == Verb::List));
    for answer in all((0..9).map(|_| read(&client, PODS)).collect()).await {
        assert!(matches!(answer.status, 200 | 503), "{}", answer.summary());
    }
    proxy.simulator.clear_faults();
    proxy
        .simulator
        .inject(Fault::next(2, Effect::BreakAfter(50), |asked| asked.verb == Verb::List));
    for answer in all((0..9).map(|_| read(&client, PODS)).collect()).await {
        let expected = matches!(answer.status, 200 | 503) || !answer.whole;
        assert!(expected, "{}", answer.summary());
    }
    assert_eq!(client.get(PODS).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_disconnects_does_not_fail_the_others() {
    let proxy = distant();
    let client = proxy.client();
    let first = read(&client, PODS);
    pass(Duration::from_millis(100)).await;
    let second = read(&client, PODS);
    pass(Duration::from_millis(100)).await;
    let rest: Vec<_> = (0..5).map(|_| read(&client, PODS)).collect();
    pass(Duration::from_millis(100)).await;
    second.abort();
    first.abort();
    for answer in all(rest).await {
        assert_eq!(answer.status, 200);
    }
    assert!(proxy.upstream.count(Verb::List, "pods") <= 3);
}

/// An apiserver that accepts every connection and never answers.
struct BlackHole;

impl Client for BlackHole {
    fn send(&self, _: Request<Body>, _: Lane) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        Box::pin(async {
            pass(CONNECT_TIMEOUT).await;
            Err(Error::ConnectTimeout)
        })
    }

    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.send(request, Lane::Long)
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn reads_that_share_a_request_share_its_failure() {
    let rules = "cache: {rules: [{resources: ['*'], freshness: mostRecent}]}\n";
    let proxy = Setup::default().upstream(BlackHole).config(rules).in_memory();
    let client = proxy.client();
    let asked = tokio::time::Instant::now();
    let answers = all((0..20).map(|_| read(&client, PODS)).collect()).await;
    for answer in &answers {
        assert_eq!((answer.status, answer.header("retry-after")), (503, "1"));
        assert!(answer.text().contains("cannot connect to the apiserver in time"));
    }
    // The first sends one request. One more serves all that came while it was under way.
    assert!(asked.elapsed() < 3 * CONNECT_TIMEOUT, "{:?}", asked.elapsed());
    assert_eq!(proxy.upstream.count(Verb::List, "pods"), 2);
}

#[tokio::test(start_paused = true)]
async fn reads_that_share_a_request_share_its_broken_body() {
    let proxy = distant();
    let client = proxy.client();
    proxy
        .simulator
        .inject(Fault::always(Effect::BreakAfter(100), |asked| asked.resource == "pods"));
    let answers = all((0..20).map(|_| read(&client, PODS)).collect()).await;
    assert_eq!(proxy.upstream.count(Verb::List, "pods"), 2);
    // The sender of the request gets its response. The others get an error.
    assert_eq!(answers.iter().filter(|answer| answer.status == 503).count(), 18);
    assert!(answers.iter().all(|answer| answer.status == 503 || !answer.whole));
}
