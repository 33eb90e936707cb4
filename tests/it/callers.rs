//! Callers of a gateway, each with its own token: the state they share, and the state they never
//! share.

mod instances;
mod leaks;
mod names;
mod rights;

use listless::simulator::{Rule, User};

use crate::harness::{Setup, TestProxy, settle};

/// May read and write all pods.
const ANN: &str = "anns-token";
/// May read pods in the namespace `a`, and nothing else.
const BOB: &str = "bobs-token";
/// Is authenticated and has no rights.
const EVE: &str = "eves-token";

const PODS: &str = "/api/v1/pods";
const IN_A: &str = "/api/v1/namespaces/a/pods";
const IN_B: &str = "/api/v1/namespaces/b/pods";
const WEB: &str = "/api/v1/namespaces/a/pods/web-0";

fn on_pods(verbs: &[&str]) -> Rule {
    Rule::new(verbs, &["pods"])
}

/// The same apiserver for every gateway made from it; nothing has been read yet.
fn admitted(setup: Setup) -> Setup {
    let simulator = setup.simulator();
    simulator.admit(ANN, User::with_rules("ann", vec![on_pods(&[])]));
    let in_a = on_pods(&["get", "list", "watch"]).within("a");
    simulator.admit(BOB, User::with_rules("bob", vec![in_a]));
    simulator.admit(EVE, User::with_rules("eve", Vec::new()));
    setup.gateway()
}

/// A gateway that has served no reads yet.
fn gateway() -> TestProxy {
    admitted(Setup::default()).in_memory()
}

/// A gateway that holds all pods, because Ann polls them.
async fn warmed() -> TestProxy {
    let proxy = gateway();
    warm(&proxy).await;
    proxy
}

async fn warm(proxy: &TestProxy) {
    let ann = proxy.bearer(ANN);
    ann.get(PODS).await;
    let second = ann.get(PODS).await;
    assert!(second.is_hit(), "{}", second.summary());
    settle().await;
    proxy.upstream.forget();
}
