//! The cache of documents of discovery and OpenAPI, which are returned while they are proven to be
//! valid.
//!
//! Invariants: a caller gets only a document that the apiserver has sent or confirmed to that
//! caller in the last seconds. No document is returned from the cache unless the watches of all its
//! sources prove it. `/version` is not cached: it describes the process that answers. Several of
//! them may share one address, and no watch shows a change of them.

mod answer;
mod collect;
mod document;
mod events;
mod generations;
mod kinds;
mod release;
mod remote;
mod wanted;
mod watches;

use std::{
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use http::{HeaderMap, header};
use moka::{future::Cache, notification::RemovalCause};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(super) use self::answer::{Known, Offer};
pub use self::{
    document::{Document, Form},
    wanted::{Condition, Key, Subject, Wanted},
    watches::WatchProof,
};
use self::{release::Release, watches::Watches};
use crate::{
    cache::{self as replicas, reflector::Random},
    hash::RandomState,
    held_bytes::HeldBytes,
    insight::Insight,
    metrics::{Limit, Metrics},
    proxy::{authorize::token_left, identify::Caller},
    suspension::Suspension,
    upstream::Client,
};

/// The documents of all callers; cheap to clone.
#[derive(Clone)]
pub struct Discovery(Arc<Inner>);

struct Inner {
    documents: Cache<DocumentKey, Arc<Document>, RandomState>,
    /// The documents that each caller has received, and when.
    confirmations: Cache<(Caller, Key), Confirmation, RandomState>,
    release: Arc<Release>,
    watches: Arc<Watches>,
    /// The bytes of documents that are still on their way to a client.
    copied: HeldBytes,
    suspension: Suspension,
    metrics: Metrics,
    _end: DropGuard,
}

/// The key of a cached document. A document with an entity tag is the same for all who may have it.
/// A document without one belongs to its caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DocumentKey {
    owner: Option<Caller>,
    key: Key,
}

#[derive(Clone)]
struct Confirmation {
    /// A confirmation does not keep a dropped document alive.
    document: Weak<Document>,
    at: Instant,
    believed: Duration,
}

/// The cached state of a document for one caller.
#[derive(Debug)]
pub enum Held {
    /// The apiserver has sent or confirmed it to this caller.
    Confirmed(Confirmed),
    /// Another caller has it: if the apiserver confirms it to this caller, it need not be sent.
    Known(Arc<Document>),
    /// Not cached.
    Nothing,
}

/// A document that the apiserver has sent or confirmed to one caller.
#[derive(Clone, Debug)]
pub struct Confirmed {
    /// The document.
    pub document: Arc<Document>,
    /// The time of that request.
    pub at: Instant,
    /// The time for which the confirmation is valid.
    pub believed: Duration,
}

/// The lifetime of a confirmation, whatever the watches prove; the same as that of access reviews.
/// It bounds the effect of withdrawn permissions. It also bounds changes that no watch shows, such as
/// another release behind the same address.
const BELIEVED: Duration = Duration::from_secs(10);

/// The limit of all documents together, in bytes.
const DOCUMENTS_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// The time after which an unused document is dropped.
const DOCUMENT_IDLE_MAX: Duration = Duration::from_secs(600);

/// The limit of all confirmations together, in bytes.
const CONFIRMATIONS_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The size of a confirmation without its key, estimated.
const CONFIRMATION_BYTES: usize = 256;

// === impl Discovery ===

impl Discovery {
    /// Creates an empty cache without watches. Watches are opened through `client`, with Listless's
    /// own identity; the jitter of waits is drawn from `random`. Replicas in `cache` list again
    /// when their definitions change.
    pub fn new(
        client: Arc<dyn Client>,
        random: Random,
        (metrics, insight): (Metrics, Insight),
        replicas: replicas::Cache,
    ) -> Self {
        Self::suspended(client, random, (metrics, insight), replicas, Suspension::of_process())
    }

    fn suspended(
        client: Arc<dyn Client>,
        random: Random,
        (metrics, insight): (Metrics, Insight),
        replicas: replicas::Cache,
        suspension: Suspension,
    ) -> Self {
        let stop = CancellationToken::new();
        let reached = metrics.clone();
        let weight = |place: &DocumentKey, document: &Arc<Document>| {
            u32::try_from(place.key.bytes() + document.bytes()).unwrap_or(u32::MAX)
        };
        let documents = Cache::builder()
            .max_capacity(DOCUMENTS_BYTES_MAX)
            .weigher(weight)
            .time_to_idle(DOCUMENT_IDLE_MAX)
            .eviction_listener(move |_, _, cause| {
                if cause == RemovalCause::Size {
                    reached.limit_reached(Limit::DiscoveryBytes);
                }
            });
        let weight = |(_, key): &(Caller, Key), _: &Confirmation| {
            u32::try_from(key.bytes() + CONFIRMATION_BYTES).unwrap_or(u32::MAX)
        };
        let confirmations = Cache::builder()
            .max_capacity(CONFIRMATIONS_BYTES_MAX)
            .weigher(weight)
            .time_to_live(DOCUMENT_IDLE_MAX);
        Self(Arc::new(Inner {
            documents: documents.build_with_hasher(RandomState::default()),
            confirmations: confirmations.build_with_hasher(RandomState::default()),
            release: Arc::new(Release::new(
                client.clone(),
                stop.clone(),
                replicas.clone(),
                insight,
            )),
            watches: Arc::new(Watches::new(client, random, stop.clone(), replicas)),
            copied: HeldBytes::default(),
            suspension,
            metrics,
            _end: stop.drop_guard(),
        }))
    }

    /// Returns the cached state of a document for this caller. After a suspension of the machine or a
    /// stop of the process, no document is valid before the apiserver has confirmed it again.
    pub async fn held(&self, caller: Caller, key: &Key) -> Held {
        self.disturbed_by_suspension(Instant::now());
        let confirmed = self.0.confirmations.get(&(caller, key.clone())).await;
        if let Some(Confirmation { document, at, believed }) = confirmed
            && let Some(document) = document.upgrade()
        {
            let owner = document.tag().is_none().then_some(caller);
            // Marks the document as used, and finds one that another caller received in its place.
            let kept = self.0.documents.get(&DocumentKey { owner, key: key.clone() }).await;
            return match kept {
                Some(kept) if !Arc::ptr_eq(&kept, &document) => Held::Known(kept),
                _ => Held::Confirmed(Confirmed { document, at, believed }),
            };
        }
        let shared = DocumentKey { owner: None, key: key.clone() };
        self.0.documents.get(&shared).await.map_or(Held::Nothing, Held::Known)
    }

    /// Returns what the watches prove now. Opens them if necessary; they close when no documents
    /// are requested.
    pub fn watch_proof(&self, now: Instant) -> WatchProof {
        self.0.watches.used_for_documents(now);
        self.0.watches.watch_proof()
    }

    /// Returns the same for a document that is requested for the first time, which opens no watch.
    pub fn proven(&self) -> WatchProof {
        self.0.watches.watch_proof()
    }

    /// Notes that a source of documents was changed through Listless, or is about to be.
    pub fn disturbed(&self, now: Instant) {
        self.0.watches.disturbed(now);
    }

    fn disturbed_by_suspension(&self, now: Instant) {
        if self.0.suspension.is_over() {
            self.disturbed(now);
        }
    }

    /// Follows the definitions of custom resources that have replicas, and the apiserver's release;
    /// must be called regularly.
    pub fn tend(&self, now: Instant) {
        self.disturbed_by_suspension(now);
        self.0.release.tend(now);
        self.0.watches.tend(now);
    }

    /// Publishes the number and the bytes of the cached documents as metrics.
    pub fn report(&self) {
        let documents = &self.0.documents;
        self.0.metrics.documents_held(documents.entry_count(), documents.weighted_size());
    }

    /// Stores a document that the apiserver sent to this caller, who asked at that time.
    async fn keep(
        &self,
        caller: Caller,
        headers: &HeaderMap,
        key: &Key,
        kept: Arc<Document>,
        at: Instant,
    ) {
        let owner = kept.tag().is_none().then_some(caller);
        self.0.documents.insert(DocumentKey { owner, key: key.clone() }, kept.clone()).await;
        self.confirm(caller, headers, key, &kept, at).await;
    }

    /// Stores that the apiserver confirmed the document to this caller.
    async fn confirm(
        &self,
        caller: Caller,
        headers: &HeaderMap,
        key: &Key,
        document: &Arc<Document>,
        at: Instant,
    ) {
        let credential = headers.get(header::AUTHORIZATION);
        let left = match caller {
            Caller::Bearer(_) => {
                credential.and_then(|credential| token_left(credential, SystemTime::now()))
            }
            Caller::Own | Caller::Other(_) => None,
        };
        let believed = left.map_or(BELIEVED, |left| left.min(BELIEVED));
        let document = Arc::downgrade(document);
        let confirmation = Confirmation { document, at, believed };
        self.0.confirmations.insert((caller, key.clone()), confirmation).await;
    }

    /// Drops the confirmation after the apiserver sent this caller another response.
    async fn forget(&self, caller: Caller, key: &Key) {
        self.0.confirmations.invalidate(&(caller, key.clone())).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::sync::watch;

    use super::*;
    use crate::cache::{Settings, testing};

    #[tokio::test(start_paused = true)]
    async fn no_proof_from_before_a_suspension_counts() {
        let missed = Arc::new(AtomicU64::new(0));
        let source = missed.clone();
        let missed_so_far = move || Duration::from_secs(source.load(Ordering::Relaxed));
        let metrics = Metrics::new();
        let counted = (metrics.clone(), Insight::new(metrics, Instant::now()));
        let replicas = testing::cache(watch::channel(Settings::default()).1);
        let suspension = Suspension::of(Arc::new(missed_so_far));
        let discovery = Discovery::suspended(
            testing::client(),
            Arc::new(|| 0.5),
            counted,
            replicas,
            suspension,
        );
        let request = http::Request::get("/apis").body(()).expect("a request");
        let Wanted { key, .. } = Wanted::of(&request).expect("a document");
        for (slept, is_changed) in [(0, false), (3600, true), (3600, false), (7200, true)] {
            crate::testing::pass(Duration::from_secs(60)).await;
            missed.store(slept, Ordering::Relaxed);
            // The regular work may notice it first.
            if slept == 7200 {
                discovery.tend(Instant::now());
            }
            discovery.held(Caller::Own, &key).await;
            assert_eq!(discovery.proven().changed_at == Instant::now(), is_changed, "{slept}");
        }
    }
}
