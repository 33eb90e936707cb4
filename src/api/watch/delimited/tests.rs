//! Events by the apiserver's own serializer and by hand: complete, truncated and damaged.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use proptest::prelude::*;

use super::*;
use crate::api::{version::ResourceVersion, watch::WatchReader};

type Outcome = (Vec<Shown>, Result<(), Opaque>);

fn real(encoded: &str) -> Vec<u8> {
    BASE64_STANDARD.decode(encoded).expect("base64")
}

/// Returns the events of a stream in these chunks, and the state of the parser after it.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let (mut reader, mut all) = (Delimited::default(), Vec::new());
    for piece in pieces {
        if let Err(why) = reader.push(piece, |shown| all.push(shown)) {
            return (all, Err(why));
        }
    }
    (all, Ok(()))
}

/// Returns a field with a length.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = value.len();
    while length >= 0x80 {
        field.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend_from_slice(value);
    field
}

fn frame(event: &[u8]) -> Vec<u8> {
    let length = u32::try_from(event.len()).expect("short");
    [&length.to_be_bytes(), event].concat()
}

fn event(kind: &str, object: &[u8]) -> Vec<u8> {
    frame(&[field(1, kind.as_bytes()), field(2, &field(1, object))].concat())
}

fn envelope(kind: &str, raw: &[u8]) -> Vec<u8> {
    let kind = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &kind), field(2, raw)].concat()
}

/// Returns a Pod with an annotation of this length.
fn pod(name: &str, version: &str, labels: &BTreeMap<String, String>, ballast: usize) -> Vec<u8> {
    let mut meta = [field(1, name.as_bytes()), field(3, b"n"), field(5, b"u")].concat();
    meta.extend(field(6, version.as_bytes()));
    for (key, value) in labels {
        meta.extend(field(11, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat()));
    }
    meta.extend(field(12, &[field(1, b"x"), field(2, &vec![b'y'; ballast])].concat()));
    envelope("Pod", &[field(1, &meta), field(2, b"")].concat())
}

fn status(code: u64) -> Vec<u8> {
    let mut raw = [field(2, b"Failure"), vec![6 << 3]].concat();
    raw.extend([(code & 0x7f) as u8 | 0x80, (code >> 7) as u8]);
    envelope("Status", &raw)
}

fn object(name: &str, labels: BTreeMap<String, String>, deleted: bool) -> Shown {
    let (namespace, name, uid) = ("n".to_owned(), name.to_owned(), "u".to_owned());
    let version = ResourceVersion::parse("7").expect("a version");
    Shown::Object(ShownObject { namespace, name, uid, version, labels, deleted })
}

fn bookmark() -> Shown {
    Shown::Bookmark(ResourceVersion::parse("9").expect("a version"))
}

fn web() -> BTreeMap<String, String> {
    BTreeMap::from([("app".into(), "web".into())])
}

#[test]
fn binary_messages_of_a_websocket_are_events_without_their_length() {
    let message = |first: u8, payload: &[u8]| {
        let length = u16::try_from(payload.len()).expect("short").to_be_bytes();
        [&[first, 126], &length[..], payload].concat()
    };
    let outcome = |stream: &[u8]| {
        let (mut reader, mut all) = (WatchReader::websocket(), Vec::new());
        reader.push(stream, |shown| all.push(shown)).map(|()| all)
    };
    let [added, marked, deleted] =
        [ADDED, BOOKMARK, DELETED].map(|event| real(event)[4..].to_vec());
    let (head, tail) = added.split_at(40);
    let text = br#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#;
    let stream = [
        message(0x02, head),
        message(0x80, tail),
        message(0x82, &marked),
        message(0x81, text),
        message(0x82, &deleted),
    ];
    let [added, deleted] = [false, true].map(|deleted| object("a", web(), deleted));
    assert_eq!(outcome(&stream.concat()), Ok(vec![added, bookmark(), Shown::Expired, deleted]));
    for odd in [&real(ADDED)[4..40], &real(ADDED), b"{}"] {
        assert_eq!(outcome(&message(0x82, odd)), Err(Opaque::Form), "{}", odd.escape_ascii());
    }
}

#[test]
fn events_are_parsed_at_any_chunk_boundary_of_the_stream() {
    let stream = [ADDED, BOOKMARK, METADATA, DELETED, GONE].map(real).concat();
    let [added, deleted] = [false, true].map(|deleted| object("a", web(), deleted));
    let shown = vec![added.clone(), bookmark(), added, deleted, Shown::Expired];
    let expected = (shown, Ok(()));
    for at in 0..=stream.len() {
        let (head, tail) = stream.split_at(at);
        assert_eq!(read([head, tail]), expected, "cut at {at}");
    }
    for size in 1..=stream.len() {
        assert_eq!(read(stream.chunks(size)), expected, "pieces of {size}");
    }
}

#[test]
fn an_event_is_reported_at_its_last_byte() {
    for (encoded, count) in [(ADDED, 1), (BOOKMARK, 1), (DELETED, 1), (GONE, 1)] {
        let whole = real(encoded);
        for length in 0..whole.len() {
            assert_eq!(read([&whole[..length]]), (Vec::new(), Ok(())), "{length}");
        }
        assert_eq!(read([&*whole]).0.len(), count);
    }
}

#[test]
fn only_expiry_errors_are_reported() {
    for (code, shown) in [(410, vec![Shown::Expired]), (504, vec![Shown::Expired]), (500, vec![])] {
        assert_eq!(read([&*event("ERROR", &status(code))]), (shown, Ok(())), "{code}");
    }
    let no_status = event("ERROR", &pod("a", "7", &web(), 0));
    assert_eq!(read([&*no_status]), (Vec::new(), Err(Opaque::Form)));
}

#[test]
fn a_large_object_is_parsed_and_not_kept() {
    let large = event("MODIFIED", &pod("a", "7", &web(), EVENT_BYTES_MAX - 4096));
    let mut reader = Delimited::default();
    let mut all = Vec::new();
    for piece in large.chunks(64 * 1024) {
        reader.push(piece, |shown| all.push(shown)).expect("readable");
        assert!(reader.head.capacity() <= 2 * HEAD_BYTES_MAX);
    }
    assert_eq!(all, [object("a", web(), false)]);
}

#[test]
fn an_event_whose_length_is_too_large_is_opaque_at_once() {
    let length = u32::try_from(EVENT_BYTES_MAX + 1).expect("small").to_be_bytes();
    assert_eq!(read([&length[..]]), (Vec::new(), Err(Opaque::TooLarge)));
    let long = BTreeMap::from([("app".to_owned(), "x".repeat(4096))]);
    let labelled = event("ADDED", &pod("a", "7", &long, 0));
    assert_eq!(read([&*labelled]), (Vec::new(), Err(Opaque::TooLarge)));
}

#[test]
fn an_unexpected_field_is_opaque() {
    let pod = pod("a", "7", &web(), 0);
    let (added, extension) = (field(1, b"ADDED"), field(2, &field(1, &pod)));
    let table: [(&str, Vec<u8>); 16] = [
        ("enveloped", frame(&[b"k8s\0".to_vec(), added.clone()].concat())),
        ("empty", frame(b"")),
        ("without an object", frame(&added)),
        ("without a type", frame(&extension)),
        ("in another order", frame(&[extension.clone(), added.clone()].concat())),
        ("with more", frame(&[added.clone(), extension.clone(), field(3, b"x")].concat())),
        ("of an unknown type", event("SEEN", &pod)),
        ("of a type too long", event(&"A".repeat(17), &pod)),
        ("not of text", frame(&[field(1, &[0xff]), extension].concat())),
        (
            "a shorter extension",
            frame(&[added, field(2, &[&field(1, &pod)[..], b"\x12\x00"].concat())].concat()),
        ),
        ("of nothing", event("ADDED", b"")),
        ("of JSON", event("ADDED", br#"{"kind":"Pod","metadata":{"name":"a"}}"#)),
        ("of a list", event("ADDED", &envelope("PodList", &field(1, &field(2, b"7"))))),
        ("without a name", event("ADDED", &envelope("Pod", &field(1, &field(6, b"7"))))),
        ("without a version", event("ADDED", &envelope("Pod", &field(1, &field(1, b"a"))))),
        ("cut inside", event("ADDED", &pod[..pod.len() - 1])),
    ];
    for (what, stream) in table {
        // Later events do not repair the stream.
        let stream = [stream, real(ADDED)].concat();
        assert_eq!(read([&*stream]), (Vec::new(), Err(Opaque::Form)), "{what}");
        assert_eq!(read(stream.chunks(1)), (Vec::new(), Err(Opaque::Form)), "{what}");
    }
    let endless = [&[0, 0, 1, 0, FIRST][..], &[0x80; 12]].concat();
    assert_eq!(read([&*endless]), (Vec::new(), Err(Opaque::Form)));
}

proptest! {
    #[test]
    fn every_object_is_reported_as_written(
        objects in prop::collection::vec(
            ("[a-z]{1,40}", prop::collection::btree_map("[a-z/]{1,70}", "[a-z]{0,63}", 0..4),
             0usize..3000, any::<bool>()), 1..5),
        piece in 1usize..5000,
    ) {
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        for (name, labels, ballast, deleted) in objects {
            let kind = if deleted { "DELETED" } else { "MODIFIED" };
            stream.extend(event(kind, &pod(&name, "7", &labels, ballast)));
            expected.push(object(&name, labels, deleted));
        }
        prop_assert_eq!(read(stream.chunks(piece)), (expected, Ok(())));
    }

    #[test]
    fn damaged_events_are_parsed_or_opaque_in_any_chunks(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        piece in 1usize..40,
    ) {
        let mut damaged = [ADDED, GONE, METADATA].map(real).concat();
        for (position, byte) in flips {
            let position = position.index(damaged.len());
            damaged[position] = byte;
        }
        prop_assert_eq!(read(damaged.chunks(piece)), read([&*damaged]));
    }

    #[test]
    fn noise_is_never_reported(noise in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert_eq!(read([&*noise]).0, Vec::new());
    }
}

const ADDED: &str = "\
    AAAA/goFQURERUQS9AEK8QFrOHMACgkKAnYxEgNQb2QS2wEKhwEKAWESABoBbiIAKgF1MgE3OABCAFoKCgNhcHASA3\
    dlYmJlCgF4EmB5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5\
    eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXkSOhIaCgFjEgFpKgBCAGoAcgCAAQCIAQCQAQCiAQ\
    AaADIAQgBKAFICbjFYAGAAaACCAQCKAQCaAQDCAQAaEwoAGgAiACoAMgBKAFoAcgCIAQAaACIA";
const DELETED: &str = "\
    AAABAAoHREVMRVRFRBL0AQrxAWs4cwAKCQoCdjESA1BvZBLbAQqHAQoBYRIAGgFuIgAqAXUyATc4AEIAWgoKA2FwcB\
    IDd2ViYmUKAXgSYHl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5\
    eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eRI6EhoKAWMSAWkqAEIAagByAIABAIgBAJABAK\
    IBABoAMgBCAEoAUgJuMVgAYABoAIIBAIoBAJoBAMIBABoTCgAaACIAKgAyAEoAWgByAIgBABoAIgA=";
const METADATA: &str = "\
    AAAAzgoITU9ESUZJRUQSwQEKvgFrOHMACicKDm1ldGEuazhzLmlvL3YxEhVQYXJ0aWFsT2JqZWN0TWV0YWRhdGESig\
    EKhwEKAWESABoBbiIAKgF1MgE3OABCAFoKCgNhcHASA3dlYmJlCgF4EmB5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5\
    eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eX\
    l5eXkaACIA";
const BOOKMARK: &str = "\
    AAAAjQoIQk9PS01BUksSgAEKfms4cwAKCQoCdjESA1BvZBJpCjQKABIAGgAiACoAMgE5OABCAGIhChlrOHMuaW8vaW\
    5pdGlhbC1ldmVudHMtZW5kEgR0cnVlEhwaADIAQgBKAFIAWABgAGgAggEAigEAmgEAwgEAGhMKABoAIgAqADIASgBa\
    AHIAiAEAGgAiAA==";
const GONE: &str = "\
    AAAAYQoFRVJST1ISWApWazhzAAoMCgJ2MRIGU3RhdHVzEj4KBgoAEgAaABIHRmFpbHVyZRofdG9vIG9sZCByZXNvdX\
    JjZSB2ZXJzaW9uOiAxICg5KSIHRXhwaXJlZDCaAxoAIgA=";
