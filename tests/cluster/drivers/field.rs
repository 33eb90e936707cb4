//! A control plane with the objects the drivers read.

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use http::Method;
use serde_json::{Value, json};

use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::load_data::LoadData;

/// Pods of about 9 KB on 50 nodes; 25 for each value of the label `app`.
pub const FLEET: LoadData =
    LoadData { namespace: "fleet", pods: 500, pollers: 20, apps: 20, nodes: 50 };
/// Config maps that a manager reconciles, and pods for some of them.
pub const RINGS: &str = "rings";
/// Stateful sets whose status is written unchanged.
pub const SETS: &str = "sets";

const RING_COUNT: u32 = 2000;
/// One config map in forty has a pod. Each LIST then costs 1.30 little enough: a round ends before
/// the next begins.
const RINGS_PER_POD: u32 = 40;
const SET_COUNT: u32 = 500;
const WRITES_AT_ONCE: usize = 24;

/// Starts a control plane and creates everything.
pub async fn start(version: Version) -> Result<ControlPlane> {
    let plane = ControlPlane::start(version).await?;
    // HTTP/1.1, so that writes run side by side.
    let client = plane.client(User::Admin, Protocol::Http1)?;
    FLEET.load(&client).await?;
    for namespace in [RINGS, SETS] {
        let object = json!({"metadata": {"name": namespace}});
        client.send(Request::new(Method::POST, "/api/v1/namespaces").json(&object)).await?;
    }
    let rings = (0..RING_COUNT).map(ring);
    create(&client, "/api/v1/namespaces/rings/configmaps", rings).await?;
    let pods = (0..RING_COUNT).step_by(RINGS_PER_POD as usize).map(ring_pod);
    create(&client, "/api/v1/namespaces/rings/pods", pods).await?;
    create(&client, "/apis/apps/v1/namespaces/sets/statefulsets", (0..SET_COUNT).map(set)).await?;
    Ok(plane)
}

async fn create(client: &Client, path: &str, all: impl Iterator<Item = Value>) -> Result<()> {
    let create = |object: Value| async move {
        let answer = client.send(Request::new(Method::POST, path).json(&object)).await?;
        ensure!(answer.status.is_success(), "{}", answer.excerpt());
        Ok(())
    };
    let created = stream::iter(all).map(create).buffer_unordered(WRITES_AT_ONCE);
    created.try_collect().await.with_context(|| path.to_owned())
}

fn ring(number: u32) -> Value {
    json!({
        "metadata": {"name": format!("ring-{number:05}")},
        "data": {"size": "3", "zone": format!("zone-{}", number % 3)},
    })
}

fn ring_pod(number: u32) -> Value {
    json!({
        "metadata": {"name": format!("member-{number}"),
                     "labels": {"ring": format!("ring-{number:05}")}},
        "spec": {"containers": [{"name": "main", "image": "example.com/member:1"}]},
    })
}

fn set(number: u32) -> Value {
    let labels = json!({"set": number.to_string()});
    json!({
        "metadata": {"name": format!("set-{number:05}"), "labels": labels},
        "spec": {
            "serviceName": "sets",
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "example.com/member:1"}]},
            },
        },
    })
}
