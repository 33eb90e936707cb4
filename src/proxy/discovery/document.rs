//! A cached response of the apiserver, with its own bytes and headers.
//!
//! Invariant: a header that belongs to one response only (date, audit id, flow control) is never
//! repeated.

use std::{collections::VecDeque, fmt, sync::OnceLock};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use jiff::{Span, Timestamp, civil::DateTime, fmt::strtime};
use tokio::time::Instant;

use super::wanted::is_tag;
use crate::{
    body::{Body, PIECE_OVERHEAD_BYTES},
    proxy::audit_id::{AUDIT_ID, audit_id},
};

/// A response that may be returned again.
pub struct Document {
    tag: Option<HeaderValue>,
    headers: HeaderMap,
    chunks: VecDeque<Bytes>,
    bytes: usize,
    learned_at: Instant,
    /// `true` if `Last-Modified` is the time of the response, as the index of OpenAPI v3 has it.
    is_modified_now: bool,
    /// The headers of the apiserver's own "not modified", after the first one.
    not_modified: OnceLock<HeaderMap>,
}

/// The form in which a document is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The document with its body.
    Whole,
    /// "Not modified": the client has it already.
    NotModified,
}

/// The prefix of flow control headers, which belong to one request each (S-HDR-03).
const FLOW_CONTROL: &str = "x-kubernetes-pf-";

/// The headers that a cacheable response may vary by: the key has both.
const VARY: [&str; 2] = ["accept", "accept-encoding"];

/// The size of a document without its body and its headers, estimated.
const OVERHEAD_BYTES: usize = 1024;

/// Go's format of times, without the zone.
const GO_TIME: &str = "%a, %d %b %Y %H:%M:%S";

// === impl Document ===

impl Document {
    /// Stores a complete response of status 200, unless it may depend on more than the key holds.
    pub(in crate::proxy) fn of(
        headers: &HeaderMap,
        chunks: &VecDeque<Bytes>,
        at: Instant,
    ) -> Option<Self> {
        if !varies_as_expected(headers) || is_for_one_caller(headers) {
            return None;
        }
        let tag = headers.get(header::ETAG).filter(|tag| is_tag(tag)).cloned();
        let is_modified_now = tag.is_none() && is_modified_now(headers);
        Some(Self {
            tag,
            is_modified_now,
            headers: lasting(headers),
            bytes: OVERHEAD_BYTES + bytes_of(chunks) + 2 * bytes_in(headers),
            chunks: chunks.clone(),
            learned_at: at,
            not_modified: OnceLock::new(),
        })
    }

    /// Returns the entity tag of this version.
    pub fn tag(&self) -> Option<&HeaderValue> {
        self.tag.as_ref()
    }

    /// Returns the memory held, estimated.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reports whether the headers of the apiserver's "not modified" are known.
    pub fn knows_not_modified(&self) -> bool {
        self.not_modified.get().is_some()
    }

    /// Stores the headers of the apiserver's "not modified".
    pub(in crate::proxy) fn learn_not_modified(&self, headers: &HeaderMap) {
        // `Expires` contains a time, and recomputing it is not worth the effort.
        if !headers.contains_key(header::EXPIRES)
            && bytes_in(headers) <= bytes_in(&self.headers) + OVERHEAD_BYTES
        {
            self.not_modified.get_or_init(|| lasting(headers));
        }
    }

    /// Returns the response as the apiserver would send it now; `request` has the client's headers.
    pub(super) fn answer(&self, form: Form, request: &HeaderMap, now: Instant) -> Response<Body> {
        let mut response = match (form, self.not_modified.get()) {
            (Form::NotModified, Some(headers)) => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                *response.headers_mut() = headers.clone();
                response
            }
            _ => self.whole(),
        };
        let headers = response.headers_mut();
        headers.insert(AUDIT_ID, audit_id(request));
        if let Some(expires) = headers.get(header::EXPIRES)
            && let Some(later) =
                later(expires, now.saturating_duration_since(self.learned_at).as_secs())
        {
            headers.insert(header::EXPIRES, later);
        }
        if self.is_modified_now
            && let Some(now) = self.headers.get(header::LAST_MODIFIED).and_then(now_like)
        {
            headers.insert(header::LAST_MODIFIED, now);
        }
        response
    }

    /// Returns the response after the apiserver has just confirmed it with these headers.
    pub(super) fn renewed(&self, not_modified: &HeaderMap) -> Response<Body> {
        let mut response = self.whole();
        for (name, value) in not_modified {
            if is_momentary(name) || name == header::EXPIRES {
                response.headers_mut().insert(name, value.clone());
            } else if is_of_one_caller(name) {
                response.headers_mut().append(name, value.clone());
            }
        }
        response
    }

    fn whole(&self) -> Response<Body> {
        let mut response = Response::new(Body::chunks(self.chunks.clone()));
        *response.headers_mut() = self.headers.clone();
        response
    }
}

impl fmt::Debug for Document {
    /// Prints the type only, never the content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

fn bytes_of(chunks: &VecDeque<Bytes>) -> usize {
    chunks.iter().map(|chunk| chunk.len() + PIECE_OVERHEAD_BYTES).sum()
}

/// Returns the bytes of headers; those of a later "not modified" are assumed to be no more.
fn bytes_in(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

fn varies_as_expected(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::VARY).iter().map(HeaderValue::to_str);
    let mut names = values.flat_map(|value| value.unwrap_or("*").split(','));
    names.all(|name| VARY.iter().any(|known| name.trim().eq_ignore_ascii_case(known)))
}

/// Reports whether a response has a header that only its caller may get: the apiserver warns users of
/// some tokens, and a load balancer may set a cookie.
pub(in crate::proxy) fn is_for_one_caller(headers: &HeaderMap) -> bool {
    headers.keys().any(is_of_one_caller)
}

fn is_of_one_caller(name: &HeaderName) -> bool {
    [header::SET_COOKIE, header::CONTENT_RANGE, header::WARNING].contains(name)
}

/// Reports whether the header belongs to one response only.
fn is_momentary(name: &HeaderName) -> bool {
    *name == AUDIT_ID || *name == header::DATE || name.as_str().starts_with(FLOW_CONTROL)
}

/// Returns the headers that every response with this document has; the body gives its length.
fn lasting(headers: &HeaderMap) -> HeaderMap {
    let kept = headers.iter().filter(|(name, _)| {
        !is_momentary(name) && *name != header::CONTENT_LENGTH && *name != header::CONNECTION
    });
    let mut lasting = HeaderMap::new();
    for (name, value) in kept {
        lasting.append(name.clone(), value.clone());
    }
    lasting
}

/// Reports whether the last change has the time of the response, which is dated as its head is
/// written: at most a second later.
fn is_modified_now(headers: &HeaderMap) -> bool {
    let (Some(modified), Some(date)) =
        (headers.get(header::LAST_MODIFIED), headers.get(header::DATE))
    else {
        return false;
    };
    modified == date || later(modified, 1).is_some_and(|later| later == date)
}

/// Returns the present time in the zone of another, which is UTC by some name.
fn now_like(other: &HeaderValue) -> Option<HeaderValue> {
    let (_, zone) = other.to_str().ok()?.rsplit_once(' ')?;
    HeaderValue::from_str(&format!("{} {zone}", Timestamp::now().strftime(GO_TIME))).ok()
}

/// Returns a time as Go prints it, some seconds later, in any zone.
fn later(expires: &HeaderValue, seconds: u64) -> Option<HeaderValue> {
    let (time, zone) = expires.to_str().ok()?.rsplit_once(' ')?;
    let time: DateTime = strtime::parse(GO_TIME, time).ok()?.to_datetime().ok()?;
    let later =
        time.checked_add(Span::new().try_seconds(i64::try_from(seconds).ok()?).ok()?).ok()?;
    HeaderValue::from_str(&format!("{} {zone}", later.strftime(GO_TIME))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn document(pairs: &[(&'static str, &'static str)], at: Instant) -> Option<Document> {
        Document::of(&headers(pairs), &VecDeque::from([Bytes::from("body")]), at)
    }

    #[test]
    fn headers_of_one_response_are_not_repeated() {
        let at = Instant::now();
        let kept = document(
            &[
                ("audit-id", "1"),
                ("date", "then"),
                ("x-kubernetes-pf-flowschema-uid", "f"),
                ("content-length", "4"),
                ("etag", "\"A\""),
                ("vary", "Accept-Encoding"),
                ("vary", "Accept"),
                ("cache-control", "public"),
            ],
            at,
        );
        let kept = kept.expect("a document");
        let again = kept.answer(Form::Whole, &headers(&[("audit-id", "2")]), at);
        let expected = headers(&[
            ("etag", "\"A\""),
            ("vary", "Accept-Encoding"),
            ("vary", "Accept"),
            ("cache-control", "public"),
            ("audit-id", "2"),
        ]);
        assert_eq!(again.headers(), &expected);
        for without in [HeaderMap::new(), headers(&[("audit-id", "")])] {
            let other = kept.answer(Form::Whole, &without, at);
            assert_eq!(other.headers()["audit-id"].len(), 36);
        }
    }

    #[test]
    fn not_modified_has_the_apiservers_own_headers() {
        let at = Instant::now();
        let kept = document(&[("etag", "\"A\""), ("content-type", "text/plain")], at);
        let kept = kept.expect("a document");
        assert!(!kept.knows_not_modified());
        kept.learn_not_modified(&headers(&[("etag", "\"A\""), ("audit-id", "1"), ("date", "x")]));
        let answer = kept.answer(Form::NotModified, &headers(&[("audit-id", "2")]), at);
        assert_eq!(answer.status(), 304);
        assert_eq!(answer.headers(), &headers(&[("etag", "\"A\""), ("audit-id", "2")]));
    }

    #[test]
    fn a_confirmed_document_has_the_headers_of_its_confirmation() {
        let kept = document(&[("etag", "\"A\""), ("vary", "Accept")], Instant::now());
        let confirmation = [("audit-id", "9"), ("vary", "x"), ("expires", "later")];
        // The apiserver warns one caller.
        let confirmation = headers(&[&confirmation[..], &[("warning", "299")]].concat());
        assert!(is_for_one_caller(&confirmation));
        let answer = kept.expect("a document").renewed(&confirmation);
        assert_eq!(answer.status(), 200);
        let expected = [
            ("etag", "\"A\""),
            ("vary", "Accept"),
            ("audit-id", "9"),
            ("expires", "later"),
            ("warning", "299"),
        ];
        assert_eq!(answer.headers(), &headers(&expected));
    }

    #[test]
    fn headers_and_tiny_chunks_count_as_memory() {
        let at = Instant::now();
        let long = HeaderValue::from_str(&"x".repeat(200_000)).expect("a header");
        let headers = HeaderMap::from_iter([(HeaderName::from_static("x-long"), long)]);
        let chunks: VecDeque<_> = (0..1000).map(|_| Bytes::from_static(b"x")).collect();
        let large = Document::of(&headers, &VecDeque::new(), at).expect("a document");
        let tiny = Document::of(&HeaderMap::new(), &chunks, at).expect("a document");
        assert!(large.bytes() >= 200_000 && tiny.bytes() >= 100_000);
        tiny.learn_not_modified(&headers);
        assert!(!tiny.knows_not_modified(), "it would not be counted");
    }

    #[test]
    fn an_expires_header_is_shifted_in_any_zone() {
        let at = Instant::now();
        let expires = ("expires", "Sun, 31 Dec 2028 23:59:30 UTC");
        let kept = document(&[expires], at).expect("a document");
        let answered =
            kept.answer(Form::Whole, &HeaderMap::new(), at + std::time::Duration::from_secs(40));
        assert_eq!(answered.headers()["expires"], "Mon, 01 Jan 2029 00:00:10 UTC");
    }

    #[test]
    fn a_last_change_that_is_the_time_of_the_response_is_always_now() {
        let modified = ("last-modified", "Sun, 31 Dec 2028 23:59:59 GMT");
        let answered = |more: &[(&'static str, &'static str)]| {
            let headers: Vec<_> = more.iter().copied().chain([modified]).collect();
            let kept = document(&headers, Instant::now()).expect("a document");
            let answer = kept.answer(Form::Whole, &HeaderMap::new(), Instant::now());
            answer.headers()["last-modified"].clone()
        };
        for date in ["Sun, 31 Dec 2028 23:59:59 GMT", "Mon, 01 Jan 2029 00:00:00 GMT"] {
            let answered = answered(&[("date", date)]);
            let now = now_like(&answered).expect("a time");
            assert!(answered == now || later(&answered, 1).as_ref() == Some(&now), "{answered:?}");
        }
        let date = ("date", "Mon, 01 Jan 2029 00:00:01 GMT");
        assert_eq!(answered(&[date]), modified.1, "it changed before");
        assert_eq!(answered(&[("date", modified.1), ("etag", "\"A\"")]), modified.1);
        assert_eq!(answered(&[]), modified.1);
    }

    #[test]
    fn a_response_that_depends_on_other_headers_is_not_cached() {
        let at = Instant::now();
        for pair in [("vary", "*"), ("vary", "Origin"), ("set-cookie", "a=b"), ("warning", "299")] {
            assert!(document(&[pair], at).is_none(), "{pair:?}");
        }
        let weak = document(&[("etag", "W/\"A\"")], at).expect("a document");
        assert_eq!(weak.tag(), None);
    }
}
