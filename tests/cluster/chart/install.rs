//! The chart on a real apiserver. Every object is accepted, and the rights match the documentation.
//! Upgrades keep the fields that the injector writes, and nothing is left behind.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::helm::{Helm, Major, custom_resources};
use super::objects::{Locations, read, said};
use super::{EXAMPLES, NAMESPACE, RELEASE, chart, example, inventory, render};
use crate::clusters::{Machine, available, skipped};
use crate::rig::artifact::Built;
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::proxy_process::ProxyProcess;

/// The time after which the apiserver applies a new policy or a new definition.
pub(super) const SETTLE_LIMIT: Duration = Duration::from_secs(60);
pub(super) const POLL: Duration = Duration::from_millis(200);
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const WEBHOOK: &str = "listless-system-demo-listless-injector";
const SECRET: &str = "demo-listless-injector-certificate";
const INJECTOR: &str = "system:serviceaccount:listless-system:demo-listless-injector";
pub(crate) const INJECTOR_NAME: &str = "demo-listless-injector";
pub(crate) const TEST_NAME: &str = "demo-listless-test";
const GATEWAY_NAME: &str = "demo-listless-gateway";
const FLOW: &str = "listless-system-demo-listless-gateway";
const GATEWAY: &str = "system:serviceaccount:listless-system:demo-listless-gateway";

/// A control plane of its own that knows the kinds the chart may create.
pub(crate) struct Stage {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
    _machine: Machine,
}

#[tokio::test]
async fn the_apiserver_accepts_every_rendered_object_on_1_36() {
    takes_every_object(Version::V1_36).await;
}

#[tokio::test]
async fn the_apiserver_accepts_every_rendered_object_on_1_30() {
    takes_every_object(Version::V1_30).await;
}

async fn takes_every_object(version: Version) {
    let Some(stage) = Stage::set(version).await else { return };
    let Some(helm) = Helm::get(Major::Four, None) else { return };
    let places = Locations::read(&stage.client).await.expect("discovery");
    let mut taken = 0;
    for name in EXAMPLES {
        for object in read(&render::render(&helm, name, "1.33.0")).expect("YAML") {
            let path = places.path(&object, NAMESPACE).expect("a path");
            let query = "fieldManager=helm&dryRun=All&fieldValidation=Strict";
            let request = Request::new(Method::PATCH, &format!("{path}?{query}"));
            let request = request.body("application/apply-patch+yaml", object.to_string());
            let answer = stage.client.send(request).await.expect("an answer");
            let what = format!("{name}: {}: {}", said(&object), answer.excerpt());
            assert!(answer.status.is_success(), "{what}");
            assert_eq!(answer.header("Warning"), None, "{what}");
            taken += 1;
        }
    }
    eprintln!("proof: chart: {taken} objects taken strictly by {}", version.release());
}

#[tokio::test]
async fn a_release_is_installed_upgraded_and_removed_without_a_trace_on_1_36() {
    for major in Major::ALL {
        comes_and_goes(Version::V1_36, major).await;
    }
}

#[tokio::test]
async fn a_release_is_installed_upgraded_and_removed_without_a_trace_on_1_30() {
    for major in Major::ALL {
        comes_and_goes(Version::V1_30, major).await;
    }
}

async fn comes_and_goes(version: Version, major: Major) {
    let Some(stage) = Stage::set(version).await else { return };
    let Some(helm) = stage.helm(major) else { return };
    let before = inventory::everything(&stage.client).await.expect("an inventory");

    let (chart, values) = (chart(), example("full"));
    let in_namespace = [RELEASE, &chart, "--namespace", NAMESPACE, "--values", &values];
    let install = [["install"].as_slice(), &in_namespace].concat();
    let notes = helm.output(&install).expect("an installation");
    assert!(notes.contains("kubectl label namespace"), "{notes}");
    let installed = inventory::everything(&stage.client).await.expect("an inventory");
    let made = installed.difference(&before).count();
    assert!(made > 25, "{made} objects: {:?}", installed.difference(&before));

    stage.keep_house().await.expect("what the injector writes");
    stage.has_narrow_rights().await.expect("narrow rights");
    let more = ["--set", "injector.replicas=3", "--set", "injector.webhook.timeoutSeconds=7"];
    let upgrade = [["upgrade"].as_slice(), &in_namespace, &more].concat();
    helm.output(&upgrade).expect("an upgrade");
    stage.is_as_configured(3, 7).await.expect("an upgraded release");
    helm.output(&["rollback", RELEASE, "1", "--namespace", NAMESPACE]).expect("a rollback");
    stage.is_as_configured(2, 3).await.expect("a release as it was");

    let goes = stage.version_now().await.expect("a version");
    helm.output(&["uninstall", RELEASE, "--namespace", NAMESPACE]).expect("an end");
    // Helm 3 installs webhooks last. They fail open, which covers this order.
    if major == Major::Four {
        stage.webhook_went_first(&goes).await.expect("an order");
    }
    let after = inventory::everything(&stage.client).await.expect("an inventory");
    let left: BTreeSet<_> = after.symmetric_difference(&before).collect();
    assert!(left.is_empty(), "left behind or lost: {left:?}");
    eprintln!(
        "proof: chart: {made} objects of Helm {major:?} on {} installed, upgraded, rolled back and \
         gone; 0 of {} left",
        version.release(),
        after.len()
    );
}

#[tokio::test]
async fn two_releases_of_one_name_live_in_two_namespaces() {
    let Some(stage) = Stage::set(Version::V1_36).await else { return };
    let Some(helm) = stage.helm(Major::Four) else { return };
    let (chart, values) = (chart(), example("full"));
    for namespace in [NAMESPACE, "second"] {
        stage.namespace(namespace, &json!({})).await.expect("a namespace");
        let arguments = ["install", RELEASE, &chart, "--namespace", namespace, "--values", &values];
        helm.output(&arguments).unwrap_or_else(|error| panic!("{namespace}: {error}"));
    }
}

#[tokio::test]
async fn a_pod_without_its_requested_sidecar_gets_a_warning_and_starts() {
    let Some(stage) = Stage::set(Version::V1_36).await else { return };
    let Some(helm) = stage.helm(Major::Four) else { return };
    let chart = chart();
    // Nothing listens there, and no packet leaves the machine.
    let url = "injector.webhook.url=https://127.0.0.1:9/inject";
    let settings = ["--set", url, "--set", "injector.warnWithoutSidecar=true"];
    let install = ["install", RELEASE, &chart, "--namespace", NAMESPACE];
    helm.output(&[install.as_slice(), &settings].concat()).expect("an installation");
    let labels = json!({"listless.dev/injection": "enabled"});
    stage.namespace("shop", &labels).await.expect("a namespace");
    let deadline = Instant::now() + SETTLE_LIMIT;
    loop {
        let (code, warning) = stage.pod("shop", &json!({})).await.expect("an answer");
        assert_eq!(code, 201, "a pod starts all the same");
        if warning.is_some_and(|text| text.contains("without the sidecar of Listless")) {
            break;
        }
        assert!(Instant::now() < deadline, "no warning in {SETTLE_LIMIT:?}");
        tokio::time::sleep(POLL).await;
    }
    let (out, inside) =
        (json!({"listless.dev/inject": "false"}), json!({"listless.dev/inject": "true"}));
    let cases = [("shop", &out, false), ("till", &json!({}), false), ("till", &inside, true)];
    for (namespace, labels, asked) in cases {
        let (code, warning) = stage.pod(namespace, labels).await.expect("an answer");
        assert_eq!((code, warning.is_some()), (201, asked), "{namespace}: {labels}");
    }
}

#[tokio::test]
async fn a_gateway_with_the_charts_rights_keeps_the_resources_of_its_rules() {
    let Some(stage) = Stage::set(Version::V1_36).await else { return };
    let Some(helm) = stage.helm(Major::Four) else { return };
    let chart = chart();
    let settings = "injector.enabled=false,gateway.enabled=true,gateway.tls.secretName=any,\
                    gateway.flowControl.enabled=true";
    let install = ["install", RELEASE, &chart, "--namespace", NAMESPACE, "--set", settings];
    helm.output(&install).expect("an installation");
    stage.queues_apart().await.expect("a priority level of its own");
    let gateway = stage.gateway().await.expect("a gateway");
    let caller = Client::new(gateway.server(), Some(&User::Admin.token()), Protocol::Http1);
    let hits = async |path: &str| {
        let answer = caller.get(path).await.expect("an answer");
        assert_eq!(answer.status, 200, "{path}: {}", answer.excerpt());
        answer.header("Cache-Status").is_some_and(|told| told.contains("; hit"))
    };
    for path in ["/api/v1/pods", "/api/v1/nodes", "/apis/apps/v1/namespaces/shop/deployments"] {
        let deadline = Instant::now() + SETTLE_LIMIT;
        while !hits(path).await {
            assert!(Instant::now() < deadline, "{path} is not kept: {}", gateway.log());
            tokio::time::sleep(POLL).await;
        }
    }
    for _ in 0..5 {
        assert!(!hits("/api/v1/namespaces/default/configmaps").await, "no rule names these");
    }
    let queued = stage.dispatched().await.expect("the apiserver's metrics");
    eprintln!(
        "proof: chart: {queued} requests of the gateway's own at a priority level of its own"
    );
    assert!(queued >= 3, "{queued} lists of the gateway's own were queued apart");
}

// === impl Stage ===

impl Stage {
    /// `None` means that the machine cannot run it; the reason was printed.
    pub(crate) async fn set(version: Version) -> Option<Self> {
        if !available(version) {
            return None;
        }
        let definitions = match custom_resources().expect("definitions") {
            Built::Here(folder) => folder,
            Built::Impossible(reason) => {
                skipped("the tests of the chart", &reason);
                return None;
            }
        };
        // It is built before anything runs: a build may take minutes, and connections do not wait
        // so long.
        for major in Major::ALL {
            drop(Helm::get(major, None)?);
        }
        let machine = Machine::beside().await;
        let plane = ControlPlane::start(version).await.expect("a control plane");
        let client = plane.client(User::Admin, Protocol::Http1).expect("a client");
        let stage = Self { plane, client, _machine: machine };
        for file in std::fs::read_dir(definitions).expect("definitions") {
            let text = std::fs::read_to_string(file.expect("an entry").path()).expect("a text");
            stage.define(&text).await.expect("a definition");
        }
        for namespace in [NAMESPACE, "shop", "till"] {
            stage.namespace(namespace, &json!({})).await.expect("a namespace");
        }
        Some(stage)
    }

    /// Runs the program of the chart's Deployment: with its service account and its configuration.
    async fn gateway(&self) -> Result<ProxyProcess> {
        let account = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{GATEWAY_NAME}");
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"});
        let request = Request::new(Method::POST, &format!("{account}/token")).json(&review);
        let token = self.client.send(request).await?.successful()?.json()?;
        let token = token["status"]["token"].as_str().context("a token")?;
        let map = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{GATEWAY_NAME}");
        let map = self.client.get(&map).await?.successful()?.json()?;
        let configuration = map["data"]["proxy.yaml"].as_str().context("a configuration")?;
        let kubeconfig = self.plane.folder().join("gateway.kubeconfig");
        std::fs::write(&kubeconfig, self.plane.server()?.kubeconfig(token))?;
        ProxyProcess::gateway(&kubeconfig, Some(configuration)).await
    }

    pub(crate) fn helm(&self, major: Major) -> Option<Helm> {
        let kubeconfig = self.plane.kubeconfig(User::Admin).expect("a kubeconfig");
        Helm::get(major, Some(&kubeconfig))
    }

    async fn define(&self, text: &str) -> Result<()> {
        let request =
            Request::new(Method::POST, DEFINITIONS).body("application/yaml", text.to_owned());
        let made = self.client.send(request).await?.successful()?.json()?;
        let name = made["metadata"]["name"].as_str().context("a name")?;
        let deadline = Instant::now() + SETTLE_LIMIT;
        loop {
            let now = self.client.get(&format!("{DEFINITIONS}/{name}")).await?.json()?;
            let conditions = now["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is_served = |it: &Value| it["type"] == "Established" && it["status"] == "True";
            if conditions.iter().any(is_served) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{name} is not served after {SETTLE_LIMIT:?}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Creates a namespace with these labels if it is missing.
    async fn namespace(&self, name: &str, labels: &Value) -> Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": labels}});
        let request =
            Request::new(Method::PATCH, &format!("/api/v1/namespaces/{name}?fieldManager=test"));
        let request = request.body("application/apply-patch+yaml", object.to_string());
        self.client.send(request).await?.successful()?;
        Ok(())
    }

    /// Returns the status code and the warning for a pod, which is not kept.
    async fn pod(&self, namespace: &str, labels: &Value) -> Result<(u16, Option<String>)> {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"generateName": "one-", "labels": labels},
            "spec": {"containers": [{"name": "app", "image": "registry.example.com/app:1"}]}});
        let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
        let answer = self.client.send(Request::new(Method::POST, &path).json(&pod)).await?;
        Ok((answer.status.as_u16(), answer.header("Warning").map(str::to_owned)))
    }

    /// Waits until the apiserver follows the release's FlowSchema.
    async fn queues_apart(&self) -> Result<()> {
        let schema = format!("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{FLOW}");
        let deadline = Instant::now() + SETTLE_LIMIT;
        loop {
            let now = self.client.get(&schema).await?.successful()?.json()?;
            let conditions = now["status"]["conditions"].as_array().cloned().unwrap_or_default();
            if conditions.iter().any(|it| it["type"] == "Dangling" && it["status"] == "False") {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{FLOW} is not in force: {now}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// The number of requests that the release's FlowSchema has led to its priority level.
    async fn dispatched(&self) -> Result<u64> {
        let answer = self.client.get("/metrics").await?.successful()?;
        let label = format!("flow_schema=\"{FLOW}\"");
        let of_ours = |line: &&str| {
            line.starts_with("apiserver_flowcontrol_dispatched_requests_total{")
                && line.contains(&label)
        };
        let text = String::from_utf8(answer.body.to_vec())?;
        let counts = text.lines().filter(of_ours).filter_map(|line| line.rsplit(' ').next());
        counts.map(|count| Ok(count.parse::<u64>()?)).sum()
    }

    /// Writes the fields that only the injector writes: its Secret and the bundle of its webhooks.
    async fn keep_house(&self) -> Result<()> {
        let secret = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}");
        let mut object = self.client.get(&secret).await?.successful()?.json()?;
        ensure!(object["data"].is_null(), "the chart wrote into the Secret");
        object["data"] = json!({"tls.crt": "Y2VydGlmaWNhdGU="});
        self.client.send(Request::new(Method::PUT, &secret).json(&object)).await?.successful()?;
        let webhook = format!("{WEBHOOKS}/{WEBHOOK}");
        let object = self.client.get(&webhook).await?.successful()?.json()?;
        let webhooks = object["webhooks"].as_array().context("webhooks")?;
        ensure!(webhooks.len() == 2);
        let bundle = |index: usize| {
            let path = format!("/webhooks/{index}/clientConfig/caBundle");
            json!({"op": "add", "path": path, "value": "YnVuZGxl"})
        };
        let patch = Value::Array((0..2).map(bundle).collect()).to_string();
        let request = Request::new(Method::PATCH, &webhook);
        let request = request.body("application/json-patch+json", patch);
        self.client.send(request).await?.successful()?;
        Ok(())
    }

    /// Checks these numbers of the Deployment and the webhooks, and the injector's own fields.
    async fn is_as_configured(&self, replicas: u64, seconds: u64) -> Result<()> {
        let get = async |path: String| self.client.get(&path).await?.successful()?.json();
        let deployment =
            format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/demo-listless-injector");
        let deployment = get(deployment).await?;
        ensure!(deployment["spec"]["replicas"] == replicas, "{}", deployment["spec"]["replicas"]);
        let secret = get(format!("/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}")).await?;
        ensure!(secret["data"]["tls.crt"] == "Y2VydGlmaWNhdGU=", "the certificate is gone");
        let webhook = get(format!("{WEBHOOKS}/{WEBHOOK}")).await?;
        for webhook in webhook["webhooks"].as_array().context("webhooks")? {
            ensure!(webhook["timeoutSeconds"] == seconds, "{}", webhook["timeoutSeconds"]);
            ensure!(webhook["clientConfig"]["caBundle"] == "YnVuZGxl", "the bundle is gone");
        }
        Ok(())
    }

    /// Reviews the rights of the two service accounts at the apiserver.
    async fn has_narrow_rights(&self) -> Result<()> {
        let config = ("admissionregistration.k8s.io", "mutatingwebhookconfigurations");
        let secrets = ("", "secrets");
        let yes = [
            (INJECTOR, "get", secrets, NAMESPACE, SECRET),
            (INJECTOR, "update", secrets, NAMESPACE, SECRET),
            (INJECTOR, "patch", config, "", WEBHOOK),
            (GATEWAY, "list", ("", "pods"), "", ""),
            (GATEWAY, "watch", ("apps", "deployments"), "", ""),
        ];
        let no = [
            (INJECTOR, "get", secrets, NAMESPACE, "another"),
            (INJECTOR, "list", secrets, NAMESPACE, ""),
            (INJECTOR, "create", secrets, NAMESPACE, ""),
            (INJECTOR, "get", secrets, "default", SECRET),
            (INJECTOR, "patch", config, "", "another"),
            (INJECTOR, "delete", config, "", WEBHOOK),
            (INJECTOR, "get", ("", "pods"), NAMESPACE, ""),
            (INJECTOR, "list", ("", "namespaces"), "", ""),
            (GATEWAY, "list", secrets, "", ""),
            (GATEWAY, "get", secrets, NAMESPACE, SECRET),
            (GATEWAY, "create", ("", "pods"), "default", ""),
            (GATEWAY, "impersonate", ("", "users"), "", ""),
        ];
        let asked =
            yes.map(|right| (right, true)).into_iter().chain(no.map(|right| (right, false)));
        for ((user, verb, (group, resource), namespace, name), wanted) in asked {
            let attributes = json!({"verb": verb, "group": group, "resource": resource,
                "namespace": namespace, "name": name});
            let review = json!({"apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {"user": user, "resourceAttributes": attributes}});
            let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            let answer = self.client.send(Request::new(Method::POST, path).json(&review)).await?;
            let allowed = &answer.successful()?.json()?["status"]["allowed"];
            ensure!(
                *allowed == wanted,
                "{user} may {verb} {resource} {namespace}/{name}: {allowed}"
            );
        }
        Ok(())
    }

    /// The newest version the apiserver knows of.
    async fn version_now(&self) -> Result<String> {
        let list = self.client.get("/api/v1/namespaces?limit=1").await?.successful()?.json()?;
        Ok(list["metadata"]["resourceVersion"].as_str().context("a version")?.to_owned())
    }

    /// During its removal, the apiserver must not call a webhook without a server.
    async fn webhook_went_first(&self, since: &str) -> Result<()> {
        let webhook = self.gone(WEBHOOKS, since).await?;
        ensure!(webhook.len() == 1, "{webhook:?}");
        for others in [
            format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments"),
            format!("/api/v1/namespaces/{NAMESPACE}/services"),
            format!("/api/v1/namespaces/{NAMESPACE}/secrets"),
            format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"),
        ] {
            let others = self.gone(&others, since).await?;
            ensure!(!others.is_empty() && others.iter().all(|at| *at > webhook[0]), "{others:?}");
        }
        Ok(())
    }

    /// The versions at which objects of a collection were deleted.
    async fn gone(&self, collection: &str, since: &str) -> Result<Vec<u64>> {
        let target = format!("{collection}?watch=1&resourceVersion={since}&timeoutSeconds=2");
        let answer = self.client.open(Request::get(&target)).await?;
        let body = answer.into_body().collect().await?.to_bytes();
        let mut found = Vec::new();
        for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: Value = serde_json::from_slice(line)?;
            if event["type"] == "DELETED" {
                let version = event["object"]["metadata"]["resourceVersion"].as_str();
                found.push(version.context("a version")?.parse()?);
            }
        }
        Ok(found)
    }
}
