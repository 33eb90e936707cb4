//! The whole history of the simulated apiserver, and what an answer must be in its light.

use std::{collections::HashMap, time::Duration};

use serde_json::Value;

use super::history::{Effect, Filter, History, Read, Span, Version, Write};
use crate::harness::TestProxy;

/// Every change of every object.
pub(super) struct Oracle {
    resources: HashMap<&'static str, Timeline>,
}

/// The changes of one resource.
#[derive(Default)]
struct Timeline {
    objects: HashMap<String, Vec<Change>>,
    /// All revisions at which something changed, in order.
    revisions: Vec<u64>,
}

/// An object from a revision on; nothing once it is gone.
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

/// What the session knows of one object at some step.
struct Known<'a> {
    span: Span,
    key: &'a str,
    /// Nothing older than this may be shown of it.
    revision: u64,
}

/// Memory without news for longer than this must not answer: the progress bound and the time a
/// lost link is tolerated for.
const STALENESS_MAX: Duration = Duration::from_secs(95);

// === impl Oracle ===

impl Oracle {
    /// Asks the apiserver for everything that ever happened.
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

    /// Everything that is wrong with what the session was shown.
    pub(super) async fn check(&self, proxy: &TestProxy, history: &History) -> Vec<String> {
        let (reads, writes) = (history.reads(), history.writes());
        let mut violations = Vec::new();
        for read in &reads {
            let timeline = &self.resources[read.asked.resource];
            let known = timeline.known(read, &reads, &writes);
            let wrong = if read.asked.key.is_some() {
                timeline.check_object(read, floor(read, &reads), &known)
            } else {
                timeline.check_list(read, floor(read, &reads), &known)
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

/// A list from memory must be the apiserver's at its version, byte for byte.
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
    (exact.body != read.answer.body).then(|| format!("not the state at {version}"))
}

/// The highest version that lists showed before a read began, if the read promises not to go back.
fn floor(read: &Read, reads: &[Read]) -> u64 {
    let asked = match read.asked.version {
        Version::AtLeast(version) => version,
        _ => 0,
    };
    if read.asked.version != Version::Unset && !read.answer.is_hit() {
        return asked;
    }
    let lists = reads.iter().filter(|earlier| {
        earlier.asked.resource == read.asked.resource
            && earlier.asked.key.is_none()
            && earlier.span.ended < read.span.started
    });
    lists.filter_map(|list| list.version).max().unwrap_or(0).max(asked)
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

    /// What the session had written or been shown before a read that promises to show it began.
    fn known<'a>(&self, read: &Read, reads: &'a [Read], writes: &'a [Write]) -> Vec<Known<'a>> {
        if read.asked.version != Version::Unset {
            return Vec::new();
        }
        let (resource, started) = (read.asked.resource, read.span.started);
        let written =
            writes.iter().filter(|write| write.resource == resource).filter_map(|write| {
                let revision = self.revision_of(write)?;
                Some(Known { span: write.span, key: &write.key, revision })
            });
        let shown = reads.iter().filter_map(|earlier| {
            let key = earlier.asked.key.as_deref()?;
            let revision = earlier.version.filter(|_| earlier.asked.resource == resource)?;
            Some(Known { span: earlier.span, key, revision })
        });
        written.chain(shown).filter(|known| known.span.ended < started).collect()
    }

    /// The revision of a write; nothing when it cannot be told.
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

    fn check_list(&self, read: &Read, floor: u64, known: &[Known<'_>]) -> Option<String> {
        let Some(version) = read.version else { return Some("no list".to_owned()) };
        if version < floor {
            return Some(format!("{version} after {floor}"));
        }
        let filter = &read.asked.filter;
        let missed = known.iter().find(|known| {
            version < known.revision
                && (self.selects(filter, known.key, version)
                    || self.selects(filter, known.key, known.revision))
        });
        missed.map(|known| format!("without {} at {}", known.key, known.revision))
    }

    fn check_object(&self, read: &Read, floor: u64, known: &[Known<'_>]) -> Option<String> {
        let key = read.asked.key.as_deref().expect("a GET");
        let of_it = known.iter().filter(|known| known.key == key).map(|known| known.revision);
        let (from, to) = (of_it.max().unwrap_or(0).max(floor), read.span.revision_after);
        let shown = read.version.map(|version| {
            let metadata = read.answer.json()["metadata"].clone();
            (metadata["uid"].as_str().expect("a uid").to_owned(), version)
        });
        let agrees = |object: Option<&Object>| match (&shown, object) {
            (None, None) => true,
            (Some((uid, version)), Some(object)) => {
                *uid == object.uid && *version == object.version
            }
            _ => false,
        };
        let changes = self.objects.get(key).map(Vec::as_slice).unwrap_or_default();
        let later = changes.iter().filter(|change| (from..=to).contains(&change.revision));
        let held = agrees(self.object_at(key, from))
            || later.into_iter().any(|change| agrees(change.object.as_ref()));
        (!held).then(|| format!("at no revision from {from} to {to}"))
    }

    /// Memory must not answer for long after it ceased to be up to date.
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
