//! Clients of the session: each connects, does one thing again and again, leaves, and comes back as another.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::{PODS, SCOPE};
use crate::histories::World;
use crate::histories::actors::{self, APPS, TABLE};
use crate::histories::dice::Dice;
use crate::histories::informer::{Informer, Outcome};
use crate::histories::record::{Asked, Filter, Read, Resource, Shown, Span, Version};
use crate::rig::client::{Client, Protocol, Request};

/// What a client does.
#[derive(Clone, Copy, Debug)]
enum Habit {
    /// Lists what a label selects, in some form.
    Label(Form),
    /// Lists a namespace page by page.
    Pages,
    /// Gets one object, or lists it by its name.
    Name,
    /// Lists the pods of a node, as its agents do.
    Node,
    /// Reads config maps first by name, then by label, by namespace and in all namespaces: its
    /// replicas widen, and end once it is gone.
    Widening,
    /// Writes, and reads what it wrote.
    Write,
    /// Lists once, and watches.
    Inform,
}

/// The form in which a client wants its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Gzip,
    Protobuf,
    Table,
}

/// The habits, as often as they come in ten clients.
const HABITS: [Habit; 10] = [
    Habit::Label(Form::Json),
    Habit::Label(Form::Gzip),
    Habit::Label(Form::Protobuf),
    Habit::Label(Form::Table),
    Habit::Pages,
    Habit::Name,
    Habit::Node,
    Habit::Widening,
    Habit::Write,
    Habit::Inform,
];
const PAUSE_MILLIS: u64 = 6_000;
/// The pause of those who write; ten in a second are left to them.
const PAUSE_OF_WRITER_MILLIS: u64 = 4_000;
const LIFE_SECONDS: [u64; 2] = [20, 90];
/// The time from one absence of those who read config maps to the next. Nobody reads them in its second
/// half, so that their replicas end.
pub(super) const ROUND: Duration = Duration::from_secs(150);
/// What all others read, but for those who ask for protobuf: theirs are other replicas.
const STEADY: [Resource; 2] = [Resource::Pods, Resource::Widgets];
const PAGE: usize = 100;

// === impl Form ===

impl Form {
    fn ask(self, target: &str) -> Request {
        let request = Request::get(target);
        match self {
            Self::Json => request,
            Self::Gzip => request.header("accept-encoding", "gzip"),
            Self::Protobuf => request.header("accept", "application/vnd.kubernetes.protobuf"),
            Self::Table => request.header("accept", TABLE),
        }
    }
}

/// One of the clients: one life after the other until the end of the load.
pub async fn client(
    world: Arc<World>,
    mut dice: Dice,
    number: usize,
    began: Instant,
    outcomes: Arc<Mutex<Vec<Outcome>>>,
) {
    while !world.over.load(Ordering::SeqCst) {
        let life = Duration::from_secs(dice.between(LIFE_SECONDS[0], LIFE_SECONDS[1]));
        let until = Instant::now() + life;
        match HABITS[number % HABITS.len()] {
            Habit::Inform => {
                let outcome = inform(&world, &mut dice, until).await;
                outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
            }
            Habit::Widening => {
                let away = next_absence(began);
                live(&world, &mut dice, Habit::Widening, until.min(away.start)).await;
                while away.contains(&Instant::now()) && !world.over.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
            habit => live(&world, &mut dice, habit, until).await,
        }
    }
}

/// Returns the time in which all who read config maps are away.
fn next_absence(began: Instant) -> Range<Instant> {
    let rounds = began.elapsed().as_secs() / ROUND.as_secs();
    let start = began + ROUND * rounds as u32 + ROUND / 2;
    start..start + ROUND / 2
}

async fn inform(world: &Arc<World>, dice: &mut Dice, until: Instant) -> Outcome {
    let resource = dice.one_of(&STEADY);
    let mut filter = Filter { app: Some(dice.one_of(&APPS)), ..Filter::default() };
    if dice.chance(60) {
        filter.namespace = Some(dice.one_of(SCOPE.namespaces));
    }
    Informer::following(Arc::clone(world), dice.another(), resource, filter, Some(until))
        .run()
        .await
}

async fn live(world: &World, dice: &mut Dice, habit: Habit, until: Instant) {
    let client = world.proxy.client(dice.one_of(&[Protocol::Http1, Protocol::Http2]));
    let namespace = dice.one_of(SCOPE.namespaces);
    for round in 0_u64.. {
        if Instant::now() >= until || world.over.load(Ordering::SeqCst) {
            return;
        }
        let result = match habit {
            Habit::Label(form) => label(world, &client, dice, form).await,
            Habit::Pages => pages(world, &client, namespace).await,
            Habit::Name => name(world, &client, dice).await,
            Habit::Node => node(&client, dice).await,
            Habit::Widening => widening(world, &client, dice, namespace, round).await,
            Habit::Write => actors::write(world, &client, dice).await,
            Habit::Inform => return,
        };
        if result.is_err() {
            world.records.failed("broken or late");
        }
        let pause =
            if matches!(habit, Habit::Write) { PAUSE_OF_WRITER_MILLIS } else { PAUSE_MILLIS };
        tokio::time::sleep(Duration::from_millis(dice.roll(pause))).await;
    }
}

fn asked(resource: Resource, filter: Filter, version: Version) -> Asked {
    Asked { resource, api: resource.path().0, filter, version }
}

fn collection(resource: Resource, namespace: Option<&str>) -> String {
    let (api, plural) = resource.path();
    match namespace {
        Some(namespace) => format!("{api}/namespaces/{namespace}/{plural}"),
        None => format!("{api}/{plural}"),
    }
}

async fn label(world: &World, client: &Client, dice: &mut Dice, form: Form) -> Result<()> {
    // Custom resources have no protobuf.
    let resources = if form == Form::Protobuf { &Resource::ALL[..2] } else { &STEADY[..] };
    let resource = dice.one_of(resources);
    let app = if dice.chance(50) { dice.one_of(&APPS) } else { "app-7" };
    // In all namespaces, the pods of an app are many.
    let namespace = dice.chance(90).then(|| dice.one_of(SCOPE.namespaces));
    let version = if dice.chance(10) { Version::Zero } else { Version::Unset };
    let mut target = format!("{}?labelSelector=app%3D{app}", collection(resource, namespace));
    if version == Version::Zero {
        target += "&resourceVersion=0";
    }
    let filter = Filter { namespace, app: Some(app), name: None };
    actors::ask(world, client, asked(resource, filter, version), form.ask(&target), None).await
}

/// All pages together are the list at the version that each of them names.
async fn pages(world: &World, client: &Client, namespace: &'static str) -> Result<()> {
    let target = format!("{}?limit={PAGE}", collection(Resource::Pods, Some(namespace)));
    let started = Instant::now();
    let (mut next, mut all, mut hit) = (String::new(), None, true);
    loop {
        let answer = client.get(&format!("{target}{next}")).await?.successful()?;
        hit &= answer.is_hit();
        let (shown, token) = actors::page(&answer.body)?;
        let Shown::List(version, items) = shown else { bail!("no list") };
        let (first, held) = all.get_or_insert_with(|| (version, items.clone()));
        ensure!(*first == version, "a page of {version} after one of {first}");
        held.extend(items);
        let Some(token) = token else { break };
        next = format!("&continue={token}");
    }
    let (version, items) = all.context("no page")?;
    let filter = Filter { namespace: Some(namespace), ..Filter::default() };
    let span = Span { started, ended: Instant::now() };
    let asked = asked(Resource::Pods, filter, Version::Unset);
    world.records.read(Read { asked, span, hit, shown: Shown::List(version, items) });
    Ok(())
}

async fn name(world: &World, client: &Client, dice: &mut Dice) -> Result<()> {
    let resource = dice.one_of(&STEADY);
    let (namespace, name) = (dice.one_of(SCOPE.namespaces), dice.one_of(SCOPE.names));
    let all = collection(resource, Some(namespace));
    if dice.chance(70) {
        let filter = Filter { namespace: Some(namespace), ..Filter::default() };
        let request = Request::get(&format!("{all}/{name}"));
        let key = Some(format!("{namespace}/{name}"));
        return actors::ask(world, client, asked(resource, filter, Version::Unset), request, key)
            .await;
    }
    let filter = Filter { namespace: Some(namespace), name: Some(name), app: None };
    let request = Request::get(&format!("{all}?fieldSelector=metadata.name%3D{name}"));
    actors::ask(world, client, asked(resource, filter, Version::Unset), request, None).await
}

/// The pods of a node never change.
async fn node(client: &Client, dice: &mut Dice) -> Result<()> {
    let namespace = dice.one_of(SCOPE.namespaces);
    let node = dice.roll(u64::from(PODS.nodes));
    let all = collection(Resource::Pods, Some(namespace));
    let target = format!("{all}?fieldSelector=spec.nodeName%3Dnode-{node}");
    let answer = client.get(&target).await?.successful()?;
    let Shown::List(_, items) = actors::listed(&answer)? else { bail!("no list") };
    // An answer that came must be right.
    assert_eq!(items.len(), (PODS.pods / PODS.nodes) as usize, "{target}: {}", answer.excerpt());
    Ok(())
}

async fn widening(
    world: &World,
    client: &Client,
    dice: &mut Dice,
    namespace: &'static str,
    round: u64,
) -> Result<()> {
    let resource = Resource::ConfigMaps;
    let mut filter = Filter { namespace: Some(namespace), ..Filter::default() };
    let mut target = collection(resource, filter.namespace);
    match round {
        0..3 => {
            let name = dice.one_of(SCOPE.names);
            let request = Request::get(&format!("{target}/{name}"));
            let key = Some(format!("{namespace}/{name}"));
            let asked = asked(resource, filter, Version::Unset);
            return actors::ask(world, client, asked, request, key).await;
        }
        3..6 => {
            filter.app = Some("web");
            target += "?labelSelector=app%3Dweb";
        }
        6..9 => {}
        _ => {
            filter.namespace = None;
            target = collection(resource, None);
        }
    }
    actors::ask(world, client, asked(resource, filter, Version::Unset), Request::get(&target), None)
        .await
}
