//! The isolation of callers: separate connections, and requests that are sent again.

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures_util::stream::pending;
use http::{Request, Response, StatusCode, header::AUTHORIZATION};
use http_body_util::StreamBody;
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_rustls::server::TlsStream;

use super::harness::{Server, fed, start, start_shared, text};
use crate::{
    body::{Body, BoxError},
    upstream::{Client, Error, Lane, Peer, Pool, Settings},
};

const HTTP2: &[&str] = &["h2", "http/1.1"];
const HTTP1: &[&str] = &["http/1.1"];

/// The connection of each path.
type Requests = Arc<Mutex<Vec<(String, usize)>>>;

/// Answers 401 to every token except `good`, 403 to anonymous requests, and records the connection.
fn serve_noting(server: Server, http2: bool) -> Requests {
    let requests = Requests::default();
    let (noted, connections) = (Arc::clone(&requests), Arc::new(AtomicUsize::new(0)));
    server.serve(move |stream| {
        let (noted, number) = (Arc::clone(&noted), connections.fetch_add(1, Ordering::SeqCst));
        let service = service_fn(move |request: Request<Incoming>| {
            noted.lock().unwrap().push((request.uri().path().to_owned(), number));
            let token = request.headers().get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
            let status = match token {
                Some(b"Bearer good") if request.uri().path() != "/expired" => StatusCode::OK,
                Some(b"Bearer good" | b"Bearer bad") => StatusCode::UNAUTHORIZED,
                _ => StatusCode::FORBIDDEN,
            };
            async move {
                Response::builder().status(status).header("audit-id", "an id").body(Body::empty())
            }
        });
        async move {
            let stream = TokioIo::new(stream);
            if http2 {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(stream, service).await;
            } else {
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(stream, service)
                    .await;
            }
        }
    });
    requests
}

/// Answers `/big` with 4 MiB, `/slow` with a body that does not come, and all else with 100 bytes.
fn serve_bodies(server: Server) {
    server.serve(|stream| async move {
        let service = service_fn(|request: Request<Incoming>| async move {
            let body = match request.uri().path() {
                "/big" => Body::full(vec![b'x'; 4 << 20]),
                "/slow" => Body::wrap(StreamBody::new(pending::<Result<Frame<Bytes>, BoxError>>())),
                _ => Body::full(vec![b'x'; 100]),
            };
            Ok::<_, std::convert::Infallible>(Response::new(body))
        });
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    });
}

/// One address's requests without an accepted credential take a quarter of their places.
#[tokio::test]
async fn unaccepted_requests_of_one_address_leave_places_to_the_others() {
    let (pool, _, server) = start_shared(HTTP2);
    serve_bodies(server);
    let ask = |path: &str, peer: Peer, token: Option<String>| {
        let request =
            token.into_iter().fold(Request::get(path).extension(peer), |request, token| {
                request.header(AUTHORIZATION, format!("Bearer {token}"))
            });
        Client::send(&pool, request.body(Body::empty()).unwrap(), Lane::Short)
    };
    let host = |last| Peer(IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]));
    let other = Peer(IpAddr::from([10, 0, 0, 1]));
    // Callers that are accepted take none of them, whatever they leave unread.
    let settings = Settings::default();
    let share = settings.unproven_connections_max * settings.streams_max / 4;
    let mut accepted = Vec::new();
    for number in 0..share {
        accepted.push(ask("/slow", host(9), Some(number.to_string())).await.unwrap());
    }
    let mut unread = Vec::new();
    for number in 0..share {
        unread.push(ask("/slow", host(number as u16), None).await.unwrap());
    }
    let waiting = ask("/small", host(1), Some("new".to_owned()));
    let answered = tokio::time::timeout(std::time::Duration::from_millis(300), waiting).await;
    assert!(answered.is_err(), "the network has taken its share");
    assert_eq!(text(ask("/small", other, None).await.unwrap()).await.len(), 100);
    drop(unread.pop());
    ask("/small", host(2), None).await.expect("a place is free again");
}

/// Answers that nobody reads free their places: short ones at once, long ones after a minute.
#[tokio::test(start_paused = true)]
async fn unread_answers_of_unaccepted_requests_lock_nobody_out() {
    let (pool, _, server) = start_shared(HTTP2);
    serve_bodies(server);
    let ask = |path: &str, network: u8| {
        let request = Request::get(path).extension(Peer(IpAddr::from([10, 0, 0, network])));
        Client::send(&pool, request.body(Body::empty()).unwrap(), Lane::Short)
    };
    let settings = Settings::default();
    let share = settings.unproven_connections_max * settings.streams_max / 4;
    let mut unread = Vec::new();
    for path in ["/small", "/big"] {
        for network in 0..4 {
            for _ in 0..share {
                unread.push(ask(path, network).await.unwrap());
            }
        }
    }
    let began = tokio::time::Instant::now();
    let waiting = ask("/small", 4).await;
    assert!(matches!(waiting, Err(Error::Saturated(_))), "the places are taken: {waiting:?}");
    tokio::time::sleep(std::time::Duration::from_mins(1).saturating_sub(began.elapsed())).await;
    assert_eq!(text(ask("/small", 4).await.unwrap()).await.len(), 100);
    let small = unread.swap_remove(0);
    assert_eq!(text(small).await.len(), 100);
    let big = unread.pop().unwrap().into_body().collect(8 << 20).await;
    assert!(big.unwrap_err().to_string().contains("was not read for 60 s"));
}

/// One caller's answers that it does not read take a quarter of the places.
#[tokio::test]
async fn unread_answers_of_one_caller_leave_places_to_the_others() {
    let (pool, _, server) = start_shared(HTTP2);
    serve_bodies(server);
    let ask = |path: &str, token: &str| {
        let request = Request::get(path).header(AUTHORIZATION, format!("Bearer {token}"));
        Client::send(&pool, request.body(Body::empty()).unwrap(), Lane::Short)
    };
    for token in ["greedy", "other"] {
        text(ask("/small", token).await.unwrap()).await;
    }
    let settings = Settings::default();
    let share = settings.short_connections_max * settings.streams_max / 4;
    let mut unread = Vec::new();
    for _ in 0..share {
        unread.push(ask("/slow", "greedy").await.unwrap());
    }
    let waiting = ask("/slow", "greedy");
    let answered = tokio::time::timeout(std::time::Duration::from_millis(300), waiting).await;
    assert!(answered.is_err(), "it has taken its share");
    assert_eq!(text(ask("/small", "other").await.unwrap()).await.len(), 100);
    drop(unread.pop());
    ask("/big", "greedy").await.expect("a place is free again");
}

async fn ask(pool: &Pool, path: &str, credential: Option<&str>) -> StatusCode {
    let mut request = Request::get(path);
    if let Some(credential) = credential {
        request = request.header(AUTHORIZATION, credential);
    }
    let request = request.body(Body::empty()).unwrap();
    let response = Client::send(pool, request, Lane::Short).await.unwrap();
    let status = response.status();
    text(response).await;
    status
}

#[tokio::test]
async fn unaccepted_credentials_have_their_own_connections() {
    for (protocols, http2) in [(HTTP2, true), (HTTP1, false)] {
        let (pool, _, server) = start_shared(protocols);
        let requests = serve_noting(server, http2);
        let good = Some("Bearer good");
        assert_eq!(ask(&pool, "/first", good).await, 200);
        for stranger in [
            None,
            Some("Bearer bad"),
            Some("Basic Z29vZA=="),
            Some("Bearer  good"),
            Some("Bearer good good"),
            Some("Bearer"),
        ] {
            for _ in 0..3 {
                assert!(ask(&pool, "/stranger", stranger).await.is_client_error(), "{stranger:?}");
                assert_eq!(ask(&pool, "/good", good).await, 200);
            }
        }
        assert_eq!(ask(&pool, "/expired", good).await, 401);
        assert_eq!(ask(&pool, "/after-401", good).await, 200);
        assert_eq!(ask(&pool, "/good", good).await, 200);
        let requests = requests.lock().unwrap();
        let over = |path: &str| {
            let all = requests.iter().filter(|(seen, _)| seen == path);
            all.map(|(_, number)| *number).collect::<std::collections::BTreeSet<_>>()
        };
        let (good, stranger) = (over("/good"), over("/stranger"));
        assert!(good.is_disjoint(&stranger), "{requests:?}");
        assert!(over("/after-401").is_disjoint(&good), "{requests:?}");
        assert_eq!((good.len(), stranger.len()), (1, 1), "{requests:?}");
    }
}

/// Reads HTTP/2 frames until one of type `wanted`; returns its stream.
async fn frame(stream: &mut TlsStream<DuplexStream>, wanted: u8) -> Option<u32> {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await.ok()?;
        if head[3] == wanted {
            return Some(u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
        }
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

async fn send_frame(stream: &mut TlsStream<DuplexStream>, kind: u8, id: u32, payload: &[u8]) {
    let mut bytes = vec![0, 0, u8::try_from(payload.len()).unwrap(), kind, 0];
    bytes.extend(id.to_be_bytes());
    bytes.extend(payload);
    stream.write_all(&bytes).await.unwrap();
}

/// The way in which the first connection rejects its request.
#[derive(Clone, Copy, Debug)]
enum Away {
    /// GOAWAY, whose last stream is below the request's.
    Goaway,
    /// RST_STREAM with REFUSED_STREAM.
    Refused,
    /// GOAWAY, whose last stream is the request's, and the connection ends.
    Processed,
}

/// Closes the first connection once it has seen a part of a body; others echo.
fn serve_away(server: Server, away: Away) -> Arc<AtomicUsize> {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    server.serve(move |mut stream| {
        let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if !first {
                let service = service_fn(|request: Request<Incoming>| async move {
                    Ok::<_, std::convert::Infallible>(Response::new(request.into_body()))
                });
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                return;
            }
            stream.read_exact(&mut [0; 24]).await.unwrap();
            send_frame(&mut stream, SETTINGS, 0, &[]).await;
            let id = frame(&mut stream, HEADERS).await.unwrap();
            frame(&mut stream, DATA).await.unwrap();
            match away {
                Away::Goaway => send_frame(&mut stream, GOAWAY, 0, &[0; 8]).await,
                Away::Refused => send_frame(&mut stream, RST_STREAM, id, &[0, 0, 0, 7]).await,
                Away::Processed => {
                    let payload = [&id.to_be_bytes()[..], &[0; 4]].concat();
                    send_frame(&mut stream, GOAWAY, 0, &payload).await;
                    stream.shutdown().await.unwrap();
                    return;
                }
            }
            while frame(&mut stream, 0xff).await.is_some() {}
        }
    });
    connections
}

#[tokio::test]
async fn an_unprocessed_request_is_sent_again_with_its_body() {
    for away in [Away::Goaway, Away::Refused] {
        for pieces in [vec![vec![b'a'; 10]], vec![vec![b'a'; 100_000], vec![b'b'; 200_000]]] {
            let (pool, _, server) = start("", HTTP2, Settings::default());
            let connections = serve_away(server, away);
            let (sender, body) = fed();
            for piece in &pieces {
                sender.send(Bytes::from(piece.clone())).unwrap();
            }
            let request = Request::patch("/").body(body).unwrap();
            let sent = tokio::spawn(Client::send(&pool, request, Lane::Short));
            super::harness::eventually("it was sent again", || {
                connections.load(Ordering::SeqCst) == 2
            })
            .await;
            sender.send(Bytes::from_static(b"the rest")).unwrap();
            drop(sender);
            let echoed = text(sent.await.unwrap().unwrap()).await;
            let expected = [pieces.concat(), b"the rest".to_vec()].concat();
            assert!(echoed.as_bytes() == expected, "{away:?}: {} bytes", echoed.len());
        }
    }
}

#[tokio::test]
async fn a_possibly_processed_request_or_a_partial_body_is_not_sent_again() {
    let kept = super::super::pool::KEPT_BYTES_MAX;
    for (away, length) in [(Away::Processed, 10), (Away::Goaway, kept + 1)] {
        let (pool, _, server) = start("", HTTP2, Settings::default());
        let connections = serve_away(server, away);
        let request = Request::patch("/").body(Body::full(vec![b'x'; length])).unwrap();
        let answer = Client::send(&pool, request, Lane::Short).await;
        assert!(matches!(answer, Err(Error::Broken(_))), "{away:?}: {answer:?}");
        assert_eq!(connections.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn a_broken_body_of_a_request_is_no_failure_of_the_apiserver() {
    for protocols in [HTTP2, HTTP1] {
        let (pool, _, server) = start("", protocols, Settings::default());
        serve_noting(server, protocols == HTTP2);
        let broken = futures_util::stream::iter([Err::<Frame<Bytes>, BoxError>("a gap".into())]);
        let request = Request::post("/").body(Body::wrap(StreamBody::new(broken))).unwrap();
        let answer = Client::send(&pool, request, Lane::Short).await;
        assert!(matches!(answer, Err(Error::RequestBody(_))), "{protocols:?}: {answer:?}");
    }
}

/// Reads `/held` and never answers it, refuses the first `/again`, and answers all else.
fn serve_refusing(server: Server) -> Arc<AtomicUsize> {
    let (held, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&held);
    server.serve(move |stream| {
        let (held, refused) = (Arc::clone(&counted), Arc::clone(&refused));
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((mut request, mut respond))) = connection.accept().await {
                let (held, refused) = (Arc::clone(&held), Arc::clone(&refused));
                tokio::spawn(async move {
                    let path = request.uri().path().to_owned();
                    while let Some(Ok(data)) = request.body_mut().data().await {
                        request.body_mut().flow_control().release_capacity(data.len()).unwrap();
                        match path.as_str() {
                            "/held" => _ = held.fetch_add(data.len(), Ordering::SeqCst),
                            _ if refused.fetch_add(1, Ordering::SeqCst) == 0 => {
                                return respond.send_reset(h2::Reason::REFUSED_STREAM);
                            }
                            _ => {}
                        }
                    }
                    let _ = respond.send_response(Response::new(()), true);
                });
            }
        }
    });
    held
}

/// Bodies of requests without an accepted credential fill their own memory only.
#[tokio::test]
async fn kept_bodies_of_unaccepted_requests_leave_those_of_others_their_memory() {
    let (pool, _, server) = start_shared(HTTP2);
    let held = serve_refusing(server);
    let good = Some("Bearer good");
    assert_eq!(ask(&pool, "/accepted", good).await, 200);
    let kept = super::super::pool::KEPT_BYTES_MAX;
    let (mut senders, mut sent) = (Vec::new(), 0);
    for number in 0..12 {
        let (sender, body) = fed();
        for _ in 0..kept / 65_536 - 1 {
            sender.send(Bytes::from(vec![b'x'; 65_536])).unwrap();
            sent += 65_536;
        }
        senders.push(sender);
        let peer = Peer(IpAddr::from([10, 0, 0, number]));
        let request = Request::post("/held").extension(peer).body(body).unwrap();
        tokio::spawn(Client::send(&pool, request, Lane::Short));
    }
    super::harness::eventually("they were read", || held.load(Ordering::SeqCst) == sent).await;
    let request = Request::patch("/again").header(AUTHORIZATION, "Bearer good");
    let body = Body::full(vec![b'x'; kept / 2]);
    let answer = Client::send(&pool, request.body(body).unwrap(), Lane::Short).await;
    assert_eq!(answer.expect("it was sent again").status(), 200);
}
