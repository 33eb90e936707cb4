//! Writes, rule by rule.

use http::Method;

use super::Bench;
use crate::simulator::{Features, Settings};

const PODS: &str = "/api/v1/namespaces/d/pods";
const WIDGET: &str =
    r#"{"kind":"Widget","apiVersion":"x.io/v1","metadata":{"name":"w"},"spec":{"a":1}}"#;
const MAPS: &str = "/api/v1/namespaces/d/configmaps";

#[tokio::test]
async fn a_created_object_gets_uid_time_and_version() {
    let bench = Bench::new();
    let created = bench
        .post(PODS, r#"{"metadata":{"name":"p","uid":"mine"},"status":{"phase":"Running"}}"#)
        .await;
    assert_eq!(created.code, 201);
    assert_eq!(created.version(), 1001);
    assert_eq!(created.text_at(&["metadata", "uid"]).len(), 36);
    assert_eq!(created.text_at(&["status", "phase"]), "Pending", "status is not the client's");
    assert_eq!(created.body, bench.get(&format!("{PODS}/p")).await.body);
}

#[tokio::test]
async fn generated_names_repeat_for_a_seed_and_taken_names_conflict() {
    let names = |seed| async move {
        let bench = Bench::with(Settings { seed, ..Settings::default() });
        let created = bench.post(MAPS, r#"{"metadata":{"generateName":"c-"}}"#).await;
        created.text_at(&["metadata", "name"])
    };
    let name = names(3).await;
    assert_eq!((name.len(), name.starts_with("c-")), (7, true), "{name}");
    assert_eq!(name, names(3).await);
    let bench = Bench::new();
    bench.post(MAPS, r#"{"metadata":{"name":"c"}}"#).await;
    let again = bench.post(MAPS, r#"{"metadata":{"name":"c"}}"#).await;
    assert_eq!(again.code, 409);
    assert_eq!(
        again.body,
        concat!(
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
            r#""message":"configmaps \"c\" already exists","reason":"AlreadyExists","#,
            r#""details":{"name":"c","kind":"configmaps"},"code":409}"#,
            "\n"
        )
    );
}

#[tokio::test]
async fn bodies_that_do_not_fit_the_url_are_refused() {
    let bench = Bench::new();
    for (body, code) in [
        ("nonsense", 400),
        (r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"c"}}"#, 400),
        (r#"{"metadata":{"name":"c","namespace":"other"}}"#, 400),
        (r#"{"metadata":{}}"#, 422),
        (r#"{"metadata":{"name":"c","resourceVersion":"5"}}"#, 500),
    ] {
        assert_eq!(bench.post(MAPS, body).await.code, code, "{body}");
    }
    assert_eq!(bench.simulator.revision(), 1000);
}

#[tokio::test]
async fn only_one_namespace_is_written_at_a_time() {
    let bench = Bench::new();
    let body = r#"{"metadata":{"name":"c"}}"#;
    assert_eq!(bench.post("/api/v1/configmaps", body).await.code, 405);
    assert_eq!(bench.send(Method::DELETE, "/api/v1/configmaps", "").await.code, 405);
    assert_eq!(bench.post("/api/v1/namespaces/d/nodes", body).await.code, 404);
    assert_eq!(bench.post("/api/v1/nodes", body).await.code, 201);
}

#[tokio::test]
async fn an_update_needs_the_current_version_and_a_no_op_keeps_it() {
    let bench = Bench::new();
    let created = bench.post(MAPS, r#"{"metadata":{"name":"c"},"data":{"a":"1"}}"#).await;
    let path = format!("{MAPS}/c");
    let same = bench.send(Method::PUT, &path, &created.body).await;
    assert_eq!((same.code, same.body.as_str()), (200, created.body.as_str()));
    assert_eq!(bench.simulator.revision(), 1001);
    let changed = created.body.replace("\"1\"", "\"2\"");
    assert_eq!(bench.send(Method::PUT, &path, &changed).await.version(), 1002);
    let stale = bench.send(Method::PUT, &path, &changed.replace("\"2\"", "\"3\"")).await;
    assert_eq!(stale.code, 409);
    assert_eq!(
        stale.text_at(&["message"]),
        "Operation cannot be fulfilled on configmaps \"c\": the object has been modified; please \
         apply your changes to the latest version and try again"
    );
    let unconditional =
        bench.send(Method::PUT, &path, r#"{"metadata":{"name":"c"},"data":{"a":"4"}}"#).await;
    assert_eq!(unconditional.version(), 1003);
}

#[tokio::test]
async fn custom_objects_are_updated_only_with_a_version_and_count_generations() {
    let bench = Bench::new();
    let path = "/apis/x.io/v1/namespaces/d/widgets";
    let created = bench.post(path, WIDGET).await;
    assert!(created.body.contains(r#""generation":1"#), "{}", created.body);
    let path = format!("{path}/w");
    let bare = bench.send(Method::PUT, &path, WIDGET).await;
    assert_eq!(bare.code, 422);
    assert!(bare.body.contains("metadata.resourceVersion: Invalid value: 0: must be specified"));
    let merge = "application/merge-patch+json";
    let labelled = bench.patch(&path, merge, r#"{"metadata":{"labels":{"l":"1"}}}"#).await;
    assert!(labelled.body.contains(r#""generation":1"#));
    let specified = bench.patch(&path, merge, r#"{"spec":{"a":2}}"#).await;
    assert!(specified.body.contains(r#""generation":2"#));
}

#[tokio::test]
async fn status_and_the_rest_are_written_separately() {
    let bench = Bench::new();
    bench.post(PODS, r#"{"metadata":{"name":"p"},"spec":{"nodeName":"n"}}"#).await;
    let merge = "application/merge-patch+json";
    let both = r#"{"spec":{"nodeName":"m"},"status":{"phase":"Running"}}"#;
    let status = bench.patch(&format!("{PODS}/p/status"), merge, both).await;
    assert_eq!(status.text_at(&["spec", "nodeName"]), "n");
    assert_eq!(status.text_at(&["status", "phase"]), "Running");
    let main = bench
        .patch(&format!("{PODS}/p"), merge, r#"{"spec":{"nodeName":"o"},"status":null}"#)
        .await;
    assert_eq!(main.text_at(&["spec", "nodeName"]), "o");
    assert_eq!(main.text_at(&["status", "phase"]), "Running");
}

#[tokio::test]
async fn each_patch_format_is_applied() {
    let bench = Bench::new();
    let path = format!("{MAPS}/c");
    for (content_type, patch, code, expected) in [
        ("application/apply-patch+yaml", "data: {a: '1', b: '2'}", 201, r#"{"a":"1","b":"2"}"#),
        (
            "application/merge-patch+json",
            r#"{"data":{"a":null,"c":"3"}}"#,
            200,
            r#"{"b":"2","c":"3"}"#,
        ),
        (
            "application/strategic-merge-patch+json",
            r#"{"data":{"b":"4"}}"#,
            200,
            r#"{"b":"4","c":"3"}"#,
        ),
        (
            "application/json-patch+json",
            r#"[{"op":"test","path":"/data/b","value":"4"},{"op":"move","from":"/data/b","path":"/data/d"},
                {"op":"add","path":"/data/x~1y","value":"5"},{"op":"remove","path":"/data/c"}]"#,
            200,
            r#"{"d":"4","x/y":"5"}"#,
        ),
    ] {
        let patched = bench.patch(&path, content_type, patch).await;
        assert_eq!(patched.code, code, "{content_type}: {}", patched.body);
        assert!(patched.body.contains(&format!(r#""data":{expected}"#)), "{}", patched.body);
    }
    let failed = r#"[{"op":"test","path":"/data/d","value":"no"}]"#;
    assert_eq!(bench.patch(&path, "application/json-patch+json", failed).await.code, 422);
    assert_eq!(bench.patch(&path, "text/plain", "{}").await.code, 415);
    let stale = r#"{"metadata":{"resourceVersion":"1"},"data":{"z":"1"}}"#;
    assert_eq!(bench.patch(&path, "application/merge-patch+json", stale).await.code, 409);
}

#[tokio::test]
async fn a_deletion_returns_the_object_or_a_status() {
    let bench = Bench::new();
    let created = bench.post(MAPS, r#"{"metadata":{"name":"c"}}"#).await;
    let deleted = bench.send(Method::DELETE, &format!("{MAPS}/c"), "").await;
    let expected = format!(
        "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Success\",\
         \"details\":{{\"name\":\"c\",\"kind\":\"configmaps\",\"uid\":\"{}\"}}}}\n",
        created.text_at(&["metadata", "uid"])
    );
    assert_eq!((deleted.code, deleted.body), (200, expected));
    bench.post(PODS, r#"{"metadata":{"name":"p"}}"#).await;
    let pod = bench.send(Method::DELETE, &format!("{PODS}/p"), "").await;
    assert_eq!(pod.text_at(&["kind"]), "Pod");
    assert_eq!(pod.version(), bench.simulator.revision());
    assert_eq!(bench.send(Method::DELETE, &format!("{PODS}/p"), "").await.code, 404);
}

#[tokio::test]
async fn preconditions_of_a_deletion_are_checked() {
    let bench = Bench::new();
    let created = bench.post(MAPS, r#"{"metadata":{"name":"c"}}"#).await;
    let path = format!("{MAPS}/c");
    let delete = |body: String| {
        let (bench, path) = (&bench, &path);
        async move { bench.send(Method::DELETE, path, &body).await.code }
    };
    assert_eq!(delete(r#"{"preconditions":{"uid":"other"}}"#.to_owned()).await, 409);
    assert_eq!(delete(r#"{"preconditions":{"resourceVersion":"1"}}"#.to_owned()).await, 409);
    let uid = created.text_at(&["metadata", "uid"]);
    let right = format!(r#"{{"preconditions":{{"uid":"{uid}","resourceVersion":"1001"}}}}"#);
    assert_eq!(delete(right).await, 200);
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_is_removed() {
    let bench = Bench::new();
    bench.post(MAPS, r#"{"metadata":{"name":"c","finalizers":["x.io/hold"]}}"#).await;
    let path = format!("{MAPS}/c");
    let marked = bench.send(Method::DELETE, &path, "").await;
    assert_eq!((marked.code, marked.version()), (200, 1002));
    assert!(!marked.text_at(&["metadata", "deletionTimestamp"]).is_empty());
    let again = bench.send(Method::DELETE, &path, "").await;
    assert_eq!((again.code, again.version()), (200, 1002));
    let freed = bench
        .patch(&path, "application/merge-patch+json", r#"{"metadata":{"finalizers":null}}"#)
        .await;
    assert_eq!((freed.code, freed.version()), (200, 1002), "the old version, though it is gone");
    assert_eq!(bench.simulator.revision(), 1003);
    assert_eq!(bench.get(&path).await.code, 404);
}

#[tokio::test]
async fn scheduled_pods_are_marked_first_if_deletion_is_graceful() {
    let features = Features { graceful_pods: true, ..Features::default() };
    let bench = Bench::with(Settings { features, ..Settings::default() });
    bench.post(PODS, r#"{"metadata":{"name":"p"},"spec":{"nodeName":"n"}}"#).await;
    let path = format!("{PODS}/p");
    let marked = bench.send(Method::DELETE, &path, "").await;
    assert!(
        marked.body.contains(r#""deletionTimestamp":"2026-01-01T00:00:30Z""#),
        "{}",
        marked.body
    );
    assert_eq!(bench.get(&path).await.code, 200);
    bench.send(Method::DELETE, &path, r#"{"gracePeriodSeconds":0}"#).await;
    assert_eq!(bench.get(&path).await.code, 404);
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector_and_returned_as_it_was() {
    let bench = Bench::new();
    for name in ["a", "b", "c"] {
        bench.pod("d", name, "Running");
    }
    let path = format!("{PODS}?labelSelector=app+in+(a,b)");
    let deleted = bench.send(Method::DELETE, &path, "").await;
    assert_eq!((deleted.code, deleted.version()), (200, 1003));
    assert_eq!(deleted.names(), ["d/a", "d/b"]);
    assert_eq!(bench.get(PODS).await.names(), ["d/c"]);
}

#[tokio::test]
async fn eviction_and_binding_return_a_status() {
    let bench = Bench::new();
    bench.post(PODS, r#"{"metadata":{"name":"p"}}"#).await;
    let binding = r#"{"metadata":{"name":"p"},"target":{"name":"n1"}}"#;
    assert_eq!(bench.post(&format!("{PODS}/p/binding"), binding).await.code, 201);
    let bound = bench.get(&format!("{PODS}/p")).await;
    assert_eq!(bound.text_at(&["spec", "nodeName"]), "n1");
    let evicted = bench.post(&format!("{PODS}/p/eviction"), "{}").await;
    assert_eq!(
        (evicted.code, evicted.body.as_str()),
        (
            201,
            "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Success\",\"code\":201}\n"
        )
    );
    assert_eq!(bench.get(&format!("{PODS}/p")).await.code, 404);
}

#[tokio::test]
async fn dry_runs_answer_but_store_nothing() {
    let bench = Bench::new();
    let tried = bench.post(&format!("{MAPS}?dryRun=All"), r#"{"metadata":{"name":"c"}}"#).await;
    assert_eq!(tried.code, 201);
    assert!(!tried.body.contains("resourceVersion"), "{}", tried.body);
    bench.post(MAPS, r#"{"metadata":{"name":"c"}}"#).await;
    let path = format!("{MAPS}/c?dryRun=All");
    let merge = "application/merge-patch+json";
    let patched = bench.patch(&path, merge, r#"{"data":{"a":"1"}}"#).await;
    assert_eq!((patched.version(), patched.text_at(&["data", "a"])), (1001, "1".to_owned()));
    assert_eq!(bench.send(Method::DELETE, &path, "").await.code, 200);
    assert_eq!(bench.simulator.revision(), 1001);
}
