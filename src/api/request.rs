//! An HTTP request read as an API request: the classify step (S-URL-01..12, S-LIST-01..27,
//! S-GET-01..10).
//!
//! Nothing here refuses a request. What is understood completely becomes a [`Read`]; everything
//! else carries the reason why it must be forwarded as it is (S-PRIME-01, S-PRIME-03). Reads URL
//! and headers once, in linear time, whatever they hold.

mod duration;
mod parameters;
mod path;
mod read;
mod watch;

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, Method, Uri, header};

pub use self::parameters::decode_text as decoded;
use self::{
    parameters::{Parameter, Parameters},
    path::{Path, Prefix},
};
use super::{
    GroupVersionResource, ObjectKey, Scope, Verb, query::Query, selector::NAME_PATH,
    version::VersionMatch,
};

/// An HTTP request as the apiserver's RequestInfo reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly every request is of the large variant")]
pub enum RequestInfo {
    /// It addresses a resource.
    Resource(ResourceRequest),
    /// It addresses something else: discovery, health, metrics, or nothing at all.
    NonResource(NonResourceRequest),
}

/// A request that addresses a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRequest {
    /// What it does.
    pub verb: Verb,
    /// What it does it to.
    pub resource: GroupVersionResource,
    /// The namespace of the path; for a named Namespace its own name (S-URL-04).
    pub scope: Scope,
    /// The object named by the path.
    pub name: Option<Arc<str>>,
    /// The part of the object it addresses, such as `status` or `log`.
    pub subresource: Option<Arc<str>>,
    /// What a plain GET or LIST asks; `Err` says why it must be forwarded as it is.
    pub read: Result<Read, NotModelled>,
    /// What a LIST that continues an earlier one asks; `read` has the reason otherwise.
    pub page: Option<Page>,
    /// What a WATCH asks, when every part of it is understood; `read` has the reason otherwise.
    pub watch: Option<Watch>,
    /// Whether adding resourceVersion to the query would only relax its freshness: a plain GET or
    /// LIST with resourceVersion, resourceVersionMatch, continue, limit, watch, sendInitialEvents
    /// and every unknown parameter absent.
    pub rewritable: bool,
    /// `?timeout=`, and a LIST's `timeoutSeconds` if that is shorter: what bounds our own waiting
    /// (S-URL-11); `None` also when zero or negative.
    pub timeout: Option<Duration>,
    /// `dryRun` is in the query: the write teaches nothing (S-WRITE-09).
    pub dry_run: bool,
}

/// The little of a request that metrics and warnings need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// What it does.
    pub verb: Verb,
    /// The resource it addresses, if any.
    pub resource: Option<GroupVersionResource>,
    /// `true` for a GET or LIST of objects, not of a part of one.
    pub is_plain_read: bool,
}

/// A request that addresses no resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonResourceRequest {
    /// The path as sent, still percent-encoded.
    pub path: Arc<str>,
}

/// A GET or LIST whose every parameter is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// What it selects; a GET is a query with `metadata.name` pinned.
    pub query: Query,
    /// The object named by the path: a GET. `None`: a LIST, even one that pins `metadata.name`.
    pub name: Option<Arc<str>>,
    /// Which version it asks for.
    pub version: VersionMatch,
    /// LIST `limit`, when given and above zero.
    pub limit: Option<u64>,
    /// Raw `pretty` value, for media negotiation.
    pub pretty: Option<String>,
}

/// A LIST that continues an earlier one, and whose every parameter is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// What it selects.
    pub query: Query,
    /// The `continue` it was given, as the earlier one returned it.
    pub token: Arc<str>,
}

/// A WATCH whose every parameter is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// What it follows.
    pub query: Query,
    /// From which version on; never [`VersionMatch::Exact`].
    pub version: VersionMatch,
    /// What it sends first.
    pub start: Start,
    /// Whether the client wants bookmarks.
    pub bookmarks: bool,
    /// When it ends; `None`: when the server likes.
    pub timeout: Option<Duration>,
}

/// What a WATCH sends first (S-WATCH-01..07).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The whole state as ADDED events, and a bookmark that marks their end.
    State,
    /// What happened after the version.
    Events,
}

/// Why a request cannot be answered from memory, whatever the cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotModelled {
    /// The method is not GET.
    NotARead,
    /// It is a WATCH, not a GET or LIST.
    Watch,
    /// It addresses a part of an object.
    Subresource,
    /// The path has escapes, empty or dot segments, a slash at the end, or a deprecated prefix.
    UnusualPath,
    /// The query has a `;`, a bad escape, or bytes that are not UTF-8.
    MalformedQuery,
    /// A parameter we do not know for this verb.
    UnknownParameter,
    /// A known parameter comes twice.
    RepeatedParameter,
    /// It continues an earlier LIST.
    Continue,
    /// The apiserver refuses these parameters together.
    IllegalCombination,
    /// resourceVersion is not a plain positive number or 0.
    BadVersion,
    /// A selector does not parse.
    BadSelector,
    /// A field selector names a field whose value we do not know.
    UnmodelledField,
    /// A selector above 4 KiB or 64 values, or a part of the path above 253 bytes.
    Oversized,
    /// Some other parameter's value does not parse.
    BadValue,
    /// The GET carries a body.
    Body,
}

// === impl RequestInfo ===

impl RequestInfo {
    /// Never fails: what is not understood is said in the result.
    pub fn parse(method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        let Some(path) = Path::parse(uri.path()) else {
            return Self::NonResource(NonResourceRequest { path: uri.path().into() });
        };
        let parameters = Parameters::parse(uri.query().unwrap_or_default());
        let verb = verb(method, &path, parameters.flag(Parameter::Watch));
        let timeout = duration::timeout(parameters.get(Parameter::Timeout).unwrap_or_default());
        let plain = plain_read(method, &path, headers);
        let timed = timeout.map(|_| ()).map_err(|_| NotModelled::BadValue);
        let understood = plain.and(timed);
        let (read, watch) = match understood {
            Err(why) => (Err(why), None),
            Ok(()) if verb == Verb::Watch => match watch::watch(&path, &parameters) {
                Ok(watch) => (Err(NotModelled::Watch), Some(watch)),
                Err(why) => (Err(why), None),
            },
            Ok(()) => (read::read(&path, &parameters), None),
        };
        Self::Resource(ResourceRequest {
            verb,
            rewritable: plain.is_ok()
                && verb != Verb::Watch
                && read::rewritable(&path, &parameters),
            page: understood.ok().and_then(|()| read::page(&path, &parameters)),
            timeout: shortest(timeout.ok().flatten(), list_timeout(verb, &parameters)),
            dry_run: parameters.dry_run,
            read,
            watch,
            resource: path.resource,
            scope: path.scope,
            name: path.name,
            subresource: path.subresource,
        })
    }

    /// What the request does; [`Verb::Other`] when it addresses no resource.
    pub fn verb(&self) -> Verb {
        self.resource_request().map_or(Verb::Other, |request| request.verb)
    }

    /// The request when it addresses a resource.
    pub fn resource_request(&self) -> Option<&ResourceRequest> {
        match self {
            Self::Resource(request) => Some(request),
            Self::NonResource(_) => None,
        }
    }

    /// Returns what metrics and warnings of the request need.
    pub fn outline(&self) -> Outline {
        match self {
            Self::NonResource(_) => Outline::NONE,
            Self::Resource(ResourceRequest { verb, resource, subresource, .. }) => Outline {
                verb: *verb,
                resource: Some(resource.clone()),
                is_plain_read: matches!(verb, Verb::Get | Verb::List) && subresource.is_none(),
            },
        }
    }

    /// The metric label of the scope, as the apiserver's own metrics have it; empty when no
    /// resource is addressed.
    pub fn scope_label(&self) -> &'static str {
        self.resource_request().map_or("", ResourceRequest::scope_label)
    }
}

// === impl Outline ===

impl Outline {
    /// Reads a request of Listless's own: its path, and no more of its query than `watch`.
    pub fn of_own(method: &Method, uri: &Uri) -> Self {
        let Some(path) = Path::parse(uri.path()) else { return Self::NONE };
        let mut pairs = uri.query().unwrap_or_default().split('&');
        let watch = pairs.any(|pair| matches!(pair, "watch=1" | "watch=true"));
        let verb = verb(method, &path, watch);
        let is_plain_read = matches!(verb, Verb::Get | Verb::List) && path.subresource.is_none();
        Self { verb, is_plain_read, resource: Some(path.resource) }
    }

    const NONE: Self = Self { verb: Verb::Other, resource: None, is_plain_read: false };
}

// === impl ResourceRequest ===

impl ResourceRequest {
    /// `resource` for one object, else `namespace` or `cluster`.
    pub fn scope_label(&self) -> &'static str {
        if self.name.is_some() || self.verb == Verb::Create {
            return "resource";
        }
        self.scope.as_str()
    }

    /// Whether it is a LIST or GET that leaves the resourceVersion unset, as far as it is understood.
    pub fn is_unsafe_read(&self) -> bool {
        let read = self.read.as_ref();
        read.is_ok_and(|read| matches!(read.version, VersionMatch::MostRecent))
    }

    /// The key of the object the path names.
    pub fn object_key(&self) -> Option<ObjectKey> {
        let name = self.name.as_deref()?;
        Some(ObjectKey::new(storage_scope(&self.resource, &self.scope).namespace(), name))
    }
}

// === impl Read ===

impl Read {
    /// The name an access review of this read carries: the path's, or the one a LIST pins by
    /// field selector when it could stand in a path (S-URL-07).
    pub fn review_name(&self) -> Option<&str> {
        let is_segment = |name: &&str| !matches!(*name, "." | "..") && !name.contains(['/', '%']);
        self.name.as_deref().or_else(|| self.query.fields.pinned(NAME_PATH).filter(is_segment))
    }
}

// === impl NotModelled ===

impl NotModelled {
    /// The word in `Cache-Status`, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotARead => "not-a-read",
            Self::Watch => "watch",
            Self::Subresource => "subresource",
            Self::UnusualPath => "unusual-path",
            Self::MalformedQuery => "malformed-query",
            Self::UnknownParameter => "unknown-parameter",
            Self::RepeatedParameter => "repeated-parameter",
            Self::Continue => "continue",
            Self::IllegalCombination => "illegal-combination",
            Self::BadVersion => "bad-version",
            Self::BadSelector => "bad-selector",
            Self::UnmodelledField => "unmodelled-field",
            Self::Oversized => "oversized",
            Self::BadValue => "bad-value",
            Self::Body => "body",
        }
    }
}

/// How long a `timeout` parameter lets the apiserver take, if it is a duration above zero (S-URL-11).
pub fn timeout(text: &str) -> Option<Duration> {
    duration::timeout(text).ok().flatten()
}

/// The verb of a resource request (S-URL-03, S-URL-06, S-URL-08).
fn verb(method: &Method, path: &Path, watch: bool) -> Verb {
    let named = path.name.is_some();
    match (path.prefix, method) {
        (Some(Prefix::Watch), _) => Verb::Watch,
        (Some(Prefix::Proxy), _) => Verb::Other,
        (None, &Method::GET | &Method::HEAD) if named => Verb::Get,
        (None, &Method::GET | &Method::HEAD) if watch => Verb::Watch,
        (None, &Method::GET | &Method::HEAD) => Verb::List,
        (None, &Method::POST) => Verb::Create,
        (None, &Method::PUT) => Verb::Update,
        (None, &Method::PATCH) => Verb::Patch,
        (None, &Method::DELETE) if named => Verb::Delete,
        (None, &Method::DELETE) => Verb::DeleteCollection,
        (None, _) => Verb::Other,
    }
}

/// How long the client of a LIST says that it will wait.
fn list_timeout(verb: Verb, parameters: &Parameters<'_>) -> Option<Duration> {
    let text = parameters.get(Parameter::TimeoutSeconds).filter(|_| verb == Verb::List)?;
    text.parse().ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

fn shortest(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

/// Whether all but the query string is that of an ordinary GET, LIST or WATCH.
fn plain_read(method: &Method, path: &Path, headers: &HeaderMap) -> Result<(), NotModelled> {
    if method != Method::GET {
        return Err(NotModelled::NotARead);
    }
    if path.unusual {
        return Err(NotModelled::UnusualPath);
    }
    if path.subresource.is_some() {
        return Err(NotModelled::Subresource);
    }
    if path.is_oversized() {
        return Err(NotModelled::Oversized);
    }
    let has_length = headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0");
    if has_length || headers.contains_key(header::TRANSFER_ENCODING) {
        return Err(NotModelled::Body);
    }
    Ok(())
}

/// The scope objects are stored under: a Namespace lies in no namespace, though the path of one
/// says so (S-URL-04).
fn storage_scope(resource: &GroupVersionResource, scope: &Scope) -> Scope {
    if resource.group.is_empty() && &*resource.resource == "namespaces" {
        return Scope::All;
    }
    scope.clone()
}

#[cfg(test)]
mod tests;
