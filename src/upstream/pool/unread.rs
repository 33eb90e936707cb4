//! Responses to requests whose credential was not accepted before.
//!
//! Invariant: such a response holds its place upstream only while its reader reads. These places
//! are few, and whoever reaches the listener may ask for one.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use crate::body::{Body, BoxError};

/// The longest time for which a reader may leave a frame unread.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

type Received = Result<Frame<Bytes>, BoxError>;

/// A body behind one frame that waits for its reader.
struct Bounded {
    frames: mpsc::Receiver<Received>,
    /// `true` once all frames have been received.
    complete: Arc<AtomicBool>,
    remaining: Option<u64>,
}

/// The reader left a frame unread for too long.
#[derive(Debug, thiserror::Error)]
#[error("the response was not read for {} s, and its credential was not accepted before", READ_TIMEOUT.as_secs())]
struct NotRead;

/// Returns a body that frees its place upstream once its last frame has arrived, or if nobody reads
/// the next one. It then ends with an error.
pub(super) fn bounded(body: Body) -> Body {
    if body.is_end_stream() {
        return body;
    }
    let (sender, frames) = mpsc::channel(1);
    let (remaining, complete) = (body.size_hint().exact(), Arc::default());
    tokio::spawn(pass(body, sender, Arc::clone(&complete)));
    Body::wrap(Bounded { frames, complete, remaining })
}

async fn pass(mut body: Body, sender: mpsc::Sender<Received>, complete: Arc<AtomicBool>) {
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = sender.closed() => return,
        };
        let Some(frame) = frame else { break };
        if sender.send_timeout(frame, READ_TIMEOUT).await.is_err() {
            return;
        }
    }
    complete.store(true, Ordering::Release);
}

// === impl Bounded ===

impl http_body::Body for Bounded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let received = ready!(self.frames.poll_recv(cx));
        if let Some(Ok(frame)) = &received {
            let length = frame.data_ref().map_or(0, Bytes::len) as u64;
            self.remaining = self.remaining.map(|left| left.saturating_sub(length));
        }
        let complete = || self.complete.load(Ordering::Acquire);
        Poll::Ready(received.or_else(|| (!complete()).then(|| Err(NotRead.into()))))
    }

    fn size_hint(&self) -> SizeHint {
        self.remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
