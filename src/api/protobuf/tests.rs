//! Envelopes written by the apiserver's own serializer, complete and damaged.

use base64::{Engine, prelude::BASE64_STANDARD};
use proptest::prelude::*;

use super::*;
use crate::api::learn::{Learned, Learner, Lifecycle};

fn bytes(encoded: &str) -> Vec<u8> {
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

const POD: &str = "\
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
const PODLIST: &str = "\
    azhzAAoNCgJ2MRIHUG9kTGlzdBKyAQoJCgASAzQ1NhoAEqQBClQKBXdlYi0wEgAaBHNob3AiACoDdS0xMgMx\
    MjM4AEIAWgoKA2FwcBIDd2ViWggKBHRpZXISAGIPCgFhEgp4eHh4eHh4eHh4igELCgFtEgAaADIAQgASNxIZ\
    CgFjEgAqAEIAagByAIABAIgBAJABAKIBABoAMgBCAEoAUgBYAGAAaACCAQCKAQCaAQDCAQAaEwoAGgAiACoA\
    MgBKAFoAcgCIAQAaACIA";
const PARTIAL: &str = "\
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
