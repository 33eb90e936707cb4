//! Every kind of write, then every kind of read, while the replica has not heard of it yet.

use std::time::Duration;

use http::Method;
use listless::{
    api::Verb,
    simulator::{Asked, Effect, Fault},
};

use crate::harness::{Setup, TestClient, TestProxy, pass, without_version};

/// A write and what its answer must be.
struct Step {
    by: By,
    method: &'static str,
    path: &'static str,
    format: &'static str,
    body: &'static str,
    status: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Us,
    Others,
}

/// How the replica hears of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// At once.
    Prompt,
    /// Never, though the watch looks healthy.
    Stalled,
    /// Not yet: the watch is being opened.
    Late,
}

const PODS: &str = "/api/v1/namespaces/a/pods";
const WEB: &str = "/api/v1/namespaces/a/pods/web-0";
const NEW: &str = "/api/v1/namespaces/a/pods/new";
const HELD: &str = "/api/v1/namespaces/b/pods/unusual";
const MAPS: &str = "/api/v1/namespaces/a/configmaps";
const MAP: &str = "/api/v1/namespaces/a/configmaps/c";
const WIDGETS: &str = "/apis/x.io/v1/namespaces/a/widgets";
const WIDGET: &str = "/apis/x.io/v1/namespaces/a/widgets/w1";

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const OPERATIONS: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

const NEW_POD: &str = r#"{"metadata":{"name":"new","labels":{"app":"web"}},"spec":{}}"#;
const RELABEL: &str = r#"{"metadata":{"labels":{"app":"db"}}}"#;

/// What is read after each write, each as the first read by itself.
const READS: &[&str] = &[
    "/api/v1/pods",
    "/api/v1/namespaces/a/pods?labelSelector=app%3Dweb",
    "/api/v1/namespaces/a/pods?labelSelector=app%3Ddb",
    "/api/v1/pods?fieldSelector=metadata.name=web-0",
    WEB,
    NEW,
    HELD,
];

fn us(
    method: &'static str,
    path: &'static str,
    format: &'static str,
    body: &'static str,
    status: u16,
) -> Step {
    Step { by: By::Us, method, path, format, body, status }
}

fn others(
    method: &'static str,
    path: &'static str,
    format: &'static str,
    body: &'static str,
) -> Step {
    Step { by: By::Others, method, path, format, body, status: 200 }
}

/// Writes of pods, by name.
fn pod_writes() -> Vec<(&'static str, Vec<Step>)> {
    [changes(), removals(), combinations()].into_iter().flatten().collect()
}

fn changes() -> Vec<(&'static str, Vec<Step>)> {
    let generated = r#"{"metadata":{"generateName":"new-","labels":{"app":"web"}},"spec":{}}"#;
    vec![
        ("create", vec![us("POST", PODS, JSON, NEW_POD, 201)]),
        ("create with a generated name", vec![us("POST", PODS, JSON, generated, 201)]),
        (
            "dry-run create",
            vec![us("POST", "/api/v1/namespaces/a/pods?dryRun=All", JSON, NEW_POD, 201)],
        ),
        (
            "update",
            vec![us("PUT", WEB, JSON, r#"{"metadata":{"name":"web-0"},"spec":{"x":1}}"#, 200)],
        ),
        (
            "JSON patch",
            vec![us("PATCH", WEB, OPERATIONS, r#"[{"op":"add","path":"/spec/x","value":1}]"#, 200)],
        ),
        ("merge patch", vec![us("PATCH", WEB, MERGE, RELABEL, 200)]),
        ("strategic merge patch", vec![us("PATCH", WEB, STRATEGIC, RELABEL, 200)]),
        (
            "patch without effect",
            vec![us("PATCH", WEB, MERGE, r#"{"metadata":{"labels":{"app":"web"}}}"#, 200)],
        ),
        ("apply", vec![us("PATCH", WEB, APPLY, "{metadata: {labels: {app: db}}}", 200)]),
        (
            "apply that creates",
            vec![us("PATCH", NEW, APPLY, "{metadata: {labels: {app: db}}}", 201)],
        ),
        (
            "status patch",
            vec![us(
                "PATCH",
                "/api/v1/namespaces/a/pods/web-0/status",
                MERGE,
                r#"{"status":{"phase":"Failed"}}"#,
                200,
            )],
        ),
    ]
}

fn removals() -> Vec<(&'static str, Vec<Step>)> {
    let drop_finalizers = r#"{"metadata":{"finalizers":null}}"#;
    vec![
        ("delete", vec![us("DELETE", WEB, JSON, "", 200)]),
        ("delete of a held object", vec![us("DELETE", HELD, JSON, "", 200)]),
        (
            "removal of the last finalizer",
            vec![us("DELETE", HELD, JSON, "", 200), us("PATCH", HELD, MERGE, drop_finalizers, 200)],
        ),
        ("delete of a collection", vec![us("DELETE", PODS, JSON, "", 200)]),
        (
            "delete of a selection",
            vec![us("DELETE", "/api/v1/namespaces/a/pods?labelSelector=app%3Dweb", JSON, "", 200)],
        ),
        (
            "eviction",
            vec![us(
                "POST",
                "/api/v1/namespaces/a/pods/web-0/eviction",
                JSON,
                r#"{"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"web-0"}}"#,
                201,
            )],
        ),
    ]
}

fn combinations() -> Vec<(&'static str, Vec<Step>)> {
    let stale = r#"{"metadata":{"name":"web-0","resourceVersion":"1001"},"spec":{}}"#;
    vec![
        (
            "binding",
            vec![
                us("POST", PODS, JSON, NEW_POD, 201),
                us(
                    "POST",
                    "/api/v1/namespaces/a/pods/new/binding",
                    JSON,
                    r#"{"metadata":{"name":"new"},"target":{"name":"n2"}}"#,
                    201,
                ),
            ],
        ),
        (
            "delete and create under the same name",
            vec![
                us("DELETE", WEB, JSON, "", 200),
                us(
                    "POST",
                    PODS,
                    JSON,
                    r#"{"metadata":{"name":"web-0","labels":{"app":"db"}},"spec":{}}"#,
                    201,
                ),
            ],
        ),
        (
            "create and delete",
            vec![us("POST", PODS, JSON, NEW_POD, 201), us("DELETE", NEW, JSON, "", 200)],
        ),
        (
            "update refused as stale",
            vec![others("PATCH", WEB, MERGE, RELABEL), us("PUT", WEB, JSON, stale, 409)],
        ),
        (
            "patch refused as missing",
            vec![others("DELETE", WEB, JSON, ""), us("PATCH", WEB, MERGE, RELABEL, 404)],
        ),
    ]
}

/// A replica of all pods that hears of later writes as `news` says.
async fn warmed(collection: &str, news: News) -> TestProxy {
    let proxy = Setup::default().in_memory();
    let watches = |asked: &Asked| asked.verb == Verb::Watch;
    match news {
        News::Prompt => {}
        News::Stalled => proxy.simulator.inject(Fault::always(Effect::StallAfter(0), watches)),
        News::Late => {
            let late = Effect::Delay(Duration::from_millis(400));
            proxy.simulator.inject(Fault::always(late, watches));
        }
    }
    proxy.warm(collection).await;
    proxy
}

async fn write(proxy: &TestProxy, steps: &[Step]) {
    for step in steps {
        let client = match step.by {
            By::Us => proxy.client(),
            By::Others => proxy.straight(),
        };
        let method = Method::from_bytes(step.method.as_bytes()).expect("a method");
        let client = client.with("content-type", step.format);
        let answer = client.send(method, step.path, step.body).await;
        assert_eq!(
            answer.status,
            step.status,
            "{} {}: {}",
            step.method,
            step.path,
            answer.summary()
        );
    }
}

/// Reads a path through the proxy and past it; what is wrong when not the same state comes back.
async fn miss(proxy: &TestProxy, client: &TestClient, path: &str) -> Option<String> {
    let (answer, straight) = (client.get(path).await, proxy.straight().get(path).await);
    let same = answer.status == straight.status
        && if straight.json().get("items").is_some() {
            without_version(&answer) == without_version(&straight)
        } else {
            answer.text() == straight.text()
        };
    (!same).then(|| format!("then {path}: {}, not {}", answer.summary(), straight.summary()))
}

/// The misses of each read as the first one after the write, for each kind of news.
async fn misses(collection: &str, steps: &[Step], reads: &[&str], news: &[News]) -> Vec<String> {
    let mut misses = Vec::new();
    for path in reads {
        for news in news {
            let proxy = warmed(collection, *news).await;
            write(&proxy, steps).await;
            let miss = miss(&proxy, &proxy.client(), path).await;
            misses.extend(miss.map(|miss| format!("{news:?}, {miss}")));
        }
    }
    misses
}

#[tokio::test(start_paused = true)]
async fn a_read_after_any_write_shows_it_whatever_the_replica_has_heard() {
    let mut all = Vec::new();
    for (what, steps) in pod_writes() {
        let found = misses("/api/v1/pods", &steps, READS, &[News::Stalled, News::Late]).await;
        all.extend(found.iter().map(|miss| format!("{what}, {miss}")));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn a_create_refused_as_existing_is_followed_by_reads_that_show_it() {
    let steps = [
        Step { status: 201, ..others("POST", PODS, JSON, NEW_POD) },
        us("POST", PODS, JSON, NEW_POD, 409),
    ];
    // The refusal does not tell its labels, so reads by label may still be without it.
    let reads = ["/api/v1/pods", PODS, NEW, "/api/v1/pods?fieldSelector=metadata.name=new"];
    let found = misses("/api/v1/pods", &steps, &reads, &[News::Stalled, News::Late]).await;
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn each_write_shows_in_every_later_read_too_and_memory_answers_again_soon() {
    for (what, steps) in pod_writes() {
        let proxy = warmed("/api/v1/pods", News::Prompt).await;
        let client = proxy.client();
        write(&proxy, &steps).await;
        for path in READS.iter().chain(READS.iter().rev()) {
            assert_eq!(miss(&proxy, &client, path).await, None, "{what}");
        }
        pass(Duration::from_secs(1)).await;
        for path in READS {
            let answer = client.get(path).await;
            assert!(answer.is_hit(), "{what}, then {path}: {}", answer.cache_status());
            assert_eq!(miss(&proxy, &client, path).await, None, "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn other_kinds_of_resources_keep_the_same_promise() {
    let deletion = r#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}"#;
    let status = "/apis/x.io/v1/namespaces/a/widgets/w1/status";
    let widget = r#"{"apiVersion":"x.io/v1","kind":"Widget","metadata":{"name":"new"},"spec":{}}"#;
    // Their DELETE answers a Status, which tells no version.
    let cases = [
        ("create", MAPS, vec![us("POST", MAPS, JSON, r#"{"metadata":{"name":"new"}}"#, 201)]),
        ("delete", MAPS, vec![us("DELETE", MAP, JSON, deletion, 200)]),
        (
            "delete and create",
            MAPS,
            vec![
                us("DELETE", MAP, JSON, "", 200),
                us("POST", MAPS, JSON, r#"{"metadata":{"name":"c"}}"#, 201),
            ],
        ),
        ("delete of all", MAPS, vec![us("DELETE", MAPS, JSON, "", 200)]),
        ("create", WIDGETS, vec![us("POST", WIDGETS, JSON, widget, 201)]),
        ("patch", WIDGETS, vec![us("PATCH", WIDGET, MERGE, r#"{"spec":{"size":4}}"#, 200)]),
        ("status", WIDGETS, vec![us("PATCH", status, MERGE, r#"{"status":{"ready":true}}"#, 200)]),
        ("delete", WIDGETS, vec![us("DELETE", WIDGET, JSON, "", 200)]),
        (
            "write at another version",
            WIDGETS,
            vec![us(
                "PATCH",
                "/apis/x.io/v1beta1/namespaces/a/widgets/w1",
                MERGE,
                r#"{"spec":{"size":5}}"#,
                200,
            )],
        ),
        (
            "delete at another version",
            WIDGETS,
            vec![us("DELETE", "/apis/x.io/v1beta1/namespaces/a/widgets/w1", JSON, "", 200)],
        ),
    ];
    let mut all = Vec::new();
    for (what, collection, steps) in cases {
        let object = if collection == MAPS { MAP } else { WIDGET };
        let news = [News::Stalled, News::Late, News::Prompt];
        let found = misses(collection, &steps, &[collection, object], &news).await;
        all.extend(found.iter().map(|miss| format!("{what}, {miss}")));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_deleted_stays_deleted() {
    let (all, one) = ("/api/v1/namespaces", "/api/v1/namespaces/a-b");
    let steps = [us("DELETE", one, JSON, "", 200)];
    let found = misses(all, &steps, &[all, one], &[News::Stalled, News::Late]).await;
    assert_eq!(found, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_is_assumed_to_have_happened() {
    let writes = |asked: &Asked| asked.verb.is_write() && asked.resource == "pods";
    for path in READS {
        for effect in [Effect::BreakAfter(40), Effect::EndAfter(40)] {
            let proxy = warmed("/api/v1/pods", News::Stalled).await;
            proxy.simulator.inject(Fault::next(1, effect, writes));
            let client = proxy.client();
            let answer = client.patch(WEB, "merge-patch", RELABEL).await;
            assert!(answer.body.len() <= 40, "{}", answer.summary());
            assert_eq!(miss(&proxy, &client, path).await, None, "{effect:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_during_its_write_still_reads_it_later() {
    for path in READS {
        let proxy = warmed("/api/v1/pods", News::Stalled).await;
        let slow = Effect::Delay(Duration::from_secs(2));
        proxy.simulator.inject(Fault::next(1, slow, |asked| asked.verb == Verb::Patch));
        let client = proxy.client();
        let gone = tokio::spawn(async move { client.patch(WEB, "merge-patch", RELABEL).await });
        pass(Duration::from_secs(1)).await;
        gone.abort();
        assert!(gone.await.is_err());
        pass(Duration::from_secs(2)).await;
        assert_eq!(miss(&proxy, &proxy.client(), path).await, None);
    }
}
