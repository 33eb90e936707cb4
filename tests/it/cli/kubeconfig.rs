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

use super::{KUBECONFIG, LISTLESS, listless, signal, text};

/// A deadline; nothing here takes longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// A size limit; a program that is started and stopped writes much less.
const LINES_MAX: usize = 1000;
/// An address of these tests only, which Linux has. At a port that a Listless left, the listener of
/// another test would look like that Listless.
const LISTEN: &str = if cfg!(target_os = "linux") { "127.0.7.43:0" } else { "127.0.0.1:0" };

/// A running `listless local` and its files.
struct Local {
    child: Child,
    lines: Receiver<String>,
    ready_line: String,
    directory: PathBuf,
}

// === impl Local ===

impl Local {
    fn start(directory: &Path, flags: &[&str]) -> Self {
        let mut command = Self::command(directory);
        command.arg("--kubeconfig").arg(directory.join("source")).args(flags);
        Self::run(directory, command)
    }

    /// Starts it in a shell with this `KUBECONFIG`, whose home is the directory.
    fn start_with(directory: &Path, kubeconfig: &str) -> Self {
        let mut command = Self::command(directory);
        command.env("KUBECONFIG", kubeconfig).env("HOME", directory);
        Self::run(directory, command)
    }

    fn command(directory: &Path) -> Command {
        let mut command = Command::new(LISTLESS);
        command.args(["--log", "info", "local", "--write-kubeconfig"]);
        command.arg(directory.join("written"));
        for (flag, address) in
            [("--listen", LISTEN), ("--admin", "127.0.0.1:0"), ("--health", "127.0.0.1:0")]
        {
            command.args([flag, address]);
        }
        command.env_remove("LISTLESS_LOG").stdin(Stdio::null());
        command
    }

    fn run(directory: &Path, mut command: Command) -> Self {
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
        let (ready_line, directory) = (String::new(), directory.to_owned());
        let mut local = Self { child, lines, ready_line, directory };
        local.ready_line = local.until("listless: serving ");
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

/// Runs the command in a shell whose `KUBECONFIG` names the source.
fn kubeconfig(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(LISTLESS);
    command.args(["kubeconfig", "--written"]).arg(directory.join("written"));
    command.args(arguments).env("KUBECONFIG", directory.join("source"));
    command.output().expect("the binary runs")
}

/// Starts `listless local` in a shell with this `KUBECONFIG`, and demands that it serves a context
/// of these files.
#[track_caller]
fn serves(home: &Path, kubeconfig: &str, context: &str, files: &str) -> Local {
    let local = Local::start_with(home, kubeconfig);
    let expected = format!("serving context {context:?} of kubeconfig {files}");
    assert!(local.ready_line.contains(&expected), "{}", local.ready_line);
    local
}

/// Returns a written kubeconfig as kubectl writes it: without its first line.
fn rewritten(written: &str) -> &str {
    written.split_once('\n').expect("lines").1
}

/// Returns a written kubeconfig without its marks. With them, Listless refuses to be its own
/// apiserver.
pub(super) fn unmarked(written: &str) -> String {
    let mut read: serde_json::Value = serde_saphyr::from_str(written).expect("a kubeconfig");
    let cluster = read["clusters"][0]["cluster"].as_object_mut().expect("a cluster");
    cluster.remove("extensions").expect("a mark");
    read.to_string()
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
    let expected = format!("export KUBECONFIG={}:{}\n", written.display(), source.display());
    for flags in [&[][..], &["--kubeconfig", source.to_str().expect("text")], &["-o", "export"]] {
        let beside = kubeconfig(directory.path(), &[&["--beside-source"], flags].concat());
        assert_eq!(text(&beside.stdout), expected);
    }
    local.end();

    let ended = kubeconfig(directory.path(), &[]);
    assert_eq!((ended.status.code(), ended.stdout.len()), (Some(1), 0));
    assert!(text(&ended.stderr).contains("nothing listens at 127.0."));
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
    assert_eq!(plain["clusters"][0]["cluster"]["extensions"][0]["name"], "listless.dev");

    let proxied = read(&kubeconfig(directory.path(), &["--proxy-url"]));
    let led = &proxied["clusters"][0]["cluster"];
    assert_eq!(led["server"], "http://127.0.0.1:1", "the source's");
    let server = cluster["server"].as_str().expect("a server");
    assert_eq!(led["proxy-url"], server.replace("https://", "http://"));
    assert_eq!(led["certificate-authority-data"], cluster["certificate-authority-data"]);
    assert_eq!(led["extensions"], cluster["extensions"], "the mark");
    assert_eq!(proxied["users"], plain["users"]);
    assert_eq!(proxied["contexts"][0]["context"]["namespace"], "shop");
    assert!(!proxied.to_string().contains("not-shown"), "the source's credentials stay there");
    local.end();
}

/// The shell's profile evaluates `listless kubeconfig`, so `KUBECONFIG` names the written file.
#[test]
fn local_never_takes_a_kubeconfig_of_its_own_for_that_of_the_cluster() {
    let directory = directory();
    let home = directory.path();
    let [written, source, own] = ["written", "source", ".kube/config"].map(|name| home.join(name));
    fs::create_dir(home.join(".kube")).expect("a directory");
    fs::write(&own, two_contexts("staging")).expect("written");
    Local::start(home, &[]).end();
    let beside = format!("{}:{}", written.display(), source.display());
    serves(home, &beside, "prod", &source.display().to_string()).end();

    let alone = written.to_str().expect("text");
    let local = serves(home, alone, "staging", "~/.kube/config");
    let shell = |arguments: &[&str]| {
        let mut command = Command::new(LISTLESS);
        command.args(["kubeconfig", "--written", alone]).args(arguments);
        let output = command.env("KUBECONFIG", alone).env("HOME", home).output();
        let output = output.expect("the binary runs");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let expected = format!("export KUBECONFIG={alone}:{}\n", own.display());
    assert_eq!(shell(&["--beside-source"]), expected);
    let printed = [shell(&["--proxy-url"]), shell(&["-o", "yaml"])];
    let proxied: serde_json::Value = serde_saphyr::from_str(&printed[0]).expect("a kubeconfig");
    assert_eq!(proxied["clusters"][0]["cluster"]["server"], "http://127.0.0.1:1", "the source's");
    local.end();

    for content in &printed {
        let file = home.join("printed");
        for text in [content.as_str(), rewritten(content)] {
            fs::write(&file, text).expect("written");
            serves(home, file.to_str().expect("text"), "staging", "~/.kube/config").end();
        }
    }
}

#[test]
fn a_written_kubeconfig_that_kubectl_rewrote_is_printed_and_replaced() {
    let directory = directory();
    let local = Local::start(directory.path(), &[]);
    let written = directory.path().join("written");
    fs::write(&written, rewritten(&local.written())).expect("written");
    let printed = kubeconfig(directory.path(), &[]);
    let expected = format!("export KUBECONFIG={}\n", written.display());
    assert_eq!(text(&printed.stdout), expected, "{}", text(&printed.stderr));
    local.end();
    let again = Local::start(directory.path(), &[]);
    assert!(again.written().starts_with("# Written by listless"), "{}", again.written());
    again.end();
}

#[test]
fn a_context_of_listless_in_another_kubeconfig_is_never_the_source() {
    let directory = directory();
    let home = directory.path();
    let local = Local::start(home, &[]);
    let read =
        |text: &str| -> serde_json::Value { serde_saphyr::from_str(text).expect("a kubeconfig") };
    // As `kubectl config view --flatten` merges the written kubeconfig with that of the cluster.
    let (mut merged, source) = (read(&local.written()), read(&two_contexts("staging")));
    for list in ["clusters", "users", "contexts"] {
        let entries = merged[list].as_array_mut().expect("a list");
        entries.push(source[list][0].clone());
    }
    local.end();
    let [file, source] = ["merged", "source"].map(|name| home.join(name).display().to_string());
    fs::write(&file, merged.to_string()).expect("written");
    fs::write(&source, two_contexts("staging")).expect("written");

    let both = format!("{file}:{source}");
    serves(home, &both, "staging", &both).end();
    let mut command = Local::command(home);
    command.args(["--kubeconfig", &file, "--context", "staging"]);
    Local::run(home, command).end();
    let expected = format!(
        "listless: context \"prod\" of kubeconfig {file} was written by listless and leads to \
         Listless itself; pass the context of a cluster to --context\n"
    );
    for arguments in [&[][..], &["--kubeconfig", &file]] {
        let mut command = Local::command(home);
        let output = command.args(arguments).env("KUBECONFIG", &file).output();
        let output = output.expect("the binary runs");
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(&expected), "{}", text(&output.stderr));
    }
}

#[test]
fn an_empty_current_context_leaves_the_choice_to_the_next_file() {
    let directory = directory();
    let home = directory.path();
    let [empty, source] = ["empty", "source"].map(|name| home.join(name).display().to_string());
    fs::write(&empty, "kind: Config\ncurrent-context: \"\"\n").expect("written");
    let both = format!("{empty}:{source}");
    serves(home, &both, "prod", &both).end();
}

#[test]
fn the_kubeconfig_of_a_running_listless_is_not_replaced_by_another() {
    let directory = directory();
    let first = Local::start(directory.path(), &[]);
    let before = first.written();
    let read: serde_json::Value = serde_saphyr::from_str(&before).expect("a kubeconfig");
    let server = read["clusters"][0]["cluster"]["server"].as_str().expect("a server");
    let mut second = Local::command(directory.path());
    second.arg("--kubeconfig").arg(directory.path().join("source")).args(["--context", "staging"]);
    let output = second.output().expect("the binary runs");
    let expected = format!(
        "listless: {} leads to the listless that runs at {server} and is not replaced; pass another \
         file to --write-kubeconfig\n",
        directory.path().join("written").display()
    );
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(text(&output.stderr).contains(&expected), "{}", text(&output.stderr));
    assert_eq!(first.written(), before);
    first.end();
    let second = Local::start(directory.path(), &["--context", "staging"]);
    assert!(second.written().contains("current-context: staging"), "{}", second.written());
    second.end();
}

#[test]
fn kubeconfig_prints_nothing_for_a_context_that_is_not_served() {
    let directory = directory();
    let local = Local::start(directory.path(), &[]);
    let expected = format!(
        "listless: --context \"staging\" is not served: {} is for context \"prod\"; ",
        directory.path().join("written").display()
    );
    for form in [&[][..], &["-o", "yaml"], &["--proxy-url"]] {
        let served = kubeconfig(directory.path(), &[form, &["--context", "prod"]].concat());
        assert_eq!(served.status.code(), Some(0), "{form:?}: {}", text(&served.stderr));
        let other = kubeconfig(directory.path(), &[form, &["--context", "staging"]].concat());
        assert_eq!((other.status.code(), other.stdout.len()), (Some(1), 0), "{form:?}");
        assert!(text(&other.stderr).starts_with(&expected), "{}", text(&other.stderr));
    }
    local.end();
}

#[test]
fn options_of_kubeconfig_without_an_effect_are_wrong_usage() {
    for (arguments, named) in [
        (&["--kubeconfig", "source"][..], "--kubeconfig has no effect without --beside-source"),
        (&["--kubeconfig", "source", "-o", "yaml"], "--kubeconfig has no effect without"),
        (&["--beside-source", "-o", "yaml"], "--beside-source needs -o export"),
        (&["--proxy-url", "-o", "export"], "--proxy-url prints a kubeconfig"),
        (&["--proxy-url", "--beside-source"], "--beside-source"),
    ] {
        let output = listless(&[&["kubeconfig"][..], arguments].concat());
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}");
        assert!(text(&output.stderr).contains(named), "{}", text(&output.stderr));
    }
}

#[test]
fn an_apiserver_below_a_path_is_refused_with_a_proxy_url() {
    let directory = directory();
    let apiserver = "http://127.0.0.1:1/k8s/clusters/c-1";
    let source = two_contexts("prod").replace("http://127.0.0.1:1", apiserver);
    fs::write(directory.path().join("source"), source).expect("written");
    let local = Local::start(directory.path(), &[]);
    let proxied = kubeconfig(directory.path(), &["--proxy-url"]);
    let expected = format!(
        "listless: --proxy-url cannot serve an apiserver below a path, such as {apiserver}; use \
         listless kubeconfig or listless kubeconfig -o yaml, without --proxy-url\n"
    );
    assert_eq!((proxied.status.code(), proxied.stdout.len()), (Some(1), 0));
    assert_eq!(text(&proxied.stderr), expected);
    assert_eq!(kubeconfig(directory.path(), &["-o", "yaml"]).status.code(), Some(0));
    local.end();
}

#[test]
fn a_kubeconfig_that_listless_wrote_is_refused_as_the_clusters() {
    let directory = directory();
    Local::start(directory.path(), &[]).end();
    let written = directory.path().join("written");
    let mut command = Local::command(directory.path());
    let output = command.arg("--kubeconfig").arg(&written).output().expect("the binary runs");
    let expected = format!(
        "listless: kubeconfig {} was written by listless and leads to Listless itself; pass the \
         kubeconfig of the cluster to --kubeconfig\n",
        written.display()
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(&expected), "{}", text(&output.stderr));
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
    let client = directory.path().join("client");
    fs::write(&client, unmarked(&local.written())).expect("written");
    let mut check = Command::new(LISTLESS);
    check.arg("check").arg("--kubeconfig").arg(&client).stdout(Stdio::null());
    let mut check = check.stderr(Stdio::null()).spawn().expect("the binary runs");
    std::thread::sleep(Duration::from_secs(2));
    source("staging");
    local.until("another context: draining");
    signal(&local.child, "TERM");
    local.until("SIGTERM: draining");
    assert_eq!(local.child.wait().expect("an end").code(), Some(0));
    check.wait().expect("an end");
}
