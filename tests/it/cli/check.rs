//! `listless check` as a user runs it: against a simulated apiserver, over TLS.

use std::{fs, net::SocketAddr, path::PathBuf, process::Command, time::SystemTime};

use listless::{
    simulator::{ResourceType, Rule, Simulator, User},
    tls::{Authority, Names, Server},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{LISTLESS, text};
use crate::harness::group_resource;

pub(super) const ADMIN: &str = "admin-token";
const NOBODY: &str = "nobody-token";

/// A simulated cluster on a port of its own, and kubeconfigs for it.
pub(super) struct Cluster {
    pub(super) simulator: Simulator,
    pub(super) address: SocketAddr,
    pub(super) authority: Authority,
    directory: tempfile::TempDir,
    pub(super) runtime: tokio::runtime::Runtime,
}

/// The output of `listless check -o json`, and its exit code.
struct Checked {
    code: Option<i32>,
    report: Value,
}

// === impl Cluster ===

impl Cluster {
    pub(super) fn start() -> Self {
        let simulator = Simulator::default();
        simulator.admit(ADMIN, User::admin("admin"));
        let review = Rule::new(&["create"], &["selfsubjectaccessreviews", "selfsubjectreviews"]);
        simulator.admit(NOBODY, User::with_rules("nobody", vec![review]));
        let webhooks = "mutatingwebhookconfigurations";
        let group = "admissionregistration.k8s.io";
        let kind = ResourceType::typed(group, &["v1"], webhooks, "MutatingWebhookConfiguration");
        simulator.register(kind.cluster_scoped());
        // The simulator answers reviews of the caller, but has no discovery documents for them.
        let group = "authorization.k8s.io";
        let kind = ResourceType::typed(group, &["v1"], "simulated", "Simulated");
        simulator.register(kind);

        let authority = Authority::generate(SystemTime::now()).expect("an authority");
        let leaf = authority.issue(&Names::of_apiserver(""), SystemTime::now()).expect("a leaf");
        let server = Server::new(leaf).expect("a configuration");
        let runtime = tokio::runtime::Runtime::new().expect("threads");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let serving = simulator.clone();
        runtime.spawn(async move {
            serving.serve_tls(listener, server).await;
        });
        let directory = tempfile::tempdir().expect("a directory");
        Self { simulator, address, authority, directory, runtime }
    }

    pub(super) fn put(&self, resource: &str, object: Value) {
        self.simulator.put(&group_resource(resource), object).expect("a served resource");
    }

    fn kubeconfig(&self, token: &str) -> PathBuf {
        let file = self.directory.path().join(format!("{token}.kubeconfig"));
        let authority = self.directory.path().join("authority.crt");
        fs::write(&authority, self.authority.pem()).expect("written");
        let (server, authority) = (self.address, authority.display());
        let kubeconfig = format!(
            "clusters: [{{name: c, cluster: {{server: \"https://{server}\", \
             certificate-authority: {authority}}}}}]\n\
             users: [{{name: u, user: {{token: {token}}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u, namespace: shop}}}}]\n\
             current-context: x\n"
        );
        fs::write(&file, kubeconfig).expect("written");
        file
    }

    fn command(&self, token: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(LISTLESS);
        command.args(["check", "--kubeconfig"]).arg(self.kubeconfig(token)).args(arguments);
        command.env_remove("LISTLESS_LOG").env_remove("KUBERNETES_SERVICE_HOST");
        command
    }

    fn check(&self, token: &str, arguments: &[&str]) -> Checked {
        Checked::by(&mut self.command(token, &[&["-o", "json"], arguments].concat()))
    }

    /// A webhook with this CA bundle that leads to an address where nothing listens.
    fn put_webhook(&self, bundle: &str) {
        use base64::{Engine, engine::general_purpose::STANDARD};
        let service = json!({"namespace": "system", "name": "injector", "path": "/inject"});
        self.put(
            "mutatingwebhookconfigurations.admissionregistration.k8s.io",
            json!({"metadata": {"name": "listless-injector"}, "webhooks": [{
                "name": "namespace.inject.listless.dev", "failurePolicy": "Ignore",
                "clientConfig": {"caBundle": STANDARD.encode(bundle), "service": service},
            }]}),
        );
    }

    /// The objects that the chart installs, with this many ready replicas.
    fn put_injector(&self, ready: u64) {
        let labels = json!({"app": "injector"});
        self.put(
            "services",
            json!({"metadata": {"namespace": "system", "name": "injector"},
                "spec": {"clusterIP": "None", "selector": labels}}),
        );
        let container = json!({"name": "injector", "image": "r.example/listless:9.9.9",
            "args": ["injector", "--secret=certificates"]});
        self.put(
            "deployments.apps",
            json!({
                "metadata": {"namespace": "system", "name": "injector", "labels":
                    {"app": "injector", "app.kubernetes.io/version": "9.9.9"}},
                "spec": {"replicas": 2, "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}},
                "status": {"readyReplicas": ready},
            }),
        );
    }

    /// A pod injected by an injector of this version, and the state of its sidecar.
    fn put_injected(&self, name: &str, version: &str, state: &Value) {
        let status = json!({"version": version, "rev": "", "mode": "enforce", "port": 1,
            "containers": [], "mirrors": {}});
        self.put(
            "pods",
            json!({
                "metadata": {"namespace": "shop", "name": name,
                    "annotations": {"listless.dev/status": status.to_string()}},
                "spec": {"containers": [{"name": "web", "image": "web"}],
                    "initContainers": [{"name": "listless-proxy", "image": "r.example/listless:9.9.9"}]},
                "status": {"phase": "Running", "initContainerStatuses":
                    [{"name": "listless-proxy", "state": state, "restartCount": 0}]},
            }),
        );
    }
}

// === impl Checked ===

impl Checked {
    fn by(command: &mut Command) -> Self {
        let output = command.output().expect("the binary runs");
        let report = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
        Self { code: output.status.code(), report }
    }

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

#[test]
fn a_cluster_without_listless_passes_and_lists_the_missing_parts() {
    let cluster = Cluster::start();
    cluster.put(
        "nodes",
        json!({"metadata": {"name": "n1"},
        "status": {"nodeInfo": {"kubeletVersion": "v1.36.3"}}}),
    );
    let checked = cluster.check(ADMIN, &[]);
    assert_eq!(checked.code, Some(0), "{}", checked.report);
    assert_eq!(checked.report["result"], "pass");
    assert_eq!(checked.report["version"], env!("CARGO_PKG_VERSION"));
    checked.is("version", "pass", "v1.36.3");
    checked.is("features", "pass", "");
    checked.is("permissions", "pass", "admin may list and watch pods");
    checked.is("webhook", "skipped", "this cluster has no webhook of Listless");
    for name in
        ["certificate", "injection", "injector", "injector-permissions", "image", "up-to-date"]
    {
        checked.is(name, "skipped", "");
    }
    checked.is("kubelets", "pass", "1 node: v1.36.3");
    assert_eq!(cluster.simulator.count(&group_resource("pods")), 0, "nothing was stored");
}

#[test]
fn in_a_pod_a_given_kubeconfig_is_used_and_checked_as_from_outside() {
    let cluster = Cluster::start();
    let mut by_flag = cluster.command(ADMIN, &["-o", "json"]);
    let mut by_variable = Command::new(LISTLESS);
    by_variable.args(["check", "-o", "json"]).env_remove("LISTLESS_LOG");
    by_variable.env("KUBECONFIG", cluster.kubeconfig(ADMIN));
    for command in [&mut by_flag, &mut by_variable] {
        command.env("KUBERNETES_SERVICE_HOST", "127.0.0.1").env("KUBERNETES_SERVICE_PORT", "1");
        let checked = Checked::by(command);
        assert_eq!(checked.report["apiserver"], cluster.address.to_string());
        // Without --resource, the service account of a pod is not checked for pods.
        checked.is("permissions", "pass", "admin may list and watch pods");
    }
}

#[test]
fn checks_without_the_users_rights_are_skipped_and_never_passed() {
    let cluster = Cluster::start();
    let checked = cluster.check(NOBODY, &["--resource", "pods", "--resource", "deployments.apps"]);
    assert_eq!(checked.code, Some(0), "{}", checked.report);
    checked.is("permissions", "warn", "nobody may not list and watch pods, deployments.apps");
    for name in ["webhook", "sidecars", "left-out", "image", "kubelets"] {
        checked.is(name, "skipped", "forbidden");
        assert!(checked.row(name)["hint"].is_string(), "{name} says which right it takes");
    }
}

#[test]
fn each_fault_fails_its_own_check_and_the_command() {
    let cluster = Cluster::start();
    let labels = json!({"listless.dev/injection": "enabled"});
    cluster.put("namespaces", json!({"metadata": {"name": "shop", "labels": labels}}));
    cluster.put_webhook(cluster.authority.pem());
    cluster.put_injector(0);
    cluster.put_injected("old", "9.9.8", &json!({"running": {}}));
    cluster.put_injected("new", "9.9.9", &json!({"waiting": {"reason": "ImagePullBackOff"}}));
    cluster.put(
        "pods",
        json!({"metadata": {"namespace": "shop", "name": "plain"},
        "spec": {"containers": [{"name": "web", "image": "web"}]}, "status": {"phase": "Running"}}),
    );
    for (node, version) in [("n1", "v1.30.1"), ("n2", "v1.36.3")] {
        cluster.put(
            "nodes",
            json!({"metadata": {"name": node},
            "status": {"nodeInfo": {"kubeletVersion": version}}}),
        );
    }
    let checked = cluster.check(ADMIN, &[]);
    assert_eq!(checked.code, Some(1), "{}", checked.report);
    assert_eq!(checked.report["result"], "fail");
    checked.is("webhook", "pass", "listless-injector calls service system/injector");
    checked.is("certificate", "skipped", "is not reachable from here");
    checked.is("injection", "fail", "a pod in shop gets no sidecar");
    checked.is("injector", "fail", "system/injector 9.9.9: 0 of 2 ready");
    checked.is("image", "fail", "ImagePullBackOff: the pod shop/new");
    checked.is("up-to-date", "warn", "9.9.8: the pod shop/old");
    checked.is("left-out", "warn", "the pod shop/plain");
    checked.is("kubelets", "warn", "1 node with kubelet v1.30.1");
    let told = checked.row("kubelets")["detail"].as_str().expect("a text").to_owned();
    assert!(told.contains("kubernetes/kubernetes#125935"), "{told}");
    let stored = cluster.simulator.count(&group_resource("pods"));
    assert_eq!(stored, 3, "the pod that was tried is not among them");

    let table = cluster.command(ADMIN, &[]).output().expect("the binary runs");
    assert_eq!(table.status.code(), Some(1));
    assert!(
        text(&table.stdout).contains("\nfail     injector          "),
        "{}",
        text(&table.stdout)
    );
}

#[test]
fn a_named_webhook_must_exist() {
    let cluster = Cluster::start();
    let checked = cluster.check(ADMIN, &["--webhook-configuration", "gone"]);
    assert_eq!(checked.code, Some(1));
    checked.is("webhook", "fail", "gone");
}

#[test]
fn an_unreachable_apiserver_fails_and_skips_the_other_checks() {
    let cluster = Cluster::start();
    cluster.simulator.stop();
    let checked = cluster.check(ADMIN, &[]);
    assert_eq!(checked.code, Some(1));
    assert_eq!(checked.report["checks"].as_array().map(Vec::len), Some(1), "{}", checked.report);
    checked.is("version", "fail", &cluster.address.to_string());
}

#[test]
fn wrong_usage_exits_with_2_and_a_missing_kubeconfig_with_1() {
    for (arguments, code) in [
        (&["check", "--resource", "Pods"][..], 2),
        (&["check", "-o", "yaml"], 2),
        (&["check", "--kubeconfig", "no-such-file"], 1),
    ] {
        let output = super::listless(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{arguments:?}");
    }
}
