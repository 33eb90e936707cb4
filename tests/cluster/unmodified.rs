//! Unmodified clients of six languages follow objects through Listless, with and without faults.
//!
//! Each program runs twice at a time, directly and through `listless local`, while objects change.
//! In the end every copy it keeps must equal the real state. Through Listless it may report only
//! those errors that it also reports without it.

mod churn;
pub mod clients;
mod kubectl;
mod plain;
mod play;
mod program;
mod reflectors;
pub mod stage;

use kubectl::Side;
use play::{Play, Served};
use program::Follower;
use stage::{Fault, Stage};

use crate::rig::control_plane::Version;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fabric8_7_follows_from_memory_through_a_cut_and_a_restart() {
    let Some(program) = clients::fabric8("fabric8 7.8.0", "7.8.0") else { return };
    Play {
        version: Version::V1_36,
        namespace: "fabric8-7",
        faults: &[Fault::Cut, Fault::Restart],
        from_memory: true,
        relists: false,
    }
    .perform(&program)
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fabric8_6_follows_from_memory_through_a_cut() {
    let Some(program) = clients::fabric8("fabric8 6.14.0", "6.14.0") else { return };
    Play {
        version: Version::V1_30,
        namespace: "fabric8-6",
        faults: &[Fault::Cut],
        from_memory: true,
        relists: false,
    }
    .perform(&program)
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_go_informers_with_streamed_lists_follow_from_memory_through_a_cut_and_a_restart() {
    let Some(program) = clients::client_go("client-go WatchList", "informers", true) else {
        return;
    };
    Play {
        version: Version::V1_36,
        namespace: "client-go-streamed",
        faults: &[Fault::Cut, Fault::Restart],
        from_memory: true,
        relists: false,
    }
    .perform(&program)
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_go_informers_with_plain_lists_follow_from_memory_through_a_cut() {
    let Some(program) = clients::client_go("client-go", "informers", false) else { return };
    Play {
        version: Version::V1_36,
        namespace: "client-go-listed",
        faults: &[Fault::Cut],
        from_memory: true,
        relists: false,
    }
    .perform(&program)
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_runtime_manager_follows_from_memory_through_a_cut_and_a_restart() {
    let Some(program) = clients::client_go("controller-runtime", "manager", true) else { return };
    Play {
        version: Version::V1_36,
        namespace: "controller-runtime",
        faults: &[Fault::Cut, Fault::Restart],
        from_memory: true,
        relists: false,
    }
    .perform(&program)
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_go_informers_of_metadata_and_dynamic_ones_follow_through_listless() {
    let Some(program) = clients::client_go("client-go metadata", "metadata", true) else { return };
    of_metadata("client-go-metadata").perform(&program).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_runtime_manager_of_metadata_follows_through_listless() {
    let name = "controller-runtime metadata";
    let Some(program) = clients::client_go(name, "metadata-manager", true) else { return };
    of_metadata("manager-of-metadata").perform(&program).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_prints_the_same_through_listless_and_directly() {
    let Some(program) = clients::kubectl() else { return };
    let Some(stage) = Stage::take(Version::V1_36).await else { return };
    let scene = stage.scene("kubectl-b").await.expect("a scene");
    stage.namespace("kubectl-a").await.expect("a namespace");
    let straight = Side::new(&scene, &program, "kubectl-a", false).expect("a side");
    let through = Side::new(&scene, &program, "kubectl-b", true).expect("a side");
    let before = scene.proxy.metrics().await.expect("metrics");
    let straight = straight.play().await.expect("a whole script");
    let through = through.play().await.expect("a whole script");
    let served = Served::between(&before, &scene.proxy.metrics().await.expect("metrics"));
    eprintln!("proof: kubectl on {}: {} commands; {served}", Version::V1_36.name(), through.len());
    kubectl::compare(&straight, &through).expect("the same words");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_informer_and_stream_follow_from_memory_through_a_cut() {
    let Some(program) = clients::python() else { return };
    Play {
        version: Version::V1_36,
        namespace: "python",
        faults: &[Fault::Cut],
        from_memory: true,
        relists: true,
    }
    .perform(&program)
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_javascript_informer_follows_from_memory_through_a_cut() {
    let Some(program) = clients::node() else { return };
    Play {
        version: Version::V1_36,
        namespace: "node",
        faults: &[Fault::Cut],
        from_memory: true,
        relists: false,
    }
    .perform(&program)
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_java_informers_follow_from_memory_through_a_cut() {
    let Some(program) = clients::java() else { return };
    Play {
        version: Version::V1_36,
        namespace: "java",
        faults: &[Fault::Cut],
        from_memory: true,
        relists: false,
    }
    .perform(&program)
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_rs_reflectors_follow_from_memory_through_a_cut_and_a_restart() {
    Play {
        version: Version::V1_36,
        namespace: "kube-rs",
        faults: &[Fault::Cut, Fault::Restart],
        from_memory: true,
        relists: false,
    }
    .perform(&Follower::KubeRs)
    .await;
}

/// A play of clients that ask for metadata in protobuf.
fn of_metadata(namespace: &'static str) -> Play {
    Play { version: Version::V1_36, namespace, faults: &[], from_memory: true, relists: false }
}
