//! The common properties of requests: the key of an account, without names and selector values.
//!
//! Every text is bounded, whatever a client sends. Pure.

use http::HeaderMap;

use super::{cost::RequestedVersion, library::Library};
use crate::api::{
    Verb,
    credential::{self, LEFT_OUT},
    query::Query,
    request::{NonResourceRequest, RequestInfo, ResourceRequest, Start},
    selector::NAME_PATH,
    version::VersionMatch,
};

/// The key of an account. Requests with an equal shape share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The caller's name, if the configuration wants it and it is known.
    pub caller: Box<str>,
    /// The client's User-Agent, shortened.
    pub user_agent: Box<str>,
    /// The verb.
    pub verb: Verb,
    /// The resource, or the class of another path.
    pub resource: Box<str>,
    /// The scope: `cluster`, `namespace`, `object` or empty.
    pub scope: &'static str,
    /// The query without its values.
    pub query: Box<str>,
    /// The properties that detectors use.
    pub traits: Traits,
}

/// The properties of an account's requests that detectors use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Traits {
    /// The client library.
    pub library: Library,
    /// The requested version.
    pub version: RequestedVersion,
    /// The selection.
    pub selection: Selection,
    /// The subject.
    pub subject: Subject,
}

/// The selection of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Selection {
    /// The whole collection.
    Whole,
    /// The whole collection, page by page.
    Pages,
    /// One object by name.
    Named,
    /// The objects of one node.
    OfNode,
    /// The objects that match selectors.
    Selected,
}

/// The subject of requests, as far as detectors distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Objects.
    Objects,
    /// A watch with bookmarks.
    WatchWithBookmarks,
    /// A watch without bookmarks.
    WatchWithoutBookmarks,
    /// Discovery.
    Discovery,
    /// Requests that are meant to repeat: leases, health checks.
    Heartbeat,
}

/// The maximum length of a stored User-Agent, in bytes.
const USER_AGENT_BYTES_MAX: usize = 128;
/// The maximum length of a stored query, in bytes.
const QUERY_BYTES_MAX: usize = 160;
/// The maximum length of a stored resource, in bytes. The API allows no longer names.
const RESOURCE_BYTES_MAX: usize = 128;

/// The parameters that are named for an unparsable query. Their values are not.
const PARAMETERS: &[&str] = &[
    "allowWatchBookmarks",
    "container",
    "continue",
    "dryRun",
    "fieldManager",
    "fieldSelector",
    "fieldValidation",
    "follow",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "watch",
];

// === impl Shape ===

impl Shape {
    /// Returns the shape of a request. `query` is the raw query of its URL, if any; `caller` is a
    /// name or empty.
    pub fn of(info: &RequestInfo, query: Option<&str>, headers: &HeaderMap, caller: &str) -> Self {
        let library = Library::of(headers, query);
        let (resource, scope, query, traits) = match info {
            RequestInfo::Resource(request) => (
                resource(request),
                scope(request),
                shape_of(request, query.unwrap_or_default()),
                traits(request, library),
            ),
            RequestInfo::NonResource(request) => {
                let (class, subject) = class(request);
                let (version, selection) = (RequestedVersion::NoRead, Selection::Whole);
                let traits = Traits { library, version, selection, subject };
                (class.to_owned(), "", String::new(), traits)
            }
        };
        Self {
            caller: caller.into(),
            user_agent: bounded(&credential::user_agent(headers), USER_AGENT_BYTES_MAX),
            verb: match info {
                RequestInfo::Resource(request) => request.verb,
                RequestInfo::NonResource(_) => Verb::Get,
            },
            resource: bounded(&resource, RESOURCE_BYTES_MAX),
            scope,
            query: bounded(&query, QUERY_BYTES_MAX),
            traits,
        }
    }

    /// Returns the shape of requests without an account of their own.
    pub fn others() -> Self {
        Self {
            caller: "".into(),
            user_agent: "others".into(),
            verb: Verb::Other,
            resource: "".into(),
            scope: "",
            query: "".into(),
            traits: Traits {
                library: Library::Unknown,
                version: RequestedVersion::NoRead,
                selection: Selection::Whole,
                subject: Subject::Heartbeat,
            },
        }
    }

    /// Returns the shape of requests whose token would appear in the shape.
    pub fn withheld() -> Self {
        Self { user_agent: LEFT_OUT.into(), ..Self::others() }
    }

    /// Returns the common key of a client's LISTs and watches of the same selection.
    pub fn client_group(&self) -> ((&str, &str), &str, &str, Vec<&str>) {
        let is_selector = |part: &&str| part.contains("Selector=");
        let selectors = self.query.split('&').filter(is_selector).collect();
        (self.client(), &self.resource, self.scope, selectors)
    }

    /// Returns the properties that tell clients apart: the caller and the user agent.
    pub fn client(&self) -> (&str, &str) {
        (&self.caller, &self.user_agent)
    }
}

/// Returns the query of a request, which its shape leaves out.
pub fn query_of(info: &RequestInfo) -> Option<&Query> {
    query_of_request(info.resource_request()?)
}

/// Cuts a text at a character, with a mark, and removes control characters.
fn bounded(text: &str, bytes_max: usize) -> Box<str> {
    let clean = |c: char| if c.is_control() { '?' } else { c };
    if text.len() <= bytes_max {
        return text.chars().map(clean).collect();
    }
    let end = (0..=bytes_max - '…'.len_utf8()).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].chars().map(clean).chain(['…']).collect()
}

fn resource(request: &ResourceRequest) -> String {
    let resource = request.resource.group_resource().to_string();
    match &request.subresource {
        Some(subresource) => format!("{resource}/{subresource}"),
        None => resource,
    }
}

fn scope(request: &ResourceRequest) -> &'static str {
    if request.name.is_some() || request.verb == Verb::Create {
        return "object";
    }
    request.scope.as_str()
}

/// Returns the query of a resource request without its values.
fn shape_of(request: &ResourceRequest, raw: &str) -> String {
    let mut parts = Vec::new();
    if let Ok(read) = &request.read {
        if read.name.is_none() {
            parts.extend(selectors(&read.query));
        }
        if read.limit.is_some() {
            parts.push("limit".to_owned());
        }
        parts.extend(match &read.version {
            VersionMatch::MostRecent => None,
            VersionMatch::Any => Some("resourceVersion=0".to_owned()),
            VersionMatch::NotOlderThan(_) => Some("resourceVersion".to_owned()),
            VersionMatch::Exact(_) => Some("resourceVersionMatch=Exact".to_owned()),
        });
    } else if let Some(watch) = &request.watch {
        parts.extend(selectors(&watch.query));
        if watch.bookmarks {
            parts.push("allowWatchBookmarks".to_owned());
        }
        if watch.start == Start::State {
            parts.push("sendInitialEvents".to_owned());
        }
    } else {
        parts = named(raw);
    }
    parts.join("&")
}

fn selectors(query: &Query) -> impl Iterator<Item = String> {
    let joined = |name: &str, keys: Vec<&str>| {
        (!keys.is_empty()).then(|| format!("{name}={}", keys.join(",")))
    };
    let labels = joined("labelSelector", query.labels.keys().collect());
    let fields = joined("fieldSelector", query.fields.paths().collect());
    labels.into_iter().chain(fields)
}

/// Returns the known parameters of an unparsable query, in their order.
fn named(raw: &str) -> Vec<String> {
    let names = raw.split('&').filter_map(|pair| pair.split('=').next());
    let mut found: Vec<String> = Vec::new();
    for name in names.filter(|name| !name.is_empty()) {
        let name = if PARAMETERS.contains(&name) { name } else { "…" };
        if !found.iter().any(|known| known == name) {
            found.push(name.to_owned());
        }
    }
    found
}

fn traits(request: &ResourceRequest, library: Library) -> Traits {
    let version = match &request.read {
        Ok(read) => match read.version {
            VersionMatch::MostRecent => RequestedVersion::Unset,
            VersionMatch::Any => RequestedVersion::Any,
            VersionMatch::NotOlderThan(_) | VersionMatch::Exact(_) => RequestedVersion::Given,
        },
        // Nothing of the query was parsed, but it may be sent with another version.
        Err(_) if request.rewritable => RequestedVersion::Unset,
        Err(_) => RequestedVersion::NoRead,
    };
    let selection = match query_of_request(request) {
        _ if request.name.is_some() => Selection::Named,
        Some(query) if query.fields.pinned(NAME_PATH).is_some() => Selection::Named,
        Some(query) if query.fields.pinned(NODE_PATH).is_some() => Selection::OfNode,
        Some(query) if !query.selects_all() => Selection::Selected,
        _ if request.read.as_ref().is_ok_and(|read| read.limit.is_some()) => Selection::Pages,
        Some(_) => Selection::Whole,
        None => Selection::Selected,
    };
    let subject = match (&request.watch, &*request.resource.resource) {
        (Some(watch), _) if watch.bookmarks => Subject::WatchWithBookmarks,
        (Some(_), _) => Subject::WatchWithoutBookmarks,
        (None, "leases") if &*request.resource.group == "coordination.k8s.io" => Subject::Heartbeat,
        (None, _) => Subject::Objects,
    };
    Traits { library, version, selection, subject }
}

/// The field path of a pod's node.
const NODE_PATH: &str = "spec.nodeName";

fn query_of_request(request: &ResourceRequest) -> Option<&Query> {
    let read = request.read.as_ref().ok().map(|read| &read.query);
    read.or_else(|| request.watch.as_ref().map(|watch| &watch.query))
}

/// Returns the class of a non-resource path. The number of classes is small for any input.
fn class(request: &NonResourceRequest) -> (&'static str, Subject) {
    let mut segments = request.path.trim_matches('/').split('/');
    let (first, second) = (segments.next().unwrap_or_default(), segments.next());
    match (first, second, segments.next()) {
        ("api", None, _) => ("/api", Subject::Discovery),
        ("api", Some(_), _) => ("/api/*", Subject::Discovery),
        ("apis", None, _) => ("/apis", Subject::Discovery),
        ("apis", Some(_), None) => ("/apis/*", Subject::Discovery),
        ("apis", Some(_), Some(_)) => ("/apis/*/*", Subject::Discovery),
        ("openapi", Some("v2"), _) => ("/openapi/v2", Subject::Discovery),
        ("openapi", _, None) => ("/openapi/v3", Subject::Discovery),
        ("openapi", ..) => ("/openapi/v3/*", Subject::Discovery),
        ("version", ..) => ("/version", Subject::Discovery),
        ("healthz" | "livez" | "readyz", ..) => ("/healthz", Subject::Heartbeat),
        ("metrics", ..) => ("/metrics", Subject::Heartbeat),
        _ => ("/*", Subject::Heartbeat),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Method, Uri, header};

    use super::*;

    fn shape(method: &Method, target: &str) -> Shape {
        let uri: Uri = target.parse().unwrap();
        let info = RequestInfo::parse(method, &uri, &HeaderMap::new());
        Shape::of(&info, uri.query(), &HeaderMap::new(), "")
    }

    #[test]
    fn a_shape_has_neither_names_nor_values() {
        let cases = [
            ("/api/v1/pods?labelSelector=app%3Dweb", "pods", "cluster", "labelSelector=app"),
            (
                "/api/v1/namespaces/shop/pods?labelSelector=tier%20in%20(a,b),app=x&limit=500",
                "pods",
                "namespace",
                "labelSelector=app,tier&limit",
            ),
            (
                "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-7&resourceVersion=0",
                "pods",
                "cluster",
                "fieldSelector=spec.nodeName&resourceVersion=0",
            ),
            ("/apis/apps/v1/namespaces/a/deployments/b", "deployments.apps", "object", ""),
            ("/api/v1/namespaces/a/pods/b/log?follow=1&q=secret", "pods/log", "object", "follow&…"),
            (
                "/api/v1/pods?watch=1&resourceVersion=5&allowWatchBookmarks=true&timeoutSeconds=9",
                "pods",
                "cluster",
                "allowWatchBookmarks",
            ),
            ("/api/v1/pods?continue=abc&limit=5", "pods", "cluster", "continue&limit"),
            ("/apis/apps/v1", "/apis/*/*", "", ""),
            ("/openapi/v3/apis/apps/v1?hash=1", "/openapi/v3/*", "", ""),
            ("/whatever/this/is", "/*", "", ""),
        ];
        for (target, resource, scope, query) in cases {
            let shape = shape(&Method::GET, target);
            assert_eq!((&*shape.resource, shape.scope, &*shape.query), (resource, scope, query));
        }
    }

    #[test]
    fn traits_hold_what_detectors_need() {
        let traits = |target| shape(&Method::GET, target).traits;
        assert_eq!(traits("/api/v1/pods").selection, Selection::Whole);
        assert_eq!(traits("/api/v1/pods?limit=5").selection, Selection::Pages);
        assert_eq!(traits("/api/v1/namespaces/a/pods/b").selection, Selection::Named);
        let named = "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Db";
        assert_eq!(traits(named).selection, Selection::Named);
        let node = "/api/v1/pods?fieldSelector=spec.nodeName%3Db";
        assert_eq!(traits(node).selection, Selection::OfNode);
        assert_eq!(traits("/api/v1/pods").version, RequestedVersion::Unset);
        assert_eq!(traits("/api/v1/pods?resourceVersion=0").version, RequestedVersion::Any);
        let lease = "/apis/coordination.k8s.io/v1/namespaces/a/leases/b";
        assert_eq!(traits(lease).subject, Subject::Heartbeat);
        assert_eq!(traits("/livez?verbose").subject, Subject::Heartbeat);
        assert_eq!(traits("/version").subject, Subject::Discovery);
    }

    #[test]
    fn texts_are_bounded_and_fit_on_a_line() {
        let mut headers = HeaderMap::new();
        let long = HeaderValue::from_bytes(&[b'\xc3', b'\xa4'].repeat(4000)).unwrap();
        headers.insert(header::USER_AGENT, long);
        let keys: Vec<String> = (0..500).map(|number| format!("key{number}")).collect();
        let target = format!("/api/v1/pods?labelSelector={}", keys.join(","));
        let uri: Uri = target.parse().unwrap();
        let info = RequestInfo::parse(&Method::GET, &uri, &headers);
        let shape = Shape::of(&info, uri.query(), &headers, "");
        assert!(shape.user_agent.len() <= USER_AGENT_BYTES_MAX && shape.user_agent.ends_with('…'));
        assert!(shape.query.len() <= QUERY_BYTES_MAX);
        assert_eq!(&*bounded("a\nb\u{7}", 10), "a?b?");
    }
}
