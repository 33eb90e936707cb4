//! Shadow checks: the response that the cache would give, compared with the apiserver's.
//!
//! In mode `observe`, some responses are copied while they pass, unchanged. The replica is then
//! brought to exactly the response's version, and both bodies are compared byte for byte. Two
//! bodies without a common version count as unknown, never as different. No content is logged.

use std::{collections::VecDeque, io::Read as _, sync::Arc, time::Duration};

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{Response, StatusCode, header};
use serde::Deserialize;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::decide::LocalRead;
use crate::{
    api::{
        GroupResource, ObjectKey,
        form::Form,
        learn::{Learned, Learner},
        media::Representation,
        protobuf,
        request::Read,
        status::Status,
        version::ResourceVersion,
    },
    body::{Body, BoxError, Observer, PIECE_OVERHEAD_BYTES},
    cache::{Reach, Replica, SyncState, store::Snapshot},
    metrics::{Limit, Metrics, Shadow},
};

/// The checks in progress.
pub(super) struct Shadows {
    places: Arc<Semaphore>,
    metrics: Metrics,
}

/// One check, from the decision to its result.
pub(super) struct Check {
    read: Read,
    /// The snapshot at the time of the request.
    snapshot: Arc<Snapshot>,
    representation: Representation,
    replica: Arc<Replica>,
    metrics: Metrics,
    _place: OwnedSemaphorePermit,
}

/// A copy of a response's body.
struct Watched {
    chunks: VecDeque<Bytes>,
    bytes: usize,
    check: Option<Pending>,
}

/// The facts about a response before its body.
struct Pending {
    check: Check,
    code: StatusCode,
    is_gzip: bool,
}

/// The apiserver's response.
struct Received {
    code: StatusCode,
    body: Vec<u8>,
    at: Instant,
}

/// The part of a response that contains its version.
#[derive(Deserialize)]
struct Versioned {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

/// The limit of concurrent checks; each may hold a response and the snapshot at the time of the
/// request.
const CHECKS_MAX: usize = 8;

/// The largest response that is compared, compressed or not.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The longest wait for a replica to reach the response's version: bookmarks come each minute.
const REACH_WAIT: Duration = Duration::from_secs(90);

// === impl Shadows ===

impl Shadows {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { places: Arc::new(Semaphore::new(CHECKS_MAX)), metrics }
    }

    /// Starts a check of this read, which the cache would have answered this way; returns `None` if
    /// the limit is reached.
    pub(super) fn check(
        &self,
        read: &Read,
        answer: &LocalRead,
        replica: &Arc<Replica>,
    ) -> Option<Check> {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            self.metrics.limit_reached(Limit::ShadowChecks);
            return None;
        };
        Some(Check {
            read: read.clone(),
            snapshot: answer.snapshot.clone(),
            representation: answer.representation,
            replica: replica.clone(),
            metrics: self.metrics.clone(),
            _place: place,
        })
    }
}

// === impl Check ===

impl Check {
    /// Returns the same response, whose body is copied as it passes.
    pub(super) fn attach(self, response: Response<Body>) -> Response<Body> {
        let code = response.status();
        let encoding = response.headers().get(header::CONTENT_ENCODING);
        let is_gzip = encoding.is_some_and(|encoding| encoding == "gzip");
        let check = Some(Pending { check: self, code, is_gzip });
        response.map(|body| body.observed(Watched { chunks: VecDeque::new(), bytes: 0, check }))
    }

    async fn compare(self, received: Received) {
        let (metrics, query) = (self.metrics.clone(), self.read.query.clone());
        let is_one_object = self.read.name.is_some();
        let code = received.code.as_u16();
        let shadow = match received.code {
            StatusCode::OK => self.compare_state(received).await,
            StatusCode::NOT_FOUND if is_one_object => self.compare_absence(received).await,
            // A refusal of an overloaded apiserver says nothing about its objects.
            code if code == StatusCode::TOO_MANY_REQUESTS || code.is_server_error() => {
                Shadow::Unknown
            }
            _ => Shadow::Different,
        };
        if shadow == Shadow::Different {
            tracing::warn!(
                resource = %query.resource, scope = query.scope.as_str(), one_object = is_one_object,
                code, "shadow check failed: the cache would have answered differently than the apiserver"
            );
        }
        metrics.shadow_check(shadow);
    }

    /// Compares a list, or an object that exists.
    async fn compare_state(self, received: Received) -> Shadow {
        let Some(version) = version(&received.body) else { return Shadow::Unknown };
        let held = self.snapshot.version();
        let reached = if version <= *held && self.read.name.is_some() {
            // It has not changed since, and the cache had it, too.
            self.snapshot.clone()
        } else {
            let deadline = received.at + REACH_WAIT;
            self.replica.reach(&Reach::Version(version.clone()), deadline).await;
            let replayed = self.replica.replayed(self.snapshot.clone(), &version);
            let Some(replayed) = replayed else { return Shadow::Unknown };
            Arc::new(replayed)
        };
        let work = move || self.is_equal(&reached, &received.body);
        match tokio::task::spawn_blocking(work).await {
            Ok(Some(true)) => Shadow::Equal,
            Ok(Some(false)) => Shadow::Different,
            Ok(None) | Err(_) => Shadow::Unknown,
        }
    }

    /// Reports whether the cache would have returned exactly this body; `None` if it could not
    /// return any.
    fn is_equal(&self, snapshot: &Snapshot, body: &[u8]) -> Option<bool> {
        let query = &self.read.query;
        let chunks = match (&self.read.name, self.representation) {
            (None, Representation::Object) => snapshot.list_body(query).chunks,
            (None, Representation::Metadata(partial)) => {
                snapshot.metadata_list_body(query, partial)?.chunks
            }
            // The apiserver's clock at the time of its answer is not known to the second.
            (_, Representation::Table(_)) => return None,
            (Some(name), representation) => {
                let Some(object) = snapshot.object(&self.key(name)) else { return Some(false) };
                match representation {
                    Representation::Object => snapshot.object_body(object),
                    Representation::Metadata(partial) => snapshot.metadata_body(object, partial)?,
                    Representation::Table(_) => return None,
                }
            }
        };
        let mut rest = body;
        let is_prefix = chunks.iter().all(|chunk| match rest.strip_prefix(&**chunk) {
            Some(after) => {
                rest = after;
                true
            }
            None => false,
        });
        Some(is_prefix && rest.is_empty())
    }

    /// Compares a missing object: it must leave the replica, if it was there.
    async fn compare_absence(self, received: Received) -> Shadow {
        let resource = &self.read.query.resource;
        let named = GroupResource::new(&resource.group, &resource.resource);
        let Some(name) = self.read.name.clone() else { return Shadow::Unknown };
        let key = self.key(&name);
        if self.snapshot.object(&key).is_none() {
            // The form of an error then depends on the client's other accepted types: the cache
            // would have forwarded it (S-CT-06).
            let is_other_form = received.body.starts_with(&protobuf::MAGIC)
                && self.snapshot.form() != Form::Protobuf;
            if self.representation != Representation::Object || is_other_form {
                return Shadow::Unknown;
            }
            let same =
                Status::not_found(&named, &name).to_form(self.snapshot.form()) == received.body;
            return if same { Shadow::Equal } else { Shadow::Different };
        }
        let deadline = received.at + REACH_WAIT;
        let mut seen = self.snapshot.version().clone();
        loop {
            let view = self.replica.reach(&Reach::Newer(seen), deadline).await;
            let Some(snapshot) = view.snapshot.clone().filter(|_| view.state == SyncState::Synced)
            else {
                return Shadow::Unknown;
            };
            if snapshot.object(&key).is_none() {
                return Shadow::Equal;
            }
            let is_newest = view.proven_at.is_some_and(|at| at > received.at);
            if is_newest || Instant::now() >= deadline {
                let had = self.snapshot.object(&key).map(|object| object.version().clone());
                let has = snapshot.object(&key).map(|object| object.version().clone());
                // Another object of that name may have been created.
                let same = is_newest && had == has;
                return if same { Shadow::Different } else { Shadow::Unknown };
            }
            seen = snapshot.version().clone();
        }
    }

    fn key(&self, name: &str) -> ObjectKey {
        ObjectKey::new(self.read.query.scope.namespace(), name)
    }
}

fn version(body: &[u8]) -> Option<ResourceVersion> {
    if body.starts_with(&protobuf::MAGIC) {
        let mut learner = Learner::new(Some(protobuf::MEDIA_TYPE), None);
        learner.push(body);
        return match learner.finish() {
            Learned::Object(object) => Some(object.version),
            Learned::List { version, .. } => Some(version),
            _ => None,
        };
    }
    let versioned: Versioned = serde_json::from_slice(body).ok()?;
    ResourceVersion::parse(&versioned.metadata.resource_version).ok()
}

// === impl Watched ===

impl Observer for Watched {
    fn passed(&mut self, bytes: &Bytes) {
        let Some(pending) = &self.check else { return };
        self.bytes += bytes.len() + PIECE_OVERHEAD_BYTES;
        self.chunks.push_back(bytes.clone());
        if self.bytes > BODY_BYTES_MAX {
            pending.check.metrics.limit_reached(Limit::ShadowChecks);
            pending.check.metrics.shadow_check(Shadow::Unknown);
            self.check = None;
            self.chunks.clear();
        }
    }

    /// Finishes the check: the client has the whole body, or is about to.
    fn ended(&mut self) {
        let Some(Pending { check, code, is_gzip }) = self.check.take() else { return };
        let (chunks, at) = (std::mem::take(&mut self.chunks), Instant::now());
        tokio::spawn(async move {
            let decoded = tokio::task::spawn_blocking(move || plain(&chunks, is_gzip)).await;
            match decoded.ok().flatten() {
                Some(body) => check.compare(Received { code, body, at }).await,
                None => check.metrics.shadow_check(Shadow::Unknown),
            }
        });
    }

    fn broke(&mut self, _: &BoxError) {
        self.check = None;
    }
}

/// Returns the body before compression; `None` if it is too large or broken.
fn plain(chunks: &VecDeque<Bytes>, is_gzip: bool) -> Option<Vec<u8>> {
    let bytes = chunks.iter().map(|chunk| &**chunk).collect::<Vec<_>>().concat();
    if !is_gzip {
        return Some(bytes);
    }
    let mut decoded = Vec::new();
    let limit = BODY_BYTES_MAX as u64 + 1;
    GzDecoder::new(&*bytes).take(limit).read_to_end(&mut decoded).ok()?;
    (decoded.len() <= BODY_BYTES_MAX).then_some(decoded)
}
