//! OpenAPI documents: without schemas, but with tags, hashes and redirections (S-DISC-03,
//! S-DISC-04).

use http::{HeaderMap, HeaderValue, Request, Response, header};

use super::{has, not_modified, tag};
use crate::{
    body::Body,
    simulator::{json::Json, kind::ResourceType, status::response},
};

/// The modification time of the documents. It is constant, although each request generates them.
const LAST_MODIFIED: HeaderValue = HeaderValue::from_static("Thu, 01 Jan 2026 00:00:00 GMT");

/// A constant time, about a year after some request.
const EXPIRES: HeaderValue = HeaderValue::from_static("Fri, 01 Jan 2027 00:00:00 UTC");

/// Returns all paths in one document.
pub(super) fn v2(kinds: &[ResourceType], headers: &HeaderMap) -> Response<Body> {
    let document = Json::object([
        ("swagger", "2.0".into()),
        ("info", Json::object([("title", "Kubernetes".into())])),
        (
            "paths",
            paths(kinds.iter().flat_map(|kind| kind.versions.iter().map(move |v| (kind, v)))),
        ),
    ]);
    let mut answer = tagged(&document.to_bytes(), headers);
    let encoding = HeaderValue::from_static("Accept-Encoding");
    answer.headers_mut().insert(header::VARY, encoding);
    answer.headers_mut().append(header::VARY, HeaderValue::from_static("Accept"));
    answer
}

/// Returns the index of the documents by group and version.
pub(super) fn index(kinds: &[ResourceType], headers: &HeaderMap) -> Response<Body> {
    let mut paths = Json::Object(Vec::new());
    let mut known: Vec<String> = kinds.iter().flat_map(group_versions).collect();
    known.sort();
    known.dedup();
    for group_version in known {
        let tag = tag(&document(kinds, &group_version).to_bytes());
        let entry = Json::object([("serverRelativeURL", address(&group_version, &tag).into())]);
        paths.set(&group_version, entry);
    }
    tagged(&Json::object([("paths", paths)]).to_bytes(), headers)
}

/// Returns the document of one group and version. It never expires if it was requested by its hash.
pub(super) fn v3(
    kinds: &[ResourceType],
    group_version: &str,
    request: &Request<Body>,
) -> Response<Body> {
    let known = kinds.iter().flat_map(group_versions).any(|known| known == group_version);
    if !known {
        return super::unknown_path();
    }
    let bytes = document(kinds, group_version).to_bytes();
    let tag = tag(&bytes);
    let mut answer = tagged(&bytes, request.headers());
    let fields = answer.headers_mut();
    fields.insert(header::VARY, HeaderValue::from_static("Accept"));
    let hash = request.uri().query().and_then(|query| query.strip_prefix("hash="));
    let Some(hash) = hash else { return answer };
    if format!("\"{hash}\"") != tag {
        let mut moved = response(301, "text/html; charset=utf-8", "");
        if let Ok(address) = HeaderValue::from_str(&address(group_version, &tag)) {
            moved.headers_mut().insert(header::LOCATION, address);
        }
        return moved;
    }
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    fields.insert(header::EXPIRES, EXPIRES);
    answer
}

fn tagged(bytes: &[u8], headers: &HeaderMap) -> Response<Body> {
    let tag = tag(bytes);
    let has_it = has(headers, &tag);
    let mut whole = response(200, "application/json", bytes.to_vec());
    whole.headers_mut().insert(header::ETAG, tag);
    whole.headers_mut().insert(header::LAST_MODIFIED, LAST_MODIFIED);
    if has_it { not_modified(whole) } else { whole }
}

fn document(kinds: &[ResourceType], group_version: &str) -> Json {
    let served = kinds.iter().flat_map(|kind| kind.versions.iter().map(move |v| (kind, v)));
    let served = served.filter(|(kind, version)| path_of(kind, version) == group_version);
    Json::object([("openapi", "3.0.0".into()), ("paths", paths(served))])
}

fn paths<'a>(served: impl Iterator<Item = (&'a ResourceType, &'a String)>) -> Json {
    let mut paths = Json::Object(Vec::new());
    for (kind, version) in served {
        let path = format!("/{}/{}", path_of(kind, version), kind.plural);
        paths.set(&path, Json::Object(Vec::new()));
    }
    paths
}

fn group_versions(kind: &ResourceType) -> Vec<String> {
    kind.versions.iter().map(|version| path_of(kind, version)).collect()
}

fn path_of(kind: &ResourceType, version: &str) -> String {
    match kind.group.as_str() {
        "" => format!("api/{version}"),
        group => format!("apis/{group}/{version}"),
    }
}

fn address(group_version: &str, tag: &HeaderValue) -> String {
    let hash = tag.to_str().unwrap_or_default().trim_matches('"');
    format!("/openapi/v3/{group_version}?hash={hash}")
}
