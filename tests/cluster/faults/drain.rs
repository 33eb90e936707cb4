//! SIGTERM under load: whatever was begun is brought to its end, and nothing is cut off.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use http::Method;
use http_body_util::{BodyExt, Collected};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::{
    COLLECTION, CONFIGURATION, MANY, PAUSE_OF_POLLER, RECOVERY, from_memory, names, write,
};
use crate::clusters::{Machine, available};
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::process::Signal;
use crate::rig::proxy_process::ProxyProcess;
use crate::rig::wait::until;

const POLLERS: usize = 4;
const BEFORE: Duration = Duration::from_secs(3);
/// The process waits five seconds for requests in flight, and ends.
const DRAIN: Duration = Duration::from_secs(10);

/// The ends of a client's requests.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    whole: usize,
    /// It was refused before an answer began: a client connects again and repeats it.
    refused: usize,
    /// An answer began and did not end, or a write was lost on its way.
    cut: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_cuts_nothing_off_on_1_36() {
    drains(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_cuts_nothing_off_on_1_30() {
    drains(Version::V1_30).await;
}

async fn drains(version: Version) {
    if !available(version) {
        return;
    }
    let _machine = Machine::beside().await;
    let plane = ControlPlane::start(version).await.expect("a control plane");
    let straight = plane.client(User::Admin, Protocol::Http1).expect("a client");
    write(&straight, "kept", MANY).await.expect("writes");
    let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let mut proxy = ProxyProcess::start(&kubeconfig, Some(CONFIGURATION)).await.expect("a proxy");
    let (_, shown) = from_memory(&proxy.client(Protocol::Http2), MANY).await.expect("a list");
    let target = format!("{COLLECTION}?watch=true&timeoutSeconds=300&resourceVersion={shown}");

    let protocols = [Protocol::Http1, Protocol::Http2];
    let clients = || protocols.into_iter().map(|protocol| proxy.client(protocol));
    let mut watches = Vec::new();
    for client in clients() {
        let watch = client.open(Request::get(&target)).await.expect("a watch");
        watches.push(tokio::spawn(last_line(watch.into_body())));
    }
    let pollers = (0..POLLERS).flat_map(|_| clients());
    let pollers: Vec<_> = pollers.map(|client| tokio::spawn(poll(client))).collect();
    let writers: Vec<_> =
        clients().enumerate().map(|(index, client)| tokio::spawn(create(index, client))).collect();
    tokio::time::sleep(BEFORE).await;
    let begun = Instant::now();
    proxy.signal(Signal::Terminate).expect("a signal");
    until("the process ends", DRAIN, async || Ok(!proxy.is_running())).await.expect("an end");
    let drained = begun.elapsed();

    let mut read = Ends::default();
    for poller in pollers {
        read = read.and(poller.await.expect("no panic"));
    }
    let (mut written, mut acknowledged) = (Ends::default(), BTreeSet::new());
    for writer in writers {
        let (ends, names) = writer.await.expect("no panic");
        written = written.and(ends);
        acknowledged.extend(names);
    }
    let list = straight.get(COLLECTION).await.expect("a list").json().expect("JSON");
    let stored = names(&list).into_iter().filter(|name| name.starts_with("new-")).collect();
    for watch in watches {
        let line = tokio::time::timeout(RECOVERY, watch).await.expect("an end of the watch");
        let line = line.expect("no panic").unwrap_or_else(|error| panic!("cut off: {error}"));
        assert!(line.ends_with('\n'), "half an event: {line}");
        serde_json::from_str::<Value>(&line).expect("an event");
    }
    eprintln!(
        "proof: SIGTERM under load on {}: ended after {drained:.1?}; reads {read:?}, writes {written:?}, watches end \
         after a whole event",
        version.name()
    );
    assert_eq!((read.cut, written.cut), (0, 0), "{}", proxy.log());
    assert!(read.whole > 0 && written.whole > 0, "no load");
    assert_eq!(acknowledged, stored, "each write that was made is answered");
}

/// Reads until it is refused.
async fn poll(client: Client) -> Ends {
    let mut ends = Ends::default();
    loop {
        let Ok(answer) = client.open(Request::get(COLLECTION)).await else {
            return Ends { refused: 1, ..ends };
        };
        // Such an answer comes with the drain.
        if answer.status() == 503 {
            return Ends { refused: 1, ..ends };
        }
        let body = answer.into_body().collect().await.map(Collected::to_bytes);
        let whole = body.is_ok_and(|body| is_whole(&body));
        (ends.whole, ends.cut) = (ends.whole + usize::from(whole), ends.cut + usize::from(!whole));
        tokio::time::sleep(PAUSE_OF_POLLER).await;
    }
}

fn is_whole(body: &[u8]) -> bool {
    serde_json::from_slice(body).is_ok_and(|list| names(&list).len() >= MANY)
}

/// Writes until it is refused; returns the names of objects whose creation was acknowledged.
async fn create(index: usize, client: Client) -> (Ends, BTreeSet<String>) {
    let (mut ends, mut created) = (Ends::default(), BTreeSet::new());
    loop {
        let name = format!("new-{index}-{}", created.len());
        let object = json!({"metadata": {"name": name}});
        let request = Request::new(Method::POST, COLLECTION).json(&object);
        match client.open(request).await {
            Ok(answer) if answer.status() == 201 => match answer.into_body().collect().await {
                Ok(_) => {
                    ends.whole += 1;
                    created.insert(name);
                }
                Err(_) => ends.cut += 1,
            },
            _ => return (Ends { refused: 1, ..ends }, created),
        }
        tokio::time::sleep(PAUSE_OF_POLLER).await;
    }
}

/// Reads a watch to its end; returns its last line.
async fn last_line(mut watch: Incoming) -> Result<String, hyper::Error> {
    let mut last = String::new();
    while let Some(frame) = watch.frame().await {
        let frame = frame?;
        for part in
            frame.data_ref().map_or(&[][..], |data| data).split_inclusive(|byte| *byte == b'\n')
        {
            if last.ends_with('\n') {
                last.clear();
            }
            last.push_str(&String::from_utf8_lossy(part));
        }
    }
    Ok(last)
}

// === impl Ends ===

impl Ends {
    fn and(self, other: Self) -> Self {
        Self {
            whole: self.whole + other.whole,
            refused: self.refused + other.refused,
            cut: self.cut + other.cut,
        }
    }
}
