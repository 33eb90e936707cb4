//! Responses to LIST and GET from a snapshot: the apiserver's own bytes, its headers, its 404.
//!
//! Invariant: it accepts only an [`Authorized`] value and reads only one snapshot.

mod bodies;
mod gzip;
mod made;

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use crate::{
    api::{
        GroupResource, GroupVersionResource, ObjectKey,
        form::Form,
        media::{self, Negotiated, Representation},
        query::Query,
        request::Read,
        status::Status,
    },
    body::Body,
    cache::{
        Cache, Replica, checkpoint::Checkpoint, listing::Listing, portion::Portion,
        render::ListBody, stitch::Stitched, store::Snapshot, table::Moment,
    },
    metrics::Metrics,
    proxy::{
        audit_id::{AUDIT_ID, audit_id},
        authorize::Authorized,
        decide::LocalRead,
    },
};
use bodies::{Bodies, Encoding, Made};
use gzip::Gzip;
use made::MadeBytes;

pub use bodies::Remembered;
pub use made::NotMade;

/// The builder of responses, with recently used bodies.
pub struct Local {
    bodies: Bodies,
    gzip: Arc<Gzip>,
    made: MadeBytes,
}

/// A requested list.
struct Wanted<'a> {
    replica: Arc<Replica>,
    snapshot: Arc<Snapshot>,
    query: &'a Query,
    portion: Portion,
    representation: Representation,
    /// The apiserver's time, for Tables.
    now: Moment,
}

type Chunks = Arc<VecDeque<Bytes>>;

/// The smallest body that the apiserver compresses (S-HDR-01).
const GZIP_BYTES_MIN: usize = 128 * 1024;

/// The largest list of whole objects whose plain body is kept. A larger one is cheap to copy from
/// their pages, and would hold them a second time.
const PLAIN_BYTES_MAX: usize = 128 * 1024;

/// The largest list in another representation whose plain body is kept: each item is printed.
const PRINTED_BYTES_MAX: usize = 1024 * 1024;

/// The capacity for a response's headers, with those that other code adds.
const HEADERS: usize = 6;

// === impl Local ===

impl Local {
    /// Creates it; must be called within a tokio runtime. Its bodies share the limits of the cache.
    pub fn new(cache: Cache, metrics: Metrics) -> Self {
        let made = MadeBytes::new(cache.clone(), metrics.clone());
        let gzip = Arc::new(Gzip::new(made.clone()));
        Self { bodies: Bodies::new(cache, metrics, gzip.clone()), gzip, made }
    }

    /// Returns the apiserver's response to this read at the snapshot's version.
    pub async fn read(
        &self,
        read: &Read,
        answer: Authorized<LocalRead>,
        remembered: &Remembered,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, NotMade> {
        let LocalRead { snapshot, representation, replica, portion, .. } = answer.into_inner();
        let (query, now) = (&read.query, replica.clock().now());
        let wanted = Wanted { replica, snapshot, query, portion, representation, now };
        match &read.name {
            Some(name) => self.object(&wanted, name, headers).await,
            None => self.list(&wanted, remembered, headers).await,
        }
    }

    async fn list(
        &self,
        wanted: &Wanted<'_>,
        remembered: &Remembered,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, NotMade> {
        let accepts_gzip = media::accepts_gzip(headers);
        let given = remembered.of(wanted);
        let (encoding, chunks) = match given.filter(|given| is_right(given, accepts_gzip)) {
            Some(given) => given,
            None => {
                let (encoding, chunks) = Box::pin(self.list_body(wanted, accepts_gzip)).await?;
                // The body of a Table is right for a short time only.
                if wanted.snapshot.form() != Form::Table {
                    remembered.set(wanted, encoding, &chunks);
                }
                (encoding, chunks)
            }
        };
        let form = wanted.representation.form(wanted.snapshot.form());
        let media_type = form.media_type();
        Ok(match encoding {
            Encoding::Gzip => gzipped(chunks, media_type, headers),
            Encoding::Identity => {
                let body = Body::chunks(Arc::unwrap_or_clone(chunks));
                answer(StatusCode::OK, body, media_type, headers)
            }
        })
    }

    async fn list_body(
        &self,
        wanted: &Wanted<'_>,
        accepts_gzip: bool,
    ) -> Result<(Encoding, Chunks), NotMade> {
        if accepts_gzip && let Some(chunks) = self.bodies.get(wanted, Encoding::Gzip).await {
            return Ok((Encoding::Gzip, chunks));
        }
        let kept = self.bodies.get(wanted, Encoding::Identity).await;
        let kept = kept.map(|chunks| (Encoding::Identity, chunks));
        if let Some(kept) = kept.filter(|kept| is_right(kept, accepts_gzip)) {
            return Ok(kept);
        }
        if !accepts_gzip {
            let list = wanted.listing().body().ok_or(NotMade::Unprintable)?;
            return Ok((Encoding::Identity, self.plain(wanted, list).await?));
        }
        let earlier = self.bodies.earlier(wanted).await.unwrap_or_default();
        let made = if let Some(made) = self.unchanged(wanted, &earlier) {
            self.bodies.keep(wanted, Encoding::Gzip, async { made }).await
        } else {
            let (listing, parts) = (wanted.listing(), earlier.stitched);
            let known = listing.known_bytes().or_else(|| Some(parts.as_ref()?.text_bytes()));
            if known.is_none_or(|bytes| bytes <= GZIP_BYTES_MIN) {
                let list = listing.body().ok_or(NotMade::Unprintable)?;
                if list.bytes <= GZIP_BYTES_MIN {
                    return Ok((Encoding::Identity, self.plain(wanted, list).await?));
                }
            }
            let make = self.compressed(wanted, listing, parts);
            self.bodies.keep(wanted, Encoding::Gzip, make).await
        };
        match made.chunks {
            Some(chunks) => Ok((Encoding::Gzip, chunks)),
            None if made.too_many => Err(NotMade::TooManyBytes),
            None => {
                let list = wanted.listing().body().ok_or(NotMade::Unprintable)?;
                Ok((Encoding::Identity, self.plain(wanted, list).await?))
            }
        }
    }

    /// Returns a compressed list of an earlier state at the wanted version, if nothing that it
    /// selects has changed since.
    fn unchanged(&self, wanted: &Wanted<'_>, earlier: &Made) -> Option<Made> {
        let Wanted { replica, snapshot, query, portion, representation, now } = wanted;
        let Made {
            chunks: Some(_), stitched: Some(stitched), checkpoint: Some(then), until, ..
        } = earlier
        else {
            return None;
        };
        if until.is_some_and(|until| *now >= until) {
            return None;
        }
        let checkpoint = then.moved_to(replica, snapshot, query)?;
        let chunks = self.gzip.again(stitched, snapshot, portion, *representation)?;
        Some(Made {
            chunks: Some(Arc::new(chunks)),
            until: *until,
            stitched: Some(stitched.clone()),
            checkpoint: Some(checkpoint),
            too_many: false,
        })
    }

    /// Keeps a plain body, if it is not large.
    async fn plain(&self, wanted: &Wanted<'_>, list: ListBody) -> Result<Chunks, NotMade> {
        let (chunks, most) = match wanted.representation {
            Representation::Object => {
                (self.made.hold_private(list.chunks, list.private)?, PLAIN_BYTES_MAX)
            }
            Representation::Metadata(_) | Representation::Table(_) => {
                (self.made.hold(list.chunks)?, PRINTED_BYTES_MAX)
            }
        };
        let chunks = Arc::new(chunks);
        if list.bytes <= most {
            let kept = Some(chunks.clone());
            let made = Made { chunks: kept, until: list.alike_until, ..Made::default() };
            self.bodies.keep(wanted, Encoding::Identity, async { made }).await;
        }
        Ok(chunks)
    }

    /// Compresses a list, based on an earlier state of it.
    async fn compressed(
        &self,
        wanted: &Wanted<'_>,
        listing: Listing<'_>,
        parts: Option<Arc<Stitched>>,
    ) -> Made {
        let checkpoint = Checkpoint::of(&wanted.replica, &wanted.snapshot);
        match self.gzip.list(listing, parts.clone()).await {
            Ok(joined) if joined.text_bytes > GZIP_BYTES_MIN => Made {
                chunks: Some(Arc::new(joined.chunks)),
                until: joined.alike_until,
                stitched: Some(Arc::new(joined.stitched)),
                checkpoint,
                too_many: false,
            },
            // The next request tries again.
            Err(NotMade::TooManyBytes) => {
                Made { stitched: parts, until: Some(wanted.now), too_many: true, ..Made::default() }
            }
            // It became small, or cannot be printed.
            _ => Made { stitched: parts, ..Made::default() },
        }
    }

    async fn object(
        &self,
        wanted: &Wanted<'_>,
        name: &str,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, NotMade> {
        let Wanted { snapshot, query, representation, now, .. } = wanted;
        let media_type = representation.form(snapshot.form()).media_type();
        let key = ObjectKey::new(query.scope.namespace(), name);
        let chunks = match (snapshot.object(&key), *representation) {
            (Some(object), Representation::Object) => snapshot.object_body(object),
            (Some(object), Representation::Metadata(partial)) => {
                snapshot.metadata_body(object, partial).ok_or(NotMade::Unprintable)?
            }
            (Some(object), Representation::Table(table)) => {
                snapshot.table_body(object, table, *now).ok_or(NotMade::Unprintable)?
            }
            (None, Representation::Object) if !names_protobuf_first(snapshot, headers) => {
                return Ok(not_found(snapshot.form(), &query.resource, name, headers));
            }
            // The form of an error depends on the client's other accepted types (S-CT-06).
            (None, _) => return Err(NotMade::Unprintable),
        };
        if media::accepts_gzip(headers) && bytes(&chunks) > GZIP_BYTES_MIN {
            let chunks = Arc::new(self.gzip.whole(chunks).await?);
            return Ok(gzipped(chunks, media_type, headers));
        }
        Ok(answer(StatusCode::OK, Body::chunks(chunks), media_type, headers))
    }
}

// === impl Wanted ===

impl Wanted<'_> {
    fn listing(&self) -> Listing<'_> {
        self.snapshot.listing(self.query, &self.portion, self.representation, self.now)
    }
}

fn not_found(
    form: Form,
    resource: &GroupVersionResource,
    name: &str,
    headers: &HeaderMap,
) -> Response<Body> {
    let named = GroupResource::new(&resource.group, &resource.resource);
    let status = Status::not_found(&named, name).to_form(form);
    answer(StatusCode::NOT_FOUND, Body::full(status), form.media_type(), headers)
}

/// Reports whether the client gets JSON only because objects of a custom resource have no protobuf:
/// errors have (S-CT-04).
fn names_protobuf_first(snapshot: &Snapshot, headers: &HeaderMap) -> bool {
    snapshot.form() == Form::Json
        && matches!(Negotiated::of(headers, None), Negotiated::Protobuf { .. })
}

/// Reports whether the apiserver would use this encoding for this body.
fn is_right((encoding, chunks): &(Encoding, Chunks), accepts_gzip: bool) -> bool {
    match encoding {
        Encoding::Gzip => accepts_gzip,
        Encoding::Identity => !accepts_gzip || bytes(chunks) <= GZIP_BYTES_MIN,
    }
}

fn bytes(chunks: &VecDeque<Bytes>) -> usize {
    chunks.iter().map(Bytes::len).sum()
}

fn gzipped(
    chunks: Chunks,
    media_type: &'static str,
    request_headers: &HeaderMap,
) -> Response<Body> {
    let body = Body::chunks(Arc::unwrap_or_clone(chunks));
    let mut response = answer(StatusCode::OK, body, media_type, request_headers);
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    fields.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

/// Returns the response of a watch, whose events are still to come (S-WATCH-40).
pub fn stream(body: Body, form: Form, request_headers: &HeaderMap) -> Response<Body> {
    answer(StatusCode::OK, body, form.stream_media_type(), request_headers)
}

/// Returns a response with the headers that the apiserver adds for resources (S-HDR-02,
/// S-HDR-03).
fn answer(
    code: StatusCode,
    body: Body,
    media_type: &'static str,
    request_headers: &HeaderMap,
) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.reserve(HEADERS);
    headers.insert(AUDIT_ID, audit_id(request_headers));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
