//! Unusual paths and methods: requests that are no read of a known resource, or look like one.

use http::Method;

use super::super::case::Memory;
use super::{Case, table};

const READ: &[(&str, u16)] = &[
    ("/api/v1/namespaces/shop/pods/", 200),
    ("/api/v1/namespaces/shop/pods/web-0/", 200),
    ("/api/v1/nodes/", 200),
    ("/api/v1/namespaces/shop/p%6Fds", 200),
    ("/api/v1/namespaces/sh%6fp/pods/web-0", 200),
    ("/api/v1/namespaces/shop/pods?", 200),
    ("/apis/shop.example.com/v1/widgets/", 200),
];

const STRANGE: &[(&str, u16)] = &[
    ("//api/v1/namespaces/shop/pods", 404),
    ("/api//v1/namespaces/shop/pods", 404),
    ("/api/v1/namespaces//pods", 200),
    ("/api/v1/namespaces/shop//pods", 404),
    ("/api/v1/namespaces/shop/pods//", 200),
    ("/api/v1/./nodes", 404),
    ("/api/v1/../v1/nodes", 404),
    ("/api/v1/namespaces/shop/pods/..", 400),
    ("/api/v1/namespaces/shop/pods/web-0%2Fstatus", 200),
    ("/api/v1/namespaces%2Fshop/pods", 200),
    ("/api%2Fv1%2Fnodes", 200),
    ("/api/v1/namespaces/shop/pods/%2e%2e/configmaps", 404),
    ("/API/v1/nodes", 404),
    ("/api/v1/Nodes", 404),
    ("/api/v1/pod", 404),
    ("/api/v2/pods", 404),
    ("/api/v1/namespaces/shop/nodes", 404),
    ("/api/v1/pods/web-0", 404),
    ("/api/v1/nothing", 404),
    ("/api/v1/namespaces/shop/nothing/x", 404),
    ("/apis/apps/v1/nothing", 404),
    ("/apis/apps/v2/deployments", 404),
    ("/apis/apps/v1beta1/deployments", 404),
    ("/apis/nothing/v1/things", 404),
    ("/apis/nothing", 404),
    ("/apis/shop.example.com/v1/nothing", 404),
    ("/apis/shop.example.com/v2/widgets", 404),
    ("/apis/shop.example.com/v1beta1/planets", 404),
    ("/apis/shop.example.com/v1/namespaces/shop/planets", 404),
    ("/apis/shop.example.com/v1/widgets/widget-1", 404),
    ("/nothing", 404),
    ("/", 200),
    ("/api/v1/watch/namespaces/shop/pods?timeoutSeconds=abc", 400),
    ("/api/v1/proxy/namespaces/shop/pods/web-0", 404),
];

const METHODS: &[(&str, &str, u16)] = &[
    ("HEAD", "/api/v1/namespaces/shop/pods", 405),
    ("HEAD", "/api/v1/namespaces/shop/pods/web-0", 405),
    ("HEAD", "/apis/shop.example.com/v1/widgets", 200),
    ("HEAD", "/apis/shop.example.com/v1/planets/planet-1", 200),
    ("HEAD", "/apis", 200),
    ("HEAD", "/version", 405),
    ("HEAD", "/healthz", 200),
    ("OPTIONS", "/api/v1/namespaces/shop/pods", 405),
    ("OPTIONS", "/apis/shop.example.com/v1/widgets", 404),
    ("OPTIONS", "/apis", 200),
    ("POST", "/api/v1/namespaces/shop/pods/web-0", 405),
    ("PUT", "/api/v1/namespaces/shop/pods", 405),
    ("PATCH", "/api/v1/namespaces/shop/pods", 405),
    ("POST", "/version", 405),
    ("TRACE", "/api/v1/nodes", 405),
    ("SEARCH", "/api/v1/nodes", 405),
    ("get", "/api/v1/nodes", 405),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = table("", Memory::Free, READ);
    cases.extend(table("", Memory::Never, STRANGE));
    for (method, target, status) in METHODS {
        let method = Method::from_bytes(method.as_bytes()).expect("the table holds tokens");
        cases.push(Case::new(method, target).never().status(*status));
    }
    cases.extend(headers());
    cases
}

/// Headers that must reach the apiserver or come back from it.
fn headers() -> Vec<Case> {
    let pod = "/api/v1/namespaces/shop/pods/web-0";
    let audit = "6f1c7c1a-0000-4000-8000-000000000001";
    vec![
        Case::get(pod).header("Audit-Id", audit),
        Case::get("/api/v1/nodes").header("Audit-Id", audit),
        Case::get(pod).header("If-None-Match", "*"),
        Case::get(pod).header("If-Modified-Since", "Wed, 01 Jan 2020 00:00:00 GMT"),
        Case::get(pod).header("Range", "bytes=0-9"),
        Case::get(pod).header("Cache-Control", "no-cache"),
        Case::get(pod).header("X-Forwarded-For", "192.0.2.1"),
        Case::get(pod).header("Cookie", "a=b"),
        Case::get(pod).header("Origin", "https://example.com"),
        Case::get(pod).header("X-Remote-User", "root"),
    ]
}
