//! The accounts of clients: their requests, rate, cost, and recommended fixes.
//!
//! There is one account for each shape of requests: caller, user agent, verb, resource, scope, and
//! query without its values. The data path writes accounts and people read them; no decision depends on
//! them. Invariants: memory is bounded for any load (requests without an account are counted
//! together), and a repeated request needs no allocation.

pub mod account;
pub mod arrivals;
pub mod client_group;
pub mod cost;
pub mod counts;
pub mod detect;
pub mod fingerprint;
pub mod library;
pub mod period;
mod reasons;
pub mod report;
pub mod shape;
mod sketch;
pub mod sort;
mod summary;
pub mod versions;

use std::{
    hash::{BuildHasher, Hash},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use http::{HeaderMap, header};
use tokio::time::{Duration, Instant};

use self::{
    account::{Account, AccountPlace, Changed, Record},
    arrivals::Budget,
    client_group::ClientGroup,
    cost::Lists,
    counts::Counts,
    report::Report,
    shape::Shape,
    sketch::Sketch,
    versions::Versions,
};
use crate::{
    api::{
        GroupResource, ObjectKey, Verb, credential, query::Query, request::RequestInfo,
        version::ResourceVersion, version::VersionMatch,
    },
    hash::{HashMap, RandomState},
    metrics::{Limit, Metrics, Origin},
};

/// All accounts. It is cheap to clone.
#[derive(Clone)]
pub struct Insight(Arc<Shared>);

struct Shared {
    started: Instant,
    hasher: RandomState,
    table: Mutex<Table>,
    others: Arc<Account>,
    budget: Budget,
    versions: Versions,
    sent: Sent,
    /// `true` if the apiserver reads consistent lists from etcd.
    lists_from_etcd: AtomicBool,
    metrics: Metrics,
}

struct Table {
    accounts: HashMap<Shape, Arc<Account>>,
    client_groups: HashMap<u64, Arc<ClientGroup>>,
    swept_at: u64,
    /// The counts of closed accounts.
    given_up: Counts,
    /// The estimated number of shapes without an account.
    unlisted: Sketch,
}

/// The requests to the apiserver.
#[derive(Debug, Default)]
struct Sent {
    /// All requests to the apiserver.
    requests: AtomicU64,
    /// The bytes that the apiserver sent to Listless's own requests.
    own_bytes: AtomicU64,
    /// Forwarded requests of clients.
    passed_on: AtomicU64,
}

/// The account of a request and its place there.
#[derive(Clone, Debug)]
pub struct Asker {
    account: Arc<Account>,
    value: u64,
    version: Option<u64>,
}

/// The last asker of one target, which saves the look-up of a repeated poll.
#[derive(Debug, Default)]
pub struct Remembered(Mutex<Option<LastAsker>>);

#[derive(Debug)]
struct LastAsker {
    user_agent: Box<[u8]>,
    caller: Option<Arc<str>>,
    asker: Asker,
}

/// The parts of a request that select its account.
#[derive(Clone, Copy, Debug)]
pub struct AccountRequest<'a> {
    /// The parsed request.
    pub info: &'a RequestInfo,
    /// The path and query as sent.
    pub text: &'a str,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The caller's name, or empty.
    pub caller: &'a str,
}

/// An observer of a write's response.
#[derive(Clone)]
pub struct WriteObserver {
    insight: Insight,
    asker: Asker,
    /// The version in a replica, as a hash.
    held: Option<u32>,
}

/// The maximum number of accounts. Further ones are counted together.
pub const ACCOUNTS_MAX: usize = 4096;

/// The maximum number of stored arrivals of all accounts, beyond a few of each.
const ARRIVALS_MAX: usize = 256 * 1024;

/// The minimum time in milliseconds between two sweeps of idle accounts.
const SWEEP_EVERY: u64 = 10_000;

/// The idle time in milliseconds that an account may have per request.
const REST_PER_REQUEST: u64 = 60_000;

// === impl Insight ===

impl Insight {
    /// Returns an empty set of accounts.
    pub fn new(metrics: Metrics, now: Instant) -> Self {
        let client_group = Arc::default();
        Self(Arc::new(Shared {
            started: now,
            hasher: RandomState::default(),
            table: Mutex::new(Table {
                accounts: HashMap::default(),
                client_groups: HashMap::default(),
                swept_at: 0,
                given_up: Counts::default(),
                unlisted: Sketch::default(),
            }),
            others: Arc::new(Account::new(Shape::others(), client_group, 0)),
            budget: Budget::new(ARRIVALS_MAX),
            versions: Versions::default(),
            sent: Sent::default(),
            lists_from_etcd: AtomicBool::new(false),
            metrics,
        }))
    }

    /// Returns the account of a request.
    pub fn asker(&self, question: &AccountRequest<'_>, now: Instant) -> Asker {
        let query = question.text.split_once('?').map(|(_, query)| query);
        let shape = match credential::is_exposed(question.headers, question.text) {
            true => Shape::withheld(),
            false => Shape::of(question.info, query, question.headers, question.caller),
        };
        Asker {
            account: self.account(shape, self.millis(now)),
            value: self.value(question),
            version: self.version(question.info),
        }
    }

    /// Records the end of a request.
    pub fn record(&self, asker: &Asker, connection: u64, record: &Record) {
        let place = AccountPlace {
            value: asker.value,
            client: self.0.hasher.hash_one(connection),
            version: asker.version,
            at: self.millis(record.started),
        };
        asker.account.record(place, record, self.lists(), &self.0.budget);
    }

    /// Sets the source of the apiserver's consistent lists, which depends on its release.
    pub fn set_lists(&self, lists: Lists) {
        self.0.lists_from_etcd.store(lists == Lists::FromEtcd, Ordering::Relaxed);
    }

    fn lists(&self) -> Lists {
        let from_etcd = self.0.lists_from_etcd.load(Ordering::Relaxed);
        if from_etcd { Lists::FromEtcd } else { Lists::FromCache }
    }

    /// Counts a request to the apiserver.
    pub fn sent(&self) {
        self.0.sent.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a client request that the apiserver answers.
    pub fn passed_on(&self) {
        self.0.sent.passed_on.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts received bytes by the origin of the request.
    pub fn received(&self, origin: Origin, bytes: u64) {
        if origin != Origin::Client {
            self.0.sent.own_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Returns the observer of a write's response. `held` is the version in memory.
    pub fn write_observer(&self, asker: &Asker, held: Option<&ResourceVersion>) -> WriteObserver {
        let held = held.map(|version| self.short(version));
        WriteObserver { insight: self.clone(), asker: asker.clone(), held }
    }

    /// Returns a short hash of a response's version, for comparison with another response.
    pub fn content(&self, version: &ResourceVersion) -> u32 {
        self.short(version)
    }

    /// Returns the report of all accounts.
    pub fn report(&self, mode: &str, now: Instant) -> Report {
        summary::report(self, mode, now)
    }

    /// Returns the number of accounts.
    pub fn accounts(&self) -> usize {
        self.table().accounts.len()
    }

    fn account(&self, shape: Shape, now: u64) -> Arc<Account> {
        let mut table = self.table();
        if let Some(account) = table.accounts.get(&shape) {
            return account.clone();
        }
        if table.accounts.len() >= ACCOUNTS_MAX {
            table.sweep(&self.0, now);
        }
        if table.accounts.len() >= ACCOUNTS_MAX {
            table.unlisted.add(self.0.hasher.hash_one(&shape));
            self.0.metrics.limit_reached(Limit::Accounts);
            return self.0.others.clone();
        }
        let client_group = table
            .client_groups
            .entry(self.0.hasher.hash_one(shape.client_group()))
            .or_default()
            .clone();
        let account = Arc::new(Account::new(shape.clone(), client_group, now));
        table.accounts.insert(shape, account.clone());
        account
    }

    /// Returns a hash of the object or selection.
    fn value(&self, question: &AccountRequest<'_>) -> u64 {
        match shape::query_of(question.info) {
            Some(query) => self.hash_of(query),
            None => self.0.hasher.hash_one(question.text),
        }
    }

    fn hash_of(&self, query: &Query) -> u64 {
        self.0.hasher.hash_one(query)
    }

    /// Returns a hash of the version in a read or watch.
    fn version(&self, info: &RequestInfo) -> Option<u64> {
        let request = info.resource_request()?;
        let read = request.read.as_ref().ok().map(|read| &read.version);
        match read.or_else(|| request.watch.as_ref().map(|watch| &watch.version))? {
            VersionMatch::MostRecent => None,
            VersionMatch::Any => Some(0),
            VersionMatch::NotOlderThan(version) | VersionMatch::Exact(version) => {
                Some(self.0.hasher.hash_one(version))
            }
        }
    }

    fn short(&self, version: &impl Hash) -> u32 {
        (self.0.hasher.hash_one(version) >> 32) as u32
    }

    /// Returns the milliseconds since counting began.
    fn millis(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.0.started).as_millis() as u64
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Table ===

impl Table {
    /// Closes accounts whose idle time exceeds their allowance.
    fn sweep(&mut self, shared: &Shared, now: u64) {
        if now.saturating_sub(self.swept_at) < SWEEP_EVERY {
            return;
        }
        self.swept_at = now;
        let (given_up, unlisted) = (&mut self.given_up, &mut self.unlisted);
        self.accounts.retain(|shape, account| {
            let (requests, last) = account.usage();
            let rest = now.saturating_sub(last);
            if rest <= REST_PER_REQUEST.saturating_mul(requests.max(1)) {
                return true;
            }
            given_up.add(&account.close(&shared.budget));
            unlisted.add(shared.hasher.hash_one(shape));
            false
        });
        self.client_groups.retain(|_, client_group| Arc::strong_count(client_group) > 1);
    }
}

// === impl Asker ===

impl Asker {
    /// Records the start of the requested watch.
    pub fn begins(&self) {
        if self.account.shape.verb == Verb::Watch {
            self.account.client_group.opened(self.value, self.version);
        }
    }
}

// === impl Remembered ===

impl Remembered {
    /// Returns the asker stored for this user agent and the caller's name, or a new one.
    pub fn of(
        &self,
        headers: &HeaderMap,
        caller: Option<&Arc<str>>,
        make: impl FnOnce() -> Asker,
    ) -> Asker {
        let agent = headers.get(header::USER_AGENT).map_or(&[][..], |agent| agent.as_bytes());
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*remembered
            && *last.user_agent == *agent
            && last.caller.as_ref() == caller
            && last.asker.account.is_open()
        {
            return last.asker.clone();
        }
        let asker = make();
        if agent.len() <= AGENT_BYTES_MAX {
            let (user_agent, caller) = (agent.into(), caller.cloned());
            *remembered = Some(LastAsker { user_agent, caller, asker: asker.clone() });
        }
        asker
    }
}

/// The maximum length of a user agent that is stored with a target.
const AGENT_BYTES_MAX: usize = 512;

// === impl WriteObserver ===

impl WriteObserver {
    /// Records the version of an object that a read showed.
    pub fn showed(&self, resource: &GroupResource, key: &ObjectKey, version: &ResourceVersion) {
        let shared = &self.insight.0;
        let object = shared.hasher.hash_one((resource, key));
        shared.versions.note(object, self.insight.short(version));
    }

    /// Records the object in the write's response.
    pub fn answered(&self, resource: &GroupResource, key: &ObjectKey, version: &ResourceVersion) {
        let shared = &self.insight.0;
        let now = self.insight.short(version);
        let noted = shared.versions.note(shared.hasher.hash_one((resource, key)), now);
        if noted.or(self.held).is_none() {
            return;
        }
        let same = noted == Some(now) || self.held == Some(now);
        self.asker.account.wrote(if same { Changed::Nothing } else { Changed::Something });
    }
}

/// Returns the time since counting began.
fn up(shared: &Shared, now: Instant) -> Duration {
    now.saturating_duration_since(shared.started)
}

#[cfg(test)]
mod tests;
