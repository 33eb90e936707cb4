//! Tests of the rig: its control plane must survive the faults of the other suites, and leave
//! nothing behind.

use std::path::PathBuf;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::clusters::{Machine, available};
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{Component, ControlPlane, User, Version};
use crate::rig::process::Stopped;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Long enough for a response that comes, and short enough to wait when none comes.
const NO_ANSWER: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_control_plane_keeps_its_data_through_restarts_and_leaves_nothing_behind() {
    if !available(Version::V1_36) {
        return;
    }
    let _machine = Machine::alone().await;
    let plane = ControlPlane::start(Version::V1_36).await.expect("a control plane");
    let client = || plane.client(User::Admin, Protocol::Http2).expect("a client");
    let held = create(&client(), "held").await;
    assert_eq!(first_event(&client()).await["object"], held);

    plane.pause(Component::Apiserver).expect("a pause");
    let get = tokio::time::timeout(NO_ANSWER, client().get(MAPS)).await;
    plane.unpause(Component::Apiserver).expect("an end of the pause");
    assert!(get.is_err(), "a paused apiserver answered: {get:?}");
    assert_eq!(read(&client(), "held").await, held);

    let stopped = plane.stop(Component::Apiserver).expect("a stop");
    assert_eq!(stopped, Stopped::Cleanly(Some(0)));
    plane.kill(Component::Etcd).expect("a kill");
    assert!(client().get(MAPS).await.is_err(), "a stopped apiserver answered");
    plane.start_again(Component::Etcd).expect("a start");
    plane.start_again(Component::Apiserver).expect("a start");
    plane.ready().await.expect("an apiserver");
    assert_eq!(read(&client(), "held").await, held);
    assert!(plane.request_counts().await.expect("metrics").ended("GET", "configmaps") > 0);

    let processes = [Component::Etcd, Component::Apiserver].map(|part| plane.process_id(part));
    let folder = plane.folder().to_owned();
    drop(plane);
    for id in processes {
        let path = PathBuf::from(format!("/proc/{id}"));
        assert!(!path.exists(), "{} is left", path.display());
    }
    assert!(!folder.exists(), "{} is left", folder.display());
}

async fn create(client: &Client, name: &str) -> Value {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let post = Request::new(Method::POST, MAPS).json(&object);
    let answer = client.send(post).await.and_then(crate::rig::client::Answer::successful);
    answer.and_then(|answer| answer.json()).expect("an object")
}

async fn read(client: &Client, name: &str) -> Value {
    let answer = client.get(&format!("{MAPS}/{name}")).await.expect("an answer");
    answer.json().expect("an object")
}

async fn first_event(client: &Client) -> Value {
    let target = format!("{MAPS}?watch=true&fieldSelector=metadata.name%3Dheld");
    let mut watch = client.open(Request::get(&target)).await.expect("a watch");
    let frame = watch.body_mut().frame().await.expect("an event").expect("a frame");
    serde_json::from_slice(frame.data_ref().expect("data")).expect("an event")
}
