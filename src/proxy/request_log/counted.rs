//! The observer that reports a body's length, fingerprint and end to its record.

use bytes::Bytes;

use super::RequestLog;
use crate::{
    api::Verb, body::Observer, insight::fingerprint::Fingerprint, proxy::forward::ListContent,
};

/// The record that ends with a body.
pub(super) struct Counted {
    pub(super) log: RequestLog,
    pub(super) fingerprint: Option<Box<Fingerprint>>,
    /// The content of a list whose bytes cannot be compared: compressed, or protobuf.
    pub(super) list: Option<ListContent>,
}

/// A part of the event that ends a watch of an expired version.
const EXPIRED: &[u8] = br#""code":410"#;

// === impl Counted ===

impl Observer for Counted {
    fn passed(&mut self, bytes: &Bytes) {
        self.log.bytes += bytes.len() as u64;
        if let Some(fingerprint) = &mut self.fingerprint {
            fingerprint.push(bytes);
        }
        if self.log.verb == Verb::Watch && says_expired(bytes) {
            self.log.facts.expired = true;
        }
    }

    fn ended(&mut self) {
        // The response to HEAD has no body to compare.
        if self.log.bytes == 0 {
            return;
        }
        let bytes = self.fingerprint.take().and_then(|fingerprint| fingerprint.finish());
        let content = bytes.or_else(|| self.list.take()?.fingerprint());
        self.log.facts.content = self.log.facts.content.or(content);
    }
}

/// Reports whether these bytes are the event that ends a watch of an expired version (S-WATCH-20).
fn says_expired(bytes: &[u8]) -> bool {
    bytes.starts_with(br#"{"type":"ERROR""#)
        && bytes.windows(EXPIRED.len()).any(|window| window == EXPIRED)
}
