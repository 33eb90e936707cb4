//! A real Prometheus scrapes Listless and the apiserver. Rules, alerts and the dashboard give their
//! documented results. The apiserver's error budget burns only without Listless.

mod defaults;
mod server;
mod storm;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::clusters::skipped;
use crate::load::pollers::Pollers;
use crate::load::{DATA, Fleet};
use crate::rig::client::Protocol;
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::proxy_process::ProxyProcess;
use server::Prometheus;
use storm::Storm;

/// The folder of the shipped rules.
const FOLDER: &str = "config/monitoring";
/// A folder with kubernetes-mixin's rendered `prometheus_rules.yaml` and `prometheus_alerts.yaml`.
const MIXIN: &str = "LISTLESS_MIXIN";
/// The time that the first Prometheus is watched until its alert is over; none by default.
const RECOVERY: &str = "LISTLESS_RECOVERY_SECONDS";

const POLL_PERIOD: Duration = Duration::from_millis(500);
/// The number of reads that do not fit into memory; the second starts a replica.
const POLLS_WITHOUT_ROOM: u32 = 5;
const SCRAPED_WITHIN: Duration = Duration::from_secs(60);
const VALUES_WITHIN: Duration = Duration::from_secs(90);
const FIRES_WITHIN: Duration = Duration::from_secs(60);
/// The alert requires two minutes of it.
const BURNS_WITHIN: Duration = Duration::from_secs(420);
const QUIET_FOR: Duration = Duration::from_secs(60);
/// The budget is 1%, and at this multiple of it the fastest window is burning.
const BURNING: f64 = 14.4 * 0.01;
const BURN_ALERT: &str = "ListlessApiserverErrorBudgetBurn";
const BURN_SERIES: &str = "listless:apiserver_slow_or_failed_reads:ratio_rate5m";

/// A limit too small for the pods, also compressed, so that their replica is given up.
const WITHOUT_ROOM: &str = "\
apiVersion: listless.dev/v1alpha1
kind: ProxyConfiguration
cache:
  memoryLimit: 1Mi
";

fn shipped(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER).join(file)
}

fn shipped_rules() -> Vec<PathBuf> {
    ["rules.yaml", "alerts.yaml", "apiserver-budget.yaml"].map(shipped).to_vec()
}

/// Reports whether Debian's package is installed; if not, prints that.
fn tools() -> bool {
    let there = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    let missing = ["prometheus", "promtool"].into_iter().find(|tool| !there(tool));
    if let Some(tool) = missing {
        skipped("Prometheus", &format!("the `{tool}` command is not on the PATH"));
    }
    missing.is_none()
}

/// Runs promtool and fails with its output if it reports errors.
fn promtool(arguments: &[&str], files: &[PathBuf], input: &str) {
    let mut command = Command::new("promtool");
    command.args(arguments).args(files);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said));
}

fn scrape(job: &str, admin: &str) -> Value {
    json!({
        "job_name": job, "scrape_interval": "1s", "scrape_timeout": "1s",
        "static_configs": [{"targets": [admin]}],
    })
}

/// As kubernetes-mixin expects it: under the job `kube-apiserver`.
fn scrape_apiserver(plane: &ControlPlane, every: &str) -> Value {
    let server = plane.server().expect("a server");
    let authority = plane.folder().join("apiserver-ca.crt");
    std::fs::write(&authority, server.authorities_pem()).expect("the authority is written");
    json!({
        "job_name": "kube-apiserver", "scheme": "https",
        "scrape_interval": every, "scrape_timeout": every,
        "authorization": {"credentials": User::Admin.token()},
        "tls_config": {"ca_file": authority},
        "static_configs": [{"targets": [server.authority()]}],
    })
}

#[test]
fn promtool_accepts_the_rules_and_their_unit_tests_pass() {
    if !tools() {
        return;
    }
    promtool(&["check", "rules", "--lint-fatal"], &shipped_rules(), "");
    promtool(&["test", "rules"], &["tests.yaml", "days.tests.yaml"].map(shipped), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prometheus_finds_a_value_for_every_rule_and_every_panel() {
    if !tools() {
        return;
    }
    let Some(fleet) = Fleet::take(Version::V1_36).await else { return };
    let proxy = fleet.proxy().await.expect("a proxy");
    let kubeconfig = fleet.plane().kubeconfig(User::Admin).expect("a kubeconfig");
    let small = ProxyProcess::start(&kubeconfig, Some(WITHOUT_ROOM)).await.expect("a proxy");
    let scrapes = vec![
        scrape("listless", proxy.admin_address()),
        scrape("small", small.admin_address()),
        scrape_apiserver(fleet.plane(), "2s"),
    ];
    let prometheus = Prometheus::start(scrapes, &shipped_rules()).await.expect("a Prometheus");
    let up = async || prometheus.query("up == 1").await.expect("an answer").len() == 3;
    prometheus.until("all three are scraped", SCRAPED_WITHIN, up).await;

    let pollers = Pollers::start(&proxy.client(Protocol::Http2), POLL_PERIOD);
    let client = small.client(Protocol::Http1);
    for _ in 0..POLLS_WITHOUT_ROOM {
        client.get(&DATA.collection()).await.expect("an answer").successful().expect("pods");
    }
    let recorded = all_rules_give_values(&prometheus).await;
    let panels = all_panels_give_values(&prometheus).await;
    let share = prometheus.value("listless:answered_here:ratio_rate5m{job=\"listless\"}").await;
    assert!(share.as_ref().is_ok_and(|share| *share > 0.9), "{share:?}");

    let fires = async || {
        let firing = prometheus.firing().await.expect("alerts");
        firing.contains("ListlessReplicaDroppedForMemory")
    };
    prometheus.until("the replica without room is reported", FIRES_WITHIN, fires).await;
    let mut firing = prometheus.firing().await.expect("alerts");
    // The apiserver's own state is not checked here.
    firing.remove(BURN_ALERT);
    assert_eq!(firing.len(), 1, "nothing else is wrong: {firing:?}");

    promtool(&["check", "metrics"], &[], &proxy.metrics_text().await.expect("metrics"));
    pollers.stop().await;
    eprintln!(
        "proof: Prometheus scraped Listless: {recorded} recorded series and {panels} panels have \
         values, {firing:?} fires"
    );
}

/// Waits until every recording rule has a value; returns the number of series.
async fn all_rules_give_values(prometheus: &Prometheus) -> usize {
    let rules = prometheus.rules().await.expect("rules");
    let recording = |rule: &&Value| rule["type"] == "recording";
    let names: BTreeSet<String> = rules
        .iter()
        .filter(recording)
        .map(|rule| rule["name"].as_str().expect("a name").to_owned())
        .collect();
    assert!(names.len() > 20, "{names:?}");
    let missing = async || {
        let mut missing = Vec::new();
        for name in &names {
            if prometheus.query(name).await.expect("an answer").is_empty() {
                missing.push(name.clone());
            }
        }
        missing
    };
    prometheus.until_none("every rule gives a value", VALUES_WITHIN, missing).await;
    for rule in prometheus.rules().await.expect("rules") {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    names.len()
}

/// Waits until every query of the dashboard has a value, and rare ones at least a response.
async fn all_panels_give_values(prometheus: &Prometheus) -> usize {
    let text = std::fs::read_to_string(shipped("dashboard.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = panels(&dashboard);
    let mut usual = BTreeMap::new();
    let mut rare = Vec::new();
    for panel in &panels {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().expect("an expression");
            let expression = expression.replace("$__rate_interval", "1m");
            let names = ["$cluster", "$namespace", "$job", "$instance"];
            let expression = names.iter().fold(expression, |text, name| text.replace(name, ".*"));
            if target["rare"] == true {
                rare.push(expression);
            } else {
                usual.insert(expression, panel["title"].to_string());
            }
        }
    }
    let missing = async || {
        let mut missing = Vec::new();
        for (expression, panel) in &usual {
            if prometheus.query(expression).await.expect("an answer").is_empty() {
                missing.push(format!("{panel}: {expression}"));
            }
        }
        missing
    };
    prometheus.until_none("every panel shows something", VALUES_WITHIN, missing).await;
    for expression in &rare {
        prometheus.query(expression).await.unwrap_or_else(|error| panic!("{expression}: {error}"));
    }
    panels.len()
}

/// The panels of the dashboard, those of collapsed rows included.
fn panels(dashboard: &Value) -> Vec<&Value> {
    let outer = dashboard["panels"].as_array().expect("panels");
    let inner = outer.iter().flat_map(|panel| panel["panels"].as_array().into_iter().flatten());
    outer.iter().chain(inner).filter(|panel| panel["type"] != "row").collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_apiservers_error_budget_burns_directly_and_not_through_listless() {
    if !tools() {
        return;
    }
    let Some(fleet) = Fleet::take_alone(Version::V1_30).await else { return };
    let plane = fleet.plane();
    let (rules, alerts) = burn_rules();
    let start = async || {
        let scrapes = vec![scrape_apiserver(plane, "10s")];
        Prometheus::start(scrapes, &rules).await.expect("a Prometheus")
    };

    let straight = start().await;
    let client = plane.client(User::Admin, Protocol::Http1).expect("a client");
    let (storm, bystander) = (Storm::start(&client), Storm::bystander(&client));
    let burns = async || {
        let firing = straight.firing().await.expect("alerts");
        alerts.iter().all(|alert| firing.contains(alert))
    };
    straight.until("the budget burns", BURNS_WITHIN, burns).await;
    let burnt = straight.value(BURN_SERIES).await.expect("a share");
    let (polls_straight, beside_straight) = (storm.stop().await, bystander.stop().await);
    assert!(burnt > BURNING, "{burnt}");

    let proxy = fleet.proxy().await.expect("a proxy");
    // A Prometheus without earlier data: windows of five minutes take as long to forget.
    let through = start().await;
    let storm = Storm::start(&proxy.client(Protocol::Http1));
    let bystander = Storm::bystander(&client);
    let deadline = tokio::time::Instant::now() + QUIET_FOR;
    let mut looks = tokio::time::interval(Duration::from_secs(2));
    while tokio::time::Instant::now() < deadline {
        looks.tick().await;
        let active = through.active().await.expect("alerts");
        assert!(alerts.iter().all(|alert| !active.contains(alert)), "{active:?}");
    }
    let spared = through.value(BURN_SERIES).await.expect("there were reads to judge");
    recovered(&straight, &alerts).await;
    let (polls_through, beside_through) = (storm.stop().await, bystander.stop().await);
    assert!(spared < BURNING, "{spared}");
    assert!(polls_through.failed == 0 && polls_through.answered > 0, "{polls_through:?}");
    let (before, after) = (beside_straight.mean, beside_through.mean);
    assert!(after < before, "a bystander waited {before:?}, then {after:?}");
    eprintln!(
        "proof: error budget: straight {:.0}% of reads too slow or failed, {alerts:?} fire \
         ({polls_straight:?}, a bystander {beside_straight:?}); through Listless {:.1}%, quiet \
         ({polls_through:?}, a bystander {beside_through:?})",
        burnt * 100.0,
        spared * 100.0
    );
}

/// The rules to load, and the alerts among them that are about the error budget.
fn burn_rules() -> (Vec<PathBuf>, Vec<String>) {
    let mut rules = vec![shipped("apiserver-budget.yaml")];
    let mut alerts = vec![BURN_ALERT.to_owned()];
    if let Some(folder) = std::env::var_os(MIXIN) {
        for file in ["prometheus_rules.yaml", "prometheus_alerts.yaml"] {
            let path = Path::new(&folder).join(file);
            assert!(path.exists(), "{MIXIN}: no {}", path.display());
            rules.push(path);
        }
        alerts.push("KubeAPIErrorBudgetBurn".to_owned());
    }
    (rules, alerts)
}

/// Waits for the alert to be over where it fired, if this is requested.
async fn recovered(straight: &Prometheus, alerts: &[String]) {
    let Ok(seconds) = std::env::var(RECOVERY) else { return };
    let limit = Duration::from_secs(seconds.parse().expect("a number of seconds"));
    let since = tokio::time::Instant::now();
    let over = async || {
        let firing = straight.firing().await.expect("alerts");
        alerts.iter().all(|alert| !firing.contains(alert))
    };
    straight.until("the alert is over", limit, over).await;
    eprintln!("proof: error budget: the alert was over after {:.0?} more", since.elapsed());
}
