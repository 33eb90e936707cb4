//! `listless report` and `listless top` against an admin address.

use std::{
    process::{Command, Output},
    time::Duration,
};

use listless::insight::report::Report;
use tokio::task::spawn_blocking;

use crate::harness::Setup;

async fn listless(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_listless"));
    command.args(arguments).env_remove("LISTLESS_LOG");
    let run = spawn_blocking(move || command.output().expect("the binary runs"));
    run.await.expect("no panic")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_print_the_data_of_the_admin_address() {
    let proxy = Setup::default().in_plain_text().await;
    let address = proxy.admin_address().await.to_string();
    let empty = listless(&["report", "--admin", &address]).await;
    assert!(text(&empty.stdout).ends_with("No requests yet.\n"));

    let client = proxy.client().with("user-agent", "curl/8.5.0");
    for _ in 0..12 {
        assert_eq!(client.get("/api/v1/pods").await.status, 200);
        // A shorter interval is as good: the reads only have to look like a poll.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let json = listless(&["report", "--admin", &address, "-o", "json"]).await;
    let report: Report = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((report.polls[0].requests, report.polls[0].verb.as_str()), (12, "list"));
    assert_eq!(report.findings[0].library, "curl");

    for arguments in [&["report"][..], &["top"], &["top", "--once", "--sort", "rate"]] {
        let told = listless(&[arguments, &["--admin", &address]].concat()).await;
        assert_eq!((told.status.code(), text(&told.stderr)), (Some(0), String::new()));
        let table = text(&told.stdout);
        assert!(table.contains("curl/8.5.0  list  pods"), "{table}");
    }
    let ticket = listless(&["report", "--admin", &address, "-o", "markdown"]).await;
    assert!(text(&ticket.stdout).contains("| curl/8.5.0 | list | pods | cluster |"));
    let top = listless(&["top", "--admin", &address, "-o", "json", "--limit", "1"]).await;
    let top: Report = serde_json::from_slice(&top.stdout).expect("JSON");
    assert_eq!(top.polls.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_printed_in_one_line() {
    for command in ["report", "top"] {
        let nothing = listless(&[command, "--admin", "127.0.0.1:1"]).await;
        assert_eq!(nothing.status.code(), Some(1), "{command}");
        let told = text(&nothing.stderr);
        assert!(told.starts_with("listless: 127.0.0.1:1: nothing listens there"), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
        let wrong = listless(&[command, "-o", "yaml"]).await;
        assert_eq!(wrong.status.code(), Some(2), "{command}");
    }
}
