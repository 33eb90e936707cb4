//! The observer that reports a body's length, fingerprint and end to its record.

use bytes::Bytes;
use http::{HeaderMap, header};

use super::RequestLog;
use crate::{
    api::Verb,
    body::{BoxError, Observer},
    insight::fingerprint::Fingerprint,
    metrics::Limit,
    proxy::forward::ListContent,
    upstream::Unread,
};

/// The record that ends with a body.
pub(super) struct Counted {
    pub(super) log: RequestLog,
    pub(super) fingerprint: Option<Box<Fingerprint>>,
    /// The content of a list whose bytes cannot be compared: compressed, or protobuf.
    pub(super) list: Option<ListContent>,
    /// The length before compression of a body that is compressed.
    pub(super) length: Option<Length>,
}

/// The end of a gzip body: the last four bytes are its length before compression (RFC 1952).
#[derive(Default)]
pub(super) struct Length([u8; 4]);

/// A part of the event that ends a watch of an expired version.
const EXPIRED: &[u8] = br#""code":410"#;

// === impl Counted ===

impl Observer for Counted {
    fn passed(&mut self, bytes: &Bytes) {
        self.log.bytes += bytes.len() as u64;
        if let Some(fingerprint) = &mut self.fingerprint {
            fingerprint.push(bytes);
        }
        if let Some(length) = &mut self.length {
            length.push(bytes);
        }
        if self.log.verb == Verb::Watch && says_expired(bytes) {
            self.log.facts.expired = true;
        }
    }

    fn broke(&mut self, error: &BoxError) {
        if error.is::<Unread>() {
            self.log.metrics.limit_reached(Limit::UnreadResponses);
        }
    }

    fn ended(&mut self) {
        // The response to HEAD has no body to compare.
        if self.log.bytes == 0 {
            return;
        }
        self.log.facts.encoding.decompressed = self.length.take().map(Length::finish);
        let bytes = self.fingerprint.take().and_then(|fingerprint| fingerprint.finish());
        let content = bytes.or_else(|| self.list.take()?.fingerprint());
        self.log.facts.content = self.log.facts.content.or(content);
    }
}

// === impl Length ===

impl Length {
    fn push(&mut self, bytes: &[u8]) {
        let last = &bytes[bytes.len().saturating_sub(self.0.len())..];
        self.0.rotate_left(last.len());
        let kept = self.0.len() - last.len();
        self.0[kept..].copy_from_slice(last);
    }

    fn finish(self) -> u64 {
        u32::from_le_bytes(self.0).into()
    }
}

/// Reports whether a response with these headers is compressed by gzip.
pub(super) fn is_gzip(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip")
}

/// Reports whether these bytes are the event that ends a watch of an expired version (S-WATCH-20).
fn says_expired(bytes: &[u8]) -> bool {
    bytes.starts_with(br#"{"type":"ERROR""#)
        && bytes.windows(EXPIRED.len()).any(|window| window == EXPIRED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_before_compression_is_at_the_end_however_the_body_is_cut() {
        let body = [&[7; 9][..], &1_000_000_u32.to_le_bytes()].concat();
        for size in 1..=body.len() {
            let mut length = Length::default();
            body.chunks(size).for_each(|part| length.push(part));
            assert_eq!(length.finish(), 1_000_000, "parts of {size} bytes");
        }
    }
}
