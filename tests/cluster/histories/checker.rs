//! Checks the responses to clients against the history.
//!
//! A list is the state at its version. The lists of one query do not go back. A read shows the
//! session's writes. A read shows no object older than it was shown before, and no object that was
//! shown to be gone. A watch delivers each change that its filter selects once and in order. Memory
//! stops answering soon after it is no longer up to date.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::record::{
    Asked, Effect, Filter, Read, Records, Resource, Shown, Told, Version, Watch, Write,
};
use super::truth::{Change, Timeline, Timelines, within};

/// The session's new knowledge from a response.
enum Fact {
    /// A floor of an object: no read may show a state before this revision.
    Object(String, u64),
    /// The same, from a list: reads that name a version do not go back behind lists.
    Listed(String, u64),
    /// A floor of a query: no list may be older.
    List(Query, u64),
}

/// The session's knowledge at one moment.
#[derive(Default)]
struct Known {
    objects: BTreeMap<String, u64>,
    listed: BTreeMap<String, u64>,
    /// The response that taught the revision, by key, for messages.
    sources: BTreeMap<String, String>,
    lists: Vec<(Query, u64)>,
}

/// The API version and the filter of a list: each API version is a query of its own.
type Query = (&'static str, Filter);

/// The reads and writes of one resource, beside its history.
struct Case<'a> {
    timeline: &'a Timeline,
    reads: Vec<&'a Read>,
    writes: Vec<&'a Write>,
}

/// The longest time without events after which memory may answer: 90 seconds, and some to notice
/// it.
const STALENESS_MAX: Duration = Duration::from_secs(95);

/// Everything that is wrong, in words.
pub fn violations(timelines: &Timelines, records: &Records) -> Vec<String> {
    let (reads, writes) = (records.reads(), records.writes());
    let mut violations = Vec::new();
    for (resource, timeline) in timelines {
        let case = Case::new(*resource, timeline, &reads, &writes);
        violations.extend(case.violations());
    }
    for watch in records.watches() {
        let wrong = wrong_watch(&timelines[&watch.asked.resource], &watch);
        violations
            .extend(wrong.map(|wrong| format!("{wrong}: {:?} from {}", watch.asked, watch.from)));
    }
    violations
}

/// The state that a client must hold at a version if it followed a collection.
pub fn state(timeline: &Timeline, asked: &Asked, version: u64) -> BTreeMap<String, u64> {
    let keys = timeline.keys(asked.filter.namespace);
    let held = keys.filter(|key| timeline.selects(&asked.filter, key, version));
    let pair = |key: &str| timeline.at(key, version).map(|object| (key.to_owned(), object.version));
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

    /// The errors of each read, given the session's knowledge when it was sent.
    fn violations(&self) -> Vec<String> {
        let mut facts: BTreeMap<(Instant, usize), Vec<Fact>> = BTreeMap::new();
        for write in &self.writes {
            if let Some(revision) = self.revision_of(write) {
                let fact = Fact::Object(write.key.clone(), revision);
                facts.entry((write.span.ended, 0)).or_default().push(fact);
            }
        }
        let mut reads = self.reads.clone();
        reads.sort_by_key(|read| read.span.started);
        let (mut known, mut violations) = (Known::default(), Vec::new());
        for (number, read) in reads.iter().enumerate() {
            let later = facts.split_off(&(read.span.started, 0));
            for ((at, number), fact) in facts
                .into_iter()
                .flat_map(|(of, facts)| facts.into_iter().map(move |fact| (of, fact)))
            {
                known.learn(fact, || match number {
                    0 => format!("a write that ended at {at:?}"),
                    number => format!("{:?}", reads[number - 1]),
                });
            }
            facts = later;
            let wrong = self.wrong(read, &known);
            violations.extend(wrong.map(|wrong| format!("{read:?}: {wrong}")));
            facts.insert((read.span.ended, number + 1), self.facts(read, &known));
        }
        violations
    }

    fn wrong(&self, read: &Read, known: &Known) -> Option<String> {
        if let Shown::List(version, items) = &read.shown {
            let expected = state(self.timeline, &read.asked, *version);
            if *items != expected {
                return Some(format!("not the state at {version}, which was {expected:?}"));
            }
            let floor = floor(read, known);
            if *version < floor {
                return Some(format!("{version} after {floor}"));
            }
        }
        let stale = || match &read.shown {
            Shown::List(version, _) => self.stale(read, *version),
            Shown::Object(..) => None,
        };
        self.aged(read, known).or_else(stale)
    }

    /// Finds an object that is older than the session's knowledge of it, or that is missing.
    fn aged(&self, read: &Read, known: &Known) -> Option<String> {
        if !promises_more(read) {
            return None;
        }
        let sources = &known.sources;
        let known = known.promised(read);
        let nothing = |key: &str| (key.to_owned(), 0);
        let objects: Vec<(String, u64)> = match &read.shown {
            Shown::Object(key, _) => {
                let known = known.get_key_value(key);
                vec![known.map_or_else(|| nothing(key), |(key, from)| (key.clone(), *from))]
            }
            Shown::List(..) => {
                let known = within(known, read.asked.filter.namespace);
                known.map(|(key, from)| (key.clone(), *from)).collect()
            }
        };
        objects.into_iter().find_map(|(key, from)| {
            let is_so = |revision| self.is_shown(read, &key, revision);
            let held = is_so(from) || self.timeline.changed_after(&key, from).any(is_so);
            let source = || sources.get(&key).map_or("nothing", String::as_str);
            (!held).then(|| format!("{key} at no revision from {from} on, known from {}", source()))
        })
    }

    /// Reports whether a read shows the object that it selects at a key at a revision.
    fn is_shown(&self, read: &Read, key: &str, revision: u64) -> bool {
        let object = self.timeline.at(key, revision);
        match &read.shown {
            Shown::List(_, items) => {
                let selected = self.timeline.selects(&read.asked.filter, key, revision);
                object.filter(|_| selected).map(|object| object.version) == items.get(key).copied()
            }
            Shown::Object(_, shown) => {
                let shown = shown.as_ref().map(|(uid, version)| (uid, *version));
                object.map(|object| (&object.uid, object.version)) == shown
            }
        }
    }

    /// The lessons of a read: the objects it shows, and the known objects it no longer shows.
    fn facts(&self, read: &Read, known: &Known) -> Vec<Fact> {
        match &read.shown {
            Shown::Object(key, Some((_, version))) => vec![Fact::Object(key.clone(), *version)],
            Shown::Object(key, None) if promises_more(read) => {
                let is_there = |revision| self.timeline.at(key, revision).is_some();
                let gone = self.gone(known.promised(read), key, u64::MAX, is_there);
                gone.map(|(key, at)| Fact::Object(key, at)).into_iter().collect()
            }
            Shown::Object(_, None) => Vec::new(),
            Shown::List(version, items) => {
                let filter = read.asked.filter;
                let there = items.iter().map(|(key, version)| Fact::Listed(key.clone(), *version));
                let there_before = within(&known.objects, filter.namespace);
                let missing = there_before.filter(|(key, _)| !items.contains_key(*key));
                let gone = missing.filter_map(|(key, _)| {
                    let is_in = |revision| self.timeline.selects(&filter, key, revision);
                    let (key, at) = self.gone(&known.objects, key, *version, is_in)?;
                    Some(Fact::Listed(key, at))
                });
                let query = (read.asked.api, filter);
                there.chain(gone).chain([Fact::List(query, *version)]).collect()
            }
        }
    }

    /// A known object that was in a selection, and left it by some revision.
    fn gone(
        &self,
        known: &BTreeMap<String, u64>,
        key: &str,
        until: u64,
        is_in: impl Fn(u64) -> bool,
    ) -> Option<(String, u64)> {
        let from = known.get(key).copied().filter(|from| is_in(*from))?;
        let changed = self.timeline.changed_after(key, from);
        let mut later = changed.take_while(|revision| *revision <= until);
        later.find(|revision| !is_in(*revision)).map(|at| (key.to_owned(), at))
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

    fn stale(&self, read: &Read, version: u64) -> Option<String> {
        let outdated_at = self.timeline.outdated_at(version).filter(|_| read.hit)?;
        let age = read.span.started.checked_duration_since(outdated_at)?;
        (age > STALENESS_MAX).then(|| format!("{age:?} old"))
    }
}

// === impl Known ===

impl Known {
    /// The objects behind which a read does not go back.
    fn promised(&self, read: &Read) -> &BTreeMap<String, u64> {
        match read.asked.version {
            Version::Unset => &self.objects,
            Version::Zero | Version::AtLeast(_) => &self.listed,
        }
    }

    fn learn(&mut self, fact: Fact, source: impl FnOnce() -> String) {
        if let Fact::Object(key, revision) | Fact::Listed(key, revision) = &fact
            && self.objects.get(key) < Some(revision)
        {
            self.sources.insert(key.clone(), source());
        }
        match fact {
            Fact::Object(key, revision) => raise(&mut self.objects, key, revision),
            Fact::Listed(key, revision) => {
                raise(&mut self.listed, key.clone(), revision);
                raise(&mut self.objects, key, revision);
            }
            Fact::List(query, version) => {
                match self.lists.iter_mut().find(|(held, _)| *held == query) {
                    Some((_, held)) => *held = version.max(*held),
                    None => self.lists.push((query, version)),
                }
            }
        }
    }
}

fn raise(known: &mut BTreeMap<String, u64>, key: String, revision: u64) {
    let known = known.entry(key).or_default();
    *known = revision.max(*known);
}

/// Reports whether a read promises more than its named version: it names none, or memory answered.
fn promises_more(read: &Read) -> bool {
    read.asked.version == Version::Unset || read.hit
}

/// The minimum version of a list: its named version, and that of earlier lists of its query.
fn floor(read: &Read, known: &Known) -> u64 {
    let asked = match read.asked.version {
        Version::AtLeast(version) => version,
        _ => 0,
    };
    let query = (read.asked.api, read.asked.filter);
    let same = known.lists.iter().find(|(held, _)| *held == query);
    let before = same.filter(|_| promises_more(read)).map_or(0, |(_, version)| *version);
    before.max(asked)
}

/// The errors of a watch: it must deliver every change from its start to its last event.
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
    (!same).then(|| format!("received {told:?} of {expected:?}"))
}

#[cfg(test)]
mod tests {
    use super::super::record::Span;
    use super::super::truth::Object;
    use super::*;

    const WEB: Filter = Filter { namespace: None, app: Some("web"), name: None };

    /// a/x: created at 10 as web, db at 12, deleted at 14; a/y: created at 11 as web.
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
        Asked { resource: Resource::Pods, api: "/api/v1", filter, version: Version::Unset }
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
        // Two queries may each be at its own version while nothing of both changed.
        let in_b = Filter { namespace: Some("b"), ..Filter::default() };
        let others = |second| {
            let first = list(1, Filter::default(), 11, &at_11);
            found(vec![first, list(2, second, 10, &[])], vec![])
        };
        assert_eq!(others(in_b), 0);
        let web = vec![list(1, Filter::default(), 11, &at_11), list(2, WEB, 10, &at_10)];
        assert_eq!(found(web, vec![]), 1, "a/y was shown at 11");
        // a/x left the selection at 12: its old state is not shown again.
        let left = |again: Filter, version: u64, items: &[(&str, u64)]| {
            let first = list(1, WEB, 11, &at_11);
            let second = list(2, WEB, 12, &[("a/y", 11)]);
            found(vec![first, second, list(3, again, version, items)], vec![])
        };
        assert_eq!(left(Filter::default(), 11, &at_11), 1);
        assert_eq!(left(Filter::default(), 12, &[("a/x", 12), ("a/y", 11)]), 0);
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
    fn reads_that_name_a_version_do_not_go_back_behind_lists_but_behind_own_writes() {
        let at_11 = [("a/x", 10), ("a/y", 11)];
        let any = |number| {
            let mut read = list(number, WEB, 11, &at_11);
            read.asked.version = Version::Zero;
            read
        };
        assert_eq!(found(vec![any(2)], vec![written(1, Effect::Stored(12))]), 0);
        let moved = list(1, Filter::default(), 12, &[("a/x", 12), ("a/y", 11)]);
        assert_eq!(found(vec![moved, any(2)], vec![]), 1);
        // The absence may be the one before the write.
        let absent = |version| {
            let mut read = object(2, None);
            read.asked.version = version;
            let written = vec![written(1, Effect::Stored(10))];
            found(vec![read, object(3, Some(("a/x", 10)))], written)
        };
        assert_eq!((absent(Version::AtLeast(9)), absent(Version::Unset)), (0, 1));
    }

    #[test]
    fn each_api_version_is_a_separate_query() {
        let new = list(1, Filter::default(), 13, &[("a/x", 12), ("a/y", 11)]);
        let mut old = list(2, Filter::default(), 12, &[("a/x", 12), ("a/y", 11)]);
        assert_eq!(found(vec![new.clone(), old.clone()], vec![]), 1);
        old.asked.api = "/api/v1beta1";
        assert_eq!(found(vec![new, old], vec![]), 0);
    }

    #[test]
    fn a_watch_delivers_every_change_once_and_in_order() {
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
