//! Probes are answered even while others hold or open connections to their port.

use std::{net::SocketAddr, time::Duration};

use listless::admin::Audience;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::harness::{Setup, pass};

const PROBE: &[u8] = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
/// Connections held before the flood, where the limit of file descriptors allows them.
const HELD: usize = 10_000;
/// Connections that the flood holds at a time.
const FLOOD: usize = 600;
/// File descriptors left to the other tests.
const SPARE: u64 = 2_000;

/// Raises this process's limit of file descriptors as far as allowed. Returns [`HELD`], or less where that is too low.
fn holdable() -> usize {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .expect("the soft limit may be raised to the hard one");
    let spared = limit.maximum.unwrap_or(u64::MAX).saturating_sub(SPARE);
    usize::try_from(spared).map_or(HELD, |spared| spared.min(HELD))
}

/// Opens connections without end, begins a request on each, and holds the newest.
async fn flood(address: SocketAddr) {
    let mut held = std::collections::VecDeque::new();
    loop {
        let Ok(mut stream) = TcpStream::connect(address).await else { continue };
        let _ = stream.write_all(b"GET /live").await;
        held.push_back(stream);
        if held.len() > FLOOD {
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
    for _ in 0..holdable() {
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
