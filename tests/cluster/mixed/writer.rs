//! The writer: it changes, deletes and creates objects, and reads what it wrote through Listless.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

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

/// Changes objects in turns, directly and through Listless; a write through it is read back at
/// once.
pub(super) async fn write(
    [straight, through]: [Client; 2],
    per_second: u32,
    written_count: Arc<AtomicU32>,
    rules: Arc<Rules>,
) -> Result<()> {
    let through = Reader { client: through, rules };
    let mut ticks = interval(Duration::from_secs(1) / per_second);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0_u32.. {
        ticks.tick().await;
        let (data, client) = match number % 4 {
            0 => (SHOP, &through.client),
            1 => (FLEET, &through.client),
            2 => (SHOP, &straight),
            _ => (FLEET, &straight),
        };
        let pod = number.wrapping_mul(37) % data.pods;
        if matches!(number % DELETED_EACH, 1 | 3) {
            replace(data, pod, client, (number % 4 == 1).then_some(&through)).await?;
            written_count.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let target = format!("{}/{}", data.collection(), data.name(pod));
        let patch = json!({"metadata": {"annotations": {"turn": number.to_string()}}}).to_string();
        let request =
            Request::new(Method::PATCH, &target).body("application/merge-patch+json", patch);
        let written = client.send(request).await?.successful()?.json()?;
        written_count.fetch_add(1, Ordering::Relaxed);
        if number % 4 > 1 {
            continue;
        }
        let written = rules::version(&written).context("a version")?;
        let shown = rules::version(&through.get(&target).await?);
        ensure!(shown >= Some(written), "{target}: wrote {written}, read {shown:?}");
        let label = format!("{}?labelSelector=poller%3D{}", data.collection(), pod % data.pollers);
        let list = through.get(&label).await?;
        let name = format!("{}/{}", data.namespace, data.name(pod));
        let shown = rules::objects(&list).get(&name).copied();
        ensure!(shown >= Some(written), "{label}: wrote {written}, listed {shown:?}");
    }
    Ok(())
}

impl Reader {
    async fn get(&self, target: &str) -> Result<Value> {
        let sent = self.rules.sent();
        let answer = self.client.get(target).await?.successful()?.json()?;
        self.rules.answer("pods", target, sent, &answer);
        Ok(answer)
    }
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
