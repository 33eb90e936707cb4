//! The form of bookmarks in protobuf. Pure.

use bytes::Bytes;

use super::Mark;
use crate::{
    api::{
        media::Partial,
        protobuf::wire::{Fields, field, put_bytes},
        version::ResourceVersion,
    },
    cache::form::event,
};

/// The form of a bookmark in protobuf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cache) struct ProtobufBookmark {
    /// ObjectMeta before its version.
    before_version: Box<[u8]>,
    /// ObjectMeta after its version.
    after_version: Box<[u8]>,
    /// The zero values of the kind after its metadata.
    rest: Box<[u8]>,
}

/// The number of `resourceVersion` in ObjectMeta.
const VERSION: u8 = 6;

/// The number of `annotations` in ObjectMeta; fields are encoded in order.
const ANNOTATIONS: u8 = 12;

/// The empty strings before the version: name, generateName, namespace, selfLink and uid.
const BEFORE_VERSION: [u8; 10] = [0x0a, 0, 0x12, 0, 0x1a, 0, 0x22, 0, 0x2a, 0];

/// The zero generation and the empty creationTimestamp after it.
const AFTER_VERSION: [u8; 4] = [0x38, 0, 0x42, 0];

// === impl ProtobufBookmark ===

impl ProtobufBookmark {
    /// Learns from a bookmark's object at a version; returns `None` if its form is unusual.
    pub(in crate::cache) fn learn(payload: &[u8], version: &ResourceVersion) -> Option<Self> {
        let first = Fields::of(payload).next()?.ok().filter(|field| field.number == 1)?;
        let metadata = first.bytes().ok()?;
        let fields: Vec<_> = Fields::of(metadata).collect::<Result<_, _>>().ok()?;
        if fields.iter().any(|field| field.number >= u64::from(ANNOTATIONS)) {
            return None;
        }
        let held = fields.iter().find(|field| field.number == u64::from(VERSION))?;
        (held.text().ok()? == version.as_str()).then(|| Self {
            before_version: metadata[..held.start].into(),
            after_version: metadata[held.end..].into(),
            rest: payload[first.end..].into(),
        })
    }

    /// Returns the shortest form that clients accept.
    pub(in crate::cache) fn plain() -> Self {
        Self {
            before_version: BEFORE_VERSION.into(),
            after_version: AFTER_VERSION.into(),
            rest: Box::default(),
        }
    }

    /// Returns the event of the same server's metadata-only watches.
    pub(in crate::cache) fn partial(
        &self,
        partial: Partial,
        version: &ResourceVersion,
        mark: Mark,
    ) -> Bytes {
        let form = Self { rest: Box::default(), ..self.clone() };
        form.event(partial.version.api_version(), "PartialObjectMetadata", version, mark)
    }

    /// Returns the event of a watch of objects of this type.
    pub(in crate::cache) fn event(
        &self,
        api_version: &str,
        kind: &str,
        version: &ResourceVersion,
        mark: Mark,
    ) -> Bytes {
        let mut metadata = self.before_version.to_vec();
        put_bytes(&mut metadata, VERSION, version.as_str().as_bytes());
        metadata.extend_from_slice(&self.after_version);
        if mark == Mark::InitialEventsEnd {
            let entry = [field(1, b"k8s.io/initial-events-end"), field(2, b"true")].concat();
            put_bytes(&mut metadata, ANNOTATIONS, &entry);
        }
        let mut payload = field(1, &metadata);
        payload.extend_from_slice(&self.rest);
        event("BOOKMARK", api_version, kind, &payload)
    }
}

/// Returns the version of a bookmark's object.
pub(in crate::cache) fn version_of(payload: &[u8]) -> Option<ResourceVersion> {
    let first = Fields::of(payload).next()?.ok().filter(|field| field.number == 1)?;
    let mut fields = Fields::of(first.bytes().ok()?);
    let held = fields.find(|field| field.is_ok_and(|field| field.number == u64::from(VERSION)))?;
    ResourceVersion::parse(held.ok()?.text().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{form::Form, media::MetadataVersion},
        cache::fixture::version,
    };

    #[test]
    fn the_apiservers_form_is_reproduced() {
        let metadata =
            |more: &[u8]| [&BEFORE_VERSION[..], &field(6, b"9"), &AFTER_VERSION, more].concat();
        let entry = [field(1, b"k8s.io/initial-events-end"), field(2, b"true")].concat();
        let rest = [field(2, &field(3, b"")), field(3, b"")].concat();
        let plain = [field(1, &metadata(b"")), rest.clone()].concat();
        let form = ProtobufBookmark::learn(&plain, &version(9)).expect("understood");
        let marked = [field(1, &metadata(&field(12, &entry))), rest].concat();
        for (mark, payload) in [(Mark::None, &plain), (Mark::InitialEventsEnd, &marked)] {
            let told = form.event("v1", "Pod", &version(9), mark);
            assert_eq!(told, event("BOOKMARK", "v1", "Pod", payload));
        }
        assert_eq!(version_of(&plain), Some(version(9)));
        assert_eq!(ProtobufBookmark::learn(&marked, &version(9)), None, "with annotations");
        assert_eq!(ProtobufBookmark::learn(&plain, &version(8)), None, "of another version");
        assert_eq!(ProtobufBookmark::learn(b"", &version(9)), None);
        let partial = Partial { version: MetadataVersion::V1, form: Form::Protobuf };
        let shortest = ProtobufBookmark::plain().partial(partial, &version(9), Mark::None);
        assert_eq!(form.partial(partial, &version(9), Mark::None), shortest);
    }
}
