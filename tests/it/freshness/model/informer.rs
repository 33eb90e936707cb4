//! A client that lists once and then watches, as informers do. The state it builds from events
//! alone equals the real state.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use http::HeaderValue;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::{RESOURCES, World, dice::Dice};
use crate::harness::{Answer, TestClient, pass};

/// The queries that informers follow.
const COLLECTIONS: [&str; 5] = [
    "/api/v1/pods",
    "/api/v1/namespaces/a/pods?labelSelector=app%3Dweb",
    "/api/v1/namespaces/b/configmaps",
    "/apis/x.io/v1/widgets?labelSelector=app%21%3Ddb",
    "/api/v1/pods?fieldSelector=metadata.name%3Dp1",
];

/// The time after which an informer matches the apiserver once no fault is left; a stalled upstream
/// watch is detected after 225 seconds.
const CALM: Duration = Duration::from_secs(600);

/// The time that an informer waits for an event before it checks the other actors.
const LOOK: Duration = Duration::from_secs(5);

/// The state of one informer.
struct Informer {
    world: Arc<World>,
    client: TestClient,
    dice: Dice,
    collection: &'static str,
    /// The version of each object.
    held: BTreeMap<String, u64>,
    version: u64,
    /// The number of watches that memory answered.
    hits: usize,
    violations: Vec<String>,
}

/// The reason why a watch ended.
enum End {
    /// The informer continues from its last version.
    Closed,
    /// It must list again.
    Expired,
    /// The informer matches the apiserver, and no fault is left.
    Settled,
}

/// Lists and watches until no fault is left; returns the violations and the number of watches that
/// memory answered.
pub(super) async fn informer(world: Arc<World>, mut dice: Dice) -> (Vec<String>, usize) {
    let client = world.proxy.client().with("user-agent", "informer");
    let collection = dice.one_of(&COLLECTIONS);
    let (held, violations) = (BTreeMap::new(), Vec::new());
    let (version, hits) = (0, 0);
    let mut informer =
        Informer { world, client, dice, collection, held, version, hits, violations };
    informer.run().await;
    (informer.violations, informer.hits)
}

// === impl Informer ===

impl Informer {
    async fn run(&mut self) {
        let mut listed = false;
        let mut calm_since = None;
        while self.violations.is_empty() {
            if self.world.calm.load(Ordering::SeqCst) {
                let since = *calm_since.get_or_insert_with(Instant::now);
                if since.elapsed() > CALM {
                    let (held, there) = (self.held.clone(), self.truth().await);
                    self.violations.push(format!(
                        "{} never came to rest: holds {held:?} of {there:?}",
                        self.collection
                    ));
                    return;
                }
            }
            if !listed {
                listed = self.list().await;
                continue;
            }
            match self.follow().await {
                End::Closed => {}
                End::Expired => listed = false,
                End::Settled => return,
            }
            pass(Duration::from_millis(self.dice.roll(1_000))).await;
        }
    }

    /// Replaces the state by a whole list; reports whether there was one.
    async fn list(&mut self) -> bool {
        let version = self.dice.one_of(&["", "resourceVersion=0"]);
        let answer = self.client.get(&self.with(version)).await;
        if answer.status != 200 || !answer.whole {
            pass(Duration::from_secs(1)).await;
            return false;
        }
        if answer.version() < self.version {
            let (collection, version) = (self.collection, self.version);
            self.violations.push(format!(
                "{collection} was listed after version {version}: {}",
                answer.summary()
            ));
        }
        self.version = answer.version();
        self.held = objects(&answer);
        true
    }

    async fn follow(&mut self) -> End {
        let bookmarks = self.dice.one_of(&["true", "false"]);
        let parameters = format!(
            "watch=1&resourceVersion={}&allowWatchBookmarks={bookmarks}&timeoutSeconds={}",
            self.version,
            self.dice.between(1, 400)
        );
        let Some(mut watch) = self.client.try_watch(&self.with(&parameters)).await else {
            pass(Duration::from_secs(1)).await;
            return End::Closed;
        };
        match watch.head.status.as_u16() {
            200 => {
                let status = watch.head.headers.get("cache-status");
                let is_hit = |status: &HeaderValue| status.as_bytes().starts_with(b"listless; hit");
                self.hits += usize::from(status.is_some_and(is_hit));
            }
            410 => return End::Expired,
            _ => {
                pass(Duration::from_secs(1)).await;
                return End::Closed;
            }
        }
        loop {
            match timeout(LOOK, watch.next_line()).await {
                Ok(Some(line)) => {
                    let Ok(event) = serde_json::from_slice(&line) else {
                        self.violations.push(format!("not an event: {line:?}"));
                        return End::Closed;
                    };
                    if let Some(end) = self.apply(&event) {
                        return end;
                    }
                }
                Ok(None) => return End::Closed,
                Err(_silence) => {
                    let calm = self.world.calm.load(Ordering::SeqCst);
                    if calm && self.truth().await == self.held {
                        return End::Settled;
                    }
                    if calm {
                        return End::Closed;
                    }
                }
            }
        }
    }

    fn apply(&mut self, event: &Value) -> Option<End> {
        let (kind, object) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
        if kind == "ERROR" {
            return Some(if object["code"] == 410 { End::Expired } else { End::Closed });
        }
        self.world.history.note(event);
        let metadata = &object["metadata"];
        let version = metadata["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        let version: u64 = version.expect("a version");
        let key = key(metadata);
        let is_held = self.held.contains_key(&key);
        let is_news = version > self.version;
        let right = match kind {
            "ADDED" => is_news && !is_held,
            "MODIFIED" | "DELETED" => is_news && is_held,
            "BOOKMARK" => version >= self.version,
            _ => false,
        };
        if !right {
            self.violations.push(format!(
                "{} at {} with {:?} was told {event}",
                self.collection, self.version, self.held
            ));
        }
        self.version = self.version.max(version);
        if kind != "BOOKMARK" {
            self.world.history.tell(self.resource(), key.clone(), version);
        }
        match kind {
            "ADDED" | "MODIFIED" => {
                self.held.insert(key, version);
            }
            "DELETED" => {
                self.held.remove(&key);
            }
            _ => {}
        }
        (!right).then_some(End::Closed)
    }

    fn resource(&self) -> &'static str {
        let resources = RESOURCES.iter().copied();
        let named = |resource: &&str| {
            let plural = resource.split('.').next().unwrap_or_default();
            self.collection.contains(&format!("/{plural}"))
        };
        resources.into_iter().find(named).expect("one of the resources")
    }

    async fn truth(&self) -> BTreeMap<String, u64> {
        objects(&self.world.proxy.straight().get(self.collection).await)
    }

    fn with(&self, parameters: &str) -> String {
        let separator = if self.collection.contains('?') { "&" } else { "?" };
        format!("{}{separator}{parameters}", self.collection)
    }
}

fn objects(answer: &Answer) -> BTreeMap<String, u64> {
    let list = answer.json();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let object = |item: &Value| {
        let metadata = &item["metadata"];
        let version = metadata["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        (key(metadata), version.expect("a version"))
    };
    items.iter().map(object).collect()
}

fn key(metadata: &Value) -> String {
    let text = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("namespace"), text("name"))
}
