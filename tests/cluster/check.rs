//! `listless check` against real apiservers: with nothing installed, with a working injector, and
//! with each fault of an injector.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use http::Method;
use serde_json::{Value, json};

use crate::chart::install::{INJECTOR_NAME, Stage as Chart, TEST_NAME};
use crate::chart::{NAMESPACE, helm::Major};
use crate::clusters::{Machine, available};
use crate::injector::{Stage, WEBHOOKS, pod, replica::Replica};
use crate::rig::client::{Client, Request};
use crate::rig::control_plane::{ControlPlane, User, Version};

const KNOWN_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(250);

/// The command's JSON output and its exit code.
struct Checked {
    code: Option<i32>,
    report: Value,
}

// === impl Checked ===

impl Checked {
    async fn of(kubeconfig: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_listless"));
        command.args(["check", "-o", "json", "--kubeconfig"]).arg(kubeconfig).args(arguments);
        command.env_remove("KUBERNETES_SERVICE_HOST");
        let output = tokio::task::spawn_blocking(move || command.output()).await;
        let output: Output = output.expect("no panic").expect("the binary runs");
        let report = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
        Self { code: output.status.code(), report }
    }

    #[track_caller]
    fn row(&self, name: &str) -> &Value {
        let rows = self.report["checks"].as_array().expect("checks");
        rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}"))
    }

    #[track_caller]
    fn is(&self, name: &str, result: &str, part: &str) {
        let row = self.row(name);
        assert_eq!(row["result"], result, "{row}");
        assert!(row["detail"].as_str().is_some_and(|detail| detail.contains(part)), "{row}");
    }
}

#[tokio::test]
async fn check_finds_nothing_wrong_with_an_empty_cluster_on_1_36() {
    finds_nothing_wrong(Version::V1_36).await;
}

#[tokio::test]
async fn check_finds_nothing_wrong_with_an_empty_cluster_on_1_30() {
    finds_nothing_wrong(Version::V1_30).await;
}

async fn finds_nothing_wrong(version: Version) {
    if !available(version) {
        return;
    }
    let _machine = Machine::beside().await;
    let plane = ControlPlane::start(version).await.expect("a control plane");
    let admin = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let checked = Checked::of(&admin, &["--resource", "deployments.apps"]).await;
    assert_eq!(checked.code, Some(0), "{}", checked.report);
    checked.is("version", "pass", version.release());
    checked.is("features", "pass", "");
    checked.is("permissions", "pass", "admin may list and watch deployments.apps");
    checked.is("webhook", "skipped", "this cluster has no webhook of Listless");
    checked.is("kubelets", "skipped", "there are no nodes");
    checked.is("left-out", "pass", "");

    let nobody = plane.kubeconfig(User::Nobody).expect("a kubeconfig");
    let checked = Checked::of(&nobody, &[]).await;
    assert_eq!(checked.code, Some(0), "{}", checked.report);
    checked.is("permissions", "warn", "nobody may not list and watch pods");
    for name in ["webhook", "sidecars", "image", "kubelets"] {
        checked.is(name, "skipped", "forbidden");
    }
}

#[tokio::test]
async fn check_distinguishes_a_working_injector_from_each_broken_one_on_1_36() {
    tells_broken_injectors(Version::V1_36).await;
}

#[tokio::test]
async fn check_distinguishes_a_working_injector_from_each_broken_one_on_1_30() {
    tells_broken_injectors(Version::V1_30).await;
}

async fn tells_broken_injectors(version: Version) {
    if !available(version) {
        return;
    }
    let _machine = Machine::beside().await;
    let stage = Stage::set(version).await.expect("a stage");
    let admin = stage.plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let bare = Checked::of(&admin, &[]).await;
    assert_eq!(bare.code, Some(1), "{}", bare.report);
    bare.is("webhook", "fail", "has no caBundle yet");
    bare.is("injection", "fail", "gets no sidecar");

    let replica = Replica::start(&stage.plane, &stage.kubeconfig, &[]).await.expect("an injector");
    stage.point_at(&replica).await.expect("a webhook");
    stage.until_injected("shop").await;
    let well = Checked::of(&admin, &["--namespace", "shop"]).await;
    assert_eq!(well.code, Some(0), "{}", well.report);
    well.is("webhook", "pass", &replica.url());
    well.is("certificate", "pass", "the certificate shown is trusted, until ");
    let version = env!("CARGO_PKG_VERSION");
    well.is("injection", "pass", &format!("a pod in shop gets its sidecar, by version {version}"));
    let restricted = Checked::of(&admin, &["--namespace", "restricted"]).await;
    restricted.is("injection", "pass", "a pod in restricted gets its sidecar");
    let quota = Checked::of(&admin, &["--namespace", "quota"]).await;
    quota.is("injection", "pass", "a pod in quota gets its sidecar");
    let stored = stage.admin.get("/api/v1/pods").await.expect("an answer").json().expect("JSON");
    assert_eq!(stored["items"].as_array().map(Vec::len), Some(0), "nothing was stored: {stored}");

    pods_and_nodes(&stage, &admin).await.expect("pods and nodes");
    another_authority(&stage, &replica, &admin).await.expect("another authority");
    drop(replica);
    let gone = Checked::of(&admin, &["--namespace", "shop"]).await;
    assert_eq!(gone.code, Some(1));
    gone.is("certificate", "skipped", "is not reachable from here");
    gone.is("injection", "fail", "a pod in shop gets no sidecar");
}

/// The status that kubelets would write of pods, and of themselves.
async fn pods_and_nodes(stage: &Stage, admin: &Path) -> Result<()> {
    let stored = stage.create("shop", &pod("web")).await?;
    let name = stored["metadata"]["name"].as_str().context("a name")?;
    let path = format!("/api/v1/namespaces/shop/pods/{name}");
    let set = async |path: &str, fields: Value| -> Result<()> {
        let request = Request::new(Method::PATCH, path);
        let request = request.body("application/merge-patch+json", fields.to_string());
        stage.admin.send(request).await?.successful().map(drop)
    };
    let state = |state: Value| {
        let status = json!({"name": "listless-proxy", "image": "i", "imageID": "", "ready": false,
            "restartCount": 0, "state": state});
        json!({"status": {"initContainerStatuses": [status]}})
    };
    let waiting = state(json!({"waiting": {"reason": "ErrImagePull"}}));
    set(&format!("{path}/status"), waiting).await?;
    let checked = Checked::of(admin, &[]).await;
    assert_eq!(checked.code, Some(1));
    checked.is("image", "fail", &format!("ErrImagePull: the pod shop/{name}"));

    let running = state(json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}));
    set(&format!("{path}/status"), running).await?;
    let status = stored["metadata"]["annotations"]["listless.dev/status"].as_str();
    let status = status.context("a status")?.replace(env!("CARGO_PKG_VERSION"), "0.0.1");
    set(&path, json!({"metadata": {"annotations": {"listless.dev/status": status}}})).await?;
    let left = json!({"metadata": {"labels": {"listless.dev/inject": "true"}}});
    let plain = stage.create("elsewhere", &pod("plain")).await?;
    let plain = plain["metadata"]["name"].as_str().context("a name")?.to_owned();
    set(&format!("/api/v1/namespaces/elsewhere/pods/{plain}"), left).await?;
    stage.make("/api/v1/nodes", &json!({"metadata": {"name": "n1"}})).await?;
    let node = json!({"status": {"nodeInfo": {"kubeletVersion": "v1.30.2"}}});
    set("/api/v1/nodes/n1/status", node).await?;
    let checked = Checked::of(admin, &[]).await;
    assert_eq!(checked.code, Some(0), "warnings fail nothing: {}", checked.report);
    checked.is("up-to-date", "warn", &format!("sidecars are of 0.0.1: the pod shop/{name}"));
    checked.is("left-out", "warn", &format!("the pod elsewhere/{plain}"));
    checked.is("kubelets", "warn", "kubernetes/kubernetes#126543");
    checked.is("sidecars", "pass", "1 of 2 pods have one");
    Ok(())
}

/// The apiserver trusts another authority, until the injector publishes its own again.
async fn another_authority(stage: &Stage, replica: &Replica, admin: &Path) -> Result<()> {
    let key = rcgen::KeyPair::generate()?;
    let params = rcgen::CertificateParams::new(vec!["somebody".to_owned()])?;
    let other = STANDARD.encode(params.self_signed(&key)?.pem());
    let webhook = "another-injector";
    let hook = json!({"name": "inject.listless.dev", "admissionReviewVersions": ["v1"],
        "sideEffects": "None", "failurePolicy": "Fail",
        "clientConfig": {"url": replica.url(), "caBundle": other},
        "rules": [{"operations": ["CREATE"], "apiGroups": ["none.example"], "apiVersions": ["v1"],
            "resources": ["none"]}]});
    stage.make(WEBHOOKS, &json!({"metadata": {"name": webhook}, "webhooks": [hook]})).await?;
    let checked = Checked::of(admin, &["--webhook-configuration", webhook]).await;
    assert_eq!(checked.code, Some(1));
    checked.is("webhook", "warn", "fails closed");
    checked.is("certificate", "fail", "shows a certificate that the caBundle does not trust");
    let request = Request::new(Method::DELETE, &format!("{WEBHOOKS}/{webhook}"));
    stage.admin.send(request).await?.successful()?;
    let checked = Checked::of(admin, &["--webhook-configuration", webhook]).await;
    assert_eq!(checked.code, Some(1));
    checked.is("webhook", "fail", "not found");
    Ok(())
}

#[tokio::test]
async fn the_charts_test_has_the_rights_it_needs_and_finds_the_injector_not_running() {
    let Some(stage) = Chart::set(Version::V1_36).await else { return };
    let Some(helm) = stage.helm(Major::Four) else { return };
    let chart = crate::chart::chart();
    let install = ["install", "demo", &chart, "--namespace", NAMESPACE];
    helm.output(&install).expect("an installation");
    // No kubelet runs the pod of `helm test`. Its account is created as Helm does, and the requests
    // use it.
    let settings = ["--namespace", NAMESPACE, "--set", "test.namespace=shop"];
    let rendered = [&["template", "demo", &chart][..], &settings].concat();
    let text = helm.output(&rendered).expect("a rendering");
    let kubeconfig = as_test(&stage.plane, &stage.client, &text).await.expect("an account");
    let name = format!("{NAMESPACE}-{INJECTOR_NAME}");
    let arguments = ["--webhook-configuration", &name, "--namespace", "shop"];
    let checked = Checked::of(&kubeconfig, &arguments).await;
    assert_eq!(checked.code, Some(1), "{}", checked.report);
    let who = format!("system:serviceaccount:{NAMESPACE}:{TEST_NAME} may not list and watch pods");
    checked.is("permissions", "warn", &who);
    checked.is("webhook", "fail", "has no caBundle yet");
    checked.is("injector", "fail", "0 of 1 ready");
    checked.is("injector-permissions", "pass", "the injector has all 5 permissions it needs");
    checked.is("injection", "fail", "a pod in shop gets no sidecar");
    checked.is("sidecars", "pass", "");
    checked.is("kubelets", "skipped", "there are no nodes");
    let broken = json!([{"op": "replace", "path": "/rules", "value": []}]).to_string();
    let role = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}");
    let request = Request::new(Method::PATCH, &role).body("application/json-patch+json", broken);
    stage.client.send(request).await.expect("an answer").successful().expect("changed");
    // The apiserver sees it through its own watch.
    let deadline = Instant::now() + KNOWN_LIMIT;
    let checked = loop {
        let checked = Checked::of(&kubeconfig, &arguments).await;
        if checked.row("injector-permissions")["result"] == "fail" || Instant::now() > deadline {
            break checked;
        }
        tokio::time::sleep(POLL).await;
    };
    let what = format!("patch mutatingwebhookconfigurations {name}");
    checked.is("injector-permissions", "fail", &what);
}

/// Creates the objects that the chart creates for its test, and a kubeconfig of that service
/// account.
async fn as_test(plane: &ControlPlane, client: &Client, rendered: &str) -> Result<PathBuf> {
    for document in rendered.split("\n---\n").filter(|text| text.contains("helm.sh/hook")) {
        let object: Value = serde_saphyr::from_str(document)?;
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let path = match object["kind"].as_str().unwrap_or_default() {
            "ServiceAccount" => format!("/api/v1/namespaces/{namespace}/serviceaccounts"),
            "ClusterRole" => format!("{rbac}/clusterroles"),
            "ClusterRoleBinding" => format!("{rbac}/clusterrolebindings"),
            "Role" => format!("{rbac}/namespaces/{namespace}/roles"),
            "RoleBinding" => format!("{rbac}/namespaces/{namespace}/rolebindings"),
            _ => continue,
        };
        client.send(Request::new(Method::POST, &path).json(&object)).await?.successful()?;
    }
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{TEST_NAME}/token");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"});
    let answer = client.send(Request::new(Method::POST, &path).json(&review)).await?;
    let answer = answer.successful()?.json()?;
    let token = answer["status"]["token"].as_str().context("a token")?;
    let kubeconfig = plane.folder().join("test.kubeconfig");
    std::fs::write(&kubeconfig, plane.server()?.kubeconfig(token))?;
    Ok(kubeconfig)
}
