//! `listless kubeconfig`, and the state that `listless local` keeps and follows.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{Receiver, sync_channel},
    time::{Duration, Instant},
};

use super::{KUBECONFIG, LISTLESS, signal, text};

/// A deadline; nothing here takes longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// A size limit; a program that is started and stopped writes much less.
const LINES_MAX: usize = 1000;

/// A running `listless local` and its files.
struct Local {
    child: Child,
    lines: Receiver<String>,
    directory: PathBuf,
}

// === impl Local ===

impl Local {
    fn start(directory: &Path, flags: &[&str]) -> Self {
        let mut command = Command::new(LISTLESS);
        command.args(["--log", "info", "local"]).args(flags);
        command.arg("--kubeconfig").arg(directory.join("source"));
        command.arg("--write-kubeconfig").arg(directory.join("written"));
        for flag in ["--listen", "--admin", "--health"] {
            command.args([flag, "127.0.0.1:0"]);
        }
        command.env_remove("LISTLESS_LOG").stdin(Stdio::null());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        let (sender, lines) = sync_channel(LINES_MAX);
        for stream in [
            Box::new(child.stdout.take().expect("a pipe")) as Box<dyn std::io::Read + Send>,
            Box::new(child.stderr.take().expect("a pipe")),
        ] {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    // Nothing listens after the test.
                    let _ = sender.send(line);
                }
            });
        }
        let local = Self { child, lines, directory: directory.to_owned() };
        local.until("listless: serving ");
        local
    }

    /// Waits for a line with this part.
    #[track_caller]
    fn until(&self, part: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("no line with {part:?} in {PATIENCE:?}"));
            if line.contains(part) {
                return line;
            }
        }
    }

    fn written(&self) -> String {
        fs::read_to_string(self.directory.join("written")).expect("the kubeconfig")
    }

    fn end(mut self) {
        signal(&self.child, "TERM");
        assert_eq!(self.child.wait().expect("an end").code(), Some(0));
    }
}

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("source"), two_contexts("prod")).expect("written");
    directory
}

fn two_contexts(current: &str) -> String {
    let source =
        KUBECONFIG.replace("current-context: prod", &format!("current-context: {current}"));
    source.replace(
        "contexts: [",
        "contexts: [{name: staging, context: {cluster: c, user: u, namespace: till}}, ",
    )
}

fn kubeconfig(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(LISTLESS);
    command.args(["kubeconfig", "--written"]).arg(directory.join("written"));
    command.arg("--kubeconfig").arg(directory.join("source")).args(arguments);
    command.output().expect("the binary runs")
}

#[test]
fn kubeconfig_prints_only_the_export_line_while_local_listens() {
    let directory = directory();
    let none = kubeconfig(directory.path(), &[]);
    assert_eq!((none.status.code(), none.stdout.len()), (Some(1), 0));
    assert!(text(&none.stderr).contains("start listless local"), "{}", text(&none.stderr));

    let local = Local::start(directory.path(), &[]);
    let (written, source) = (directory.path().join("written"), directory.path().join("source"));
    let printed = kubeconfig(directory.path(), &[]);
    assert_eq!(printed.status.code(), Some(0), "{}", text(&printed.stderr));
    let expected = format!("export KUBECONFIG={}\n", written.display());
    assert_eq!(text(&printed.stdout), expected);
    let beside = kubeconfig(directory.path(), &["--beside-source"]);
    let expected = format!("export KUBECONFIG={}:{}\n", written.display(), source.display());
    assert_eq!(text(&beside.stdout), expected);
    local.end();

    let ended = kubeconfig(directory.path(), &[]);
    assert_eq!((ended.status.code(), ended.stdout.len()), (Some(1), 0));
    assert!(text(&ended.stderr).contains("nothing listens at 127.0.0.1:"));
    fs::write(&written, "kind: Config\n").expect("written");
    let foreign = kubeconfig(directory.path(), &[]);
    let expected = "was not written by listless; pass the file that listless local wrote, or leave \
                    --written out for ~/.kube/listless";
    assert!(text(&foreign.stderr).contains(expected), "{}", text(&foreign.stderr));
}

#[test]
fn kubeconfig_as_yaml_has_the_local_server_or_a_proxy_url() {
    let directory = directory();
    let local = Local::start(directory.path(), &[]);
    let read = |output: &Output| -> serde_json::Value {
        let read = serde_saphyr::from_str(text(&output.stdout));
        read.unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
    };
    let written: serde_json::Value =
        serde_saphyr::from_str(&local.written()).expect("a kubeconfig");
    let cluster = &written["clusters"][0]["cluster"];
    let plain = read(&kubeconfig(directory.path(), &["-o", "yaml"]));
    assert_eq!(plain["clusters"][0]["cluster"]["server"], cluster["server"]);
    assert_eq!(plain["users"][0]["user"]["token"], written["users"][0]["user"]["token"]);

    let proxied = read(&kubeconfig(directory.path(), &["--proxy-url"]));
    let led = &proxied["clusters"][0]["cluster"];
    assert_eq!(led["server"], "http://127.0.0.1:1", "the source's");
    let server = cluster["server"].as_str().expect("a server");
    assert_eq!(led["proxy-url"], server.replace("https://", "http://"));
    assert_eq!(led["certificate-authority-data"], cluster["certificate-authority-data"]);
    assert_eq!(proxied["users"], plain["users"]);
    assert_eq!(proxied["contexts"][0]["context"]["namespace"], "shop");
    assert!(!proxied.to_string().contains("not-shown"), "the source's credentials stay there");
    local.end();
}

#[test]
fn with_a_state_directory_clients_stay_known_and_trusted() {
    let directory = directory();
    let state = directory.path().join("state");
    let flags = ["--state", state.to_str().expect("text")];
    let kept = |written: &str| -> [String; 2] {
        let written: serde_json::Value = serde_saphyr::from_str(written).expect("a kubeconfig");
        let authority = &written["clusters"][0]["cluster"]["certificate-authority-data"];
        [authority, &written["users"][0]["user"]["token"]].map(ToString::to_string)
    };
    let first = Local::start(directory.path(), &flags);
    let before = kept(&first.written());
    first.end();
    let second = Local::start(directory.path(), &flags);
    assert_eq!(kept(&second.written()), before);
    second.end();
    let other = Local::start(directory.path(), &["--context", "staging", flags[0], flags[1]]);
    let [authority, token] = kept(&other.written());
    assert_eq!(authority, before[0], "the server is trusted");
    assert_ne!(token, before[1], "another context's clients are not known");
    other.end();
    let plain = Local::start(directory.path(), &["--context", "staging"]);
    assert!(kept(&plain.written()).iter().all(|part| ![&before[0], &token].contains(&part)));
    plain.end();
}

#[test]
fn a_context_switch_in_the_source_kubeconfig_is_logged() {
    let directory = directory();
    let local = Local::start(directory.path(), &[]);
    fs::write(directory.path().join("source"), two_contexts("staging")).expect("written");
    let line = local.until("the kubeconfig changed");
    assert!(line.contains("served=\"prod\"") && line.contains("now=\"staging\""), "{line}");
    assert!(local.written().contains("current-context: prod"), "what was begun with is served");
    fs::write(directory.path().join("source"), two_contexts("prod")).expect("written");
    local.until("the kubeconfig again selects the context that is served");
    local.end();
}

#[test]
fn a_context_switch_in_the_source_kubeconfig_is_followed_with_the_flag() {
    let directory = directory();
    let local = Local::start(directory.path(), &["--follow-context"]);
    assert!(local.written().contains("current-context: prod"));
    fs::write(directory.path().join("source"), two_contexts("staging")).expect("written");
    let line = local.until("listless: serving ");
    assert!(line.contains("context \"staging\""), "{line}");
    assert!(local.written().contains("current-context: staging"));
    local.end();
}

/// The first signal is the first, although the requests in flight end already.
#[test]
#[expect(clippy::disallowed_methods, reason = "nothing tells that a request is in flight")]
fn a_signal_during_a_switch_of_the_context_cuts_nothing_off() {
    let directory = directory();
    // It accepts connections and never answers.
    let apiserver = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = apiserver.local_addr().expect("an address").to_string();
    let source = |current: &str| {
        let text = two_contexts(current).replace("127.0.0.1:1\"", &format!("{address}\""));
        assert!(text.contains(&address), "{text}");
        fs::write(directory.path().join("source"), text).expect("written");
    };
    source("prod");
    let mut local = Local::start(directory.path(), &["--follow-context"]);
    let written = directory.path().join("written");
    let mut check = Command::new(LISTLESS);
    check.arg("check").arg("--kubeconfig").arg(&written).stdout(Stdio::null());
    let mut check = check.stderr(Stdio::null()).spawn().expect("the binary runs");
    std::thread::sleep(Duration::from_secs(2));
    source("staging");
    local.until("another context: draining");
    signal(&local.child, "TERM");
    local.until("SIGTERM: draining");
    assert_eq!(local.child.wait().expect("an end").code(), Some(0));
    check.wait().expect("an end");
}
