//! The replicas as JSON, for people and scripts.

use std::time::Duration;

use serde::Serialize;

use crate::{
    api::version::ResourceVersion,
    cache::{Link, ReplicaStatus, Start, SyncState},
};

/// One replica. Fields may be added, but not removed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Replica<'a> {
    resource: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    label_selector: String,
    field_selector: String,
    form: &'static str,
    start: &'static str,
    state: &'static str,
    link: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
    objects: usize,
    bytes: usize,
    relists: u64,
    watch_restarts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a str>,
    age_seconds: f64,
    idle_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    unproven_seconds: Option<f64>,
}

#[derive(Serialize)]
struct Document<'a> {
    replicas: Vec<Replica<'a>>,
}

/// Returns all replicas as one JSON document.
pub(super) fn document(replicas: &[ReplicaStatus]) -> String {
    let document = Document { replicas: replicas.iter().map(Replica::from).collect() };
    serde_json::to_string_pretty(&document).expect("texts and numbers are JSON") + "\n"
}

impl<'a> From<&'a ReplicaStatus> for Replica<'a> {
    fn from(status: &'a ReplicaStatus) -> Self {
        Self {
            resource: status.query.resource.to_string(),
            namespace: status.query.scope.namespace(),
            label_selector: status.query.labels.to_string(),
            field_selector: status.query.fields.to_string(),
            form: status.form.as_str(),
            start: match status.start {
                Start::Eager => "eager",
                Start::OnDemand => "onDemand",
                Start::Widening => "widening",
            },
            state: match status.state {
                SyncState::Starting => "starting",
                SyncState::Synced => "synced",
                SyncState::Failing => "failing",
            },
            link: match status.link {
                Link::Up => "up",
                Link::Lost { .. } => "lost",
            },
            resource_version: status.version.as_ref().map(ResourceVersion::as_str),
            objects: status.objects,
            bytes: status.bytes,
            relists: status.relists,
            watch_restarts: status.watch_restarts,
            last_error: status.last_error.as_deref(),
            age_seconds: seconds(status.age),
            idle_seconds: seconds(status.idle),
            unproven_seconds: status.unproven.map(seconds),
        }
    }
}

/// Rounds to milliseconds.
fn seconds(duration: Duration) -> f64 {
    duration.as_millis() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{GroupVersionResource, Scope, form::Form, query::Query};

    #[test]
    fn a_replica_is_described_in_kubernetes_terms() {
        let pods = GroupVersionResource::new("", "v1", "pods");
        let status = ReplicaStatus {
            query: Query::all(pods, Scope::Namespace("shop".into())),
            form: Form::Json,
            start: Start::Eager,
            state: SyncState::Synced,
            link: Link::Up,
            version: Some(ResourceVersion::parse("12").unwrap()),
            objects: 3,
            bytes: 4096,
            relists: 1,
            watch_restarts: 2,
            last_error: None,
            age: Duration::from_micros(1_500_700),
            idle: Duration::ZERO,
            unproven: Some(Duration::from_millis(250)),
        };
        let value: serde_json::Value = serde_json::from_str(&document(&[status])).unwrap();
        let expected = serde_json::json!({ "replicas": [{
            "resource": "pods.v1", "namespace": "shop", "labelSelector": "", "fieldSelector": "",
            "form": "json",
            "start": "eager", "state": "synced", "link": "up", "resourceVersion": "12",
            "objects": 3, "bytes": 4096, "relists": 1, "watchRestarts": 2,
            "ageSeconds": 1.5, "idleSeconds": 0.0, "unprovenSeconds": 0.25,
        }]});
        assert_eq!(value, expected);
    }
}
