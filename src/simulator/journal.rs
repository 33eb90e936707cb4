//! The requests that reached the simulated apiserver: a bounded log, and sums.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU16, AtomicU64, Ordering},
    },
};

use http::{Method, Request, header};
use tokio::time::Instant;

use super::route::{Parameters, Route, Target};
use crate::api::Verb;

/// The attributes of a request for faults and tests.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The HTTP method.
    pub method: Method,
    /// The verb; [`Verb::Other`] for a non-resource path.
    pub verb: Verb,
    /// The API group.
    pub group: String,
    /// The plural resource name. Empty for a non-resource path.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The namespace, or empty.
    pub namespace: String,
    /// The name in the path, or empty.
    pub name: String,
    /// The path and query as sent.
    pub path_and_query: String,
    /// The User-Agent, or empty.
    pub user_agent: String,
}

/// One request and its result so far.
#[derive(Clone, Debug)]
pub struct Record {
    /// The number, counted from one.
    pub number: u64,
    /// The arrival time.
    pub arrived: Instant,
    /// The request's attributes.
    pub asked: Asked,
    /// The HTTP status. Zero while there is none.
    pub code: u16,
    /// Bytes of the response's body sent so far.
    pub bytes: u64,
}

/// The sums over all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// All requests.
    pub requests: u64,
    /// GETs of single objects.
    pub gets: u64,
    /// LISTs.
    pub lists: u64,
    /// WATCHes.
    pub watches: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of response bodies.
    pub bytes: u64,
}

/// The log and the sums.
pub(super) struct Journal {
    entries: Mutex<VecDeque<Arc<Entry>>>,
    records_max: usize,
    sums: Arc<Sums>,
}

/// One request, which may still be in flight.
pub(super) struct Entry {
    number: u64,
    arrived: Instant,
    /// The request's attributes.
    pub asked: Asked,
    code: AtomicU16,
    bytes: AtomicU64,
    sums: Arc<Sums>,
}

#[derive(Default)]
struct Sums {
    requests: AtomicU64,
    gets: AtomicU64,
    lists: AtomicU64,
    watches: AtomicU64,
    writes: AtomicU64,
    bytes: AtomicU64,
}

// === impl Asked ===

impl Asked {
    /// Parses a request's head.
    pub fn read<B>(request: &Request<B>) -> (Self, Route, Parameters) {
        let (uri, method) = (request.uri(), request.method().clone());
        let parameters = Parameters::parse(uri);
        let route = Route::parse(uri.path());
        let (verb, target) = match &route {
            Route::Resource(target) => (target.verb(&method, &parameters), target.clone()),
            Route::Other(_) => (Verb::Other, Target::default()),
        };
        let user_agent = request.headers().get(header::USER_AGENT);
        let asked = Self {
            verb,
            method,
            group: target.group,
            resource: target.resource,
            subresource: target.subresource.unwrap_or_default(),
            namespace: target.namespace.unwrap_or_default(),
            name: target.name.unwrap_or_default(),
            path_and_query: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
            user_agent: user_agent
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
                .to_owned(),
        };
        (asked, route, parameters)
    }
}

// === impl Journal ===

impl Journal {
    /// Returns an empty journal of at most this many records.
    pub(super) fn new(records_max: usize) -> Self {
        Self { entries: Mutex::default(), records_max, sums: Arc::default() }
    }

    /// Records a request that arrived.
    pub(super) fn open(&self, asked: Asked) -> Arc<Entry> {
        let number = self.sums.requests.fetch_add(1, Ordering::Relaxed) + 1;
        match asked.verb {
            Verb::Get => self.sums.gets.fetch_add(1, Ordering::Relaxed),
            Verb::List => self.sums.lists.fetch_add(1, Ordering::Relaxed),
            Verb::Watch => self.sums.watches.fetch_add(1, Ordering::Relaxed),
            verb if verb.is_write() => self.sums.writes.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        let entry = Arc::new(Entry {
            number,
            arrived: Instant::now(),
            asked,
            code: AtomicU16::new(0),
            bytes: AtomicU64::new(0),
            sums: self.sums.clone(),
        });
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= self.records_max {
            entries.pop_front();
        }
        entries.push_back(entry.clone());
        entry
    }

    /// Returns every stored request, oldest first.
    pub(super) fn records(&self) -> Vec<Record> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().map(|entry| entry.record()).collect()
    }

    /// Returns the sums.
    pub(super) fn counters(&self) -> Counters {
        let read = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        Counters {
            requests: read(&self.sums.requests),
            gets: read(&self.sums.gets),
            lists: read(&self.sums.lists),
            watches: read(&self.sums.watches),
            writes: read(&self.sums.writes),
            bytes: read(&self.sums.bytes),
        }
    }
}

// === impl Entry ===

impl Entry {
    /// Records the status.
    pub(super) fn answered(&self, code: u16) {
        self.code.store(code, Ordering::Relaxed);
    }

    /// Records sent bytes of the body.
    pub(super) fn sent(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.sums.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn record(&self) -> Record {
        Record {
            number: self.number,
            arrived: self.arrived,
            asked: self.asked.clone(),
            code: self.code.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}
