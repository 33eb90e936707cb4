//! `listless sidecar` as a pod runs it.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use super::{LISTLESS, announced, listless, signal, text};

const FREE: [&str; 6] =
    ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--health", "127.0.0.1:0"];

/// What every pod has in its environment; nothing listens there.
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
        let mut command = Command::new(LISTLESS);
        command.args(["--log", "warn", "sidecar"]).args(FREE).env_remove("LISTLESS_LOG");
        command.envs(POD).arg("--service-account").arg(self.0.path().join("account"));
        command.arg("--mirror").arg(self.0.path().join("mirror"));
        command.arg("--state").arg(self.0.path().join("state"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn mirrored(&self, file: &str) -> String {
        fs::read_to_string(self.0.path().join("mirror").join(file)).expect("a file")
    }

    /// Starts it, stops it, and returns what it wrote to its log.
    fn run(&self) -> String {
        let mut child = self.command().spawn().expect("the binary runs");
        let line = announced(&mut child);
        assert!(line.starts_with("listless: serving service account "), "{line}");
        signal(&child, "TERM");
        assert_eq!(child.wait().expect("an end").code(), Some(0));
        std::io::read_to_string(child.stderr.take().expect("a pipe")).expect("text")
    }
}

fn certificates(pem: &str) -> Vec<&str> {
    pem.split_inclusive("-----END CERTIFICATE-----\n").collect()
}

#[test]
fn it_starts_without_an_apiserver_and_mirrors_the_service_account() {
    let pod = Pod::new();
    assert_eq!(pod.run(), "");
    assert_eq!(
        (pod.mirrored("token"), pod.mirrored("namespace")),
        ("not-shown".into(), "shop".into())
    );
    let bundle = pod.mirrored("ca.crt");
    assert_eq!(certificates(&bundle).len(), 2);
    // A container that starts again is still trusted by those that read the bundle once.
    assert_eq!(pod.run(), "");
    assert_eq!(pod.mirrored("ca.crt"), bundle);
}

#[test]
fn other_service_accounts_are_mirrored_too_and_one_that_cannot_be_hinders_nothing() {
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
fn without_a_place_for_its_authority_it_serves_and_says_so() {
    let pod = Pod::new();
    fs::write(pod.0.path().join("state"), "in the way").expect("written");
    let log = pod.run();
    assert!(log.contains("the authority cannot be kept"), "{log}");
    assert_eq!(certificates(&pod.mirrored("ca.crt")).len(), 2);
}

#[test]
fn what_it_needs_and_does_not_find_is_named() {
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
        let output = pod.command().output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        let told = text(&output.stderr);
        assert!(told.lines().count() == 1 && told.contains("service account"), "{told}");
        fs::write(account.join(file), before).expect("written");
    }
    assert!(!Path::new(&pod.0.path().join("mirror/token")).exists());
}
