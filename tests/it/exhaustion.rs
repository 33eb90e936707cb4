//! Memory does not grow with the requests of callers, allowed or not.

#![cfg(target_os = "linux")]

use std::{fmt::Write, fs, path::Path, process::Command};

use listless::{
    config::Config,
    injector::{patch, review},
    simulator::{Rule, Settings, Simulator, User},
};

use serde_json::json;

use crate::harness::{Setup, TestProxy};

/// Requests of one attack, unless `LISTLESS_ATTACK_REQUESTS` sets another number.
const REQUESTS: usize = 1_000;

/// The limit on the resident memory that an attack adds.
const GROWTH_KIB_MAX: u64 = 16 << 10;

/// The limit on the resident memory that webhook reviews, one after the other, add.
const REVIEW_KIB_MAX: u64 = 32 << 10;

/// The size limit of a selector that is still parsed.
const SELECTOR_BYTES_READ: usize = 4096;

/// Set in a process that does nothing else, so that its memory is the test's.
const ALONE: &str = "LISTLESS_TEST_ALONE";

const MEMBERS_TOKEN: &str = "members-token";

/// One request of an attack.
struct Shot {
    token: String,
    path: String,
    code: u16,
}

fn resident_kib() -> u64 {
    kib("VmRSS:")
}

fn kib(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a line");
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number")
}

/// A selector of about this many bytes, with unique values.
fn selector(number: usize, bytes: usize) -> String {
    let mut text = format!("labelSelector=app%20in%20(v{number}");
    let filling = "x".repeat(54);
    for value in 0..bytes / 62 {
        write!(text, ",v{value:05}-{filling}").expect("a string takes it");
    }
    text + ")"
}

/// A gateway, whose apiserver knows a user who may list the pods of one namespace.
fn gateway() -> TestProxy {
    let settings = Settings { journal_records_max: 100, ..Settings::default() };
    let proxy = Setup::of(Simulator::new(settings))
        .gateway()
        .config("repeatPolls: {perSecond: 5}\n")
        .in_memory();
    let rule = Rule::new(&["get", "list", "watch"], &["pods"]).within("a");
    proxy.simulator.admit(MEMBERS_TOKEN, User::with_rules("member", vec![rule]));
    proxy
}

#[expect(clippy::print_stdout, reason = "the figures are for who runs it with --nocapture")]
fn say(text: &str) {
    println!("{text}");
}

async fn attack(name: &str, shot: impl Fn(usize) -> Shot) {
    let proxy = gateway();
    let shoot = async |number| {
        let Shot { token, path, code } = shot(number);
        let answer = proxy.bearer(&token).get(&path).await;
        assert_eq!(answer.status, code, "{name}: {}", answer.summary());
        // The harness records requests; the proxy must not.
        proxy.upstream.forget();
    };
    for number in 0..50 {
        shoot(number).await;
    }
    let requests = std::env::var("LISTLESS_ATTACK_REQUESTS").ok();
    let requests = requests.map_or(REQUESTS, |count| count.parse().expect("a number"));
    let before = resident_kib();
    for number in 50..50 + requests {
        shoot(number).await;
    }
    let growth = resident_kib().saturating_sub(before);
    say(&format!("{name}: {growth} KiB after {requests} requests"));
    assert!(growth <= GROWTH_KIB_MAX, "{name}: {growth} KiB after {requests} requests");
}

#[tokio::test(start_paused = true)]
async fn thousands_of_requests_do_not_grow_memory() {
    if std::env::var_os(ALONE).is_none() {
        let name = "exhaustion::thousands_of_requests_do_not_grow_memory";
        let mut child = Command::new(std::env::current_exe().expect("this program"));
        let output = child.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output();
        let output = output.expect("it runs");
        let told =
            [output.stdout, output.stderr].map(|told| String::from_utf8_lossy(&told).into_owned());
        say(&told[0]);
        assert!(output.status.success() && told[0].contains("1 passed"), "{told:?}");
        return;
    }
    let shot = |token: String, path: String, code| Shot { token, path, code };
    attack("wrong token, selectors of 58 KB", |number| {
        let path = format!("/api/v1/namespaces/a/pods?{}", selector(number, 58_000));
        shot("wrong".to_owned(), path, 401)
    })
    .await;
    attack("wrong tokens, selectors just small enough to be read", |number| {
        let path = format!("/api/v1/pods?{}", selector(number, SELECTOR_BYTES_READ - 100));
        shot(format!("wrong-{number}"), path, 401)
    })
    .await;
    attack("one namespace allowed, selectors just small enough to be read", |number| {
        let path =
            format!("/api/v1/namespaces/a/pods?{}", selector(number, SELECTOR_BYTES_READ - 100));
        shot(MEMBERS_TOKEN.to_owned(), path, 200)
    })
    .await;
    attack("wrong tokens, names as long as they may be", |number| {
        let long = format!("n{number}{}", "x".repeat(240));
        shot(format!("wrong-{number}"), format!("/api/v1/namespaces/{long}/pods/{long}"), 401)
    })
    .await;
    attack("one namespace allowed, other objects of long names", |number| {
        let path = format!("/api/v1/namespaces/n{number}{}/pods/x", "x".repeat(8000));
        shot(MEMBERS_TOKEN.to_owned(), path, 403)
    })
    .await;
    let before = kib("VmHWM:");
    for text in [
        format!("? \"{}\"\n: [{}]\n", "A".repeat(20_000), "a,".repeat(10_000)),
        format!("{}: [{}]\n", "A".repeat(1_000), "{a: b},".repeat(5_000)),
    ] {
        let config = Config::from_bytes(Path::new("an annotation"), text.as_bytes());
        config.expect_err("no configuration");
    }
    let growth = kib("VmHWM:").saturating_sub(before);
    assert!(growth <= GROWTH_KIB_MAX, "configurations of pods: {growth} KiB");
    reviews_are_small();
}

/// Reviews of three MiB of tiny values, and those of just as many values as are accepted.
fn reviews_are_small() {
    let list = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
    let deep = format!("{}0{}", r#"{"a":"#.repeat(99), "}".repeat(99));
    let mount = r#"{"name":"t","mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}"#;
    let container = format!(r#"{{"name":"a","volumeMounts":[{mount}]}}"#);
    let kept = |value: &str| {
        let port = format!(r#"{{"name":"KUBERNETES_SERVICE_PORT","value":{value}}}"#);
        format!(r#"[{{"name":"a","env":[{port}],"volumeMounts":[{mount}]}}]"#)
    };
    let one = format!("[{container}]");
    let cases = [
        ("tiny maps", "[]", list(r#"{"a":{}}"#, (3 << 20) / 9), false),
        ("values that are not copied", &list(&deep, 98), one.clone(), true),
        ("values that are kept", "{}", kept(&list(&deep, 98)), true),
        ("containers", "{}", list(&container, 1_600), true),
    ];
    let before = resident_kib();
    for (name, metadata, containers, is_accepted) in cases {
        let volumes = json!([{"name": "t", "secret": {"secretName": "t"}}]);
        let object = format!(
            r#"{{"metadata":{metadata},"spec":{{"containers":{containers},"volumes":{volumes}}}}}"#
        );
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","request":{{"uid":"u","operation":"CREATE",
            "namespace":"shop","kind":{{"group":"","kind":"Pod"}},"object":{object}}}}}"#
        );
        let began = std::time::Instant::now();
        let answer = review::answer(body.as_bytes(), &patch::Settings::default());
        let is_injected = answer.as_ref().is_ok_and(|(_, verdict)| verdict.outcome.is_ok());
        let growth = kib("VmHWM:").saturating_sub(before);
        say(&format!("after a review of {name}: {growth} KiB in {:?}", began.elapsed()));
        assert_eq!(is_injected, is_accepted, "{name}");
        assert!(growth <= REVIEW_KIB_MAX, "after a review of {name}: {growth} KiB");
    }
}
