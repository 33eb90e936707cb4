//! Watches in protobuf and of tables, event by event, straight and through Listless, while objects
//! change.
//!
//! Every write begins just after a second does, so that both sides print its ages in one second.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{CONFIGURATION, EXPECTED};
use crate::clusters::Cluster;
use crate::differential::protobuf::{event_type, events};
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{User, Version};
use crate::rig::proxy_process::ProxyProcess;
use crate::watches::arrived;

const PODS: &str = "/api/v1/namespaces/shop/pods";
const SERVICES: &str = "/api/v1/namespaces/shop/services";
const WIDGETS: &str = "/apis/shop.example.com/v1/namespaces/shop/widgets";
const CLOCKS: &str = "/apis/ages.example.com/v1/namespaces/ages/clocks";

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf;stream=watch";
const BOTH: &str = "application/vnd.kubernetes.protobuf,application/json";
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

/// The collections and `Accept` values of a form.
const IN_PROTOBUF: &[(&str, &[&str])] = &[
    (PODS, &[PROTOBUF, BOTH, METADATA]),
    (SERVICES, &[PROTOBUF, BOTH, METADATA]),
    (WIDGETS, &[BOTH, METADATA]),
];
const AS_TABLES: &[(&str, &[&str])] = &[
    (PODS, &["includeObject=Metadata", "includeObject=None", "includeObject=Object"]),
    (SERVICES, &["includeObject=Metadata"]),
    (WIDGETS, &["includeObject=Metadata", "includeObject=None"]),
    (CLOCKS, &["includeObject=Metadata", "includeObject=Object"]),
];

/// `{v}` is the version of a list.
const QUERIES: &[&str] = &[
    "resourceVersion={v}",
    "",
    "resourceVersion=0&allowWatchBookmarks=true",
    "resourceVersion={v}&labelSelector=churn%3Dyes",
    "labelSelector=churn!%3Dyes",
    "resourceVersion={v}&labelSelector=churn+in+(yes,no)&allowWatchBookmarks=true",
    "resourceVersion=0&fieldSelector=metadata.name%3Dchurn-1",
    // Only pods have this field; other types refuse the selector.
    "resourceVersion={v}&fieldSelector=spec.nodeName%3D",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    // Too old: one event that says so.
    "resourceVersion=1",
    // Refused before the stream begins.
    "resourceVersion=x",
];

/// The number of compared watches per form; it may only grow.
const WATCHES_MIN: usize = 60;
/// The polls that may start a replica, and the time between them.
const WARM_TRIES: u32 = 300;
const WARM_POLL: Duration = Duration::from_millis(100);
/// The part of a second in which a watch opens and a write is sent.
const EARLY: std::ops::Range<u32> = 50..300;
/// Events so near to the turn of a second may have ages of either.
const TURN_MILLIS: u128 = 50;

/// Watches per HTTP/2 connection: servers limit the streams of one.
const STREAMS_MAX: usize = 40;

/// A form of watches: how it is asked for, and the answers that memory owes.
struct Form {
    name: &'static str,
    rows: &'static [(&'static str, &'static [&'static str])],
    tables: bool,
    percent: usize,
}

/// An open watch that is read as it comes.
struct Watch {
    head: (u16, String, Option<String>),
    arrived: Arc<Mutex<Vec<Piece>>>,
    reader: JoinHandle<()>,
}

/// Some bytes and the time of their arrival since 1970.
type Piece = (Vec<u8>, Duration);

/// The clients of both sides, one connection for some watches each.
struct Sides<'a> {
    cluster: &'a Cluster,
    proxy: &'a ProxyProcess,
    opened: usize,
    pair: Option<(Client, Client)>,
}

#[tokio::test]
async fn watches_in_protobuf_tell_the_apiservers_events_on_1_36() {
    in_protobuf(Version::V1_36).await;
}

#[tokio::test]
async fn watches_in_protobuf_tell_the_apiservers_events_on_1_30() {
    in_protobuf(Version::V1_30).await;
}

#[tokio::test]
async fn watches_of_tables_tell_the_apiservers_events_on_1_36() {
    of_tables(Version::V1_36).await;
}

#[tokio::test]
async fn watches_of_tables_tell_the_apiservers_events_on_1_30() {
    of_tables(Version::V1_30).await;
}

async fn in_protobuf(version: Version) {
    let percent = EXPECTED.protobuf_watches;
    tell_the_same(version, Form { name: "protobuf", rows: IN_PROTOBUF, tables: false, percent })
        .await;
}

async fn of_tables(version: Version) {
    let percent = EXPECTED.table_watches;
    tell_the_same(version, Form { name: "tables", rows: AS_TABLES, tables: true, percent }).await;
}

async fn tell_the_same(version: Version, form: Form) {
    let Some(cluster) = Cluster::take_aged(version).await else { return };
    let kubeconfig = cluster.plane().kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, Some(CONFIGURATION)).await.expect("a proxy");
    let mut sides = Sides { cluster: &cluster, proxy: &proxy, opened: 0, pair: None };
    let mut pairs = Vec::new();
    for (collection, ways) in form.rows {
        for way in *ways {
            let accept = if form.tables { TABLE } else { way };
            let listed = sides.warm(collection, accept).await;
            for query in QUERIES.iter().filter(|query| is_known(query, version)) {
                let query = query.replace("{v}", &listed);
                let extra = if form.tables { way } else { "" };
                let target = format!("{collection}?watch=true&{query}&{extra}");
                let target = target.trim_end_matches('&').replace("&&", "&");
                let (straight, through) = sides.open(&target, accept).await;
                pairs.push((format!("{target} as {accept}"), straight, through));
            }
        }
    }
    let writer = cluster.plane().client(User::Admin, Protocol::Http2).expect("a client");
    for (collection, _) in form.rows {
        churn(&writer, collection).await;
    }
    let count = |watch: &Watch| watch.events(form.tables).len();
    arrived(|| pairs.iter().map(|(_, it, through)| (count(it), count(through))).collect()).await;
    let (mut told, mut hits, mut substituted) = (0, 0, 0);
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut differences = Vec::new();
    for (asked, straight, through) in &pairs {
        told += straight.events(form.tables).len();
        let served = through.head.2.clone().unwrap_or_default();
        hits += usize::from(served.starts_with("listless; hit"));
        *reasons.entry(served).or_default() += 1;
        // A client of both gets JSON from memory as long as protobuf is forwarded.
        if form.percent == 0 && through.is_substitute(straight) {
            substituted += 1;
            continue;
        }
        differences.extend(
            difference(straight, through, form.tables).map(|it| format!("{asked}\n  {it}")),
        );
    }
    let (name, count, number) = (form.name, pairs.len(), differences.len());
    eprintln!(
        "proof: {count} watches of {name} on {}: {told} events, {number} differences, {hits} from memory, {} % required; {reasons:?}",
        version.name(),
        form.percent
    );
    assert!(differences.is_empty(), "{number} of {count}:\n{}", differences.join("\n"));
    assert!(
        substituted * 2 <= count && count >= WATCHES_MIN && told > 500,
        "{count} watches, {told} events are too few"
    );
    // Two queries of each way never come from memory.
    let intended = count * (QUERIES.len() - 2) / QUERIES.len();
    assert!(hits * 100 >= intended * form.percent, "{hits} of {intended} from memory: {reasons:?}");
}

/// The old version refuses streamed lists, which Listless has nevertheless.
fn is_known(query: &str, version: Version) -> bool {
    version != Version::V1_30 || !query.contains("sendInitialEvents")
}

/// The first difference of two watches, in words.
fn difference(straight: &Watch, through: &Watch, tables: bool) -> Option<String> {
    let (status, media, _) = &straight.head;
    if (status, media) != (&through.head.0, &through.head.1) {
        return Some(format!("{:?} became {:?}", straight.head, through.head));
    }
    let (expected, given) = (straight.events(tables), through.events(tables));
    if expected.len() != given.len() {
        return Some(format!("{} events became {}", expected.len(), given.len()));
    }
    let (before, after) = (first_columns(&expected), first_columns(&given));
    if tables && before.zip(after).is_some_and(|(before, after)| before != after) {
        return Some("other columns".to_owned());
    }
    let pairs = expected.iter().zip(&given).enumerate();
    for (number, ((before, sent), (after, received))) in pairs {
        let (before, after) = if tables {
            (headless(before), headless(after))
        } else {
            (before.clone(), after.clone())
        };
        let same = before == after
            || tables && !is_one_second(*sent, *received) && is_equal_but_for_ages(&before, &after);
        if !same {
            let text = |event: &[u8]| String::from_utf8_lossy(event).into_owned();
            return Some(format!("event {number}\n  {}\n  {}", text(&before), text(&after)));
        }
    }
    None
}

/// Reports whether both times belong to one second for certain.
fn is_one_second(one: Duration, other: Duration) -> bool {
    let is_late = |at: Duration| at.as_millis() % 1000 >= TURN_MILLIS;
    one.as_secs() == other.as_secs() && is_late(one) && is_late(other)
}

/// An event of a table without its columns. An apiserver puts them into the first event of a watch,
/// encodes an event once for all watches of one form, and so repeats or omits them by chance.
fn headless(event: &[u8]) -> Vec<u8> {
    let Some(columns) = columns(event) else { return event.to_vec() };
    [&event[..columns.start], b"null", &event[columns.end..]].concat()
}

/// The place of the columns in an event of a table.
fn columns(event: &[u8]) -> Option<std::ops::Range<usize>> {
    let key = br#""columnDefinitions":"#;
    let start = memchr::memmem::find(event, key)? + key.len();
    let mut values =
        serde_json::Deserializer::from_slice(&event[start..]).into_iter::<serde::de::IgnoredAny>();
    values.next()?.ok()?;
    Some(start..start + values.byte_offset())
}

/// The first columns that a watch of a table shows.
fn first_columns(events: &[(Vec<u8>, Duration)]) -> Option<&[u8]> {
    let mut shown = events.iter().filter_map(|(event, _)| Some(&event[columns(event)?]));
    shown.find(|columns| *columns != b"null")
}

fn is_equal_but_for_ages(before: &[u8], after: &[u8]) -> bool {
    ageless(before).is_some_and(|before| Some(before) == ageless(after))
}

/// An event of a table without the cells that look like ages.
fn ageless(event: &[u8]) -> Option<Value> {
    let mut event: Value = serde_json::from_slice(event).ok()?;
    for row in event["object"]["rows"].as_array_mut()? {
        for cell in row["cells"].as_array_mut()? {
            let is_age = |text: &str| text.starts_with(|it: char| it.is_ascii_digit());
            if cell.as_str().is_some_and(is_age) {
                *cell = json!("age");
            }
        }
    }
    Some(event)
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970")
}

/// Waits for the first half of a second.
async fn early() {
    let millis = now().subsec_millis();
    if !EARLY.contains(&millis) {
        let wait = (1000 + EARLY.start - millis) % 1000;
        tokio::time::sleep(Duration::from_millis(wait.into())).await;
    }
}

/// Objects are created, change their labels, and are deleted.
async fn churn(client: &Client, collection: &str) {
    for round in 0..2 {
        for number in 0..3 {
            let object = object(collection, &format!("churn-{number}"));
            send(client, Request::new(Method::POST, collection).json(&object)).await;
        }
        for (number, label) in
            [(0, json!("no")), (1, Value::Null), (1, json!("yes")), (2, json!("no"))]
        {
            let labels = json!({"churn": label, "round": round.to_string()});
            let patch = json!({"metadata": {"labels": labels}}).to_string();
            let patch = Request::new(Method::PATCH, &format!("{collection}/churn-{number}"))
                .body("application/merge-patch+json", patch);
            send(client, patch).await;
        }
        for number in 0..3 {
            let gone = format!("{collection}/churn-{number}?gracePeriodSeconds=0");
            send(client, Request::new(Method::DELETE, &gone)).await;
        }
    }
}

async fn send(client: &Client, request: Request) {
    early().await;
    let target = request.target.clone();
    let answer = client.send(request).await.expect("an answer");
    answer.successful().unwrap_or_else(|error| panic!("{target}: {error}"));
}

fn object(collection: &str, name: &str) -> Value {
    let metadata = json!({"name": name, "labels": {"churn": "yes"}});
    match collection {
        PODS => json!({"metadata": metadata,
            "spec": {"containers": [{"name": "main", "image": "example.com/app:1"}]}}),
        SERVICES => json!({"metadata": metadata, "spec": {"ports": [{"port": 80}]}}),
        WIDGETS => json!({"apiVersion": "shop.example.com/v1", "kind": "Widget",
            "metadata": metadata, "spec": {"color": "blue"}}),
        _ => json!({"apiVersion": "ages.example.com/v1", "kind": "Clock", "metadata": metadata,
            "spec": {"text": "5m"}}),
    }
}

// === impl Sides ===

impl Sides<'_> {
    /// Lists until memory answers, or for a while; returns the version of the collection.
    async fn warm(&self, collection: &str, accept: &str) -> String {
        let client = self.proxy.client(Protocol::Http2);
        let deadline = Instant::now() + WARM_POLL * WARM_TRIES;
        let accept = accept.replace("PartialObjectMetadata;", "PartialObjectMetadataList;");
        let accept = accept.replace(";stream=watch", "");
        for _ in 0..WARM_TRIES {
            let request = Request::get(collection).header("Accept", &accept);
            let answer =
                client.send(request).await.expect("an answer").successful().expect("a list");
            let served = answer.header("cache-status").unwrap_or_default();
            if served.starts_with("listless; hit")
                || self.is_forwarded()
                || Instant::now() > deadline
            {
                break;
            }
            tokio::time::sleep(WARM_POLL).await;
        }
        let answer = client.get(collection).await.expect("an answer").json().expect("a list");
        answer["metadata"]["resourceVersion"].as_str().expect("a version").to_owned()
    }

    /// No form comes from memory yet.
    fn is_forwarded(&self) -> bool {
        EXPECTED.protobuf_watches + EXPECTED.table_watches == 0
    }

    /// Opens a watch on both sides within one second.
    async fn open(&mut self, target: &str, accept: &str) -> (Watch, Watch) {
        let plane = self.cluster.plane();
        // Every fourth watch has a connection of its own and speaks HTTP/1.1.
        let over = |protocol| {
            (plane.client(User::Admin, protocol).expect("a client"), self.proxy.client(protocol))
        };
        let alone = self.opened % 4 == 3;
        if self.opened.is_multiple_of(STREAMS_MAX) || self.pair.is_none() {
            self.pair = Some(over(Protocol::Http2));
        }
        self.opened += 1;
        let (straight, through) = if alone {
            over(Protocol::Http1)
        } else {
            self.pair.clone().expect("it has just been made")
        };
        early().await;
        tokio::join!(Watch::open(&straight, target, accept), Watch::open(&through, target, accept))
    }
}

// === impl Watch ===

impl Watch {
    async fn open(client: &Client, target: &str, accept: &str) -> Self {
        let request = Request::get(target).header("Accept", accept);
        let answer = client.open(request).await.expect("an answer");
        let text = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
        let media = text("content-type").unwrap_or_default().to_owned();
        let served = text("cache-status").map(str::to_owned);
        let head = (answer.status().as_u16(), media, served);
        let arrived: Arc<Mutex<Vec<Piece>>> = Arc::default();
        let reader = tokio::spawn(read(answer.into_body(), arrived.clone()));
        Self { head, arrived, reader }
    }

    /// Reports whether it is JSON from memory where the apiserver sends protobuf.
    fn is_substitute(&self, straight: &Self) -> bool {
        let from_memory = self.head.2.as_deref().is_some_and(|it| it.starts_with("listless; hit"));
        from_memory && self.head.1 != straight.head.1
    }

    /// Its events without bookmarks, each with the time of its last byte; a refusal is one event.
    fn events(&self, tables: bool) -> Vec<(Vec<u8>, Duration)> {
        let pieces = self.arrived.lock().expect("no panic holds it").clone();
        let mut all = Vec::new();
        let mut ends = Vec::new();
        for (piece, at) in pieces {
            all.extend_from_slice(&piece);
            ends.push((all.len(), at));
        }
        if self.head.0 != 200 {
            return vec![(all, Duration::ZERO)];
        }
        let is_json = tables || self.head.1.starts_with("application/json");
        let split: Vec<&[u8]> = if is_json {
            all.split_inclusive(|byte| *byte == b'\n').collect()
        } else {
            events(&all)
        };
        let mut told = Vec::new();
        let mut end = 0;
        for event in split {
            end += event.len();
            let at = ends.iter().find(|(until, _)| *until >= end).map_or(Duration::ZERO, |it| it.1);
            let is_bookmark = if is_json {
                event.starts_with(br#"{"type":"BOOKMARK""#)
            } else {
                event_type(event) == Some(b"BOOKMARK")
            };
            if !is_bookmark {
                told.push((event.to_vec(), at));
            }
        }
        told
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn read(mut body: Incoming, arrived: Arc<Mutex<Vec<Piece>>>) {
    while let Some(frame) = body.frame().await {
        let frame = frame.expect("an open watch");
        let data = frame.data_ref().map_or(&[][..], |data| data);
        arrived.lock().expect("no panic holds it").push((data.to_vec(), now()));
    }
}
