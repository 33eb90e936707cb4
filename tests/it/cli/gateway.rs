//! `listless gateway` as a user runs it.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::{KUBECONFIG, LISTLESS, announced, listless, signal, text};

const FREE: [&str; 6] =
    ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--health", "127.0.0.1:0"];

/// Environment variables that every pod has.
const POD: [(&str, &str); 2] =
    [("KUBERNETES_SERVICE_HOST", "127.0.0.1"), ("KUBERNETES_SERVICE_PORT", "1")];

fn gateway() -> Command {
    let mut command = Command::new(LISTLESS);
    command.args(["--log", "warn", "gateway"]).args(FREE).env_remove("LISTLESS_LOG");
    command.env_remove("KUBECONFIG");
    for (name, _) in POD {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Writes files into a directory and gives their paths.
fn file(directory: &Path, name: &str, content: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, content).expect("written");
    path.to_str().expect("text").to_owned()
}

fn end(mut child: Child) -> String {
    signal(&child, "TERM");
    assert_eq!(child.wait().expect("an end").code(), Some(0));
    std::io::read_to_string(child.stderr.take().expect("a pipe")).expect("text")
}

/// A certificate and its key.
fn certificate(directory: &Path) -> [String; 2] {
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["gateway".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    [
        file(directory, "tls.crt", &certificate.pem()),
        file(directory, "tls.key", &key.serialize_pem()),
    ]
}

#[test]
fn outside_a_cluster_the_gateway_writes_a_kubeconfig_with_the_same_user() {
    let directory = tempfile::tempdir().expect("a directory");
    let kubeconfig = file(directory.path(), "kubeconfig", KUBECONFIG);
    let written = directory.path().join("written");
    let mut command = gateway();
    command.args(["--kubeconfig", &kubeconfig, "--write-kubeconfig"]).arg(&written);
    let mut child = command.spawn().expect("the binary runs");
    let line = announced(&mut child);
    assert!(line.starts_with("listless: serving context \"prod\""), "{line}");
    assert!(line.contains(&format!("KUBECONFIG={}", written.display())), "{line}");
    let read = fs::read_to_string(&written).expect("the kubeconfig");
    assert!(read.starts_with("# Written by listless"), "{read}");
    assert!(read.contains("name: listless.dev"), "the mark that kubectl keeps: {read}");
    for part in ["token: not-shown", "server: https://127.0.0.1:", "namespace: shop"] {
        assert!(read.contains(part), "{part}: {read}");
    }
    assert!(!read.contains("http://127.0.0.1:1\n"), "{read}");
    let log = end(child);
    assert!(!log.contains("not-shown"), "{log}");
}

#[test]
fn a_user_with_only_a_certificate_causes_a_warning() {
    let directory = tempfile::tempdir().expect("a directory");
    let [certificate, key] = certificate(directory.path());
    let user = format!("client-certificate: {certificate}, client-key: {key}");
    let kubeconfig = KUBECONFIG.replace("token: not-shown", &user);
    let kubeconfig = file(directory.path(), "kubeconfig", &kubeconfig);
    let mut command = gateway();
    command.args(["--kubeconfig", &kubeconfig, "--write-kubeconfig"]);
    let mut child = command.arg(directory.path().join("out")).spawn().expect("the binary runs");
    announced(&mut child);
    let log = end(child);
    assert!(log.contains("has only a client certificate"), "{log}");
}

/// A gateway as in a pod, with no apiserver behind it.
fn in_a_pod(directory: &Path) -> Child {
    let [certificate, key] = certificate(directory);
    file(directory, "token", "not-shown");
    file(directory, "namespace", "shop");
    file(directory, "ca.crt", &fs::read_to_string(&certificate).expect("PEM"));
    let mut command = gateway();
    command.envs(POD).arg("--service-account").arg(directory);
    command.args(["--tls-cert", &certificate, "--tls-key", &key]);
    command.spawn().expect("the binary runs")
}

#[test]
fn in_a_pod_the_gateway_uses_the_service_account_and_the_given_certificate() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut child = in_a_pod(directory.path());
    let line = announced(&mut child);
    assert!(line.starts_with("listless: serving service account "), "{line}");
    assert!(!line.contains("KUBECONFIG"), "{line}");
    end(child);
}

#[test]
fn in_a_pod_the_gateway_uses_the_kubeconfig_that_the_environment_names() {
    let directory = tempfile::tempdir().expect("a directory");
    let kubeconfig = file(directory.path(), "kubeconfig", KUBECONFIG);
    let mut command = gateway();
    let mut child = command.envs(POD).env("KUBECONFIG", &kubeconfig).spawn().expect("it runs");
    let line = announced(&mut child);
    let expected = format!("listless: serving context \"prod\" of kubeconfig {kubeconfig}");
    assert!(line.starts_with(&expected), "{line}");
    end(child);
    // An empty one is none.
    let output = gateway().envs(POD).env("KUBECONFIG", "").output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--tls-cert"), "{}", text(&output.stderr));
}

/// A Service sends clients to a pod until the news of its end has reached every node.
#[tokio::test]
async fn in_a_pod_the_gateway_accepts_connections_for_some_time_after_sigterm() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut child = in_a_pod(directory.path());
    let line = announced(&mut child);
    let address = line.split("https://").nth(1).and_then(|rest| rest.split_whitespace().next());
    let address = address.expect("an address").to_owned();
    let is_answered = || {
        let mut stream = TcpStream::connect(&address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
        stream.read(&mut [0; 1]).map(|read| read > 0)
    };
    assert!(is_answered().expect("a connection"), "plain HTTP is answered where TLS is spoken");

    let asked = Instant::now();
    signal(&child, "TERM");
    // kube-proxy may take this long by its defaults; the wait is longer.
    while asked.elapsed() < Duration::from_secs(3) {
        assert!(is_answered().expect("a connection"), "after {:?}", asked.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(child.wait().expect("an end").code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
}

#[test]
fn a_second_signal_ends_the_drain_wait() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut child = in_a_pod(directory.path());
    announced(&mut child);
    let asked = Instant::now();
    signal(&child, "TERM");
    // Pending signals of one kind merge into one. This sends another kind.
    signal(&child, "INT");
    assert_eq!(child.wait().expect("an end").code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
}

#[test]
fn wrong_flags_exit_with_2_and_are_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let [certificate, key] = certificate(directory.path());
    let kubeconfig = file(directory.path(), "kubeconfig", KUBECONFIG);
    for (arguments, named) in [
        (&["--tls-cert", &*certificate][..], "--tls-key"),
        (&["--tls-key", &key], "--tls-cert"),
        (&["--tls-cert", &certificate, "--tls-key", &key, "--write-kubeconfig", "x"], {
            "--write-kubeconfig"
        }),
        (&["--listen", "here"], "--listen"),
        (&["--worker-threads", "0"], "--worker-threads"),
        (&["--token", "x"], "--token"),
        (&["--kubeconfig", &kubeconfig, "--config", "no-such-file"], "no-such-file"),
    ] {
        let output = listless(&[&["gateway"][..], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(named), "{}", text(&output.stderr));
    }
    for (arguments, named) in [
        (&[][..], "--tls-cert and --tls-key are required in a cluster"),
        (&["--tls-cert", "a"], "--tls-key"),
        (&["--write-kubeconfig", "x"], "--write-kubeconfig"),
    ] {
        let output = gateway().envs(POD).args(arguments).output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(named), "{}", text(&output.stderr));
    }
}

#[test]
fn an_unusable_certificate_fails_and_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let [certificate, _] = certificate(directory.path());
    let kubeconfig = file(directory.path(), "kubeconfig", KUBECONFIG);
    let other = file(directory.path(), "other.key", "nonsense");
    let files = ["--kubeconfig", &kubeconfig, "--tls-cert", &certificate, "--tls-key", &other];
    let output = gateway().args(files).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("other.key does not hold usable PEM"));
}
