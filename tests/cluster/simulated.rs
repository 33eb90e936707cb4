//! The simulator compared with the real apiserver: the same objects, the same requests, the same
//! bytes.
//!
//! The simulator receives the real cluster's objects with their versions. It then receives every
//! read of the table that it claims to serve. This file lists the reads that it does not claim,
//! with the reason.

mod watches;
mod writes;

use std::io::Read as _;
use std::net::Ipv4Addr;
use std::time::SystemTime;

use anyhow::{Context, Result};
use listless::api::{GroupVersionResource, Scope};
use listless::simulator::{
    Json, Rendering, ResourceType, Rule, Settings, Simulator, User as SimulatedUser,
};
use listless::tls::{self, Authority, Names};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::clusters::Cluster;
use crate::dataset::current_version;
use crate::differential::case::{Case, Pace};
use crate::differential::cases;
use crate::differential::protobuf;
use crate::differential::target::{Kind, Target};
use crate::forms;
use crate::rig::client::{Answer, Client, Protocol, Server};
use crate::rig::control_plane::{User, Version};

/// The number of times that a response may differ, because a version passed between the two
/// requests.
const TRIES: u32 = 4;

/// Parts of requests for which the simulator does not claim equal responses, with the reason.
const UNCLAIMED: &[(&str, &str)] = &[
    ("Impersonate-", "nobody is impersonated"),
    ("{before}&resourceVersionMatch=Exact", "the copy has no history"),
    ("{after}&resourceVersionMatch=Exact", EXACT_AFTER),
    // A version with a limit is exact.
    ("{after}&limit", EXACT_AFTER),
    ("{before}&limit", "the copy has no history"),
    ("app=%00", "the shared parser of selectors takes NUL for a character, not for the end"),
    ("/ephemeralcontainers", "subresources of real kubelets and schedulers"),
    ("/log", "subresources of real kubelets and schedulers"),
    ("/scale", "scale is not simulated"),
    ("/openapi", "no schemas"),
    ("/openid", "no tokens are issued"),
    ("/.well-known", "no tokens are issued"),
    ("readyz?verbose", "no single checks"),
    ("/apis/events.k8s.io", "events are served by the core group only"),
];

const EXACT_AFTER: &str = "leases may have moved on since, and the copy has no history";

/// Representations the simulator refuses with 406, as its documentation says.
const UNSPOKEN: [&str; 4] = ["as=Table", "yaml", "protobuf", "APIGroupDiscoveryList"];

const JSON: &str = "application/json";

/// Paths without a resource whose responses do not depend on the served resources.
const HEALTH: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// The number of claimed reads; it may only grow.
const CASES_MIN: usize = 1000;

/// Headers that must be equal.
const HEADERS: [&str; 6] = [
    "content-type",
    "content-encoding",
    "vary",
    "retry-after",
    "cache-control",
    "x-content-type-options",
];

/// A simulator that serves what a control plane holds; ends when dropped.
struct Twin {
    simulator: Simulator,
    /// Resources it serves, as cases name them.
    served: Vec<String>,
    server: Server,
    serving: AbortHandle,
}

/// A client of a control plane, its twin, and a client of the twin.
async fn real_and_simulated(cluster: &Cluster) -> (Client, Twin, Client) {
    let real = cluster.plane().client(User::Admin, Protocol::Http2).expect("a client");
    let twin = Twin::of(&real).await.expect("a simulator of the cluster");
    let simulated = Client::new(&twin.server, Some(&User::Admin.token()), Protocol::Http2);
    (real, twin, simulated)
}

#[tokio::test]
async fn the_simulator_reads_like_the_apiserver() {
    let Some(cluster) = Cluster::take(Version::V1_36).await else { return };
    let probe = cluster.plane().client(User::Admin, Protocol::Http2).expect("a client");
    let twin = Twin::of(&probe).await.expect("a simulator of the cluster");
    let token = User::Admin.token();
    let real = cluster.plane().server().expect("an address");
    let real = Target::new(&real, &token, Kind::Apiserver, Protocol::Http2);
    let simulated = Target::new(&twin.server, &token, Kind::Apiserver, Protocol::Http2);
    let (mut compared, mut differences) = (0, Vec::new());
    let forms = forms::protobuf_cases().into_iter().chain(forms::table_cases());
    // The aged objects are in another cluster.
    let forms = forms.filter(|case| {
        !["/ages", "aged-", "/ages.example"].iter().any(|part| case.target.contains(part))
    });
    let cases: Vec<Case> = cases::all().into_iter().chain(forms).collect();
    for case in cases.iter().filter(|case| twin.claims(case)) {
        compared += 1;
        let mut difference = None;
        for _ in 0..TRIES {
            if case.pace == Pace::Clock {
                twin.copy_leases(&probe).await.expect("leases");
            }
            twin.catch_up(&probe).await.expect("a version");
            let request = || case.request(cluster.dataset());
            let expected = real.send(case.caller, request()).await.expect("an answer");
            difference = match simulated.send(case.caller, request()).await {
                Ok(given) => compare(case, &expected, &given),
                Err(error) => Some(format!("    {error:#}")),
            };
            if difference.is_none() {
                break;
            }
        }
        differences.extend(difference.map(|text| format!("{}\n{text}", case.name())));
    }
    eprintln!("proof: the simulator was compared in {compared} cases");
    assert!(compared >= CASES_MIN, "only {compared} cases");
    assert!(
        differences.is_empty(),
        "{} of {compared} differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

/// The first difference, in words.
fn compare(case: &Case, expected: &Answer, given: &Answer) -> Option<String> {
    // A refused conversion has another message.
    let unfit = case.name().contains("as=PartialObjectMetadata") && expected.status != 200;
    let unspoken = UNSPOKEN.iter().any(|accept| case.name().contains(accept))
        || unfit && expected.status != 404;
    if unspoken && (given.status == 406 || given.header("content-type") == Some(JSON)) {
        return None;
    }
    if expected.status != given.status {
        return Some(shown("status", expected, given));
    }
    // The shared parser has its own message for a wrong label.
    if expected.status == 400 && case.target.contains("Selector") {
        return None;
    }
    for name in HEADERS {
        if expected.header(name) != given.header(name) {
            return Some(shown(name, expected, given));
        }
    }
    let (mut left, mut right) = (plain(expected), plain(given));
    let names_version = case.parameter("resourceVersion").is_some_and(|it| !it.is_empty());
    let metadata = |body| protobuf::metadata(body, !names_version);
    if let (Some(left), Some(right)) = (metadata(&left), metadata(&right)) {
        return (left != right).then(|| shown("metadata in protobuf", expected, given));
    }
    if names_version {
        // Caches of both servers are right at any version that is new enough.
        (left, right) = (without_version(&left), without_version(&right));
    }
    (left != right).then(|| shown("body", expected, given))
}

/// The body without compression, whose bytes may differ.
fn plain(answer: &Answer) -> Vec<u8> {
    let mut plain = Vec::new();
    let unpacked = answer.header("content-encoding") == Some("gzip")
        && flate2::read::GzDecoder::new(&*answer.body).read_to_end(&mut plain).is_ok();
    if unpacked { plain } else { answer.body.to_vec() }
}

/// The body without the version that the server was at: the list's own, or the one in a refusal.
fn without_version(body: &[u8]) -> Vec<u8> {
    let answer: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let text = String::from_utf8_lossy(body);
    if let Some(version) = answer["metadata"]["resourceVersion"].as_str() {
        let version = format!("\"resourceVersion\":\"{version}\"");
        return text.replace(&version, "\"resourceVersion\":\"\"").into_bytes();
    }
    let Some((before, after)) = text.split_once(", current: ") else { return body.to_vec() };
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    format!("{before}, current: {}", &after[digits..]).into_bytes()
}

fn shown(what: &str, expected: &Answer, given: &Answer) -> String {
    let one = |answer: &Answer| {
        let headers: Vec<String> = HEADERS
            .iter()
            .filter_map(|name| answer.header(name).map(|value| format!("{name}: {value}")))
            .collect();
        format!("{} [{}] {}", answer.status, headers.join("; "), answer.excerpt())
    };
    let equal =
        expected.body.iter().zip(&given.body).take_while(|(left, right)| left == right).count();
    let from = equal.saturating_sub(30);
    let window = |answer: &Answer| {
        let bytes = answer.body.get(from..(from + 130).min(answer.body.len())).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    format!(
        "    {what}; first difference at byte {equal}\n    real      {}\n    simulated {}\n    real      …{}\n    simulated …{}",
        one(expected),
        one(given),
        window(expected),
        window(given)
    )
}

// === impl Twin ===

impl Twin {
    /// Copies everything that the simulator can serve.
    async fn of(real: &Client) -> Result<Self> {
        let settings =
            Settings { first_revision: current_version(real).await?, ..Settings::default() };
        let simulator = Simulator::new(settings);
        custom_types().into_iter().for_each(|kind| simulator.register(kind));
        for resource in simulator.resources() {
            copy(real, &simulator, &resource).await?;
        }
        admit(&simulator);
        let authority = Authority::generate(SystemTime::now())?;
        let leaf = authority.issue(&Names::of_apiserver(""), SystemTime::now())?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = format!("https://{}", listener.local_addr()?);
        let server = Server::new(&address, authority.pem().as_bytes())?;
        let (serving, tls) = (simulator.clone(), tls::Server::new(leaf)?);
        let serving = tokio::spawn(async move { serving.serve_tls(listener, tls).await });
        let served = simulator
            .resources()
            .iter()
            .map(|resource| format!("{}.{}", resource.resource, resource.group))
            .collect();
        Ok(Self { simulator, served, server, serving: serving.abort_handle() })
    }

    /// Advances to the real revision: writes elsewhere raise it all the time.
    async fn catch_up(&self, real: &Client) -> Result<()> {
        let behind = current_version(real).await?.saturating_sub(self.simulator.revision());
        self.simulator.skip_revisions(behind);
        Ok(())
    }

    /// Copies again what the apiserver itself renews every ten seconds.
    async fn copy_leases(&self, real: &Client) -> Result<()> {
        let leases = GroupVersionResource::new("coordination.k8s.io", "v1", "leases");
        copy(real, &self.simulator, &leases).await
    }

    /// Reports whether the simulator claims an equal response to this request.
    fn claims(&self, case: &Case) -> bool {
        let refused = matches!(case.expected_status(Version::V1_36), 401 | 403 | 404);
        let path = case.target.split('?').next().unwrap_or_default();
        let resource = case.group_resource();
        let served = self.served.contains(&resource);
        let claimed = served || refused || HEALTH.contains(&path);
        claimed && !UNCLAIMED.iter().any(|(part, _)| case.name().contains(part))
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The definitions of the data set, in the form for the simulator.
fn custom_types() -> [ResourceType; 2] {
    let widgets = ResourceType::custom("shop.example.com", &["v1", "v1beta1"], "widgets", "Widget")
        .selectable("spec.color", Rendering::Scalar)
        .selectable("spec.size", Rendering::Scalar);
    let planets =
        ResourceType::custom("shop.example.com", &["v1", "v1alpha1"], "planets", "Planet")
            .cluster_scoped()
            .without_status();
    [widgets, ResourceType { list_kind: "PlanetCatalog".to_owned(), ..planets }]
}

/// The rights the data set binds.
fn admit(simulator: &Simulator) {
    let read = ["get", "list", "watch"];
    let reader = Rule::new(&read, &["pods", "configmaps"]).within("shop");
    let mut narrow = Rule::new(&read, &["configmaps"]).within("shop");
    narrow.names.push("settings".to_owned());
    for (user, rules) in [
        (User::Admin, vec![Rule::default()]),
        (User::Reader, vec![reader]),
        (User::Narrow, vec![narrow]),
        (User::Nobody, vec![]),
    ] {
        simulator.admit(&user.token(), SimulatedUser::with_rules(user.name(), rules));
    }
}

async fn copy(real: &Client, simulator: &Simulator, resource: &GroupVersionResource) -> Result<()> {
    let path = resource.collection_path(&Scope::All);
    let list = real.get(&path).await?.successful()?;
    let list = Json::parse(&list.body)?;
    for item in list.get("items").context("a list without items")?.as_array() {
        let restored = simulator.restore(&resource.group_resource(), item.clone());
        anyhow::ensure!(restored, "{path}: an object could not be restored");
    }
    Ok(())
}
