//! Frequent polls: delayed or refused, and the requests that are never throttled. Also the rate of
//! Listless's own requests to a busy apiserver.

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use listless::{
    api::Verb,
    simulator::{Effect, Fault},
};
use serde_json::json;
use tokio::{task::JoinHandle, time::Instant};

use crate::harness::{
    Answer, OTHER_TOKEN, OWN_TOKEN, Setup, TestClient, TestProxy, group_resource, pass, pod, settle,
};

mod uncounted;

const PODS: &str = "/api/v1/pods";
const NAMESPACE: &str = "/api/v1/namespaces/a/pods";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/a/leases/leader";

/// The interval between two tokens.
const INTERVAL: Duration = Duration::from_millis(200);

/// Keeps everything out of memory.
const NEVER: &str = "cache: {rules: [{resources: ['*'], start: never}]}\n";

/// A proxy in front of pods that it forwards, with this many tokens left for their poll.
async fn warmed(tokens: usize) -> TestProxy {
    let polls = format!("repeatPolls: {{perSecond: 5, burst: {}}}\n{NEVER}", tokens + 2);
    let proxy = Setup::default().config(&polls).in_memory();
    let client = proxy.client();
    for _ in 0..2 {
        assert_eq!(client.get(PODS).await.status, 200);
    }
    proxy.upstream.forget();
    proxy
}

fn poll(client: &TestClient, path: &str) -> JoinHandle<(Answer, Instant)> {
    let (client, path) = (client.apart(), path.to_owned());
    tokio::spawn(async move { (client.get(&path).await, Instant::now()) })
}

async fn all(polls: Vec<JoinHandle<(Answer, Instant)>>) -> Vec<(Answer, Instant)> {
    join_all(polls).await.into_iter().map(|polled| polled.expect("no panic")).collect()
}

/// The delay that the response reports.
fn paced(answer: &Answer) -> Option<u64> {
    let (_, rest) = answer.cache_status().split_once("paced=")?;
    rest.split(';').next()?.parse().ok()
}

#[tokio::test(start_paused = true)]
async fn frequent_polls_queue_together_and_are_sent_together() {
    let proxy = warmed(3).await;
    let client = proxy.client();
    let start = Instant::now();
    for _ in 0..3 {
        let answer = client.get(PODS).await;
        assert_eq!((paced(&answer), answer.status), (None, 200));
    }
    // Some come at once, some while those wait. The same token releases all.
    let mut polls: Vec<_> = (0..5).map(|_| poll(&client, PODS)).collect();
    pass(INTERVAL / 2).await;
    polls.extend((0..5).map(|_| poll(&client, PODS)));
    let straight = proxy.straight().get(PODS).await;
    for (answer, at) in all(polls).await {
        assert_eq!((answer.status, answer.text()), (200, straight.text()));
        let waited = paced(&answer).expect("it was held back");
        assert!((95..=205).contains(&waited), "{waited} ms");
        assert!((at - start).abs_diff(INTERVAL) < Duration::from_millis(5), "{:?}", at - start);
    }
    assert_eq!(proxy.upstream.count(Verb::List, "pods"), 3 + 1);
    let held = |place, limit| {
        let labels = format!("place=\"{place}\",limit=\"{limit}\"");
        proxy.counted("listless_paced_seconds_count", &labels)
    };
    assert_eq!((held("first", "upstream"), held("joined", "upstream")), (1.0, 9.0));
    assert_eq!(proxy.counted("listless_paced_seconds_count", "memory"), 0.0);
    let totals = proxy.report().totals;
    assert_eq!((totals.paced, totals.paced_from_memory), (10, 0));
    // A client that waits for the next token waits one interval from then on.
    let again = client.get(PODS).await;
    assert!(paced(&again).is_some_and(|waited| waited >= 190), "{}", again.summary());
}

#[tokio::test(start_paused = true)]
async fn twenty_pollers_are_delayed_by_at_most_one_interval() {
    let proxy = warmed(0).await;
    let client = proxy.client();
    let pollers = (0..20).map(|number| {
        let client = client.apart();
        tokio::spawn(async move {
            pass(Duration::from_millis(37 * number)).await;
            for _ in 0..10 {
                let asked = Instant::now();
                assert_eq!(client.get(PODS).await.status, 200);
                assert!(asked.elapsed() <= INTERVAL + Duration::from_millis(5));
                pass(Duration::from_secs(3)).await;
            }
        })
    });
    for poller in join_all(pollers).await {
        poller.expect("no panic");
    }
    let sent = proxy.upstream.count(Verb::List, "pods");
    assert!(sent <= 30 * 5, "{sent} within half a minute");
}

#[tokio::test(start_paused = true)]
async fn a_delayed_poll_shows_changes_made_meanwhile() {
    let proxy = Setup::default().config("repeatPolls: {fromMemoryPerSecond: 20}\n").in_memory();
    let client = proxy.client();
    for _ in 0..2 + 20 {
        assert_eq!(paced(&client.get(PODS).await), None);
    }
    let held = poll(&client, PODS);
    pass(Duration::from_millis(20)).await;
    proxy.simulator.put(&group_resource("pods"), pod("a", "meanwhile", &[], "n1"));
    let (answer, _) = held.await.expect("no panic");
    assert!(answer.is_hit() && paced(&answer).is_some(), "{}", answer.summary());
    assert!(answer.names().contains(&"a/meanwhile".to_owned()), "{}", answer.summary());
}

#[tokio::test(start_paused = true)]
async fn answers_from_memory_are_throttled_only_in_a_tight_loop() {
    let strict = "repeatPolls: {perSecond: 0.1, burst: 3, action: reject}\n";
    for sections in ["repeatPolls: {perSecond: 0.1, burst: 3}\n", strict] {
        let proxy = Setup::default().config(sections).in_memory();
        proxy.warm(PODS).await;
        let client = proxy.client();
        // Below the limit, for any time.
        for _ in 0..2000 {
            let answer = client.get(PODS).await;
            assert_eq!((answer.is_hit(), paced(&answer)), (true, None), "{}", answer.summary());
            pass(Duration::from_millis(6)).await;
        }
        let start = Instant::now();
        let mut held = 0;
        for _ in 0..1000 {
            let asked = Instant::now();
            let answer = client.get(PODS).await;
            assert!(answer.is_hit(), "{}", answer.summary());
            held += u64::from(paced(&answer).is_some());
            assert!(asked.elapsed() <= Duration::from_millis(50));
        }
        let took = start.elapsed().as_millis();
        assert!(
            (3900..=4900).contains(&took) && (700..=800).contains(&held),
            "{held} in {took} ms"
        );
        let counted = proxy.counted("listless_paced_seconds_count", "limit=\"memory\"");
        assert_eq!(counted, held as f64);
        assert_eq!(proxy.counted("listless_paced_seconds_count", "upstream"), 0.0);
        let totals = proxy.report().totals;
        assert_eq!((totals.paced, totals.paced_from_memory), (held, held));
        assert_eq!(proxy.upstream.count(Verb::List, "pods"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn polls_that_queue_together_share_a_request() {
    let proxy = warmed(0).await;
    let client = proxy.client();
    let polls = (0..9).map(|_| poll(&client, PODS)).collect();
    let answers = all(polls).await;
    assert_eq!(proxy.upstream.count(Verb::List, "pods"), 1);
    let straight = proxy.straight().get(PODS).await;
    for (answer, _) in &answers {
        assert_eq!((answer.status, answer.text()), (200, straight.text()));
        assert!(paced(answer).is_some(), "{}", answer.summary());
    }
    let collapsed = answers.iter().filter(|(a, _)| a.cache_status().contains("collapsed; paced="));
    assert_eq!(collapsed.count(), 8);
}

#[tokio::test(start_paused = true)]
async fn no_poll_waits_near_its_own_timeout() {
    let proxy = warmed(0).await;
    let client = proxy.client();
    for (query, most) in [("timeout=2s", 0), ("timeoutSeconds=1", 0), ("timeout=2100ms", 101)] {
        let asked = Instant::now();
        let answer = client.get(&format!("{PODS}?{query}")).await;
        assert_eq!(answer.status, 200, "{}", answer.summary());
        assert!(asked.elapsed() <= Duration::from_millis(most), "{query}: {:?}", asked.elapsed());
    }
    let asked = Instant::now();
    client.get(&format!("{PODS}?timeout=30s")).await;
    assert!(asked.elapsed() >= INTERVAL / 4, "it is the same poll, and its turn has not come");
}

#[tokio::test(start_paused = true)]
async fn no_poll_waits_longer_than_configured() {
    let polls = format!("repeatPolls: {{perSecond: 0.01, burst: 1, maxDelay: 1500ms}}\n{NEVER}");
    let proxy = Setup::default().config(&polls).in_memory();
    let client = proxy.client();
    client.get(PODS).await;
    for _ in 0..3 {
        let asked = Instant::now();
        assert_eq!(client.get(PODS).await.status, 200);
        let waited = asked.elapsed().as_millis();
        assert!((1500..=1505).contains(&waited), "{waited} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_poll_gets_a_status_with_retry_after() {
    let polls = format!("repeatPolls: {{perSecond: 0.4, burst: 2, action: reject}}\n{NEVER}");
    let proxy = Setup::default().config(&polls).in_memory();
    let client = proxy.client();
    for _ in 0..2 {
        assert_eq!(client.get(PODS).await.status, 200);
    }
    proxy.upstream.forget();
    let refused = client.get(PODS).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "3"));
    assert_eq!(refused.header("content-type"), "application/json");
    assert_eq!(refused.cache_status(), "listless; detail=repeated-poll");
    let status = refused.json();
    assert_eq!((&status["kind"], &status["apiVersion"]), (&json!("Status"), &json!("v1")));
    assert_eq!((&status["reason"], &status["code"]), (&json!("TooManyRequests"), &json!(429)));
    assert_eq!(status["details"]["retryAfterSeconds"], 3);
    assert_eq!(proxy.upstream.all().len(), 0);
    assert_eq!(proxy.counted("listless_refused_total", "verb=\"list\""), 1.0);
    pass(Duration::from_secs(3)).await;
    assert_eq!(client.get(PODS).await.status, 200, "it retried after its Retry-After");
}

#[tokio::test(start_paused = true)]
async fn exempt_requests_never_wait() {
    let polls = "repeatPolls: {perSecond: 0.1, burst: 1, action: reject}\n\
                 cache: {rules: [{resources: ['*', leases.coordination.k8s.io]}]}\n";
    for polls in [polls.to_owned(), polls.replace("reject", "pace")] {
        let proxy = Setup::default().config(&polls).in_memory();
        let client = proxy.client();
        let lease = json!({"metadata": {"name": "leader"}, "spec": {"leaseTransitions": 1}});
        let leases = LEASE.strip_suffix("/leader").expect("a name");
        assert_eq!(client.create(leases, &lease).await.status, 201);
        let asked = Instant::now();
        // Memory answers nothing indented: each of these reaches the apiserver.
        for _ in 0..20 {
            let answer = client.get(&format!("{LEASE}?pretty=true")).await;
            assert_eq!((answer.status, answer.is_hit(), paced(&answer)), (200, false, None));
        }
        for path in [
            LEASE,
            "/api/v1/namespaces/a/configmaps/c",
            "/api/v1/pods?resourceVersion=0",
            "/api/v1/pods?resourceVersion=1",
            "/api/v1/namespaces/a/pods/web-0/status",
            "/version",
            "/apis",
            "/healthz",
        ] {
            for _ in 0..20 {
                let answer = client.get(path).await;
                assert_eq!((answer.status, paced(&answer)), (200, None), "{path}");
            }
        }
        for _ in 0..5 {
            let path = "/api/v1/namespaces/a/configmaps/c";
            let patched = client.patch(path, "merge-patch", r#"{"data":{"x":"1"}}"#).await;
            assert_eq!(patched.status, 200);
            let watch = client.apart().watch("/api/v1/pods?watch=1").await;
            assert_eq!(watch.head.status, 200);
            let anybody = proxy.anybody().get(PODS).await;
            assert_eq!(anybody.status, 403, "{}", anybody.summary());
        }
        assert!(asked.elapsed() < Duration::from_millis(100), "{:?}", asked.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_leaves_its_token_to_others() {
    let proxy = warmed(0).await;
    let client = proxy.client();
    let gone: Vec<_> = (0..3).map(|_| poll(&client, PODS)).collect();
    pass(INTERVAL / 2).await;
    gone.iter().for_each(JoinHandle::abort);
    settle().await;
    let asked = Instant::now();
    client.get(PODS).await;
    // If one of them had been answered, this one would wait one interval more.
    assert!(asked.elapsed() <= INTERVAL / 2 + Duration::from_millis(5), "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn each_session_has_tokens_of_its_own() {
    let polls = format!("repeatPolls: {{perSecond: 1, burst: 3, action: reject}}\n{NEVER}");
    let proxy = Setup::default().config(&polls).gateway().in_memory();
    let (one, other) = (proxy.bearer(OWN_TOKEN), proxy.bearer(OTHER_TOKEN));
    for _ in 0..3 {
        assert_eq!(one.get(PODS).await.status, 200);
    }
    assert_eq!(one.get(PODS).await.status, 429);
    assert_eq!(other.get(PODS).await.status, 200);
    // The same poll in another notation is the same poll. Another poll is not.
    assert_eq!(one.get("/api/v1/pods?pretty=0&timeout=9s").await.status, 429);
    assert_eq!(one.get("/api/v1/namespaces/a/pods").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn rules_select_the_polls_to_throttle() {
    let sections = "repeatPolls: {perSecond: 1, burst: 1, action: off}\n\
        cache:\n  rules:\n\
        \x20 - {resources: [pods], userAgents: ['*fabric8*'], start: never,\n\
        \x20    repeatPolls: {action: reject}}\n\
        \x20 - {resources: ['*']}\n";
    let proxy = Setup::default().config(sections).in_memory();
    let fabric8 = proxy.client().with("user-agent", "fabric8-kubernetes-client/6.7.2");
    let curl = proxy.client().with("user-agent", "curl/8");
    assert_eq!(fabric8.get(PODS).await.status, 200);
    for _ in 0..3 {
        assert_eq!(fabric8.get(PODS).await.status, 429);
        assert_eq!(curl.get(PODS).await.status, 200);
        assert_eq!(fabric8.get("/api/v1/nodes").await.status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn the_number_of_waiting_polls_is_limited() {
    let proxy = warmed(0).await;
    let client = proxy.client();
    let asked = Instant::now();
    let answers = all((0..1100).map(|_| poll(&client, PODS)).collect()).await;
    let at_once = answers.iter().filter(|(_, at)| *at - asked < INTERVAL / 2).count();
    assert_eq!(at_once, 1100 - 1024);
    assert!(answers.iter().all(|(answer, _)| answer.status == 200));
    let reached = proxy.counted("listless_limits_reached_total", "polls_held");
    assert_eq!(reached, 1100.0 - 1024.0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_by_the_apiserver_reaches_the_client_as_it_is() {
    let proxy = Setup::default().in_memory();
    let busy = Effect::Answer { code: 429, retry_after_secs: Some(17) };
    proxy.simulator.inject(Fault::always(busy, |asked| asked.resource == "pods"));
    let client = proxy.client();
    for (method, path) in [
        (Method::GET, PODS),
        (Method::GET, "/api/v1/pods?watch=1"),
        (Method::GET, "/api/v1/namespaces/a/pods/web-0"),
        (Method::DELETE, "/api/v1/namespaces/a/pods/web-0"),
    ] {
        let (through, straight) = (
            client.send(method.clone(), path, "").await,
            proxy.straight().send(method, path, "").await,
        );
        assert_eq!((through.status, through.header("retry-after")), (429, "17"), "{path}");
        assert_eq!(through.text(), straight.text(), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_honour_retry_after_even_if_others_are_answered() {
    let proxy = Setup::default().in_memory();
    let busy = Effect::Answer { code: 429, retry_after_secs: Some(20) };
    proxy.warm(PODS).await;
    proxy.simulator.inject(Fault::always(busy, |asked| asked.verb == Verb::Watch));
    proxy.simulator.end_watches();
    settle().await;
    // Forwarded reads meanwhile show the replica that the apiserver is reachable.
    pass(Duration::from_secs(6)).await;
    proxy.upstream.forget();
    for _ in 0..60 {
        assert_eq!(proxy.client().get(PODS).await.status, 200);
        pass(Duration::from_secs(1)).await;
    }
    let watches = proxy.upstream.count(Verb::Watch, "pods");
    assert!((1..=3).contains(&watches), "{watches} watches in a minute");
    assert_eq!(proxy.upstream.count(Verb::List, "pods"), 60, "and no list of its own");
}

#[tokio::test(start_paused = true)]
async fn own_requests_stay_below_the_ceiling_for_any_number_of_replicas() {
    let namespaces: Vec<String> = (0..200).map(|number| format!("n{number}")).collect();
    let sections = format!(
        "cache: {{rules: [{{resources: [pods], namespaces: [{}], start: eager}}]}}\n",
        namespaces.join(", ")
    );
    let proxy = Setup::default().config(&sections).in_memory();
    let asked = |proxy: &TestProxy| {
        proxy.upstream.count(Verb::List, "pods") + proxy.upstream.count(Verb::Watch, "pods")
    };
    settle().await;
    assert!((50..=101).contains(&asked(&proxy)), "{} at once", asked(&proxy));
    pass(Duration::from_secs(2)).await;
    assert!((150..=202).contains(&asked(&proxy)), "{} after two seconds", asked(&proxy));
    pass(Duration::from_secs(10)).await;
    assert_eq!(asked(&proxy), 400, "one list and one watch each");
    assert!(proxy.counted("listless_limits_reached_total", "own_requests") >= 100.0);
    // Listless sets no ceiling for clients.
    let asked_at = Instant::now();
    for _ in 0..200 {
        assert_eq!(proxy.client().get("/api/v1/namespaces/a/secrets/s").await.status, 200);
    }
    assert!(asked_at.elapsed() < Duration::from_millis(100), "{:?}", asked_at.elapsed());
}

/// The time that rounds of one write and one list take, through a client.
async fn rounds(client: &TestClient, tag: &str) -> Duration {
    let start = Instant::now();
    for round in 0..150 {
        let name = format!("{tag}-{round}");
        let created = client.create(NAMESPACE, &pod("a", &name, &[], "n1")).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        let listed = client.get(NAMESPACE).await;
        assert!(listed.names().contains(&format!("a/{name}")), "{}", listed.summary());
    }
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_client_that_lists_after_each_of_its_writes_is_as_fast_as_directly() {
    for sections in ["", "cache: {rules: [{resources: ['*'], start: never}]}\n"] {
        let polls = format!("repeatPolls: {{perSecond: 5, burst: 20}}\n{sections}");
        let proxy = Setup::default().config(&polls).in_memory();
        let latency = Effect::Delay(Duration::from_millis(4));
        proxy.simulator.inject(Fault::always(latency, |asked| asked.verb != Verb::Watch));
        let client = proxy.client();
        for _ in 0..2 {
            assert_eq!(client.get(NAMESPACE).await.status, 200);
        }
        let straight = rounds(&proxy.straight(), "straight").await;
        let through = rounds(&client, "through").await;
        assert!(through <= straight.mul_f64(1.2), "{through:?}, directly {straight:?}");
        assert_eq!(proxy.counted("listless_paced_seconds_count", ""), 0.0);
    }
}
