//! Lists, objects and events in protobuf, byte for byte as the apiserver encodes them (S-CT-20..23,
//! S-WATCH-41). Pure.
//!
//! An object is an element of a list's `items`, with its tag and length. Nothing in it is decoded
//! but its metadata. A list or an event that would not be encoded again to the same bytes is
//! rejected.

use std::{collections::VecDeque, ops::Range};

use bytes::Bytes;

use super::Whole;
use crate::{
    api::{
        form::Form,
        media::{MetadataVersion, Partial, Representation},
        protobuf::{
            MAGIC,
            wire::{
                Field, Fields, Malformed, UNKNOWN_END, field, field_length, number, put_bytes,
                put_head, put_number, unknown_start,
            },
        },
        version::ResourceVersion,
    },
    cache::{history::Change, metadata::is_converted, portion::ListMeta},
};

/// The types of a resource's lists and objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtobufEnvelope {
    api_version: String,
    list_kind: String,
    kind: String,
}

/// The number of `resourceVersion` in ObjectMeta.
const VERSION: u64 = 6;

// === impl ProtobufEnvelope ===

impl ProtobufEnvelope {
    /// Creates the envelope of a list's type; `None` if its kind is not that of a list.
    pub(super) fn new(api_version: &str, list_kind: &str) -> Option<Self> {
        let kind = list_kind.strip_suffix("List").filter(|kind| !kind.is_empty())?;
        Some(Self {
            api_version: api_version.to_owned(),
            list_kind: list_kind.to_owned(),
            kind: kind.to_owned(),
        })
    }

    /// Returns the kind of a list's items.
    pub(in crate::cache) fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the apiVersion of the list and its items.
    pub(in crate::cache) fn api_version(&self) -> &str {
        &self.api_version
    }

    /// Returns the bytes before the first item of a list whose items have this length together.
    pub(super) fn head(&self, meta: &ListMeta<'_>, items: usize) -> Vec<u8> {
        let metadata = field(1, &list_meta(meta));
        let mut head = unknown_start(&self.api_version, &self.list_kind, metadata.len() + items);
        head.extend(metadata);
        head
    }

    /// Returns the bytes after the last item.
    pub(super) fn tail() -> Vec<u8> {
        UNKNOWN_END.to_vec()
    }

    /// Returns the body of a GET.
    pub(super) fn whole(&self, raw: &Bytes) -> Whole<'static> {
        let payload = payload_range(raw);
        let head = unknown_start(&self.api_version, &self.kind, payload.len()).into();
        Whole { head, object: raw.slice(payload), tail: &UNKNOWN_END }
    }

    /// Returns the event of a watch for an object.
    pub(super) fn event(
        &self,
        seen: Change,
        raw: &[u8],
        representation: Representation,
    ) -> Option<Bytes> {
        let payload = raw.get(payload_range(raw))?;
        match representation {
            Representation::Object => {
                Some(event(seen.as_str(), &self.api_version, &self.kind, payload))
            }
            Representation::Metadata(partial) => {
                Some(partial_event(seen, metadata_of(payload)?, partial))
            }
            Representation::Table(_) => None,
        }
    }

    /// Returns the item of a list with the enveloped object of an event; `None` if the envelope has
    /// another form.
    pub(in crate::cache) fn item_of(&self, object: &[u8]) -> Option<Vec<u8>> {
        let payload = enveloped(object, &self.api_version, &self.kind)?;
        Some(field(2, payload))
    }
}

/// Returns an event with its length.
pub(in crate::cache) fn event(
    kind: &str,
    api_version: &str,
    object_kind: &str,
    payload: &[u8],
) -> Bytes {
    let start = unknown_start(api_version, object_kind, payload.len());
    let object = start.len() + payload.len() + UNKNOWN_END.len();
    let whole = field_length(kind.len()) + field_length(field_length(object));
    let mut event = Vec::with_capacity(4 + whole);
    event.extend_from_slice(&u32::try_from(whole).unwrap_or(u32::MAX).to_be_bytes());
    put_bytes(&mut event, 1, kind.as_bytes());
    put_head(&mut event, 2, field_length(object));
    put_head(&mut event, 1, object);
    event.extend_from_slice(&start);
    event.extend_from_slice(payload);
    event.extend_from_slice(&UNKNOWN_END);
    event.into()
}

/// Returns an event with the content of a PartialObjectMetadata.
pub(in crate::cache) fn partial_event(seen: Change, content: &[u8], partial: Partial) -> Bytes {
    event(seen.as_str(), partial.version.api_version(), "PartialObjectMetadata", content)
}

/// Returns the parts of an event without its length: its type, and its object in its envelope.
pub(in crate::cache) fn event_parts(frame: &[u8]) -> Option<(&str, &[u8])> {
    let mut fields = Fields::of(frame);
    let kind = numbered(fields.next(), 1)?;
    let extension = numbered(fields.next(), 2)?;
    let mut inner = Fields::of(extension);
    let object = numbered(inner.next(), 1)?;
    let ends = fields.next().is_none() && inner.next().is_none();
    ends.then_some((str::from_utf8(kind).ok()?, object))
}

/// Returns the content of an envelope of this type; `None` if it is not encoded as here.
fn enveloped<'a>(object: &'a [u8], api_version: &str, kind: &str) -> Option<&'a [u8]> {
    let (found_version, found_kind, payload) = unknown_parts(object)?;
    (found_version == api_version && found_kind == kind).then_some(payload)
}

/// Returns the parts of an envelope: apiVersion, kind and content.
pub(in crate::cache) fn unknown_parts(object: &[u8]) -> Option<(&str, &str, &[u8])> {
    let rest = object.strip_prefix(&MAGIC)?.strip_suffix(&UNKNOWN_END)?;
    let mut fields = Fields::of(rest);
    let types = numbered(fields.next(), 1)?;
    let payload = numbered(fields.next(), 2)?;
    let mut types = Fields::of(types);
    let api_version = str::from_utf8(numbered(types.next(), 1)?).ok()?;
    let kind = str::from_utf8(numbered(types.next(), 2)?).ok()?;
    (fields.next().is_none() && types.next().is_none()).then_some((api_version, kind, payload))
}

/// Returns the bytes of a field that must have this number.
fn numbered<'a>(field: Option<Result<Field<'a>, Malformed>>, expected: u64) -> Option<&'a [u8]> {
    let field = field?.ok()?;
    if field.number == expected { field.bytes().ok() } else { None }
}

/// Returns the range of an item without its tag and length.
pub(in crate::cache) fn payload_range(raw: &[u8]) -> Range<usize> {
    let length = raw.get(1..).and_then(|rest| number(rest).ok()?);
    // An item always begins so.
    let start = length.map_or(raw.len(), |(_, bytes)| 1 + bytes);
    start.min(raw.len())..raw.len()
}

/// Returns the first field of an object, its ObjectMeta, with tag and length: the content of a
/// PartialObjectMetadata.
fn metadata_of(payload: &[u8]) -> Option<&[u8]> {
    let metadata = Fields::of(payload).next()?.ok()?;
    let metadata = payload.get(..metadata.end).filter(|_| metadata.number == 1)?;
    (!is_converted(metadata, Form::Protobuf)).then_some(metadata)
}

/// Returns ListMeta of a complete list.
fn list_meta(meta: &ListMeta<'_>) -> Vec<u8> {
    let token = meta.next.map_or("", |next| &next.token);
    let version = meta.version.as_str();
    let mut message =
        [field(1, b""), field(2, version.as_bytes()), field(3, token.as_bytes())].concat();
    if let Some(remaining) = meta.next.and_then(|next| next.remaining) {
        // `remainingItemCount` is field 4, a varint.
        put_number(&mut message, 4 << 3);
        put_number(&mut message, remaining);
    }
    message
}

/// Returns an item with another version in it.
pub(super) fn raw_at(raw: &[u8], version: &ResourceVersion) -> Option<Vec<u8>> {
    let payload = raw.get(payload_range(raw))?;
    let first = Fields::of(payload).next()?.ok().filter(|field| field.number == 1)?;
    let metadata = first.bytes().ok()?;
    let held = Fields::of(metadata)
        .find(|field| field.as_ref().map_or(true, |field| field.number == VERSION))?;
    let held = held.ok()?;
    let mut changed = metadata.get(..held.start)?.to_vec();
    put_bytes(&mut changed, VERSION as u8, version.as_str().as_bytes());
    changed.extend_from_slice(metadata.get(held.end..)?);
    let mut object = field(1, &changed);
    object.extend_from_slice(payload.get(first.end..)?);
    Some(field(2, &object))
}

/// Appends an object as an item of a PartialObjectMetadataList.
pub(super) fn write_metadata(
    raw: &[u8],
    version: MetadataVersion,
    out: &mut Vec<u8>,
) -> Option<()> {
    write_partial(metadata_of(raw.get(payload_range(raw))?)?, version, out);
    Some(())
}

/// Appends the content of a PartialObjectMetadata as an item of such a list.
pub(super) fn write_partial(content: &[u8], version: MetadataVersion, out: &mut Vec<u8>) {
    put_bytes(out, metadata_fields(version).1, content);
}

/// Returns the bytes before and after the items of a PartialObjectMetadataList.
pub(super) fn metadata_ends(
    meta: &ListMeta<'_>,
    version: MetadataVersion,
    items: usize,
) -> (Vec<u8>, Vec<u8>) {
    let meta = field(metadata_fields(version).0, &list_meta(meta));
    let (kind, api_version) = ("PartialObjectMetadataList", version.api_version());
    let mut head = unknown_start(api_version, kind, meta.len() + items);
    match version {
        MetadataVersion::V1 => head.extend(meta),
        MetadataVersion::V1Beta1 => return (head, [&meta[..], &UNKNOWN_END].concat()),
    }
    (head, UNKNOWN_END.to_vec())
}

/// Returns the numbers of a list's metadata and items. The older version has them the other way
/// round (S-CT-22).
fn metadata_fields(version: MetadataVersion) -> (u8, u8) {
    match version {
        MetadataVersion::V1 => (1, 2),
        MetadataVersion::V1Beta1 => (2, 1),
    }
}

/// Returns the PartialObjectMetadata of one object.
pub(super) fn metadata_object(raw: &[u8], version: MetadataVersion) -> Option<VecDeque<Bytes>> {
    Some(partial_object(metadata_of(raw.get(payload_range(raw))?)?, version))
}

/// Returns the PartialObjectMetadata with this content.
pub(super) fn partial_object(partial: &[u8], version: MetadataVersion) -> VecDeque<Bytes> {
    let mut body = unknown_start(version.api_version(), "PartialObjectMetadata", partial.len());
    body.extend_from_slice(partial);
    body.extend_from_slice(&UNKNOWN_END);
    [Bytes::from(body)].into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{
            GroupVersionResource, ObjectKey, Scope,
            form::Form,
            protobuf::tests::{PARTIAL, POD, PODLIST, bytes},
            selector::Labels,
        },
        cache::{fixture::version, form::ListSplitter, reader::Reader, split::SplitError},
    };

    fn metadata(name: &str, at: &str) -> Vec<u8> {
        let label = [field(1, b"app"), field(2, b"web")].concat();
        let parts = [(1, name), (2, ""), (3, "d"), (4, ""), (5, "u-1"), (6, at)];
        let mut metadata = parts.map(|(number, text)| field(number, text.as_bytes())).concat();
        metadata.extend(field(11, &label));
        metadata
    }

    fn payload(at: &str) -> Vec<u8> {
        [field(1, &metadata("p", at)), field(2, &field(10, b"n1")), field(3, b"")].concat()
    }

    fn envelope() -> ProtobufEnvelope {
        ProtobufEnvelope::new("v1", "PodList").expect("a list")
    }

    fn pods() -> Reader {
        let pods = GroupVersionResource::new("", "v1", "pods");
        Reader::new(pods, Scope::Namespace("d".into()), Form::Protobuf)
    }

    #[test]
    fn an_event_is_reproduced_from_its_object() {
        let told = event("MODIFIED", "v1", "Pod", &payload("7"));
        let (kind, object) = event_parts(&told[4..]).expect("an event");
        assert_eq!(kind, "MODIFIED");
        let object = pods().enveloped(object, &envelope()).expect("an object");
        assert_eq!(
            (object.key(), object.version()),
            (&ObjectKey::new(Some("d"), "p"), &version(7))
        );
        assert_eq!(object.label("app"), Some("web"));
        assert_eq!(object.raw(), &field(2, &payload("7")));
        let line = envelope().event(Change::Modified, object.raw(), Representation::Object);
        assert_eq!(line, Some(told));
        let partial = field(1, &metadata("p", "7"));
        for version in [MetadataVersion::V1, MetadataVersion::V1Beta1] {
            let shown = Representation::Metadata(Partial { version, form: Form::Protobuf });
            let line = envelope().event(Change::Deleted, object.raw(), shown);
            let kind = "PartialObjectMetadata";
            assert_eq!(line, Some(event("DELETED", version.api_version(), kind, &partial)));
        }
    }

    /// Checks the bytes of the apiserver's own serializer.
    #[test]
    fn lists_objects_and_metadata_of_the_apiserver_are_reproduced() {
        let (list, mut items) = (bytes(PODLIST), Vec::new());
        let pods = GroupVersionResource::new("", "v1", "pods");
        let mut splitter = ListSplitter::new(Form::Protobuf, &pods, 1000);
        for chunk in list.chunks(11) {
            let keep = |item: &[u8]| {
                items.push(item.to_vec());
                Ok::<_, SplitError>(())
            };
            splitter.feed(chunk, keep).expect("a list");
        }
        let (envelope, at) = splitter.finish().expect("a list");
        assert_eq!((at, items.len()), (version(456), 1));
        let resource = GroupVersionResource::new("", "v1", "pods");
        let mut reader = Reader::new(resource, Scope::All, Form::Protobuf);
        let (object, _) = reader.item(&items[0]).expect("a pod");
        assert_eq!((object.key().as_str(), object.version()), ("shop/web-0", &version(123)));
        assert_eq!((object.label("app"), object.label("tier")), (Some("web"), Some("")));
        let Whole { head, object: payload, tail } = envelope.whole(object.raw());
        assert_eq!([&*head, &payload, tail].concat(), bytes(POD));
        let at = version(789);
        let (meta, mut item) = (ListMeta::whole(&at), Vec::new());
        let older = MetadataVersion::V1Beta1;
        write_metadata(object.raw(), older, &mut item).expect("metadata");
        let (head, tail) = metadata_ends(&meta, older, item.len());
        assert_eq!([head, item, tail].concat(), bytes(PARTIAL));
    }

    #[test]
    fn only_the_objects_own_version_is_replaced() {
        for at in ["8", "123456789012345678901234567890"] {
            let raw = field(2, &payload("7"));
            let expected = field(2, &payload(at));
            let version = ResourceVersion::parse(at);
            if let Ok(version) = version {
                assert_eq!(raw_at(&raw, &version), Some(expected), "{at}");
            }
        }
        assert_eq!(raw_at(&field(2, &field(2, b"")), &version(8)), None);
        assert_eq!(raw_at(b"", &version(8)), None);
    }

    #[test]
    fn other_types_and_odd_envelopes_are_rejected() {
        let object = |kind: &str| event("ADDED", "v1", kind, &payload("7"));
        let odd = [
            object("Node").to_vec(),
            event("ADDED", "v2", "Pod", &payload("7")).to_vec(),
            [&object("Pod")[..], b"\x1a\0"].concat(),
        ];
        for told in odd {
            let found = event_parts(&told[4..]);
            let item = found.and_then(|(_, object)| envelope().item_of(object));
            assert_eq!(item, None, "{}", told.escape_ascii());
        }
        let two = [payload("7"), field(1, &metadata("q", "7"))].concat();
        let elsewhere = field(1, &metadata("p", "x"));
        for payload in [&two, &elsewhere, &field(2, b""), &Vec::new(), &b"\x0a\x05".to_vec()] {
            assert!(pods().item(&field(2, payload)).is_err(), "{}", payload.escape_ascii());
        }
        let nodes = GroupVersionResource::new("", "v1", "pods");
        let mut other = Reader::new(nodes, Scope::Namespace("e".into()), Form::Protobuf);
        assert!(other.item(&field(2, &payload("7"))).is_err(), "out of scope");
    }
}
