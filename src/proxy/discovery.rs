//! Documents of discovery and OpenAPI, kept and given again while they are proven to hold.
//!
//! Invariants: a caller is given only what the apiserver itself has told that caller, or confirmed to
//! it, in the last seconds; nothing is given without asking unless the watches of all that such
//! documents are made from prove it. `/version` is not kept: it tells of the very process that
//! answers, several of which may stand behind one address, and no watch shows them change.

mod answer;
mod collect;
mod document;
mod events;
mod kinds;
mod release;
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
    watches::Standing,
};
use self::{release::Release, watches::Watches};
use crate::{
    cache::{self as replicas, reflector::Random},
    hash::RandomState,
    metrics::{Limit, Metrics},
    mutants::{Mutant, is_on},
    proxy::{authorize::token_left, identify::Caller},
    upstream::Client,
};

/// The documents of all callers; cheap to clone.
#[derive(Clone)]
pub struct Discovery(Arc<Inner>);

struct Inner {
    documents: Cache<Place, Arc<Document>, RandomState>,
    /// Who was told what, and when.
    confirmations: Cache<(Caller, Key), Confirmation, RandomState>,
    release: Arc<Release>,
    watches: Arc<Watches>,
    metrics: Metrics,
    _end: DropGuard,
}

/// Where a document is kept. What a tag tells apart is the same for all who may have it; what has
/// none is its caller's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    owner: Option<Caller>,
    key: Key,
}

#[derive(Clone)]
struct Confirmation {
    /// A dropped document is not kept alive by those who know it.
    document: Weak<Document>,
    at: Instant,
    believed: Duration,
}

/// What is held of a document for one caller.
#[derive(Debug)]
pub enum Held {
    /// The apiserver gave it to this caller, or confirmed it.
    Confirmed(Confirmed),
    /// Somebody has it: if the apiserver confirms it to this caller, it need not be sent.
    Known(Arc<Document>),
    /// Nothing.
    Nothing,
}

/// A document that the apiserver gave or confirmed to one caller.
#[derive(Clone, Debug)]
pub struct Confirmed {
    /// The document.
    pub document: Arc<Document>,
    /// When the apiserver was asked.
    pub at: Instant,
    /// For so long this is believed.
    pub believed: Duration,
}

/// The apiserver is asked again after this time whatever is proven, as it is with access reviews:
/// rights end so, and so does what no watch shows, such as another release behind the same address.
const BELIEVED: Duration = Duration::from_secs(10);

/// Documents are kept up to this many bytes in all.
const DOCUMENTS_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// What nobody asks for is dropped after this time.
const DOCUMENT_IDLE_MAX: Duration = Duration::from_secs(600);

/// What callers were told is remembered up to this many bytes in all.
const CONFIRMATIONS_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What such a memory takes beside the document's key, estimated.
const CONFIRMATION_BYTES: usize = 256;

// === impl Discovery ===

impl Discovery {
    /// Nothing is kept or followed yet. Watches go through `client`, in our own name; waits with
    /// jitter are drawn from `random`. The replicas list again when their definitions change.
    pub fn new(
        client: Arc<dyn Client>,
        random: Random,
        metrics: Metrics,
        replicas: replicas::Cache,
    ) -> Self {
        let stop = CancellationToken::new();
        let reached = metrics.clone();
        let weight = |place: &Place, document: &Arc<Document>| {
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
            release: Arc::new(Release::new(client.clone(), stop.clone(), replicas.clone())),
            watches: Arc::new(Watches::new(client, random, stop.clone(), replicas)),
            metrics,
            _end: stop.drop_guard(),
        }))
    }

    /// What is held of a document for this caller.
    pub async fn held(&self, caller: Caller, key: &Key) -> Held {
        let confirmed = self.0.confirmations.get(&(told(caller), key.clone())).await;
        if let Some(Confirmation { document, at, believed }) = confirmed
            && let Some(document) = document.upgrade()
        {
            let owner = document.tag().is_none().then_some(caller);
            // Marks it as used, and finds what someone else was given in its place.
            let kept = self.0.documents.get(&Place { owner, key: key.clone() }).await;
            return match kept {
                Some(kept) if !Arc::ptr_eq(&kept, &document) => Held::Known(kept),
                _ => Held::Confirmed(Confirmed { document, at, believed }),
            };
        }
        let shared = Place { owner: None, key: key.clone() };
        self.0.documents.get(&shared).await.map_or(Held::Nothing, Held::Known)
    }

    /// What the watches prove now; they are opened if need be, and closed when nobody asks any more.
    pub fn standing(&self, now: Instant) -> Standing {
        self.0.watches.used_for_documents(now);
        self.0.watches.standing()
    }

    /// The same for a document that is asked for the first time, which opens no watch.
    pub fn proven(&self) -> Standing {
        self.0.watches.standing()
    }

    /// What documents are made from was changed through us, or is about to be.
    pub fn disturbed(&self, now: Instant) {
        self.0.watches.disturbed(now);
    }

    /// Follows the definitions of custom resources that have replicas, and the apiserver's release; to
    /// be called regularly.
    pub fn tend(&self, now: Instant) {
        self.0.release.tend(now);
        self.0.watches.tend(now);
    }

    /// How many documents are held, and how many bytes they take.
    pub fn report(&self) {
        let documents = &self.0.documents;
        self.0.metrics.documents_held(documents.entry_count(), documents.weighted_size());
    }

    /// The apiserver gave this document to this caller, who asked at that time.
    async fn keep(
        &self,
        caller: Caller,
        headers: &HeaderMap,
        key: &Key,
        kept: Arc<Document>,
        at: Instant,
    ) {
        let owner = kept.tag().is_none().then_some(caller);
        self.0.documents.insert(Place { owner, key: key.clone() }, kept.clone()).await;
        self.confirm(caller, headers, key, &kept, at).await;
    }

    /// The apiserver said to this caller that the document still holds.
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
        self.0.confirmations.insert((told(caller), key.clone()), confirmation).await;
    }

    /// The apiserver told this caller something else.
    async fn forget(&self, caller: Caller, key: &Key) {
        self.0.confirmations.invalidate(&(told(caller), key.clone())).await;
    }
}

/// Whom a confirmation is for.
fn told(caller: Caller) -> Caller {
    if is_on(Mutant::CallersShareDocuments) { Caller::Own } else { caller }
}
