//! The scenarios on the node, in order: the release is installed, workloads run beside it, faults
//! happen, and the release is removed.

mod by_hand;
mod costs;
mod faults;
mod gateways;
mod install;
mod neighbours;
mod outages;
mod release;
mod workloads;

use std::pin::Pin;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::stage::Stage;

/// One scenario.
pub struct Scenario {
    /// A sentence.
    pub name: &'static str,
    play: Play,
}

type Play = for<'a> fn(&'a mut Stage<'_>) -> Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

macro_rules! scenarios {
    ($($module:ident::$name:ident,)*) => {
        /// Every scenario; all others depend on the first.
        pub const ALL: &[Scenario] = &[$(Scenario {
            name: stringify!($name),
            play: |stage| Box::pin($module::$name(stage)),
        }),*];
    };
}

scenarios! {
    install::the_chart_is_installed_and_a_pod_is_answered_from_memory,
    install::the_release_is_checked_from_a_pod_by_helm_test,
    install::a_fabric8_poller_costs_the_apiserver_no_lists_once_its_namespace_is_labelled,
    workloads::a_job_completes_beside_its_sidecar,
    workloads::init_containers_are_served_too,
    workloads::a_sidecar_finds_the_apiserver_by_its_name,
    workloads::a_restricted_namespace_takes_injected_pods,
    workloads::exec_logs_and_port_forward_reach_an_injected_pod,
    workloads::a_rolling_restart_disturbs_nobody,
    by_hand::a_manifest_is_injected_and_brought_back_by_hand,
    neighbours::a_neighbour_without_the_token_gets_nothing,
    faults::a_killed_worker_costs_a_client_one_request_at_most,
    faults::a_worker_killed_for_want_of_memory_costs_a_client_one_request_at_most,
    faults::a_killed_sidecar_comes_back_and_is_still_trusted,
    faults::a_worker_that_crashes_three_times_is_followed_by_safe_mode,
    outages::a_token_the_kubelet_replaces_is_followed,
    outages::a_pod_starts_again_while_the_apiserver_is_down,
    outages::a_pod_starts_without_a_sidecar_while_no_injector_answers,
    workloads::a_cron_job_runs_to_its_end,
    gateways::one_of_two_gateways_goes_and_clients_read_on,
    costs::a_sidecar_costs_little,
    release::pods_go_back_to_what_they_were_once_the_label_is_gone,
    release::injected_pods_run_on_after_the_release_is_gone,
    release::helm_3_brings_the_release_and_takes_it_away,
}

/// Runs the first scenario, and the others whose name contains one of these words; returns the
/// number of failures.
pub async fn run(stage: &mut Stage<'_>, wanted: &[String]) -> Result<usize> {
    let is_wanted = |scenario: &&Scenario| {
        wanted.is_empty() || wanted.iter().any(|word| scenario.name.contains(word.as_str()))
    };
    let matches = |word: &&String| ALL.iter().any(|one| one.name.contains(word.as_str()));
    if let Some(unknown) = wanted.iter().find(|word| !matches(word)) {
        bail!("no scenario has {unknown:?} in its name; see --list");
    }
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
