//! The webhook with a real apiserver: pods get their sidecar on creation.
//!
//! The apiserver has its ServiceAccount plugin here. Pods then come to the webhook as in a cluster
//! with nodes, and are reviewed again after other webhooks.

mod other;
pub(crate) mod replica;

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use http::Method;
use listless::tls;
use serde_json::{Value, json};

use self::{other::Other, replica::Replica};
use crate::clusters::{Machine, available};
use crate::rig::client::{Answer, Client, Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::wait::until;

pub(crate) const WEBHOOKS: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// An apiserver learns of changed webhooks by a watch.
const KNOWN_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(250);

#[tokio::test]
async fn the_webhook_injects_sidecars_into_pods_on_1_36() {
    injects_sidecars_into_pods(Version::V1_36).await;
}

#[tokio::test]
async fn the_webhook_injects_sidecars_into_pods_on_1_30() {
    injects_sidecars_into_pods(Version::V1_30).await;
}

async fn injects_sidecars_into_pods(version: Version) {
    if !available(version) {
        return;
    }
    let _machine = Machine::beside().await;
    let stage = Stage::set(version).await.expect("a stage");
    let replica = Replica::start(&stage.plane, &stage.kubeconfig, &[]).await.expect("an injector");
    stage.point_at(&replica).await.expect("a webhook");
    stage.until_injected("shop").await;

    let stored = stage.create("shop", &pod("web")).await.expect("a pod");
    is_injected(&stored);
    let skipped = [
        json!({"metadata": {"labels": {"listless.dev/inject": "false"}}}),
        json!({"spec": {"hostNetwork": true}}),
        json!({"spec": {"automountServiceAccountToken": false}}),
    ];
    for part in skipped {
        let stored = stage.create("shop", &merged(pod("left"), &part)).await.expect("a pod");
        assert!(stored["spec"].get("initContainers").is_none(), "{part}");
    }
    let stored = stage.create("elsewhere", &pod("unlabelled")).await.expect("a pod");
    assert!(stored["spec"].get("initContainers").is_none());

    let stored = stage.create("restricted", &restricted_pod()).await.expect("a pod");
    is_injected(&stored);
    let refused = stage.create("restricted", &pod("plain")).await.expect_err("refused");
    assert!(!refused.to_string().contains("listless-proxy"), "{refused}");

    let stored = stage.create("quota", &pod("counted")).await;
    stored.expect_err("the quota wants limits of the workload's own container");
    let limited = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
    let mut counted = pod("counted");
    counted["spec"]["containers"][0]["resources"] = limited;
    is_injected(&stage.create("quota", &counted).await.expect("a pod"));

    let wrong = json!({"metadata": {"annotations": {"listless.dev/mode": "never"}}});
    let answer = stage.post("shop", &merged(pod("wrong"), &wrong), "").await.expect("an answer");
    let warned = answer.header("warning").expect("a warning").to_owned();
    assert!(warned.contains("not injected: an annotation cannot be used"), "{warned}");
    let dry = stage.post("shop", &pod("dry"), "?dryRun=All").await.expect("an answer");
    is_injected(&dry.successful().expect("a pod").json().expect("JSON"));

    drop(replica);
    let stored = stage.create("shop", &pod("without")).await.expect("pods start without it");
    assert!(stored["spec"].get("initContainers").is_none());
}

#[tokio::test]
async fn pods_start_without_a_sidecar_while_no_injector_is_trusted() {
    let version = Version::V1_36;
    if !available(version) {
        return;
    }
    let _machine = Machine::beside().await;
    // Nobody listens at the address of this stage's webhook.
    let stage = Stage::set(version).await.expect("a stage");
    let stored = stage.create("shop", &pod("without")).await.expect("a pod");
    assert!(stored["spec"].get("initContainers").is_none());
    let down = stage.failed_open().await;
    assert!(down > 0.0, "the apiserver counts it");
    let past = SystemTime::now() - 2 * tls::LEAF_LIFETIME;
    let expired = Other::start_as_of("never-added", past).await.expect("a webhook");
    stage.put_webhook("zz-expired", &expired.url(), Some(expired.bundle())).await.expect("known");
    until("the apiserver calls both", KNOWN_LIMIT, async || {
        let before = stage.failed_open().await;
        let stored = stage.dry_run("shop", &pod("both")).await?;
        let containers = stored["spec"]["containers"].as_array().map(Vec::len);
        assert_eq!((containers, stored["spec"].get("initContainers")), (Some(1), None));
        Ok(stage.failed_open().await - before >= 2.0)
    })
    .await
    .expect("both fail open");
}

#[tokio::test]
async fn containers_of_other_webhooks_are_served_too() {
    let version = Version::V1_36;
    if !available(version) {
        return;
    }
    let _machine = Machine::beside().await;
    let stage = Stage::set(version).await.expect("a stage");
    let replica = Replica::start(&stage.plane, &stage.kubeconfig, &[]).await.expect("an injector");
    stage.point_at(&replica).await.expect("a webhook");
    stage.until_injected("shop").await;
    // Webhooks are called in the order of their names. This one therefore comes after the
    // injector's.
    let other = Other::start("added-later").await.expect("another webhook");
    stage.put_webhook("zz-other", &other.url(), Some(other.bundle())).await.expect("a webhook");
    let mut stored = Value::Null;
    until("both webhooks change a pod", KNOWN_LIMIT, async || {
        stored = stage.dry_run("shop", &pod("both")).await.unwrap_or_default();
        Ok(stored["spec"]["containers"].as_array().is_some_and(|containers| containers.len() == 2))
    })
    .await
    .expect("a changed pod");
    is_injected(&stored);
    let added = &stored["spec"]["containers"][1];
    assert_eq!(added["name"], "added-later");
    assert_eq!(added["env"][0]["value"], "127.0.0.1", "{added}");
    assert_eq!(account_volume(added), Some("listless-sa"), "{added}");
    let proxies = stored["spec"]["initContainers"].as_array().expect("init containers");
    assert_eq!(proxies.len(), 1, "one sidecar");
}

#[tokio::test]
async fn two_replicas_serve_one_webhook_through_changes_of_its_authority() {
    let version = Version::V1_36;
    if !available(version) {
        return;
    }
    let _machine = Machine::beside().await;
    let stage = Stage::set(version).await.expect("a stage");
    let short = ["--authority-lifetime", "24s", "--certificate-lifetime", "10s"];
    let (one, other) = tokio::join!(
        Replica::start(&stage.plane, &stage.kubeconfig, &short),
        Replica::start(&stage.plane, &stage.kubeconfig, &short),
    );
    let (one, other) = (one.expect("an injector"), other.expect("another one"));
    stage.point_at(&one).await.expect("a webhook");
    stage.until_injected("shop").await;
    let (first, begun) = (stage.bundle().await, Instant::now());
    let (mut asked, mut turn) = (0, 0);
    let changed = loop {
        // Both are called in turns. Each must be trusted after any action of the other.
        turn += 1;
        let replica = if turn % 2 == 0 { &one } else { &other };
        stage.point_at(replica).await.expect("a webhook");
        let answered = replica.asked_directly(&stage.bundle().await).await;
        answered.unwrap_or_else(|error| panic!("after {:?}: {error:#}", begun.elapsed()));
        let stored = stage.dry_run("shop", &pod("steady")).await.expect("a pod");
        is_injected(&stored);
        asked += 1;
        let bundle = stage.bundle().await;
        // The first authority ends only after the next one has signed for a while.
        if !bundle.contains(first.lines().nth(5).unwrap_or("nothing")) {
            break begun.elapsed();
        }
        assert!(begun.elapsed() < Duration::from_secs(90), "no other authority");
        tokio::time::sleep(POLL).await;
    };
    drop(one);
    stage.point_at(&other).await.expect("a webhook");
    is_injected(&stage.dry_run("shop", &pod("alone")).await.expect("a pod"));
    eprintln!(
        "proof: the injector: {asked} pods injected by two replicas while the authority changed \
         within {changed:.1?}"
    );
}

/// A control plane, and the objects that an injector needs there.
pub(crate) struct Stage {
    pub(crate) plane: ControlPlane,
    pub(crate) admin: Client,
    /// The kubeconfig of the injector.
    pub(crate) kubeconfig: std::path::PathBuf,
}

// === impl Stage ===

impl Stage {
    pub(crate) async fn set(version: Version) -> Result<Self> {
        let plane = ControlPlane::start_admitting(version).await?;
        let admin = plane.client(User::Admin, Protocol::Http1)?;
        let stage = Self { kubeconfig: plane.folder().join("injector.kubeconfig"), plane, admin };
        let on = json!({"listless.dev/injection": "enabled"});
        let restricted = json!({
            "listless.dev/injection": "enabled",
            "pod-security.kubernetes.io/enforce": "restricted",
        });
        for (name, labels) in [
            ("listless", json!({})),
            ("elsewhere", json!({})),
            ("shop", on.clone()),
            ("quota", on),
            ("restricted", restricted),
        ] {
            let namespace = json!({"metadata": {"name": name, "labels": labels}});
            stage.make("/api/v1/namespaces", &namespace).await?;
            let account = json!({"metadata": {"name": "default"}});
            stage.make(&format!("/api/v1/namespaces/{name}/serviceaccounts"), &account).await?;
        }
        let hard = json!({"limits.cpu": "8", "limits.memory": "8Gi", "pods": "9"});
        let quota = json!({"metadata": {"name": "all"}, "spec": {"hard": hard}});
        let quotas = "/api/v1/namespaces/quota/resourcequotas";
        stage.make(quotas, &quota).await?;
        // No controller runs here to compute the quota.
        let used = json!({"limits.cpu": "0", "limits.memory": "0", "pods": "0"});
        let counted = json!({"status": {"hard": hard, "used": used}});
        let request = Request::new(Method::PATCH, &format!("{quotas}/all/status"));
        let request = request.body("application/merge-patch+json", counted.to_string());
        stage.admin.send(request).await?.successful()?;
        stage.grant().await?;
        stage.put_webhook("listless-injector", "https://127.0.0.1:1/inject", None).await?;
        Ok(stage)
    }

    /// The injector's own account with exactly its documented rights.
    async fn grant(&self) -> Result<()> {
        let name = json!({"name": "injector"});
        let accounts = "/api/v1/namespaces/listless/serviceaccounts";
        self.make(accounts, &json!({"metadata": name})).await?;
        let secret = json!({"metadata": {"name": "listless-injector-certificates"}});
        self.make("/api/v1/namespaces/listless/secrets", &secret).await?;
        let subjects =
            json!([{"kind": "ServiceAccount", "name": "injector", "namespace": "listless"}]);
        let group = "rbac.authorization.k8s.io";
        let secrets = json!([{"apiGroups": [""], "resources": ["secrets"],
            "resourceNames": ["listless-injector-certificates"], "verbs": ["get", "update"]}]);
        let webhooks = json!([{"apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["mutatingwebhookconfigurations"],
            "resourceNames": ["listless-injector"], "verbs": ["get", "patch"]}]);
        for (kind, path, rules) in [
            ("Role", format!("{ROLES}/namespaces/listless/role"), secrets),
            ("ClusterRole", format!("{ROLES}/clusterrole"), webhooks),
        ] {
            self.make(&format!("{path}s"), &json!({"metadata": name, "rules": rules})).await?;
            let role = json!({"apiGroup": group, "kind": kind, "name": "injector"});
            let binding = json!({"metadata": name, "subjects": subjects, "roleRef": role});
            self.make(&format!("{path}bindings"), &binding).await?;
        }
        let request = json!({"spec": {"expirationSeconds": 3600}});
        let answer = self.make(&format!("{accounts}/injector/token"), &request).await?;
        let token = answer["status"]["token"].as_str().context("a token")?;
        std::fs::write(&self.kubeconfig, self.plane.server()?.kubeconfig(token))?;
        Ok(())
    }

    async fn put_webhook(&self, name: &str, url: &str, bundle: Option<String>) -> Result<()> {
        let mut client = json!({"url": url});
        if let Some(bundle) = bundle {
            client["caBundle"] = json!(bundle);
        }
        let webhook = json!({
            "name": "inject.listless.dev",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "IfNeeded",
            "timeoutSeconds": 5,
            "clientConfig": client,
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["pods"], "scope": "Namespaced"}],
            "namespaceSelector": {"matchLabels": {"listless.dev/injection": "enabled"}},
            "objectSelector": {"matchExpressions": [
                {"key": "listless.dev/inject", "operator": "NotIn", "values": ["false"]},
            ]},
        });
        let object = json!({"metadata": {"name": name}, "webhooks": [webhook]});
        self.make(WEBHOOKS, &object).await.map(drop)
    }

    /// Lets the apiserver call this replica, as a Service would.
    pub(crate) async fn point_at(&self, replica: &Replica) -> Result<()> {
        let change = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": replica.url()}]);
        let request = Request::new(Method::PATCH, &format!("{WEBHOOKS}/listless-injector"));
        let request = request.body("application/json-patch+json", change.to_string());
        self.admin.send(request).await?.successful().map(drop)
    }

    /// The calls of webhooks that failed, and after which the apiserver went on.
    async fn failed_open(&self) -> f64 {
        let counts = self.plane.request_counts().await.expect("metrics");
        counts.sum("apiserver_admission_webhook_fail_open_count", &[])
    }

    /// The authorities by which the apiserver trusts the injector.
    async fn bundle(&self) -> String {
        let answer =
            self.admin.get(&format!("{WEBHOOKS}/listless-injector")).await.expect("an answer");
        let object = answer.json().expect("JSON");
        let bundle = object["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap_or("");
        replica::decoded(bundle)
    }

    pub(crate) async fn make(&self, path: &str, object: &Value) -> Result<Value> {
        let request = Request::new(Method::POST, path).json(object);
        self.admin.send(request).await?.successful()?.json()
    }

    async fn post(&self, namespace: &str, pod: &Value, query: &str) -> Result<Answer> {
        let path = format!("/api/v1/namespaces/{namespace}/pods{query}");
        self.admin.send(Request::new(Method::POST, &path).json(pod)).await
    }

    pub(crate) async fn create(&self, namespace: &str, pod: &Value) -> Result<Value> {
        self.post(namespace, pod, "").await?.successful()?.json()
    }

    pub(crate) async fn dry_run(&self, namespace: &str, pod: &Value) -> Result<Value> {
        self.post(namespace, pod, "?dryRun=All").await?.successful()?.json()
    }

    /// Waits until the apiserver knows the webhook and trusts it.
    pub(crate) async fn until_injected(&self, namespace: &str) {
        until("pods are injected", KNOWN_LIMIT, async || {
            let stored = self.dry_run(namespace, &pod("first")).await?;
            Ok(stored["spec"]["initContainers"].is_array())
        })
        .await
        .expect("an injected pod");
    }
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "metadata": {"generateName": format!("{name}-")},
        "spec": {"containers": [{"name": "web", "image": "example.com/web"}]},
    })
}

fn restricted_pod() -> Value {
    let container = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let mut pod = pod("restricted");
    pod["spec"]["containers"][0]["securityContext"] = container;
    let of_pod = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    pod["spec"]["securityContext"] = of_pod;
    pod
}

/// A pod with more in its metadata or spec.
fn merged(mut pod: Value, part: &Value) -> Value {
    for half in ["metadata", "spec"] {
        for (name, value) in part[half].as_object().into_iter().flatten() {
            pod[half][name] = value.clone();
        }
    }
    pod
}

/// The required parts of the stored pod, whatever else was changed.
fn is_injected(stored: &Value) {
    let sidecar = &stored["spec"]["initContainers"][0];
    assert_eq!(sidecar["name"], "listless-proxy", "{stored}");
    assert_eq!(sidecar["restartPolicy"], "Always");
    let original = account_volume(sidecar).expect("the sidecar has the account itself");
    assert!(original.starts_with("kube-api-access-"), "{original}");
    let container = &stored["spec"]["containers"][0];
    assert_eq!(account_volume(container), Some("listless-sa"), "{container}");
    assert_eq!(
        container["env"][0],
        json!({"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"})
    );
    assert_eq!(container["env"][1]["value"], "16443");
    let mounts = sidecar["volumeMounts"].as_array().expect("mounts");
    let at_account = mounts.iter().filter(|mount| mount["mountPath"] == ACCOUNT).count();
    assert_eq!(at_account, 1, "{sidecar}");
    let status = stored["metadata"]["annotations"]["listless.dev/status"].as_str();
    assert!(status.is_some_and(|status| status.contains("\"containers\":[\"web\"")), "{status:?}");
}

fn account_volume(container: &Value) -> Option<&str> {
    let mounts = container["volumeMounts"].as_array()?;
    mounts.iter().find(|mount| mount["mountPath"] == ACCOUNT)?["name"].as_str()
}
