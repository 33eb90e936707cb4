//! A flood of changes of one object: watches lose none, keep their order, and other collections are not delayed.
//! One client stops reading: nobody else notices.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{COLLECTION, POLL, RECOVERY, from_memory, write};
use crate::clusters::{Machine, available};
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::proxy_process::ProxyProcess;
use crate::rig::wait::until_hit_at_last;
use crate::sidecar::create;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const CONFIGURATION: &str = "\
apiVersion: listless.dev/v1alpha1
kind: ProxyConfiguration
cache:
  rules:
  - resources: [configmaps, secrets]
    start: eager
";
/// The object's own size. A watcher that does not read is behind by megabytes soon.
const BYTES: usize = 9_000;
const WRITERS: usize = 8;
const FLOOD: Duration = Duration::from_secs(15);
/// The writes a second that are a flood on a machine that also runs the apiserver.
const RATE_MIN: f64 = 50.0;
/// The longest additional delay of another collection's event.
const DELAY_MAX: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_changes_loses_none_and_delays_no_other_collection_on_1_36() {
    flood(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_changes_loses_none_and_delays_no_other_collection_on_1_30() {
    flood(Version::V1_30).await;
}

async fn flood(version: Version) {
    if !available(version) {
        return;
    }
    let _machine = Machine::alone().await;
    let plane = ControlPlane::start(version).await.expect("a control plane");
    let straight = || plane.client(User::Admin, Protocol::Http2).expect("a client");
    write(&straight(), "busy", 1).await.expect("writes");
    create(&straight(), SECRETS, "first").await;
    let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, Some(CONFIGURATION)).await.expect("a proxy");
    let through = || proxy.client(Protocol::Http2);
    until_hit_at_last(&through(), &Request::get(SECRETS), RECOVERY).await.expect("a hit");
    let (_, shown) = from_memory(&through(), 1).await.expect("a list");
    let watch =
        |collection| format!("{collection}?watch=true&timeoutSeconds=300&resourceVersion={shown}");
    let open = async |client: Client, collection| {
        client.open(Request::get(&watch(collection))).await.expect("a watch").into_body()
    };
    let silent = open(through(), COLLECTION).await;
    let watches = [
        seen(open(straight(), COLLECTION).await),
        seen(open(through(), COLLECTION).await),
        seen(open(straight(), SECRETS).await),
        seen(open(through(), SECRETS).await),
    ];

    let until = Instant::now() + FLOOD;
    let writers: Vec<_> = (0..WRITERS).map(|_| tokio::spawn(patch(straight(), until))).collect();
    let mut others = 0;
    while Instant::now() < until {
        create(&straight(), SECRETS, &format!("other-{others}")).await;
        others += 1;
        tokio::time::sleep(POLL).await;
    }
    let mut patches = 0;
    for writer in writers {
        patches += writer.await.expect("no panic");
    }
    let rate = f64::from(patches) / FLOOD.as_secs_f64();
    for collection in [COLLECTION, SECRETS] {
        create(&straight(), collection, "last").await;
    }
    let mut events = Vec::new();
    for watch in watches {
        let watch = tokio::time::timeout(RECOVERY, watch).await;
        events.push(watch.expect("all events").expect("no panic"));
    }
    let [direct, relayed, direct_others, relayed_others] = &events[..] else { unreachable!() };
    let order = |events: &[Seen]| events.iter().map(|it| it.version).collect::<Vec<_>>();
    assert_eq!(order(direct), order(relayed), "{}", proxy.log());
    assert!(order(relayed).is_sorted(), "out of order");
    let at: BTreeMap<_, _> = direct_others.iter().map(|it| (it.version, it.at)).collect();
    let delays = relayed_others.iter().map(|it| it.at.saturating_duration_since(at[&it.version]));
    let delay = delays.max().unwrap_or_default();
    let (silent_events, silent_bytes) = drained(silent).await;
    eprintln!(
        "proof: a flood on {}: {rate:.0} changes a second of one object, {} events in order straight and through \
         Listless; {} events of another collection, the last {delay:.0?} later than straight; a watch that was not \
         read has {silent_events} events in {silent_bytes} bytes",
        version.name(),
        relayed.len(),
        relayed_others.len(),
    );
    assert!(rate >= RATE_MIN, "no flood: {rate:.0} a second");
    assert_eq!(relayed_others.len(), others + 1, "{}", proxy.log());
    assert!(delay <= DELAY_MAX, "{delay:?}\n{}", proxy.log());
    assert!(silent_events <= direct.len(), "{silent_events}");
}

/// Changes the object as fast as it can; returns the number of changes.
async fn patch(client: Client, until: Instant) -> u32 {
    let mut patches = 0;
    let filler = "x".repeat(BYTES);
    while Instant::now() < until {
        let patch = json!({"data": {"at": format!("{:?}{filler}", Instant::now())}}).to_string();
        let request = Request::new(Method::PATCH, &format!("{COLLECTION}/busy-0"));
        let request = request.body("application/merge-patch+json", patch);
        let patched = client.send(request).await.expect("an answer");
        // Two writers at once: the apiserver itself gives up after some attempts.
        patches += u32::from(patched.status == 200);
    }
    patches
}

/// An event of a watch.
struct Seen {
    version: u64,
    at: Instant,
}

/// Reads a watch up to the object with the name `last`.
fn seen(mut watch: Incoming) -> JoinHandle<Vec<Seen>> {
    tokio::spawn(async move {
        let (mut read, mut seen) = (Vec::new(), Vec::new());
        while let Some(Ok(frame)) = watch.frame().await {
            let at = Instant::now();
            read.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            let Some(end) = read.iter().rposition(|byte| *byte == b'\n') else { continue };
            for line in read[..end].split(|byte| *byte == b'\n') {
                let event: Value = serde_json::from_slice(line).expect("an event");
                let metadata = &event["object"]["metadata"];
                let version = metadata["resourceVersion"].as_str().and_then(|it| it.parse().ok());
                seen.push(Seen { version: version.expect("a version"), at });
                if metadata["name"] == "last" {
                    return seen;
                }
            }
            read.drain(..=end);
        }
        seen
    })
}

/// Reads the rest of a watch that nobody read, for a moment; returns its whole events and bytes.
async fn drained(mut watch: Incoming) -> (usize, usize) {
    let (mut events, mut bytes) = (0, 0);
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(POLL, watch.frame()).await {
        let data = frame.data_ref().map_or(&[][..], |data| data);
        events += data.iter().filter(|byte| **byte == b'\n').count();
        bytes += data.len();
    }
    (events, bytes)
}
