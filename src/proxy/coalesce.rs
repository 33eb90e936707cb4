//! One upstream request for identical concurrent reads.
//!
//! Invariant: a read joins only an upstream request that is sent after the read arrived
//! (S-CONS-40). The shared response is then as fresh as the read's own would be. The key holds
//! everything that the response depends on, the caller included. If a response is too large to
//! share, or too many bytes are shared, each read sends its own request. A failure is shared like a response: reads of an
//! unreachable apiserver do not fail one after the other.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::{
    body::{Body, PIECE_OVERHEAD_BYTES},
    error::Chain,
    metrics::{Limit, Metrics},
    proxy::{decide::Rewriting, identify::Caller},
    upstream,
};

/// The shared upstream requests in progress.
pub struct Coalesce {
    keys: Arc<Mutex<HashMap<CoalesceKey, KeyState>>>,
    held: HeldBytes,
}

/// The counter of the bytes of shared responses until their last reader has them.
#[derive(Clone)]
struct HeldBytes {
    bytes: Arc<AtomicUsize>,
    metrics: Metrics,
}

/// A chunk of a shared response.
struct HeldChunk {
    chunk: Bytes,
    held: Arc<AtomicUsize>,
}

/// Everything that a shared response depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CoalesceKey {
    caller: Caller,
    target: String,
    rewriting: Rewriting,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// The origin of a response.
#[derive(Debug)]
pub enum Coalesced {
    /// This read sent the upstream request.
    Sent(Response<Body>),
    /// Another read, sent after this one arrived, received it.
    Shared(Response<Body>),
}

/// The time at which the upstream request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendTime {
    /// At once, unless another identical request is in flight.
    AtOnce,
    /// After all reads that were released together had time to join.
    Together,
}

/// The state of a key: one upstream request is in flight, and the next one gathers reads until it
/// may start.
struct KeyState {
    turn: Arc<Semaphore>,
    gathering: Option<watch::Receiver<Flight>>,
    leaders: usize,
}

#[derive(Clone, Debug)]
enum Flight {
    Open,
    Done(BufferedResponse),
    TooLarge,
    Failed(Arc<upstream::Error>),
}

/// A response that can be returned several times.
#[derive(Clone, Debug)]
struct BufferedResponse {
    status: StatusCode,
    headers: HeaderMap,
    chunks: VecDeque<Bytes>,
}

/// The read that sends the upstream request. If it is dropped before a result, the others gather
/// again.
struct Leader {
    keys: Arc<Mutex<HashMap<CoalesceKey, KeyState>>>,
    held: HeldBytes,
    key: CoalesceKey,
    flight: watch::Sender<Flight>,
    permit: Option<OwnedSemaphorePermit>,
}

enum Role {
    Leader(Leader),
    Waiter(watch::Receiver<Flight>),
}

/// The largest response that is shared.
const SHARED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The limit of the bytes of all of them; one that exceeds it is not shared.
const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;

// === impl CoalesceKey ===

impl CoalesceKey {
    /// Returns the key of a read without a body. For an identified caller, the key holds no
    /// credential.
    pub fn new<B>(caller: Caller, request: &Request<B>, rewriting: &Rewriting) -> Self {
        let mut headers: Vec<_> = request
            .headers()
            .iter()
            .filter(|(name, _)| {
                matches!(caller, Caller::Other(_)) || **name != header::AUTHORIZATION
            })
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        headers.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
        Self { caller, target: target.to_owned(), rewriting: rewriting.clone(), headers }
    }
}

// === impl Coalesce ===

impl Coalesce {
    /// Creates an empty set.
    pub fn new(metrics: Metrics) -> Self {
        Self { keys: Arc::default(), held: HeldBytes { bytes: Arc::default(), metrics } }
    }

    /// Returns the response to this read; calls `send` only if this read has to send the request.
    pub async fn run<F>(
        &self,
        key: CoalesceKey,
        send_time: SendTime,
        send: impl FnOnce() -> F,
    ) -> Result<Coalesced, upstream::Error>
    where
        F: Future<Output = Result<Response<Body>, upstream::Error>>,
    {
        loop {
            match self.join(&key) {
                Role::Leader(leader) => {
                    return leader.run(send_time, send()).await.map(Coalesced::Sent);
                }
                Role::Waiter(mut flight) => {
                    let outcome = flight.wait_for(|flight| !matches!(flight, Flight::Open));
                    let outcome = outcome.await.map(|flight| flight.clone());
                    match outcome {
                        Ok(Flight::Done(buffered)) => {
                            return Ok(Coalesced::Shared(buffered.response()));
                        }
                        Ok(Flight::TooLarge) => return send().await.map(Coalesced::Sent),
                        Ok(Flight::Failed(error)) => return Err(error.copy()),
                        // The client of the sending read has left: gather again.
                        Ok(Flight::Open) | Err(_) => {}
                    }
                }
            }
        }
    }

    fn join(&self, key: &CoalesceKey) -> Role {
        let mut keys = lock(&self.keys);
        let state = keys.entry(key.clone()).or_insert_with(KeyState::new);
        if let Some(flight) = &state.gathering {
            return Role::Waiter(flight.clone());
        }
        let (flight, gathering) = watch::channel(Flight::Open);
        state.gathering = Some(gathering);
        state.leaders += 1;
        let (keys, held, key) = (self.keys.clone(), self.held.clone(), key.clone());
        Role::Leader(Leader { keys, held, key, flight, permit: None })
    }
}

// === impl KeyState ===

impl KeyState {
    fn new() -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), gathering: None, leaders: 0 }
    }
}

// === impl Leader ===

impl Leader {
    async fn run(
        mut self,
        send_time: SendTime,
        send: impl Future<Output = Result<Response<Body>, upstream::Error>>,
    ) -> Result<Response<Body>, upstream::Error> {
        let turn = lock(&self.keys).get(&self.key).map(|state| state.turn.clone());
        if let Some(turn) = turn {
            self.permit = turn.acquire_owned().await.ok();
        }
        if send_time == SendTime::Together {
            tokio::task::yield_now().await;
        }
        self.close_joining();
        let response = match send.await {
            Ok(response) => response,
            Err(error) => {
                self.flight.send_replace(Flight::Failed(Arc::new(error.copy())));
                return Err(error);
            }
        };
        if self.flight.receiver_count() == 0 {
            return Ok(response);
        }
        let (response, flight) = buffer(response, &self.held).await;
        self.flight.send_replace(flight);
        Ok(response)
    }

    /// Closes the request for further reads: reads that arrive after it is sent must not share it.
    fn close_joining(&self) {
        if let Some(state) = lock(&self.keys).get_mut(&self.key) {
            let ours = |gathering: &watch::Receiver<Flight>| {
                gathering.same_channel(&self.flight.subscribe())
            };
            if state.gathering.as_ref().is_some_and(ours) {
                state.gathering = None;
            }
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.close_joining();
        let mut keys = lock(&self.keys);
        if let Some(state) = keys.get_mut(&self.key) {
            state.leaders -= 1;
            if state.leaders == 0 {
                keys.remove(&self.key);
            }
        }
    }
}

// === impl HeldBytes ===

impl HeldBytes {
    /// Counts a chunk until it is dropped; `false` if all chunks exceed the limit now.
    fn hold(&self, chunk: Bytes) -> (Bytes, bool) {
        let length = memory(&chunk);
        let fits = self.bytes.fetch_add(length, Ordering::Relaxed) + length <= HELD_BYTES_MAX;
        if !fits {
            self.metrics.limit_reached(Limit::SharedResponses);
        }
        (Bytes::from_owner(HeldChunk { chunk, held: self.bytes.clone() }), fits)
    }
}

// === impl HeldChunk ===

impl AsRef<[u8]> for HeldChunk {
    fn as_ref(&self) -> &[u8] {
        &self.chunk
    }
}

impl Drop for HeldChunk {
    fn drop(&mut self) {
        self.held.fetch_sub(memory(&self.chunk), Ordering::Relaxed);
    }
}

// === impl BufferedResponse ===

impl BufferedResponse {
    fn response(&self) -> Response<Body> {
        let mut response = Response::new(Body::chunks(self.chunks.clone()));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        response
    }
}

/// Reads a response to share it. Returns it as a stream if it is too large or breaks off.
async fn buffer(response: Response<Body>, held: &HeldBytes) -> (Response<Body>, Flight) {
    let (parts, mut body) = response.into_parts();
    let mut chunks = VecDeque::new();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let whole = match frame {
            Ok(frame) => match frame.into_data() {
                Ok(chunk) => {
                    bytes += memory(&chunk);
                    let (chunk, fits) = held.hold(chunk);
                    chunks.push_back(chunk);
                    fits && bytes <= SHARED_BYTES_MAX
                }
                Err(_trailers) => true,
            },
            Err(error) => {
                let failure = upstream::Error::Broken(Chain(&*error).to_string().into());
                let broken = futures_util::stream::once(async { Err(error) });
                let rest = http_body_util::StreamBody::new(broken);
                let response = Response::from_parts(parts, resumed(chunks, Body::wrap(rest)));
                return (response, Flight::Failed(Arc::new(failure)));
            }
        };
        if !whole {
            return (Response::from_parts(parts, resumed(chunks, body)), Flight::TooLarge);
        }
    }
    let buffered =
        BufferedResponse { status: parts.status, headers: parts.headers.clone(), chunks };
    (buffered.response(), Flight::Done(buffered))
}

fn memory(chunk: &Bytes) -> usize {
    chunk.len() + PIECE_OVERHEAD_BYTES
}

/// Returns a body of the chunks already read, followed by the rest.
fn resumed(mut chunks: VecDeque<Bytes>, rest: Body) -> Body {
    let read = mem::take(&mut chunks).into_iter().map(|chunk| Ok(http_body::Frame::data(chunk)));
    let read = futures_util::stream::iter(read);
    let rest = http_body_util::BodyStream::new(rest);
    Body::wrap(http_body_util::StreamBody::new(futures_util::StreamExt::chain(read, rest)))
}

fn lock(
    keys: &Mutex<HashMap<CoalesceKey, KeyState>>,
) -> MutexGuard<'_, HashMap<CoalesceKey, KeyState>> {
    keys.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(target: &str) -> CoalesceKey {
        let request = Request::get(target).body(()).expect("a request");
        CoalesceKey::new(Caller::Own, &request, &Rewriting::Keep)
    }

    async fn text(outcome: Coalesced) -> (bool, String) {
        let (shared, response) = match outcome {
            Coalesced::Sent(response) => (false, response),
            Coalesced::Shared(response) => (true, response),
        };
        let bytes = response.into_body().collect(1024).await.expect("a body");
        (shared, String::from_utf8(bytes.to_vec()).expect("text"))
    }

    #[tokio::test]
    async fn a_read_shares_only_a_request_sent_after_it_arrived() {
        let coalesce = Arc::new(Coalesce::new(Metrics::new()));
        let sent = Arc::new(AtomicUsize::new(0));
        let (release, _) = watch::channel(0_usize);
        let read = || {
            let (coalesce, sent, mut released) =
                (coalesce.clone(), sent.clone(), release.subscribe());
            tokio::spawn(async move {
                let send = || async move {
                    let number = sent.fetch_add(1, Ordering::SeqCst) + 1;
                    let _ = released.wait_for(|released| *released >= number).await;
                    Ok(Response::new(Body::full(number.to_string())))
                };
                let flown = coalesce.run(key("/api/v1/pods"), SendTime::AtOnce, send);
                text(flown.await.expect("an answer")).await
            })
        };
        let first = read();
        while sent.load(Ordering::SeqCst) < 1 {
            tokio::task::yield_now().await;
        }
        // These reads arrive while the first request is in flight. They must not share it, but they
        // share the next.
        let (second, third) = (read(), read());
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert_eq!(sent.load(Ordering::SeqCst), 1);
        release.send_replace(9);
        assert_eq!(first.await.expect("no panic"), (false, "1".to_owned()));
        let mut rest = [second.await.expect("no panic"), third.await.expect("no panic")];
        rest.sort();
        assert_eq!(rest, [(false, "2".to_owned()), (true, "2".to_owned())]);
        assert!(lock(&coalesce.keys).is_empty(), "nothing is left behind");
    }

    #[tokio::test]
    async fn the_bytes_of_unread_shared_responses_are_bounded() {
        const LENGTH: usize = 12 * 1024 * 1024;
        let coalesce = Arc::new(Coalesce::new(Metrics::new()));
        let pair = async |target: &str| {
            let send = || async { Ok(Response::new(Body::full(vec![b'x'; LENGTH]))) };
            let run = || coalesce.run(key(target), SendTime::Together, send);
            let (one, other) = tokio::join!(run(), run());
            (one.expect("an answer"), other.expect("an answer"))
        };
        let mut unread = Vec::new();
        for number in 0..8 {
            unread.push(pair(&format!("/{number}")).await);
        }
        let shared = unread.iter().filter(|(_, other)| matches!(other, Coalesced::Shared(_)));
        assert_eq!(shared.count(), HELD_BYTES_MAX / LENGTH);
        drop(unread);
        assert_eq!(coalesce.held.bytes.load(Ordering::Relaxed), 0);
        assert!(matches!(pair("/again").await.1, Coalesced::Shared(_)));
    }

    #[tokio::test]
    async fn tiny_chunks_count_with_their_overhead() {
        let chunk = || Ok::<_, crate::body::BoxError>(http_body::Frame::data(Bytes::from("x")));
        let tiny = futures_util::stream::iter((0..200_000).map(move |_| chunk()));
        let body = Body::wrap(http_body_util::StreamBody::new(tiny));
        let held = Coalesce::new(Metrics::new()).held;
        let (_, flight) = buffer(Response::new(body), &held).await;
        assert!(matches!(flight, Flight::TooLarge));
    }

    #[tokio::test]
    async fn reads_released_together_share_one_request() {
        let coalesce = Arc::new(Coalesce::new(Metrics::new()));
        let sent = Arc::new(AtomicUsize::new(0));
        let reads: Vec<_> = (0..9)
            .map(|_| {
                let (coalesce, sent) = (coalesce.clone(), sent.clone());
                tokio::spawn(async move {
                    let send = || async move {
                        sent.fetch_add(1, Ordering::SeqCst);
                        Ok(Response::new(Body::full("x")))
                    };
                    let key = key("/api/v1/pods");
                    let flown = coalesce.run(key, SendTime::Together, send);
                    text(flown.await.expect("an answer")).await.0
                })
            })
            .collect();
        let mut shared = 0;
        for read in reads {
            shared += usize::from(read.await.expect("no panic"));
        }
        assert_eq!((sent.load(Ordering::SeqCst), shared), (1, 8));
    }

    #[test]
    fn keys_differ_by_caller_target_and_headers_but_not_by_credential() {
        let plain = Request::get("/x").body(()).expect("a request");
        let table = Request::get("/x").header("accept", "table").body(()).expect("a request");
        let token =
            Request::get("/x").header("authorization", "Bearer t").body(()).expect("a request");
        let own = |request| CoalesceKey::new(Caller::Own, request, &Rewriting::Keep);
        assert_ne!(own(&plain), own(&table));
        assert_eq!(own(&plain), own(&token));
        assert_ne!(own(&plain), key("/y"));
        let other_caller = Caller::Other(crate::proxy::identify::Unauthenticated::NoCredential);
        assert_ne!(own(&plain), CoalesceKey::new(other_caller, &plain, &Rewriting::Keep));
    }
}
