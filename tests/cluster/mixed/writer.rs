//! The writer: it changes, deletes and creates objects, and reads what it wrote through Listless.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use super::rules::{self, Rules};
use super::{DELETED_EACH, FLEET, SHOP, Session};
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User};
use crate::rig::load_data::LoadData;

/// The writer's reads through Listless, which are checked like those of the pollers.
struct Reader {
    client: Client,
    rules: Arc<Rules>,
}

/// Two clients: one writes directly, so that the session learns of the change by reading; the other
/// writes and reads through Listless.
pub(super) fn plane_writer(
    plane: &ControlPlane,
    session: Session,
    through: &Client,
) -> [Client; 2] {
    let user = if session == Session::TwoNamespaces { User::Reader } else { User::Admin };
    [plane.client(user, Protocol::Http1).expect("a client"), through.clone()]
}

/// Changes objects in turns, directly and through Listless, until it is over; a write through it is
/// read back at once. Returns the number of changes. No object is left deleted.
pub(super) async fn write(
    [straight, through]: [Client; 2],
    per_second: u32,
    rules: Arc<Rules>,
    over: Arc<AtomicBool>,
) -> Result<u32> {
    let through = Reader { client: through, rules };
    let mut number = 0_u32;
    let mut ticks = interval(Duration::from_secs(1) / per_second);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !over.load(Ordering::Relaxed) {
        ticks.tick().await;
        let (data, client) = match number % 4 {
            0 => (SHOP, &through.client),
            1 => (FLEET, &through.client),
            2 => (SHOP, &straight),
            _ => (FLEET, &straight),
        };
        let pod = number.wrapping_mul(37) % data.pods;
        let seen = (number % 4 < 2).then_some(&through);
        if matches!(number % DELETED_EACH, 1 | 3) {
            replace(data, pod, client, seen).await?;
        } else {
            change(data, pod, client, seen).await?;
        }
        number += 1;
    }
    Ok(number)
}

impl Reader {
    async fn get(&self, target: &str) -> Result<Value> {
        let sent = self.rules.sent();
        let answer = self.client.get(target).await?.successful()?.json()?;
        self.rules.answer("pods", target, sent, &answer);
        Ok(answer)
    }
}

/// Changes a pod. Who does so through Listless sees it at once.
async fn change(data: LoadData, pod: u32, client: &Client, through: Option<&Reader>) -> Result<()> {
    let target = format!("{}/{}", data.collection(), data.name(pod));
    // Another value each time, or nothing would change.
    let turn = SystemTime::UNIX_EPOCH.elapsed()?.as_nanos().to_string();
    let patch = json!({"metadata": {"annotations": {"turn": turn}}}).to_string();
    let request = Request::new(Method::PATCH, &target).body("application/merge-patch+json", patch);
    let written = client.send(request).await?.successful()?.json()?;
    let Some(through) = through else { return Ok(()) };
    let written = rules::version(&written).context("a version")?;
    let shown = rules::version(&through.get(&target).await?);
    ensure!(shown >= Some(written), "{target}: wrote {written}, read {shown:?}");
    let label = format!("{}?labelSelector=poller%3D{}", data.collection(), pod % data.pollers);
    let list = through.get(&label).await?;
    let name = format!("{}/{}", data.namespace, data.name(pod));
    let shown = rules::objects(&list).get(&name).copied();
    ensure!(shown >= Some(written), "{label}: wrote {written}, listed {shown:?}");
    Ok(())
}

/// Deletes a pod and makes it again. Who does so through Listless sees both at once.
async fn replace(
    data: LoadData,
    pod: u32,
    client: &Client,
    through: Option<&Reader>,
) -> Result<()> {
    let (collection, name) = (data.collection(), data.name(pod));
    let target = format!("{collection}/{name}");
    let label = format!("{collection}?labelSelector=poller%3D{}", pod % data.pollers);
    let key = format!("{}/{name}", data.namespace);
    let delete = format!("{target}?gracePeriodSeconds=0");
    client.send(Request::new(Method::DELETE, &delete)).await?.successful()?;
    if let Some(through) = through {
        let status = client.get(&target).await?.status;
        ensure!(status == 404, "{target}: {status} after its deletion");
        let list = through.get(&label).await?;
        ensure!(!rules::objects(&list).contains_key(&key), "{label}: {name} after its deletion");
    }
    let create = Request::new(Method::POST, &collection).json(&data.pod(pod));
    let created = rules::version(&client.send(create).await?.successful()?.json()?);
    if let Some(through) = through {
        let shown = rules::version(&through.get(&target).await?);
        ensure!(shown >= created, "{target}: created {created:?}, read {shown:?}");
    }
    Ok(())
}
