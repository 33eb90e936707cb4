//! Unmodified programs beside the other clients. They are started and killed from time to time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::drivers::programs::Programs;
use crate::drivers::workload::Workload;
use crate::histories::World;
use crate::rig::load_data::LoadData;

/// Their pods.
pub const DATA: LoadData =
    LoadData { namespace: "soak-programs", pods: 100, pollers: 4, apps: 4, nodes: 10 };
/// The life of a program.
const LIFE: Duration = Duration::from_secs(80);
const POLL: Duration = Duration::from_secs(1);
const KUBECTL_EACH: Duration = Duration::from_secs(5);

/// Runs them one life after the other until the end of the load; returns the number of operations of each
/// that succeeded. Errors are those of an apiserver that was not there.
pub async fn run(programs: Programs, world: Arc<World>) -> Result<BTreeMap<&'static str, u64>> {
    let mut done = BTreeMap::new();
    for life in 0_u32.. {
        let until = Instant::now() + LIFE;
        let mut all = start(&programs, &world, life)?;
        let is_over = || world.over.load(Ordering::SeqCst);
        while Instant::now() < until && !is_over() {
            tokio::time::sleep(POLL).await;
        }
        for (name, program) in &mut all {
            // One that an error has ended starts again with the others.
            let operations = program.tally().await.map_or(0, |tally| tally.operations);
            *done.entry(*name).or_default() += operations;
        }
        if is_over() {
            break;
        }
    }
    Ok(done)
}

fn start(programs: &Programs, world: &World, life: u32) -> Result<Vec<(&'static str, Workload)>> {
    let (kubeconfig, folder) = (world.proxy.kubeconfig(), world.plane.folder());
    let get: &[&str] = &["--namespace", DATA.namespace, "get", "pods"];
    let homes = folder.join(format!("homes-{life}"));
    let kubectl = Workload::kubectl(&programs.kubectl, get, kubeconfig, homes, KUBECTL_EACH);
    let mut all = vec![("kubectl", kubectl)];
    for (name, command) in [
        ("fabric8", programs.fabric8(DATA.namespace, DATA.pollers)),
        ("python", programs.python(DATA.namespace, &DATA.name(5))),
        ("client-go", programs.agents(DATA.namespace)),
    ] {
        let log = folder.join(format!("{name}-{life}.log"));
        all.push((name, Workload::program(command, kubeconfig, log)?));
    }
    Ok(all)
}
