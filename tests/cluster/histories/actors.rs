//! Clients of one session through Listless, and another client that writes directly.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use flate2::read::GzDecoder;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::World;
use super::dice::Dice;
use super::record::{Asked, Effect, Filter, Read, Resource, Shown, Span, Version, Write, version};
use crate::differential::protobuf;
use crate::rig::client::{Answer, Client, Request};

/// The objects that actors write.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    pub namespaces: &'static [&'static str],
    pub names: &'static [&'static str],
}

/// So few that the actors meet at each of them.
pub const SMALL: Scope =
    Scope { namespaces: &["histories-a", "histories-b"], names: &["n0", "n1", "n2", "n3"] };
/// The values of the label `app` of what actors write.
pub const APPS: [&str; 2] = ["web", "db"];

/// The form that kubectl asks for.
pub const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// The limit on the wait for a response; a connection that stalls is closed.
const PATIENCE: Duration = Duration::from_secs(15);

/// One object, by its path.
#[derive(Clone, Copy)]
struct ObjectPath {
    resource: Resource,
    prefix: &'static str,
    plural: &'static str,
    namespace: &'static str,
    name: &'static str,
}

// === impl ObjectPath ===

impl ObjectPath {
    fn random(scope: Scope, dice: &mut Dice) -> Self {
        let resource = dice.one_of(&Resource::ALL);
        let (mut prefix, plural) = resource.path();
        if resource == Resource::Widgets && dice.chance(30) {
            prefix = "/apis/shop.example.com/v1beta1";
        }
        let (namespace, name) = (dice.one_of(scope.namespaces), dice.one_of(scope.names));
        Self { resource, prefix, plural, namespace, name }
    }

    fn collection(&self) -> String {
        format!("{}/namespaces/{}/{}", self.prefix, self.namespace, self.plural)
    }

    fn object(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn new_object(&self, dice: &mut Dice) -> Value {
        let metadata = json!({"name": self.name, "labels": {"app": dice.one_of(&APPS)}});
        match self.resource {
            Resource::ConfigMaps => json!({"metadata": metadata, "data": {"a": "b"}}),
            Resource::Pods => {
                let containers = json!([{"name": "main", "image": "example.com/app:1"}]);
                json!({"metadata": metadata, "spec": {"containers": containers}})
            }
            Resource::Widgets => json!({
                "apiVersion": self.prefix.trim_start_matches("/apis/"),
                "kind": "Widget",
                "metadata": metadata,
            }),
        }
    }
}

/// The parts of a list or a Table that matter.
#[derive(Deserialize)]
struct List {
    metadata: ListMetadata,
    items: Option<Vec<Item>>,
    rows: Option<Vec<Row>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Row {
    object: Item,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ItemMetadata {
    name: String,
    namespace: String,
    resource_version: String,
}

/// A client of the session: reads and writes until the end of the run.
pub async fn client(world: Arc<World>, mut dice: Dice) {
    let client = world.through();
    while !world.over.load(Ordering::SeqCst) {
        // A failed request teaches the session nothing.
        let result = if dice.chance(75) {
            read(&world, &client, &mut dice).await
        } else {
            write(&world, &client, &mut dice).await
        };
        if result.is_err() {
            world.records.failed("broken or late");
        }
        // A client pauses, sometimes for longer than a replica takes to catch up.
        let pause = if dice.chance(90) { dice.roll(60) } else { dice.roll(2500) };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

/// Writes directly until the end of the run, with pauses of less than so many milliseconds.
pub async fn outsider(world: Arc<World>, mut dice: Dice, pause: u64) {
    let client = world.straight();
    while !world.over.load(Ordering::SeqCst) {
        let place = ObjectPath::random(world.scope, &mut dice);
        let (request, _) = random_write(&place, &mut dice);
        let _ = send(&client, request).await;
        tokio::time::sleep(Duration::from_millis(dice.roll(pause))).await;
    }
}

async fn send(client: &Client, request: Request) -> Result<Answer> {
    tokio::time::timeout(PATIENCE, client.send(request)).await?
}

async fn read(world: &World, client: &Client, dice: &mut Dice) -> Result<()> {
    let place = ObjectPath::random(world.scope, dice);
    let asked_version = match dice.roll(10) {
        0 => Version::Zero,
        1 => world.records.shown(place.resource).map_or(Version::Unset, Version::AtLeast),
        _ => Version::Unset,
    };
    let filter = Filter { namespace: Some(place.namespace), ..Filter::default() };
    let mut asked =
        Asked { resource: place.resource, api: place.prefix, filter, version: asked_version };
    let mut target = place.collection();
    let mut object = None;
    match dice.roll(10) {
        0..3 => {
            target = place.object();
            object = Some(place.key());
        }
        3..6 => {
            target = format!("{}/{}", place.prefix, place.plural);
            asked.filter.namespace = None;
        }
        6..8 => {
            let app = dice.one_of(&APPS);
            target += &format!("?labelSelector=app%3D{app}");
            asked.filter.app = Some(app);
        }
        8 => {
            target += &format!("?fieldSelector=metadata.name%3D{}", place.name);
            asked.filter.name = Some(place.name);
        }
        _ => {}
    }
    let separator = if target.contains('?') { "&" } else { "?" };
    match asked.version {
        Version::Unset => {}
        Version::Zero => target += &format!("{separator}resourceVersion=0"),
        Version::AtLeast(version) => target += &format!("{separator}resourceVersion={version}"),
    }
    let mut request = Request::get(&target);
    if object.is_none() && dice.chance(20) {
        request = request.header("accept", TABLE);
    }
    ask(world, client, asked, request, object).await
}

/// Sends a read, of an object if its key is given, and records the answer.
pub async fn ask(
    world: &World,
    client: &Client,
    asked: Asked,
    request: Request,
    object: Option<String>,
) -> Result<()> {
    let started = Instant::now();
    let answer = send(client, request).await?;
    let span = Span { started, ended: Instant::now() };
    let shown = match (answer.status.as_u16(), object) {
        (200, Some(key)) => {
            let object = answer.json()?;
            Shown::Object(key, Some((uid(&object), version(&object).expect("a version"))))
        }
        (404, Some(key)) => Shown::Object(key, None),
        (200, None) => listed(&answer)?,
        (other, _) => {
            world.records.failed(&format!("read {other}"));
            return Ok(());
        }
    };
    world.records.read(Read { asked, span, hit: answer.is_hit(), shown });
    Ok(())
}

/// The list in an answer of any form.
pub fn listed(answer: &Answer) -> Result<Shown> {
    let mut body = answer.body.to_vec();
    if answer.header("content-encoding") == Some("gzip") {
        body.clear();
        GzDecoder::new(answer.body.as_ref()).read_to_end(&mut body)?;
    }
    if answer.header("content-type").is_some_and(|said| said.contains("protobuf")) {
        let (version, items) = protobuf::items(&body)?;
        return Ok(Shown::List(version, items));
    }
    Ok(page(&body)?.0)
}

/// A list's version and items, and the token of its next page; the rows of a Table hold the objects'
/// metadata. All else is skipped: a test without optimization would do nothing but read lists.
pub fn page(body: &[u8]) -> Result<(Shown, Option<String>)> {
    let list: List = serde_json::from_slice(body)?;
    let rows = list.rows.unwrap_or_default().into_iter().map(|row| row.object);
    let items = list.items.unwrap_or_default().into_iter().chain(rows);
    let items = items.map(|Item { metadata: it }| -> Result<_> {
        let version = it.resource_version.parse()?;
        Ok((format!("{}/{}", it.namespace, it.name), version))
    });
    let shown = Shown::List(list.metadata.resource_version.parse()?, items.collect::<Result<_>>()?);
    Ok((shown, list.metadata.next.filter(|token| !token.is_empty())))
}

/// Sends a random write, and records it if it was acknowledged.
pub async fn write(world: &World, client: &Client, dice: &mut Dice) -> Result<()> {
    let place = ObjectPath::random(world.scope, dice);
    let (request, removes) = random_write(&place, dice);
    let started = Instant::now();
    let answer = send(client, request).await?;
    let span = Span { started, ended: Instant::now() };
    if !answer.status.is_success() {
        world.records.failed(&format!("write {}", answer.status.as_u16()));
        return Ok(());
    }
    let object = answer.json()?;
    let effect = match (removes, object["kind"].as_str()) {
        (true, Some("Status")) => {
            let uid = object["details"]["uid"].as_str().expect("a uid");
            Effect::Removed(uid.to_owned())
        }
        (true, _) => Effect::Removed(uid(&object)),
        (false, _) => Effect::Stored(version(&object).expect("a version")),
    };
    world.records.wrote(Write { resource: place.resource, span, key: place.key(), effect });
    Ok(())
}

/// Sends one write; returns whether it removes.
fn random_write(place: &ObjectPath, dice: &mut Dice) -> (Request, bool) {
    let object = place.object();
    let labels = json!({"metadata": {"labels": {"app": dice.one_of(&APPS)}}}).to_string();
    match dice.roll(10) {
        0..4 => {
            let new = place.new_object(dice);
            (Request::new(Method::POST, &place.collection()).json(&new), false)
        }
        4..6 => {
            // A pod without a node is deleted at once.
            (Request::new(Method::DELETE, &format!("{object}?gracePeriodSeconds=0")), true)
        }
        6..8 => {
            let patch = Request::new(Method::PATCH, &object);
            (patch.body("application/merge-patch+json", labels), false)
        }
        _ => {
            let number = dice.roll(1000).to_string();
            let patch = json!([
                {"op": "test", "path": "/metadata/name", "value": place.name},
                {"op": "add", "path": "/metadata/annotations", "value": {"n": number}},
            ]);
            let request = Request::new(Method::PATCH, &object);
            (request.body("application/json-patch+json", patch.to_string()), false)
        }
    }
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().expect("a uid").to_owned()
}
