//! Holds what clients were shown to what happened.
//!
//! A list is the state at its version; versions do not go back; what the session wrote or was shown
//! is in what it reads later; a watch tells each change that its filter lets through once and in
//! order; memory does not answer for long once it ceased to be up to date.

use std::collections::BTreeMap;
use std::time::Duration;

use super::record::{
    Asked, Effect, Read, Records, Resource, Shown, Span, Told, Version, Watch, Write,
};
use super::truth::{Change, Timeline, Timelines};

/// What the session knows of one object from some moment on.
struct Known<'a> {
    span: Span,
    key: &'a str,
    /// Nothing older than this may be shown of it.
    revision: u64,
}

/// The reads and writes of one resource, beside what happened to it.
struct Case<'a> {
    timeline: &'a Timeline,
    reads: Vec<&'a Read>,
    writes: Vec<&'a Write>,
}

/// Memory without news for longer than this must not answer: 90 seconds, and some to tell of it.
const STALENESS_MAX: Duration = Duration::from_secs(95);

/// Everything that is wrong, in words.
pub fn violations(timelines: &Timelines, records: &Records) -> Vec<String> {
    let (reads, writes) = (records.reads(), records.writes());
    let mut violations = Vec::new();
    for (resource, timeline) in timelines {
        let case = Case::new(*resource, timeline, &reads, &writes);
        for read in &case.reads {
            let wrong = case.wrong(read);
            violations.extend(wrong.map(|wrong| format!("{wrong}: {read:?}")));
        }
    }
    for watch in records.watches() {
        let wrong = wrong_watch(&timelines[&watch.asked.resource], &watch);
        violations
            .extend(wrong.map(|wrong| format!("{wrong}: {:?} from {}", watch.asked, watch.from)));
    }
    violations
}

/// What a client that followed a collection must hold at a version.
pub fn state(timeline: &Timeline, asked: &Asked, version: u64) -> BTreeMap<String, u64> {
    let held = timeline.objects().filter(|(key, _)| timeline.selects(&asked.filter, key, version));
    let pair = |(key, _): (&str, _)| {
        timeline.at(key, version).map(|object| (key.to_owned(), object.version))
    };
    held.filter_map(pair).collect()
}

// === impl Case ===

impl<'a> Case<'a> {
    fn new(
        resource: Resource,
        timeline: &'a Timeline,
        reads: &'a [Read],
        writes: &'a [Write],
    ) -> Self {
        let reads = reads.iter().filter(|read| read.asked.resource == resource).collect();
        let writes = writes.iter().filter(|write| write.resource == resource).collect();
        Self { timeline, reads, writes }
    }

    fn wrong(&self, read: &Read) -> Option<String> {
        let floor = self.floor(read);
        match &read.shown {
            Shown::List(version, items) => {
                let expected = state(self.timeline, &read.asked, *version);
                if *items != expected {
                    return Some(format!("not the state at {version}, which was {expected:?}"));
                }
                self.wrong_list(read, *version, floor).or_else(|| self.stale(read, *version))
            }
            Shown::Object(key, shown) => self.wrong_object(read, key, shown.as_ref(), floor),
        }
    }

    /// The highest version that lists showed before a read began, if the read promises not to go
    /// back: one that names a version itself and went upstream promises no more than that.
    fn floor(&self, read: &Read) -> u64 {
        let asked = match read.asked.version {
            Version::AtLeast(version) => version,
            _ => 0,
        };
        if read.asked.version != Version::Unset && !read.hit {
            return asked;
        }
        let before = self.reads.iter().filter(|it| it.span.ended < read.span.started);
        before.filter_map(|it| it.shown.list_version()).max().unwrap_or(0).max(asked)
    }

    /// What had been written by the session or shown to it before a read that promises to show it.
    fn known(&self, read: &Read) -> Vec<Known<'a>> {
        if read.asked.version != Version::Unset {
            return Vec::new();
        }
        let written = self.writes.iter().filter_map(|write| {
            let revision = self.revision_of(write)?;
            Some(Known { span: write.span, key: &write.key, revision })
        });
        let shown = self.reads.iter().filter_map(|earlier| match &earlier.shown {
            Shown::Object(key, Some((_, version))) => {
                Some(Known { span: earlier.span, key, revision: *version })
            }
            _ => None,
        });
        written.chain(shown).filter(|known| known.span.ended < read.span.started).collect()
    }

    fn revision_of(&self, write: &Write) -> Option<u64> {
        let uid = match &write.effect {
            Effect::Stored(version) => return Some(*version),
            Effect::Removed(uid) => uid,
        };
        self.timeline.changes(&write.key).windows(2).find_map(|pair| match pair {
            [Change { object: Some(before), .. }, Change { object: None, revision }] => {
                (before.uid == *uid).then_some(*revision)
            }
            _ => None,
        })
    }

    fn wrong_list(&self, read: &Read, version: u64, floor: u64) -> Option<String> {
        if version < floor {
            return Some(format!("{version} after {floor}"));
        }
        let filter = &read.asked.filter;
        let matters = |known: &Known<'_>| {
            self.timeline.selects(filter, known.key, version)
                || self.timeline.selects(filter, known.key, known.revision)
        };
        let known = self.known(read);
        let missed = known.iter().find(|known| version < known.revision && matters(known));
        missed.map(|known| format!("without {} at {}", known.key, known.revision))
    }

    fn wrong_object(
        &self,
        read: &Read,
        key: &str,
        shown: Option<&(String, u64)>,
        floor: u64,
    ) -> Option<String> {
        let of_it = self.known(read).into_iter().filter(|known| known.key == key);
        let from = of_it.map(|known| known.revision).max().unwrap_or(0).max(floor);
        let agrees = |object: Option<&super::truth::Object>| match (shown, object) {
            (None, None) => true,
            (Some((uid, version)), Some(object)) => {
                *uid == object.uid && *version == object.version
            }
            _ => false,
        };
        let later = self.timeline.changes(key).iter().filter(|change| change.revision > from);
        let held = agrees(self.timeline.at(key, from))
            || later.into_iter().any(|change| agrees(change.object.as_ref()));
        (!held).then(|| format!("at no revision from {from} on"))
    }

    fn stale(&self, read: &Read, version: u64) -> Option<String> {
        let outdated_at = self.timeline.outdated_at(version).filter(|_| read.hit)?;
        let age = read.span.started.checked_duration_since(outdated_at)?;
        (age > STALENESS_MAX).then(|| format!("{age:?} old"))
    }
}

/// What is wrong with what a watch told: it must be every change from its start to its last event.
fn wrong_watch(timeline: &Timeline, watch: &Watch) -> Option<String> {
    let (bookmarks, told): (Vec<&Told>, Vec<&Told>) =
        watch.told.iter().partition(|told| told.kind == "BOOKMARK");
    let ordered = watch.told.windows(2).all(|pair| pair[0].version <= pair[1].version);
    if !ordered || watch.told.first().is_some_and(|first| first.version < watch.from) {
        return Some(format!("out of order: {:?}", watch.told));
    }
    let last = told.iter().chain(&bookmarks).map(|told| told.version).max()?;
    let filter = &watch.asked.filter;
    let changes = timeline.between(watch.from, last);
    let expected: Vec<Told> = changes
        .filter_map(|(revision, key)| {
            let before = timeline.selects(filter, key, revision - 1);
            let after = timeline.selects(filter, key, revision);
            let kind = match (before, after) {
                (false, false) => return None,
                (false, true) => "ADDED",
                (true, true) => "MODIFIED",
                (true, false) => "DELETED",
            };
            Some(Told { kind: kind.to_owned(), key: key.to_owned(), version: revision })
        })
        .collect();
    let same = told.len() == expected.len() && told.iter().zip(&expected).all(|(a, b)| **a == *b);
    (!same).then(|| format!("told {told:?} of {expected:?}"))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::record::Filter;
    use super::super::truth::Object;
    use super::*;

    const WEB: Filter = Filter { namespace: None, app: Some("web"), name: None };

    /// a/x: made at 10 as web, db at 12, gone at 14; a/y: made at 11 as web.
    fn timelines() -> Timelines {
        let mut timeline = Timeline::default();
        for (revision, key, app) in
            [(10, "a/x", "web"), (11, "a/y", "web"), (12, "a/x", "db"), (14, "a/x", "")]
        {
            let stored = Object { uid: key.to_owned(), version: revision, app: app.to_owned() };
            let object = (!app.is_empty()).then_some(stored);
            timeline.add(key.to_owned(), Change { revision, object });
        }
        Timelines::from([(Resource::Pods, timeline)])
    }

    fn asked(filter: Filter) -> Asked {
        Asked { resource: Resource::Pods, filter, version: Version::Unset }
    }

    fn span(number: u64) -> Span {
        let now = Instant::now();
        let at = |millis| now + Duration::from_millis(millis);
        Span { started: at(number * 10), ended: at(number * 10 + 1) }
    }

    fn list(number: u64, filter: Filter, version: u64, items: &[(&str, u64)]) -> Read {
        let items = items.iter().map(|(key, version)| ((*key).to_owned(), *version)).collect();
        let shown = Shown::List(version, items);
        Read { asked: asked(filter), span: span(number), hit: true, shown }
    }

    fn object(number: u64, shown: Option<(&str, u64)>) -> Read {
        let shown = shown.map(|(uid, version)| (uid.to_owned(), version));
        let shown = Shown::Object("a/x".to_owned(), shown);
        Read { asked: asked(Filter::default()), span: span(number), hit: true, shown }
    }

    fn written(number: u64, effect: Effect) -> Write {
        Write { resource: Resource::Pods, span: span(number), key: "a/x".to_owned(), effect }
    }

    fn found(reads: Vec<Read>, writes: Vec<Write>) -> usize {
        let records = Records::default();
        reads.into_iter().for_each(|read| records.read(read));
        writes.into_iter().for_each(|write| records.wrote(write));
        violations(&timelines(), &records).len()
    }

    #[test]
    fn a_list_is_the_state_at_its_version() {
        let whole = Filter::default();
        assert_eq!(found(vec![list(1, whole, 11, &[("a/x", 10), ("a/y", 11)])], vec![]), 0);
        assert_eq!(found(vec![list(1, WEB, 12, &[("a/y", 11)])], vec![]), 0);
        assert_eq!(found(vec![list(1, whole, 12, &[("a/x", 10), ("a/y", 11)])], vec![]), 1);
        assert_eq!(found(vec![list(1, WEB, 12, &[("a/x", 12), ("a/y", 11)])], vec![]), 1);
        assert_eq!(found(vec![list(1, whole, 13, &[("a/y", 11)])], vec![]), 1);
    }

    #[test]
    fn a_session_does_not_go_back_and_reads_its_writes() {
        let (at_10, at_11) = ([("a/x", 10)], [("a/x", 10), ("a/y", 11)]);
        let lists = |first: u64, second: u64| {
            vec![
                list(first, Filter::default(), 11, &at_11),
                list(second, Filter::default(), 10, &at_10),
            ]
        };
        assert_eq!((found(lists(2, 1), vec![]), found(lists(1, 2), vec![])), (0, 1));
        let stored = |at| vec![written(at, Effect::Stored(12))];
        let read = || vec![list(5, WEB, 11, &at_11)];
        assert_eq!((found(read(), stored(6)), found(read(), stored(4))), (0, 1));
        let removed = || vec![written(1, Effect::Removed("a/x".to_owned()))];
        assert_eq!(found(vec![object(2, None)], removed()), 0);
        assert_eq!(found(vec![object(2, Some(("a/x", 12)))], removed()), 1);
        assert_eq!(
            found(vec![object(2, Some(("a/x", 12))), object(3, Some(("a/x", 10)))], vec![]),
            1
        );
    }

    #[test]
    fn a_watch_tells_every_change_once_and_in_order() {
        let told = |kind: &str, key: &str, version| Told {
            kind: kind.to_owned(),
            key: key.to_owned(),
            version,
        };
        let all =
            vec![told("ADDED", "a/y", 11), told("DELETED", "a/x", 12), told("BOOKMARK", "", 14)];
        let wrong = |told: Vec<Told>| {
            let records = Records::default();
            records.watched(Watch { asked: asked(WEB), from: 10, hit: true, told });
            violations(&timelines(), &records).len()
        };
        assert_eq!((wrong(all.clone()), wrong(vec![])), (0, 0));
        assert_eq!(wrong(all[..1].to_vec()), 0);
        assert_eq!(wrong(all[1..].to_vec()), 1);
        assert_eq!(wrong(vec![all[1].clone(), all[0].clone(), all[2].clone()]), 1);
        assert_eq!(wrong(vec![all[0].clone(), all[0].clone(), all[1].clone()]), 1);
        assert_eq!(wrong(vec![all[0].clone(), all[2].clone()]), 1);
        assert_eq!(wrong(vec![all[0].clone(), told("DELETED", "a/x", 14)]), 1);
    }
}
