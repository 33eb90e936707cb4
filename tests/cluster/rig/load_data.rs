//! Many pods of about 9 KB, for the load tests and the benches.
//!
//! Shaped like pods of a real fleet: several containers, environment, probes, volumes, status. No
//! two have the same text. They are spread over labels `poller`, `app` and `slot`.

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use http::Method;
use serde_json::{Value, json};

use super::client::{Client, Request};

const WRITES_AT_ONCE: usize = 24;

/// The number and the place of the pods to create.
#[derive(Clone, Copy, Debug)]
pub struct LoadData {
    /// The namespace, created if it is missing.
    pub namespace: &'static str,
    /// The number of pods.
    pub pods: u32,
    /// The number of values of the label `poller`; each pod carries one.
    pub pollers: u32,
    /// The number of values of the label `app`.
    pub apps: u32,
    /// The number of nodes they are spread over; with 0 they have no node.
    pub nodes: u32,
}

// === impl LoadData ===

impl LoadData {
    /// Creates the pods; the client should speak HTTP/1.1, so that writes run side by side.
    pub async fn load(&self, client: &Client) -> Result<()> {
        let namespace = json!({"metadata": {"name": self.namespace}});
        let made = client.send(Request::new(Method::POST, "/api/v1/namespaces").json(&namespace));
        let status = made.await?.status.as_u16();
        ensure!(status == 201 || status == 409, "namespace {}: {status}", self.namespace);
        let create = |number: u32| async move {
            let post = Request::new(Method::POST, &self.collection()).json(&self.pod(number));
            client.send(post).await?.successful().with_context(|| self.name(number)).map(drop)
        };
        stream::iter(0..self.pods).map(create).buffer_unordered(WRITES_AT_ONCE).try_collect().await
    }

    /// The path of the pods.
    pub fn collection(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace)
    }

    /// A pod's name.
    pub fn name(&self, number: u32) -> String {
        format!("pod-{number:05}")
    }

    /// One of the pods.
    pub fn pod(&self, number: u32) -> Value {
        let app = number % self.apps;
        let mut pod = json!({
            "metadata": {
                "name": self.name(number),
                "labels": {
                    "poller": (number % self.pollers).to_string(),
                    "app": format!("app-{app}"),
                    "slot": number.to_string(),
                    "app.kubernetes.io/managed-by": "rig",
                    "pod-template-hash": mixed(app, 0),
                },
                "annotations": {
                    "example.com/config-checksum": long_text(number, 64),
                    "example.com/injected": long_text(number + 1, 700),
                },
            },
            "spec": {
                "containers": [container("main", number, 12), container("agent", number, 6)],
                "initContainers": [container("prepare", number, 3)],
                "nodeSelector": {"pool": format!("pool-{}", app % 7)},
                "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
                "volumes": volumes(number),
            },
        });
        if let Some(node) = number.checked_rem(self.nodes) {
            pod["spec"]["nodeName"] = format!("node-{node}").into();
        }
        pod
    }
}

fn container(name: &str, number: u32, variables: u32) -> Value {
    let env: Vec<Value> = (0..variables)
        .map(|index| {
            json!({"name": format!("SETTING_{index}_{}", mixed(index, 1).to_uppercase()),
                   "value": long_text(number.wrapping_mul(31) + index, 12 + index as usize % 23)})
        })
        .collect();
    let probe = json!({
        "httpGet": {"path": format!("/health/{name}"), "port": 8080},
        "periodSeconds": 10, "failureThreshold": 3,
    });
    let mut container = json!({
        "name": name,
        "image": format!("registry.example.com/team-{}/{name}:{}", number % 40, mixed(number, 2)),
        "args": ["--verbose", format!("--shard={number}")],
        "env": env,
        "ports": [{"name": "http", "containerPort": 8080}],
        "resources": {"requests": {"cpu": "100m", "memory": format!("{}Mi", 64 + number % 512)}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    });
    if name != "prepare" {
        container["livenessProbe"] = probe.clone();
        container["readinessProbe"] = probe;
    }
    container
}

fn volumes(number: u32) -> Value {
    json!([
        {"name": "data", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "config", "configMap": {"name": format!("config-{}", mixed(number, 3))}},
        {"name": "info", "downwardAPI": {"items": [
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ])
}

/// Eight hexadecimal digits that look random and depend only on the arguments.
fn mixed(number: u32, salt: u32) -> String {
    let mut value = u64::from(number) << 32 | u64::from(salt);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    format!("{:08x}", (value >> 32) as u32)
}

fn long_text(seed: u32, length: usize) -> String {
    let mut text: String = (0..length as u32 / 8 + 1).map(|part| mixed(seed, part + 9)).collect();
    text.truncate(length);
    text
}
