//! Discovery, OpenAPI, version and health: kept by rules of their own.
//!
//! A kept document comes from memory once its watches have proven that nothing changes. A test that
//! runs these cases through Listless lets it start to follow first.

use super::super::case::Pace;
use super::Case;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const AGGREGATED_AND_OLD: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

const DOCUMENTS: &[(&str, u16)] = &[
    ("/api", 200),
    ("/api/", 200),
    ("/apis", 200),
    ("/apis/", 200),
    ("/api/v1", 200),
    ("/api/v1/", 200),
    ("/apis/apps", 200),
    ("/apis/apps/v1", 200),
    ("/apis/batch/v1", 200),
    ("/apis/shop.example.com", 200),
    ("/apis/shop.example.com/v1", 200),
    ("/apis/shop.example.com/v1beta1", 200),
    ("/apis/shop.example.com/v3", 404),
    ("/apis/none.example.com", 404),
    ("/api/v9", 404),
    ("/openapi/v3", 200),
    ("/openapi/v3/", 404),
    ("/openapi/v3/api/v1", 200),
    ("/openapi/v3/apis/shop.example.com/v1", 200),
    ("/openapi/v3/apis/none/v1", 404),
    ("/openapi/v2", 200),
    ("/version", 200),
    ("/version/", 200),
    ("/healthz", 200),
    ("/livez", 200),
    ("/readyz", 200),
    ("/livez/ping", 200),
    ("/readyz?verbose", 200),
    ("/.well-known/openid-configuration", 200),
    ("/openid/v1/jwks", 200),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> =
        DOCUMENTS.iter().map(|(target, status)| document(target, *status)).collect();
    for target in ["/api", "/apis"] {
        cases.push(Case::get(target).wanted().accept(AGGREGATED));
        cases.push(Case::get(target).wanted().accept(AGGREGATED_AND_OLD));
        cases.push(Case::get(target).accept("application/vnd.kubernetes.protobuf").wanted());
        cases.push(Case::get(target).accept("application/yaml").wanted());
        cases.push(Case::get(target).accept("text/html").status(406));
    }
    cases.push(Case::get("/apis/apps/v1").accept("application/vnd.kubernetes.protobuf"));
    cases.push(Case::get("/apis/apps/v1").accept("application/yaml"));
    cases.push(Case::get("/apis?timeout=32s").wanted());
    cases.push(Case::get("/apis?pretty=true").never());
    cases.push(Case::get("/api/v1").header("User-Agent", "curl/8").never());
    cases.push(Case::new(http::Method::HEAD, "/openapi/v2").never());
    cases.push(Case::get("/openapi/v2").header("Range", "bytes=0-99").status(206));
    cases.push(
        Case::get("/openapi/v2")
            .accept("application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
            .wanted(),
    );
    cases.push(
        Case::get("/openapi/v3/api/v1")
            .accept("application/com.github.proto-openapi.spec.v3.v1.0+protobuf")
            .wanted(),
    );
    cases.push(Case::get("/openapi/v3/api/v1?hash=STALE").status(301));
    cases.push(Case::get("/version").accept("text/html").status(406));
    cases.push(Case::get("/apis").header("If-None-Match", "\"none\"").wanted());
    cases.push(Case::get("/openapi/v2").header("If-None-Match", "\"none\"").wanted());
    cases.push(Case::get("/openapi/v2").header("If-None-Match", "*").status(304));
    cases.push(Case::get("/apis").accept(AGGREGATED).header("Accept-Encoding", "gzip").wanted());
    cases.into_iter().map(|case| case.pace(Pace::Clock)).collect()
}

/// A document that is kept, or a path beside the documents that is not.
fn document(target: &str, status: u16) -> Case {
    let case = Case::get(target).status(status);
    let is_kept = status == 200
        && !target.ends_with('/')
        && ["/api", "/openapi/"].iter().any(|root| target.starts_with(root));
    if is_kept { case.wanted() } else { case.never() }
}
