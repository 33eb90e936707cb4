//! Every kind of write, then every kind of read, before the replica receives the event.

use std::time::Duration;

use http::Method;
use listless::{
    api::Verb,
    simulator::{Asked, Effect, Fault},
};

use crate::harness::{
    Laggard, Setup, TestClient, TestProxy, pass, populated, settle, without_version,
};

/// A write and its expected response.
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

/// The delay of the write's event to the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventDelay {
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

/// The reads after each write; each is tried as the first read.
const READS: &[&str] = &[
    "/api/v1/pods",
    "/api/v1/namespaces/a/pods?labelSelector=app%3Dweb",
    "/api/v1/namespaces/a/pods?labelSelector=app%3Ddb",
    "/api/v1/pods?fieldSelector=metadata.name=web-0",
    WEB,
    NEW,
    HELD,
];

// === impl Step ===

impl Step {
    const fn new(method: &'static str, path: &'static str, status: u16) -> Self {
        Self { by: By::Us, method, path, format: JSON, body: "", status }
    }

    const fn post(path: &'static str, body: &'static str) -> Self {
        Self { body, ..Self::new("POST", path, 201) }
    }

    const fn put(path: &'static str, body: &'static str) -> Self {
        Self { body, ..Self::new("PUT", path, 200) }
    }

    const fn patch(path: &'static str, format: &'static str, body: &'static str) -> Self {
        Self { format, body, ..Self::new("PATCH", path, 200) }
    }

    const fn delete(path: &'static str) -> Self {
        Self::new("DELETE", path, 200)
    }

    const fn answered(self, status: u16) -> Self {
        Self { status, ..self }
    }

    const fn by_others(self) -> Self {
        Self { by: By::Others, ..self }
    }
}

/// Writes that create or change pods, by name.
fn pod_changes() -> Vec<(&'static str, Vec<Step>)> {
    let update = r#"{"metadata":{"name":"web-0"},"spec":{"x":1}}"#;
    let stale = r#"{"metadata":{"name":"web-0","resourceVersion":"1001"},"spec":{}}"#;
    let generated = r#"{"metadata":{"generateName":"new-","labels":{"app":"web"}},"spec":{}}"#;
    let binding = r#"{"metadata":{"name":"new"},"target":{"name":"n2"}}"#;
    let operations = r#"[{"op":"add","path":"/spec/x","value":1}]"#;
    let unchanged = r#"{"metadata":{"labels":{"app":"web"}}}"#;
    let apply = "{metadata: {labels: {app: db}}}";
    let failed = r#"{"status":{"phase":"Failed"}}"#;
    let status = "/api/v1/namespaces/a/pods/web-0/status";
    vec![
        ("create", vec![Step::post(PODS, NEW_POD)]),
        ("create with a generated name", vec![Step::post(PODS, generated)]),
        ("dry run", vec![Step::post("/api/v1/namespaces/a/pods?dryRun=All", NEW_POD)]),
        ("update", vec![Step::put(WEB, update)]),
        ("JSON patch", vec![Step::patch(WEB, OPERATIONS, operations)]),
        ("merge patch", vec![Step::patch(WEB, MERGE, RELABEL)]),
        ("strategic merge patch", vec![Step::patch(WEB, STRATEGIC, RELABEL)]),
        ("patch without effect", vec![Step::patch(WEB, MERGE, unchanged)]),
        ("apply", vec![Step::patch(WEB, APPLY, apply)]),
        ("apply that creates", vec![Step::patch(NEW, APPLY, apply).answered(201)]),
        ("status patch", vec![Step::patch(status, MERGE, failed)]),
        (
            "binding",
            vec![
                Step::post(PODS, NEW_POD),
                Step::post("/api/v1/namespaces/a/pods/new/binding", binding),
            ],
        ),
        (
            "update refused as stale",
            vec![Step::patch(WEB, MERGE, RELABEL).by_others(), Step::put(WEB, stale).answered(409)],
        ),
    ]
}

/// Writes that remove pods, by name.
fn pod_removals() -> Vec<(&'static str, Vec<Step>)> {
    let drop_finalizers = r#"{"metadata":{"finalizers":null}}"#;
    let eviction = r#"{"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"web-0"}}"#;
    let same_name = r#"{"metadata":{"name":"web-0","labels":{"app":"db"}},"spec":{}}"#;
    let selection = "/api/v1/namespaces/a/pods?labelSelector=app%3Dweb";
    let dry_run = r#"{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}"#;
    vec![
        ("delete", vec![Step::delete(WEB)]),
        ("delete of a held object", vec![Step::delete(HELD)]),
        (
            "removal of the last finalizer",
            vec![Step::delete(HELD), Step::patch(HELD, MERGE, drop_finalizers)],
        ),
        ("delete of a collection", vec![Step::delete(PODS)]),
        ("delete of a selection", vec![Step::delete(selection)]),
        ("eviction", vec![Step::post("/api/v1/namespaces/a/pods/web-0/eviction", eviction)]),
        (
            "delete and create under the same name",
            vec![Step::delete(WEB), Step::post(PODS, same_name)],
        ),
        ("create and delete", vec![Step::post(PODS, NEW_POD), Step::delete(NEW)]),
        (
            "create, and a deletion that is a dry run",
            vec![Step::post(PODS, NEW_POD), Step { body: dry_run, ..Step::delete(NEW) }],
        ),
        (
            "create, and a patch of a missing subresource",
            vec![
                Step::post(PODS, NEW_POD),
                Step::patch("/api/v1/namespaces/a/pods/new/other", MERGE, RELABEL).answered(404),
            ],
        ),
        (
            "create refused, for others created it again",
            vec![
                Step::delete(WEB),
                Step::post(PODS, same_name).by_others(),
                Step::post(PODS, same_name).answered(409),
            ],
        ),
        (
            "patch refused as missing",
            vec![Step::delete(WEB).by_others(), Step::patch(WEB, MERGE, RELABEL).answered(404)],
        ),
    ]
}

fn pod_writes() -> impl Iterator<Item = (&'static str, Vec<Step>)> {
    pod_changes().into_iter().chain(pod_removals())
}

/// A replica of all pods that receives later writes as `news` says.
async fn warmed(collection: &str, news: EventDelay) -> TestProxy {
    let proxy = Setup::default().in_memory();
    let watches = |asked: &Asked| asked.verb == Verb::Watch;
    match news {
        EventDelay::Prompt => {}
        EventDelay::Stalled => {
            proxy.simulator.inject(Fault::always(Effect::StallAfter(0), watches));
        }
        EventDelay::Late => {
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

/// Reads a path through the proxy and directly; returns the difference if the states differ.
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

/// The failures of each read as the first one after the write, for each event delay.
async fn misses(
    collection: &str,
    steps: &[Step],
    reads: &[&str],
    news: &[EventDelay],
) -> Vec<String> {
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
async fn a_read_after_any_write_shows_it_whatever_the_replica_received() {
    let mut all = Vec::new();
    for (what, steps) in pod_writes() {
        let found =
            misses("/api/v1/pods", &steps, READS, &[EventDelay::Stalled, EventDelay::Late]).await;
        all.extend(found.iter().map(|miss| format!("{what}, {miss}")));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn reads_after_an_already_exists_refusal_show_the_object() {
    let create = || Step::post(PODS, NEW_POD);
    let steps = [create().by_others(), create().answered(409)];
    // The refusal does not contain the labels. Reads by label may still miss the object.
    let reads = ["/api/v1/pods", PODS, NEW, "/api/v1/pods?fieldSelector=metadata.name=new"];
    let found =
        misses("/api/v1/pods", &steps, &reads, &[EventDelay::Stalled, EventDelay::Late]).await;
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn each_write_shows_in_every_later_read_and_memory_answers_again_soon() {
    for (what, steps) in pod_writes() {
        let proxy = warmed("/api/v1/pods", EventDelay::Prompt).await;
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
async fn read_your_writes_holds_for_other_kinds() {
    let deletion = r#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}"#;
    let (new, same) = (r#"{"metadata":{"name":"new"}}"#, r#"{"metadata":{"name":"c"}}"#);
    let widget = r#"{"apiVersion":"x.io/v1","kind":"Widget","metadata":{"name":"new"},"spec":{}}"#;
    let (size, ready) = (r#"{"spec":{"size":4}}"#, r#"{"status":{"ready":true}}"#);
    let status = "/apis/x.io/v1/namespaces/a/widgets/w1/status";
    let beta = "/apis/x.io/v1beta1/namespaces/a/widgets/w1";
    // Their DELETE returns a Status, which has no version.
    let cases = [
        ("create", MAPS, vec![Step::post(MAPS, new)]),
        ("delete", MAPS, vec![Step { body: deletion, ..Step::delete(MAP) }]),
        ("delete and create", MAPS, vec![Step::delete(MAP), Step::post(MAPS, same)]),
        ("delete of all", MAPS, vec![Step::delete(MAPS)]),
        ("create", WIDGETS, vec![Step::post(WIDGETS, widget)]),
        ("patch", WIDGETS, vec![Step::patch(WIDGET, MERGE, size)]),
        ("status", WIDGETS, vec![Step::patch(status, MERGE, ready)]),
        ("delete", WIDGETS, vec![Step::delete(WIDGET)]),
        ("write at another version", WIDGETS, vec![Step::patch(beta, MERGE, size)]),
        ("delete at another version", WIDGETS, vec![Step::delete(beta)]),
    ];
    let mut all = Vec::new();
    for (what, collection, steps) in cases {
        let object = if collection == MAPS { MAP } else { WIDGET };
        let news = [EventDelay::Stalled, EventDelay::Late, EventDelay::Prompt];
        let found = misses(collection, &steps, &[collection, object], &news).await;
        all.extend(found.iter().map(|miss| format!("{what}, {miss}")));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_deleted_stays_deleted() {
    let (all, one) = ("/api/v1/namespaces", "/api/v1/namespaces/a-b");
    let steps = [Step::delete(one)];
    let found = misses(all, &steps, &[all, one], &[EventDelay::Stalled, EventDelay::Late]).await;
    assert_eq!(found, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_removal_of_the_last_finalizer_counts_as_a_deletion() {
    let removals = [
        Step::patch(HELD, MERGE, r#"{"metadata":{"finalizers":null}}"#),
        Step::patch(HELD, OPERATIONS, r#"[{"op":"remove","path":"/metadata/finalizers"}]"#),
    ];
    for removal in removals {
        for path in ["/api/v1/pods", HELD] {
            let simulator = populated();
            let proxy = Setup::of(simulator.clone()).in_memory();
            // The replica knows that it is being deleted, and receives no more events.
            assert_eq!(proxy.straight().delete(HELD).await.status, 200);
            let stalled = Fault::always(Effect::StallAfter(0), |asked| asked.verb == Verb::Watch);
            simulator.inject(stalled);
            proxy.warm("/api/v1/pods").await;
            write(&proxy, std::slice::from_ref(&removal)).await;
            assert_eq!(proxy.straight().get(HELD).await.status, 404);
            assert_eq!(miss(&proxy, &proxy.client(), path).await, None);
        }
    }
}

/// `dryRun` in the query of a deletion that has a body.
#[tokio::test(start_paused = true)]
async fn a_deletion_whose_body_hides_its_dry_run_is_a_deletion() {
    for path in READS {
        for (query, status) in [("", 404), ("?dryRun=All", 404)] {
            let proxy = warmed("/api/v1/pods", EventDelay::Stalled).await;
            let body = r#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}"#;
            let target = format!("{WEB}{query}");
            let client = proxy.client().with("content-type", JSON);
            assert_eq!(client.send(Method::DELETE, &target, body).await.status, 200);
            assert_eq!(proxy.straight().get(WEB).await.status, status, "{query}");
            assert_eq!(miss(&proxy, &proxy.client(), path).await, None);
        }
    }
}

/// A webhook denies one object of a collection, after others are gone.
#[tokio::test(start_paused = true)]
async fn a_refused_deletion_of_a_collection_may_have_deleted() {
    let deletes = |asked: &Asked| asked.verb == Verb::DeleteCollection;
    for path in READS {
        let proxy = warmed("/api/v1/pods", EventDelay::Stalled).await;
        let denied = Effect::Answer { code: 422, retry_after_secs: None };
        proxy.simulator.inject(Fault::next(1, denied, deletes));
        let client = proxy.client();
        assert_eq!(
            proxy.straight().delete(&format!("{WEB}?gracePeriodSeconds=0")).await.status,
            200
        );
        assert_eq!(client.delete(PODS).await.status, 422);
        assert_eq!(miss(&proxy, &client, path).await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_is_assumed_to_have_happened() {
    let writes = |asked: &Asked| asked.verb.is_write() && asked.resource == "pods";
    for path in READS {
        for effect in [Effect::BreakAfter(40), Effect::EndAfter(40)] {
            let proxy = warmed("/api/v1/pods", EventDelay::Stalled).await;
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
        let simulator = populated();
        // The write is applied at once. Only its response is delayed for long.
        let distance =
            |target: &str| Duration::from_secs(if target.contains("late") { 4 } else { 0 });
        let laggard = Laggard::new(simulator.clone(), |_, newest| newest).far(distance);
        let proxy = Setup::of(simulator).upstream(laggard).in_memory();
        let stalled = Fault::always(Effect::StallAfter(0), |asked| asked.verb == Verb::Watch);
        proxy.simulator.inject(stalled);
        proxy.warm("/api/v1/pods").await;
        let (client, before) = (proxy.client(), proxy.simulator.revision());
        let target = format!("{WEB}?fieldManager=late");
        let gone = tokio::spawn(async move { client.patch(&target, "merge-patch", RELABEL).await });
        pass(Duration::from_secs(1)).await;
        assert!(proxy.simulator.revision() > before, "it was applied, and not yet answered");
        gone.abort();
        assert!(gone.await.is_err());
        settle().await;
        assert_eq!(miss(&proxy, &proxy.client(), path).await, None);
    }
}
