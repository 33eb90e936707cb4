//! Tests against a real control plane: etcd and kube-apiserver, built from source with Go.

mod dataset;
mod rig;

use rig::client::Protocol;
use rig::control_plane::{ControlPlane, User, Version};

#[tokio::test]
async fn smoke() {
    for version in Version::ALL {
        let begun = std::time::Instant::now();
        let plane = ControlPlane::start(version).await.expect("start");
        eprintln!("{version:?} ready in {:?}", begun.elapsed());
        let client = plane.client(User::Admin, Protocol::Http1).expect("client");
        let begun = std::time::Instant::now();
        let data = dataset::Dataset::load(&client).await.expect("data");
        eprintln!("{data:?} in {:?}", begun.elapsed());
        let begun = std::time::Instant::now();
        let load =
            rig::load_data::LoadData { namespace: "load", pods: 1000, pollers: 20, apps: 100 };
        load.load(&client).await.expect("load");
        eprintln!("1000 pods in {:?}", begun.elapsed());
        let list = client.get("/api/v1/namespaces/load/pods").await.expect("list");
        eprintln!("{} bytes per pod", list.body.len() / 1000);
        let counts = plane.request_counts().await.expect("counts");
        eprintln!(
            "{} {} {}",
            counts.ended("LIST", "pods"),
            counts.ended("POST", "pods"),
            counts.open("WATCH", "pods")
        );
    }
}
