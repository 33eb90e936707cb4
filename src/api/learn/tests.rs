//! Responses in JSON as the apiserver writes them: in chunks, compressed, truncated.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use http::HeaderValue;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const JSON: Option<&str> = Some("application/json");

fn learn(bytes: &[u8], piece: usize) -> Learned {
    let mut learner = Learner::new(JSON, None);
    bytes.chunks(piece).for_each(|piece| learner.push(piece));
    learner.finish()
}

fn nothing(reason: Unlearned) -> Learned {
    Learned::Nothing(reason)
}

fn object(value: &Value) -> LearnedObject {
    match learn(value.to_string().as_bytes(), usize::MAX) {
        Learned::Object(object) => object,
        other => panic!("{value}: {other:?}"),
    }
}

fn pod() -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "name": "web-0", "generateName": "web-", "namespace": "shop", "uid": "u-1",
            "resourceVersion": "123", "generation": 4, "creationTimestamp": null,
            "labels": {"app": "web", "tier": "", "name": "no"},
            "annotations": {"note": "a \"quoted\" \\ }]", "uid": "no", "labels": "no"},
            "ownerReferences": [{"kind": "StatefulSet", "name": "no", "uid": "no"}],
            "managedFields": [{"fieldsV1": {"f:metadata": {"f:labels": {".": {}}}}}],
        },
        "spec": {"name": "no", "metadata": {"name": "no"}, "flags": [true, false, -1.5e3, null]},
        "status": {"status": "no", "kind": "no", "details": {"uid": "no"}},
    })
}

#[test]
fn an_objects_metadata_is_learned() {
    let learned = object(&pod());
    assert_eq!((&*learned.kind, &*learned.name, &*learned.uid), ("Pod", "web-0", "u-1"));
    assert_eq!((learned.key().as_str(), learned.version.as_str()), ("shop/web-0", "123"));
    assert_eq!(learned.lifecycle, Lifecycle::Live);
    assert_eq!(learned.label("app"), Some("web"));
    assert_eq!(learned.label("tier"), Some(""));
    assert_eq!(learned.label("note"), None);
    assert_eq!(learned.labels.len(), 3);
}

#[test]
fn a_cluster_scoped_object_has_no_namespace() {
    let node = json!({"kind": "Node", "metadata": {"name": "n", "resourceVersion": "1"}});
    let learned = object(&node);
    assert_eq!((learned.namespace.as_deref(), learned.key().as_str()), (None, "n"));
    assert_eq!(learned.labels, []);
}

#[test]
fn a_removed_object_is_distinguished_from_a_terminating_one() {
    let table = [
        (json!({}), Lifecycle::Live),
        (json!({"deletionTimestamp": null}), Lifecycle::Live),
        (json!({"finalizers": ["x/y"]}), Lifecycle::Live),
        (json!({"deletionTimestamp": "t"}), Lifecycle::Removed),
        (json!({"deletionTimestamp": "t", "finalizers": []}), Lifecycle::Removed),
        (json!({"deletionTimestamp": "t", "deletionGracePeriodSeconds": 0}), Lifecycle::Removed),
        (json!({"deletionTimestamp": "t", "finalizers": ["x/y"]}), Lifecycle::Terminating),
        (
            json!({"deletionTimestamp": "t", "deletionGracePeriodSeconds": 30}),
            Lifecycle::Terminating,
        ),
    ];
    for (extra, expected) in table {
        let mut pod = pod();
        for (key, value) in extra.as_object().expect("an object") {
            pod["metadata"][key] = value.clone();
        }
        for text in [format!("{pod}"), format!("{pod:#}")] {
            match learn(text.as_bytes(), 5) {
                Learned::Object(object) => assert_eq!(object.lifecycle, expected, "{extra}"),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn the_finalizers_in_its_spec_hold_a_namespace() {
    let namespace = |finalizers: &[&str]| {
        object(&json!({
            "kind": "Namespace", "apiVersion": "v1",
            "metadata": {"name": "n", "resourceVersion": "1", "deletionTimestamp": "t"},
            "spec": {"finalizers": finalizers}, "status": {"phase": "Terminating"},
        }))
    };
    assert_eq!(namespace(&["kubernetes"]).lifecycle, Lifecycle::Terminating);
    assert_eq!(namespace(&[]).lifecycle, Lifecycle::Removed);
    let mut pod = pod();
    pod["metadata"]["deletionTimestamp"] = Value::from("t");
    pod["spec"]["finalizers"] = json!(["no"]);
    assert_eq!(object(&pod).lifecycle, Lifecycle::Removed);
}

#[test]
fn a_status_names_its_object() {
    let success = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": "x", "group": "apps", "kind": "deployments", "uid": "u-9"},
    });
    let (details_uid, name) = (Some("u-9".to_owned()), Some("x".to_owned()));
    let expected = Learned::Status { success: true, details_uid, name };
    assert_eq!(learn(success.to_string().as_bytes(), 3), expected);
    let failure = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409});
    let expected = Learned::Status { success: false, details_uid: None, name: None };
    assert_eq!(learn(failure.to_string().as_bytes(), 3), expected);
    let odd = json!({"kind": "Status", "apiVersion": "v1", "status": "Maybe"});
    assert_eq!(learn(odd.to_string().as_bytes(), 3), nothing(Unlearned::NotAnObject));
}

#[test]
fn a_list_teaches_its_own_version() {
    let list = json!({
        "apiVersion": "v1", "items": [pod()], "kind": "PodList",
        "metadata": {"continue": "", "resourceVersion": "456"},
    });
    let version = ResourceVersion::parse("456").expect("a version");
    assert_eq!(
        learn(list.to_string().as_bytes(), 3),
        Learned::List { version, next: None, whole: false }
    );
}

#[test]
fn responses_without_an_object_teach_nothing() {
    let table = [
        (json!({}), Unlearned::NotAnObject),
        (json!({"metadata": {"name": "x", "resourceVersion": "1"}}), Unlearned::NotAnObject),
        (json!({"kind": "TokenReview", "metadata": {}, "status": {}}), Unlearned::NotAnObject),
        (json!({"kind": "Table", "metadata": {"resourceVersion": "1"}}), Unlearned::NotAnObject),
        (json!({"kind": "TokenRequest", "metadata": {"name": "x"}}), Unlearned::NoVersion),
        (
            json!({"kind": "X", "metadata": {"name": "x", "resourceVersion": "0"}}),
            Unlearned::NoVersion,
        ),
        (json!({"kind": "PodList", "metadata": {}}), Unlearned::NoVersion),
        (json!({"kind": 1, "metadata": []}), Unlearned::NotAnObject),
    ];
    for (value, reason) in table {
        assert_eq!(learn(value.to_string().as_bytes(), 2), nothing(reason), "{value}");
    }
}

#[test]
fn a_body_that_is_not_an_object_is_malformed() {
    let table = [
        "[]",
        "null",
        "\"x\"",
        "x",
        "{]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{}{}",
        "{} x",
        "{\"a\":1 2}",
        "{\"kind\":\"\\x\"}",
        "{\"kind\" \"Pod\"}",
        "{\"kind\":\"Pod\"]",
    ];
    for text in table {
        assert_eq!(learn(text.as_bytes(), 1), nothing(Unlearned::Malformed), "{text}");
    }
    assert_eq!(learn(b"{\"kind\":\"\xff\"}", 1), nothing(Unlearned::Malformed));
}

#[test]
fn a_truncated_body_teaches_nothing() {
    let text = pod().to_string();
    for length in 0..text.len() {
        let learned = learn(&text.as_bytes()[..length], usize::MAX);
        assert_eq!(learned, nothing(Unlearned::Truncated), "{length}");
    }
}

#[test]
fn whitespace_after_the_object_is_ignored() {
    let text = format!(" \n{:#}\r\n\t ", pod());
    assert!(matches!(learn(text.as_bytes(), 1), Learned::Object(_)));
}

#[test]
fn escapes_are_decoded() {
    let text = r#"{"kind":"Pod","metadata":{"n\u0061me":"a\u003cb\ud83d\ude00\"\/","resourceVersion":"1"}}"#;
    for piece in 1..text.len() {
        match learn(text.as_bytes(), piece) {
            Learned::Object(object) => assert_eq!(object.name, "a<b😀\"/"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_large_object_is_learned_and_an_oversized_name_is_rejected() {
    let mut large = pod();
    large["spec"]["blob"] = Value::from("x\\\"{".repeat(10_000) + &"x".repeat(3_000_000));
    assert_eq!(object(&large), object(&pod()));
    let mut absurd = pod();
    absurd["metadata"]["name"] = Value::from("n".repeat(1025));
    assert_eq!(learn(absurd.to_string().as_bytes(), 10), nothing(Unlearned::TooLarge));
    let labels = (0..300).map(|n| (format!("{n}"), Value::from("v".repeat(1000)))).collect();
    absurd = pod();
    absurd["metadata"]["labels"] = Value::Object(labels);
    assert_eq!(learn(absurd.to_string().as_bytes(), 99), nothing(Unlearned::TooLarge));
}

#[test]
fn compressed_responses_are_parsed() {
    let compress = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).expect("in memory");
        encoder.finish().expect("in memory")
    };
    let learn = |bytes: &[u8], piece: usize| {
        let mut learner = Learner::new(JSON, Some("gzip"));
        bytes.chunks(piece).for_each(|piece| learner.push(piece));
        learner.finish()
    };
    let bytes = compress(pod().to_string().as_bytes());
    for piece in 1..bytes.len() + 1 {
        assert!(matches!(learn(&bytes, piece), Learned::Object(_)), "{piece}");
    }
    // The client has the whole object before the checksum, which may come in a chunk of its own.
    let checksum = bytes.len() - 8;
    assert!(matches!(learn(&bytes[..checksum], 9), Learned::Object(_)));
    for length in 0..checksum - 8 {
        assert!(matches!(learn(&bytes[..length], 9), Learned::Nothing(_)), "{length}");
    }
    assert_eq!(learn(b"not gzip at all", 4), nothing(Unlearned::Malformed));
    assert!(matches!(learn(&[&bytes[..], b"x"].concat(), 9), Learned::Nothing(_)));
}

#[test]
fn every_item_of_a_compressed_list_is_available_before_its_end() {
    let item = |number: u32| {
        json!({"metadata": {"name": format!("web-{number}"), "namespace": "shop",
                            "resourceVersion": number.to_string(), "uid": "u"}})
    };
    let list = json!({
        "kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"},
        "items": (1..400).map(item).collect::<Vec<_>>(),
    });
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(list.to_string().as_bytes()).expect("into memory");
    let bytes = encoder.finish().expect("into memory");
    for piece in [7, 1000, usize::MAX] {
        let mut learner = Learner::new(JSON, Some("gzip")).with_items();
        let mut taken = 0;
        for bytes in bytes.chunks(piece) {
            learner.push(bytes);
            taken += learner.take_items().len();
        }
        assert_eq!(taken, 399, "in pieces of {piece}");
        assert!(matches!(learner.finish(), Learned::List { whole: true, .. }));
    }
}

#[test]
fn other_encodings_teach_nothing() {
    let learn = |media: Option<&str>, encoding: Option<&str>| {
        let mut learner = Learner::new(media, encoding);
        learner.push(pod().to_string().as_bytes());
        learner.finish()
    };
    for media in [None, Some(""), Some("text/plain"), Some("application/yaml")] {
        assert_eq!(learn(media, None), nothing(Unlearned::UnknownMedia), "{media:?}");
    }
    assert_eq!(learn(JSON, Some("br")), nothing(Unlearned::UnknownEncoding));
    assert!(matches!(learn(Some("application/json; charset=utf-8"), None), Learned::Object(_)));
}

#[test]
fn the_headers_choose_the_reader() {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut learner = Learner::of(&headers);
    learner.push(pod().to_string().as_bytes());
    assert!(matches!(learner.finish(), Learned::Object(_)));
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_bytes(b"\xff").expect("a value"));
    assert_eq!(Learner::of(&headers).finish(), nothing(Unlearned::UnknownEncoding));
}

/// Returns any JSON value, with keys that resemble those of the facts.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z\"\\\\{}\\[\\]é]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key =
            prop::sample::select(vec!["name", "metadata", "labels", "kind", "x\"y", "status"]);
        let object = prop::collection::btree_map(key, inner.clone(), 0..4);
        let object = object.prop_map(|map| {
            Value::Object(map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
        });
        prop_oneof![prop::collection::vec(inner, 0..4).prop_map(Value::Array), object]
    })
}

proptest! {
    #[test]
    fn the_metadata_is_found_in_any_object(
        (annotations, spec, status, data) in (any_value(), any_value(), any_value(), any_value()),
        (indented, piece) in (any::<bool>(), 1usize..50),
    ) {
        let mut value = pod();
        value["metadata"]["annotations"] = annotations;
        value["spec"] = spec;
        value["data"] = data;
        value["status"] = status;
        let text = if indented { format!("{value:#}") } else { value.to_string() };
        prop_assert_eq!(learn(text.as_bytes(), piece), Learned::Object(object(&pod())));
    }

    #[test]
    fn any_bytes_have_the_same_result_in_any_chunks(
        text in "[\\[\\]{}\":,a-z0-9\\\\ ]{0,80}",
        piece in 1usize..20,
    ) {
        let text = format!("{{\"kind\":\"Pod\",{text}");
        prop_assert_eq!(learn(text.as_bytes(), piece), learn(text.as_bytes(), usize::MAX));
    }
}
