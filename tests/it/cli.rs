//! The command as a user runs it: exit codes, output streams, start and end.

#[cfg(unix)]
mod again;
#[cfg(unix)]
mod check;
#[cfg(unix)]
mod gateway;
#[cfg(unix)]
mod kubeconfig;
#[cfg(unix)]
mod outage;
#[cfg(unix)]
mod sidecar;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

const LISTLESS: &str = env!("CARGO_BIN_EXE_listless");

/// This server receives no request until a client comes.
const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: not-shown}}]
contexts: [{name: prod, context: {cluster: c, user: u, namespace: shop}}]
current-context: prod
"#;

/// A `listless local` on free ports, which logs errors only.
const LOCAL: [&str; 9] = [
    "--log",
    "error",
    "local",
    "--listen",
    "127.0.0.1:0",
    "--admin",
    "127.0.0.1:0",
    "--health",
    "127.0.0.1:0",
];

fn listless(arguments: &[&str]) -> Output {
    let mut command = Command::new(LISTLESS);
    command.args(arguments).env_remove("LISTLESS_LOG").output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn repository(path: &str) -> String {
    format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn explain_names_the_method_to_use_for_a_verb() {
    let output = listless(&["explain", "LIST", "/api/v1/pods"]);
    let told = text(&output.stderr);
    assert!(told.contains("\"LIST\" is not an HTTP method; use GET with the path"), "{told}");
}

#[test]
fn only_results_go_to_standard_output() {
    let default = listless(&["config", "default"]);
    assert_eq!((default.status.code(), text(&default.stderr)), (Some(0), ""));
    let file = fs::read_to_string(repository("config/default.yaml")).expect("the file");
    assert_eq!(text(&default.stdout), file);

    let schema = listless(&["config", "schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&schema.stdout).expect("JSON");
    assert_eq!(schema["title"], "ProxyConfiguration");

    let file = repository("config/examples/observe.yaml");
    let effective = listless(&["config", "effective", "--config", &file]);
    assert!(text(&effective.stdout).contains("mode: observe\ncache:\n  memoryLimit: 256Mi\n"));
    let validate = listless(&["config", "validate", &file]);
    assert_eq!((validate.status.code(), validate.stdout.len()), (Some(0), 0));

    let explain = listless(&["explain", "get", "/api/v1/pods"]);
    assert!(text(&explain.stdout).contains("list pods.v1 in the whole cluster"));
}

#[test]
fn wrong_usage_exits_with_2_and_names_the_argument() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("c.yaml");
    fs::write(&file, "apiVersion: listless.dev/v1alpha1\nkind: ProxyConfiguration\nmoed: x\n")
        .expect("written");
    let file = file.to_str().expect("text");
    for arguments in [
        &["config", "validate", file][..],
        // The word that people try.
        &["config", "check", file],
        &["config", "effective", "--config", file],
        &["local", "--config", file],
        &["explain", "GET", "/api/v1/pods", "--config", file],
    ] {
        let output = listless(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let expected = format!("{file}:3:1: moed: unknown field \"moed\"");
        let told = text(&output.stderr);
        assert!(told.starts_with(&expected) && told.lines().count() == 1, "{told}");
    }
    for arguments in [
        &["local", "--listen", "here"][..],
        &["explain", "GET", "http://[bad"],
        &["explain", "LIST", "/api/v1/pods"],
        &["--log", "x=y=z", "config", "default"],
        &["config", "validate", "no-such-file"],
        &["fetch"],
        &[],
    ] {
        let output = listless(arguments);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
        assert!(!text(&output.stderr).contains('\u{1b}'), "no colours into a file");
    }
}

#[test]
fn a_url_that_is_none_is_told_with_the_character_to_escape() {
    for (url, expected) in [
        (
            "/api/v1/pods?labelSelector=a b",
            "listless: \"/api/v1/pods?labelSelector=a b\" is not a URL: ' ' is not allowed; write it \
             as %20\n",
        ),
        ("http://[bad", "listless: \"http://[bad\" is not a URL: invalid authority\n"),
    ] {
        let output = listless(&["explain", "GET", url]);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), expected));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("kubeconfig");
    fs::write(&file, KUBECONFIG.replace("http://127.0.0.1:1", "https://a b")).expect("written");
    let file = file.to_str().expect("text");
    for command in [&LOCAL[..], &["check"]] {
        let output = listless(&[command, &["--kubeconfig", file]].concat());
        let expected = format!(
            "listless: cannot use the cluster of context \"prod\" of kubeconfig {file}: \"https://a b\" \
             is not a URL: ' ' is not allowed; write it as %20"
        );
        let told = text(&output.stderr);
        assert!(told.contains(&expected) && told.lines().count() == 1, "{told}");
    }
}

#[test]
fn a_kubeconfig_without_contexts_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("kubeconfig");
    fs::write(&file, "kind: Config\ncontexts: []\n").expect("written");
    let file = file.to_str().expect("text");
    let output = listless(&[&LOCAL[..], &["--kubeconfig", file, "--context", "a"]].concat());
    let expected =
        format!("listless: kubeconfig {file} has no context \"a\"; it has no contexts\n");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), &*expected));
}

#[test]
fn failures_exit_with_1_and_one_line() {
    let output = listless(&[
        "--log",
        "off",
        "local",
        "--kubeconfig",
        "no-such-file",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--health",
        "127.0.0.1:0",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(
        told.starts_with(
            "listless: cannot read kubeconfig no-such-file; correct --kubeconfig: No such file"
        ),
        "{told}"
    );
    assert_eq!(told.lines().count(), 1, "{told}");
}

fn local(directory: &Path) -> Child {
    let kubeconfig = directory.join("kubeconfig");
    fs::write(&kubeconfig, KUBECONFIG).expect("written");
    let mut command = Command::new(LISTLESS);
    command.args(["--log", "info", "--log-format", "json", "local", "--kubeconfig"]);
    command.arg(kubeconfig).arg("--write-kubeconfig").arg(directory.join("written"));
    for flag in ["--listen", "--admin", "--health"] {
        command.args([flag, "127.0.0.1:0"]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary runs")
}

/// Waits for the one line that says it is ready, and returns it.
fn announced(child: &mut Child) -> String {
    let mut line = String::new();
    let out = child.stdout.as_mut().expect("a pipe");
    BufReader::new(out).read_line(&mut line).expect("a line");
    line
}

#[cfg(unix)]
fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

#[test]
#[cfg(unix)]
fn local_prints_one_ready_line_and_exits_with_0_on_either_signal() {
    for name in ["TERM", "INT"] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut child = local(directory.path());
        let line = announced(&mut child);
        let written = directory.path().join("written");
        assert!(line.starts_with("listless: serving context \"prod\""), "{line}");
        assert!(line.contains(&format!("KUBECONFIG={}", written.display())), "{line}");
        let kubeconfig = fs::read_to_string(&written).expect("the kubeconfig");
        assert!(kubeconfig.contains("namespace: shop"), "{kubeconfig}");
        assert!(!kubeconfig.contains("not-shown"), "the user's own token stays where it was");

        signal(&child, name);
        assert_eq!(child.wait().expect("an end").code(), Some(0), "{name}");
        let mut log = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut log).expect("text");
        for line in log.lines() {
            let record: serde_json::Value = serde_json::from_str(line).expect("one JSON a line");
            assert!(record["level"].is_string(), "{line}");
        }
        assert!(!log.contains("not-shown"), "{log}");
        assert!(written.exists(), "the kubeconfig stays");
    }
}

#[test]
#[cfg(unix)]
fn local_drains_although_its_log_cannot_be_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut child = local(directory.path());
    announced(&mut child);
    drop(child.stderr.take());
    signal(&child, "TERM");
    assert_eq!(child.wait().expect("an end").code(), Some(0));
}

#[test]
fn local_does_not_overwrite_a_kubeconfig_it_did_not_write() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("written"), "kind: Config\n").expect("written");
    let output = local(directory.path()).wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(
        told.contains("was not written by listless and is not replaced; pass another file to"),
        "{told}"
    );
}

/// Returns what the announced server sends on a bare connection.
fn told(line: &str, request: &str) -> String {
    let address = line.split("https://").nth(1).and_then(|rest| rest.split(';').next());
    let mut stream = TcpStream::connect(address.expect("an address").trim()).expect("a port");
    stream.write_all(request.as_bytes()).expect("written");
    let mut answer = vec![0; 1024];
    let read = stream.read(&mut answer).expect("an answer");
    text(&answer[..read]).to_owned()
}

#[test]
#[cfg(unix)]
fn local_is_an_http_proxy_only_to_the_contexts_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut child = local(directory.path());
    let line = announced(&mut child);
    for (request, status) in [
        ("CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n", "200"),
        ("CONNECT 127.0.0.1:2 HTTP/1.1\r\nHost: 127.0.0.1:2\r\n\r\n", "403"),
        ("CONNECT kubernetes.default.svc:443 HTTP/1.1\r\nHost: x\r\n\r\n", "403"),
        ("GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
    ] {
        let answer = told(&line, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
    }
    signal(&child, "TERM");
    assert_eq!(child.wait().expect("an end").code(), Some(0));
}
