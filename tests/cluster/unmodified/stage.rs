//! A control plane of this suite's own, whose apiserver may be ended, and namespaces for the tests.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use http::Method;
use serde_json::json;

use crate::relay::Relay;
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{Component, ControlPlane, User, Version};
use crate::rig::proxy_process::ProxyProcess;
use crate::rig::wait::until_hit;

/// The duration of a cut between Listless and the apiserver.
const CUT: Duration = Duration::from_secs(1);
/// After a cut the reflector may pause for longer than memory answers by default.
const CONFIGURATION: &str = "\
apiVersion: listless.dev/v1alpha1
kind: ProxyConfiguration
cache:
  rules:
    - {resources: [pods, configmaps], start: onDemand, freshness: session, maxStaleness: 1m}
    - {resources: ['*'], start: onDemand, freshness: session, maxStaleness: 5s}
";
/// A replica has one form, and is there once it was asked for in it.
const FORMS: [&str; 2] = [JSON, "application/vnd.kubernetes.protobuf"];
const JSON: &str = "application/json";
const WARM_LIMIT: Duration = Duration::from_secs(60);

/// The control plane.
#[derive(Debug)]
pub struct Stage {
    plane: ControlPlane,
}

/// One test's namespace, with a Listless that holds its pods and config maps.
#[derive(Debug)]
pub struct Scene<'a> {
    /// The control plane.
    pub plane: &'a ControlPlane,
    /// Listless in front of it.
    pub proxy: ProxyProcess,
    /// The administrator, directly at the apiserver.
    pub straight: Client,
    /// The namespace of the test.
    pub namespace: &'static str,
    /// The kubeconfig of Listless: to the apiserver through the relay.
    pub relayed: PathBuf,
    relay: Relay,
}

/// A fault of the link between Listless and the apiserver while objects change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Connections end, and for a second none can be made.
    Cut,
    /// The apiserver is killed and started again, for everybody.
    Restart,
}

// === impl Stage ===

impl Stage {
    /// Starts a control plane.
    pub async fn load(version: Version) -> Result<Self> {
        Ok(Self { plane: ControlPlane::start(version).await? })
    }

    /// Makes a namespace.
    pub async fn namespace(&self, name: &str) -> Result<()> {
        let object = json!({"metadata": {"name": name}});
        let post = Request::new(Method::POST, "/api/v1/namespaces").json(&object);
        self.plane.client(User::Admin, Protocol::Http1)?.send(post).await?.successful().map(drop)
    }

    /// Makes a namespace, and starts a Listless that answers reads of it from memory in each form.
    pub async fn scene(&self, namespace: &'static str) -> Result<Scene<'_>> {
        self.scene_in(namespace, &FORMS).await
    }

    /// The same, but only reads in JSON are answered from memory so far.
    pub async fn scene_in_json(&self, namespace: &'static str) -> Result<Scene<'_>> {
        self.scene_in(namespace, &[JSON]).await
    }

    async fn scene_in(&self, namespace: &'static str, forms: &[&str]) -> Result<Scene<'_>> {
        let plane = &self.plane;
        let straight = plane.client(User::Admin, Protocol::Http1)?;
        self.namespace(namespace).await?;
        let server = plane.server()?;
        let relay = Relay::start(server.authority()).await?;
        let relayed = plane.folder().join(format!("{namespace}.kubeconfig"));
        let text = server.kubeconfig(&User::Admin.token());
        std::fs::write(&relayed, text.replace(server.authority(), &relay.address().to_string()))?;
        let proxy = ProxyProcess::start(&relayed, Some(CONFIGURATION)).await?;
        let scene = Scene { plane, proxy, straight, namespace, relayed, relay };
        scene.warm(forms).await?;
        Ok(scene)
    }
}

// === impl Scene ===

impl Scene<'_> {
    /// The path of a collection in the namespace.
    pub fn collection(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.namespace)
    }

    /// Polls as another workload would, until memory answers.
    async fn warm(&self, forms: &[&str]) -> Result<()> {
        let client = self.proxy.client(Protocol::Http1);
        let in_each = |resource| forms.iter().map(move |form| (resource, *form));
        for (resource, form) in ["pods", "configmaps"].into_iter().flat_map(in_each) {
            let list = Request::get(&self.collection(resource)).header("accept", form);
            let warm = until_hit(&client, &list, WARM_LIMIT).await;
            warm.with_context(|| self.proxy.log())?;
        }
        Ok(())
    }

    /// Runs a fault and waits until it is over.
    pub async fn suffer(&self, fault: Fault) -> Result<()> {
        match fault {
            Fault::Cut => self.relay.cut(CUT).await,
            Fault::Restart => {
                self.plane.kill(Component::Apiserver)?;
                self.plane.start_again(Component::Apiserver)?;
                self.plane.ready().await?;
            }
        }
        Ok(())
    }

    /// The number of watches of pods and config maps that are open at the apiserver.
    pub async fn upstream_watches(&self) -> Result<u64> {
        let counts = self.plane.request_counts().await?;
        Ok(counts.open("WATCH", "pods") + counts.open("WATCH", "configmaps"))
    }
}
