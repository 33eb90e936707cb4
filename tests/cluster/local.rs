//! The steps of docs/install.md, followed as a new user would. It uses `listless local` with a real
//! apiserver, the output of `listless kubeconfig`, and kubectl and Helm without further settings.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::chart::helm::{Helm, Major};
use crate::clusters::{Cluster, Machine, available};
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::process::Process;
use crate::rig::proxy_process::ProxyProcess;
use crate::unmodified::clients;

const START_LIMIT: Duration = Duration::from_secs(30);
const MEMORY_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// A user with a home that has a kubeconfig, and programs on the path.
struct Somebody {
    home: TempDir,
    path: String,
    /// Ends with the user.
    local: Process,
    admin: String,
}

// === impl Somebody ===

impl Somebody {
    /// Runs the page's first command, with free ports.
    async fn start(plane: &ControlPlane, kubectl: &Path, first: &str) -> Result<Self> {
        let home = TempDir::new()?;
        std::fs::create_dir(home.path().join(".kube"))?;
        let source = plane.kubeconfig(User::Admin)?;
        std::fs::copy(source, home.path().join(".kube/config"))?;
        let listless = PathBuf::from(env!("CARGO_BIN_EXE_listless"));
        let folder = |program: &Path| program.parent().map(|path| path.display().to_string());
        let (own, other) = (folder(&listless), folder(kubectl));
        let path = format!(
            "{}:{}:{}",
            own.context("a folder")?,
            other.context("a folder")?,
            std::env::var("PATH").unwrap_or_default()
        );
        let mut words = first.split_whitespace();
        ensure!(words.next() == Some("listless"), "{first}");
        let mut command = Command::new(listless);
        command.args(words).env("HOME", home.path()).env_remove("KUBECONFIG");
        for flag in ["--listen", "--admin", "--health"] {
            command.args([flag, "127.0.0.1:0"]);
        }
        let mut local = Process::start("listless", command, &home.path().join("listless.log"))?;
        let deadline = Instant::now() + START_LIMIT;
        let mut poll = tokio::time::interval(POLL);
        loop {
            poll.tick().await;
            let log = local.log_tail(usize::MAX);
            let admin = log.split_once("--admin: http://").map(|(_, rest)| rest);
            let admin = admin.and_then(|rest| rest.split_whitespace().next());
            if let (Some(admin), true) = (admin, log.contains("listless: serving ")) {
                let admin = admin.to_owned();
                return Ok(Self { home, path, local, admin });
            }
            ensure!(local.is_running() && Instant::now() < deadline, "no listless: {log}");
        }
    }

    /// The output of a shell that runs this.
    async fn types(&self, script: &str) -> Result<String> {
        let mut command = tokio::process::Command::new("sh");
        command.args(["-euc", script]).env("HOME", self.home.path()).env("PATH", &self.path);
        command.env_remove("KUBECONFIG").current_dir(self.home.path());
        let output = command.output().await?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{script}: {told}\n{}", self.local.log_tail(20));
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// The shell's blocks of a page.
fn blocks(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let text = std::fs::read_to_string(path).expect("the page");
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split_once("```"));
    blocks.map(|(block, _)| block.to_owned()).collect()
}

#[tokio::test]
async fn every_command_of_the_install_page_works_on_1_36() {
    is_true(Version::V1_36).await;
}

#[tokio::test]
async fn every_command_of_the_install_page_works_on_1_30() {
    is_true(Version::V1_30).await;
}

#[tokio::test]
async fn a_review_of_the_local_token_is_that_of_the_users_own_token_on_1_36() {
    is_reviewed(Version::V1_36).await;
}

#[tokio::test]
async fn a_review_of_the_local_token_is_that_of_the_users_own_token_on_1_30() {
    is_reviewed(Version::V1_30).await;
}

async fn is_reviewed(version: Version) {
    let Some(cluster) = Cluster::take(version).await else { return };
    let kubeconfig = cluster.plane().kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, None).await.expect("a proxy");
    let straight = cluster.plane().client(User::Admin, Protocol::Http1).expect("a client");
    let through = proxy.client(Protocol::Http1);
    let own = proxy.token().expect("a token in the written kubeconfig");
    let reviewed = async |client: &Client, token: &str, audiences: &Value| {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token, "audiences": audiences}});
        let request = Request::new(Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews");
        let answer = client.send(request.json(&review)).await.expect("an answer");
        answer.successful().expect("a review").json().expect("JSON")["status"].clone()
    };
    let issuer = "https://kubernetes.default.svc";
    for audiences in [json!(null), json!([]), json!([issuer]), json!(["other", issuer])] {
        let expected = reviewed(&straight, &User::Admin.token(), &audiences).await;
        assert_eq!(expected["authenticated"], true, "{expected}");
        assert_eq!(reviewed(&through, own, &audiences).await, expected, "{audiences}");
    }
    let unknown = reviewed(&through, own, &json!(["other"])).await;
    assert_ne!(unknown["authenticated"], true, "{unknown}");
}

async fn is_true(version: Version) {
    if !available(version) {
        return;
    }
    let Some(kubectl) = clients::kubectl() else { return };
    let _machine = Machine::beside().await;
    let plane = ControlPlane::start(version).await.expect("a control plane");
    let admin = plane.client(User::Admin, Protocol::Http1).expect("a client");
    for name in ["one", "two"] {
        let pod = json!({"metadata": {"name": name},
            "spec": {"containers": [{"name": "web", "image": "example.com/web"}]}});
        let request = Request::new(Method::POST, "/api/v1/namespaces/default/pods");
        let made = admin.send(request.json(&pod)).await.expect("an answer");
        made.successful().expect("a pod");
    }
    let blocks = blocks("docs/install.md");
    let user = Somebody::start(&plane, &kubectl, &blocks[0]).await.expect("listless local");
    let straight = user.types("kubectl get pods --all-namespaces").await.expect("kubectl");
    assert!(straight.contains("two"), "{straight}");
    let through = user.types(&blocks[1]).await.expect("the page's second block");
    assert_eq!(ages_aside(&through), ages_aside(&straight));
    let led =
        user.types("eval \"$(listless kubeconfig)\"; kubectl config view --raw -o json").await;
    let led: Value = serde_json::from_str(&led.expect("kubectl")).expect("JSON");
    let server = led["clusters"][0]["cluster"]["server"].as_str().expect("a server").to_owned();
    assert_ne!(server, format!("https://{}", plane.server().expect("a server").authority()));

    for (print, context) in [
        ("eval \"$(listless kubeconfig --beside-source)\"", "--context cluster"),
        ("listless kubeconfig -o yaml > FILE; export KUBECONFIG=$PWD/FILE", ""),
        ("listless kubeconfig --proxy-url > FILE; export KUBECONFIG=$PWD/FILE", ""),
    ] {
        let before = asked(&user).await.expect("a report")["requests"].as_u64().expect("a number");
        let script =
            format!("{print}; kubectl {context} get --raw /api/v1/namespaces/default/pods");
        let list = user.types(&script).await.unwrap_or_else(|error| panic!("{print}: {error:#}"));
        let list: Value = serde_json::from_str(&list).expect("JSON");
        assert_eq!(list["items"].as_array().map(Vec::len), Some(2), "{print}");
        let after = asked(&user).await.expect("a report")["requests"].as_u64().expect("a number");
        assert!(after > before, "{print}: it went past Listless");
        let page =
            std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/install.md"));
        let command =
            print.trim_start_matches("eval \"$(").split([')', ';']).next().expect("words");
        assert!(page.expect("the page").contains(command), "the page has another: {command}");
    }
    from_memory(&user).await.expect("answers from memory");
    let file = user.home.path().join("FILE");
    if let Some(helm) = Helm::get(Major::Four, Some(&file)) {
        let list = helm.output(&["list", "--all-namespaces"]).expect("helm through a proxy-url");
        assert!(list.starts_with("NAME"), "{list}");
    }
    eprintln!("proof: local on {}: kubectl and helm through what it prints", version.name());
}

/// Repeated reads come from memory, through a `proxy-url` as through a server.
async fn from_memory(user: &Somebody) -> Result<()> {
    let deadline = Instant::now() + MEMORY_LIMIT;
    loop {
        let script = "KUBECONFIG=$PWD/FILE kubectl get --raw /api/v1/namespaces/default/pods";
        user.types(script).await?;
        let totals = asked(user).await?;
        if totals["fromMemory"].as_u64().is_some_and(|count| count > 0) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "nothing comes from memory: {totals}");
    }
}

/// The counts of the report.
async fn asked(user: &Somebody) -> Result<Value> {
    let report = user.types(&format!("listless report -o json --admin {}", user.admin)).await?;
    let report: Value = serde_json::from_str(&report)?;
    Ok(report["totals"].clone())
}

/// A table without its last column.
fn ages_aside(table: &str) -> Vec<String> {
    let columns =
        |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    let aside = |mut columns: Vec<String>| {
        columns.pop();
        columns.join(" ")
    };
    table.lines().map(columns).map(aside).collect()
}
