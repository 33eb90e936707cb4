//! Request targets in every form of HTTP, and their methods.

use http::Response;
use listless::body::Body;

use crate::harness::{Echo, LOCAL_TOKEN, Setup, TestProxy};

async fn start(echo: &Echo) -> TestProxy {
    Setup::default().upstream(echo.clone()).in_plain_text().await
}

fn with_token(line: &str) -> String {
    format!("{line} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {LOCAL_TOKEN}\r\n\r\n")
}

#[tokio::test]
async fn a_target_is_forwarded_as_path_and_query() {
    let echo = Echo::silent();
    let proxy = start(&echo).await;
    let mut connection = proxy.raw().await;
    for (line, expected) in [
        ("GET /healthz", "/healthz"),
        ("GET http://elsewhere:1234/healthz?x=1", "/healthz?x=1"),
        ("GET https://127.0.0.1/api/v1/pods?limit=1", "/api/v1/pods?limit=1"),
        ("DELETE http://user@elsewhere/api/v1/pods", "/api/v1/pods"),
        ("GET http://elsewhere", "/"),
        ("GET /healthz?", "/healthz?"),
        ("GET //api/v1/pods", "//api/v1/pods"),
        ("GET /../api/v1/./pods/", "/../api/v1/./pods/"),
        ("GET /api/v1/namespaces/a%2Fb/pods/%2e%2E", "/api/v1/namespaces/a%2Fb/pods/%2e%2E"),
        (
            "GET /api/v1/namespaces/a/services/s:80/proxy/x/?q=%zz",
            "/api/v1/namespaces/a/services/s:80/proxy/x/?q=%zz",
        ),
        ("OPTIONS *", "*"),
        ("PRI /x", "/x"),
        ("M-SEARCH /x", "/x"),
    ] {
        connection.send(with_token(line)).await;
        let answer = connection.answer().await.unwrap_or_else(|| panic!("no answer to {line}"));
        assert_eq!(answer.status, 200, "{line}");
        assert_eq!(echo.last().target, expected, "{line}");
        assert_eq!(echo.last().method.as_str(), line.split(' ').next().expect("a method"));
    }
    drop(connection);
    proxy.drain().await;
}

#[tokio::test]
async fn the_host_of_a_target_is_neither_dialled_nor_forwarded() {
    let echo = Echo::silent();
    let proxy = start(&echo).await;
    let mut connection = proxy.raw().await;
    connection.send(with_token("GET http://elsewhere/version")).await;
    assert_eq!(connection.answer().await.expect("an answer").status, 200);
    assert!(!echo.last().headers.contains_key("host"));
    assert!(!echo.last().target.contains("elsewhere"));
    drop(connection);
    proxy.drain().await;
}

#[tokio::test]
async fn connect_is_refused() {
    let echo = Echo::silent();
    let proxy = start(&echo).await;
    let mut connection = proxy.raw().await;
    connection.send("CONNECT elsewhere:443 HTTP/1.1\r\nhost: elsewhere:443\r\n\r\n").await;
    assert_eq!(connection.answer().await.expect("an answer").status, 405);
    assert_eq!(connection.rest().await, b"");
    assert_eq!(echo.count(), 0);
    proxy.drain().await;
}

#[tokio::test]
async fn a_client_that_expects_100_continue_gets_it() {
    let echo = Echo::new(|kept| Response::new(Body::full(kept.body.clone())));
    let proxy = start(&echo).await;
    let mut connection = proxy.raw().await;
    let head = "POST /api/v1/pods HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n";
    connection.send(head).await;
    assert_eq!(connection.answer().await.expect("leave").status, 100);
    connection.send("body").await;
    let answer = connection.answer().await.expect("an answer");
    assert_eq!((answer.status, answer.text().as_str()), (200, "body"));
    drop(connection);
    proxy.drain().await;
}

#[tokio::test]
async fn http_1_0_and_closing_clients_are_served_and_closed() {
    let echo = Echo::new(|_| Response::new(Body::full("hello")));
    let proxy = start(&echo).await;
    for request in [
        "GET /version HTTP/1.0\r\n\r\n",
        "GET /version HTTP/1.0\r\nhost: x\r\n\r\n",
        "GET /version HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    ] {
        let mut connection = proxy.raw().await;
        connection.send(request).await;
        let answer = connection.answer().await.expect("an answer");
        assert_eq!((answer.status, answer.text().as_str()), (200, "hello"), "{request:?}");
        assert_eq!(connection.rest().await, b"", "{request:?}: the connection stays open");
    }
    proxy.drain().await;
}
