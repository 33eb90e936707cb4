//! Forwarded requests and responses keep every byte and every header, except hop-by-hop headers.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use listless::body::Body;

use crate::harness::{Echo, Setup, TestClient, TestProxy};

const PODS: &str = "/api/v1/namespaces/a/pods";

/// Headers that the HTTP library of the client or the proxy adds or changes.
const OF_A_CONNECTION: [&str; 3] = ["host", "content-length", "authorization"];

fn start(echo: &Echo) -> TestProxy {
    Setup::default().upstream(echo.clone()).in_memory()
}

fn without(headers: &HeaderMap, names: &[&str]) -> Vec<(String, Vec<u8>)> {
    let rest = headers.iter().filter(|(name, _)| !names.contains(&name.as_str()));
    let mut rest: Vec<_> =
        rest.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    rest.sort();
    rest
}

/// Both versions of HTTP, with headers of real clients and unusual ones.
fn clients(proxy: &TestProxy) -> [TestClient; 2] {
    let client = proxy
        .client()
        .with("user-agent", "kubectl/v1.36.3 (linux/amd64) kubernetes/abc")
        .with("accept", "application/vnd.kubernetes.protobuf")
        .with("accept", "application/json;q=0.9")
        .with("accept-encoding", "gzip, zstd")
        .with("audit-id", "a-1")
        .with("kubectl-command", "kubectl apply")
        .with("x-custom", "a")
        .with("x-custom", "b")
        .with("x-empty", "")
        .with("forwarded", "for=10.0.0.1")
        .with("if-match", "\"1\"")
        .with("cookie", "a=b; c=d")
        .with("traceparent", "00-1-2-3");
    [client.clone(), client.over_http2()]
}

#[tokio::test(start_paused = true)]
async fn writes_pass_with_every_byte_and_header() {
    let echo = Echo::silent();
    let proxy = start(&echo);
    let binary: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    for client in clients(&proxy) {
        for (method, target, content_type, body) in [
            ("POST", PODS, "application/json", &b"{\"a\": \n1 }  "[..]),
            ("POST", PODS, "application/vnd.kubernetes.protobuf", &binary),
            (
                "PUT",
                "/api/v1/namespaces/a/pods/x?fieldManager=m&dryRun=All",
                "application/yaml",
                b"a: b\n",
            ),
            ("PATCH", "/api/v1/namespaces/a/pods/x", "application/apply-patch+yaml", b"{}"),
            ("PATCH", "/api/v1/namespaces/a/pods/x/status", "application/json-patch+json", b"[]"),
            (
                "DELETE",
                "/api/v1/namespaces/a/pods/x",
                "application/json",
                b"{\"kind\":\"DeleteOptions\"}",
            ),
            ("DELETE", "/api/v1/namespaces/a/pods?labelSelector=a%3Db", "", b""),
            (
                "POST",
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                "application/json",
                b"{}",
            ),
            ("POST", "/unknown/path?%zz&;=+%20", "text/plain;charset=\"x\"", b"\x00\xff"),
            ("PROPFIND", PODS, "text/plain", b"x"),
            ("GET", PODS, "text/plain", b"a body of a GET"),
        ] {
            let mut client = client.clone();
            if !content_type.is_empty() {
                client = client.with("content-type", content_type);
            }
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            let answer = client.send(method.clone(), target, body.to_vec()).await;
            assert_eq!(answer.status, 200, "{method} {target}");
            let kept = echo.last();
            assert_eq!((&kept.method, kept.target.as_str()), (&method, target));
            assert!(kept.body == body, "{method} {target}: the body changed");
            let sent = client.headers();
            assert_eq!(without(&kept.headers, &OF_A_CONNECTION), without(sent, &OF_A_CONNECTION));
            let length = kept.headers.get("content-length").map(|value| value.as_bytes().to_vec());
            assert!(length.is_none_or(|length| length == body.len().to_string().as_bytes()));
        }
    }
}

/// A response with headers of real apiservers and unusual ones.
fn reply(code: u16, content: Bytes) -> Response<Body> {
    Response::builder()
        .status(code)
        .header("content-type", "application/vnd.kubernetes.protobuf")
        .header("warning", "299 - \"one\"")
        .header("warning", "299 - \"two\"")
        .header("audit-id", "a-1")
        .header("retry-after", "7")
        .header("etag", "W/\"x\"")
        .header("x-kubernetes-pf-flowschema-uid", "u")
        .header("location", "https://elsewhere/")
        .header("set-cookie", "a=b")
        .header("set-cookie", "c=d")
        .body(Body::full(content))
        .expect("an answer")
}

#[tokio::test(start_paused = true)]
async fn answers_pass_with_every_byte_and_header() {
    let body: Vec<u8> = (0..=255).rev().cycle().take(70_000).collect();
    let given = Bytes::from(body);
    for code in
        [200, 201, 202, 206, 301, 400, 401, 403, 404, 405, 409, 410, 422, 429, 500, 504, 599]
    {
        let content = given.clone();
        let echo = Echo::new(move |_| reply(code, content.clone()));
        let expected = without(reply(code, Bytes::new()).headers(), &[]);
        let proxy = start(&echo);
        for client in clients(&proxy) {
            for (method, target) in [(Method::POST, PODS), (Method::GET, "/version")] {
                let answer = client.send(method, target, "{}").await;
                assert_eq!(answer.status, code);
                assert!(answer.body == given, "{code}: the body changed");
                let added = ["cache-status", "date", "content-length"];
                assert_eq!(without(&answer.headers, &added), expected, "{code}");
                assert_eq!(answer.headers.get_all("cache-status").iter().count(), 1);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hop_by_hop_headers_are_not_forwarded() {
    let echo = Echo::new(|_| {
        let answer = Response::builder()
            .header("connection", "x-of-the-server, keep-alive")
            .header("x-of-the-server", "1")
            .header("keep-alive", "timeout=5")
            .header("proxy-authenticate", "Basic")
            .header("x-kept", "1");
        answer.body(Body::full("x")).expect("an answer")
    });
    let proxy = start(&echo);
    let client = proxy
        .client()
        .with("connection", "x-of-the-client, authorization, content-type, te")
        .with("x-of-the-client", "1")
        .with("content-type", "application/json")
        .with("keep-alive", "timeout=5")
        .with("te", "trailers")
        .with("proxy-connection", "keep-alive")
        .with("proxy-authorization", "Basic x")
        .with("trailer", "x-later")
        .with("x-kept", "1");
    let answer = client.send(Method::POST, PODS, "{}").await;
    let kept = echo.last().headers;
    for gone in [
        "connection",
        "x-of-the-client",
        "keep-alive",
        "te",
        "proxy-connection",
        "proxy-authorization",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ] {
        assert!(!kept.contains_key(gone), "{gone} passed to the apiserver");
    }
    for held in ["x-kept", "content-type", "authorization"] {
        assert!(kept.contains_key(held), "{held} did not pass to the apiserver");
    }
    for gone in ["x-of-the-server", "keep-alive", "proxy-authenticate", "connection"] {
        assert!(!answer.headers.contains_key(gone), "{gone} passed to the client");
    }
    assert_eq!(answer.header("x-kept"), "1");
}

#[tokio::test(start_paused = true)]
async fn answers_without_a_body_have_none() {
    let echo = Echo::new(|kept| {
        let answer =
            Response::builder().status(if kept.method == Method::HEAD { 200 } else { 204 });
        answer.header("x-kept", "1").body(Body::empty()).expect("an answer")
    });
    let proxy = start(&echo);
    for client in [proxy.client(), proxy.client().over_http2()] {
        for method in [Method::HEAD, Method::OPTIONS, Method::DELETE] {
            let answer = client.send(method.clone(), PODS, "").await;
            assert_eq!(answer.status, if method == Method::HEAD { 200 } else { 204 });
            assert!(answer.whole && answer.body.is_empty());
            assert_eq!(answer.header("x-kept"), "1");
            assert_eq!(echo.last().method, method);
        }
        // The connection is still in step.
        assert_eq!(client.send(Method::POST, PODS, "{}").await.status, 204);
    }
}

#[tokio::test(start_paused = true)]
async fn large_bodies_pass_both_ways() {
    let echo = Echo::new(|kept| Response::new(Body::full(kept.body.clone())));
    let proxy = start(&echo);
    let large: Bytes = (0_u32..2 << 20).flat_map(u32::to_le_bytes).collect::<Vec<_>>().into();
    for client in [proxy.client(), proxy.client().over_http2()] {
        let answer = client.send(Method::POST, PODS, large.clone()).await;
        assert!(answer.whole && answer.body == large, "{} bytes came back", answer.body.len());
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_of_unknown_length_passes() {
    let echo = Echo::silent();
    let proxy = start(&echo);
    for client in [proxy.client(), proxy.client().over_http2()] {
        let (sender, body) = crate::harness::piped();
        let request = Request::post(PODS).body(body).expect("a request");
        let asking = tokio::spawn(async move { client.ask(request).await });
        for piece in ["one ", "two ", "three"] {
            sender.send(Ok(piece)).await.expect("somebody reads");
        }
        drop(sender);
        assert_eq!(asking.await.expect("no panic").status, 200);
        assert_eq!(echo.last().body, "one two three");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_of_three_mebibytes_is_forwarded() {
    let proxy = Setup::default().in_memory();
    let filler = |bytes: usize| {
        let head = r#"{"metadata":{"name":"large"},"data":{"x":""#;
        format!("{head}{}\"}}}}", "x".repeat(bytes - head.len() - 3))
    };
    let client = proxy.client().with("content-type", "application/json");
    let maps = "/api/v1/namespaces/a/configmaps";
    assert_eq!(client.send(Method::POST, maps, filler(3 << 20)).await.status, 201);
    let refused = client.send(Method::POST, maps, filler((3 << 20) + 1)).await;
    assert_eq!((refused.status, refused.detail()), (413, "write"));
}
