//! A watch as the body of a response, with one event in each frame.
//!
//! The connection asks for the next event only after its client has room for it. Invariant: a watch whose client reads
//! nothing for a minute is dropped, so that it holds neither a place nor its replica; the client then gets a clean end.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use http_body::Frame;
use tokio::time::{Instant, sleep};

use super::{Watching, websocket::WRITE_STALL_MAX};
use crate::body::{Body, BoxError};

/// The watches that are bodies of responses.
#[derive(Default)]
pub(super) struct StreamedWatches(Mutex<Open>);

#[derive(Default)]
struct Open {
    watches: Vec<Weak<Mutex<Streamed>>>,
    /// `true` while a task looks after them.
    is_swept: bool,
}

/// The state of one watch, shared by its body and the sweep.
struct Streamed {
    /// The events; `None` after the end.
    events: Option<BoxStream<'static, Bytes>>,
    /// The time since which the last event has been in the connection's hands; `None` while the watch waits for one.
    unread_since: Option<Instant>,
    is_stalled: Arc<AtomicBool>,
}

struct WatchBody(Arc<Mutex<Streamed>>);

/// The interval at which unread watches are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

// === impl StreamedWatches ===

impl StreamedWatches {
    /// Returns the watch as a body.
    pub(super) fn body(self: &Arc<Self>, watching: Watching) -> Body {
        let is_stalled = watching.is_stalled.clone();
        let events = stream::unfold(Box::new(watching), |mut watching| async move {
            let line = watching.next().await?;
            Some((line, watching))
        });
        let (events, unread_since) = (Some(events.boxed()), Some(Instant::now()));
        let streamed = Arc::new(Mutex::new(Streamed { events, unread_since, is_stalled }));
        let mut open = lock(&self.0);
        open.watches.push(Arc::downgrade(&streamed));
        if !std::mem::replace(&mut open.is_swept, true) {
            tokio::spawn(self.clone().sweep());
        }
        Body::wrap(WatchBody(streamed))
    }

    async fn sweep(self: Arc<Self>) {
        loop {
            sleep(SWEEP_EVERY).await;
            let watches: Vec<_> = {
                let mut open = lock(&self.0);
                open.watches.retain(|watch| watch.strong_count() > 0);
                let watches: Vec<_> = open.watches.iter().filter_map(Weak::upgrade).collect();
                open.is_swept = !watches.is_empty();
                watches
            };
            if watches.is_empty() {
                return;
            }
            let now = Instant::now();
            let ended = watches.iter().filter_map(|watch| stalled(&mut lock(watch), now));
            // They are dropped after all locks were given back.
            drop(ended.collect::<Vec<_>>());
        }
    }
}

/// Takes the events of a watch whose client reads nothing.
fn stalled(streamed: &mut Streamed, now: Instant) -> Option<BoxStream<'static, Bytes>> {
    let since = streamed.unread_since?;
    if now.duration_since(since) < WRITE_STALL_MAX {
        return None;
    }
    streamed.is_stalled.store(true, Ordering::Relaxed);
    streamed.events.take()
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl WatchBody ===

impl http_body::Body for WatchBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut streamed = lock(&self.0);
        streamed.unread_since = None;
        let Some(events) = &mut streamed.events else { return Poll::Ready(None) };
        let event = ready!(events.poll_next_unpin(cx));
        match &event {
            Some(_) => streamed.unread_since = Some(Instant::now()),
            None => streamed.events = None,
        }
        Poll::Ready(event.map(|event| Ok(Frame::data(event))))
    }
}
