//! One session with a client-go informer that accepts only protobuf, and polls in JSON. The polls
//! come from memory while the informer's watch is forwarded. No poll is older than the informer's
//! events.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::clusters::skipped;
use crate::rig::artifact::Built;
use crate::rig::client::{Answer, Client, Protocol, Request};
use crate::rig::client_program::ClientProgram;
use crate::rig::control_plane::Version;
use crate::rig::wait::until_hit_at_last;
use crate::unmodified::stage::{Fault, Scene, Stage};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const NAMESPACE: &str = "protobuf-watches";

/// The number of pods that come and go, and the number of writes to any of them.
const PODS: u32 = 12;
const WRITES: u32 = 400;
const PERIOD: Duration = Duration::from_millis(15);
/// The minimum number of polls for a proof; on a slow machine some come after the last write.
const POLLS_MIN: u32 = 51;

const ARRIVAL_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// The version of each object, by its name.
type Versions = BTreeMap<String, u64>;

/// A process with one informer, which prints its content on request.
struct Informer {
    // Dropped first: killed.
    _child: Child,
    ask: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// The informer's events so far, and the results of the polls beside it.
#[derive(Default)]
struct Account {
    /// The newest version of each object in an event, whether it still exists or not.
    told: Versions,
    polls: u32,
    hits: u32,
    /// The reasons why memory did not answer.
    forwarded: BTreeMap<String, u32>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn polls_beside_an_informer_in_protobuf_are_answered_from_memory_on_1_36() {
    polls_are_answered_from_memory(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn polls_beside_an_informer_in_protobuf_are_answered_from_memory_on_1_30() {
    polls_are_answered_from_memory(Version::V1_30).await;
}

async fn polls_are_answered_from_memory(version: Version) {
    let program = match ClientProgram::ClientGo.build().expect("a build that works") {
        Built::Here(program) => program,
        Built::Impossible(reason) => return skipped("the client-go program", &reason),
    };
    let Some(stage) = Stage::take(version).await else { return };
    let scene = stage.scene_in_json(NAMESPACE).await.expect("a scene");
    let pods = scene.collection("pods");
    let through = scene.proxy.client(Protocol::Http2);
    let mut informer = Informer::start(&program, scene.proxy.kubeconfig()).expect("an informer");
    informer.holds(&scene, &pods).await.expect("a first state");

    let mut account = Account::default();
    let writer = tokio::spawn(write(scene.straight.clone(), pods.clone()));
    while !writer.is_finished() || account.polls < POLLS_MIN {
        let held = informer.held().await.expect("what it holds");
        let polled = through.get(&pods).await.and_then(Answer::successful).expect("a list");
        account.poll(&held, &polled).expect("nothing older than the informer's events");
    }
    writer.await.expect("no panic").expect("writes");
    informer.holds(&scene, &pods).await.expect("a last state");
    let held = informer.held().await.expect("what it holds");
    let polled = through.get(&pods).await.and_then(Answer::successful).expect("a list");
    account.poll(&held, &polled).expect("nothing older than the informer's events");
    assert_eq!(listed(&polled).expect("a list").1, held);

    let Account { polls, hits, forwarded, .. } = &account;
    let name = version.name();
    eprintln!(
        "proof: {hits} of {polls} polls beside protobuf from memory on {name}, {forwarded:?}"
    );
    assert!(!forwarded.contains_key("barred"), "{forwarded:?}");
    assert!(hits * 10 >= polls * 9, "{hits} of {polls} from memory, {forwarded:?}");
    let metrics = scene.proxy.metrics().await.expect("metrics");
    let reasons = metrics.sums("listless_forwarded_total", &[("verb", "watch")], "reason");
    assert!(reasons.get("not-demanded").is_some_and(|count| *count >= 1.0), "{reasons:?}");
    drop(informer);
    // The apiserver has forgotten the earlier content of its cache.
    scene.suffer(Fault::Restart).await.expect("an apiserver");
    expires(&through, &pods).await.expect("an end that is understood");
}

/// A watch that begins too early gets an error in protobuf, and the next one does not go to memory.
async fn expires(through: &Client, pods: &str) -> Result<()> {
    until_hit_at_last(through, &Request::get(pods), ARRIVAL_LIMIT).await?;
    let watch = Request::get(&format!("{pods}?watch=1&resourceVersion=1&timeoutSeconds=5"));
    let watched = through.send(watch.header("Accept", PROTOBUF)).await?.successful()?;
    let media = watched.header("content-type").unwrap_or_default();
    ensure!(media.starts_with(PROTOBUF), "{media}");
    ensure!(watched.body.windows(5).any(|part| part == b"ERROR"), "{}", watched.excerpt());
    let polled = through.get(pods).await?.successful()?;
    let said = polled.header("cache-status").unwrap_or_default();
    ensure!(said.ends_with("detail=after-expiry"), "{said}");
    Ok(())
}

/// Makes, changes and deletes pods, one after the other.
async fn write(client: Client, pods: String) -> Result<()> {
    let mut alive = [false; PODS as usize];
    let mut period = tokio::time::interval(PERIOD);
    for number in 0..WRITES {
        period.tick().await;
        // Every pod is written in turn, and deleted at every fourth of its own.
        let (index, turn) = (number % PODS, number / PODS);
        let name = format!("pod-{index}");
        let path = format!("{pods}/{name}");
        let is_alive = &mut alive[index as usize];
        let request = if !*is_alive {
            let container = json!({"name": "c", "image": "i"});
            let pod = json!({"metadata": {"name": name}, "spec": {"containers": [container]}});
            Request::new(Method::POST, &pods).json(&pod)
        } else if turn % 4 == 3 {
            Request::new(Method::DELETE, &path)
        } else {
            let patch = json!({"metadata": {"labels": {"turn": turn.to_string()}}}).to_string();
            Request::new(Method::PATCH, &path).body("application/merge-patch+json", patch)
        };
        *is_alive = request.method != Method::DELETE;
        client.send(request).await?.successful()?;
    }
    Ok(())
}

/// The version of a list, and of each object in it.
fn listed(answer: &Answer) -> Result<(u64, Versions)> {
    let list = answer.json()?;
    let version =
        |of: &Value| of["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok());
    let mut versions = Versions::new();
    for item in list["items"].as_array().context("items")? {
        let name = item["metadata"]["name"].as_str().context("a name")?;
        versions.insert(name.to_owned(), version(item).context("a version")?);
    }
    Ok((version(&list).context("a version")?, versions))
}

// === impl Account ===

impl Account {
    /// Checks a poll against the informer's content before it was sent.
    fn poll(&mut self, held: &Versions, polled: &Answer) -> Result<()> {
        for (name, at) in held {
            let told = self.told.entry(name.clone()).or_default();
            *told = (*told).max(*at);
        }
        let (at, listed) = listed(polled)?;
        let said = polled.header("cache-status").unwrap_or_default();
        for (name, told) in &self.told {
            ensure!(at >= *told, "a list at {at} after {name} at {told}: {said}");
            match (listed.get(name), held.contains_key(name)) {
                (Some(shown), true) => {
                    ensure!(shown >= told, "{name} at {shown} after {told}: {said}");
                }
                // Its deletion was an event. The object here must be another.
                (Some(shown), false) => {
                    ensure!(shown > told, "{name} at {shown}, gone after {told}: {said}");
                }
                (None, true) => ensure!(at > *told, "{name} at {told} missing at {at}: {said}"),
                (None, false) => {}
            }
        }
        self.polls += 1;
        if polled.is_hit() {
            self.hits += 1;
        } else {
            let reason = said.rsplit('=').next().unwrap_or_default().to_owned();
            *self.forwarded.entry(reason).or_default() += 1;
        }
        Ok(())
    }
}

// === impl Informer ===

impl Informer {
    fn start(program: &Path, kubeconfig: &Path) -> Result<Self> {
        let arguments = ["-namespace", NAMESPACE, "-informers", "1", "-accept", PROTOBUF];
        let mut child = ClientProgram::ClientGo.start(program, kubeconfig, &arguments)?;
        let ask = child.stdin.take().context("a pipe")?;
        let answers = BufReader::new(child.stdout.take().context("a pipe")?).lines();
        Ok(Self { _child: child, ask, answers })
    }

    /// Waits until it holds the objects that the apiserver lists.
    async fn holds(&mut self, scene: &Scene<'_>, pods: &str) -> Result<()> {
        let begun = Instant::now();
        let mut poll = tokio::time::interval(POLL);
        loop {
            poll.tick().await;
            let caches = self.caches().await?;
            let truth = listed(&scene.straight.get(pods).await?.successful()?)?.1;
            if caches["synced"] == 1 && versions(&caches)? == truth {
                return Ok(());
            }
            ensure!(begun.elapsed() < ARRIVAL_LIMIT, "{caches} is not {truth:?}");
        }
    }

    async fn held(&mut self) -> Result<Versions> {
        versions(&self.caches().await?)
    }

    async fn caches(&mut self) -> Result<Value> {
        self.ask.write_all(b"\n").await?;
        self.ask.flush().await?;
        let line = self.answers.next_line().await?.context("the informer has ended")?;
        Ok(serde_json::from_str(&line)?)
    }
}

fn versions(caches: &Value) -> Result<Versions> {
    let held: BTreeMap<String, String> = serde_json::from_value(caches["objects"].clone())?;
    held.into_iter().map(|(name, at)| Ok((name, at.parse()?))).collect()
}
