//! An HTTP request parsed as an API request: the classify step (S-URL-01..12, S-LIST-01..27,
//! S-GET-01..10).
//!
//! No request is refused here. A fully parsed one becomes a [`Read`]; every other one has the
//! reason why it must be forwarded unchanged (S-PRIME-01, S-PRIME-03). URL and headers are parsed
//! once, in linear time, whatever their content.

mod duration;
mod not_modelled;
mod parameters;
mod path;
mod read;
mod watch;

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, Method, Uri, header};

pub use self::{not_modelled::NotModelled, parameters::decode_text as decoded};
use self::{
    parameters::{Parameter, Parameters},
    path::{Path, Prefix},
};
use super::{
    GroupVersionResource, ObjectKey, Scope, Verb, continue_token::TokenForm, credential,
    media::Include, query::Query, selector::NAME_PATH, version::VersionMatch,
};

/// An HTTP request, parsed as the apiserver's RequestInfo does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly every request is of the large variant")]
pub enum RequestInfo {
    /// It addresses a resource.
    Resource(ResourceRequest),
    /// It addresses no resource: discovery, health, metrics, or an unknown path.
    NonResource(NonResourceRequest),
}

/// A request that addresses a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRequest {
    /// Its verb.
    pub verb: Verb,
    /// Its resource.
    pub resource: GroupVersionResource,
    /// The namespace of the path; for a named Namespace its own name (S-URL-04).
    pub scope: Scope,
    /// The object named by the path.
    pub name: Option<Arc<str>>,
    /// The part of the object it addresses, such as `status` or `log`.
    pub subresource: Option<Arc<str>>,
    /// The read of a plain GET or LIST; `Err` is the reason why it must be forwarded unchanged.
    pub read: Result<Read, NotModelled>,
    /// The page of a LIST that continues an earlier one; `read` has the reason otherwise.
    pub page: Option<Page>,
    /// The watch of a WATCH whose every part is parsed; `read` has the reason otherwise.
    pub watch: Option<Watch>,
    /// `true` if an added resourceVersion would only relax the freshness. It is so for a plain GET
    /// or LIST without resourceVersion, resourceVersionMatch, continue, limit, watch,
    /// sendInitialEvents and unknown parameters.
    pub rewritable: bool,
    /// `?timeout=`, or a shorter `timeoutSeconds` of a LIST: it bounds Listless's own waits
    /// (S-URL-11). It is also `None` if zero or negative.
    pub timeout: Option<Duration>,
    /// `true` if `dryRun` is in the query: the write teaches nothing (S-WRITE-09).
    pub dry_run: bool,
}

/// The parts of a request that metrics and warnings need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Its verb.
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

/// A GET or LIST whose every parameter is parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Its query; a GET is a query with `metadata.name` pinned.
    pub query: Query,
    /// The object named by the path of a GET. `None` for a LIST, even one that pins
    /// `metadata.name`.
    pub name: Option<Arc<str>>,
    /// The version that it asks for.
    pub version: VersionMatch,
    /// The `limit` of a LIST, if it is above zero.
    pub limit: Option<u64>,
    /// The raw `pretty` value, for media negotiation.
    pub pretty: Option<String>,
    /// The part of each object in a Table.
    pub include: Include,
}

/// A LIST that continues an earlier one, and whose every parameter is parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its query.
    pub query: Query,
    /// The `continue` token, as the earlier LIST returned it.
    pub token: Arc<str>,
    /// The read of the rest, if its token and every parameter are understood.
    pub rest: Option<Rest>,
}

/// The rest of a LIST in pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The read, at exactly the token's version.
    pub read: Read,
    /// The key after which it begins, as the store orders keys.
    pub after: Arc<str>,
    /// The printed form of the token.
    pub form: TokenForm,
}

/// A WATCH whose every parameter is parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The query that it follows.
    pub query: Query,
    /// Its start version; never [`VersionMatch::Exact`].
    pub version: VersionMatch,
    /// Its first events.
    pub start: Start,
    /// `true` if the client wants bookmarks.
    pub bookmarks: bool,
    /// The part of each object in a Table.
    pub include: Include,
    /// Its length; `None` if the server chooses it.
    pub timeout: Option<Duration>,
}

/// The first events of a WATCH (S-WATCH-01..07).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The whole state as ADDED events, and a bookmark at their end.
    State,
    /// The events after the version.
    Events,
}

// === impl RequestInfo ===

impl RequestInfo {
    /// Parses a request. It never fails: the result contains the reason why a part was not parsed.
    pub fn parse(method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        let Some(path) = Path::parse(uri.path()) else {
            return Self::NonResource(NonResourceRequest { path: uri.path().into() });
        };
        let parameters = Parameters::parse(uri.query().unwrap_or_default());
        let verb = verb(method, &path, parameters.flag(Parameter::Watch));
        let timeout = duration::timeout(parameters.get(Parameter::Timeout).unwrap_or_default());
        let text = uri.path_and_query().map_or("", |text| text.as_str());
        let plain = match credential::is_exposed(headers, text) {
            true => Err(NotModelled::RepeatsToken),
            false => plain_read(method, &path, verb, headers),
        };
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

    /// Returns the verb; [`Verb::Other`] if it addresses no resource.
    pub fn verb(&self) -> Verb {
        self.resource_request().map_or(Verb::Other, |request| request.verb)
    }

    /// Returns the request if it addresses a resource.
    pub fn resource_request(&self) -> Option<&ResourceRequest> {
        match self {
            Self::Resource(request) => Some(request),
            Self::NonResource(_) => None,
        }
    }

    /// Returns the parts that metrics and warnings need.
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

    /// Returns the metric label of the scope, as in the apiserver's own metrics; empty if no
    /// resource is addressed.
    pub fn scope_label(&self) -> &'static str {
        self.resource_request().map_or("", ResourceRequest::scope_label)
    }
}

// === impl Outline ===

impl Outline {
    /// Parses a request of Listless itself: its path, and only `watch` of its query.
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
    /// Returns `resource` for one object, else `namespace` or `cluster`.
    pub fn scope_label(&self) -> &'static str {
        if self.name.is_some() || self.verb == Verb::Create {
            return "resource";
        }
        self.scope.as_str()
    }

    /// Reports whether it is a LIST or GET without resourceVersion, as far as it was parsed.
    pub fn is_unsafe_read(&self) -> bool {
        let read = self.read.as_ref();
        read.is_ok_and(|read| matches!(read.version, VersionMatch::MostRecent))
    }

    /// Returns the key of the object that the path names.
    pub fn object_key(&self) -> Option<ObjectKey> {
        let name = self.name.as_deref()?;
        Some(ObjectKey::new(storage_scope(&self.resource, &self.scope).namespace(), name))
    }
}

// === impl Read ===

impl Read {
    /// Returns the name in an access review of this read. It is the path's name, or the one that a
    /// LIST pins by field selector. A pinned name must be valid in a path (S-URL-07).
    pub fn review_name(&self) -> Option<&str> {
        let is_segment = |name: &&str| !matches!(*name, "." | "..") && !name.contains(['/', '%']);
        self.name.as_deref().or_else(|| self.query.fields.pinned(NAME_PATH).filter(is_segment))
    }
}

/// Returns the value of a `timeout` parameter, which bounds the apiserver's work, if it is a
/// duration above zero (S-URL-11).
pub fn timeout(text: &str) -> Option<Duration> {
    duration::timeout(text).ok().flatten()
}

/// Returns the verb of a resource request (S-URL-03, S-URL-06, S-URL-08).
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

/// Returns the timeout that the client of a LIST states.
fn list_timeout(verb: Verb, parameters: &Parameters<'_>) -> Option<Duration> {
    let text = parameters.get(Parameter::TimeoutSeconds).filter(|_| verb == Verb::List)?;
    text.parse().ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

fn shortest(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

/// Reports whether everything except the query string is that of an ordinary GET, LIST or WATCH.
fn plain_read(
    method: &Method,
    path: &Path,
    verb: Verb,
    headers: &HeaderMap,
) -> Result<(), NotModelled> {
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
    // A watch over a WebSocket has an origin, too, and no header that depends on it.
    let is_socket = verb == Verb::Watch && headers.contains_key(header::UPGRADE);
    if headers.contains_key(header::ORIGIN) && !is_socket {
        return Err(NotModelled::CrossOrigin);
    }
    Ok(())
}

/// Returns the scope in which objects are stored: a Namespace lies in no namespace, though its path
/// says so (S-URL-04).
fn storage_scope(resource: &GroupVersionResource, scope: &Scope) -> Scope {
    if resource.group.is_empty() && &*resource.resource == "namespaces" {
        return Scope::All;
    }
    scope.clone()
}

#[cfg(test)]
mod tests;
