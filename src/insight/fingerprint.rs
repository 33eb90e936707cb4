//! A checksum of a response body, computed while it streams, for comparison with the next response.
//!
//! A LIST's own version is left out, because it changes even if no item does. Compressed bodies and
//! unknown formats have no fingerprint. Memory is bounded by two short buffers, whatever the length
//! of the body.

use flate2::Crc;
use http::{HeaderMap, header};

use crate::api::Verb;

/// The fingerprint of one body in progress.
#[derive(Debug)]
pub struct Fingerprint {
    crc: Crc,
    form: Form,
    /// Bytes that are not yet classified or counted.
    pending: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Every byte counts.
    Whole,
    /// A list. The position of its own metadata is not known yet.
    List,
    /// A list with its metadata at the start, already passed.
    PastMetadata,
    /// A list with its metadata at the end.
    MetadataLast,
    /// Any other body.
    Unknown,
}

/// The maximum distance of a list's own metadata from the start or the end.
const METADATA_BYTES_MAX: usize = 1024;

// === impl Fingerprint ===

impl Fingerprint {
    /// Returns the fingerprint state for a GET or LIST response with these headers, if it can have
    /// one.
    pub fn of(verb: Verb, headers: &HeaderMap) -> Option<Self> {
        if headers.contains_key(header::CONTENT_ENCODING) {
            return None;
        }
        let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let json = media.is_some_and(|media| media.starts_with("application/json"));
        let form = match verb {
            Verb::Get => Form::Whole,
            Verb::List if json => Form::List,
            _ => return None,
        };
        Some(Self { crc: Crc::new(), form, pending: Vec::new() })
    }

    /// Reads the next chunk.
    pub fn push(&mut self, bytes: &[u8]) {
        match self.form {
            Form::Whole | Form::PastMetadata => self.crc.update(bytes),
            Form::MetadataLast => self.hold_back(bytes),
            Form::List => {
                self.pending.extend_from_slice(bytes);
                self.find_metadata();
            }
            Form::Unknown => {}
        }
    }

    /// Returns the fingerprint of the whole body.
    pub fn finish(mut self) -> Option<u32> {
        match self.form {
            Form::Whole | Form::PastMetadata => Some(self.crc.sum()),
            Form::MetadataLast => {
                let last = std::mem::take(&mut self.pending);
                let metadata = last.windows(KIND.len()).rposition(|window| window == KIND)?;
                self.crc.update(&last[..metadata]);
                Some(self.crc.sum())
            }
            Form::List | Form::Unknown => None,
        }
    }

    /// Counts all but the last bytes, which may be the list's own metadata.
    fn hold_back(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        if let Some(done) = self.pending.len().checked_sub(METADATA_BYTES_MAX) {
            self.crc.update(&self.pending[..done]);
            self.pending.drain(..done);
        }
    }

    /// Finds the list's metadata. Built-in resources start with kind and metadata; custom resources
    /// have their keys in alphabetical order.
    fn find_metadata(&mut self) {
        let head = &self.pending[..self.pending.len().min(METADATA_BYTES_MAX)];
        let first = head.iter().position(|byte| *byte == b'"').map(|at| &head[at..]);
        let Some(first) = first.filter(|first| first.len() >= API_VERSION.len()) else {
            return self.give_up_when_long();
        };
        if first.starts_with(API_VERSION) {
            self.form = Form::MetadataLast;
            let pending = std::mem::take(&mut self.pending);
            return self.hold_back(&pending);
        }
        if !first.starts_with(KIND) {
            self.form = Form::Unknown;
            return;
        }
        let after = |from: usize, sought: &[u8]| {
            let found = head[from..].windows(sought.len()).position(|window| window == sought);
            found.map(|at| from + at + sought.len())
        };
        // A list's metadata contains no nested object.
        match after(0, METADATA).and_then(|at| after(at, b"}")) {
            Some(end) => {
                self.crc.update(&self.pending[end..]);
                (self.form, self.pending) = (Form::PastMetadata, Vec::new());
            }
            None => self.give_up_when_long(),
        }
    }

    fn give_up_when_long(&mut self) {
        if self.pending.len() >= METADATA_BYTES_MAX {
            (self.form, self.pending) = (Form::Unknown, Vec::new());
        }
    }
}

const KIND: &[u8] = b"\"kind\"";
const API_VERSION: &[u8] = b"\"apiVersion\"";
const METADATA: &[u8] = b"\"metadata\"";

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(media: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        headers
    }

    fn taken(verb: Verb, body: &str, piece: usize) -> Option<u32> {
        let mut fingerprint = Fingerprint::of(verb, &headers("application/json")).unwrap();
        body.as_bytes().chunks(piece).for_each(|piece| fingerprint.push(piece));
        fingerprint.finish()
    }

    fn built_in(version: u32, items: &str) -> String {
        format!(
            r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[{items}]}}"#
        )
    }

    fn custom(version: u32, items: &str) -> String {
        format!(
            r#"{{"apiVersion":"v1","items":[{items}],"kind":"WidgetList","metadata":{{"continue":"","resourceVersion":"{version}"}}}}"#
        )
    }

    #[test]
    fn a_list_is_equal_while_its_items_are() {
        let items: String =
            (0..200).map(|n| format!(r#"{{"kind":"x","metadata":{{"name":"a{n}"}}}},"#)).collect();
        for list in [built_in, custom] {
            for items in ["", r#"{"metadata":{"name":"a"}}"#, items.trim_end_matches(',')] {
                let first = taken(Verb::List, &list(7, items), usize::MAX);
                assert!(first.is_some(), "{items}");
                for piece in [1, 7, 100, 5000] {
                    assert_eq!(taken(Verb::List, &list(123_456, items), piece), first);
                }
                let other = list(7, &format!(r#"{{"metadata":{{"name":"b"}}}}{items}"#));
                assert_ne!(taken(Verb::List, &other, 11), first);
            }
        }
    }

    #[test]
    fn every_byte_of_an_object_counts() {
        let object = r#"{"kind":"Pod","metadata":{"resourceVersion":"7"}}"#;
        let first = taken(Verb::Get, object, 3);
        assert_eq!(taken(Verb::Get, object, 100), first);
        assert_ne!(taken(Verb::Get, &object.replace('7', "8"), 3), first);
    }

    #[test]
    fn an_incomparable_body_has_no_fingerprint() {
        assert!(Fingerprint::of(Verb::Watch, &headers("application/json")).is_none());
        let protobuf = headers("application/vnd.kubernetes.protobuf");
        assert!(Fingerprint::of(Verb::List, &protobuf).is_none());
        let mut gzip = headers("application/json");
        gzip.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert!(Fingerprint::of(Verb::Get, &gzip).is_none());
        for body in ["", "[]", r#"{"items":[]}"#, r#"{"kind":"PodList""#] {
            assert_eq!(taken(Verb::List, body, 3), None, "{body}");
        }
    }
}
