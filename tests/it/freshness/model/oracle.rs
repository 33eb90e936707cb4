//! The whole history of the simulated apiserver, and the checks of each response against it.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use serde_json::Value;

use super::history::{Effect, Filter, History, Read, Told, Version, Write};
use crate::harness::{Answer, TestProxy};

/// Every change of every object.
pub(super) struct Oracle {
    resources: HashMap<&'static str, Timeline>,
}

/// The changes of one resource.
#[derive(Default)]
struct Timeline {
    objects: HashMap<String, Vec<Change>>,
    /// All revisions with a change, in order.
    revisions: Vec<u64>,
}

/// An object from a revision on; `None` after its deletion.
struct Change {
    revision: u64,
    object: Option<Object>,
}

#[derive(Clone, Debug)]
struct Object {
    uid: String,
    version: u64,
    app: String,
}

/// The session's knowledge of one object.
struct Fact {
    /// The step from which the session knows it.
    since: u64,
    key: String,
    /// The oldest revision of its state that a read may show.
    revision: u64,
    /// `true` if a list showed it; reads that name a version must not show less either.
    by_list: bool,
}

/// The longest time without events after which memory may answer: the progress bound plus the time
/// that a lost connection is tolerated.
const STALENESS_MAX: Duration = Duration::from_secs(95);

// === impl Oracle ===

impl Oracle {
    /// Requests every change since the start from the apiserver.
    pub(super) async fn build(proxy: &TestProxy, resources: &[&'static str]) -> Self {
        let mut timelines = HashMap::new();
        for resource in resources {
            let collection = match *resource {
                "widgets.x.io" => "/apis/x.io/v1/widgets".to_owned(),
                plural => format!("/api/v1/{plural}"),
            };
            let path = format!("{collection}?watch=1&resourceVersion=1000&timeoutSeconds=1");
            let mut watch = proxy.straight().watch(&path).await;
            let mut timeline = Timeline::default();
            while let Some(line) = watch.next_line().await {
                timeline.add(&serde_json::from_slice(&line).expect("an event"));
            }
            timelines.insert(*resource, timeline);
        }
        Self { resources: timelines }
    }

    /// Returns every violation in the session's responses.
    pub(super) async fn check(&self, proxy: &TestProxy, history: &History) -> Vec<String> {
        let reads = history.reads();
        let facts: HashMap<_, _> = self
            .resources
            .iter()
            .map(|(resource, timeline)| (*resource, timeline.facts(resource, history)))
            .collect();
        let mut violations = Vec::new();
        for read in &reads {
            let timeline = &self.resources[read.asked.resource];
            let wrong = match read.asked.key {
                None if read.version < Some(floor(read, &reads)) => {
                    Some(format!("{:?} after {}", read.version, floor(read, &reads)))
                }
                _ => timeline.aged(read, &facts[read.asked.resource]),
            };
            let inexact = inexact(proxy, read).await;
            let stale = timeline.stale(read, history);
            for wrong in [wrong, inexact, stale].into_iter().flatten() {
                let Read { asked, span, answer, .. } = read;
                violations.push(format!(
                    "{wrong}: {} {:?} in {}..{} at {}..{}: {}",
                    asked.target,
                    asked.version,
                    span.started,
                    span.ended,
                    span.revision_before,
                    span.revision_after,
                    answer.summary()
                ));
            }
        }
        violations
    }
}

/// Checks that a list from memory equals the apiserver's list at its version: byte for byte, and the
/// rows of a Table by their objects, because ages change.
async fn inexact(proxy: &TestProxy, read: &Read) -> Option<String> {
    if !read.answer.is_hit() || read.asked.key.is_some() {
        return None;
    }
    let separator = if read.asked.target.contains('?') { "&" } else { "?" };
    let version = read.version?;
    let exact = format!(
        "{}{separator}resourceVersion={version}&resourceVersionMatch=Exact",
        read.asked.target
    );
    let exact = proxy.straight().get(&exact).await;
    let is_table = read.answer.json()["kind"] == "Table";
    let is_equal = match is_table {
        true => items(&exact) == items(&read.answer),
        false => exact.body == read.answer.body,
    };
    (!is_equal).then(|| format!("not the state at {version}"))
}

/// The minimum version of a list: the requested one, and that of the previous response to the
/// query, if the level forbids going back.
fn floor(read: &Read, reads: &[Read]) -> u64 {
    let asked = match read.asked.version {
        Version::AtLeast(version) => version,
        _ => 0,
    };
    if !promises_more(read) {
        return asked;
    }
    let same = reads.iter().filter(|earlier| {
        earlier.asked.target == read.asked.target
            && earlier.asked.key.is_none()
            && earlier.span.ended < read.span.started
    });
    same.filter_map(|list| list.version).max().unwrap_or(0).max(asked)
}

/// The newest revision of each object that the session knew when a read began.
fn known<'a>(facts: impl Iterator<Item = &'a Fact>, read: &Read) -> BTreeMap<&'a str, u64> {
    let mut known: BTreeMap<&str, u64> = BTreeMap::new();
    for fact in facts.filter(|fact| fact.since < read.span.started) {
        let revision = known.entry(&fact.key).or_default();
        *revision = fact.revision.max(*revision);
    }
    known
}

/// Reports whether a read promises more than its named version: it names none, or memory answered.
fn promises_more(read: &Read) -> bool {
    read.asked.version == Version::Unset || read.answer.is_hit()
}

/// The objects of a list or the rows of a Table, with their versions.
fn items(answer: &Answer) -> HashMap<String, u64> {
    let list = answer.json();
    let items = list["items"].as_array().map(|items| items.iter().collect::<Vec<_>>());
    let rows = || {
        let rows = list["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
        rows.iter().map(|row| &row["object"]).collect()
    };
    let named = |item: &Value| {
        let text = |name: &str| item["metadata"][name].as_str().unwrap_or_default().to_owned();
        let key = format!("{}/{}", text("namespace"), text("name"));
        (key, text("resourceVersion").parse().expect("a version"))
    };
    items.unwrap_or_else(rows).into_iter().map(named).collect()
}

// === impl Fact ===

impl From<Told> for Fact {
    fn from(Told { since, key, revision, .. }: Told) -> Self {
        Self { since, key, revision, by_list: false }
    }
}

// === impl Timeline ===

impl Timeline {
    fn add(&mut self, event: &Value) {
        let metadata = &event["object"]["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version: u64 = text(&metadata["resourceVersion"]).parse().expect("a version");
        let key = format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"]));
        let object = (event["type"] != "DELETED").then(|| Object {
            uid: text(&metadata["uid"]),
            version,
            app: text(&metadata["labels"]["app"]),
        });
        self.objects.entry(key).or_default().push(Change { revision: version, object });
        self.revisions.push(version);
    }

    fn object_at(&self, key: &str, revision: u64) -> Option<&Object> {
        let changes = self.objects.get(key)?;
        changes.iter().rev().find(|change| change.revision <= revision)?.object.as_ref()
    }

    fn selects(&self, filter: &Filter, key: &str, revision: u64) -> bool {
        let (namespace, name) = key.split_once('/').expect("a namespaced object");
        let Some(object) = self.object_at(key, revision) else { return false };
        filter.namespace.is_none_or(|wanted| wanted == namespace)
            && filter.name.is_none_or(|wanted| wanted == name)
            && filter.app.is_none_or(|wanted| wanted == object.app)
    }

    /// The session's writes, the objects it was shown, and those it was shown to be gone.
    fn facts(&self, resource: &str, history: &History) -> Vec<Fact> {
        let mut facts: Vec<Fact> = history.told(resource).into_iter().map(Fact::from).collect();
        let writes = history.writes();
        let written = writes.iter().filter(|write| write.resource == resource);
        facts.extend(written.filter_map(|write| {
            let (since, key) = (write.span.ended, write.key.clone());
            Some(Fact { since, key, revision: self.revision_of(write)?, by_list: false })
        }));
        let mut reads = history.reads();
        reads.retain(|read| read.asked.resource == resource);
        reads.sort_by_key(|read| read.span.ended);
        for read in &reads {
            let shown = self.shown(read, &facts);
            facts.extend(shown);
        }
        facts
    }

    /// Adds the content of a read, given the earlier knowledge.
    fn shown(&self, read: &Read, facts: &[Fact]) -> Vec<Fact> {
        let (since, by_list) = (read.span.ended, read.asked.key.is_none());
        let there: HashMap<String, u64> = match (&read.asked.key, read.version) {
            (Some(key), Some(version)) => HashMap::from([(key.clone(), version)]),
            (Some(_), None) => HashMap::new(),
            (None, _) => items(&read.answer),
        };
        let until = match read.asked.key {
            Some(_) => read.span.revision_after,
            None => read.version.unwrap_or(0),
        };
        // It left the selection. A read that may be old does not prove it.
        let tells = read.asked.key.is_none() || promises_more(read);
        let missing =
            known(facts.iter(), read).into_iter().filter(|(key, _)| !there.contains_key(*key));
        let gone = missing.filter(|_| tells).filter_map(|(key, from)| {
            let is_in = |revision| self.is_asked_for(read, key, revision);
            let mut later = (from + 1..=until).filter(|_| is_in(from));
            let revision = later.find(|revision| !is_in(*revision))?;
            Some(Fact { since, key: key.to_owned(), revision, by_list })
        });
        let mut shown: Vec<Fact> = gone.collect();
        let there = there.into_iter();
        shown.extend(there.map(|(key, revision)| Fact { since, key, revision, by_list }));
        shown
    }

    /// Reports whether a read selects the object of a key at a revision.
    fn is_asked_for(&self, read: &Read, key: &str, revision: u64) -> bool {
        match &read.asked.key {
            Some(asked) => asked == key && self.object_at(key, revision).is_some(),
            None => self.selects(&read.asked.filter, key, revision),
        }
    }

    /// The revision of a write; `None` if it is unknown.
    fn revision_of(&self, write: &Write) -> Option<u64> {
        let wanted = match &write.effect {
            Effect::Stored(version) => return Some(*version),
            Effect::Removed(uid) => uid,
        };
        let changes = self.objects.get(&write.key)?;
        let removals = changes.windows(2).filter_map(|pair| match pair {
            [Change { object: Some(before), .. }, Change { object: None, revision }] => {
                Some((before, *revision))
            }
            _ => None,
        });
        let during = write.span.revision_before + 1..=write.span.revision_after;
        removals
            .filter(|(before, _)| wanted.as_ref().is_none_or(|uid| *uid == before.uid))
            .map(|(_, revision)| revision)
            .find(|revision| during.contains(revision))
    }

    /// Finds an object that is older than the session's knowledge of it, or missing although it
    /// existed all the time.
    fn aged(&self, read: &Read, facts: &[Fact]) -> Option<String> {
        if !promises_more(read) {
            return None;
        }
        let names_version = read.asked.version != Version::Unset;
        let binding = facts.iter().filter(|fact| fact.by_list || !names_version);
        let mut known = known(binding, read);
        if let Some(key) = &read.asked.key {
            known.retain(|held, _| held == key);
            known.entry(key).or_default();
        }
        let there = match (&read.asked.key, read.version) {
            (Some(key), Some(version)) => HashMap::from([(key.clone(), version)]),
            (Some(_), None) => HashMap::new(),
            (None, _) => items(&read.answer),
        };
        known.into_iter().find_map(|(key, from)| {
            let is_so = |revision| {
                let object = self.object_at(key, revision).map(|object| object.version);
                let asked_for = self.is_asked_for(read, key, revision);
                object.filter(|_| asked_for) == there.get(key).copied()
            };
            let held = (from..=read.span.revision_after).any(is_so);
            let shown = there.get(key);
            (!held).then(|| format!("{key} at {shown:?}, which it was at no revision from {from}"))
        })
    }

    /// Memory must stop answering soon after it is no longer up to date.
    fn stale(&self, read: &Read, history: &History) -> Option<String> {
        if !read.answer.is_hit() || read.asked.key.is_some() {
            return None;
        }
        let version = read.version?;
        let missed = self.revisions.iter().find(|revision| **revision > version)?;
        let age = read.at.checked_duration_since(history.existed_by(*missed)?)?;
        (age > STALENESS_MAX).then(|| format!("{age:?} old"))
    }
}
