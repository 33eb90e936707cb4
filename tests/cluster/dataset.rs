//! The cluster that every differential case reads: small, deterministic, and full of edge cases.
//!
//! It is written directly to the apiserver, then left alone: the suites compare responses about a
//! quiet cluster. Names and values are fixed; uids, times and versions are the server's.

use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::{StreamExt, TryStreamExt, stream};
use http::Method;
use serde_json::{Value, json};

use crate::rig::client::{Client, Request};
use crate::rig::wait::until;

mod cluster_scoped;
mod configuration;
mod custom;
mod workloads;

const WRITES_AT_ONCE: usize = 16;
const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// Namespaces whose names test the order of keys: `a-b/x` sorts before `a/x`.
pub const NAMESPACES: [&str; 6] = ["a", "a-b", "a0", "shop", "shop-east", "empty"];

/// The facts of a loaded cluster that the cases need.
#[derive(Clone, Copy, Debug)]
pub struct Dataset {
    /// A version at which the cluster had none of the data.
    pub version_before: u64,
    /// A version at which it had all of it.
    pub version_after: u64,
}

/// One object to create.
pub(crate) struct Item {
    collection: String,
    object: Value,
    status: Option<Value>,
}

// === impl Item ===

impl Item {
    pub(crate) fn new(collection: impl Into<String>, object: Value) -> Self {
        Self { collection: collection.into(), object, status: None }
    }

    /// Sets the status, written by a second request to the subresource.
    pub(crate) fn status(mut self, status: Value) -> Self {
        self.status = Some(status);
        self
    }

    fn path(&self) -> String {
        let name = self.object["metadata"]["name"].as_str().unwrap_or_default();
        format!("{}/{name}", self.collection)
    }
}

// === impl Dataset ===

impl Dataset {
    /// Writes all objects and waits until discovery knows the custom ones.
    pub async fn load(client: &Client) -> Result<Self> {
        let version_before = current_version(client).await?;
        create_all(client, cluster_scoped::foundations()).await?;
        established(client).await?;
        let items =
            [cluster_scoped::items(), configuration::items(), workloads::items(), custom::items()];
        create_all(client, items.into_iter().flatten().collect()).await?;
        terminating(client).await?;
        apply(client).await?;
        settled(client).await?;
        let version_after = current_version(client).await?;
        caught_up(client, version_after).await?;
        Ok(Self { version_before, version_after })
    }
}

/// The store's current version, from a consistent read of an empty collection.
pub async fn current_version(client: &Client) -> Result<u64> {
    let answer = client.get("/api/v1/namespaces/none/configmaps").await?.successful()?;
    let version = answer.json()?["metadata"]["resourceVersion"].as_str().map(str::parse);
    Ok(version.context("a list without resourceVersion")??)
}

/// Creates objects many at a time, then writes their status.
pub(crate) async fn create_all(client: &Client, items: Vec<Item>) -> Result<()> {
    let create = |item: Item| async move {
        let post = Request::new(Method::POST, &item.collection).json(&item.object);
        client.send(post).await?.successful().with_context(|| item.path())?;
        if let Some(status) = &item.status {
            let patch = json!({ "status": status }).to_string();
            let patch = Request::new(Method::PATCH, &format!("{}/status", item.path()))
                .body("application/merge-patch+json", patch);
            client.send(patch).await?.successful().with_context(|| item.path())?;
        }
        Ok(())
    };
    stream::iter(items).map(create).buffer_unordered(WRITES_AT_ONCE).try_collect().await
}

async fn established(client: &Client) -> Result<()> {
    for crd in custom::DEFINITIONS {
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd}");
        until(&format!("{crd} is established"), SETTLE_LIMIT, async || {
            let crd = client.get(&path).await?.json()?;
            let conditions = crd["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is = |wanted: &Value| wanted["type"] == "Established" && wanted["status"] == "True";
            Ok(conditions.iter().any(is))
        })
        .await?;
    }
    Ok(())
}

/// An object that is being deleted and waits for its finalizer.
async fn terminating(client: &Client) -> Result<()> {
    let path = "/api/v1/namespaces/shop/configmaps/going";
    client.send(Request::new(Method::DELETE, path)).await?.successful()?;
    Ok(())
}

/// An object with several field managers, one of them by server-side apply.
async fn apply(client: &Client) -> Result<()> {
    let path = "/api/v1/namespaces/shop/configmaps/settings?fieldManager=applier";
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "settings", "annotations": {"applied": "yes"}},
        "data": {"applied": "yes"},
    });
    let patch =
        Request::new(Method::PATCH, path).body("application/apply-patch+yaml", object.to_string());
    client.send(patch).await?.successful()?;
    Ok(())
}

/// Discovery and OpenAPI follow custom resource definitions with a delay.
async fn settled(client: &Client) -> Result<()> {
    let wanted = custom::PATHS_IN_OPENAPI;
    until("OpenAPI and discovery know the custom resources", SETTLE_LIMIT, async || {
        let index = client.get("/openapi/v3").await?.json()?;
        let aggregated = client
            .send(Request::get("/apis").header(
                "Accept",
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            ))
            .await?;
        let text = String::from_utf8_lossy(&aggregated.body);
        let old = client.get("/openapi/v2").await?;
        let old = String::from_utf8_lossy(&old.body);
        Ok(wanted.iter().all(|path| !index["paths"][path].is_null())
            && text.contains("planets")
            && text.contains("widgets")
            && old.contains("planets")
            && old.contains("widgets"))
    })
    .await
}

/// Watch caches of idle resources reach a version only with the store's next progress report.
async fn caught_up(client: &Client, version: u64) -> Result<()> {
    for collection in
        ["/api/v1/pods", "/api/v1/nodes", "/api/v1/configmaps", "/apis/shop.example.com/v1/widgets"]
    {
        let target = format!("{collection}?resourceVersion={version}&limit=1");
        let target = format!("{target}&resourceVersionMatch=NotOlderThan");
        until(&format!("{collection} is at version {version}"), SETTLE_LIMIT, async || {
            Ok(client.get(&target).await?.status.is_success())
        })
        .await?;
    }
    Ok(())
}
