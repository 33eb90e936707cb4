//! The one writer of the fleet's pods, and the content of every version of the collection.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http::Method;
use serde_json::{Value, json};

use super::{DATA, POLLERS};
use crate::rig::client::{Client, Request};

/// An object's name and the version it was last written at.
pub type Items = BTreeMap<String, u64>;

/// A writer that goes directly to the apiserver and records its changes.
#[derive(Debug)]
pub struct History {
    client: Client,
    /// Each poller's pods at the beginning.
    first: Vec<Items>,
    /// All changes, in the order of their versions.
    changes: Vec<Change>,
    number: u64,
}

#[derive(Clone, Debug)]
struct Change {
    version: u64,
    acknowledged: Instant,
    poller: u32,
    name: String,
    /// `true` if the object exists afterwards.
    present: bool,
}

// === impl History ===

impl History {
    /// Reads the pods of all pollers as they are now; nobody else may write them from here on.
    pub async fn begin(client: Client) -> Result<Self> {
        let mut first = Vec::new();
        for poller in 0..POLLERS {
            let target = format!("{}?labelSelector=poller%3D{poller}", DATA.collection());
            let list = client.get(&target).await?.successful()?.json()?;
            first.push(items(&list)?);
        }
        Ok(Self { client, first, changes: Vec::new(), number: 0 })
    }

    /// Makes changes, one after the other, for a while; returns their number.
    pub async fn write_for(&mut self, time: Duration, period: Duration) -> Result<usize> {
        let (before, end) = (self.changes.len(), Instant::now() + time);
        let mut period = tokio::time::interval(period);
        while Instant::now() < end {
            period.tick().await;
            self.change().await?;
        }
        Ok(self.changes.len() - before)
    }

    /// The version of the last change.
    pub fn last_version(&self) -> u64 {
        self.changes.last().map_or(0, |change| change.version)
    }

    /// The content that a poller's list must have at a version.
    pub fn expected(&self, poller: u32, version: u64) -> Items {
        let mut items = self.first[poller as usize].clone();
        let past = self.changes.iter().take_while(|change| change.version <= version);
        for change in past.filter(|change| change.poller == poller) {
            if change.present {
                items.insert(change.name.clone(), change.version);
            } else {
                items.remove(&change.name);
            }
        }
        items
    }

    /// Reports whether a list is a state of the collection at a version.
    pub fn allows(&self, poller: u32, version: u64, items: &Items) -> bool {
        let expected = self.expected(poller, version);
        let names: BTreeSet<&String> = expected.keys().chain(items.keys()).collect();
        names.into_iter().all(|name| {
            let (held, seen) = (expected.get(name), items.get(name));
            held == seen || self.is_dying(name, held, seen, version)
        })
    }

    /// Deleting a pod takes two writes: it is marked, then removed; only the second is answered.
    fn is_dying(&self, name: &str, held: Option<&u64>, seen: Option<&u64>, version: u64) -> bool {
        let next = self.changes.iter().find(|it| it.name == name && it.version > version);
        let marked = held < seen && seen.is_some_and(|seen| *seen <= version);
        held.is_some() && marked && next.is_some_and(|it| !it.present)
    }

    /// The newest version that was acknowledged at a moment.
    pub fn acknowledged_at(&self, moment: Instant) -> u64 {
        let past = self.changes.iter().rev().find(|change| change.acknowledged <= moment);
        past.map_or(0, |change| change.version)
    }

    /// Creates, changes or deletes one pod of one poller.
    async fn change(&mut self) -> Result<()> {
        let number = self.number;
        self.number += 1;
        let poller = (number % u64::from(POLLERS)) as u32;
        let name = format!("churn-{poller}");
        let path = format!("{}/{name}", DATA.collection());
        let held = self.expected(poller, u64::MAX).contains_key(&name);
        let (request, present) = match (held, number / u64::from(POLLERS) % 3) {
            (false, _) => {
                let containers = json!([{"name": "main", "image": "example.com/app:1"}]);
                let metadata = json!({"name": name, "labels": {"poller": poller.to_string()}});
                let pod = json!({"metadata": metadata, "spec": {"containers": containers}});
                (Request::new(Method::POST, &DATA.collection()).json(&pod), true)
            }
            (true, 2) => (Request::new(Method::DELETE, &path), false),
            (true, _) => {
                let annotations = json!({"example.com/number": number.to_string()});
                let patch = json!({"metadata": {"annotations": annotations}}).to_string();
                let request = Request::new(Method::PATCH, &path);
                (request.body("application/merge-patch+json", patch), true)
            }
        };
        let answer = self.client.send(request).await?.successful()?.json()?;
        // A pod's DELETE returns the object at the version of the deletion.
        let version = version(&answer).context("a write without a version")?;
        let acknowledged = Instant::now();
        self.changes.push(Change { version, acknowledged, poller, name, present });
        Ok(())
    }
}

/// The names and versions of a list's items.
pub fn items(list: &Value) -> Result<Items> {
    let all = list["items"].as_array().context("no items")?;
    let pair = |item: &Value| {
        let name = item["metadata"]["name"].as_str().context("no name")?;
        Ok((name.to_owned(), version(item).context("no version")?))
    };
    all.iter().map(pair).collect()
}

/// The version in an object's or a list's metadata.
pub fn version(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}
