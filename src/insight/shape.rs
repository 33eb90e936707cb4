//! What requests have in common: the key of an account, with no name and no value of a selector in it.
//!
//! Every text is bounded, whatever a client sends. Pure.

use http::HeaderMap;

use super::{cost::Freshness, library::Library};
use crate::api::{
    Verb,
    credential::{self, LEFT_OUT},
    query::Query,
    request::{NonResourceRequest, RequestInfo, ResourceRequest, Start},
    selector::NAME_PATH,
    version::VersionMatch,
};

/// Requests with an equal shape share an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The client's User-Agent, shortened.
    pub user_agent: Box<str>,
    /// What is done.
    pub verb: Verb,
    /// To which resource, or the class of the path.
    pub resource: Box<str>,
    /// `cluster`, `namespace`, `object` or nothing.
    pub scope: &'static str,
    /// The query without its values.
    pub query: Box<str>,
    /// How they ask.
    pub traits: Traits,
}

/// What detectors need to know of all requests of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Traits {
    /// Who asks.
    pub library: Library,
    /// Which version they ask for.
    pub freshness: Freshness,
    /// What they select.
    pub selection: Selection,
    /// What they are about.
    pub subject: Subject,
}

/// What a read selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Selection {
    /// All there is.
    Whole,
    /// All there is, page by page.
    Pages,
    /// One object by its name.
    Named,
    /// The objects of one node.
    OfNode,
    /// What selectors select.
    Selected,
}

/// What requests are about, as far as detectors treat them differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Objects.
    Objects,
    /// A watch that is told how far it has come.
    WatchWithBookmarks,
    /// A watch that is not.
    WatchWithoutBookmarks,
    /// Which resources there are.
    Discovery,
    /// What is meant to be asked again and again: leases, health.
    Heartbeat,
}

/// The longest User-Agent kept, in bytes.
const USER_AGENT_BYTES_MAX: usize = 128;
/// The longest query kept, in bytes.
const QUERY_BYTES_MAX: usize = 160;
/// The longest resource kept, in bytes; the API allows no longer names.
const RESOURCE_BYTES_MAX: usize = 128;

/// The parameters that are named in a query that is not understood; their values are not.
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
    /// The shape of a request; `query` is the raw query of its URL, if there is one.
    pub fn of(info: &RequestInfo, query: Option<&str>, headers: &HeaderMap) -> Self {
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
                let (freshness, selection) = (Freshness::NoRead, Selection::Whole);
                let traits = Traits { library, freshness, selection, subject };
                (class.to_owned(), "", String::new(), traits)
            }
        };
        Self {
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

    /// For what is not told apart.
    pub fn others() -> Self {
        Self {
            user_agent: "others".into(),
            verb: Verb::Other,
            resource: "".into(),
            scope: "",
            query: "".into(),
            traits: Traits {
                library: Library::Unknown,
                freshness: Freshness::NoRead,
                selection: Selection::Whole,
                subject: Subject::Heartbeat,
            },
        }
    }

    /// For requests that repeat their token where a shape would show it.
    pub fn withheld() -> Self {
        Self { user_agent: LEFT_OUT.into(), ..Self::others() }
    }

    /// What LISTs and watches of one client have in common when they are of the same selection.
    pub fn kin(&self) -> (&str, &str, &str, Vec<&str>) {
        let is_selector = |part: &&str| part.contains("Selector=");
        let selectors = self.query.split('&').filter(is_selector).collect();
        (&self.user_agent, &self.resource, self.scope, selectors)
    }
}

/// What a request asks for, beyond its shape: two that ask for the same are equal in this.
pub fn query_of(info: &RequestInfo) -> Option<&Query> {
    query_of_request(info.resource_request()?)
}

/// Cut at a character, with a mark, and without anything that would spoil a line.
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

/// The query of a resource request without its values.
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

/// The known parameters of a query that is not understood, in their order.
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
    let freshness = match &request.read {
        Ok(read) => match read.version {
            VersionMatch::MostRecent => Freshness::Unset,
            VersionMatch::Any => Freshness::Any,
            VersionMatch::NotOlderThan(_) | VersionMatch::Exact(_) => Freshness::Given,
        },
        // Nothing of it is understood but that it may be given another version.
        Err(_) if request.rewritable => Freshness::Unset,
        Err(_) => Freshness::NoRead,
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
    Traits { library, freshness, selection, subject }
}

/// The path of the node a pod runs on.
const NODE_PATH: &str = "spec.nodeName";

fn query_of_request(request: &ResourceRequest) -> Option<&Query> {
    let read = request.read.as_ref().ok().map(|read| &read.query);
    read.or_else(|| request.watch.as_ref().map(|watch| &watch.query))
}

/// The class of a path that is no resource; there are few, whatever is asked.
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
        Shape::of(&info, uri.query(), &HeaderMap::new())
    }

    #[test]
    fn neither_names_nor_values_are_in_a_shape() {
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
    fn traits_tell_what_detectors_ask() {
        let traits = |target| shape(&Method::GET, target).traits;
        assert_eq!(traits("/api/v1/pods").selection, Selection::Whole);
        assert_eq!(traits("/api/v1/pods?limit=5").selection, Selection::Pages);
        assert_eq!(traits("/api/v1/namespaces/a/pods/b").selection, Selection::Named);
        let named = "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Db";
        assert_eq!(traits(named).selection, Selection::Named);
        let node = "/api/v1/pods?fieldSelector=spec.nodeName%3Db";
        assert_eq!(traits(node).selection, Selection::OfNode);
        assert_eq!(traits("/api/v1/pods").freshness, Freshness::Unset);
        assert_eq!(traits("/api/v1/pods?resourceVersion=0").freshness, Freshness::Any);
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
        let shape = Shape::of(&info, uri.query(), &headers);
        assert!(shape.user_agent.len() <= USER_AGENT_BYTES_MAX && shape.user_agent.ends_with('…'));
        assert!(shape.query.len() <= QUERY_BYTES_MAX);
        assert_eq!(&*bounded("a\nb\u{7}", 10), "a?b?");
    }
}
