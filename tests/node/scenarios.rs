//! What is shown on the node, in order: a release comes, workloads run beside it, things go wrong, it goes.

mod install;
mod workloads;

use std::pin::Pin;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::stage::Stage;

/// One thing that is shown.
pub struct Scenario {
    /// A sentence.
    pub name: &'static str,
    play: Play,
}

type Play = for<'a> fn(&'a mut Stage<'_>) -> Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

macro_rules! scenarios {
    ($($module:ident::$name:ident,)*) => {
        /// Every scenario; the first is what all others stand on.
        pub const ALL: &[Scenario] = &[$(Scenario {
            name: stringify!($name),
            play: |stage| Box::pin($module::$name(stage)),
        }),*];
    };
}

scenarios! {
    install::the_chart_is_installed_and_a_pod_is_answered_from_memory,
    install::a_fabric8_poller_costs_the_apiserver_no_lists_once_its_namespace_is_labelled,
    workloads::a_job_completes_beside_its_sidecar,
    workloads::init_containers_are_served_too,
    workloads::a_restricted_namespace_takes_injected_pods,
    workloads::exec_logs_and_port_forward_reach_an_injected_pod,
    workloads::a_rolling_restart_disturbs_nobody,
    workloads::a_cron_job_runs_to_its_end,
}

/// Plays the first scenario, and those others whose name has one of these words in it; tells how
/// many failed.
pub async fn run(stage: &mut Stage<'_>, wanted: &[String]) -> Result<usize> {
    let is_wanted = |scenario: &&Scenario| {
        wanted.is_empty() || wanted.iter().any(|word| scenario.name.contains(word.as_str()))
    };
    let (first, others) = ALL.split_first().context("there is a first")?;
    let mut failed = usize::from(!first.play(stage).await);
    if failed > 0 {
        return Ok(failed);
    }
    for scenario in others.iter().filter(is_wanted) {
        failed += usize::from(!scenario.play(stage).await);
    }
    Ok(failed)
}

// === impl Scenario ===

impl Scenario {
    async fn play(&self, stage: &mut Stage<'_>) -> bool {
        let began = Instant::now();
        let outcome = (self.play)(stage).await;
        let took = began.elapsed();
        match &outcome {
            Ok(()) => println!("passed {} ({took:.1?})", self.name),
            Err(error) => println!("FAILED {} ({took:.1?}): {error:#}", self.name),
        }
        outcome.is_ok()
    }
}
