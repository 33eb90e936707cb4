//! Probes are answered even while others hold or open connections to their port.

use std::{net::SocketAddr, time::Duration};

use listless::admin::Audience;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::harness::{Setup, pass};

const PROBE: &[u8] = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
/// The number of connections that the usual limit of file descriptors allows.
const HELD: usize = 600;

/// Opens connections without end, begins a request on each, and holds the newest.
async fn flood(address: SocketAddr) {
    let mut held = std::collections::VecDeque::new();
    loop {
        let Ok(mut stream) = TcpStream::connect(address).await else { continue };
        let _ = stream.write_all(b"GET /live").await;
        held.push_back(stream);
        if held.len() > HELD {
            held.pop_front();
        }
    }
}

/// The response to a probe before its connection is closed.
async fn probe(address: SocketAddr) -> String {
    let asked = async {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(PROBE).await.expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("the end of the connection");
        answer
    };
    tokio::time::timeout(Duration::from_secs(1), asked).await.expect("an answer within a second")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_are_answered_within_a_second_during_a_connection_flood() {
    let proxy = Setup::default().in_memory();
    let address = proxy.address_for(Audience::Probes).await;
    let mut held = Vec::new();
    for _ in 0..HELD {
        held.push(TcpStream::connect(address).await.expect("a connection"));
    }
    let flooding = tokio::spawn(flood(address));
    for _ in 0..30 {
        let answer = probe(address).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
    }
    flooding.abort();
    assert!(proxy.counted("listless_limits_reached_total", "admin_connections") > 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_probe_connection_is_closed_soon() {
    let proxy = Setup::default().in_memory();
    let address = proxy.address_for(Audience::Probes).await;
    let mut slow = TcpStream::connect(address).await.expect("a connection");
    slow.write_all(b"GET /livez HTTP/1.1\r\n").await.expect("written");
    pass(Duration::from_secs(11)).await;
    let mut rest = Vec::new();
    // The connection is closed, with or without a response, and not left open.
    let _ = slow.read_to_end(&mut rest).await;
}
