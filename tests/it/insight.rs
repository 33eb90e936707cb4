//! The report about clients that used the whole proxy.

mod command;

use std::time::Duration;

use listless::insight::report::{Finding, Poll, Report};
use serde_json::json;

use crate::harness::{
    OTHER_TOKEN, Setup, TestClient, TestProxy, group_resource, pass, pod, settle,
};

const FABRIC8: &str = "fabric8-kubernetes-client/7.6.1";
const MANAGER: &str = "manager/v0.0.0 (linux/amd64) kubernetes/$Format";

fn called(client: &TestClient, name: &str) -> TestClient {
    client.apart().with("user-agent", name)
}

fn poll<'a>(report: &'a Report, agent: &str, verb: &str, resource: &str) -> &'a Poll {
    let is_sought = |poll: &&Poll| {
        (poll.user_agent.as_str(), poll.verb.as_str(), poll.resource.as_str())
            == (agent, verb, resource)
    };
    let found = report.polls.iter().find(is_sought);
    found.unwrap_or_else(|| panic!("no {verb} {resource} by {agent}: {:#?}", report.polls))
}

fn findings<'a>(report: &'a Report, agent: &str) -> Vec<&'a Finding> {
    report.findings.iter().filter(|finding| finding.user_agent == agent).collect()
}

fn ids<'a>(report: &'a Report, agent: &str) -> Vec<&'a str> {
    let mut ids: Vec<&str> = findings(report, agent).iter().map(|f| f.id.as_str()).collect();
    ids.sort_unstable();
    ids
}

fn is_about(found: Option<f64>, seconds: f64) -> bool {
    found.is_some_and(|found| (found / seconds - 1.0).abs() <= 0.1)
}

/// Lets this many clients request a path every few seconds, each starting a little later.
async fn polls(clients: Vec<TestClient>, path: &'static str, seconds: f64, rounds: u32) {
    let each = clients.into_iter().enumerate().map(|(number, client)| async move {
        pass(Duration::from_millis(137 * number as u64)).await;
        for _ in 0..rounds {
            assert_eq!(client.get(path).await.status, 200);
            pass(Duration::from_secs_f64(seconds)).await;
        }
    });
    futures_util::future::join_all(each).await;
}

#[tokio::test(start_paused = true)]
async fn pollers_are_reported_with_their_period_and_savings() {
    for own_connections in [true, false] {
        let proxy = Setup::default().in_memory();
        let client = called(&proxy.client(), FABRIC8);
        let clients =
            (0..20).map(|_| if own_connections { client.apart() } else { client.over_http2() });
        polls(clients.collect(), "/api/v1/namespaces/a/pods?labelSelector=app%3Dweb", 3.0, 15)
            .await;
        let report = proxy.report();
        let poll = poll(&report, FABRIC8, "list", "pods");
        assert_eq!((poll.requests, poll.query.as_str()), (300, "labelSelector=app"));
        assert_eq!(poll.scope, "namespace");
        assert!(is_about(poll.period_seconds, 3.0), "{own_connections}: {:?}", poll.period_seconds);
        assert!(poll.answers.cache >= 297, "{:?}", poll.answers);
        assert!(poll.unchanged_share.is_some_and(|share| share > 0.9), "{poll:?}");
        assert_eq!(poll.clients, if own_connections { 20 } else { 1 });
        let found = ids(&report, FABRIC8);
        assert!(found.contains(&"quorum-list-polling"), "{found:?}");
        assert!(found.contains(&"many-processes") == own_connections, "{found:?}");
        assert_eq!(report.findings[0].library, "fabric8");
        // The replica's own requests are subtracted.
        let totals = &report.totals;
        let passed_on = totals.requests - totals.from_memory - totals.coalesced;
        let own = totals.upstream_requests - passed_on;
        let saved = i64::try_from(totals.from_memory + totals.coalesced - own);
        assert_eq!(Ok(totals.saved_requests), saved, "{totals:?}");
        assert!((270..300).contains(&totals.saved_requests) && own >= 2, "{totals:?}");
        assert!(totals.estimate.apiserver_cpu_seconds > 0.1 && totals.estimate.formula.len() > 20);
    }
}

#[tokio::test(start_paused = true)]
async fn the_totals_equal_the_requests_that_reached_the_apiserver() {
    let proxy = Setup::default().in_memory();
    polls(vec![called(&proxy.client(), "a")], "/api/v1/pods", 1.0, 10).await;
    polls(vec![called(&proxy.bearer(OTHER_TOKEN), "b")], "/api/v1/pods", 1.0, 7).await;
    settle().await;
    let report = proxy.report();
    let reached = proxy.upstream.everything().len();
    assert_eq!(report.totals.upstream_requests, reached as u64);
    let other_caller = poll(&report, "b", "list", "pods");
    assert_eq!((other_caller.answers.upstream, other_caller.saved.requests), (7, 0));
    assert_eq!(other_caller.reasons["other-credential"], 7);
    assert_eq!(report.mode, "enforce");
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_resumes_its_watch_is_not_reported() {
    let proxy = Setup::default().in_memory();
    let client = called(&proxy.client(), MANAGER);
    let list = client.get("/api/v1/pods?limit=500&resourceVersion=0").await;
    let mut version = list.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    for round in 0..6 {
        let path = format!(
            "/api/v1/pods?watch=1&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion={version}"
        );
        let mut watch = client.watch(&path).await;
        let name = format!("new-{round}");
        let created = client.create("/api/v1/namespaces/a/pods", &pod("a", &name, &[], "n1")).await;
        assert_eq!(created.status, 201);
        while let Some(line) = watch.next_line().await {
            let event: serde_json::Value = serde_json::from_slice(&line).unwrap();
            let shown = event["object"]["metadata"]["resourceVersion"].as_str().unwrap();
            shown.clone_into(&mut version);
        }
    }
    let report = proxy.report();
    assert_eq!(poll(&report, MANAGER, "watch", "pods").requests, 6);
    assert_eq!(ids(&report, MANAGER), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_list_before_every_watch_is_reported() {
    let proxy = Setup::default().in_memory();
    let client = called(&proxy.client(), "OpenAPI-Generator/37.0.2/python");
    for _ in 0..6 {
        let list = client.get("/api/v1/namespaces/a/pods").await;
        let version = list.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let path = format!(
            "/api/v1/namespaces/a/pods?watch=1&timeoutSeconds=15&resourceVersion={version}"
        );
        let mut watch = client.watch(&path).await;
        while watch.next_line().await.is_some() {}
    }
    let report = proxy.report();
    let found = ids(&report, "OpenAPI-Generator/37.0.2/python");
    assert!(found.contains(&"list-after-watch-end"), "{found:?}");
    assert!(found.contains(&"watch-without-bookmarks"), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn a_storm_is_reported_with_its_period_and_its_unchanged_writes() {
    let proxy = Setup::default().in_memory();
    let straight = proxy.straight();
    for number in 0..30 {
        let map = json!({"metadata": {"name": format!("m-{number}")}, "data": {"a": "b"}});
        assert_eq!(straight.create("/api/v1/namespaces/a/configmaps", &map).await.status, 201);
    }
    let client = called(&proxy.client(), MANAGER);
    for _ in 0..4 {
        for number in 0..30 {
            let path = format!("/api/v1/namespaces/a/configmaps/m-{number}");
            let map = client.get(&path).await.json();
            assert_eq!(client.update(&path, &map).await.json(), map, "nothing changes");
        }
        // This is shorter than the time after which an idle connection is closed.
        pass(Duration::from_secs(20)).await;
    }
    let report = proxy.report();
    let found = findings(&report, MANAGER);
    assert_eq!(ids(&report, MANAGER), ["no-op-writes", "resync-storm"], "{found:#?}");
    for finding in found {
        assert!(is_about(finding.period_seconds, 20.0), "{finding:?}");
        assert_eq!(finding.library, "controller-runtime");
    }
    assert!(poll(&report, MANAGER, "get", "configmaps").period_seconds.is_some());
}

#[tokio::test(start_paused = true)]
async fn forwarded_answers_are_compared_without_their_version() {
    let proxy = Setup::default().in_memory();
    let client = called(&proxy.bearer(OTHER_TOKEN), "stranger");
    for round in 0..5 {
        for path in ["/api/v1/namespaces/a/pods", "/apis/x.io/v1/widgets"] {
            assert_eq!(client.get(path).await.status, 200);
        }
        // Every LIST has its own version.
        let map = json!({"metadata": {"name": format!("m-{round}"), "namespace": "a"}});
        proxy.simulator.put(&group_resource("configmaps"), map).unwrap();
    }
    let shares = |proxy: &TestProxy| {
        let report = proxy.report();
        ["pods", "widgets.x.io"]
            .map(|resource| poll(&report, "stranger", "list", resource).unchanged_share)
    };
    assert_eq!(shares(&proxy), [Some(1.0); 2]);
    proxy.simulator.put(&group_resource("pods"), pod("a", "new", &[], "n1")).unwrap();
    client.get("/api/v1/namespaces/a/pods").await;
    assert_eq!(shares(&proxy), [Some(0.8), Some(1.0)]);
}

#[tokio::test(start_paused = true)]
async fn repeated_discovery_is_reported() {
    let proxy = Setup::default().in_memory();
    for _ in 0..12 {
        let client = called(&proxy.client(), "kubectl/v1.32.4 (linux/amd64) kubernetes/4cb5f07");
        client.get("/api").await;
        client.get("/apis").await;
        pass(Duration::from_secs(2)).await;
    }
    let report = proxy.report();
    assert_eq!(report.findings[0].id, "discovery-refetch");
    assert_eq!(report.findings[0].library, "kubectl");
}
