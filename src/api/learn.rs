//! The facts in a response, parsed while it streams (S-WRITE-01..21).
//!
//! Only the identity, version and labels of an object are kept. The same facts of a list's items
//! are kept until they are taken. The memory is bounded, whatever the size of the response. A
//! truncated or malformed response, or one in an unknown encoding, teaches nothing and has a
//! reason; the session must then assume the worst. The caller knows from the request whether the
//! write was a dry run or was about a subresource.

mod facts;
mod json;

use std::io::{self, Write};

use flate2::write::GzDecoder;
use http::{HeaderMap, HeaderName, header};

pub(super) use self::facts::{Facts, Slot, TEXT_BYTES_MAX};
use super::{ObjectKey, protobuf, selector::Labels, version::ResourceVersion};

/// The parser of a response's body, chunk by chunk.
pub struct Learner(Decoder);

/// The facts in a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learned {
    /// One object.
    Object(LearnedObject),
    /// A Status.
    Status {
        /// `true` if it says Success.
        success: bool,
        /// The uid of its object, such as a deleted one.
        details_uid: Option<String>,
        /// The name of that object.
        name: Option<String>,
    },
    /// A list, such as the response to DELETE of a collection; its version is from before the
    /// deletions.
    List {
        /// The list's own version.
        version: ResourceVersion,
        /// The token of its next page, if it has one.
        next: Option<String>,
        /// `true` if every item was parsed.
        whole: bool,
    },
    /// No reliable facts.
    Nothing(Unlearned),
}

/// The object in a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedObject {
    /// Its kind; a subresource's response may have another kind than the resource, such as `Scale`.
    pub kind: String,
    /// Its name, which a create may have generated.
    pub name: String,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// Its uid.
    pub uid: String,
    /// Its version after the write.
    pub version: ResourceVersion,
    /// Its labels, in the order of the response.
    pub labels: Vec<(String, String)>,
    /// Its lifecycle.
    pub lifecycle: Lifecycle,
}

/// An item of a list, or the object of a Table's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// Its key.
    pub key: ObjectKey,
    /// Its version.
    pub version: ResourceVersion,
    /// Its labels, in the order of the response.
    pub labels: Vec<(String, String)>,
}

/// The lifecycle of an object in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// It exists.
    Live,
    /// It is being deleted: it has a deletionTimestamp, and finalizers or a grace period.
    Terminating,
    /// It has a deletionTimestamp and nothing that could still hold it. The write most likely
    /// removed it, and the version is from before the removal (S-WRITE-04).
    Removed,
}

/// The reason why a response taught nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unlearned {
    /// Neither JSON nor protobuf.
    UnknownMedia,
    /// The compression is unknown.
    UnknownEncoding,
    /// The body ended early.
    Truncated,
    /// The body does not match its Content-Type.
    Malformed,
    /// A name, label or key exceeds every limit of the API.
    TooLarge,
    /// The object or list has no well-formed resourceVersion.
    NoVersion,
    /// Neither a named object, nor a list, nor a Status: a review, a Table.
    NotAnObject,
}

enum Decoder {
    Plain(Box<Scanner>),
    Gzip(Box<GzDecoder<Scanner>>),
    Useless(Unlearned),
}

enum Scanner {
    Json(json::Scanner),
    Protobuf(protobuf::Scanner),
}

// === impl Learner ===

impl Learner {
    /// Creates a learner for a response with these Content-Type and Content-Encoding headers.
    pub fn new(content_type: Option<&str>, content_encoding: Option<&str>) -> Self {
        let media_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default();
        let scanner = match media_type.trim() {
            "application/json" => Scanner::Json(json::Scanner::default()),
            protobuf::MEDIA_TYPE => Scanner::Protobuf(protobuf::Scanner::default()),
            _ => return Self(Decoder::Useless(Unlearned::UnknownMedia)),
        };
        Self(match content_encoding.unwrap_or_default().trim() {
            "" | "identity" => Decoder::Plain(Box::new(scanner)),
            "gzip" => Decoder::Gzip(Box::new(GzDecoder::new(scanner))),
            _ => Decoder::Useless(Unlearned::UnknownEncoding),
        })
    }

    /// Makes it parse the items of a list, too.
    #[must_use]
    pub fn with_items(mut self) -> Self {
        if let Some(scanner) = self.scanner_mut() {
            scanner.facts_mut().items = Some(facts::Items::default());
        }
        self
    }

    /// Returns the items that were parsed since the last call.
    pub fn take_items(&mut self) -> Vec<ListedObject> {
        let items = self.scanner_mut().and_then(|scanner| scanner.facts_mut().items.as_mut());
        items.map_or_else(Vec::new, facts::Items::take)
    }

    /// Creates a learner for a response with these headers.
    pub fn of(headers: &HeaderMap) -> Self {
        let text = |name: HeaderName| headers.get(name).map(|v| v.to_str().unwrap_or("unreadable"));
        Self::new(text(header::CONTENT_TYPE), text(header::CONTENT_ENCODING))
    }

    /// Parses the next chunk of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Decoder::Plain(scanner) => scanner.push(bytes),
            Decoder::Gzip(decoder) => {
                // Without the flush, the decoder holds back the end of the list until it is
                // finished.
                if decoder.write_all(bytes).and_then(|()| decoder.flush()).is_err() {
                    self.0 = Decoder::Useless(Unlearned::Malformed);
                }
            }
            Decoder::Useless(_) => {}
        }
    }

    /// Reports whether all facts were parsed: the rest of the body changes nothing.
    pub fn is_complete(&self) -> bool {
        match &self.0 {
            Decoder::Plain(scanner) => scanner.is_complete(),
            Decoder::Gzip(decoder) => decoder.get_ref().is_complete(),
            Decoder::Useless(_) => false,
        }
    }

    /// Returns the version of a list, once it was parsed.
    pub fn list_version(&self) -> Option<ResourceVersion> {
        let scanner = match &self.0 {
            Decoder::Plain(scanner) => scanner.as_ref(),
            Decoder::Gzip(decoder) => decoder.get_ref(),
            Decoder::Useless(_) => return None,
        };
        scanner.facts().collection_version()
    }

    fn scanner_mut(&mut self) -> Option<&mut Scanner> {
        match &mut self.0 {
            Decoder::Plain(scanner) => Some(scanner),
            Decoder::Gzip(decoder) => Some(decoder.get_mut()),
            Decoder::Useless(_) => None,
        }
    }

    /// Returns the facts after the last chunk.
    pub fn finish(self) -> Learned {
        let facts = match self.0 {
            Decoder::Plain(mut scanner) => scanner.finish(),
            // The client has the whole list before the checksum, which may come in a chunk of its own.
            Decoder::Gzip(mut decoder) => match decoder.get_ref().is_complete() {
                false if decoder.try_finish().is_err() => Err(Unlearned::Truncated),
                _ => decoder.get_mut().finish(),
            },
            Decoder::Useless(reason) => Err(reason),
        };
        match facts {
            Ok(facts) => facts.conclude(),
            Err(reason) => Learned::Nothing(reason),
        }
    }
}

// === impl LearnedObject ===

impl LearnedObject {
    /// Returns its storage key.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace.as_deref(), &self.name)
    }
}

impl Labels for LearnedObject {
    fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == key).map(|(_, value)| &**value)
    }
}

// === impl Unlearned ===

impl Unlearned {
    /// Returns the word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownMedia => "unknown-media",
            Self::UnknownEncoding => "unknown-encoding",
            Self::Truncated => "truncated",
            Self::Malformed => "malformed",
            Self::TooLarge => "too-large",
            Self::NoVersion => "no-version",
            Self::NotAnObject => "not-an-object",
        }
    }
}

// === impl Scanner ===

impl Scanner {
    fn push(&mut self, bytes: &[u8]) {
        match self {
            Self::Json(scanner) => scanner.push(bytes),
            Self::Protobuf(scanner) => scanner.push(bytes),
        }
    }

    fn facts(&self) -> &Facts {
        match self {
            Self::Json(scanner) => scanner.facts(),
            Self::Protobuf(scanner) => scanner.facts(),
        }
    }

    fn is_complete(&self) -> bool {
        match self {
            Self::Json(scanner) => scanner.is_complete(),
            Self::Protobuf(scanner) => scanner.is_complete(),
        }
    }

    fn facts_mut(&mut self) -> &mut Facts {
        match self {
            Self::Json(scanner) => scanner.facts_mut(),
            Self::Protobuf(scanner) => scanner.facts_mut(),
        }
    }

    fn finish(&mut self) -> Result<Facts, Unlearned> {
        match self {
            Self::Json(scanner) => scanner.finish(),
            Self::Protobuf(scanner) => scanner.finish(),
        }
    }
}

impl Write for Scanner {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
