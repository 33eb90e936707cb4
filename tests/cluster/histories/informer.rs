//! A client that lists once and then watches, as informers do, and holds the result of the events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

use super::World;
use super::actors::listed;
use super::checker;
use super::dice::Dice;
use super::record::{Asked, Filter, Resource, Shown, Told, Version, Watch, key, version};
use super::truth::Timelines;
use crate::rig::client::{Client, Request};

/// One informer.
pub struct Informer {
    world: Arc<World>,
    client: Client,
    dice: Dice,
    asked: Asked,
    target: String,
    held: BTreeMap<String, u64>,
    version: u64,
    relists: usize,
    /// The time at which it ends even if changes are to come.
    until: Option<Instant>,
}

/// The final content of an informer.
pub struct Outcome {
    pub asked: Asked,
    pub held: BTreeMap<String, u64>,
    pub version: u64,
    pub relists: usize,
}

/// The pause of clients after a failure.
const PAUSE: Duration = Duration::from_millis(500);

/// The time that a watch may be silent before the informer checks the other actors.
const LOOK: Duration = Duration::from_secs(1);

/// The number of silent waits after which a connection is closed: bookmarks come each minute.
const SILENCES_MAX: u32 = 80;

// === impl Outcome ===

impl Outcome {
    /// Says what it holds if that is not the state at its version.
    pub fn wrong(&self, timelines: &Timelines) -> Option<String> {
        let there = checker::state(&timelines[&self.asked.resource], &self.asked, self.version);
        (there != self.held)
            .then(|| format!("{:?}: holds {:?} of {there:?}", self.asked, self.held))
    }
}

// === impl Informer ===

impl Informer {
    /// Creates an informer that will follow one of several collections.
    pub fn new(world: Arc<World>, dice: Dice, number: usize) -> Self {
        let resource = Resource::ALL[number % Resource::ALL.len()];
        let mut filter = Filter::default();
        if number % 2 == 1 {
            filter.namespace = Some(world.scope.namespaces[0]);
        }
        if number >= Resource::ALL.len() {
            filter.app = Some("web");
        }
        Self::following(world, dice, resource, filter, None)
    }

    /// Creates an informer that will follow one collection, to the end of the run or until a moment.
    pub fn following(
        world: Arc<World>,
        dice: Dice,
        resource: Resource,
        filter: Filter,
        until: Option<Instant>,
    ) -> Self {
        let (api, plural) = resource.path();
        let mut target = match filter.namespace {
            Some(namespace) => format!("{api}/namespaces/{namespace}/{plural}?"),
            None => format!("{api}/{plural}?"),
        };
        if let Some(app) = filter.app {
            target += &format!("labelSelector=app%3D{app}&");
        }
        let asked = Asked { resource, api, filter, version: Version::Unset };
        let client = world.through();
        let held = BTreeMap::new();
        Self { world, client, dice, asked, target, held, version: 0, relists: 0, until }
    }

    /// Lists and watches until every change was received.
    pub async fn run(mut self) -> Outcome {
        let mut listed = false;
        while !self.is_done() {
            let step = if listed { self.follow().await } else { self.list().await };
            // A failure is tried again, as every client does.
            if step.is_err() {
                self.world.records.failed("informer");
            }
            listed = step.unwrap_or(listed);
            tokio::time::sleep(PAUSE).await;
        }
        let Self { asked, held, version, relists, .. } = self;
        Outcome { asked, held, version, relists }
    }

    fn is_done(&self) -> bool {
        self.version >= self.world.last_version.load(Ordering::SeqCst)
            || self.until.is_some_and(|until| Instant::now() >= until)
    }

    async fn list(&mut self) -> Result<bool> {
        let start = self.dice.one_of(&["", "resourceVersion=0"]);
        let target = format!("{}{start}", self.target);
        let answer = self.client.get(target.trim_end_matches(['?', '&'])).await?.successful()?;
        let Shown::List(version, items) = listed(&answer)? else { bail!("no list") };
        self.relists += 1;
        self.version = version;
        self.held = items;
        Ok(true)
    }

    /// Runs one watch; reports whether the next can continue from its end.
    async fn follow(&mut self) -> Result<bool> {
        let target = format!(
            "{}watch=1&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
            self.target,
            self.version,
            self.dice.between(5, 60)
        );
        let answer = self.client.open(Request::get(&target)).await?;
        match answer.status().as_u16() {
            200 => {}
            410 => return Ok(false),
            other => bail!("{other}"),
        }
        let hit = answer.headers().get("cache-status");
        let hit = hit.is_some_and(|said| said.as_bytes().starts_with(b"listless; hit"));
        let mut watch = Watch { asked: self.asked, from: self.version, hit, told: Vec::new() };
        let goes_on = self.read(answer.into_body(), &mut watch).await;
        self.world.records.watched(watch);
        goes_on
    }

    async fn read(&mut self, mut body: Incoming, watch: &mut Watch) -> Result<bool> {
        let mut text = Vec::new();
        let mut silences = 0;
        loop {
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line)?;
                if event["type"] == "ERROR" {
                    return Ok(event["object"]["code"] != 410);
                }
                self.apply(&event, watch);
            }
            if self.is_done() {
                return Ok(true);
            }
            match tokio::time::timeout(LOOK, body.frame()).await {
                Ok(Some(frame)) => {
                    silences = 0;
                    text.extend_from_slice(frame?.data_ref().map_or(&[][..], |data| data));
                }
                Ok(None) => return Ok(true),
                Err(_silence) if silences < SILENCES_MAX => silences += 1,
                Err(_silence) => return Ok(true),
            }
        }
    }

    fn apply(&mut self, event: &Value, watch: &mut Watch) {
        let (kind, object) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
        let told = Told {
            kind: kind.to_owned(),
            key: if kind == "BOOKMARK" { String::new() } else { key(object) },
            version: version(object).expect("a version"),
        };
        self.version = self.version.max(told.version);
        match kind {
            "ADDED" | "MODIFIED" => drop(self.held.insert(told.key.clone(), told.version)),
            "DELETED" => drop(self.held.remove(&told.key)),
            _ => {}
        }
        watch.told.push(told);
    }
}
