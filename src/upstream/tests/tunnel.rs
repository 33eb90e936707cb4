//! Upgrades, from a client through Listless to an apiserver.

use std::{convert::Infallible, io};

use http::{
    HeaderMap, Request, Response, StatusCode,
    header::{AUTHORIZATION, CONNECTION, UPGRADE},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn, upgrade};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_rustls::server::TlsStream;

use super::harness::{start, start_shared, text};
use crate::{
    body::Body,
    upstream::{Client, Error, Peer, Pool, Settings, tunnel::splice},
};

const HTTP2: &[&str] = &["h2", "http/1.1"];

fn switching(protocol: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, "Upgrade".parse().unwrap());
    response.headers_mut().insert(UPGRADE, protocol.parse().unwrap());
    response
}

/// Switches to an echo that sends a last message after the other side has ended; refuses
/// `/refused`.
async fn apiserver(stream: TlsStream<DuplexStream>) {
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let service = service_fn(|mut request: Request<Incoming>| async move {
        if request.uri().path().ends_with("/refused") {
            let mut response = Response::new(Body::full("no"));
            *response.status_mut() = StatusCode::FORBIDDEN;
            return Ok(response);
        }
        let protocol = request.headers()[UPGRADE].to_str().unwrap().to_owned();
        let upgrade = upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let mut bytes = Vec::new();
            // A client that breaks off gets no message.
            if stream.read_to_end(&mut bytes).await.is_err() {
                return;
            }
            bytes.extend_from_slice(b", goodbye");
            stream.write_all(&bytes).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let protocol = if protocol == "wrong" { "other" } else { &protocol };
        Ok::<_, Infallible>(switching(protocol))
    });
    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let _ = served.with_upgrades().await;
}

fn ask(path: &str, protocol: &str) -> Request<Body> {
    Request::post(path)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, protocol)
        .header("x-stream-protocol-version", "v5.channel.k8s.io")
        .body(Body::empty())
        .unwrap()
}

/// Forwards for a client as the proxy's forward step does.
async fn proxy(stream: DuplexStream, pool: Pool) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        let pool = pool.clone();
        async move {
            let client = upgrade::on(&mut request);
            let mut response = pool.upgrade(request.map(Body::incoming)).await.unwrap();
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                let upstream = upgrade::on(&mut response);
                tokio::spawn(async move {
                    let both = tokio::try_join!(client, upstream).map_err(io::Error::other);
                    let (client, upstream) = both?;
                    splice(TokioIo::new(client), TokioIo::new(upstream)).await
                });
            }
            Ok::<_, Infallible>(response)
        }
    });
    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let _ = served.with_upgrades().await;
}

#[tokio::test]
async fn bytes_pass_both_ways_and_each_side_ends_separately() {
    let (pool, network, server) = start("/base", HTTP2, Settings::default());
    server.serve(apiserver);
    let (mut client, far) = tokio::io::duplex(1024);
    tokio::spawn(proxy(far, pool));
    let head = "POST /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    while !answer.ends_with("\r\n\r\n") {
        answer.push(char::from(client.read_u8().await.unwrap()));
    }
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert!(answer.to_lowercase().contains("upgrade: spdy/3.1"), "{answer}");
    client.write_all(&[b'x'; 100_000]).await.unwrap();
    client.shutdown().await.unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest.len(), 100_000 + ", goodbye".len());
    assert_eq!(network.dialled(), 1);
}

#[tokio::test]
async fn a_refusal_is_a_normal_response() {
    let (pool, _, server) = start("", HTTP2, Settings::default());
    server.serve(apiserver);
    let response = pool.upgrade(ask("/refused", "websocket")).await.unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert_eq!(text(response).await, "no");
}

#[tokio::test]
async fn a_switch_to_another_protocol_is_an_error() {
    let (pool, _, server) = start("", HTTP2, Settings::default());
    server.serve(apiserver);
    let answer = pool.upgrade(ask("/", "wrong")).await;
    assert!(matches!(answer, Err(Error::Broken(_))));
}

#[tokio::test]
async fn open_tunnels_are_counted() {
    let settings = Settings { tunnels_max: 1, ..Settings::default() };
    let (pool, _, server) = start("", HTTP2, settings);
    server.serve(apiserver);
    let mut open = pool.upgrade(ask("/", "websocket")).await.unwrap();
    let upgraded = upgrade::on(&mut open).await.unwrap();
    let refused = pool.upgrade(ask("/", "websocket")).await;
    assert!(matches!(refused, Err(Error::Saturated("upstream tunnels"))));
    drop(upgraded);
    pool.upgrade(ask("/", "websocket")).await.expect("the place is free again");
}

/// Strangers keep their tunnels, and those whose tokens were accepted open others.
#[tokio::test]
async fn unaccepted_credentials_have_few_tunnels_of_their_own() {
    let (pool, _, server) = start_shared(HTTP2);
    server.serve(apiserver);
    let ask = |token: &str| {
        let mut request = ask("/", "websocket");
        request.headers_mut().insert(AUTHORIZATION, token.parse().unwrap());
        pool.upgrade(request)
    };
    // Its first switch of protocols shows that it is accepted.
    let first = ask("Bearer good").await.unwrap();
    let mut held = Vec::new();
    let full = loop {
        match ask(&format!("Basic {}", held.len())).await {
            Ok(mut open) => held.push(upgrade::on(&mut open).await.unwrap()),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Saturated("upstream tunnels")));
    let few = Settings::default().tunnels_max / 16;
    assert!((few - 1..=few).contains(&held.len()), "{}", held.len());
    ask("Bearer good").await.expect("a tunnel of the others");
    drop(first);
}

#[tokio::test]
async fn nobody_holds_the_tunnels_of_the_others() {
    let (pool, _, server) = start_shared(HTTP2);
    server.serve(apiserver);
    let ask = |token: &str, from: [u8; 4]| {
        let mut request = ask("/", "websocket");
        request.headers_mut().insert(AUTHORIZATION, token.parse().unwrap());
        request.extensions_mut().insert(Peer(from.into()));
        pool.upgrade(request)
    };
    let fill = async |token: &dyn Fn(usize) -> String, from| {
        let mut held = Vec::new();
        loop {
            match ask(&token(held.len()), from).await {
                Ok(mut open) => held.push(upgrade::on(&mut open).await.unwrap()),
                Err(error) => break (held, error),
            }
        }
    };
    let max = Settings::default().tunnels_max;
    let (_strangers, full) = fill(&|number| format!("Basic {number}"), [10, 0, 0, 1]).await;
    assert_eq!(full.to_string(), Error::Saturated("upstream tunnels of one caller").to_string());
    drop(ask("Bearer good", [10, 0, 0, 2]).await.expect("a tunnel of another address"));
    let (held, full) = fill(&|_| "Bearer good".to_owned(), [10, 0, 0, 2]).await;
    assert_eq!(full.to_string(), Error::Saturated("upstream tunnels of one caller").to_string());
    assert_eq!(held.len(), max / 4);
    drop(ask("Bearer other", [10, 0, 0, 3]).await.expect("a tunnel of another caller"));
    drop(ask("Bearer other", [10, 0, 0, 3]).await.expect("one of all, now that it is accepted"));
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_without_a_response_ends() {
    let (pool, _, mut server) = start("", HTTP2, Settings::default());
    let asked = tokio::spawn(async move { pool.upgrade(ask("/", "websocket")).await });
    let _silent = server.accept().await;
    assert!(matches!(asked.await.unwrap(), Err(Error::Broken(_))));
}

#[tokio::test]
async fn the_headers_of_an_upgrade_arrive_unchanged() {
    let (pool, _, mut server) = start("/base", HTTP2, Settings::default());
    let asked = tokio::spawn(async move { pool.upgrade(ask("/a?b=c", "websocket")).await });
    let mut stream = server.accept().await;
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(char::from(stream.read_u8().await.unwrap()));
    }
    asked.abort();
    let mut lines = head.trim_end().split("\r\n");
    assert_eq!(lines.next(), Some("POST /base/a?b=c HTTP/1.1"));
    let headers: HeaderMap = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap()))
        .collect();
    assert_eq!(headers["host"], "apiserver");
    assert_eq!(headers["connection"], "Upgrade");
    assert_eq!(headers["upgrade"], "websocket");
    assert_eq!(headers["x-stream-protocol-version"], "v5.channel.k8s.io");
}
