//! Random actors: clients of the session, other clients, and faults.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use http::Method;
use listless::{
    api::Verb,
    simulator::{Asked as Request, Effect as Harm, Fault},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    RESOURCES, World,
    dice::Dice,
    history::{Asked, Effect, Filter, Read, Span, Version, Write},
};
use crate::harness::{Answer, TABLE, TestClient, pass};

const NAMESPACES: [&str; 2] = ["a", "b"];
const NAMES: [&str; 4] = ["p0", "p1", "p2", "p3"];
const APPS: [&str; 2] = ["web", "db"];

/// The number of actions of one client.
const ACTIONS: u64 = 60;

/// The `User-Agent` of the session's clients.
const AGENT: &str = "session";

/// One object, by its path.
#[derive(Clone, Copy)]
struct ObjectPath {
    resource: &'static str,
    /// The API version's path.
    prefix: &'static str,
    plural: &'static str,
    namespace: &'static str,
    name: &'static str,
}

// === impl ObjectPath ===

impl ObjectPath {
    fn random(dice: &mut Dice) -> Self {
        let resource = dice.one_of(&RESOURCES);
        let (prefix, plural) = match resource {
            "widgets.x.io" => {
                (dice.one_of(&["/apis/x.io/v1", "/apis/x.io/v1", "/apis/x.io/v1beta1"]), "widgets")
            }
            plural => ("/api/v1", plural),
        };
        let (namespace, name) = (dice.one_of(&NAMESPACES), dice.one_of(&NAMES));
        Self { resource, prefix, plural, namespace, name }
    }

    fn collection(&self) -> String {
        format!("{}/namespaces/{}/{}", self.prefix, self.namespace, self.plural)
    }

    fn object(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace)
    }
}

/// A client of the session: acts, waits a little, acts again.
pub(super) async fn client(world: Arc<World>, mut dice: Dice) {
    let client = world.proxy.client().with("user-agent", AGENT);
    for _ in 0..ACTIONS {
        if dice.chance(65) {
            read(&world, &client, &mut dice).await;
        } else {
            write(&world, &client, &mut dice).await;
        }
        world.history.reached(world.proxy.simulator.revision());
        pass(pause(&mut dice)).await;
    }
}

/// Mostly short; sometimes long enough for bookmarks and deadlines.
fn pause(dice: &mut Dice) -> Duration {
    Duration::from_millis(match dice.roll(100) {
        0..40 => dice.roll(3),
        40..80 => dice.roll(400),
        80..97 => dice.roll(4_000),
        _ => dice.roll(100_000),
    })
}

/// All other clients: they write directly to the apiserver.
pub(super) async fn others(world: Arc<World>, mut dice: Dice) {
    let client = world.proxy.straight();
    while !world.over.load(Ordering::SeqCst) {
        pass(Duration::from_millis(dice.roll(1500))).await;
        if world.down.load(Ordering::SeqCst) {
            continue;
        }
        if dice.chance(10) {
            world.proxy.simulator.skip_revisions(dice.between(1, 3));
        } else {
            let place = ObjectPath::random(&mut dice);
            send_write(&client, &mut dice, place).await;
        }
        world.history.reached(world.proxy.simulator.revision());
    }
}

/// Injects faults.
pub(super) async fn faults(world: Arc<World>, mut dice: Dice) {
    let simulator = &world.proxy.simulator;
    while !world.over.load(Ordering::SeqCst) {
        pass(Duration::from_millis(dice.roll(8_000))).await;
        let times = dice.between(1, 4);
        let of_watches = |asked: &Request| is_ours(asked) && asked.verb == Verb::Watch;
        let of_lists = |asked: &Request| is_ours(asked) && asked.verb == Verb::List;
        let of_writes = |asked: &Request| asked.user_agent == AGENT && asked.verb.is_write();
        let late = Harm::Delay(Duration::from_millis(dice.roll(6_000)));
        let bytes = usize::try_from(dice.roll(900)).expect("a length");
        let too_many = Harm::Answer { code: 429, retry_after_secs: Some(1) };
        match dice.roll(16) {
            0 | 1 => simulator.inject(Fault::next(times, Harm::StallAfter(bytes), of_watches)),
            2 => simulator.inject(Fault::next(times, late, of_watches)),
            3 => simulator.inject(Fault::next(times, Harm::BreakAfter(bytes), of_watches)),
            4 => simulator.inject(Fault::next(times, Harm::EndAfter(bytes), of_watches)),
            5 => simulator.inject(Fault::next(times, Harm::Expired, of_watches)),
            6 => simulator.inject(Fault::next(1, Harm::Expired, of_lists)),
            7 => simulator.inject(Fault::next(times, Harm::BreakAfter(bytes), of_lists)),
            8 => simulator.inject(Fault::next(1, Harm::Garbage, is_ours)),
            9 => simulator.inject(Fault::next(times, too_many, is_ours)),
            10 => simulator.inject(Fault::next(1, Harm::BreakAfter(bytes / 4), of_writes)),
            11 => simulator.inject(Fault::next(1, Harm::Close, of_writes)),
            12 | 13 => simulator.break_watches(),
            14 => simulator.end_watches(),
            _ => {
                world.down.store(true, Ordering::SeqCst);
                simulator.stop();
                pass(Duration::from_millis(dice.roll(20_000))).await;
                simulator.start();
                world.down.store(false, Ordering::SeqCst);
            }
        }
        if dice.chance(20) {
            simulator.clear_faults();
        }
    }
}

/// Reports whether a request comes from a replica.
fn is_ours(asked: &Request) -> bool {
    asked.user_agent.starts_with("listless/")
}

async fn read(world: &World, client: &TestClient, dice: &mut Dice) {
    let asked = random_read(world, dice);
    let parameter = match asked.version {
        Version::Unset => String::new(),
        Version::Zero => "resourceVersion=0".to_owned(),
        Version::AtLeast(version) => format!("resourceVersion={version}"),
    };
    let separator = if asked.target.contains('?') { "&" } else { "?" };
    let path = format!("{}{separator}{parameter}", asked.target);
    let mut span = begin(world);
    let at = Instant::now();
    // A Table shows the session the same state.
    let accept = if dice.chance(12) { TABLE } else { "application/json" };
    let client = client.clone().with("accept", accept);
    let answer = client.get(path.trim_end_matches(['?', '&'])).await;
    end(world, &mut span);
    if answer.whole && matches!(answer.status, 200 | 404) {
        let version = (answer.status == 200).then(|| answer.version());
        world.history.read(Read { asked, span, at, answer, version });
    }
}

fn random_read(world: &World, dice: &mut Dice) -> Asked {
    let place = ObjectPath::random(dice);
    let version = match dice.roll(10) {
        0 => Version::Zero,
        1 => world.history.shown(place.resource).map_or(Version::Unset, Version::AtLeast),
        _ => Version::Unset,
    };
    let mut asked = Asked {
        resource: place.resource,
        target: place.collection(),
        key: None,
        filter: Filter { namespace: Some(place.namespace), ..Filter::default() },
        version,
    };
    match dice.roll(10) {
        0..3 => {
            asked.key = Some(place.key(place.name));
            asked.target = place.object();
        }
        3..6 => {
            asked.target = format!("{}/{}", place.prefix, place.plural);
            asked.filter = Filter::default();
        }
        6..8 => {
            let app = dice.one_of(&APPS);
            asked.target += &format!("?labelSelector=app%3D{app}");
            asked.filter.app = Some(app);
        }
        8 => {
            asked.target += &format!("?fieldSelector=metadata.name%3D{}", place.name);
            asked.filter.name = Some(place.name);
        }
        _ => {}
    }
    asked
}

async fn write(world: &World, client: &TestClient, dice: &mut Dice) {
    let place = ObjectPath::random(dice);
    let mut span = begin(world);
    let (method, answer) = send_write(client, dice, place).await;
    end(world, &mut span);
    if !answer.whole || !(200..300).contains(&answer.status) {
        return;
    }
    for (key, effect) in effects(&place, &method, &answer) {
        world.history.wrote(Write { resource: place.resource, span, key, effect });
    }
}

/// Sends one random write; nothing is learned from a dry run.
async fn send_write(client: &TestClient, dice: &mut Dice, place: ObjectPath) -> (Method, Answer) {
    let (collection, object) = (place.collection(), place.object());
    let labels = json!({"metadata": {"labels": {"app": dice.one_of(&APPS)}}});
    let finalizers = json!({"metadata": {"finalizers": dice.one_of(&[None, Some(["x.io/hold"])])}});
    let mark = json!([{"op": "add", "path": "/metadata/annotations", "value": {"n": dice.roll(9).to_string()}}]);
    let answer = match dice.roll(14) {
        0..4 => {
            let new = new_object(dice, place, "name", place.name);
            return (Method::POST, client.create(&collection, &new).await);
        }
        4 => {
            let new = new_object(dice, place, "generateName", "g-");
            return (Method::POST, client.create(&collection, &new).await);
        }
        5 | 6 => return (Method::DELETE, client.delete(&object).await),
        7 => {
            let selected = format!("{collection}?labelSelector=app%3D{}", dice.one_of(&APPS));
            return (Method::DELETE, client.delete(&selected).await);
        }
        8 if place.resource == "pods" => {
            let eviction = json!({"metadata": {"name": place.name}});
            let answer = client.create(&format!("{object}/eviction"), &eviction).await;
            return (Method::DELETE, answer);
        }
        8 | 9 => client.patch(&object, "merge-patch", &finalizers.to_string()).await,
        10 => client.patch(&object, "json-patch", &mark.to_string()).await,
        11 => client.patch(&object, "apply-patch", &labels.to_string()).await,
        12 => replace(client, dice, &object).await,
        _ => client.patch(&object, "merge-patch", &labels.to_string()).await,
    };
    (Method::PATCH, answer)
}

/// Reads an object and sends it back changed, as controllers do.
async fn replace(client: &TestClient, dice: &mut Dice, path: &str) -> Answer {
    let read = client.get(path).await;
    if read.status != 200 {
        return read;
    }
    let mut object = read.json();
    object["metadata"]["labels"] = json!({"app": dice.one_of(&APPS)});
    client.update(path, &object).await
}

fn new_object(dice: &mut Dice, place: ObjectPath, member: &str, name: &str) -> Value {
    let mut object = json!({"metadata": {"labels": {"app": dice.one_of(&APPS)}}});
    object["metadata"][member] = name.into();
    if dice.chance(20) {
        object["metadata"]["finalizers"] = json!(["x.io/hold"]);
    }
    if place.plural == "widgets" {
        object["kind"] = "Widget".into();
        object["apiVersion"] = place.prefix.trim_start_matches("/apis/").into();
    }
    object
}

/// Returns the effect of a write from its successful response.
fn effects(place: &ObjectPath, method: &Method, answer: &Answer) -> Vec<(String, Effect)> {
    let body = answer.json();
    if let Some(items) = body["items"].as_array() {
        return items.iter().map(|item| removed(place, item)).collect();
    }
    if body["kind"] == "Status" {
        let uid = body["details"]["uid"].as_str().map(str::to_owned);
        return vec![(place.key(place.name), Effect::Removed(uid))];
    }
    let metadata = &body["metadata"];
    let held = metadata["finalizers"].as_array().is_some_and(|held| !held.is_empty());
    let terminating = !metadata["deletionTimestamp"].is_null();
    if !held && (terminating || *method == Method::DELETE) {
        return vec![removed(place, &body)];
    }
    let name = metadata["name"].as_str().expect("a name");
    vec![(place.key(name), Effect::Stored(answer.version()))]
}

fn removed(place: &ObjectPath, object: &Value) -> (String, Effect) {
    let text = |key: &str| object["metadata"][key].as_str().expect("a text").to_owned();
    (place.key(&text("name")), Effect::Removed(Some(text("uid"))))
}

fn begin(world: &World) -> Span {
    let revision = world.proxy.simulator.revision();
    let started = world.history.tick();
    Span { started, ended: u64::MAX, revision_before: revision, revision_after: u64::MAX }
}

fn end(world: &World, span: &mut Span) {
    span.ended = world.history.tick();
    span.revision_after = world.proxy.simulator.revision();
}
