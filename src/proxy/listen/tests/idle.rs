//! Idle connections: they make room for others, and end.

use super::*;

#[tokio::test]
async fn idle_connections_are_closed_for_new_ones_and_busy_ones_stay() {
    let running = start(Limits { connections_max: 20, ..Limits::default() }).await;
    let mut busy = running.connect(running.client(&[])).await.unwrap();
    busy.write_all(b"POST /busy HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na").await.unwrap();
    while running.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(running.connect(running.client(&["h2"])).await.unwrap());
    }
    let _held = silent(running.address, 400).await;
    let answered = async {
        let stream = running.connect(running.client(&["h2"])).await.unwrap();
        assert_eq!(get_http2(stream, "/new").await, "4 Http2 Some(TLSv1_3) 0");
    };
    tokio::time::timeout(Duration::from_secs(1), answered).await.expect("a place at once");
    busy.write_all(b"b").await.unwrap();
    assert!(read_until(&mut busy, ") 2").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_connection_is_refused_when_no_other_is_idle() {
    let running = start(Limits { connections_max: 1, ..Limits::default() }).await;
    let mut stuck = running.connect(running.client(&[])).await.unwrap();
    stuck.write_all(b"GET /never HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    while running.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(running.connect(running.client(&[])).await.is_err(), "at once, not after a wait");
    drop(stuck);
    while running.connect(running.client(&[])).await.is_err() {
        tokio::task::yield_now().await;
    }
}

/// Its client never opens the window of the stream.
#[tokio::test]
async fn an_error_that_is_not_read_keeps_no_place() {
    let running = start(Limits { connections_max: 1, ..Limits::default() }).await;
    let stream = running.connect(running.client(&["h2"])).await.unwrap();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let handshake = builder.initial_stream_window_size(0).handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::get("https://localhost/refused").body(Body::empty()).unwrap();
    let unread = sender.send_request(request).await.unwrap();
    assert_eq!(unread.status(), http::StatusCode::FORBIDDEN);
    let answered = async {
        let stream = running.connect(running.client(&["h2"])).await.unwrap();
        assert_eq!(get_http2(stream, "/new").await, "4 Http2 Some(TLSv1_3) 0");
    };
    tokio::time::timeout(Duration::from_secs(5), answered).await.expect("a place");
    let _ = connection.await;
}

#[tokio::test]
async fn an_idle_http2_connection_times_out_and_a_busy_one_does_not() {
    let limits = Limits { idle_timeout: Duration::from_millis(300), ..Limits::default() };
    let running = start(limits).await;
    let open = async || {
        let stream = running.connect(running.client(&["h2"])).await.unwrap();
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        (sender, tokio::spawn(connection))
    };
    let (mut used, using) = open().await;
    let (_idle, idling) = open().await;
    let request = Request::get("https://localhost/never").body(Body::empty()).unwrap();
    let waiting = tokio::spawn(used.send_request(request));
    let closed = tokio::time::timeout(Duration::from_secs(5), idling).await;
    closed.expect("closed in time").unwrap().unwrap();
    assert!(!using.is_finished() && !waiting.is_finished());
}
