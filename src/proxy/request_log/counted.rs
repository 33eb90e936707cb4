//! A body that reports its length, its fingerprint and its end to its record.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::RequestLog;
use crate::{
    api::Verb,
    body::{Body, BoxError},
    insight::fingerprint::Fingerprint,
};

/// A body, and the record that ends with it.
pub(super) struct Counted {
    pub(super) inner: Body,
    pub(super) log: RequestLog,
    pub(super) fingerprint: Option<Box<Fingerprint>>,
}

/// A part of the event that ends a watch of an expired version.
const EXPIRED: &[u8] = br#""code":410"#;

// === impl Counted ===

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(&[][..], |bytes| bytes);
                self.read_along(bytes);
                if self.inner.is_end_stream() {
                    self.is_whole();
                }
            }
            Poll::Ready(None) => self.is_whole(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Counted {
    fn read_along(&mut self, bytes: &[u8]) {
        self.log.bytes += bytes.len() as u64;
        if let Some(fingerprint) = &mut self.fingerprint {
            fingerprint.push(bytes);
        }
        if self.log.verb == Verb::Watch && says_expired(bytes) {
            self.log.facts.expired = true;
        }
    }

    fn is_whole(&mut self) {
        // The response to HEAD has no body to compare.
        if let Some(fingerprint) = self.fingerprint.take()
            && self.log.bytes > 0
        {
            self.log.facts.content = fingerprint.finish();
        }
    }
}

/// Reports whether these bytes are the event that ends a watch of an expired version (S-WATCH-20).
fn says_expired(bytes: &[u8]) -> bool {
    bytes.starts_with(br#"{"type":"ERROR""#)
        && bytes.windows(EXPIRED.len()).any(|window| window == EXPIRED)
}
