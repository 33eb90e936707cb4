//! Pods and config maps that are created, changed, moved in and out of a selector, and deleted.
//!
//! The order is the same in every run. All writes go directly to the apiserver, one after another.
//! The last one creates the object `marker`: a client that has it has everything before it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use http::Method;
use serde_json::{Value, json};

use super::stage::{Fault, Scene};
use crate::rig::client::{Client, Request};

/// Writes before, between and after the faults.
const WRITES_PER_PART: u32 = 120;
const PERIOD: Duration = Duration::from_millis(40);
/// The number of objects of a kind before any deletion.
const FEW: usize = 8;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const RESOURCES: [&str; 2] = ["pods", "configmaps"];

/// The objects as this writer left them.
#[derive(Debug)]
pub struct Churn<'a> {
    scene: &'a Scene<'a>,
    client: Client,
    /// By resource: each object's name, and whether it is in the selector `churn=in`.
    alive: [BTreeMap<String, bool>; 2],
    random: u64,
    written: u32,
}

// === impl Churn ===

impl<'a> Churn<'a> {
    /// Makes the first objects, every other one in the selector.
    pub async fn begin(scene: &'a Scene<'a>) -> Result<Self> {
        let client = scene.straight.clone();
        let mut churn = Self { scene, client, alive: Default::default(), random: SEED, written: 0 };
        for index in 0..RESOURCES.len() {
            for number in 0..FEW {
                churn.create(index, number % 2 == 0).await?;
            }
        }
        Ok(churn)
    }

    /// Writes, with the faults in between; returns the number of writes.
    pub async fn run(&mut self, faults: &[Fault]) -> Result<u32> {
        self.part().await?;
        for fault in faults {
            match fault {
                // Others can write meanwhile.
                Fault::Cut => tokio::try_join!(self.scene.suffer(*fault), self.part()).map(drop)?,
                Fault::Restart => {
                    self.scene.suffer(*fault).await?;
                    self.part().await?;
                }
            }
        }
        let done = json!({"metadata": {"name": "awaited"}, "data": {"done": "yes"}});
        self.post("configmaps", &done).await?;
        for resource in RESOURCES {
            self.post(resource, &object(resource, "marker", true)).await?;
        }
        Ok(self.written)
    }

    async fn part(&mut self) -> Result<()> {
        let mut period = tokio::time::interval(PERIOD);
        for _ in 0..WRITES_PER_PART {
            period.tick().await;
            let index = self.pick(RESOURCES.len());
            let inside = self.pick(2) == 0;
            match self.pick(10) {
                0..3 => self.create(index, inside).await?,
                3..6 => self.relabel(index).await?,
                6..8 => self.annotate(index).await?,
                _ if self.alive[index].len() <= FEW => self.create(index, inside).await?,
                _ => self.delete(index).await?,
            }
        }
        Ok(())
    }

    async fn create(&mut self, index: usize, inside: bool) -> Result<()> {
        let name = format!("churned-{}", self.written);
        self.post(RESOURCES[index], &object(RESOURCES[index], &name, inside)).await?;
        self.alive[index].insert(name, inside);
        Ok(())
    }

    async fn relabel(&mut self, index: usize) -> Result<()> {
        let Some(name) = self.any(index) else { return Ok(()) };
        let inside = !self.alive[index][&name];
        let labels = json!({"metadata": {"labels": {"churn": label(inside)}}});
        self.patch(index, &name, &labels).await?;
        self.alive[index].insert(name, inside);
        Ok(())
    }

    async fn annotate(&mut self, index: usize) -> Result<()> {
        let Some(name) = self.any(index) else { return Ok(()) };
        let note = json!({"metadata": {"annotations": {"written": self.written.to_string()}}});
        self.patch(index, &name, &note).await
    }

    async fn delete(&mut self, index: usize) -> Result<()> {
        let Some(name) = self.any(index) else { return Ok(()) };
        let path = self.scene.collection(RESOURCES[index]);
        let path = format!("{path}/{name}?gracePeriodSeconds=0");
        self.send(Request::new(Method::DELETE, &path)).await?;
        self.alive[index].remove(&name);
        Ok(())
    }

    fn any(&mut self, index: usize) -> Option<String> {
        let position = self.pick(self.alive[index].len().max(1));
        self.alive[index].keys().nth(position).cloned()
    }

    async fn patch(&mut self, index: usize, name: &str, patch: &Value) -> Result<()> {
        let path = format!("{}/{name}", self.scene.collection(RESOURCES[index]));
        let request = Request::new(Method::PATCH, &path);
        self.send(request.body("application/merge-patch+json", patch.to_string())).await
    }

    async fn post(&mut self, resource: &str, object: &Value) -> Result<()> {
        let path = self.scene.collection(resource);
        self.send(Request::new(Method::POST, &path).json(object)).await
    }

    async fn send(&mut self, request: Request) -> Result<()> {
        self.client.send(request).await?.successful()?;
        self.written += 1;
        Ok(())
    }

    /// A number below `end`, the same ones in every run (xorshift).
    fn pick(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % end as u64) as usize
    }
}

fn label(inside: bool) -> &'static str {
    if inside { "in" } else { "out" }
}

fn object(resource: &str, name: &str, inside: bool) -> Value {
    let metadata = json!({"name": name, "labels": {"churn": label(inside)}});
    if resource == "configmaps" {
        return json!({"metadata": metadata, "data": {"text": "<b> & \u{2028}"}});
    }
    let container = json!({"name": "main", "image": "example.com/app:1"});
    json!({"metadata": metadata, "spec": {"containers": [container]}})
}
