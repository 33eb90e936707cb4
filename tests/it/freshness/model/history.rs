//! The actions and responses of the session, in order.

use std::{
    collections::BTreeMap,
    fmt::Display,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::time::Instant;

use crate::harness::Answer;

/// The records of one run.
#[derive(Default)]
pub(super) struct History {
    clock: AtomicU64,
    reads: Mutex<Vec<Read>>,
    writes: Mutex<Vec<Write>>,
    told: Mutex<Vec<Told>>,
    /// When each revision was first known to exist.
    revisions: Mutex<BTreeMap<u64, Instant>>,
    begun: OnceLock<Instant>,
    trace: Mutex<Vec<String>>,
}

/// The begin and end of an action, in steps that all actors share, and their revisions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) started: u64,
    pub(super) ended: u64,
    pub(super) revision_before: u64,
    pub(super) revision_after: u64,
}

/// The query of a read.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// `pods`, or `widgets.x.io`.
    pub(super) resource: &'static str,
    /// Without parameters about versions and pages.
    pub(super) target: String,
    /// The object of a GET.
    pub(super) key: Option<String>,
    /// The objects that a LIST selects.
    pub(super) filter: Filter,
    pub(super) version: Version,
}

/// The selector of a LIST.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    pub(super) namespace: Option<&'static str>,
    pub(super) app: Option<&'static str>,
    pub(super) name: Option<&'static str>,
}

/// `resourceVersion` of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Unset,
    Zero,
    AtLeast(u64),
}

/// A read that was answered.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) asked: Asked,
    pub(super) span: Span,
    pub(super) at: Instant,
    pub(super) answer: Answer,
    /// The version of the list or object; `None` when there was none.
    pub(super) version: Option<u64>,
}

/// A write that was acknowledged, by what it did to one object.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) resource: &'static str,
    pub(super) span: Span,
    pub(super) key: String,
    pub(super) effect: Effect,
}

/// An object in a watch event.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) since: u64,
    pub(super) resource: &'static str,
    pub(super) key: String,
    pub(super) revision: u64,
}

/// The effect of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The object is at this version.
    Stored(u64),
    /// The object with this uid is gone; without a uid, any object of that name.
    Removed(Option<String>),
}

// === impl History ===

impl History {
    /// The next moment.
    pub(super) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Records an action that just happened.
    pub(super) fn note(&self, what: impl Display) {
        let since = self.begun.get_or_init(Instant::now).elapsed();
        guard(&self.trace).push(format!("{since:?} {what}"));
    }

    /// Returns the records in order.
    pub(super) fn trace(&self) -> Vec<String> {
        guard(&self.trace).clone()
    }

    pub(super) fn read(&self, read: Read) {
        let text = String::from_utf8_lossy(&read.answer.body);
        let status = read.answer.cache_status();
        self.note(format_args!("{:?} {:?} {status} {text}", read.asked, read.span));
        guard(&self.reads).push(read);
    }

    pub(super) fn wrote(&self, write: Write) {
        self.note(format_args!("{write:?}"));
        guard(&self.writes).push(write);
    }

    /// Records a watch event with an object at a revision.
    pub(super) fn tell(&self, resource: &'static str, key: String, revision: u64) {
        let since = self.tick();
        guard(&self.told).push(Told { since, resource, key, revision });
    }

    pub(super) fn told(&self, resource: &str) -> Vec<Told> {
        let told = guard(&self.told);
        told.iter().filter(|told| told.resource == resource).cloned().collect()
    }

    /// Records that every revision up to this one exists by now.
    pub(super) fn reached(&self, revision: u64) {
        guard(&self.revisions).entry(revision).or_insert_with(Instant::now);
    }

    pub(super) fn reads(&self) -> Vec<Read> {
        guard(&self.reads).clone()
    }

    pub(super) fn writes(&self) -> Vec<Write> {
        guard(&self.writes).clone()
    }

    /// The latest moment at which a revision can have been created.
    pub(super) fn existed_by(&self, revision: u64) -> Option<Instant> {
        guard(&self.revisions).range(revision..).map(|(_, at)| *at).min()
    }

    /// The highest version that any list showed so far.
    pub(super) fn shown(&self, resource: &str) -> Option<u64> {
        let reads = guard(&self.reads);
        let lists =
            reads.iter().filter(|read| read.asked.resource == resource && read.asked.key.is_none());
        lists.filter_map(|read| read.version).max()
    }

    /// The number of responses for each level or reason.
    pub(super) fn details(&self) -> BTreeMap<String, usize> {
        let mut details = BTreeMap::new();
        for read in guard(&self.reads).iter() {
            *details.entry(read.answer.detail().to_owned()).or_default() += 1;
        }
        details
    }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
