//! Watches through Listless compared with the same ones at the apiserver, while objects change.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use crate::clusters::Cluster;
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{User, Version};
use crate::rig::proxy_process::ProxyProcess;

/// A collection, an object of it, and the path that lists all of them.
const KINDS: [(&str, &str, &str); 3] = [
    ("/api/v1/configmaps", "/api/v1/namespaces/shop/configmaps", "ConfigMap"),
    ("/api/v1/services", "/api/v1/namespaces/shop/services", "Service"),
    (
        "/apis/shop.example.com/v1/widgets",
        "/apis/shop.example.com/v1/namespaces/shop/widgets",
        "Widget",
    ),
];

const SELECTORS: [&str; 5] = [
    "",
    "&labelSelector=churn%3Dyes",
    "&labelSelector=churn!%3Dyes",
    "&labelSelector=churn+in+(yes,no)",
    "&fieldSelector=metadata.name%3Dchurn-1",
];

/// `{v}` is the version of a list.
const STARTS: [&str; 4] = [
    "&resourceVersion={v}",
    "",
    "&resourceVersion=0&allowWatchBookmarks=true",
    "&resourceVersion={v}&allowWatchBookmarks=true",
];

/// Whole objects, and metadata alone in both versions.
const ACCEPTS: [&str; 3] = [
    "application/json",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1",
];

const METADATA_IN_PROTOBUF: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Services in protobuf from the start; custom resources are held in JSON.
const IN_PROTOBUF: &str = "\
apiVersion: listless.dev/v1alpha1
kind: ProxyConfiguration
cache:
  rules:
  - {resources: [services], start: eager, forms: [protobuf]}
  - {resources: [widgets.shop.example.com], start: eager}
  - {resources: ['*'], start: onDemand}
";

const INITIAL_EVENTS: &str = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

const BOOKMARK: &str = r#"{"type":"BOOKMARK""#;

/// The time after which the last event has come; on a busy machine, some of them.
const ARRIVAL: Duration = Duration::from_secs(2);
const ARRIVALS_MAX: u32 = 30;

/// The watched objects and their representation.
#[derive(Clone, Copy)]
struct Asked<'a> {
    path: &'a str,
    accept: &'static str,
}

/// An open watch that is read as it comes: an unread one would block the others on its connection.
struct Watch {
    asked: String,
    text: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

#[tokio::test]
async fn watches_through_listless_equal_the_apiservers_on_1_36() {
    watches_tell_the_same(Version::V1_36).await;
}

#[tokio::test]
async fn watches_through_listless_equal_the_apiservers_on_1_30() {
    watches_tell_the_same(Version::V1_30).await;
}

#[tokio::test]
async fn a_websocket_through_listless_equals_the_apiservers() {
    let Some(cluster) = Cluster::take(Version::V1_36).await else { return };
    let plane = cluster.plane();
    let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, None).await.expect("a proxy");
    let direct = plane.client(User::Admin, Protocol::Http1).expect("a client");
    let through = proxy.client(Protocol::Http1);
    let (all, collection, kind) = KINDS[0];
    let listed = warm(&through, all).await;
    let labelled = format!("resourceVersion={listed}&labelSelector=churn");
    for (start, accept) in [
        (&*labelled, ACCEPTS[0]),
        ("labelSelector=big", ACCEPTS[0]),
        (&*labelled, ACCEPTS[1]),
        ("", ACCEPTS[2]),
    ] {
        let path = format!("{collection}?watch=true&timeoutSeconds=5&{start}");
        let asked = Asked { path: &path, accept };
        let (mut told, mut expected) =
            (Socket::open(&through, asked).await, Socket::open(&direct, asked).await);
        assert!(told.headers["cache-status"].to_str().is_ok_and(|said| said.contains("hit")));
        for name in ["upgrade", "connection", "sec-websocket-accept", "sec-websocket-protocol"] {
            assert_eq!(told.headers.get(name), expected.headers.get(name), "{name}");
        }
        churn(&direct, collection, kind).await;
        let (told, expected) = (told.rest().await, expected.rest().await);
        assert!(expected.len() > 1000 && expected.ends_with(&[0x88, 2, 3, 0xe8]), "{expected:?}");
        assert_eq!(String::from_utf8_lossy(&told), String::from_utf8_lossy(&expected), "{path}");
    }
}

#[tokio::test]
async fn a_websocket_in_protobuf_through_listless_equals_the_apiservers() {
    for version in [Version::V1_36, Version::V1_30] {
        let Some(cluster) = Cluster::take(version).await else { return };
        let plane = cluster.plane();
        let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
        let proxy = ProxyProcess::start(&kubeconfig, Some(IN_PROTOBUF)).await.expect("a proxy");
        let direct = plane.client(User::Admin, Protocol::Http1).expect("a client");
        let through = proxy.client(Protocol::Http1);
        for ((all, collection, kind), accept) in [
            (KINDS[1], "application/vnd.kubernetes.protobuf;stream=watch"),
            (KINDS[1], "application/vnd.kubernetes.protobuf,application/json"),
            (KINDS[1], METADATA_IN_PROTOBUF),
            (KINDS[2], METADATA_IN_PROTOBUF),
        ] {
            let listed = warm(&through, all).await;
            let path = format!("{collection}?watch=true&timeoutSeconds=5&resourceVersion={listed}");
            let asked = Asked { path: &path, accept };
            let (mut told, mut expected) =
                (Socket::open(&through, asked).await, Socket::open(&direct, asked).await);
            let served = told.headers["cache-status"].to_str().expect("a text");
            assert!(served.contains("hit"), "{path} as {accept}: {served}");
            assert_eq!(told.headers.get("content-type"), expected.headers.get("content-type"));
            churn(&direct, collection, kind).await;
            let (told, expected) = (told.rest().await, expected.rest().await);
            // A binary message, and the close.
            assert!(expected.len() > 500 && expected[0] == 0x82, "{path} as {accept}");
            assert!(expected.ends_with(&[0x88, 2, 3, 0xe8]), "{path} as {accept}");
            let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
            assert_eq!(text(&told), text(&expected), "{path} as {accept}");
        }
    }
}

#[tokio::test]
async fn bookmarks_among_metadata_are_the_apiservers() {
    for version in [Version::V1_36, Version::V1_30] {
        let Some(cluster) = Cluster::take(version).await else { return };
        let plane = cluster.plane();
        let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
        let proxy = ProxyProcess::start(&kubeconfig, None).await.expect("a proxy");
        let direct = plane.client(User::Admin, Protocol::Http2).expect("a client");
        let through = proxy.client(Protocol::Http2);
        let mut pairs = Vec::new();
        for (all, _, _) in KINDS {
            let listed = warm(&through, all).await;
            for start in [format!("&resourceVersion={listed}"), INITIAL_EVENTS.to_owned()] {
                // The old version has no bookmarks at the end of initial events.
                if version == Version::V1_30 && start == INITIAL_EVENTS {
                    continue;
                }
                let path = format!("{all}?watch=1&allowWatchBookmarks=1&timeoutSeconds=6{start}");
                for accept in &ACCEPTS[1..] {
                    let asked = Asked { path: &path, accept };
                    let through = watch(&through, asked, Some("listless; hit;")).await;
                    pairs.push((through, watch(&direct, asked, None).await));
                }
            }
        }
        for (_, collection, kind) in KINDS {
            churn(&direct, collection, kind).await;
        }
        for (through, direct) in pairs {
            let asked = through.asked.clone();
            let marked = usize::from(asked.contains(INITIAL_EVENTS));
            let (told, expected) =
                (through.bookmarks(version).await, direct.bookmarks(version).await);
            assert_eq!(told, expected, "{asked}");
            assert_eq!(told.len(), 1 + marked, "{asked}: {told:?}");
        }
    }
}

async fn watches_tell_the_same(version: Version) {
    let Some(cluster) = Cluster::take(version).await else { return };
    let plane = cluster.plane();
    let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, None).await.expect("a proxy");
    // Each representation has a connection: servers limit the streams of one.
    let clients = ACCEPTS.map(|accept| {
        let direct = plane.client(User::Admin, Protocol::Http2).expect("a client");
        (accept, proxy.client(Protocol::Http2), direct)
    });
    let (_, through, direct) = &clients[0];
    let mut pairs = Vec::new();
    for (all, collection, _) in KINDS {
        let listed = warm(through, all).await;
        for (number, selector) in SELECTORS.into_iter().enumerate() {
            for (scope, start) in [all, collection].into_iter().cycle().skip(number).zip(STARTS) {
                let start = start.replace("{v}", &listed);
                let path = format!("{scope}?watch=true{selector}{start}");
                for (accept, through, direct) in &clients {
                    let asked = Asked { path: &path, accept };
                    let through = watch(through, asked, Some("listless; hit;")).await;
                    pairs.push((through, watch(direct, asked, None).await));
                }
            }
        }
    }
    for (_, collection, kind) in KINDS {
        churn(direct, collection, kind).await;
    }
    arrived(|| pairs.iter().map(|(it, direct)| (it.lines().len(), direct.lines().len())).collect())
        .await;
    let mut told = 0;
    for (through, direct) in &pairs {
        let lines = through.lines();
        assert_eq!(lines, direct.lines(), "{}", through.asked);
        told += lines.len();
    }
    eprintln!("proof: {told} events of {} watches on {}", pairs.len(), version.name());
    assert!(told > 500, "{told} events are too few");
}

/// Waits for the last event. `counts` has the events of both watches of each pair: if they still
/// differ in the end, the comparison says it.
pub async fn arrived(counts: impl Fn() -> Vec<(usize, usize)>) {
    for _ in 0..ARRIVALS_MAX {
        tokio::time::sleep(ARRIVAL).await;
        if counts().iter().all(|(one, other)| one == other) {
            break;
        }
    }
}

/// Lists until memory answers; returns the version of the list.
async fn warm(client: &Client, path: &str) -> String {
    loop {
        let answer = client.get(path).await.expect("an answer").successful().expect("a list");
        if answer.header("cache-status").is_some_and(|said| said.starts_with("listless; hit;")) {
            let list = answer.json().expect("a list");
            return list["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
        }
    }
}

async fn watch(client: &Client, asked: Asked<'_>, served: Option<&str>) -> Watch {
    let Asked { path, accept } = asked;
    let request = Request::get(path).header("Accept", accept);
    let answer = client.open(request).await.expect("an answer");
    assert_eq!(answer.status(), 200, "{path}");
    assert_eq!(answer.headers()["content-type"], "application/json", "{path}");
    if let Some(served) = served {
        let status = answer.headers()["cache-status"].to_str().expect("a text");
        assert!(status.starts_with(served), "{path}: {status}");
    }
    let text = Arc::new(Mutex::new(Vec::new()));
    let reader = tokio::spawn(read(answer.into_body(), text.clone()));
    Watch { asked: format!("{path} as {accept}"), text, reader }
}

async fn read(mut body: Incoming, text: Arc<Mutex<Vec<u8>>>) {
    while let Some(frame) = body.frame().await {
        let frame = frame.expect("an open watch");
        let data = frame.data_ref().map_or(&[][..], |data| data);
        text.lock().expect("no panic holds it").extend_from_slice(data);
    }
}

/// Objects are created, change their labels, and are deleted.
async fn churn(client: &Client, collection: &str, kind: &str) {
    for round in 0..3 {
        for number in 0..3 {
            let object = object(kind, &format!("churn-{number}"), "yes");
            send(client, Request::new(Method::POST, collection).json(&object)).await;
        }
        for (number, label) in
            [(0, json!("no")), (1, Value::Null), (1, json!("yes")), (2, json!("no"))]
        {
            let patch =
                json!({"metadata": {"labels": {"churn": label, "round": round.to_string()}}});
            let path = format!("{collection}/churn-{number}");
            let patch = Request::new(Method::PATCH, &path)
                .body("application/merge-patch+json", patch.to_string());
            send(client, patch).await;
        }
        for number in 0..3 {
            send(client, Request::new(Method::DELETE, &format!("{collection}/churn-{number}")))
                .await;
        }
    }
}

async fn send(client: &Client, request: Request) {
    let target = request.target.clone();
    let answer = client.send(request).await.expect("an answer");
    answer.successful().unwrap_or_else(|error| panic!("{target}: {error}"));
}

fn object(kind: &str, name: &str, label: &str) -> Value {
    let metadata = json!({"name": name, "labels": {"churn": label}});
    match kind {
        "Service" => json!({
            "apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": {"ports": [{"port": 80}]},
        }),
        "ConfigMap" => json!({
            "apiVersion": "v1", "kind": kind, "metadata": metadata, "data": {"a": "<b> & \u{2028}"},
        }),
        _ => json!({"apiVersion": "shop.example.com/v1", "kind": kind, "metadata": metadata}),
    }
}

/// A watch that switched to a WebSocket.
struct Socket {
    headers: HeaderMap,
    connection: TokioIo<Upgraded>,
}

// === impl Socket ===

impl Socket {
    /// Opens one as fabric8 does, and sends a ping at once.
    async fn open(client: &Client, Asked { path, accept }: Asked<'_>) -> Self {
        let request = Request::get(path)
            .header("Accept", accept)
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Origin", "https://127.0.0.1:443")
            .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("Sec-WebSocket-Version", "13");
        let answer = client.open(request).await.expect("an answer");
        assert_eq!(answer.status(), 101, "{path}");
        let headers = answer.headers().clone();
        let connection = hyper::upgrade::on(answer).await.expect("a switched connection");
        let mut socket = Self { headers, connection: TokioIo::new(connection) };
        // A ping with a mask of zeroes.
        let ping = [0x89, 0x82, 0, 0, 0, 0, b'h', b'i'];
        socket.connection.write_all(&ping).await.expect("an open connection");
        socket
    }

    /// Everything until the other side ends the connection, the answer to the ping first.
    async fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A connection after a close message counts as ended, in whatever way it ends.
        let _ = self.connection.read_to_end(&mut bytes).await;
        let pong = [0x8a, 2, b'h', b'i'];
        let at = bytes.windows(pong.len()).position(|window| window == pong).expect("a pong");
        bytes.drain(at..at + pong.len());
        bytes
    }
}

// === impl Watch ===

impl Watch {
    /// The events so far, without bookmarks: each server sends them at its own times.
    fn lines(&self) -> Vec<String> {
        assert!(!self.reader.is_finished(), "{} has ended", self.asked);
        let text = self.text.lock().expect("no panic holds it").clone();
        let text = String::from_utf8(text).expect("UTF-8");
        let events = text.split_inclusive('\n').filter(|line| !line.contains(BOOKMARK));
        events.map(str::to_owned).collect()
    }

    /// The forms of its bookmarks once it has ended: they come at versions of their own.
    async fn bookmarks(mut self, version: Version) -> BTreeSet<String> {
        (&mut self.reader).await.expect("no panic");
        let text = self.text.lock().expect("no panic holds it").clone();
        let text = String::from_utf8(text).expect("UTF-8");
        let bookmarks = text.split_inclusive('\n').filter(|line| line.contains(BOOKMARK));
        let form = |line: &str| {
            let event: Value = serde_json::from_str(line).expect("an event");
            let at = event["object"]["metadata"]["resourceVersion"].as_str().expect("a version");
            let line = line.replace(&format!("\"{at}\""), "\"at\"");
            // Only a later bookmark shows whether an empty timestamp is printed.
            match version {
                Version::V1_30 => line.replace(",\"creationTimestamp\":null", ""),
                Version::V1_36 => line,
            }
        };
        bookmarks.map(form).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
