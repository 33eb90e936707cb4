//! Scripted faults: the affected requests, the number of times, and the effect on the response.

use std::{
    fmt,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::Frame;

use super::journal::Asked;
use crate::body::{Body, BoxError};

/// A fault that affects the next matching requests.
pub struct Fault {
    fits: Box<dyn Fn(&Asked) -> bool + Send + Sync>,
    times: u64,
    effect: Effect,
}

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// An error Status of this code, with Retry-After if given.
    Answer {
        /// The HTTP status.
        code: u16,
        /// Seconds for Retry-After.
        retry_after_secs: Option<u64>,
    },
    /// The correct response after this delay.
    Delay(Duration),
    /// 410: over HTTP for a LIST, inside the stream for a WATCH.
    Expired,
    /// 200 with bytes that are not JSON.
    Garbage,
    /// No response; the connection closes.
    Close,
    /// The correct response, but the connection breaks after this many bytes of the body.
    BreakAfter(usize),
    /// The correct response, but the body ends cleanly after this many bytes.
    EndAfter(usize),
    /// The correct response, but it stalls after this many bytes of the body.
    StallAfter(usize),
}

/// The remaining faults.
#[derive(Default)]
pub(super) struct Faults(Mutex<Vec<Fault>>);

/// A body that fails after some bytes.
struct Tampered {
    body: Body,
    bytes_left: usize,
    then: Then,
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Break,
    End,
    Stall,
}

// === impl Fault ===

impl Fault {
    /// Returns a fault for every request that matches `fits`, until it is cleared.
    pub fn always(effect: Effect, fits: impl Fn(&Asked) -> bool + Send + Sync + 'static) -> Self {
        Self { fits: Box::new(fits), times: u64::MAX, effect }
    }

    /// Returns a fault for the next `times` requests that match `fits`.
    pub fn next(
        times: u64,
        effect: Effect,
        fits: impl Fn(&Asked) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { times, ..Self::always(effect, fits) }
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault").field("times", &self.times).field("effect", &self.effect).finish()
    }
}

// === impl Faults ===

impl Faults {
    /// Adds a fault behind the others.
    pub(super) fn add(&self, fault: Fault) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    /// Drops all faults.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the effect of the first fault that matches this request.
    pub(super) fn strike(&self, asked: &Asked) -> Option<Effect> {
        let mut faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = faults.iter().position(|fault| (fault.fits)(asked))?;
        let effect = faults[index].effect;
        if faults[index].times != u64::MAX {
            faults[index].times -= 1;
        }
        if faults[index].times == 0 {
            faults.remove(index);
        }
        Some(effect)
    }
}

/// Returns the body with a fault applied.
pub(super) fn tamper(body: Body, effect: Effect) -> Body {
    let (bytes_left, then) = match effect {
        Effect::BreakAfter(bytes) => (bytes, Then::Break),
        Effect::EndAfter(bytes) => (bytes, Then::End),
        Effect::StallAfter(bytes) => (bytes, Then::Stall),
        _ => return body,
    };
    Body::wrap(Tampered { body, bytes_left, then, ended: false })
}

// === impl Tampered ===

impl http_body::Body for Tampered {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if self.bytes_left == 0 {
            return match self.then {
                Then::Stall => Poll::Pending,
                Then::End => Poll::Ready(None),
                Then::Break => {
                    self.ended = true;
                    Poll::Ready(Some(Err("a scripted fault broke the connection".into())))
                }
            };
        }
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| match frame.into_data() {
                Ok(mut data) => {
                    data.truncate(self.bytes_left);
                    self.bytes_left -= data.len();
                    Frame::data(data)
                }
                Err(trailers) => trailers,
            })
        }))
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn asked(path: &str) -> Asked {
        Asked::read(&Request::get(path).body(()).expect("a request")).0
    }

    #[test]
    fn a_fault_strikes_the_given_number_of_matching_requests() {
        let faults = Faults::default();
        faults.add(Fault::next(2, Effect::Close, |asked| asked.resource == "pods"));
        let struck: Vec<_> = ["/api/v1/pods", "/api/v1/nodes", "/api/v1/pods", "/api/v1/pods"]
            .map(|path| faults.strike(&asked(path)))
            .into();
        assert_eq!(struck, [Some(Effect::Close), None, Some(Effect::Close), None]);
    }

    #[tokio::test]
    async fn a_body_breaks_or_ends_after_the_given_bytes() {
        let ended = tamper(Body::full("abcdef"), Effect::EndAfter(4)).collect(99).await;
        assert_eq!(ended.expect("a clean end"), "abcd");
        let broken = tamper(Body::full("abcdef"), Effect::BreakAfter(4)).collect(99).await;
        assert!(broken.is_err());
    }
}
