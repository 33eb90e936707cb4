//! The three rules of the level `session`, checked for every response of one session as it comes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// All responses of one session, in the order of their completion.
#[derive(Debug, Default)]
pub struct Rules(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// Counts complete answers.
    clock: u64,
    /// By resource, namespace and name: each step up of the version, and when it was shown.
    objects: HashMap<String, Vec<Shown>>,
    /// By request target: the highest version of the list, and when it was shown.
    lists: HashMap<String, Vec<(u64, u64)>>,
    /// By request target: the objects of the last list.
    members: HashMap<String, BTreeSet<String>>,
    violations: Vec<String>,
    /// By request target and `Cache-Status`: the responses that memory did not give.
    forwarded: BTreeMap<String, u32>,
    is_stalled: bool,
}

#[derive(Clone, Copy, Debug)]
struct Shown {
    at: u64,
    version: u64,
    /// `true` if the object of this version was shown to be gone.
    gone: bool,
}

/// The moment at which a request was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent(u64);

/// The objects that an answer shows, by name with namespace, and their versions.
pub type Objects = BTreeMap<String, u64>;

// === impl Rules ===

impl Rules {
    /// Notes that a request is sent now: it must not fall behind the complete responses.
    pub fn sent(&self) -> Sent {
        Sent(self.seen().clock)
    }

    /// Checks an answer against the rules and remembers it: an object, a list, or a Table of one.
    pub fn answer(&self, resource: &str, target: &str, sent: Sent, answer: &Value) {
        let version = version(answer).expect("a version");
        if answer["items"].is_array() || answer["rows"].is_array() {
            self.list(resource, target, sent, version, &objects(answer));
        } else {
            self.object(resource, &name(answer), target, sent, version);
        }
    }

    /// Checks a list against the rules and remembers it.
    pub fn list(&self, resource: &str, target: &str, sent: Sent, version: u64, objects: &Objects) {
        let mut seen = self.seen();
        seen.clock += 1;
        let now = seen.clock;
        let before = seen.lists.get(target).and_then(|all| latest(all, sent));
        if before.is_some_and(|before| version < before) {
            let text = format!("{target}: the list went back from {before:?} to {version}");
            seen.violations.push(text);
        }
        seen.lists.entry(target.to_owned()).or_default().push((now, version));
        for (name, version) in objects {
            seen.object(&format!("{resource} {name}"), target, sent, now, *version);
        }
        // No label changes here: what a list no longer shows is deleted.
        let members = objects.keys().map(|name| format!("{resource} {name}")).collect();
        let before = seen.members.insert(target.to_owned(), members).unwrap_or_default();
        for key in before.difference(&seen.members[target].clone()) {
            seen.gone(key, now, version);
        }
    }

    /// Checks one object against the rules and remembers it.
    pub fn object(&self, resource: &str, name: &str, target: &str, sent: Sent, version: u64) {
        let mut seen = self.seen();
        seen.clock += 1;
        let now = seen.clock;
        seen.object(&format!("{resource} {name}"), target, sent, now, version);
    }

    /// Counts a response that memory did not give.
    pub fn forwarded(&self, target: &str, status: &str) {
        *self.seen().forwarded.entry(format!("{target}: {status}")).or_default() += 1;
    }

    /// The responses that memory did not give since the last call.
    pub fn take_forwarded(&self) -> BTreeMap<String, u32> {
        std::mem::take(&mut self.seen().forwarded)
    }

    /// Notes whether the apiserver is stalled, so that reads may fail.
    pub fn stalled(&self, is_stalled: bool) {
        self.seen().is_stalled = is_stalled;
    }

    /// Reports whether reads may fail.
    pub fn is_stalled(&self) -> bool {
        self.seen().is_stalled
    }

    /// The violations so far.
    pub fn violations(&self) -> Vec<String> {
        self.seen().violations.clone()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Seen ===

impl Seen {
    fn object(&mut self, key: &str, target: &str, sent: Sent, now: u64, version: u64) {
        let all = self.objects.entry(key.to_owned()).or_default();
        let before = all.iter().filter(|shown| shown.at <= sent.0);
        // Versions of one resource come from one counter: a name that is made again has a higher one.
        let too_old = before
            .max_by_key(|shown| shown.version)
            .filter(|shown| version < shown.version || (shown.gone && version == shown.version));
        if let Some(shown) = too_old {
            let text = format!("{target}: {key} at {version}, though the session saw {shown:?}");
            self.violations.push(text);
        }
        if all.iter().all(|shown| shown.version < version) {
            all.push(Shown { at: now, version, gone: false });
        }
    }

    /// Remembers that an object was shown to be deleted, at a version.
    fn gone(&mut self, key: &str, now: u64, version: u64) {
        let shown = Shown { at: now, version, gone: true };
        self.objects.entry(key.to_owned()).or_default().push(shown);
    }
}

fn latest(all: &[(u64, u64)], sent: Sent) -> Option<u64> {
    all.iter().filter(|(at, _)| *at <= sent.0).map(|(_, version)| *version).max()
}

/// The version of an object or of a list.
pub fn version(value: &Value) -> Option<u64> {
    value["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

/// The objects of a list, or of a Table, whose rows have their metadata.
pub fn objects(list: &Value) -> Objects {
    let all = |field: &str| list[field].as_array().map_or(&[][..], Vec::as_slice);
    let rows = all("rows").iter().map(|row| &row["object"]);
    let entry = |item: &Value| Some((name(item), version(item)?));
    all("items").iter().chain(rows).filter_map(entry).collect()
}

fn name(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or("");
    format!("{}/{}", text("namespace"), text("name"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_that_goes_back_is_a_violation() {
        let rules = Rules::default();
        rules.list("pods", "/pods", rules.sent(), 7, &Objects::new());
        rules.list("pods", "/pods", rules.sent(), 7, &Objects::new());
        assert_eq!(rules.violations(), Vec::<String>::new());
        rules.list("pods", "/pods", rules.sent(), 6, &Objects::new());
        assert_eq!(rules.violations().len(), 1);
    }

    #[test]
    fn a_table_that_is_older_than_a_list_of_the_same_query_is_a_violation() {
        let rules = Rules::default();
        let metadata = |version| json!({"namespace": "a", "name": "x", "resourceVersion": version});
        let list =
            json!({"metadata": {"resourceVersion": "9"}, "items": [{"metadata": metadata("9")}]});
        rules.answer("pods", "/pods", rules.sent(), &list);
        let table = |version| {
            let row = json!({"object": {"metadata": metadata(version)}});
            json!({"metadata": {"resourceVersion": "9"}, "rows": [row]})
        };
        rules.answer("pods", "/pods", rules.sent(), &table("9"));
        assert_eq!(rules.violations(), Vec::<String>::new());
        rules.answer("pods", "/pods", rules.sent(), &table("8"));
        assert_eq!(rules.violations().len(), 1);
    }

    #[test]
    fn an_object_that_ages_is_a_violation_except_in_an_earlier_request() {
        let rules = Rules::default();
        let early = rules.sent();
        rules.object("pods", "a/x", "/x", rules.sent(), 9);
        rules.object("pods", "a/x", "/x", early, 8);
        assert_eq!(rules.violations(), Vec::<String>::new());
        rules.list("pods", "/pods", rules.sent(), 9, &Objects::from([("a/x".to_owned(), 8)]));
        assert_eq!(rules.violations().len(), 1);
    }

    #[test]
    fn a_deleted_object_that_is_shown_again_is_a_violation() {
        let rules = Rules::default();
        rules.list("pods", "/pods", rules.sent(), 9, &Objects::from([("a/x".to_owned(), 9)]));
        rules.list("pods", "/pods", rules.sent(), 10, &Objects::new());
        assert_eq!(rules.violations(), Vec::<String>::new());
        rules.object("pods", "a/x", "/x", rules.sent(), 9);
        assert_eq!(rules.violations().len(), 1);
        rules.object("pods", "a/x", "/x", rules.sent(), 12);
        assert_eq!(rules.violations().len(), 1);
    }
}
