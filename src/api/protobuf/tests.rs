//! Envelopes written by the apiserver's own serializer, complete and damaged.

use base64::{Engine, prelude::BASE64_STANDARD};
use proptest::prelude::*;

use super::*;
use crate::api::{
    ObjectKey,
    learn::{Learned, Learner, Lifecycle, ListedObject},
    version::ResourceVersion,
};

pub(crate) fn bytes(encoded: &str) -> Vec<u8> {
    BASE64_STANDARD.decode(encoded).expect("base64")
}

fn learn(bytes: &[u8], piece: usize) -> Learned {
    let mut learner = Learner::new(Some(MEDIA_TYPE), None);
    bytes.chunks(piece).for_each(|piece| learner.push(piece));
    learner.finish()
}

fn object(encoded: &str) -> crate::api::learn::LearnedObject {
    match learn(&bytes(encoded), 7) {
        Learned::Object(object) => object,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_objects_metadata_is_learned() {
    let pod = object(POD);
    assert_eq!((&*pod.kind, &*pod.name, &*pod.uid), ("Pod", "web-0", "u-1"));
    assert_eq!((pod.key().as_str(), pod.version.as_str()), ("shop/web-0", "123"));
    let labels = [("app", "web"), ("tier", "")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!((pod.labels, pod.lifecycle), (labels.to_vec(), Lifecycle::Live));
}

#[test]
fn a_removed_object_is_distinguished_from_a_terminating_one() {
    assert_eq!(object(GRACEFUL).lifecycle, Lifecycle::Terminating);
    assert_eq!(object(FINALIZED).lifecycle, Lifecycle::Terminating);
    assert_eq!(object(REMOVED).lifecycle, Lifecycle::Removed);
    assert_eq!(object(HELD_NAMESPACE).lifecycle, Lifecycle::Terminating);
    assert_eq!(object(FINALIZED_NAMESPACE).lifecycle, Lifecycle::Removed);
}

#[test]
fn lists_and_statuses_are_distinguished_by_their_type() {
    for (encoded, expected) in [(PODLIST, "456"), (PARTIAL, "789")] {
        match learn(&bytes(encoded), 1) {
            Learned::List { version, .. } => assert_eq!(version.as_str(), expected),
            other => panic!("{other:?}"),
        }
    }
    let (details_uid, name) = (Some("u-9".to_owned()), Some("x".to_owned()));
    assert_eq!(learn(&bytes(STATUS), 3), Learned::Status { success: true, details_uid, name });
    let failure = Learned::Status { success: false, details_uid: None, name: None };
    assert_eq!(learn(&bytes(FAILURE), 3), failure);
}

/// A field that holds bytes.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = value.len();
    while length > 0x7f {
        field.push(length as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend_from_slice(value);
    field
}

fn item(name: &str, version: &str, labels: &[(&str, &str)]) -> Vec<u8> {
    let label = |(key, value): &(&str, &str)| {
        field(11, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat())
    };
    let labels: Vec<u8> = labels.iter().flat_map(label).collect();
    let fields = [(1, name), (3, "shop"), (5, "u"), (6, version)];
    let metadata: Vec<u8> =
        fields.iter().flat_map(|(number, text)| field(*number, text.as_bytes())).collect();
    // A pod's spec is long, and looks like metadata where it begins.
    let spec = field(1, &[metadata.clone(), vec![0; 300]].concat());
    field(2, &[field(1, &[metadata, labels].concat()), field(2, &spec)].concat())
}

fn pod_list(items: &[Vec<u8>]) -> Vec<u8> {
    let kind = field(1, &[field(1, b"v1"), field(2, b"PodList")].concat());
    let metadata = field(1, &[field(2, b"77"), field(3, b"next")].concat());
    let list = field(2, &[metadata, items.concat()].concat());
    [MAGIC.to_vec(), kind, list].concat()
}

#[test]
fn the_items_of_a_list_are_read_however_it_is_cut() {
    let labels = [("app", "web"), ("tier", "")];
    let list = pod_list(&[item("a", "5", &labels), item("b", "6", &[])]);
    let found = |name: &str, version: &str, labels: &[(&str, &str)]| ListedObject {
        key: ObjectKey::new(Some("shop"), name),
        version: ResourceVersion::parse(version).expect("a version"),
        labels: labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
    };
    for piece in 1..list.len() {
        let mut learner = Learner::new(Some(MEDIA_TYPE), None).with_items();
        let mut items = Vec::new();
        for piece in list.chunks(piece) {
            learner.push(piece);
            items.extend(learner.take_items());
        }
        assert_eq!(items, [found("a", "5", &labels), found("b", "6", &[])], "{piece}");
        let version = ResourceVersion::parse("77").expect("a version");
        let next = Some("next".to_owned());
        assert_eq!(learner.finish(), Learned::List { version, next, whole: true }, "{piece}");
    }
}

#[test]
fn a_list_with_an_item_that_cannot_be_read_is_not_whole() {
    let nameless = field(2, &field(2, b"spec"));
    let mut learner = Learner::new(Some(MEDIA_TYPE), None).with_items();
    learner.push(&pod_list(&[item("a", "5", &[]), nameless]));
    assert_eq!(learner.take_items().len(), 1);
    assert!(matches!(learner.finish(), Learned::List { whole: false, .. }));
}

#[test]
fn the_size_of_the_chunks_does_not_matter() {
    for encoded in [POD, GRACEFUL, PODLIST, PARTIAL, STATUS] {
        let whole = bytes(encoded);
        for piece in 1..whole.len() {
            assert_eq!(learn(&whole, piece), learn(&whole, usize::MAX), "{piece}");
        }
    }
}

#[test]
fn a_truncated_body_teaches_nothing() {
    for encoded in [POD, PODLIST, STATUS] {
        let whole = bytes(encoded);
        // The last two fields of the envelope are empty: without them it is still complete.
        for length in 0..whole.len() - 4 {
            let learned = learn(&whole[..length], usize::MAX);
            assert_eq!(learned, Learned::Nothing(Unlearned::Truncated), "{length}");
        }
    }
}

#[test]
fn lengths_that_reach_beyond_their_message_are_malformed() {
    let malformed = Learned::Nothing(Unlearned::Malformed);
    let table: [&[u8]; 6] = [
        b"k8x\0",
        b"k8s\0\x0a\x04\x12\x03Pod",
        b"k8s\0\x0a\x05\x12\x03Pod\x12\x02\x0a\x01",
        b"k8s\0\x12\x00",
        b"k8s\0\x0b",
        b"k8s\0\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
    ];
    for bytes in table {
        assert_eq!(learn(bytes, 1), malformed, "{bytes:?}");
    }
}

#[test]
fn an_encoding_inside_the_envelope_is_rejected() {
    let bytes = b"k8s\0\x0a\x05\x12\x03Pod\x12\x00\x1a\x01x";
    assert_eq!(learn(bytes, 1), Learned::Nothing(Unlearned::UnknownEncoding));
}

proptest! {
    #[test]
    fn damaged_envelopes_are_parsed_or_rejected(
        flips in prop::collection::vec((4usize..200, any::<u8>()), 1..4),
        piece in 1usize..40,
    ) {
        let mut damaged = bytes(GRACEFUL);
        for (position, byte) in flips {
            let length = damaged.len();
            damaged[position % length] = byte;
        }
        prop_assert_eq!(learn(&damaged, piece), learn(&damaged, usize::MAX));
    }
}

pub(crate) const POD: &str = "\
    azhzAAoJCgJ2MRIDUG9kEqQBClQKBXdlYi0wEgAaBHNob3AiACoDdS0xMgMxMjM4AEIAWgoKA2FwcBIDd2Vi\
    WggKBHRpZXISAGIPCgFhEgp4eHh4eHh4eHh4igELCgFtEgAaADIAQgASNxIZCgFjEgAqAEIAagByAIABAIgB\
    AJABAKIBABoAMgBCAEoAUgBYAGAAaACCAQCKAQCaAQDCAQAaEwoAGgAiACoAMgBKAFoAcgCIAQAaACIA";
const GRACEFUL: &str = "\
    azhzAAoJCgJ2MRIDUG9kErABCmAKBXdlYi0wEgAaBHNob3AiACoDdS0xMgMxMjM4AEIASggIgOLPqgYQAFAe\
    WgoKA2FwcBIDd2ViWggKBHRpZXISAGIPCgFhEgp4eHh4eHh4eHh4igELCgFtEgAaADIAQgASNxIZCgFjEgAq\
    AEIAagByAIABAIgBAJABAKIBABoAMgBCAEoAUgBYAGAAaACCAQCKAQCaAQDCAQAaEwoAGgAiACoAMgBKAFoA\
    cgCIAQAaACIA";
const REMOVED: &str = "\
    azhzAAoJCgJ2MRIDUG9kErABCmAKBXdlYi0wEgAaBHNob3AiACoDdS0xMgMxMjM4AEIASggIgOLPqgYQAFAA\
    WgoKA2FwcBIDd2ViWggKBHRpZXISAGIPCgFhEgp4eHh4eHh4eHh4igELCgFtEgAaADIAQgASNxIZCgFjEgAq\
    AEIAagByAIABAIgBAJABAKIBABoAMgBCAEoAUgBYAGAAaACCAQCKAQCaAQDCAQAaEwoAGgAiACoAMgBKAFoA\
    cgCIAQAaACIA";
const FINALIZED: &str = "\
    azhzAAoJCgJ2MRIDUG9kErUBCmUKBXdlYi0wEgAaBHNob3AiACoDdS0xMgMxMjM4AEIASggIgOLPqgYQAFAA\
    WgoKA2FwcBIDd2ViWggKBHRpZXISAGIPCgFhEgp4eHh4eHh4eHh4cgN4L3mKAQsKAW0SABoAMgBCABI3EhkK\
    AWMSACoAQgBqAHIAgAEAiAEAkAEAogEAGgAyAEIASgBSAFgAYABoAIIBAIoBAJoBAMIBABoTCgAaACIAKgAy\
    AEoAWgByAIgBABoAIgA=";
pub(crate) const PODLIST: &str = "\
    azhzAAoNCgJ2MRIHUG9kTGlzdBKyAQoJCgASAzQ1NhoAEqQBClQKBXdlYi0wEgAaBHNob3AiACoDdS0xMgMx\
    MjM4AEIAWgoKA2FwcBIDd2ViWggKBHRpZXISAGIPCgFhEgp4eHh4eHh4eHh4igELCgFtEgAaADIAQgASNxIZ\
    CgFjEgAqAEIAagByAIABAIgBAJABAKIBABoAMgBCAEoAUgBYAGAAaACCAQCKAQCaAQDCAQAaEwoAGgAiACoA\
    MgBKAFoAcgCIAQAaACIA";
pub(crate) const PARTIAL: &str = "\
    azhzAAowChNtZXRhLms4cy5pby92MWJldGExEhlQYXJ0aWFsT2JqZWN0TWV0YWRhdGFMaXN0EmMKVgpUCgV3\
    ZWItMBIAGgRzaG9wIgAqA3UtMTIDMTIzOABCAFoKCgNhcHASA3dlYloICgR0aWVyEgBiDwoBYRIKeHh4eHh4\
    eHh4eIoBCwoBbRIAGgAyAEIAEgkKABIDNzg5GgAaACIA";
const STATUS: &str = "\
    azhzAAoMCgJ2MRIGU3RhdHVzEjYKBgoAEgAaABIHU3VjY2VzcxoAIgAqHQoBeBIEYXBwcxoLZGVwbG95bWVu\
    dHMoADIDdS05MAAaACIA";
const FAILURE: &str = "\
    azhzAAoMCgJ2MRIGU3RhdHVzEiAKBgoAEgAaABIHRmFpbHVyZRoAIghOb3RGb3VuZDCUAxoAIgA=";
const HELD_NAMESPACE: &str = "\
    azhzAAoPCgJ2MRIJTmFtZXNwYWNlEpECCvEBCgRuc3BiEgAaACIAKiRjZTVlYzQ4MS1lNTVhLTRjNTQtOTc0\
    YS1mNTg3ZmMwYjFmOGUyAzMwNDgAQggI3bSF2AYQAEoICN60hdgGEABaIwoba3ViZXJuZXRlcy5pby9tZXRh\
    ZGF0YS5uYW1lEgRuc3BiigF8Cg1QeXRob24tdXJsbGliEgZVcGRhdGUaAnYxIggI3bSF2AYQADIIRmllbGRz\
    VjE6SQpHeyJmOm1ldGFkYXRhIjp7ImY6bGFiZWxzIjp7Ii4iOnt9LCJmOmt1YmVybmV0ZXMuaW8vbWV0YWRh\
    dGEubmFtZSI6e319fX1CABIMCgprdWJlcm5ldGVzGg0KC1Rlcm1pbmF0aW5nGgAiAA==";
const FINALIZED_NAMESPACE: &str = "\
    azhzAAoPCgJ2MRIJTmFtZXNwYWNlEoUCCvEBCgRuc3BiEgAaACIAKiRjZTVlYzQ4MS1lNTVhLTRjNTQtOTc0\
    YS1mNTg3ZmMwYjFmOGUyAzMwNDgAQggI3bSF2AYQAEoICN60hdgGEABaIwoba3ViZXJuZXRlcy5pby9tZXRh\
    ZGF0YS5uYW1lEgRuc3BiigF8Cg1QeXRob24tdXJsbGliEgZVcGRhdGUaAnYxIggI3bSF2AYQADIIRmllbGRz\
    VjE6SQpHeyJmOm1ldGFkYXRhIjp7ImY6bGFiZWxzIjp7Ii4iOnt9LCJmOmt1YmVybmV0ZXMuaW8vbWV0YWRh\
    dGEubmFtZSI6e319fX1CABIAGg0KC1Rlcm1pbmF0aW5nGgAiAA==";
