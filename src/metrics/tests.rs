use std::time::Duration;

use http::StatusCode;

use super::*;
use crate::api::{Scope, Verb};

fn pods() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "pods")
}

fn sample<'a>(
    target: Option<(&'a GroupVersionResource, &'a Scope)>,
    code: StatusCode,
) -> RequestSample<'a> {
    let duration = Duration::from_millis(3);
    RequestSample {
        verb: Verb::List,
        target,
        served_by: ServedBy::Cache,
        code,
        duration,
        bytes: 100,
    }
}

/// Returns the value of the only series with all these parts.
fn value(metrics: &Metrics, name: &str, labels: &[&str]) -> f64 {
    let text = metrics.render();
    let starts = [format!("{name} "), format!("{name}{{")];
    let mut lines = text.lines().filter(|line| {
        starts.iter().any(|start| line.starts_with(start))
            && labels.iter().all(|label| line.contains(label))
    });
    let line = lines.next().unwrap_or_else(|| panic!("no {name} with {labels:?} in\n{text}"));
    assert_eq!(lines.next(), None, "{name} with {labels:?} is not unique");
    line.rsplit(' ').next().expect("a value").parse().expect("a number")
}

#[test]
fn a_request_counts_under_its_labels_and_in_the_histogram() {
    let metrics = Metrics::new();
    let (pods, shop) = (pods(), Scope::Namespace("shop".into()));
    metrics.request(&sample(Some((&pods, &shop)), StatusCode::OK));
    metrics.request(&sample(Some((&pods, &shop)), StatusCode::OK));
    metrics.request(&sample(Some((&pods, &Scope::All)), StatusCode::OK));
    let labels = [
        "verb=\"list\"",
        "group=\"\"",
        "version=\"v1\"",
        "resource=\"pods\"",
        "scope=\"namespace\"",
        "served_by=\"cache\"",
        "code=\"200\"",
    ];
    assert_eq!(value(&metrics, "listless_requests_total", &labels), 2.0);
    assert!(!metrics.render().contains("shop"), "no namespace in any label");
    let bucket = |le: &str| {
        value(&metrics, "listless_request_duration_seconds_bucket", &[&format!("le=\"{le}\"")])
    };
    assert_eq!((bucket("0.001"), bucket("0.005")), (0.0, 3.0));
}

#[test]
fn a_resource_has_no_label_of_its_own_before_a_success() {
    let metrics = Metrics::new();
    let (invented, all) = (GroupVersionResource::new("", "v1", "nonsense"), Scope::All);
    metrics.request(&sample(Some((&invented, &all)), StatusCode::NOT_FOUND));
    assert!(!metrics.render().contains("nonsense"));
    assert_eq!(value(&metrics, "listless_requests_total", &["resource=\"other\""]), 1.0);
    metrics.request(&sample(Some((&invented, &all)), StatusCode::OK));
    assert_eq!(value(&metrics, "listless_requests_total", &["resource=\"nonsense\""]), 1.0);
}

#[test]
fn resources_beyond_the_bound_share_one_label_and_the_bound_is_reported() {
    let metrics = Metrics::new();
    for index in 0..=family::RESOURCES_MAX {
        let resource = GroupVersionResource::new("example.com", "v1", &format!("things{index}"));
        metrics.request(&sample(Some((&resource, &Scope::All)), StatusCode::OK));
    }
    let other = ["resource=\"other\""];
    assert_eq!(value(&metrics, "listless_requests_total", &other), 1.0);
    let limit = ["limit=\"metric_resources\""];
    assert_eq!(value(&metrics, "listless_limits_reached_total", &limit), 1.0);
}

#[test]
fn a_request_without_a_resource_has_empty_labels() {
    let metrics = Metrics::new();
    metrics.request(&sample(None, StatusCode::OK));
    let labels = ["resource=\"\"", "scope=\"\""];
    assert_eq!(value(&metrics, "listless_requests_total", &labels), 1.0);
}

#[test]
fn a_presence_counts_until_it_is_dropped() {
    let metrics = Metrics::new();
    let first = metrics.in_flight(Lane::Long);
    let second = metrics.in_flight(Lane::Long);
    drop(first);
    assert_eq!(value(&metrics, "listless_requests_in_flight", &["lane=\"long\""]), 1.0);
    drop(second);
    assert_eq!(value(&metrics, "listless_requests_in_flight", &["lane=\"long\""]), 0.0);
}

#[test]
fn watches_from_memory_count_by_resource() {
    let metrics = Metrics::new();
    let watches = [Transport::Http, Transport::Http, Transport::WebSocket]
        .map(|transport| metrics.watcher(transport, &pods()));
    let labels = ["transport=\"http\"", "group=\"\"", "resource=\"pods\""];
    assert_eq!(value(&metrics, "listless_watchers", &labels), 2.0);
    drop(watches);
    assert_eq!(value(&metrics, "listless_watchers", &labels), 0.0);
}

#[test]
fn replicas_add_up_by_resource_and_vanish_when_they_stop() {
    let metrics = Metrics::new();
    let pods = pods();
    let replica = |bytes, unproven| ReplicaSample {
        resource: &pods,
        state: ReplicaState::Synced,
        objects: 1,
        bytes,
        unproven: Some(Duration::from_secs(unproven)),
    };
    metrics.replicas(&[replica(100, 1), replica(50, 7)]);
    assert_eq!(value(&metrics, "listless_replica_bytes", &[]), 150.0);
    assert_eq!(value(&metrics, "listless_replica_unproven_seconds", &[]), 7.0);
    assert_eq!(value(&metrics, "listless_replicas", &["state=\"synced\""]), 2.0);
    metrics.replicas(&[]);
    assert_eq!(value(&metrics, "listless_replica_bytes", &[]), 0.0);
    assert_eq!(value(&metrics, "listless_replicas", &["state=\"synced\""]), 0.0);
}

#[test]
fn rare_alarms_are_zero_from_the_start() {
    let metrics = Metrics::new();
    for limit in Limit::ALL {
        let label = format!("limit=\"{}\"", limit.as_str());
        assert_eq!(value(&metrics, "listless_limits_reached_total", &[&label]), 0.0);
    }
    let failures = ["result=\"failure\""];
    for name in [
        "listless_config_reloads_total",
        "listless_certificate_reloads_total",
        "listless_service_account_mirrorings_total",
    ] {
        assert_eq!(value(&metrics, name, &failures), 0.0);
    }
    let broken = ["origin=\"replica\"", "error=\"broken\""];
    assert_eq!(value(&metrics, "listless_upstream_errors_total", &broken), 0.0);
    metrics.injections_begin();
    let error = ["result=\"error\""];
    assert_eq!(value(&metrics, "listless_injector_requests_total", &error), 0.0);
}

#[test]
fn the_last_reload_is_a_success_until_one_is_refused_and_again_after_the_next() {
    let metrics = Metrics::new();
    let names =
        ["listless_config_last_reload_successful", "listless_certificate_last_reload_successful"];
    let now = || names.map(|name| value(&metrics, name, &[]));
    assert_eq!(now(), [1.0, 1.0]);
    metrics.config_reloaded(Outcome::Failure);
    assert_eq!(now(), [0.0, 1.0]);
    metrics.certificate_reloaded(Outcome::Failure);
    metrics.config_reloaded(Outcome::Success);
    assert_eq!(now(), [1.0, 0.0]);
    metrics.certificate_reloaded(Outcome::Success);
    assert_eq!(now(), [1.0, 1.0]);
}

#[test]
fn an_unsafe_read_counts_under_its_resource_and_its_source() {
    let metrics = Metrics::new();
    let (pods, shop) = (pods(), Scope::Namespace("shop".into()));
    metrics.unsafe_read(&sample(Some((&pods, &shop)), StatusCode::OK));
    metrics.unsafe_read(&sample(None, StatusCode::OK));
    let labels =
        ["verb=\"list\"", "resource=\"pods\"", "scope=\"namespace\"", "served_by=\"cache\""];
    assert_eq!(value(&metrics, "listless_unsafe_reads_total", &labels), 1.0);
}

#[test]
fn saved_requests_count_by_resource() {
    let metrics = Metrics::new();
    let apps = |version| GroupVersionResource::new("apps", version, "deployments");
    let (old, new) = (apps("v1beta1"), apps("v1"));
    for resource in [&old, &new, &new] {
        metrics.request(&sample(Some((resource, &Scope::All)), StatusCode::OK));
    }
    for served_by in [ServedBy::Coalesced, ServedBy::Upstream, ServedBy::Proxy] {
        let target = Some((&new, &Scope::All));
        metrics.request(&RequestSample { served_by, ..sample(target, StatusCode::OK) });
    }
    let labels = ["group=\"apps\"", "resource=\"deployments\""];
    assert_eq!(value(&metrics, "listless_saved_requests_total", &labels), 4.0);
    assert_eq!(value(&metrics, "listless_saved_bytes_total", &labels), 400.0);
}

#[test]
fn names_follow_the_conventions_and_are_unique() {
    let mut names = std::collections::HashSet::new();
    for metric in TABLE.iter().flat_map(|section| section.metrics) {
        let name = metric.name;
        assert!(names.insert(name), "{name} twice");
        assert!(name.starts_with("listless_") || name.starts_with("process_"), "{name}");
        assert_eq!(metric.kind == Kind::Counter, name.ends_with("_total"), "{name}");
        assert!(metric.help.ends_with('.'), "{name}");
    }
}

#[test]
fn totals_are_exported_unchanged_and_first_rounds_are_separate() {
    let metrics = Metrics::new();
    let mut totals = ReplicaTotals {
        started: 3,
        ended: [
            (ReplicaEnd::Refused, 1),
            (ReplicaEnd::Memory, 0),
            (ReplicaEnd::Idle, 0),
            (ReplicaEnd::Widened, 0),
        ],
        lists: 5,
        lists_again: 2,
        watches: 7,
        watches_again: 4,
        watches_ended: std::array::from_fn(|index| (ReplicaWatchEnd::ALL[index], index as u64)),
        events: 100,
        bookmarks: 9,
        catch_ups: 0,
        probes: 0,
        failures: 2,
        epochs: 0,
        checks: std::array::from_fn(|index| (ReplicaCheck::ALL[index], 0)),
    };
    metrics.replica_totals(&totals);
    totals.lists += 1;
    metrics.replica_totals(&totals);
    let lists = |round| value(&metrics, "listless_replica_lists_total", &[round]);
    assert_eq!((lists("round=\"first\""), lists("round=\"again\"")), (4.0, 2.0));
    let refused = ["reason=\"refused\""];
    assert_eq!(value(&metrics, "listless_replicas_ended_total", &refused), 1.0);
    let expired = ReplicaWatchEnd::Expired as usize as f64;
    let labels = ["reason=\"expired\""];
    assert_eq!(value(&metrics, "listless_replica_watches_ended_total", &labels), expired);
}
