//! Many watches of the same objects, each on its own connection or many on one.
//!
//! All must receive the same events: the first watcher's are stored, the others' events and bytes
//! are counted.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::{Request, Response, header};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{sync::watch, task::JoinSet};

use crate::{http2::Http2, wire::Endpoint};

const OPENED_AT_ONCE: usize = 32;
const RECEIVED_TIMEOUT: Duration = Duration::from_secs(60);

/// The open watches.
pub(crate) struct Watchers {
    received: Vec<watch::Receiver<Received>>,
    /// The events of the first watcher.
    first: Arc<Mutex<First>>,
    _tasks: JoinSet<()>,
}

/// The counts of one watcher so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Received {
    events: u64,
    bytes: u64,
    ended: bool,
}

/// The events of the first watcher and their times.
#[derive(Clone, Debug, Default)]
pub(crate) struct First {
    pub(crate) text: Vec<u8>,
    /// One time for each event.
    pub(crate) at: Vec<Instant>,
}

// === impl Watchers ===

impl Watchers {
    /// Opens this many watches, each on its own HTTP/1.1 connection. `served` is the required
    /// `Cache-Status`.
    pub(crate) async fn open(
        endpoint: &Endpoint,
        target: &str,
        count: usize,
        served: Option<&str>,
    ) -> Result<Self> {
        let opening = stream::iter(0..count).map(|_| open(endpoint, target, served));
        Ok(Self::reading(opening.buffer_unordered(OPENED_AT_ONCE).try_collect().await?))
    }

    /// Opens as many watches on each of these HTTP/2 connections.
    pub(crate) async fn open_shared(
        endpoint: &Endpoint,
        target: &str,
        (connections, each): (usize, usize),
        served: Option<&str>,
    ) -> Result<Self> {
        let mut opened = Vec::with_capacity(connections * each);
        for _ in 0..connections {
            let mut connection = Http2::open(endpoint).await?;
            for _ in 0..each {
                opened.push(accepted(connection.get(target).await?, target, served)?);
            }
        }
        Ok(Self::reading(opened))
    }

    fn reading(opened: Vec<Incoming>) -> Self {
        let (first, mut received, mut tasks) = (Arc::default(), Vec::new(), JoinSet::new());
        for (index, body) in opened.into_iter().enumerate() {
            let (sender, receiver) = watch::channel(Received::default());
            received.push(receiver);
            let kept = (index == 0).then(|| Arc::clone(&first));
            tasks.spawn(read(body, sender, kept));
        }
        Self { received, first, _tasks: tasks }
    }

    /// Returns the number of watches.
    pub(crate) fn count(&self) -> usize {
        self.received.len()
    }

    /// Waits until all have received this many events and the same number of bytes.
    pub(crate) async fn have_received(&mut self, events: u64) -> Result<()> {
        let whole = |received: &Received| received.ended || received.events >= events;
        for received in &mut self.received {
            tokio::time::timeout(RECEIVED_TIMEOUT, received.wait_for(whole)).await??;
        }
        let of = |received: &watch::Receiver<Received>| *received.borrow();
        let first = of(&self.received[0]);
        ensure!(first.events == events && !first.ended, "{events} events are {first:?}");
        match self.received.iter().map(of).find(|received| *received != first) {
            Some(other) => bail!("one received {first:?}, another {other:?}"),
            None => Ok(()),
        }
    }

    /// Returns the events of the first watcher.
    pub(crate) fn first(&self) -> First {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn open(endpoint: &Endpoint, target: &str, served: Option<&str>) -> Result<Incoming> {
    let tls = endpoint.connect(b"http/1.1").await?;
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(64 * 1024).handshake(TokioIo::new(tls)).await?;
    tokio::spawn(connection);
    let request = Request::get(target)
        .header(header::HOST, &endpoint.authority)
        .header(header::USER_AGENT, "listless-bench")
        .header(header::ACCEPT, "application/json")
        .header(header::AUTHORIZATION, format!("Bearer {}", endpoint.token))
        .body(Empty::<Bytes>::new())?;
    accepted(sender.send_request(request).await?, target, served)
}

/// Returns the body of a response that has the required `Cache-Status`.
fn accepted(response: Response<Incoming>, target: &str, served: Option<&str>) -> Result<Incoming> {
    ensure!(response.status() == 200, "{target}: {}", response.status());
    let cache_status = response.headers().get("cache-status").and_then(|value| value.to_str().ok());
    if let Some(served) = served {
        ensure!(
            cache_status.is_some_and(|cache_status| cache_status.contains(served)),
            "{target}: {cache_status:?}"
        );
    }
    Ok(response.into_body())
}

async fn read(
    mut body: Incoming,
    received: watch::Sender<Received>,
    kept: Option<Arc<Mutex<First>>>,
) {
    while let Some(Ok(frame)) = body.frame().await {
        let now = Instant::now();
        let Ok(data) = frame.into_data() else { continue };
        // An event ends with its only line break.
        let events = memchr::memchr_iter(b'\n', &data).count();
        if let Some(kept) = &kept {
            let mut first = kept.lock().unwrap_or_else(PoisonError::into_inner);
            first.text.extend_from_slice(&data);
            first.at.extend(std::iter::repeat_n(now, events));
        }
        received.send_modify(|received| {
            received.events += events as u64;
            received.bytes += data.len() as u64;
        });
    }
    received.send_modify(|received| received.ended = true);
}
