//! Shadow checks: what memory would have said, held against what the apiserver said.
//!
//! In mode `observe` some answers are read along while they pass, unchanged. Afterwards the replica is
//! brought to exactly the answer's version, and both bodies are compared byte for byte. What cannot be
//! compared at one version is unknown, never different. No content reaches a log.

use std::{
    collections::VecDeque,
    io::Read as _,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{Response, StatusCode, header};
use http_body::{Body as _, Frame, SizeHint};
use serde::Deserialize;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::decide::LocalRead;
use crate::{
    api::{
        GroupResource, ObjectKey, media::Representation, request::Read, status::Status,
        version::ResourceVersion,
    },
    body::{Body, BoxError},
    cache::{Reach, Replica, State, store::Snapshot},
    metrics::{Limit, Metrics, Shadow},
};

/// The checks under way.
pub(super) struct Shadows {
    places: Arc<Semaphore>,
    metrics: Metrics,
}

/// One check, from the decision to the verdict.
pub(super) struct Check {
    read: Read,
    /// What memory held when it was asked.
    snapshot: Arc<Snapshot>,
    representation: Representation,
    replica: Arc<Replica>,
    metrics: Metrics,
    _place: OwnedSemaphorePermit,
}

/// An answer's body that is read along.
struct Watched {
    inner: Body,
    chunks: VecDeque<Bytes>,
    bytes: usize,
    check: Option<Pending>,
}

/// What is known of the answer before its body.
struct Pending {
    check: Check,
    code: StatusCode,
    is_gzip: bool,
}

/// What the apiserver said.
struct Said {
    code: StatusCode,
    body: Vec<u8>,
    at: Instant,
}

/// The part of an answer that says which version it is of.
#[derive(Deserialize)]
struct Versioned {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

/// So many checks at once; each may hold an answer, and what memory held when it was asked.
const CHECKS_MAX: usize = 8;

/// The largest answer that is compared, compressed or not.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How long a replica may take to reach the answer's version: bookmarks come each minute.
const REACH_WAIT: Duration = Duration::from_secs(90);

// === impl Shadows ===

impl Shadows {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { places: Arc::new(Semaphore::new(CHECKS_MAX)), metrics }
    }

    /// A check of the answer to this read, which memory would have answered so; none, if as many as
    /// may be are under way.
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
    /// The same answer, read along.
    pub(super) fn attach(self, response: Response<Body>) -> Response<Body> {
        let code = response.status();
        let encoding = response.headers().get(header::CONTENT_ENCODING);
        let is_gzip = encoding.is_some_and(|encoding| encoding == "gzip");
        let check = Some(Pending { check: self, code, is_gzip });
        response.map(|inner| {
            let mut watched = Watched { inner, chunks: VecDeque::new(), bytes: 0, check };
            if watched.inner.is_end_stream() {
                watched.conclude();
            }
            Body::wrap(watched)
        })
    }

    async fn compare(self, said: Said) {
        let (metrics, query) = (self.metrics.clone(), self.read.query.clone());
        let is_one_object = self.read.name.is_some();
        let code = said.code.as_u16();
        let shadow = match said.code {
            StatusCode::OK => self.compare_state(said).await,
            StatusCode::NOT_FOUND if is_one_object => self.compare_absence(said).await,
            // What the apiserver has no time for says nothing about what it holds.
            code if code == StatusCode::TOO_MANY_REQUESTS || code.is_server_error() => {
                Shadow::Unknown
            }
            _ => Shadow::Different,
        };
        if shadow == Shadow::Different {
            tracing::warn!(
                resource = %query.resource, scope = query.scope.as_str(), one_object = is_one_object,
                code, "memory would have said something else than the apiserver"
            );
        }
        metrics.shadow_check(shadow);
    }

    /// A list, or an object that is there.
    async fn compare_state(self, said: Said) -> Shadow {
        let Some(version) = version(&said.body) else { return Shadow::Unknown };
        let held = self.snapshot.version();
        let reached = if version <= *held && self.read.name.is_some() {
            // It has not changed since; memory had it, too.
            self.snapshot.clone()
        } else {
            let deadline = said.at + REACH_WAIT;
            self.replica.reach(&Reach::Version(version.clone()), deadline).await;
            let rolled = self.replica.rolled(self.snapshot.clone(), &version);
            let Some(rolled) = rolled else { return Shadow::Unknown };
            Arc::new(rolled)
        };
        let work = move || self.is_said(&reached, &said.body);
        match tokio::task::spawn_blocking(work).await {
            Ok(Some(true)) => Shadow::Equal,
            Ok(Some(false)) => Shadow::Different,
            Ok(None) | Err(_) => Shadow::Unknown,
        }
    }

    /// Whether memory would have given exactly this body; nothing, if it could not give any.
    fn is_said(&self, snapshot: &Snapshot, body: &[u8]) -> Option<bool> {
        let query = &self.read.query;
        let chunks = match (&self.read.name, self.representation) {
            (None, Representation::Object) => snapshot.list_body(query).chunks,
            (None, Representation::Metadata(version)) => {
                snapshot.metadata_list_body(query, version)?.chunks
            }
            (Some(name), representation) => {
                let Some(object) = snapshot.object(&self.key(name)) else { return Some(false) };
                match representation {
                    Representation::Object => snapshot.object_body(object),
                    Representation::Metadata(version) => snapshot.metadata_body(object, version)?,
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

    /// An object that is not there: it must leave the replica, if it was there.
    async fn compare_absence(self, said: Said) -> Shadow {
        let resource = &self.read.query.resource;
        let named = GroupResource::new(&resource.group, &resource.resource);
        let Some(name) = self.read.name.clone() else { return Shadow::Unknown };
        let key = self.key(&name);
        if self.snapshot.object(&key).is_none() {
            // How an error is laid out then depends on what else the client would take: memory would
            // have left that to the apiserver (S-CT-06).
            if matches!(self.representation, Representation::Metadata(_)) {
                return Shadow::Unknown;
            }
            let same = Status::not_found(&named, &name).to_body() == said.body;
            return if same { Shadow::Equal } else { Shadow::Different };
        }
        let deadline = said.at + REACH_WAIT;
        let mut seen = self.snapshot.version().clone();
        loop {
            let view = self.replica.reach(&Reach::Newer(seen), deadline).await;
            let Some(snapshot) = view.snapshot.clone().filter(|_| view.state == State::Synced)
            else {
                return Shadow::Unknown;
            };
            if snapshot.object(&key).is_none() {
                return Shadow::Equal;
            }
            let is_newest = view.proven_at.is_some_and(|at| at > said.at);
            if is_newest || Instant::now() >= deadline {
                let had = self.snapshot.object(&key).map(|object| object.version().clone());
                let has = snapshot.object(&key).map(|object| object.version().clone());
                // Another of that name may have come to be.
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
    let versioned: Versioned = serde_json::from_slice(body).ok()?;
    ResourceVersion::parse(&versioned.metadata.resource_version).ok()
}

// === impl Watched ===

impl Watched {
    fn read_along(&mut self, frame: &Frame<Bytes>) {
        let (Some(data), Some(pending)) = (frame.data_ref(), &self.check) else { return };
        self.bytes += data.len();
        self.chunks.push_back(data.clone());
        if self.bytes > BODY_BYTES_MAX {
            pending.check.metrics.limit_reached(Limit::ShadowChecks);
            pending.check.metrics.shadow_check(Shadow::Unknown);
            self.check = None;
            self.chunks.clear();
        }
    }

    /// The client has all of it, or is about to.
    fn conclude(&mut self) {
        let Some(Pending { check, code, is_gzip }) = self.check.take() else { return };
        let (chunks, at) = (std::mem::take(&mut self.chunks), Instant::now());
        tokio::spawn(async move {
            let decoded = tokio::task::spawn_blocking(move || plain(&chunks, is_gzip)).await;
            match decoded.ok().flatten() {
                Some(body) => check.compare(Said { code, body, at }).await,
                None => check.metrics.shadow_check(Shadow::Unknown),
            }
        });
    }
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.read_along(frame);
                if self.inner.is_end_stream() {
                    self.conclude();
                }
            }
            Poll::Ready(None) => self.conclude(),
            Poll::Ready(Some(Err(_))) => self.check = None,
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The body as it is before compression; none, if it is too large or broken.
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
