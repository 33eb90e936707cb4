//! Malformed and hostile requests on raw connections: each gets a clear response, and others are
//! unaffected.

use listless::proxy::listen::Limits;

use crate::harness::{Echo, LOCAL_TOKEN, RawAnswer, Setup, TestProxy};

async fn start() -> TestProxy {
    let proxy = Setup::default().in_plain_text().await;
    proxy.warm("/api/v1/pods").await;
    proxy
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {LOCAL_TOKEN}\r\n\r\n")
}

/// Returns the response to these bytes on a connection of their own, or `None` if it is closed
/// instead.
async fn answer(proxy: &TestProxy, bytes: impl AsRef<[u8]>) -> Option<RawAnswer> {
    let mut connection = proxy.raw().await;
    connection.send(bytes).await;
    connection.answer().await
}

/// Checks that a well-behaved client is still served.
async fn assert_well(proxy: &TestProxy) {
    let answer = proxy.client().get("/api/v1/namespaces/a/pods/web-0").await;
    assert_eq!(answer.status, 200, "{}", answer.summary());
}

#[tokio::test]
async fn bytes_that_are_not_http_are_refused_and_the_connection_is_closed() {
    let proxy = start().await;
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS greeting\r\n\r\n"[..],
        b"hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad name: 1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n: empty\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nx: a\x00b\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"G\x00T / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00\x00\x00\x00\r\n\r\n",
        b"\xff\xfe\xfd\r\n\r\n",
        b"{\"json\": true}\r\n\r\n",
        b"GET api HTTP/1.1\r\nHost: x\r\n\r\n",
    ] {
        let mut connection = proxy.raw().await;
        connection.send(bytes).await;
        connection.send(get("/version")).await;
        let said = String::from_utf8_lossy(bytes).into_owned();
        if let Some(answer) = connection.answer().await {
            assert_eq!(answer.status, 400, "{said:?}: {}", answer.text());
            assert_eq!(connection.rest().await, b"", "{said:?}: what follows is answered");
        }
        assert_well(&proxy).await;
    }
    proxy.drain().await;
}

#[tokio::test]
async fn ambiguous_framing_is_refused_before_it_is_forwarded() {
    let echo = Echo::silent();
    let proxy = Setup::default().upstream(echo.clone()).in_plain_text().await;
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    for framing in [
        "Host: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Host: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Host: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n",
        "Host: x\r\nContent-Length: 4\r\nContent-Length: 4\r\n",
        "Host: x\r\nContent-Length: 4, 4\r\n",
        "Host: x\r\nContent-Length: +4\r\n",
        "Host: x\r\nContent-Length: -1\r\n",
        "Host: x\r\nContent-Length: 0x4\r\n",
        "Host: x\r\nContent-Length: 99999999999999999999\r\n",
        "Host: x\r\nContent-Length : 4\r\n",
        "Host: x\r\nTransfer-Encoding: chunked, identity\r\n",
        "Host: x\r\nTransfer-Encoding: identity\r\n",
        "Host: x\r\nTransfer-Encoding: xchunked\r\n",
        "Host: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Host: x\r\nTransfer-Encoding:\x0bchunked\r\n",
        "Host: x\r\nTransfer-Encoding : chunked\r\n",
        "Host: x\r\n Content-Length: 4\r\n",
        "Host: x\nContent-Length: 4\n",
        "Content-Length: 4\r\n",
        "Host: x\r\nHost: y\r\nContent-Length: 4\r\n",
    ] {
        let mut connection = proxy.raw().await;
        let request = format!("POST /api/v1/pods HTTP/1.1\r\n{framing}\r\n0\r\n\r\n{smuggled}");
        connection.send(request).await;
        if let Some(answer) = connection.answer().await {
            assert_eq!(answer.status, 400, "{framing:?}: {}", answer.text());
            assert_eq!(connection.rest().await, b"", "{framing:?}: what follows is answered");
        }
        assert_eq!(echo.count(), 0, "{framing:?} reached the apiserver");
        assert_eq!(proxy.client().get("/version").await.status, 200);
        assert_eq!(echo.last().target, "/version", "{framing:?}: something was smuggled");
        echo.forget();
    }
    proxy.drain().await;
}

#[tokio::test]
async fn a_body_that_breaks_its_own_framing_ends_there() {
    let proxy = start().await;
    let head = format!(
        "POST /api/v1/namespaces/a/configmaps HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {LOCAL_TOKEN}\r\nContent-Type: application/json\r\n"
    );
    for body in [
        "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n2\r\n{}X0\r\n\r\n",
    ] {
        let mut connection = proxy.raw().await;
        connection.send(format!("{head}{body}")).await;
        connection.send(get("/api/v1/namespaces/a/pods/web-0")).await;
        let answer = connection.answer().await.expect("an answer");
        assert_eq!(answer.status, 400, "{body:?}: {}", answer.text());
        assert!(!String::from_utf8_lossy(&connection.rest().await).contains("web-0"), "{body:?}");
        assert_well(&proxy).await;
    }
    // The body never comes. The client goes away, and its request ends.
    let mut connection = proxy.raw().await;
    connection.send(format!("{head}Content-Length: 100\r\n\r\n{{\"metadata\"")).await;
    drop(connection);
    assert_well(&proxy).await;
    proxy.drain().await;
}

/// Otherwise whoever connects could make it look as if the apiserver had failed.
#[tokio::test]
async fn a_broken_body_is_no_failure_of_the_apiserver() {
    let proxy = Setup::default().upstream(Echo::silent()).in_plain_text().await;
    for method in ["GET", "POST"] {
        let head = format!("{method} /api/v1/pods HTTP/1.1\r\nHost: x\r\n");
        let body = "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n";
        let answer = answer(&proxy, head + body).await.expect("an answer");
        assert_eq!(answer.status, 400, "{method}: {}", answer.text());
        assert_eq!(answer.header("cache-status"), "listless; detail=request-body");
    }
    assert_eq!(proxy.counted("listless_upstream_errors_total", ""), 0.0);
    assert_eq!(proxy.counted("listless_requests_total", "code=\"400\""), 2.0);
    proxy.drain().await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order_and_never_mixed() {
    let proxy = start().await;
    let mut connection = proxy.raw().await;
    let names = ["web-0", "none", "web-1", "db-0"];
    let object = |name| get(&format!("/api/v1/namespaces/a/pods/{name}"));
    connection.send(names.map(object).concat()).await;
    for name in names {
        let answer = connection.answer().await.expect("an answer");
        assert_eq!(answer.status, if name == "none" { 404 } else { 200 });
        assert!(answer.text().contains(&format!("\"{name}\"")), "{name}: {}", answer.text());
    }
    // A refused request ends the pipeline, if need be before the request in front of it is
    // answered.
    let bad = "GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n";
    connection.send(format!("{}{bad}{}", object("web-0"), object("web-1"))).await;
    let mut last = connection.answer().await.expect("an answer");
    if last.status == 200 {
        last = connection.answer().await.expect("a refusal");
    }
    assert_eq!(last.status, 400);
    assert_eq!(connection.rest().await, b"");
    proxy.drain().await;
}

#[tokio::test]
async fn oversized_heads_are_refused() {
    let proxy = start().await;
    let limit = Limits::default().head_bytes_max;
    let long = "x".repeat(2 * limit);
    let many: String = (0..5000).map(|number| format!("x-{number}: 1\r\n")).collect();
    let token = format!("Authorization: Bearer {LOCAL_TOKEN}\r\n");
    for head in [
        format!("GET /api/v1/pods?x={long} HTTP/1.1\r\nHost: x\r\n{token}\r\n"),
        format!("GET /{long} HTTP/1.1\r\nHost: x\r\n{token}\r\n"),
        format!("{long} / HTTP/1.1\r\nHost: x\r\n{token}\r\n"),
        format!("GET /version HTTP/1.1\r\nHost: x\r\n{token}x: {long}\r\n\r\n"),
        format!("GET /version HTTP/1.1\r\nHost: x\r\n{token}{long}: x\r\n\r\n"),
        format!("GET /version HTTP/1.1\r\nHost: x\r\n{token}{many}\r\n"),
        format!("GET /version HTTP/1.1\r\nHost: x\r\n{token}x: {long}"),
    ] {
        if let Some(answer) = answer(&proxy, &head).await {
            assert!(matches!(answer.status, 400 | 414 | 431), "{}: {}", &head[..60], answer.status);
        }
        assert_well(&proxy).await;
    }
    proxy.drain().await;
}

#[tokio::test]
async fn large_valid_requests_are_answered() {
    let proxy = start().await;
    let long = "x".repeat(60_000);
    for (target, status) in [
        (format!("/api/v1/pods?labelSelector={long}"), 400),
        (format!("/api/v1/pods?unknown={long}"), 200),
        (format!("/api/v1/namespaces/{long}/pods"), 200),
        (format!("/api/v1/pods?{}", "a&".repeat(10_000)), 200),
        (format!("/api/v1/pods?{}", "limit=1&".repeat(7_000)), 200),
        (format!("/{long}"), 404),
    ] {
        let answer = answer(&proxy, get(&target)).await.expect("an answer");
        assert_eq!(answer.status, status, "{}: {}", &target[..22], answer.text());
    }
    proxy.drain().await;
}

#[tokio::test]
async fn invalid_uris_are_refused() {
    let proxy = start().await;
    let many: String = (0..10_000).map(|number| format!("p{number}=1&")).collect();
    for target in [
        format!("/api/v1/pods?{many}"),
        format!("/api/v1/pods?x={}", "x".repeat(100_000)),
        format!("/{}", "x".repeat(200_000)),
    ] {
        let answer = answer(&proxy, get(&target)).await.expect("an answer");
        assert!(matches!(answer.status, 414 | 431), "{}", answer.status);
        assert_well(&proxy).await;
    }
    proxy.drain().await;
}

#[tokio::test]
async fn absurd_selectors_are_forwarded() {
    let proxy = start().await;
    let many_values = format!("app in ({})", vec!["x"; 5_000].join(","));
    let many_terms = vec!["app"; 5_000].join(",");
    let nested = "(".repeat(10_000);
    for selector in [
        "",
        ",",
        ",,",
        "=",
        "==",
        "!=",
        "!",
        "!!a",
        "a=b=c",
        "a==b==c",
        "a in",
        "a in (",
        "a in ()",
        "a notin ((",
        "a in (b",
        "in in (in)",
        "notin",
        "a>b",
        "a>1",
        "a<99999999999999999999",
        "a=\"b\"",
        "a%",
        "-a",
        "a-",
        "a/b/c",
        "/",
        "x/",
        "/x",
        "ä=ö",
        "🦀",
        "a=b c",
        "a\tin\n(b)",
        &nested,
        &many_values,
        &many_terms,
    ] {
        let escaped: String = selector.bytes().map(|byte| format!("%{byte:02X}")).collect();
        for parameter in ["labelSelector", "fieldSelector"] {
            let path = format!("/api/v1/pods?{parameter}={escaped}");
            let ours = answer(&proxy, get(&path)).await.expect("an answer");
            let straight = proxy.straight().get(&path).await;
            let said = format!("{parameter} {:?}", selector.chars().take(40).collect::<String>());
            assert_eq!(ours.status, straight.status, "{said}: {}", ours.text());
            if ours.status != 200 {
                assert_eq!(ours.text(), straight.text(), "{said}");
            }
        }
    }
    proxy.drain().await;
}

#[tokio::test]
async fn bytes_outside_utf8_are_forwarded() {
    let proxy = start().await;
    for target in [
        "/api/v1/pods?labelSelector=%00",
        "/api/v1/pods?labelSelector=app%3D%ff%fe",
        "/api/v1/pods?%00=1",
        "/api/v1/namespaces/%00/pods",
        "/api/v1/namespaces/a/pods/%ff",
        "/api/v1/namespaces/a/pods/%2e%2e",
        "/api/v1/namespaces/a/pods/..",
        "/api/v1/namespaces/a/../../v1/pods",
        "/api/v1/pods?limit=%00",
        "/api/v1/pods?resourceVersion=%31%30",
        "/%61pi/v1/pods",
    ] {
        let ours = answer(&proxy, get(target)).await.expect("an answer");
        let straight = proxy.straight().get(target).await;
        assert_eq!(ours.status, straight.status, "{target}: {}", ours.text());
        assert!(!ours.header("cache-status").contains("hit") || target.contains("%31"), "{target}");
    }
    // The target has raw bytes outside ASCII.
    let mut raw =
        b"GET /api/v1/pods?labelSelector=\xc3\xa4 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
            .to_vec();
    raw.extend_from_slice(format!("{LOCAL_TOKEN}\r\n\r\n").as_bytes());
    if let Some(answer) = answer(&proxy, raw).await {
        assert_eq!(answer.status, 400, "{}", answer.text());
    }
    assert_well(&proxy).await;
    proxy.drain().await;
}

#[tokio::test]
async fn a_body_of_three_mebibytes_and_one_above_the_apiservers_limit_are_answered() {
    let proxy = start().await;
    for (bytes, status) in [(3 << 20, 400), ((3 << 20) + 1, 413), (8 << 20, 413)] {
        let mut connection = proxy.raw().await;
        let head = format!(
            "POST /api/v1/namespaces/a/configmaps HTTP/1.1\r\nHost: x\r\n\
             Authorization: Bearer {LOCAL_TOKEN}\r\nContent-Type: application/json\r\n\
             Content-Length: {bytes}\r\n\r\n"
        );
        connection.send(head).await;
        connection.send(vec![b'x'; bytes]).await;
        if let Some(answer) = connection.answer().await {
            assert_eq!(answer.status, status, "{bytes} bytes: {}", answer.text());
        }
        assert_well(&proxy).await;
    }
    proxy.drain().await;
}

#[tokio::test]
async fn nothing_of_one_connection_leaks_into_another() {
    let proxy = start().await;
    let mut half = proxy.raw().await;
    half.send(format!("GET /api/v1/namespaces/a/pods/web-0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {LOCAL_TOKEN}")).await;
    let mut other = proxy.raw().await;
    other.send("GET /api/v1/namespaces/a/pods/web-0 HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(other.answer().await.expect("an answer").status, 403);
    assert!(half.is_silent().await);
    half.send("\r\n\r\n").await;
    assert_eq!(half.answer().await.expect("an answer").status, 200);
    other.send("GET /api/v1/namespaces/a/pods/web-0 HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(other.answer().await.expect("an answer").status, 403);
    drop((half, other));
    proxy.drain().await;
}

#[tokio::test]
async fn a_tls_port_answers_plain_text_and_survives_broken_handshakes() {
    let proxy = Setup::default().on_loopback().await;
    for bytes in [
        &b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"\x00\x00\x00\x00\x00",
        b"",
    ] {
        let mut connection = proxy.raw_tcp().await;
        connection.send(bytes).await;
        connection.finish().await;
        let rest = connection.rest().await;
        if bytes.starts_with(b"GET") {
            let said = String::from_utf8_lossy(&rest).into_owned();
            assert!(said.starts_with("HTTP/1.0 400 Bad Request\r\n"), "{said}");
            assert!(said.contains("Client sent an HTTP request to an HTTPS server."), "{said}");
        }
        assert_eq!(proxy.client().get("/version").await.status, 200);
    }
    proxy.drain().await;
}
