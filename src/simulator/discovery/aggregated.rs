//! All groups, or the core one, in one document with a tag (S-DISC-02).

use http::{HeaderMap, HeaderValue, Response, header};

use super::{has, not_modified, tag};
use crate::{
    body::Body,
    simulator::{
        json::Json,
        kind::{ResourceType, StatusSubresource},
        status::response,
    },
};

const CONTENT_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Reports whether the first recognised clause asks for it. v2beta1 is not recognised (S-DISC-02).
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let clauses = accept.unwrap_or_default().split(',').map(str::trim);
    let understood = clauses.filter_map(|clause| {
        let mut parts = clause.split(';').map(str::trim);
        let is_json = matches!(parts.next(), Some("application/json" | "application/*" | "*/*"));
        let parameters: Vec<&str> = parts.filter(|part| !part.starts_with("q=")).collect();
        let wanted = ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"];
        match () {
            () if !is_json => None,
            () if wanted.iter().all(|part| parameters.contains(part)) => Some(true),
            () if parameters.is_empty() => Some(false),
            () => None,
        }
    });
    understood.into_iter().next().unwrap_or(false)
}

/// Returns the groups below `/api` or `/apis`.
pub(super) fn answer(kinds: &[ResourceType], root: &str, headers: &HeaderMap) -> Response<Body> {
    let mut names: Vec<&str> = kinds.iter().map(|kind| kind.group.as_str()).collect();
    names.dedup();
    names.retain(|name| name.is_empty() == (root == "api"));
    let groups = names.iter().map(|name| group(kinds, name)).collect();
    let list = Json::object([
        ("kind", "APIGroupDiscoveryList".into()),
        ("apiVersion", "apidiscovery.k8s.io/v2".into()),
        ("metadata", Json::Object(Vec::new())),
        ("items", Json::Array(groups)),
    ]);
    let mut bytes = list.to_bytes();
    let tag = tag(&bytes);
    bytes.push(b'\n');
    let mut whole = response(200, CONTENT_TYPE, bytes);
    let fields = whole.headers_mut();
    let has_it = has(headers, &tag);
    fields.insert(header::ETAG, tag);
    fields.insert(header::VARY, HeaderValue::from_static("Accept"));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    if has_it { not_modified(whole) } else { whole }
}

fn group(kinds: &[ResourceType], name: &str) -> Json {
    let mut versions: Vec<&String> = Vec::new();
    for version in kinds.iter().filter(|kind| kind.group == name).flat_map(|kind| &kind.versions) {
        if !versions.contains(&version) {
            versions.push(version);
        }
    }
    let versions = versions.into_iter().map(|version| {
        let served = kinds.iter().filter(|kind| kind.group == name);
        let served = served.filter(|kind| kind.versions.contains(version));
        Json::object([
            ("version", version.as_str().into()),
            ("resources", Json::Array(served.map(|kind| resource(kind, version)).collect())),
            ("freshness", "Current".into()),
        ])
    });
    let metadata = match name {
        "" => Json::object([("creationTimestamp", Json::Null)]),
        name => Json::object([("name", name.into()), ("creationTimestamp", Json::Null)]),
    };
    Json::object([("metadata", metadata), ("versions", Json::Array(versions.collect()))])
}

fn resource(kind: &ResourceType, version: &str) -> Json {
    let verbs = |verbs: &[&str]| Json::Array(verbs.iter().map(|&verb| verb.into()).collect());
    let response_kind = || {
        Json::object([
            ("group", kind.group.as_str().into()),
            ("version", version.into()),
            ("kind", kind.kind.as_str().into()),
        ])
    };
    let scope = if kind.namespaced { "Namespaced" } else { "Cluster" };
    let mut entry = Json::object([
        ("resource", kind.plural.as_str().into()),
        ("responseKind", response_kind()),
        ("scope", scope.into()),
        ("singularResource", kind.singular.as_str().into()),
        ("verbs", verbs(&VERBS)),
    ]);
    if !kind.short_names.is_empty() {
        let names = kind.short_names.iter().map(|name| name.as_str().into()).collect();
        entry.set("shortNames", Json::Array(names));
    }
    if kind.status == StatusSubresource::Present {
        let status = Json::object([
            ("subresource", "status".into()),
            ("responseKind", response_kind()),
            ("verbs", verbs(&["get", "patch", "update"])),
        ]);
        entry.set("subresources", Json::Array(vec![status]));
    }
    entry
}
