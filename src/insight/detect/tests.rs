//! Each detector with a matching client, and with a well-behaved one.

use http::{HeaderMap, HeaderValue, Method, Uri, header};
use tokio::time::{Duration, Instant};

use super::*;
use crate::{
    api::{GroupResource, ObjectKey, request::RequestInfo, version::ResourceVersion},
    insight::{
        AccountRequest, Asker, Insight,
        account::{Answer, Otherwise, Pace, Record},
        cost::Encoding,
        report::Report,
    },
    metrics::Metrics,
};

/// A cluster's clients, as Listless sees them.
struct Scene {
    insight: Insight,
    start: Instant,
    now: Instant,
}

/// One client.
#[derive(Clone, Copy)]
struct Client {
    agent: &'static str,
    connection: u64,
}

const FABRIC8: Client = Client { agent: "fabric8-kubernetes-client/7.6.1", connection: 1 };
const MANAGER: Client =
    Client { agent: "manager/v0.0.0 (linux/amd64) kubernetes/$Format", connection: 2 };
const PYTHON: Client = Client { agent: "OpenAPI-Generator/37.0.2/python", connection: 3 };
const KUBECTL: Client =
    Client { agent: "kubectl/v1.32.4 (linux/amd64) kubernetes/4cb5f07", connection: 4 };

impl Scene {
    fn new() -> Self {
        let start = Instant::now();
        Self { insight: Insight::new(Metrics::new(), start), start, now: start }
    }

    fn at(&mut self, seconds: f64) -> &mut Self {
        self.now = self.start + Duration::from_secs_f64(seconds);
        self
    }

    fn asker(&self, client: Client, method: &Method, target: &str) -> Asker {
        let uri: Uri = target.parse().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, HeaderValue::from_static(client.agent));
        let info = RequestInfo::parse(method, &uri, &headers);
        let question = AccountRequest { info: &info, text: target, headers: &headers, caller: "" };
        self.insight.asker(&question, self.now)
    }

    fn record(&self) -> Record {
        Record {
            started: self.now,
            took: Duration::from_millis(2),
            answer: Answer::Upstream("not-demanded"),
            code: 200,
            bytes: 20_000,
            content: None,
            encoding: Encoding::default(),
            collection: None,
            retry_after: None,
            pace: Pace::Free,
            otherwise: Otherwise::Same,
        }
    }

    fn ask(&self, client: Client, method: &Method, target: &str) -> Asker {
        self.ask_with(client, method, target, self.record())
    }

    fn get(&self, client: Client, target: &str) {
        self.ask(client, &Method::GET, target);
    }

    fn ask_with(&self, client: Client, method: &Method, target: &str, record: Record) -> Asker {
        let asker = self.asker(client, method, target);
        asker.begins();
        self.insight.record(&asker, client.connection, &record);
        asker
    }

    /// Records a write whose response has this version.
    fn write(&self, client: Client, name: &str, version: u64) {
        let target = format!("/apis/apps/v1/namespaces/a/statefulsets/{name}/status");
        let asker = self.ask(client, &Method::PUT, &target);
        let sets = GroupResource::new("apps", "statefulsets");
        let version = ResourceVersion::parse(&version.to_string()).unwrap();
        let write_observer = self.insight.write_observer(&asker, None);
        write_observer.answered(&sets, &ObjectKey::new(Some("a"), name), &version);
    }

    fn report(&self) -> Report {
        self.insight.report("enforce", self.now)
    }

    fn found(&self) -> Vec<String> {
        self.report().findings.into_iter().map(|finding| finding.id).collect()
    }
}

#[test]
fn twenty_threads_that_list_every_three_seconds_are_found() {
    let mut scene = Scene::new();
    for round in 0..10 {
        for thread in 0..20 {
            let at = f64::from(round) * 3.0 + f64::from(thread) * 0.004;
            scene.at(at).get(FABRIC8, "/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb");
        }
    }
    let report = scene.report();
    let finding = &report.findings[0];
    assert_eq!((finding.id.as_str(), finding.library.as_str()), ("quorum-list-polling", "fabric8"));
    assert!((finding.period_seconds.unwrap() - 3.0).abs() < 0.3, "{finding:?}");
    assert!(finding.fix.contains("inform(") && finding.evidence.contains("20 clients"));
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    assert_eq!(report.polls[0].findings, ["quorum-list-polling"]);
}

#[test]
fn a_well_behaved_informer_is_not_reported() {
    for (client, list) in [
        (MANAGER, "/api/v1/pods?limit=500&resourceVersion=0"),
        (FABRIC8, "/api/v1/pods?resourceVersion=0"),
        (PYTHON, "/api/v1/pods"),
    ] {
        let mut scene = Scene::new();
        scene.get(client, list);
        for round in 0..20 {
            scene.at(1.0 + 420.0 * f64::from(round));
            let version = 1000 + round;
            let watch = format!(
                "/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion={version}\
                 &timeoutSeconds=420"
            );
            let record = Record { took: Duration::from_secs(420), ..scene.record() };
            scene.ask_with(client, &Method::GET, &watch, record);
            // Its controller writes changes, and renews its lease.
            scene.write(client, "web", 5000 + u64::from(version as u32));
            for renewal in 0..10 {
                scene.at(1.0 + 420.0 * f64::from(round) + 2.0 * f64::from(renewal));
                scene.get(client, "/apis/coordination.k8s.io/v1/namespaces/a/leases/b");
            }
        }
        assert_eq!(scene.found(), [""; 0], "{}", client.agent);
    }
}

#[test]
fn a_resync_with_its_reads_and_writes_is_one_storm() {
    for seconds in [30.0, 5.0, 36_000.0] {
        let mut scene = Scene::new();
        for round in 0..4 {
            for object in 0..500 {
                scene.at(seconds * f64::from(round) + 0.004 * f64::from(object));
                let pods = format!("/api/v1/namespaces/a/pods?labelSelector=set%3Dweb-{object}");
                scene.get(MANAGER, &pods);
                scene.get(MANAGER, &format!("/api/v1/namespaces/a/configmaps/web-{object}"));
                scene.write(MANAGER, &format!("web-{object}"), 7);
            }
        }
        let report = scene.report();
        let storms: Vec<_> = report.findings.iter().filter(|f| f.id == "resync-storm").collect();
        assert_eq!(storms.len(), 1, "{:?}", report.findings);
        let found = storms[0].period_seconds.unwrap();
        assert!((found / seconds - 1.0).abs() < 0.1, "{found} for {seconds}");
        let evidence = &storms[0].evidence;
        assert!(evidence.contains("list pods") || storms[0].resource == "pods", "{evidence}");
        assert!(evidence.contains("get configmaps") || storms[0].resource == "configmaps");
        assert!(evidence.contains("update statefulsets.apps/status"), "{evidence}");
        let writes = report.findings.iter().find(|f| f.id == "no-op-writes").unwrap();
        assert!((writes.period_seconds.unwrap() / seconds - 1.0).abs() < 0.1);
        let ids: Vec<&str> = report.findings.iter().map(|f| f.id.as_str()).collect();
        assert_eq!(ids.len(), 2, "{ids:?}");
        assert_eq!(storms[0].library, "controller-runtime");
    }
}

#[test]
fn the_rounds_of_a_storm_are_counted_after_seven_weeks() {
    let mut scene = Scene::new();
    // The milliseconds exceed 32 bits between the second and the third round.
    let start = 4_294_967.0 - 40.0;
    for round in 0..4 {
        for object in 0..20 {
            scene.at(start + 30.0 * f64::from(round) + 0.004 * f64::from(object));
            scene.get(MANAGER, &format!("/api/v1/namespaces/a/configmaps/web-{object}"));
        }
    }
    let report = scene.report();
    let storm = report.findings.iter().find(|finding| finding.id == "resync-storm").unwrap();
    assert!(storm.evidence.ends_with("in each of 4 rounds"), "{}", storm.evidence);
}

#[test]
fn agents_on_fifty_nodes_are_many_processes_and_no_storm() {
    for connections in [50, 1] {
        let mut scene = Scene::new();
        for round in 0..8 {
            for node in 0..50_u32 {
                let at = 10.0 * f64::from(round) + 0.19 * f64::from(node);
                let connection = 100 + u64::from(node % connections);
                let agent = Client { agent: "agent/v1 (linux/amd64) kubernetes/abc", connection };
                let target = format!("/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-{node}");
                scene.at(at).get(agent, &target);
            }
        }
        let report = scene.report();
        let ids: Vec<&str> = report.findings.iter().map(|f| f.id.as_str()).collect();
        assert!(ids.contains(&"many-processes") && !ids.contains(&"resync-storm"), "{ids:?}");
        for finding in &report.findings {
            assert!((finding.period_seconds.unwrap() - 10.0).abs() < 1.0, "{finding:?}");
        }
    }
}

#[test]
fn polls_of_one_object_are_found_by_get_and_by_list() {
    for target in
        ["/api/v1/namespaces/a/pods/b", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Db"]
    {
        let mut scene = Scene::new();
        (0..20).for_each(|n| scene.at(2.0 * f64::from(n)).get(PYTHON, target));
        assert_eq!(scene.found(), ["object-polling"], "{target}");
        let finding = &scene.report().findings[0];
        assert!((finding.period_seconds.unwrap() - 2.0).abs() < 0.2);
    }
}

#[test]
fn large_lists_without_pages_are_found() {
    let mut scene = Scene::new();
    for hour in 0..4 {
        scene.at(3600.0 * f64::from(hour));
        let record = Record { bytes: 40_000_000, ..scene.record() };
        scene.ask_with(PYTHON, &Method::GET, "/api/v1/pods", record);
        scene.ask_with(MANAGER, &Method::GET, "/api/v1/pods?limit=500", record);
    }
    assert_eq!(scene.found(), ["unpaginated-list"]);
    assert_eq!(scene.report().findings[0].library, "python");
}

#[test]
fn a_list_before_every_watch_is_found() {
    let mut scene = Scene::new();
    for round in 0..8 {
        scene.at(10.0 * f64::from(round)).get(PYTHON, "/api/v1/namespaces/a/pods");
        let watch = format!("/api/v1/namespaces/a/pods?watch=1&resourceVersion={}", 100 + round);
        let record = Record { took: Duration::from_secs(10), ..scene.record() };
        scene.ask_with(PYTHON, &Method::GET, &watch, record);
    }
    let mut found = scene.found();
    found.sort();
    // It also lists every ten seconds, and requests no bookmarks.
    let expected = ["list-after-watch-end", "quorum-list-polling", "watch-without-bookmarks"];
    assert_eq!(found, expected);
}

#[test]
fn a_repeated_request_for_an_expired_version_is_found() {
    let mut scene = Scene::new();
    for round in 0..6 {
        scene.at(f64::from(round));
        let watch = "/api/v1/pods?watch=1&allowWatchBookmarks=1&resourceVersion=5";
        let record = Record { code: 410, ..scene.record() };
        scene.ask_with(PYTHON, &Method::GET, watch, record);
    }
    assert_eq!(scene.found(), ["ignored-expiry"]);
}

#[test]
fn a_client_that_ignores_retry_after_is_found_and_one_that_waits_is_not() {
    for (gap, expected) in [(0.2, &["ignored-retry-after"][..]), (2.1, &[])] {
        let mut scene = Scene::new();
        for round in 0..5 {
            scene.at(gap * f64::from(round));
            let retry_after = Some(Duration::from_secs(2));
            let record = Record { code: 429, retry_after, ..scene.record() };
            scene.ask_with(FABRIC8, &Method::GET, "/api/v1/pods", record);
        }
        assert_eq!(scene.found(), expected, "{gap}");
    }
}

#[test]
fn discovery_by_every_run_of_kubectl_is_found() {
    let mut scene = Scene::new();
    for run in 0..20 {
        let client = Client { connection: 1000 + run, ..KUBECTL };
        scene.at(run as f64 * 1.7);
        scene.get(client, "/api?timeout=32s");
        scene.get(client, "/apis?timeout=32s");
        scene.get(client, "/api/v1/namespaces/a/pods?limit=500");
    }
    let ids = scene.found();
    assert!(ids.contains(&"discovery-refetch".to_owned()), "{ids:?}");
    assert!(!ids.contains(&"many-processes".to_owned()), "{ids:?}");
    let report = scene.report();
    let finding = report.findings.iter().find(|finding| finding.id == "discovery-refetch");
    assert!(finding.unwrap().fix.contains("--cache-dir"));
}

#[test]
fn writes_with_a_change_are_not_reported() {
    let mut scene = Scene::new();
    for round in 0..30 {
        scene.at(f64::from(round) * 7.0).write(MANAGER, "web", 100 + u64::from(round as u32));
    }
    assert_eq!(scene.found(), [""; 0]);
}

#[test]
fn times_are_formatted_in_a_suitable_unit() {
    let said = [0.15, 3.0, 30.0, 36_000.0, 600.0, 2.54].map(spoken);
    assert_eq!(said, ["150 ms", "3 s", "30 s", "10 h", "10 min", "2.5 s"]);
}

#[test]
fn ids_and_titles_are_unique() {
    let mut ids: Vec<&str> = Pattern::ALL.iter().map(|pattern| pattern.id()).collect();
    ids.extend(Pattern::ALL.iter().map(|pattern| title(*pattern)));
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
    assert!(all(&[]).is_empty());
}
