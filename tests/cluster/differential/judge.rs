//! Compares two responses to one request and names every difference that a client could notice.

use std::collections::BTreeSet;

use http::HeaderMap;

use super::body::{Reduced, Token};
use super::case::Case;
use super::target::Kind;
use crate::dataset::Dataset;
use crate::rig::client::Answer;

/// Headers about the connection, the moment or the hop: no client can rely on their equality.
const INCOMPARABLE: &[&str] = &[
    "date",
    "audit-id",
    "cache-status",
    "connection",
    "content-length",
    "keep-alive",
    "transfer-encoding",
];
/// Flow control did not happen for an answer from memory, so it is not reported (S-HDR-03).
const FLOW_CONTROL: &str = "x-kubernetes-pf-";

/// The content of a response's `Cache-Status` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// From memory.
    Hit,
    /// By the apiserver.
    Forwarded,
    /// The header is missing, or cannot be parsed.
    Unsaid,
}

/// The versions between which a list's own version must lie.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The highest version this caller was shown for the collection.
    pub floor: u64,
    /// The store's version after the answer came.
    pub ceiling: u64,
}

/// An answer and its body, reduced once.
#[derive(Clone, Debug)]
pub struct Side {
    /// The answer.
    pub answer: Answer,
    body: Result<Reduced, String>,
}

/// Two answers and what is known about them.
#[derive(Clone, Copy, Debug)]
pub struct ComparedAnswers<'a> {
    /// The request.
    pub case: &'a Case,
    /// The data it reads.
    pub dataset: &'a Dataset,
    /// The content of the target's `Cache-Status` header.
    pub kind: Kind,
    /// The apiserver's own answer.
    pub direct: &'a Side,
    /// The answer to compare.
    pub through: &'a Side,
    /// See [`Bounds`].
    pub bounds: Bounds,
}

/// The bounds of a list's version from its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VersionRule {
    /// At the floor or above, as the level `session` promises for one query.
    Session,
    /// At this version or above.
    NotOlderThan(u64),
    /// Any version the collection has had since its items were written.
    Any,
    /// Exactly the version of the other side.
    Same,
}

// === impl Served ===

impl Served {
    /// Reads the header of an answer.
    pub fn of(answer: &Answer) -> Self {
        let value = answer.header("cache-status").unwrap_or_default();
        let mut parts = value.split(';').map(str::trim);
        if parts.next() != Some("listless") {
            return Self::Unsaid;
        }
        match parts.next() {
            Some("hit") => Self::Hit,
            Some(part) if part.starts_with("fwd=") => Self::Forwarded,
            _ => Self::Unsaid,
        }
    }
}

// === impl Side ===

impl Side {
    /// Takes an answer.
    pub fn new(answer: Answer) -> Self {
        let body = Reduced::of(&answer).map_err(|error| format!("{error:#}"));
        Self { answer, body }
    }

    /// The version of the list in the body, if it is one.
    pub fn version(&self) -> Option<u64> {
        self.body.as_ref().ok()?.version.as_ref()?.parse().ok()
    }

    /// The continue token of the list in the body, if it has more pages.
    pub fn token(&self) -> Option<&Token> {
        self.body.as_ref().ok()?.token.as_ref()
    }
}

// === impl ComparedAnswers ===

impl ComparedAnswers<'_> {
    /// Every difference, in words; none means that no client could distinguish the responses.
    pub fn differences(&self) -> Vec<String> {
        let mut found = Vec::new();
        let (direct, through) = (self.direct.answer.status, self.through.answer.status);
        if direct != through {
            found.push(format!("status {direct} became {through}"));
        }
        self.compare_headers(&mut found);
        self.compare_audit(&mut found);
        self.check_served(&mut found);
        match (&self.direct.body, &self.through.body) {
            (Ok(direct), Ok(through)) => self.compare_bodies(direct, through, &mut found),
            (Err(error), _) => found.push(format!("direct body: {error}")),
            (_, Err(error)) => found.push(format!("body: {error}")),
        }
        found
    }

    fn compare_headers(&self, found: &mut Vec<String>) {
        let (direct, through) = (&self.direct.answer.headers, &self.through.answer.headers);
        let from_memory = Served::of(&self.through.answer) == Served::Hit;
        let names: BTreeSet<&str> =
            direct.keys().chain(through.keys()).map(http::HeaderName::as_str).collect();
        for name in names {
            let may_be_absent = name.starts_with(FLOW_CONTROL) && from_memory;
            if INCOMPARABLE.contains(&name) || (may_be_absent && !through.contains_key(name)) {
                continue;
            }
            let (before, after) = (values(direct, name), values(through, name));
            if before != after {
                found.push(format!("header {name}: {before:?} became {after:?}"));
            }
        }
        if direct.contains_key("date") != through.contains_key("date") {
            found.push("header date: only on one side".to_owned());
        }
    }

    /// An audit id is echoed if the client sent one; otherwise it is generated for each request.
    fn compare_audit(&self, found: &mut Vec<String>) {
        let sent = self.case.headers.iter().find(|(name, _)| name == "Audit-Id");
        let direct = self.direct.answer.header("audit-id");
        let through = self.through.answer.header("audit-id");
        if direct.is_some() != through.is_some() {
            found.push(format!("header audit-id: {direct:?} became {through:?}"));
        }
        if let Some((_, sent)) = sent
            && through != Some(sent)
        {
            found.push(format!("header audit-id: {sent:?} came back as {through:?}"));
        }
    }

    fn check_served(&self, found: &mut Vec<String>) {
        let served = Served::of(&self.through.answer);
        match (self.kind, served) {
            (Kind::Listless, Served::Unsaid) => {
                let header = self.through.answer.header("cache-status");
                found.push(format!("cache-status does not say what was done: {header:?}"));
            }
            (Kind::Apiserver, Served::Hit | Served::Forwarded) => {
                found.push("cache-status from an apiserver".to_owned());
            }
            _ => {}
        }
    }

    fn compare_bodies(&self, direct: &Reduced, through: &Reduced, found: &mut Vec<String>) {
        if direct.rest != through.rest {
            found.push(first_difference(&direct.rest, &through.rest));
        }
        match (&direct.version, &through.version) {
            (None, None) => {}
            (Some(before), Some(after)) => self.check_version(before, after, through, found),
            (before, after) => found.push(format!("list version {before:?} became {after:?}")),
        }
        match (&direct.token, &through.token) {
            (Some(before), Some(after)) => compare_tokens(before, after, through, found),
            (None, None) => {}
            (before, after) => found.push(format!("continue {before:?} became {after:?}")),
        }
    }

    fn check_version(&self, before: &str, after: &str, list: &Reduced, found: &mut Vec<String>) {
        if before == after {
            return;
        }
        let Ok(version) = after.parse::<u64>() else {
            found.push(format!("list version {after:?} is not a number"));
            return;
        };
        let lowest = match self.version_rule() {
            VersionRule::Same => {
                found.push(format!("exact list version {before} became {after}"));
                return;
            }
            VersionRule::Session => self.bounds.floor.max(list.newest_item),
            VersionRule::NotOlderThan(version) => version.max(list.newest_item),
            VersionRule::Any => list.newest_item,
        };
        let ceiling = self.bounds.ceiling;
        if !(lowest..=ceiling).contains(&version) {
            found.push(format!("list version {version} is not within {lowest}..={ceiling}"));
        }
    }

    fn version_rule(&self) -> VersionRule {
        let target = self.case.filled(self.dataset);
        let case = Case::get(&target);
        if case.names_object() {
            return VersionRule::Same;
        }
        let parameter = |name| case.parameter(name).filter(|value| !value.is_empty());
        let asked = parameter("resourceVersion").and_then(|text| text.parse::<u64>().ok());
        match (asked, parameter("resourceVersionMatch")) {
            (_, Some("Exact")) => VersionRule::Same,
            (Some(0), _) => VersionRule::Any,
            (Some(asked), Some("NotOlderThan")) => VersionRule::NotOlderThan(asked),
            (Some(_), _) if parameter("limit").is_some_and(|limit| limit != "0") => {
                VersionRule::Same
            }
            (Some(asked), _) => VersionRule::NotOlderThan(asked),
            (None, _) => VersionRule::Session,
        }
    }
}

fn values(headers: &HeaderMap, name: &str) -> Vec<String> {
    let values = headers.get_all(name).iter();
    values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
}

fn compare_tokens(before: &Token, after: &Token, list: &Reduced, found: &mut Vec<String>) {
    if before.start != after.start {
        found.push(format!("continue behind {:?} became {:?}", before.start, after.start));
    }
    let own = list.version.as_deref().and_then(|version| version.parse().ok());
    if Some(after.version) != own && after.version != -1 {
        found.push(format!("continue at version {} of a list at {own:?}", after.version));
    }
}

fn first_difference(before: &[u8], after: &[u8]) -> String {
    let at = before.iter().zip(after).take_while(|(one, other)| one == other).count();
    let around = |body: &[u8]| {
        let part = &body[at.saturating_sub(60)..body.len().min(at + 80)];
        String::from_utf8_lossy(part).into_owned()
    };
    format!(
        "body of {} bytes became {} bytes; first difference at {at}:\n      {}\n      {}",
        before.len(),
        after.len(),
        around(before),
        around(after)
    )
}
