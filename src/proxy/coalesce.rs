//! One upstream request for identical concurrent reads.
//!
//! Invariant: a read joins only an upstream request that is sent after the read arrived
//! (S-CONS-40). The shared response is then as fresh as the read's own would be. The key holds
//! everything that the response depends on, the caller included, in a fixed number of bytes. A read
//! sends its own request if the response is too large to share, if too many bytes are shared, or if
//! too many reads wait. A failure is shared like a response: reads of an unreachable apiserver do
//! not fail one after the other.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header, uri::PathAndQuery};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, watch};

use crate::{
    body::Body,
    error::Chain,
    hash::{Digest, digest},
    held_bytes::{HeldBytes, memory},
    metrics::{Limit, Metrics},
    proxy::{decide::Rewriting, forward::ListContent, identify::Caller},
    upstream,
};

/// The shared upstream requests in progress.
pub struct Coalesce {
    keys: Arc<Mutex<HashMap<CoalesceKey, KeyState>>>,
    /// The places of the reads that wait for the request of another one.
    places: Semaphore,
    /// The bytes of shared responses until their last reader has them.
    held: HeldBytes,
    metrics: Metrics,
}

/// The digest of everything that a shared response depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CoalesceKey(Digest);

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
    content: Option<ListContent>,
}

/// The read that sends the upstream request. If it is dropped before a result, the others gather
/// again.
struct Leader {
    keys: Arc<Mutex<HashMap<CoalesceKey, KeyState>>>,
    held: HeldBytes,
    metrics: Metrics,
    key: CoalesceKey,
    flight: watch::Sender<Flight>,
    permit: Option<OwnedSemaphorePermit>,
}

enum Role<'a> {
    /// Sends the request, also for those that join.
    Leader(Leader),
    /// Waits for the request of the leader, on a place.
    Waiter(watch::Receiver<Flight>, SemaphorePermit<'a>),
    /// Sends a request for itself: there is no place.
    Alone,
}

/// The largest response that is shared.
const SHARED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The limit of the bytes of all of them; one that exceeds it is not shared.
const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The limit of the reads that wait for the request of another one.
const WAITERS_MAX: usize = 4096;

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
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        headers.sort_by_key(|(name, _)| *name);
        let target = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        Self(digest(&(caller, target, rewriting, headers)))
    }
}

// === impl Coalesce ===

impl Coalesce {
    /// Creates an empty set.
    pub fn new(metrics: Metrics) -> Self {
        let (held, places) = (HeldBytes::default(), Semaphore::new(WAITERS_MAX));
        Self { keys: Arc::default(), places, held, metrics }
    }

    /// Returns the response to this read; calls `send` only if this read has to send the request. A
    /// read without a key shares nothing.
    pub async fn run<F>(
        &self,
        key: Option<CoalesceKey>,
        send_time: SendTime,
        send: impl FnOnce() -> F,
    ) -> Result<Coalesced, upstream::Error>
    where
        F: Future<Output = Result<Response<Body>, upstream::Error>>,
    {
        let Some(key) = key else { return send().await.map(Coalesced::Sent) };
        loop {
            match self.join(key) {
                Role::Alone => return send().await.map(Coalesced::Sent),
                Role::Leader(leader) => {
                    return leader.run(send_time, send()).await.map(Coalesced::Sent);
                }
                Role::Waiter(mut flight, _place) => {
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

    fn join(&self, key: CoalesceKey) -> Role<'_> {
        let mut keys = lock(&self.keys);
        let state = keys.entry(key).or_insert_with(KeyState::new);
        if let Some(flight) = &state.gathering {
            let Ok(place) = self.places.try_acquire() else {
                self.metrics.limit_reached(Limit::SharedResponses);
                return Role::Alone;
            };
            return Role::Waiter(flight.clone(), place);
        }
        let (flight, gathering) = watch::channel(Flight::Open);
        state.gathering = Some(gathering);
        state.leaders += 1;
        let (keys, held, metrics) = (self.keys.clone(), self.held.clone(), self.metrics.clone());
        Role::Leader(Leader { keys, held, metrics, key, flight, permit: None })
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
        let (response, flight) = buffer(response, &self.held, &self.metrics).await;
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

// === impl BufferedResponse ===

impl BufferedResponse {
    fn response(&self) -> Response<Body> {
        let mut response = Response::new(Body::chunks(self.chunks.clone()));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        if let Some(content) = self.content.clone() {
            response.extensions_mut().insert(content);
        }
        response
    }
}

/// Reads a response to share it. Returns it as a stream if it is too large or breaks off.
async fn buffer(
    response: Response<Body>,
    held: &HeldBytes,
    metrics: &Metrics,
) -> (Response<Body>, Flight) {
    let (parts, mut body) = response.into_parts();
    let mut chunks = VecDeque::new();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let whole = match frame {
            Ok(frame) => match frame.into_data() {
                Ok(chunk) => {
                    bytes += memory(&chunk);
                    chunks.push_back(held.hold(chunk));
                    let fits = held.total() <= HELD_BYTES_MAX;
                    if !fits {
                        metrics.limit_reached(Limit::SharedResponses);
                    }
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
    let (status, headers) = (parts.status, parts.headers);
    let content = parts.extensions.get::<ListContent>().cloned();
    let buffered = BufferedResponse { status, headers, chunks, content };
    (buffered.response(), Flight::Done(buffered))
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
mod tests;
