//! One HTTP/2 connection: its task, its limits, and requests on its streams.
//!
//! It uses `h2` directly, because a proxy must know exactly which requests the peer never
//! processed. These are refused, or above the last stream of a GOAWAY. A request then also costs no
//! task. Invariant: once the peer stops answering pings, every stream ends with an error.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use h2::{
    Ping, PingPong, Reason, RecvStream,
    client::{Builder, Connection, ResponseFuture, SendRequest},
};
use http::{HeaderMap, Request, Response, header::CONTENT_LENGTH, request::Parts};
use tokio::sync::Notify;
use tracing::debug;

use super::{
    Memory, Settings,
    stream::{Download, Upload, UploadError},
};
use crate::{
    body::{Body, BoxError},
    upstream::{
        dial::Stream,
        slot::{Slot, Slots},
        socket::{self, Reads, Socket},
    },
};

/// The limit of streams before the peer has sent its own; every known server allows more.
const STREAMS_BEFORE_SETTINGS: usize = 10;

/// The window of one unread stream, which bounds the memory of a slow reader.
pub(super) const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;

/// The limit of response headers.
const HEADER_BYTES_MAX: u32 = 256 * 1024;

/// The timeout of a graceful close.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection that takes requests.
#[derive(Clone)]
pub(super) struct Http2 {
    sender: SendRequest<Bytes>,
    state: Arc<ConnectionState>,
    memory: Memory,
}

/// The task that must run for a connection to work.
pub(super) struct Driver {
    connection: Connection<Socket, Bytes>,
    state: Arc<ConnectionState>,
    settings: Settings,
    freed: Arc<Notify>,
}

/// The state that the connection's task and the pool share.
struct ConnectionState {
    slots: Arc<Slots>,
    /// The peer's stream limit, or Listless's own if that is lower.
    limit: AtomicUsize,
    /// `true` once the peer has sent its limit.
    settled: AtomicBool,
    retired: AtomicBool,
    /// The number of reads with bytes: a proof of life besides pongs.
    reads: Reads,
}

/// The reason why a request got no response.
pub(super) enum RequestFailure {
    /// The peer did not process it, and its whole body is available: it may be sent again.
    Unsent(Box<Body>, BoxError),
    /// Nothing was sent: the connection was closing. It takes no further request.
    Unopened(Box<Body>, BoxError),
    /// It may have been processed.
    Broken(BoxError),
    /// Its own body failed.
    RequestBody(BoxError),
}

/// A pending response, while the request's body is sent.
struct PendingExchange {
    response: ResponseFuture,
    upload: Option<Upload>,
    /// `true` if the body has been sent, or is not needed any more.
    uploaded: bool,
}

/// The reason to close a connection that its peer has not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Pings are not answered.
    Dead,
    /// It was not used for a long time.
    Idle,
}

enum ExchangeError {
    Peer(h2::Error),
    RequestBody(BoxError),
}

// === impl Http2 ===

impl Http2 {
    /// Starts a connection; `freed` is notified of every free slot.
    pub(super) async fn start(
        stream: Box<dyn Stream>,
        settings: &Settings,
        freed: Arc<Notify>,
        memory: Memory,
    ) -> Result<(Self, Driver), h2::Error> {
        let (stream, reads) = socket::counted(stream);
        let (sender, connection) = builder(settings).handshake(stream).await?;
        let state = Arc::new(ConnectionState {
            slots: Slots::new(Arc::clone(&freed)),
            limit: AtomicUsize::new(STREAMS_BEFORE_SETTINGS.min(settings.streams_max)),
            settled: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            reads,
        });
        let driver =
            Driver { connection, state: Arc::clone(&state), settings: settings.clone(), freed };
        Ok((Self { sender, state, memory }, driver))
    }

    /// Returns a slot, unless the connection is full or accepts no more requests.
    pub(super) fn take_slot(&self) -> Option<Slot> {
        if self.is_retired() { None } else { self.state.slots.take(self.limit()) }
    }

    pub(super) fn used(&self) -> usize {
        self.state.slots.used()
    }

    pub(super) fn limit(&self) -> usize {
        self.state.limit.load(Ordering::Acquire)
    }

    /// Reports whether it may soon accept more requests, because the peer's limit is still unknown.
    pub(super) fn is_unsettled(&self) -> bool {
        !self.state.settled.load(Ordering::Acquire)
    }

    /// Reports whether it accepts no more requests; running ones continue.
    pub(super) fn is_retired(&self) -> bool {
        self.state.retired.load(Ordering::Acquire)
    }

    pub(super) fn retire(&self) {
        self.state.retired.store(true, Ordering::Release);
    }

    /// Sends one request; the response's body holds the slot.
    pub(super) async fn send(
        mut self,
        head: &Parts,
        body: Body,
        slot: Slot,
    ) -> Result<Response<Body>, RequestFailure> {
        if let Err(error) = poll_fn(|cx| self.sender.poll_ready(cx)).await {
            return Err(self.unopened(body, error));
        }
        let empty = http_body::Body::is_end_stream(&body);
        let (response, stream) = match self.sender.send_request(request(head, &body), empty) {
            Ok(opened) => opened,
            Err(error) => return Err(self.unopened(body, error)),
        };
        let upload = (!empty).then(|| Upload::new(body, stream, self.memory.kept.clone()));
        let mut exchange = PendingExchange { response, upload, uploaded: empty };
        match poll_fn(|cx| exchange.poll(cx)).await {
            Ok(response) => {
                if let Some(rest) = exchange.upload.take().filter(|_| !exchange.uploaded) {
                    self.finish(rest);
                }
                let length = content_length(response.headers());
                let unread = &self.memory.unread;
                Ok(response.map(|stream| Download::body(stream, length, slot, unread)))
            }
            Err(ExchangeError::RequestBody(error)) => Err(RequestFailure::RequestBody(error)),
            Err(ExchangeError::Peer(error)) => Err(self.failed(exchange.upload, empty, error)),
        }
    }

    /// Continues an upload whose response has already arrived; the peer may want the rest.
    ///
    /// The stream stays open on this side and needs a slot of its own.
    fn finish(&self, mut rest: Upload) {
        rest.forget();
        let slot = self.state.slots.take(usize::MAX);
        tokio::spawn(async move {
            let _ = rest.await;
            drop(slot);
        });
    }

    fn failed(&self, upload: Option<Upload>, empty: bool, error: h2::Error) -> RequestFailure {
        let again = match upload {
            Some(upload) => upload.again(),
            None => empty.then(Body::empty),
        };
        match again {
            Some(body) if is_unprocessed(&error) => self.unsent(body, error),
            _ => RequestFailure::Broken(error.into()),
        }
    }

    fn unopened(&self, body: Body, error: h2::Error) -> RequestFailure {
        self.retire();
        RequestFailure::Unopened(Box::new(body), error.into())
    }

    fn unsent(&self, body: Body, error: h2::Error) -> RequestFailure {
        self.retire();
        RequestFailure::Unsent(Box::new(body), error.into())
    }
}

/// Sets the windows: every stream may fill its own and none of the others', and one slow reader
/// never stops them. The small-frame budget of `h2` is half of the connection's window.
fn builder(settings: &Settings) -> Builder {
    let streams_max = u32::try_from(settings.streams_max).unwrap_or(u32::MAX);
    let connection_window = STREAM_WINDOW_BYTES.saturating_mul(streams_max).min(i32::MAX as u32);
    let mut builder = Builder::new();
    builder
        .initial_max_send_streams(STREAMS_BEFORE_SETTINGS)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(connection_window)
        .max_header_list_size(HEADER_BYTES_MAX)
        .enable_push(false);
    builder
}

fn request(head: &Parts, body: &Body) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = head.uri.clone();
    *request.headers_mut() = head.headers.clone();
    let headers = request.headers_mut();
    if let Some(length) = http_body::Body::size_hint(body).exact()
        && length > 0
        && !headers.contains_key(CONTENT_LENGTH)
    {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    request
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Reports whether a request was certainly not processed, by the two signs of RFC 9113 §8.7.
fn is_unprocessed(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM))
}

// === impl PendingExchange ===

impl PendingExchange {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<RecvStream>, ExchangeError>> {
        if let Some(upload) = self.upload.as_mut().filter(|_| !self.uploaded)
            && let Poll::Ready(outcome) = Pin::new(upload).poll(cx)
        {
            match outcome {
                Err(UploadError::Body(error)) => {
                    return Poll::Ready(Err(ExchangeError::RequestBody(error)));
                }
                // The response shows the peer's view of it.
                Err(UploadError::Stream) | Ok(()) => self.uploaded = true,
            }
        }
        let outcome = ready!(Pin::new(&mut self.response).poll(cx));
        Poll::Ready(outcome.map_err(ExchangeError::Peer))
    }
}

// === impl Driver ===

impl Driver {
    /// Runs the connection until it ends; `forget` drops the pool's handles on retired ones.
    pub(super) async fn run(self, forget: impl Fn() + Send) {
        let Self { mut connection, state, settings, freed } = self;
        let pings = connection.ping_pong();
        let mut served = pin!(poll_fn(|cx| {
            let polled = Pin::new(&mut connection).poll(cx);
            state.learn_limit(connection.max_concurrent_send_streams(), &settings, &freed);
            polled
        }));
        tokio::select! {
            biased;
            outcome = &mut served => debug!(?outcome, "connection to the apiserver ended"),
            end = supervise(pings, &state, &settings) => {
                debug!(?end, "closing a connection to the apiserver");
                state.retired.store(true, Ordering::Release);
                forget();
                if end == End::Idle {
                    // Without handles, the connection closes gracefully by itself.
                    let _ = tokio::time::timeout(GOODBYE_TIMEOUT, served).await;
                }
            }
        }
        state.retired.store(true, Ordering::Release);
        forget();
    }
}

/// Returns when the connection should be closed.
async fn supervise(pings: Option<PingPong>, state: &ConnectionState, settings: &Settings) -> End {
    let Some(mut pings) = pings else { return std::future::pending().await };
    let mut taken = state.slots.taken();
    let mut unused = Duration::ZERO;
    loop {
        tokio::time::sleep(settings.ping_interval).await;
        unused += settings.ping_interval;
        if state.slots.taken() != taken || state.slots.used() > 0 {
            taken = state.slots.taken();
            unused = Duration::ZERO;
        } else if unused >= settings.idle_timeout && state.slots.close_if_unused() {
            return End::Idle;
        }
        if !answered(&mut pings, state, settings.ping_timeout).await {
            return End::Dead;
        }
    }
}

/// Reports whether a ping was answered, or at least bytes kept arriving: a pong may queue behind
/// them.
async fn answered(pings: &mut PingPong, state: &ConnectionState, timeout: Duration) -> bool {
    let mut pong = pin!(pings.ping(Ping::opaque()));
    loop {
        let reads = state.reads.count();
        match tokio::time::timeout(timeout, &mut pong).await {
            Ok(Ok(_)) => return true,
            // The connection has ended: its own future returns the error.
            Ok(Err(_)) => return true,
            Err(_) if state.reads.count() == reads => return false,
            Err(_) => {}
        }
    }
}

// === impl ConnectionState ===

impl ConnectionState {
    /// Applies the peer's settings, which are its first frame.
    fn learn_limit(&self, peer: usize, settings: &Settings, freed: &Notify) {
        let limit = peer.min(settings.streams_max);
        let raised = self.limit.swap(limit, Ordering::AcqRel) < limit;
        let first = self.reads.count() > 0 && !self.settled.swap(true, Ordering::AcqRel);
        if raised || first {
            freed.notify_waiters();
        }
    }
}
