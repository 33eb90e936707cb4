//! Bounds over HTTP/2: requests in flight, bytes that wait for a reader, headers.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::header::{HeaderName, RETRY_AFTER};
use http_body::Frame;
use http_body_util::StreamBody;

use super::{
    super::listener::{CONNECTION_WINDOW_BYTES, STREAM_WINDOW_BYTES},
    *,
};
use crate::body::BoxError;

type Sender = http2::SendRequest<Body>;

async fn open(running: &Running) -> Sender {
    let stream = running.connect(running.client(&["h2"])).await.unwrap();
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn send(mut sender: Sender, path: &str, body: Body) -> Response<Incoming> {
    let request = Request::post(format!("https://localhost{path}")).body(body).unwrap();
    sender.send_request(request).await.unwrap()
}

#[tokio::test]
async fn requests_beyond_the_bound_get_429_until_another_ends() {
    let running = start(Limits { requests_max: 2, ..Limits::default() }).await;
    let (one, other) = (open(&running).await, open(&running).await);
    let waiting: Vec<_> = [&one, &other]
        .into_iter()
        .map(|sender| tokio::spawn(send(sender.clone(), "/never", Body::empty())))
        .collect();
    while running.seen().len() < 2 {
        tokio::task::yield_now().await;
    }
    let refused = send(other.clone(), "/third", Body::empty()).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()[RETRY_AFTER], "1");
    let old = b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert!(running.raw(old).await.starts_with("HTTP/1.1 429 "));
    let tunnel = b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let refused = running.raw(tunnel).await;
    assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("connection: close"));
    assert_eq!(running.seen(), ["/never", "/never"]);
    let metrics = running.metrics.render();
    for (name, label) in [
        ("listless_client_refused_total", "{reason=\"too_many_requests\"} 3"),
        ("listless_limits_reached_total", "{limit=\"client_requests\"} 3"),
    ] {
        assert!(metrics.contains(&format!("{name}{label}")), "{name}: {metrics}");
    }
    waiting[0].abort();
    while send(other.clone(), "/third", Body::empty()).await.status() != 200 {
        tokio::task::yield_now().await;
    }
}

/// Returns an endless body, which counts its bytes as they are taken.
fn endless(taken: Arc<AtomicUsize>) -> Body {
    const PIECE: &[u8] = &[b'x'; 1024];
    let frames = futures_util::stream::repeat_with(move || {
        taken.fetch_add(PIECE.len(), Ordering::Relaxed);
        Ok::<_, BoxError>(Frame::data(Bytes::from_static(PIECE)))
    });
    Body::wrap(StreamBody::new(frames))
}

#[tokio::test]
async fn bodies_that_are_not_read_fill_no_more_than_the_windows() {
    let (stream_max, connection_max) =
        (STREAM_WINDOW_BYTES as usize, CONNECTION_WINDOW_BYTES as usize);
    let running = start(Limits::default()).await;
    for (streams, bytes) in [(1, stream_max), (100, connection_max)] {
        let sender = open(&running).await;
        let taken = Arc::new(AtomicUsize::new(0));
        for _ in 0..streams {
            tokio::spawn(send(sender.clone(), "/never", endless(Arc::clone(&taken))));
        }
        let filled = async {
            while taken.load(Ordering::Relaxed) < bytes {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), filled).await.expect("full windows");
        // Real sockets: without a bound, more arrives within this time.
        tokio::time::sleep(Duration::from_millis(200)).await;
        // The client takes one piece of each body before it has to wait.
        let sent = taken.load(Ordering::Relaxed);
        assert!(sent <= bytes + 2 * 1024 * streams, "{streams} streams: {sent} bytes");
    }
}

#[tokio::test]
async fn headers_are_bounded_in_number_by_what_each_of_them_counts() {
    let running = start(Limits::default()).await;
    let mut sender = open(&running).await;
    for (headers, status) in [(1_800, 200), (2_048, 431)] {
        let mut request = Request::get("https://localhost/x").body(Body::empty()).unwrap();
        for _ in 0..headers {
            request.headers_mut().append(HeaderName::from_static("a"), "".parse().unwrap());
        }
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), status, "{headers} headers");
    }
}
