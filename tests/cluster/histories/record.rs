//! The actions and responses of the clients of a run.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::Value;

/// The records of one run, in no particular order.
#[derive(Debug, Default)]
pub struct Records {
    reads: Mutex<Vec<Read>>,
    writes: Mutex<Vec<Write>>,
    watches: Mutex<Vec<Watch>>,
    failures: Mutex<BTreeMap<String, usize>>,
}

/// A resource the clients work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// `configmaps`.
    ConfigMaps,
    /// `pods`, whose removal takes two steps.
    Pods,
    /// Custom, in two versions.
    Widgets,
}

/// The time from just before a request was sent to just after its response came.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub started: Instant,
    pub ended: Instant,
}

/// The query of a read or a watch.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub resource: Resource,
    /// The path of the API version, for example `/apis/shop.example.com/v1`.
    pub api: &'static str,
    pub filter: Filter,
    pub version: Version,
}

/// The selector of the objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub namespace: Option<&'static str>,
    pub app: Option<&'static str>,
    pub name: Option<&'static str>,
}

/// `resourceVersion` of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Unset,
    Zero,
    AtLeast(u64),
}

/// A read that was answered.
#[derive(Clone, Debug)]
pub struct Read {
    pub asked: Asked,
    pub span: Span,
    /// `true` if memory answered.
    pub hit: bool,
    pub shown: Shown,
}

/// The content of a read.
#[derive(Clone, Debug)]
pub enum Shown {
    /// A list: its version, and the version of each object by key.
    List(u64, BTreeMap<String, u64>),
    /// An object by its key, with uid and version, or its absence.
    Object(String, Option<(String, u64)>),
}

/// A write that was acknowledged, by what it did to one object.
#[derive(Clone, Debug)]
pub struct Write {
    pub resource: Resource,
    pub span: Span,
    pub key: String,
    pub effect: Effect,
}

/// The effect of a write.
#[derive(Clone, Debug)]
pub enum Effect {
    /// The object is at this version.
    Stored(u64),
    /// The object with this uid is gone.
    Removed(String),
}

/// One watch from a version on until it ended.
#[derive(Clone, Debug)]
pub struct Watch {
    pub asked: Asked,
    pub from: u64,
    /// `true` if it came from memory.
    pub hit: bool,
    pub told: Vec<Told>,
}

/// One event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// `ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`.
    pub kind: String,
    pub key: String,
    pub version: u64,
}

// === impl Resource ===

impl Resource {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ConfigMaps, Self::Pods, Self::Widgets];

    /// The path of the API version and the plural name.
    pub fn path(self) -> (&'static str, &'static str) {
        match self {
            Self::ConfigMaps => ("/api/v1", "configmaps"),
            Self::Pods => ("/api/v1", "pods"),
            Self::Widgets => ("/apis/shop.example.com/v1", "widgets"),
        }
    }

    /// The path of its objects in etcd.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::ConfigMaps => "/registry/configmaps/",
            Self::Pods => "/registry/pods/",
            Self::Widgets => "/registry/shop.example.com/widgets/",
        }
    }
}

// === impl Records ===

impl Records {
    pub fn read(&self, read: Read) {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner).push(read);
    }

    pub fn wrote(&self, write: Write) {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).push(write);
    }

    pub fn watched(&self, watch: Watch) {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).push(watch);
    }

    /// Counts a failed response by its status or error.
    pub fn failed(&self, what: &str) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        *failures.entry(what.to_owned()).or_default() += 1;
    }

    /// The number of each kind of failed response.
    pub fn failures(&self) -> BTreeMap<String, usize> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn reads(&self) -> Vec<Read> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn writes(&self) -> Vec<Write> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn watches(&self) -> Vec<Watch> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The highest version that a list showed so far.
    pub fn shown(&self, resource: Resource) -> Option<u64> {
        let reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        let of_it = reads.iter().filter(|read| read.asked.resource == resource);
        of_it.filter_map(|read| read.shown.list_version()).max()
    }
}

// === impl Shown ===

impl Shown {
    /// The version of a list.
    pub fn list_version(&self) -> Option<u64> {
        match self {
            Self::List(version, _) => Some(*version),
            Self::Object(..) => None,
        }
    }
}

/// `namespace/name` of an object.
pub fn key(object: &Value) -> String {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

/// The version in an object's or a list's metadata.
pub fn version(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}
