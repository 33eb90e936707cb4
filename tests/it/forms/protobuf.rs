//! Protobuf from memory: the apiserver's own bytes, for lists, objects, watches and metadata, and
//! the replicas that hold them.

use std::time::Duration;

use listless::{
    api::{ObjectKey, Verb, form::Form},
    simulator::{Asked, Effect, Fault, Simulator},
};
use memchr::memmem;
use serde_json::json;
use tokio::time::timeout;

use crate::harness::{
    Answer, DelimitedWatch, PROTOBUF, Setup, TestClient, TestProxy, fractions, group_resource,
    pass, pod, settle, widget,
};

const PODS: &str = "/api/v1/pods";

/// The header of client-go's typed clients.
const TYPED: &str = "application/vnd.kubernetes.protobuf,application/json";

/// The header of controller-runtime's clients.
const WILD: &str = "application/vnd.kubernetes.protobuf, */*";

const LISTS: &[&str] = &[
    PODS,
    "/api/v1/pods?resourceVersion=0",
    "/api/v1/pods?limit=500&resourceVersion=0",
    "/api/v1/namespaces/a/pods",
    "/api/v1/namespaces/none/pods",
    "/api/v1/pods?labelSelector=app%3Dweb",
    "/api/v1/pods?labelSelector=app!%3Dweb",
    "/api/v1/pods?labelSelector=app+in+(web,db)",
    "/api/v1/namespaces/a/pods?labelSelector=!app",
    "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1",
    "/api/v1/pods?fieldSelector=spec.nodeName%3D",
    "/api/v1/pods?fieldSelector=spec.hostNetwork%3Dfalse",
    "/api/v1/pods?fieldSelector=status.phase!%3DPending&labelSelector=app",
    "/api/v1/pods?fieldSelector=metadata.namespace%3Da",
    "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dweb-0",
];

const OBJECTS: &[&str] = &["/api/v1/namespaces/a/pods/web-0", "/api/v1/namespaces/b/pods/none"];

const SELECTIONS: &[&str] = &[
    "/api/v1/pods?watch=1",
    "/api/v1/namespaces/a/pods?watch=1",
    "/api/v1/pods?watch=1&labelSelector=app%3Dweb",
    "/api/v1/pods?watch=1&labelSelector=app!%3Dweb",
    "/api/v1/namespaces/b/pods?watch=1&labelSelector=!app",
    "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1",
    "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3D",
    "/api/v1/namespaces/a/pods?watch=1&fieldSelector=metadata.name%3Dp-1",
];

const STARTS: &[&str] = &[
    "",
    "&allowWatchBookmarks=true",
    "&resourceVersion=0",
    "&resourceVersion={v}",
    "&resourceVersion={v}&allowWatchBookmarks=1",
    "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
];

fn metadata(kind: &str, version: &str) -> String {
    format!("{PROTOBUF};as={kind};g=meta.k8s.io;v={version}")
}

async fn warm(proxy: &TestProxy, accept: &str, path: &str) {
    let client = proxy.client().with("accept", accept);
    client.get(path).await;
    let second = client.get(path).await;
    assert!(second.is_hit(), "{accept} {path}: {}", second.cache_status());
    settle().await;
    proxy.upstream.forget();
}

async fn warmed() -> TestProxy {
    let proxy = Setup::default().in_memory();
    warm(&proxy, TYPED, PODS).await;
    proxy
}

/// Requires a response from memory that equals the apiserver's own.
async fn is_equal(proxy: &TestProxy, client: &TestClient, accept: &str, path: &str) -> Answer {
    let answer = client.with("accept", accept).get(path).await;
    assert!(answer.is_hit(), "{accept} {path}: {}", answer.cache_status());
    let straight = proxy.straight().with("accept", accept).get(path).await;
    assert_eq!(answer.status, straight.status, "{accept} {path}");
    assert_eq!(answer.header("content-type"), PROTOBUF, "{accept} {path}");
    assert_eq!(straight.header("content-type"), PROTOBUF, "{accept} {path}");
    assert!(answer.body == straight.body, "{accept} {path}: {}", answer.body.escape_ascii());
    answer
}

#[tokio::test(start_paused = true)]
async fn lists_objects_and_absences_equal_the_apiservers_own() {
    let proxy = warmed().await;
    for client in [proxy.client(), proxy.client().over_http2()] {
        for accept in [TYPED, WILD, PROTOBUF] {
            for path in LISTS.iter().chain(OBJECTS) {
                is_equal(&proxy, &client, accept, path).await;
            }
        }
    }
    let missing = is_equal(&proxy, &proxy.client(), TYPED, OBJECTS[1]).await;
    assert_eq!(missing.status, 404);
    assert_eq!(proxy.upstream.count(Verb::List, "pods"), 0);
}

#[tokio::test(start_paused = true)]
async fn metadata_equals_the_apiservers_own() {
    let proxy = warmed().await;
    for client in [proxy.client(), proxy.client().over_http2()] {
        for version in ["v1", "v1beta1"] {
            let list = metadata("PartialObjectMetadataList", version);
            for accept in [&list, &format!("{list},application/json")] {
                for path in LISTS {
                    is_equal(&proxy, &client, accept, path).await;
                }
            }
            let one = metadata("PartialObjectMetadata", version);
            is_equal(&proxy, &client, &one, OBJECTS[0]).await;
        }
    }
    // The whole objects are not confused with their metadata.
    is_equal(&proxy, &proxy.client(), TYPED, PODS).await;
    let one = metadata("PartialObjectMetadata", "v1");
    for (accept, path) in [(&one, OBJECTS[1]), (&one, PODS)] {
        let answer = proxy.client().with("accept", accept).get(path).await;
        assert_eq!(answer.detail(), "partial-object-metadata", "{path}");
    }
}

/// Widgets with every member that the encoding of metadata knows.
fn put_widgets(proxy: &TestProxy) {
    for number in 0..3 {
        let mut widget = widget("a", &format!("full-{number}"), "red");
        let metadata = &mut widget["metadata"];
        metadata["annotations"] = json!({"b": "ü \"<&>\"\n", "a": ""});
        metadata["finalizers"] = json!(["x.io/one", "x.io/two"]);
        metadata["ownerReferences"] = json!([
            {"apiVersion": "v1", "kind": "K", "name": "o", "uid": "u-1", "controller": true},
            {"apiVersion": "v1", "kind": "K", "name": "p", "uid": "u-2",
             "blockOwnerDeletion": false},
        ]);
        metadata["managedFields"] = json!([{
            "apiVersion": "x.io/v1", "fieldsType": "FieldsV1", "manager": "m",
            "fieldsV1": {"f:spec": {".": {}, "k:{\"port\":80}": {}}}, "operation": "Update",
            "subresource": "status", "time": "2026-01-01T00:00:00Z",
        }]);
        proxy.simulator.put(&group_resource("widgets.x.io"), widget).expect("a served resource");
    }
}

#[tokio::test(start_paused = true)]
async fn metadata_of_custom_resources_is_encoded_as_the_apiservers_own() {
    let proxy = Setup::default().in_memory();
    put_widgets(&proxy);
    let all = "/apis/x.io/v1/widgets";
    let list = metadata("PartialObjectMetadataList", "v1");
    warm(&proxy, &list, all).await;
    assert_eq!(proxy.replicas().iter().map(|it| it.form).collect::<Vec<_>>(), [Form::Json]);
    for client in [proxy.client(), proxy.client().over_http2()] {
        for version in ["v1", "v1beta1"] {
            let list = metadata("PartialObjectMetadataList", version);
            let client_go = format!("{list},{}", list.replace(PROTOBUF, "application/json"));
            for accept in [&list, &client_go] {
                for query in ["", "?labelSelector=colour%3Dred", "?resourceVersion=0"] {
                    is_equal(&proxy, &client, accept, &format!("{all}{query}")).await;
                }
                is_equal(&proxy, &client, accept, "/apis/x.io/v1/namespaces/none/widgets").await;
            }
            let one = metadata("PartialObjectMetadata", version);
            is_equal(&proxy, &client, &one, "/apis/x.io/v1/namespaces/a/widgets/full-1").await;
        }
    }
    // The body in JSON is another one.
    let json = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let answer = proxy.client().with("accept", json).get(all).await;
    assert_eq!((answer.is_hit(), answer.header("content-type")), (true, "application/json"));
    assert_eq!(proxy.upstream.count(Verb::List, "widgets"), 0);
}

/// Errors have protobuf, also where objects have not.
#[tokio::test(start_paused = true)]
async fn only_the_apiserver_says_in_protobuf_that_a_custom_object_is_absent() {
    let proxy = Setup::default().in_memory();
    put_widgets(&proxy);
    proxy.warm("/apis/x.io/v1/widgets").await;
    let path = |name: &str| format!("/apis/x.io/v1/namespaces/a/widgets/{name}");
    for accept in [TYPED, WILD] {
        let client = proxy.client().with("accept", accept);
        assert!(client.get(&path("full-1")).await.is_hit());
        let absent = client.get(&path("none")).await;
        assert!(absent.status == 404 && !absent.is_hit(), "{}", absent.summary());
    }
    let absent = proxy.client().get(&path("none")).await;
    assert!(absent.status == 404 && absent.is_hit(), "{}", absent.summary());
}

#[tokio::test(start_paused = true)]
async fn watches_of_custom_metadata_get_the_apiservers_events() {
    let proxy = Setup::default().in_memory();
    let all = "/apis/x.io/v1/widgets";
    warm(&proxy, &metadata("PartialObjectMetadataList", "v1"), all).await;
    let version = proxy.simulator.revision();
    let mut pairs = Vec::new();
    for start in STARTS {
        for (selector, version_of) in [("", "v1"), ("&labelSelector=colour%3Dred", "v1beta1")] {
            let path =
                format!("{all}?watch=1{start}{selector}").replace("{v}", &version.to_string());
            let accept = metadata("PartialObjectMetadata", version_of);
            let watch = DelimitedWatch::open(&proxy.client().with("accept", &accept), &path).await;
            let status = watch.head.headers["cache-status"].to_str().expect("a text");
            assert!(status.starts_with("listless; hit;"), "{path}: {status}");
            let straight = proxy.straight().with("accept", &accept);
            let straight = DelimitedWatch::open(&straight, &path).await;
            assert_eq!(watch.head.headers["content-type"], straight.head.headers["content-type"]);
            pairs.push((path, watch, straight));
        }
    }
    put_widgets(&proxy);
    let widgets = group_resource("widgets.x.io");
    for colour in ["blue", "red"] {
        proxy.simulator.put(&widgets, widget("a", "w1", colour)).expect("a served resource");
    }
    let _ = proxy.simulator.remove(&widgets, &ObjectKey::new(Some("a"), "full-2"));
    settle().await;
    let told = equal_events(&mut pairs).await;
    assert!(told > 70, "{told} events are too few");
    assert_eq!(proxy.upstream.count(Verb::Watch, "widgets"), 0);
}

/// Every event that has arrived by now. A bookmark may have any version that is new enough; until
/// the apiserver has sent one, it has no zero values.
async fn events(watch: &mut DelimitedWatch) -> Vec<String> {
    let mut events = Vec::new();
    while let Ok(event) = timeout(Duration::from_millis(50), watch.next()).await {
        let text = event.escape_ascii().to_string();
        let ends_start = text.contains("initial-events-end");
        let is_bookmark = text.contains("BOOKMARK");
        events.push(if is_bookmark { format!("bookmark {ends_start}") } else { text });
    }
    events
}

/// Requires the events of each watch to be those of the straight one; returns their number.
async fn equal_events(pairs: &mut [(String, DelimitedWatch, DelimitedWatch)]) -> usize {
    let mut told = 0;
    for (path, watch, straight) in pairs {
        let (found, expected) = (events(watch).await, events(straight).await);
        assert_eq!(found, expected, "{path}");
        told += found.len();
    }
    told
}

/// One random change: pods are created, change fields that selectors use, and are deleted.
fn churn(simulator: &Simulator, dice: &dyn Fn() -> f64) {
    let pick = |sides: f64| (dice() * sides) as usize;
    let (namespace, name) = (["a", "b"][pick(2.0)], format!("p-{}", pick(6.0)));
    let pods = group_resource("pods");
    if pick(5.0) == 0 {
        // Deleting a missing object fails, and that is fine.
        let _ = simulator.remove(&pods, &ObjectKey::new(Some(namespace), &name));
        return;
    }
    let (app, node) = (["web", "db", ""][pick(3.0)], ["n1", "n2", ""][pick(3.0)]);
    let _ = simulator.put(&pods, pod(namespace, &name, &[("app", app)], node));
}

#[tokio::test(start_paused = true)]
async fn every_selection_from_every_start_gets_the_apiservers_events() {
    let accepts = [
        TYPED.to_owned(),
        format!("{PROTOBUF};stream=watch"),
        metadata("PartialObjectMetadata", "v1"),
        metadata("PartialObjectMetadata", "v1beta1"),
    ];
    for seed in 1..=2 {
        let proxy = warmed().await;
        let (dice, client) = (fractions(seed), proxy.client());
        let since = proxy.simulator.revision();
        let mut pairs = Vec::new();
        for round in 0..STARTS.len() {
            let now = proxy.simulator.revision();
            for (index, selection) in SELECTIONS.iter().enumerate() {
                let start = STARTS[(index + round) % STARTS.len()];
                let version = if round % 2 == 0 { since } else { now };
                let path = format!("{selection}{start}").replace("{v}", &version.to_string());
                let accept = &accepts[(index + round) % accepts.len()];
                let client = client.with("accept", accept);
                let client = if index % 2 == 0 { client } else { client.over_http2() };
                let watch = DelimitedWatch::open(&client, &path).await;
                let status = watch.head.headers["cache-status"].to_str().expect("a text");
                assert!(status.starts_with("listless; hit;"), "{path}: {status}");
                let media = format!("{PROTOBUF};stream=watch");
                assert_eq!(watch.head.headers["content-type"], media);
                // The simulator does not know the parameter.
                let accept = accept.replace(";stream=watch", "");
                let straight = proxy.straight().with("accept", &accept);
                let straight = DelimitedWatch::open(&straight, &path).await;
                assert_eq!(straight.head.headers["content-type"], media);
                pairs.push((format!("{path} as {accept}"), watch, straight));
            }
            (0..40).for_each(|_| churn(&proxy.simulator, &*dice));
            settle().await;
        }
        let told = equal_events(&mut pairs).await;
        assert!(told > 1000, "{told} events are too few");
        assert_eq!(proxy.upstream.count(Verb::Watch, "pods"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn bookmarks_have_the_form_of_the_apiservers_own() {
    let proxy = warmed().await;
    let version = proxy.simulator.revision();
    let _ = proxy.simulator.put(&group_resource("pods"), pod("a", "late", &[], "n1"));
    // The replica's own watch has had a bookmark by then.
    pass(Duration::from_secs(130)).await;
    let start = format!("watch=1&allowWatchBookmarks=true&resourceVersion={version}");
    for accept in [TYPED, &metadata("PartialObjectMetadata", "v1")] {
        let path = format!("{PODS}?{start}&timeoutSeconds=30");
        let mut watch = DelimitedWatch::open(&proxy.client().with("accept", accept), &path).await;
        let mut straight =
            DelimitedWatch::open(&proxy.straight().with("accept", accept), &path).await;
        for expected in ["ADDED", "BOOKMARK"] {
            let (found, straight) = (watch.next().await, straight.next().await);
            assert!(straight.windows(expected.len()).any(|part| part == expected.as_bytes()));
            assert_eq!(found.escape_ascii().to_string(), straight.escape_ascii().to_string());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn types_without_protobuf_fall_to_the_next_accepted_type() {
    let proxy = Setup::default().in_memory();
    let widgets = "/apis/x.io/v1/namespaces/a/widgets";
    proxy.warm(widgets).await;
    for (accept, reason) in [
        (TYPED, ""),
        (WILD, ""),
        ("application/vnd.kubernetes.protobuf,application/yaml,application/json", "protobuf"),
        (PROTOBUF, "protobuf"),
    ] {
        let answer = proxy.client().with("accept", accept).get(widgets).await;
        if reason.is_empty() {
            let straight = proxy.straight().with("accept", accept).get(widgets).await;
            assert!(answer.is_hit(), "{accept}: {}", answer.cache_status());
            assert_eq!(answer.text(), straight.text());
            assert_eq!(answer.header("content-type"), "application/json");
        } else {
            assert_eq!(answer.detail(), reason, "{accept}");
        }
    }
    let refused = proxy.client().with("accept", PROTOBUF).get(widgets).await;
    assert_eq!(refused.status, 406);
}

#[tokio::test(start_paused = true)]
async fn one_query_read_in_two_forms_has_two_replicas_until_one_is_idle() {
    let proxy = warmed().await;
    proxy.warm(PODS).await;
    let forms = |proxy: &TestProxy| {
        let mut forms: Vec<_> = proxy.replicas().iter().map(|replica| replica.form).collect();
        forms.sort();
        forms
    };
    assert_eq!(forms(&proxy), [Form::Json, Form::Protobuf]);
    is_equal(&proxy, &proxy.client(), TYPED, PODS).await;
    let json = proxy.client().get(PODS).await;
    assert_eq!((json.is_hit(), json.header("content-type")), (true, "application/json"));
    let bytes = |form| {
        let replicas = proxy.replicas();
        replicas.iter().find(|replica| replica.form == form).expect("a replica").bytes
    };
    assert!(bytes(Form::Protobuf) <= bytes(Form::Json));
    for _ in 0..60 {
        pass(Duration::from_secs(20)).await;
        proxy.client().with("accept", TYPED).get(PODS).await;
    }
    assert_eq!(forms(&proxy), [Form::Protobuf]);
    is_equal(&proxy, &proxy.client(), TYPED, PODS).await;
}

/// The replica of the other form has missed the change: its watch stalls.
#[tokio::test(start_paused = true)]
async fn a_version_shown_in_one_form_binds_the_other() {
    const JSON: &str = "application/json";
    for (first, other) in [(JSON, TYPED), (TYPED, JSON)] {
        let proxy = Setup::default().in_memory();
        let of_watches = |asked: &Asked| asked.verb == Verb::Watch && asked.resource == "pods";
        proxy.simulator.inject(Fault::always(Effect::StallAfter(0), of_watches));
        warm(&proxy, other, PODS).await;
        proxy.simulator.clear_faults();
        warm(&proxy, first, PODS).await;
        let _ = proxy.simulator.put(&group_resource("pods"), pod("a", "late", &[], "n1"));
        settle().await;
        let has = |answer: &Answer| memmem::find(&answer.body, b"late").is_some();
        let client = proxy.client();
        let (first, other) = (client.with("accept", first), client.with("accept", other));
        assert!(!has(&other.get(PODS).await), "nothing newer was shown");
        let shown = first.get(PODS).await;
        assert!(shown.is_hit() && has(&shown), "{}", shown.summary());
        let after = other.get(PODS).await;
        assert!(has(&after), "{}", after.summary());
    }
}
