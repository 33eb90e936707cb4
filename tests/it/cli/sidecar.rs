//! `listless sidecar` as a pod runs it.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use super::{LISTLESS, announced, listless, signal, text, told};

const FREE: [&str; 4] = ["--admin", "127.0.0.1:0", "--health", "127.0.0.1:0"];

/// Environment variables that every pod has; nothing listens at these addresses.
const POD: [(&str, &str); 2] =
    [("KUBERNETES_SERVICE_HOST", "127.0.0.1"), ("KUBERNETES_SERVICE_PORT", "1")];

/// A pod's directories.
struct Pod(tempfile::TempDir);

impl Pod {
    fn new() -> Self {
        let pod = Self(tempfile::tempdir().expect("a directory"));
        let account = pod.0.path().join("account");
        fs::create_dir(&account).expect("a directory");
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["cluster".to_owned()]).expect("a name");
        let authority = params.self_signed(&key).expect("a certificate");
        for (file, content) in
            [("token", "not-shown"), ("namespace", "shop"), ("ca.crt", &authority.pem())]
        {
            fs::write(account.join(file), content).expect("written");
        }
        pod
    }

    fn command(&self) -> Command {
        self.command_at(&FREE)
    }

    fn command_at(&self, options: &[&str]) -> Command {
        let mut command = Command::new(LISTLESS);
        command.args(["--log", "warn", "sidecar", "--listen", "127.0.0.1:0"]).args(options);
        command.env_remove("LISTLESS_LOG");
        command.envs(POD).arg("--service-account").arg(self.0.path().join("account"));
        command.arg("--mirror").arg(self.0.path().join("mirror"));
        command.arg("--state").arg(self.0.path().join("state"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn mirrored(&self, file: &str) -> String {
        fs::read_to_string(self.0.path().join("mirror").join(file)).expect("a file")
    }

    /// Starts it, stops it, and returns its log.
    #[expect(clippy::disallowed_methods, reason = "nothing tells that a signal had no effect")]
    fn run(&self) -> String {
        let mut child = self.command().spawn().expect("the binary runs");
        let line = announced(&mut child);
        assert!(line.starts_with("listless: serving service account "), "{line}");
        // Without a configuration file there is nothing to read again.
        signal(&child, "HUP");
        std::thread::sleep(Duration::from_millis(300));
        signal(&child, "TERM");
        assert_eq!(child.wait().expect("an end").code(), Some(0));
        std::io::read_to_string(child.stderr.take().expect("a pipe")).expect("text")
    }
}

fn certificates(pem: &str) -> Vec<&str> {
    pem.split_inclusive("-----END CERTIFICATE-----\n").collect()
}

#[test]
fn the_sidecar_starts_without_an_apiserver_and_copies_the_service_account() {
    let pod = Pod::new();
    assert_eq!(pod.run(), "");
    assert_eq!(
        (pod.mirrored("token"), pod.mirrored("namespace")),
        ("not-shown".into(), "shop".into())
    );
    let bundle = pod.mirrored("ca.crt");
    assert_eq!(certificates(&bundle).len(), 2);
    // Clients that read the bundle once still trust a container that restarts.
    assert_eq!(pod.run(), "");
    assert_eq!(pod.mirrored("ca.crt"), bundle);
}

#[test]
fn other_service_accounts_are_copied_and_a_failed_copy_affects_nothing_else() {
    let pod = Pod::new();
    let (account, robot) = (pod.0.path().join("account"), pod.0.path().join("robot"));
    fs::create_dir(&robot).expect("a directory");
    fs::copy(account.join("ca.crt"), robot.join("ca.crt")).expect("copied");
    fs::write(robot.join("token"), "of-the-robot").expect("written");
    let copy = pod.0.path().join("robot-copy");
    let nowhere = pod.0.path().join("nowhere");
    let mut command = pod.command();
    for (from, to) in [(&robot, &copy), (&nowhere, &pod.0.path().join("nowhere-copy"))] {
        command.arg(format!("--also-mirror={}={}", from.display(), to.display()));
    }
    let mut child = command.spawn().expect("the binary runs");
    announced(&mut child);
    signal(&child, "TERM");
    assert_eq!(child.wait().expect("an end").code(), Some(0));
    let log = std::io::read_to_string(child.stderr.take().expect("a pipe")).expect("text");
    assert!(log.contains("nowhere"), "{log}");
    assert_eq!(fs::read_to_string(copy.join("token")).expect("a token"), "of-the-robot");
    let bundle = fs::read_to_string(copy.join("ca.crt")).expect("a bundle");
    assert_eq!(bundle, pod.mirrored("ca.crt"), "one authority for all");
    let usage = listless(&["sidecar", "--also-mirror", "a"]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(text(&usage.stderr).contains("--also-mirror"), "{}", text(&usage.stderr));
}

#[test]
fn without_a_folder_for_its_authority_the_sidecar_serves_and_logs_it() {
    let pod = Pod::new();
    fs::write(pod.0.path().join("state"), "in the way").expect("written");
    let log = pod.run();
    assert!(log.contains("cannot store the authority"), "{log}");
    assert_eq!(certificates(&pod.mirrored("ca.crt")).len(), 2);
}

#[test]
fn missing_requirements_of_the_sidecar_are_named() {
    let pod = Pod::new();
    let outside = pod.command().env_remove(POD[0].0).output().expect("the binary runs");
    assert_eq!(outside.status.code(), Some(2));
    assert!(text(&outside.stderr).contains("KUBERNETES_SERVICE_HOST"), "{}", text(&outside.stderr));
    let usage = listless(&["sidecar", "--state", "x"]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(text(&usage.stderr).contains("--mirror"), "{}", text(&usage.stderr));
    let account = pod.0.path().join("account");
    for (file, content) in [("token", ""), ("ca.crt", "no certificate")] {
        let before = fs::read(account.join(file)).expect("a file");
        fs::write(account.join(file), content).expect("written");
        // It does not give up: once the files are fixed, it works without a restart of the pod.
        let mut child = pod.command().spawn().expect("the binary runs");
        let mut told = String::new();
        let mut log = BufReader::new(child.stderr.take().expect("a pipe"));
        while !told.contains("starting another") {
            assert_ne!(log.read_line(&mut told).expect("a line"), 0, "{told}");
        }
        assert!(told.contains("listless: ") && told.contains("service account"), "{told}");
        signal(&child, "TERM");
        assert_eq!(child.wait().expect("an end").code(), Some(0));
        fs::write(account.join(file), before).expect("written");
    }
    assert!(!Path::new(&pod.0.path().join("mirror/token")).exists());
}

/// Addresses that a test must know in advance; they were free a moment ago.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").to_string()
}

/// A sidecar with known addresses.
struct Sidecar {
    _pod: Pod,
    supervisor: Child,
    announced: String,
    admin: String,
    health: String,
}

impl Sidecar {
    fn start() -> Self {
        let pod = Pod::new();
        let (admin, health) = (free_address(), free_address());
        let mut command = pod.command_at(&["--admin", &admin, "--health", &health]);
        let mut supervisor = command.spawn().expect("the binary runs");
        let announced = announced(&mut supervisor);
        Self { _pod: pod, supervisor, announced, admin, health }
    }

    /// The one process below the supervisor.
    fn worker(&self) -> Option<u32> {
        let id = self.supervisor.id();
        // A child belongs to the thread that started it.
        let tasks = fs::read_dir(format!("/proc/{id}/task")).ok()?;
        let children =
            tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
        children.collect::<String>().split_whitespace().next()?.parse().ok()
    }

    /// Kills the worker and waits until another one runs; clients meanwhile wait for it.
    fn crash(&self) {
        let worker = self.worker().expect("a worker");
        let killed = Command::new("kill").args(["-s", "KILL", &worker.to_string()]).status();
        assert!(killed.expect("kill runs").success());
        let answer = told(&self.announced, ELSEWHERE);
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert_ne!(self.worker(), Some(worker));
    }

    fn probe(&self, question: &str) -> Output {
        listless(&["probe", question, "--health", &self.health])
    }

    fn metric(&self, name: &str) -> Option<f64> {
        let mut stream = TcpStream::connect(&self.admin).expect("a connection");
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("written");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.parse().ok()
    }
}

/// A crash is a SIGKILL in this test.
const RESTARTS: &str = "listless_worker_restarts_total{reason=\"killed\"}";

/// A request that is answered without TLS and never forwarded.
const ELSEWHERE: &str = "CONNECT elsewhere:1 HTTP/1.1\r\nHost: elsewhere:1\r\n\r\n";

#[test]
fn a_killed_worker_is_replaced_while_clients_wait() {
    let mut sidecar = Sidecar::start();
    assert!(sidecar.probe("--started").status.success());
    sidecar.crash();
    for question in ["--started", "--live"] {
        let probed = sidecar.probe(question);
        assert!(probed.status.success(), "{}", text(&probed.stderr));
    }
    let counted = [RESTARTS, "listless_safe_mode"];
    assert_eq!(counted.map(|name| sidecar.metric(name)), [Some(1.0), Some(0.0)]);
    signal(&sidecar.supervisor, "TERM");
    assert_eq!(sidecar.supervisor.wait().expect("an end").code(), Some(0));
    let probed = sidecar.probe("--live");
    assert_eq!(probed.status.code(), Some(1));
    assert!(text(&probed.stderr).contains("/livez"), "{}", text(&probed.stderr));
}

#[test]
fn a_probe_retries_until_its_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let health = listener.local_addr().expect("an address").to_string();
    let answers = std::thread::spawn(move || {
        for status in ["503 Service Unavailable", "503 Service Unavailable", "200 OK"] {
            let (mut stream, _) = listener.accept().expect("a question");
            let question = BufReader::new(&stream).lines().map_while(Result::ok);
            assert!(question.take_while(|line| !line.is_empty()).count() > 0);
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).expect("an answer");
        }
    });
    let once = listless(&["probe", "--started", "--health", &health]);
    assert_eq!(once.status.code(), Some(1), "{}", text(&once.stderr));
    let again = listless(&["probe", "--started", "--within", "10s", "--health", &health]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    answers.join().expect("all three received a request");
    // Nothing listens there any more.
    let nobody = listless(&["probe", "--started", "--within", "20ms", "--health", &health]);
    assert_eq!(nobody.status.code(), Some(1), "{}", text(&nobody.stderr));
}

#[test]
fn three_crashes_in_a_minute_start_safe_mode() {
    let mut sidecar = Sidecar::start();
    for _ in 0..3 {
        sidecar.crash();
    }
    let counted = [RESTARTS, "listless_safe_mode"];
    assert_eq!(counted.map(|name| sidecar.metric(name)), [Some(3.0), Some(1.0)]);
    assert!(sidecar.probe("--started").status.success());
    signal(&sidecar.supervisor, "TERM");
    assert_eq!(sidecar.supervisor.wait().expect("an end").code(), Some(0));
}

#[test]
fn a_worker_does_not_outlive_its_supervisor() {
    let mut sidecar = Sidecar::start();
    let worker = sidecar.worker().expect("a worker");
    sidecar.supervisor.kill().expect("killed");
    sidecar.supervisor.wait().expect("an end");
    let gone = || {
        let stat = fs::read_to_string(format!("/proc/{worker}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    // It closes its sockets only when it ends. Then nothing accepts connections.
    while !gone() && TcpStream::connect(&sidecar.health).is_ok() {
        std::thread::yield_now();
    }
}

#[test]
fn a_bad_configuration_makes_the_sidecar_exit_with_2_and_the_line() {
    let pod = Pod::new();
    let file = pod.0.path().join("config.yaml");
    fs::write(&file, "apiVersion: listless.dev/v1alpha1\nkind: ProxyConfiguration\nmode: x\n")
        .expect("written");
    let file = file.display().to_string();
    let output = pod.command_at(&["--config", &file]).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("config.yaml:3:"), "{}", text(&output.stderr));
}

#[test]
fn a_lone_worker_and_an_ambiguous_probe_are_wrong_usage() {
    let pod = Pod::new();
    let alone = pod.command_at(&["--worker=first"]).output().expect("the binary runs");
    assert_eq!(alone.status.code(), Some(2), "{}", text(&alone.stderr));
    for arguments in [&["probe"][..], &["probe", "--started", "--live"]] {
        assert_eq!(listless(arguments).status.code(), Some(2), "{arguments:?}");
    }
}
