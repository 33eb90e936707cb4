//! The bytes of responses that have arrived and that nobody has read.
//!
//! A stream holds at most its window of them. If all streams of a pool hold more than a bound, those end
//! that hold more than their part of it and were read least since the last look: readers who stop cannot
//! take the memory of all others.

use std::{
    cmp::Reverse,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use h2::RecvStream;
use http::HeaderMap;

use super::http2::STREAM_WINDOW_BYTES;
use crate::body::BoxError;

/// The limit of unread bytes of one pool.
pub(in crate::upstream) const UNREAD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The number of streams that cannot reach the limit.
const FEW: usize = UNREAD_BYTES_MAX / STREAM_WINDOW_BYTES as usize;

/// The interval of looks, as long as there are more streams than that.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The responses of one pool that arrive.
#[derive(Clone, Default)]
pub(super) struct Backlog(Arc<Mutex<Arrivals>>);

#[derive(Default)]
struct Arrivals {
    streams: Vec<Weak<Arriving>>,
    /// `true` while a task looks at them.
    is_watched: bool,
}

/// A response that arrives.
pub(super) struct Arriving {
    /// Absent once it has ended because it was not read.
    stream: Mutex<Option<RecvStream>>,
    /// The bytes that were read since the last look.
    read: AtomicUsize,
}

/// A response ended because too many bytes waited for their readers, and its own read least.
#[derive(Debug, thiserror::Error)]
#[error("the response was not read, and unread responses filled {} MiB", UNREAD_BYTES_MAX >> 20)]
pub struct Unread;

// === impl Backlog ===

impl Backlog {
    /// Adds a response.
    pub(super) fn add(&self, stream: RecvStream) -> Arc<Arriving> {
        let (stream, read) = (Mutex::new(Some(stream)), AtomicUsize::new(0));
        let arriving = Arc::new(Arriving { stream, read });
        let mut arrivals = self.lock();
        arrivals.streams.push(Arc::downgrade(&arriving));
        if arrivals.streams.len() > FEW && !arrivals.is_watched {
            arrivals.forget_ended();
            if arrivals.streams.len() > FEW {
                arrivals.is_watched = true;
                tokio::spawn(watch(Arc::downgrade(&self.0)));
            }
        }
        arriving
    }

    /// Ends responses until the others are within the limit. Returns `false` if there are too few to
    /// reach it.
    fn look(&self) -> bool {
        let streams: Vec<_> = {
            let mut arrivals = self.lock();
            arrivals.forget_ended();
            arrivals.is_watched = arrivals.streams.len() > FEW;
            if !arrivals.is_watched {
                return false;
            }
            arrivals.streams.iter().filter_map(Weak::upgrade).collect()
        };
        let mut waiting: Vec<_> =
            streams.iter().map(|one| (one.take_read(), one.unread(), one)).collect();
        let mut unread: usize = waiting.iter().map(|(_, unread, _)| unread).sum();
        if unread <= UNREAD_BYTES_MAX {
            return true;
        }
        // Those that hold less than their part are within the limit together. A quiet watch is one.
        waiting.retain(|(_, unread, _)| *unread > UNREAD_BYTES_MAX / streams.len());
        waiting.sort_unstable_by_key(|(read, unread, _)| (*read, Reverse(*unread)));
        let mut ended = 0;
        for (_, _, one) in waiting {
            if unread <= UNREAD_BYTES_MAX {
                break;
            }
            unread = unread.saturating_sub(one.end());
            ended += 1;
        }
        tracing::warn!(ended, "responses ended because their clients did not read them");
        true
    }

    fn lock(&self) -> MutexGuard<'_, Arrivals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn watch(arrivals: Weak<Mutex<Arrivals>>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(arrivals) = arrivals.upgrade() else { return };
        if !Backlog(arrivals).look() {
            return;
        }
    }
}

// === impl Arrivals ===

impl Arrivals {
    fn forget_ended(&mut self) {
        self.streams.retain(|stream| stream.strong_count() > 0);
    }
}

// === impl Arriving ===

impl Arriving {
    /// Returns the next bytes, and lets as many more arrive.
    pub(super) fn poll_data(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        let mut stream = self.lock();
        let Some(stream) = stream.as_mut() else { return Poll::Ready(Some(Err(Unread.into()))) };
        Poll::Ready(match ready!(stream.poll_data(cx)) {
            Some(Ok(data)) => {
                // This call fails only on an ended stream, which has no window any more.
                let _ = stream.flow_control().release_capacity(data.len());
                self.read.fetch_add(data.len(), Ordering::Relaxed);
                Some(Ok(data))
            }
            Some(Err(error)) => Some(Err(error.into())),
            None => None,
        })
    }

    pub(super) fn poll_trailers(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, BoxError>> {
        let mut stream = self.lock();
        let Some(stream) = stream.as_mut() else { return Poll::Ready(Err(Unread.into())) };
        stream.poll_trailers(cx).map_err(Into::into)
    }

    /// Reports whether it has arrived and was read completely.
    pub(super) fn is_end_stream(&self) -> bool {
        self.lock().as_ref().is_some_and(RecvStream::is_end_stream)
    }

    fn take_read(&self) -> usize {
        self.read.swap(0, Ordering::Relaxed)
    }

    /// Returns the bytes that have arrived and are not read.
    fn unread(&self) -> usize {
        self.lock().as_mut().map_or(0, |stream| stream.flow_control().used_capacity())
    }

    /// Ends it; returns the bytes that this frees.
    fn end(&self) -> usize {
        let Some(mut stream) = self.lock().take() else { return 0 };
        stream.flow_control().used_capacity()
    }

    fn lock(&self) -> MutexGuard<'_, Option<RecvStream>> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
