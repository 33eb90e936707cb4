//! The complete history from etcd itself, which no fault of an apiserver affects.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::record::{Filter, Resource};
use crate::etcd::ask;

/// Follows etcd from its first revision on.
#[derive(Debug)]
pub struct Truth {
    etcd: SocketAddr,
    heard: Arc<Mutex<Heard>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Heard {
    timelines: Timelines,
    /// The revision of the last event of any resource.
    newest: u64,
}

/// The changes of every resource.
pub type Timelines = BTreeMap<Resource, Timeline>;

/// The changes of one resource.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    objects: BTreeMap<String, Vec<Change>>,
    /// All changes in order: revision, key, and the time of their arrival.
    order: Vec<(u64, String, Instant)>,
}

/// An object from a revision on; `None` after its deletion.
#[derive(Clone, Debug)]
pub struct Change {
    pub revision: u64,
    pub object: Option<Object>,
}

/// The parts of an object that matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub uid: String,
    pub version: u64,
    pub app: String,
}

/// The time after which etcd has delivered its acknowledged changes.
const ARRIVAL: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

// === impl Truth ===

impl Truth {
    /// Starts to listen.
    pub async fn follow(etcd: SocketAddr) -> Result<Self> {
        let create = json!({"create_request": {
            "key": STANDARD.encode("/registry/"),
            "range_end": STANDARD.encode("/registry0"),
            "start_revision": "1",
        }});
        let answer = ask(etcd, "/v3/watch", &create).await?;
        let heard: Arc<Mutex<Heard>> = Arc::default();
        let task = tokio::spawn(listen(answer.into_body(), heard.clone()));
        Ok(Self { etcd, heard, task })
    }

    /// Compacts the revisions before the newest one; returns that one.
    pub async fn compact(&self) -> Result<u64> {
        let revision = self.revision().await?;
        let body = json!({"revision": revision.to_string(), "physical": true});
        let answer = ask(self.etcd, "/v3/kv/compaction", &body).await?;
        answer.into_body().collect().await?;
        Ok(revision)
    }

    /// All changes so far.
    pub async fn told(&self) -> Result<Timelines> {
        let revision = self.revision().await?;
        let deadline = Instant::now() + ARRIVAL;
        let mut poll = tokio::time::interval(POLL);
        loop {
            poll.tick().await;
            let heard = lock(&self.heard);
            if heard.newest >= revision {
                return Ok(heard.timelines.clone());
            }
            if self.task.is_finished() || Instant::now() > deadline {
                bail!("etcd is at {revision} and sent {} only", heard.newest);
            }
        }
    }

    async fn revision(&self) -> Result<u64> {
        let nothing = json!({"key": STANDARD.encode("/nothing")});
        let answer = ask(self.etcd, "/v3/kv/range", &nothing).await?;
        let body = answer.into_body().collect().await?.to_bytes();
        let answer: Value = serde_json::from_slice(&body)?;
        let revision = answer["header"]["revision"].as_str().context("no revision")?;
        Ok(revision.parse()?)
    }
}

impl Drop for Truth {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl Heard ===

impl Heard {
    fn add(&mut self, event: &Value) -> Result<()> {
        let kv = &event["kv"];
        let path = STANDARD.decode(kv["key"].as_str().context("no key")?)?;
        let path = String::from_utf8(path)?;
        let revision: u64 = kv["mod_revision"].as_str().context("no revision")?.parse()?;
        self.newest = revision;
        let of_it = |resource: &Resource| path.starts_with(resource.prefix());
        let Some(resource) = Resource::ALL.into_iter().find(of_it) else { return Ok(()) };
        let object = if event["type"] == "DELETE" {
            None
        } else {
            let value = STANDARD.decode(kv["value"].as_str().context("no value")?)?;
            let object: Value = serde_json::from_slice(&value).context("not stored as JSON")?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (uid, app) = (&object["metadata"]["uid"], &object["metadata"]["labels"]["app"]);
            Some(Object { uid: text(uid), version: revision, app: text(app) })
        };
        let key = path[resource.prefix().len()..].to_owned();
        self.timelines.entry(resource).or_default().add(key, Change { revision, object });
        Ok(())
    }
}

// === impl Timeline ===

impl Timeline {
    /// The number of changes.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// The next change.
    pub fn add(&mut self, key: String, change: Change) {
        self.order.push((change.revision, key.clone(), Instant::now()));
        self.objects.entry(key).or_default().push(change);
    }

    /// All keys that ever existed in one namespace, or in all.
    pub fn keys(&self, namespace: Option<&str>) -> impl Iterator<Item = &str> {
        within(&self.objects, namespace).map(|(key, _)| key.as_str())
    }

    /// The changes of one key.
    pub fn changes(&self, key: &str) -> &[Change] {
        self.objects.get(key).map_or(&[], Vec::as_slice)
    }

    /// The revisions of the changes of one key after a revision.
    pub fn changed_after(&self, key: &str, revision: u64) -> impl Iterator<Item = u64> {
        let changes = self.changes(key);
        let past = changes.partition_point(|change| change.revision <= revision);
        changes[past..].iter().map(|change| change.revision)
    }

    /// The object at a key at a revision.
    pub fn at(&self, key: &str, revision: u64) -> Option<&Object> {
        let changes = self.changes(key);
        let past = changes.partition_point(|change| change.revision <= revision);
        changes.get(past.checked_sub(1)?)?.object.as_ref()
    }

    /// Reports whether a filter selects the object at a key at a revision.
    pub fn selects(&self, filter: &Filter, key: &str, revision: u64) -> bool {
        self.at(key, revision).is_some_and(|object| filter.selects(key, object))
    }

    /// The changes after a revision and up to another, in order.
    pub fn between(&self, after: u64, until: u64) -> impl Iterator<Item = (u64, &str)> {
        let from = self.order.partition_point(|(revision, ..)| *revision <= after);
        let to = self.order.partition_point(|(revision, ..)| *revision <= until);
        self.order[from..to.max(from)].iter().map(|(revision, key, _)| (*revision, key.as_str()))
    }

    /// The arrival time of the first change after a revision.
    pub fn outdated_at(&self, revision: u64) -> Option<Instant> {
        let next = self.order.partition_point(|(held, ..)| *held <= revision);
        self.order.get(next).map(|(_, _, at)| *at)
    }
}

// === impl Filter ===

impl Filter {
    fn selects(&self, key: &str, object: &Object) -> bool {
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        self.namespace.is_none_or(|wanted| wanted == namespace)
            && self.name.is_none_or(|wanted| wanted == name)
            && self.app.is_none_or(|wanted| wanted == object.app)
    }
}

/// The entries whose key, `namespace/name`, is in one namespace, or all.
pub fn within<'a, T>(
    map: &'a BTreeMap<String, T>,
    namespace: Option<&str>,
) -> impl Iterator<Item = (&'a String, &'a T)> {
    let prefix = namespace.map_or_else(String::new, |namespace| format!("{namespace}/"));
    map.range(prefix.clone()..).take_while(move |(key, _)| key.starts_with(&prefix))
}

/// etcd answers in JSON, one line each.
async fn listen(mut body: Incoming, heard: Arc<Mutex<Heard>>) {
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.expect("an open watch of etcd");
        text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let line: Value = serde_json::from_slice(&line).expect("a line of JSON");
            for event in line["result"]["events"].as_array().into_iter().flatten() {
                lock(&heard).add(event).expect("an event of etcd");
            }
        }
    }
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}
