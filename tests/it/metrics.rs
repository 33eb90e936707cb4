//! The exported metrics are those of `docs/metrics.md`.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use http::StatusCode;
use listless::{
    api::{GroupVersionResource, Scope, Verb},
    metrics::{
        self, AuditResult, Certificate, Connect, DocumentResult, EdgeRefusal, Held, Injection,
        Lane, Metrics, Origin, Outcome, PollLimit, Protocol, ReplicaCheck, ReplicaEnd,
        ReplicaSample, ReplicaState, ReplicaTotals, ReplicaWatchEnd, RequestSample, Review,
        ServedBy, Shadow, Transport, UpstreamFault, UpstreamSample, Wait, WatchEnd, WatchEventType,
        WorkerEnd, Would,
    },
};

const MOMENT: Duration = Duration::from_millis(1);

/// The same for callers, for repeated polls, and for observe mode.
fn record_polls(metrics: &Metrics) {
    metrics.reviewed(Review::Allowed);
    metrics.reviews_cached(1);
    metrics.sessions(1);
    metrics.paced(Held::First, PollLimit::Upstream, MOMENT);
    metrics.refused(Verb::List);
    metrics.would_have(Would::Read);
    metrics.shadow_check(Shadow::Equal);
}

/// The same for discovery documents, and the audit.
fn record_documents(metrics: &Metrics) {
    metrics.document(DocumentResult::Memory);
    metrics.documents_held(1, 1);
    metrics.audited(AuditResult::Written, 1);
}

/// The same for the webhook.
fn record_injections(metrics: &Metrics) {
    metrics.injection(Injection::Skipped, "host_network", MOMENT);
    metrics.injector_authority_expires(std::time::SystemTime::UNIX_EPOCH);
}

/// Calls every function that records something.
fn record_everything(metrics: &Metrics) {
    let pods = GroupVersionResource::new("", "v1", "pods");
    record_clients(metrics, &pods);
    record_upstream(metrics, &pods);
    record_own(metrics);
}

fn record_clients(metrics: &Metrics, pods: &GroupVersionResource) {
    let sample = RequestSample {
        verb: Verb::List,
        target: Some((pods, &Scope::All)),
        served_by: ServedBy::Cache,
        code: StatusCode::OK,
        duration: MOMENT,
        bytes: 1,
    };
    metrics.response_head(Verb::List, ServedBy::Cache, MOMENT);
    metrics.request(&sample);
    metrics.unsafe_read(&sample);
    drop(metrics.in_flight(Lane::Short));
    metrics.forwarded("notARead", Verb::Create);
    metrics.rewritten("any");
    metrics.coalesced();
    metrics.waited(Wait::Reached, MOMENT);
    record_polls(metrics);
    record_documents(metrics);
    drop(metrics.watcher(Transport::Http, pods));
    metrics.watch_event_sent(WatchEventType::Added);
    metrics.watch_ended(WatchEnd::Timeout);
    metrics.client_received(1);
    metrics.client_sent(ServedBy::Cache, 1);
    drop(metrics.client_connection(Protocol::Http2));
    metrics.client_handshake(Outcome::Success);
    metrics.connect(Connect::Opened);
    metrics.accounts(1);
}

fn record_upstream(metrics: &Metrics, pods: &GroupVersionResource) {
    metrics.upstream_request(&UpstreamSample {
        origin: Origin::Client,
        verb: Verb::List,
        resource: Some(pods),
        code: StatusCode::OK,
        duration: MOMENT,
    });
    metrics.upstream_failed(Origin::Replica, UpstreamFault::Broken);
    metrics.upstream_connect(Outcome::Failure);
    drop(metrics.upstream_connection());
    metrics.upstream_received(1);
    metrics.upstream_sent(1);
    metrics.replicas(&[ReplicaSample {
        resource: pods,
        state: ReplicaState::Synced,
        objects: 1,
        bytes: 1,
        unproven: Some(MOMENT),
    }]);
    metrics.kept_responses(1);
    metrics.uncompressed_objects(1);
    metrics.unproven_cells(&[(listless::api::GroupResource::new("", "pods"), "Age".into(), 1)]);
    metrics.replica_totals(&ReplicaTotals {
        started: 1,
        ended: [ReplicaEnd::Refused, ReplicaEnd::Memory, ReplicaEnd::Idle, ReplicaEnd::Widened]
            .map(|end| (end, 1)),
        lists: 1,
        lists_again: 0,
        watches: 1,
        watches_again: 0,
        watches_ended: std::array::from_fn(|index| (ReplicaWatchEnd::ALL[index], 1)),
        events: 1,
        bookmarks: 1,
        catch_ups: 1,
        probes: 1,
        failures: 1,
        epochs: 1,
        checks: std::array::from_fn(|index| (ReplicaCheck::ALL[index], 1)),
    });
}

fn record_own(metrics: &Metrics) {
    metrics.edge_refused(EdgeRefusal::Target);
    metrics.ready(true);
    metrics.config_in_use(std::time::SystemTime::UNIX_EPOCH, 1);
    metrics.certificate_reloaded(Outcome::Success);
    metrics.worker(true, [(WorkerEnd::Exit, 2)].into_iter());
    metrics.service_account_mirrored(Outcome::Success);
    metrics.token_expires(std::time::SystemTime::UNIX_EPOCH);
    metrics.token_reloaded(Outcome::Success);
    let epoch = std::time::SystemTime::UNIX_EPOCH;
    metrics.certificate_valid(Certificate::Serving, epoch, epoch);
}

fn exported(text: &str) -> BTreeSet<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

fn documented(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter_map(|line| line.strip_prefix("### `"));
    headings.filter_map(|line| line.strip_suffix('`')).map(str::to_owned).collect()
}

fn page() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md")
}

#[test]
fn the_page_of_metrics_is_written_from_the_table() {
    let document = metrics::document();
    if std::env::var_os("LISTLESS_UPDATE").is_some() {
        fs::write(page(), &document).expect("the page can be written");
    }
    let written = fs::read_to_string(page()).expect("docs/metrics.md");
    assert!(written == document, "out of date: LISTLESS_UPDATE=1 cargo test --test it metrics");
}

#[test]
#[cfg(target_os = "linux")]
fn every_documented_metric_is_exported_and_no_other() {
    let metrics = Metrics::new();
    record_everything(&metrics);
    record_injections(&metrics);
    let page = fs::read_to_string(page()).expect("docs/metrics.md");
    assert_eq!(exported(&metrics.render()), documented(&page));
}

#[test]
fn every_exported_metric_has_a_help_line() {
    let metrics = Metrics::new();
    record_everything(&metrics);
    record_injections(&metrics);
    let text = metrics.render();
    for name in exported(&text) {
        assert!(text.contains(&format!("# HELP {name} ")), "{name}");
    }
}
