//! The commands that query a running Listless: `explain --admin` and `tap`.

use std::process::Stdio;

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use super::{PODS, settled};
use crate::harness::TestProxy;

fn listless(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_listless"));
    command.args(arguments).env_remove("LISTLESS_LOG").kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A tap that already listens.
async fn tapping(
    proxy: &TestProxy,
    arguments: &[&str],
) -> (Child, tokio::io::Lines<BufReader<tokio::process::ChildStdout>>) {
    let address = proxy.admin_address().await.to_string();
    let fixed = ["tap", "--admin", &address, "--resource", "pods"];
    let mut child = listless(&[&fixed[..], arguments].concat()).spawn().expect("it runs");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    crate::harness::eventually("a listener", || proxy.is_tapped()).await;
    (child, lines)
}

#[tokio::test]
async fn explain_queries_a_running_listless() {
    let proxy = TestProxy::warmed(PODS).await;
    let address = proxy.admin_address().await.to_string();
    let asked = ["explain", "get", PODS, "--admin", &address];
    let output = listless(&asked).output().await.expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("\nnow             answered from memory\n"), "{text}");
    let output = listless(&[&asked[..], &["-o", "json"]].concat()).output().await.expect("it runs");
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(super::about(&value, "now"), "answered from memory");
    let alone = listless(&["explain", "get", PODS, "-o", "json"]).output().await.expect("it runs");
    let value: serde_json::Value = serde_json::from_slice(&alone.stdout).expect("JSON");
    assert_eq!(
        (super::about(&value, "now"), super::about(&value, "request")),
        ("", "list pods.v1 in namespace a")
    );
}

#[tokio::test]
async fn a_command_reports_that_nothing_listens() {
    for arguments in [
        &["tap", "--admin", "127.0.0.1:1"][..],
        &["explain", "GET", PODS, "--admin", "http://127.0.0.1:1/"],
    ] {
        let output = listless(arguments).output().await.expect("it runs");
        let told = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{told}");
        let expected =
            "listless: 127.0.0.1:1: nothing listens there; start Listless, or pass its address";
        assert!(told.starts_with(expected) && told.lines().count() == 1, "{told}");
    }
    let output = listless(&["tap", "--admin", "nowhere"]).output().await.expect("it runs");
    assert_eq!(output.status.code(), Some(2));
}

#[tokio::test]
#[cfg(unix)]
async fn the_tap_prints_a_line_for_each_request_and_exits_with_0_on_ctrl_c() {
    let proxy = TestProxy::warmed(PODS).await;
    let (mut child, mut lines) = tapping(&proxy, &[]).await;
    settled(&proxy, PODS).await;
    let heading = lines.next_line().await.expect("a pipe").expect("a line");
    assert!(heading.starts_with("TIME "), "{heading}");
    let line = lines.next_line().await.expect("a pipe").expect("a line");
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[1..5], ["list", "200", "cache", "session"], "{line}");
    assert!(line.contains("pods.v1/a"), "{line}");
    let id = child.id().expect("it runs").to_string();
    let sent = Command::new("kill").args(["-s", "INT", &id]).status().await.expect("kill runs");
    assert!(sent.success());
    assert_eq!(child.wait().await.expect("an end").code(), Some(0));
}

#[tokio::test]
async fn the_tap_prints_json_and_applies_filters() {
    let proxy = TestProxy::warmed(PODS).await;
    let (_child, mut lines) = tapping(&proxy, &["-o", "json", "--user-agent", "wanted"]).await;
    proxy.client().get(PODS).await;
    proxy.client().with("user-agent", "wanted/1").get(PODS).await;
    let line = lines.next_line().await.expect("a pipe").expect("a line");
    let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((&value["userAgent"], &value["servedBy"]), (&"wanted/1".into(), &"cache".into()));
}
