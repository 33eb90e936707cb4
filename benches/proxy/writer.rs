//! Config maps that change at a steady rate, written directly to the apiserver.
//!
//! Their managed fields are short, so that a write costs the apiserver little.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    rig::client::{Client, Request},
    setup::Setup,
};

/// The namespace of the changing objects. Listless caches its config maps from the start.
pub(crate) const NAMESPACE: &str = "fanout";

const CAUGHT_UP_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// A few objects of one size.
pub(crate) struct Writer {
    client: Client,
    label: &'static str,
    objects: u64,
}

// === impl Writer ===

impl Writer {
    /// Creates the objects with a label of their own.
    pub(crate) async fn new(
        setup: &Setup,
        label: &'static str,
        objects: u64,
        bytes: usize,
    ) -> Result<Self> {
        let client = setup.writing_client()?;
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        let post = Request::new(Method::POST, "/api/v1/namespaces").json(&namespace);
        let status = client.send(post).await?.status.as_u16();
        ensure!(status == 201 || status == 409, "namespace {NAMESPACE}: {status}");
        let writer = Self { client, label, objects };
        for number in 0..objects {
            let object = json!({
                "metadata": {"name": writer.name(number), "labels": {"bench": label}},
                "data": {"text": "0123456789abcdef".repeat(bytes / 16), "at": "0"},
            });
            let post = Request::new(Method::POST, &collection()).json(&object);
            let status = writer.client.send(post).await?.status.as_u16();
            ensure!(status == 201 || status == 409, "{}: {status}", writer.name(number));
        }
        Ok(writer)
    }

    /// Returns a watch of the objects from a version.
    pub(crate) fn watch_from(&self, version: &str) -> String {
        format!(
            "{}?watch=1&labelSelector=bench%3D{}&resourceVersion={version}",
            collection(),
            self.label
        )
    }

    /// Writes once and waits until Listless has the change. Returns the version of that write.
    pub(crate) async fn settled(&self, setup: &Setup) -> Result<String> {
        let version = self.write(0, 0).await?;
        let target = format!("{}?labelSelector=bench%3D{}", collection(), self.label);
        let deadline = Instant::now() + CAUGHT_UP_LIMIT;
        let mut poll = tokio::time::interval(POLL);
        loop {
            poll.tick().await;
            let answer = setup.reading_client().get(&target).await?;
            let hit = answer.header("cache-status").is_some_and(|said| said.contains("hit"));
            let list = answer.json()?;
            let at = list["metadata"]["resourceVersion"].as_str().context("no version")?;
            if hit && at.parse::<u64>()? >= version.parse::<u64>()? {
                return Ok(version);
            }
            ensure!(Instant::now() < deadline, "Listless does not cache {target}");
        }
    }

    /// Writes at a rate for a while. Returns the number of writes.
    pub(crate) async fn write_for(&self, length: Duration, per_second: f64) -> Result<u64> {
        let writes = (length.as_secs_f64() * per_second).round() as u64;
        let mut ticks = tokio::time::interval(Duration::from_secs_f64(per_second.recip()));
        let mut under_way: JoinSet<Result<()>> = JoinSet::new();
        for at in 1..=writes {
            ticks.tick().await;
            // No object has two concurrent writes, however slow the machine is.
            if under_way.len() as u64 >= self.objects
                && let Some(written) = under_way.join_next().await
            {
                written??;
            }
            let request = self.request(at % self.objects, at);
            let client = self.client.clone();
            under_way.spawn(async move { client.send(request).await?.successful().map(drop) });
        }
        while let Some(written) = under_way.join_next().await {
            written??;
        }
        Ok(writes)
    }

    async fn write(&self, number: u64, at: u64) -> Result<String> {
        let answer = self.client.send(self.request(number, at)).await?.successful()?;
        let object = answer.json()?;
        Ok(object["metadata"]["resourceVersion"].as_str().context("no version")?.to_owned())
    }

    fn request(&self, number: u64, at: u64) -> Request {
        // The content always changes, because an equal one would cause no event.
        let stamp = format!("{at}-{:?}", std::time::SystemTime::now());
        let patch = json!({"data": {"at": stamp}}).to_string();
        Request::new(Method::PATCH, &format!("{}/{}", collection(), self.name(number)))
            .body("application/merge-patch+json", patch)
    }

    fn name(&self, number: u64) -> String {
        format!("{}-{number}", self.label)
    }
}

fn collection() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps")
}
