//! `listless injector` as a process, in front of a simulated apiserver.

use std::{
    io::{BufRead, BufReader},
    net::Ipv4Addr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use listless::{
    api::{GroupResource, ObjectKey},
    simulator::{ResourceType, Simulator, User},
    tls,
};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

const GROUP: &str = "admissionregistration.k8s.io";
const PLURAL: &str = "mutatingwebhookconfigurations";
const NAME: &str = "listless-injector";
const START_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// A running injector and its cluster.
struct Injector {
    simulator: Simulator,
    process: Child,
    address: String,
    health: String,
    admin: String,
    log: Arc<Mutex<Vec<String>>>,
    _folder: tempfile::TempDir,
}

// === impl Injector ===

impl Injector {
    async fn start(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let simulator = cluster();
        let kubeconfig = serve(&simulator, folder.path()).await;
        let mut command = Command::new(env!("CARGO_BIN_EXE_listless"));
        command.env_remove("LISTLESS_LOG").env_remove("KUBERNETES_SERVICE_HOST");
        command.args(["injector", "--namespace", "listless", "--name", "127.0.0.1"]);
        command.arg("--kubeconfig").arg(kubeconfig).args(flags);
        for flag in ["--listen", "--admin", "--health"] {
            command.args([flag, "127.0.0.1:0"]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the binary runs");
        let (mut health, mut admin) = (String::new(), String::new());
        let mut log = BufReader::new(process.stderr.take().expect("a pipe"));
        while health.is_empty() || admin.is_empty() {
            let mut line = String::new();
            assert!(log.read_line(&mut line).expect("text") > 0, "the log ended");
            let word = |rest: &str| rest.split_whitespace().next().unwrap_or("").to_owned();
            if let Some((_, rest)) = line.split_once("--health: http://") {
                health = word(rest);
            }
            if let Some((_, rest)) = line.split_once("--admin: http://") {
                admin = word(rest);
            }
        }
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let read = Arc::clone(&lines);
        std::thread::spawn(move || {
            log.lines().map_while(Result::ok).for_each(|line| read.lock().expect("it").push(line));
        });
        let mut line = String::new();
        let out = process.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let (_, address) = line.trim().split_once(" at https://").expect("an address");
        let address = address.to_owned();
        let injector =
            Self { simulator, process, address, health, admin, log: lines, _folder: folder };
        injector.until_ready().await;
        injector
    }

    async fn until_ready(&self) {
        let deadline = Instant::now() + START_LIMIT;
        while !plain(&self.health, "/readyz").await.contains(" 200 ") {
            assert!(Instant::now() < deadline, "not ready");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Connects from an address; the client trusts the CA bundle that the apiserver trusts.
    async fn connect(&self, from: Ipv4Addr) -> TlsStream<TcpStream> {
        let key = ObjectKey::new(None, NAME);
        let object = self.simulator.object(&GroupResource::new(GROUP, PLURAL), &key);
        let object: Value = serde_json::from_slice(&object.expect("it").to_bytes()).expect("JSON");
        let bundle = object["webhooks"][0]["clientConfig"]["caBundle"].as_str().expect("a bundle");
        let client = tls::client_config(&STANDARD.decode(bundle).expect("base64")).expect("PEM");
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((from, 0).into()).expect("an address of loopback");
        let address = self.address.parse().expect("an address");
        let stream = socket.connect(address).await.expect("a connection");
        let name = ServerName::try_from("listless-injector.listless.svc").expect("a name");
        let stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await;
        stream.expect("a trusted certificate")
    }

    /// Returns the response to a request.
    async fn asked(&self, head: &str, body: &[u8]) -> String {
        let length = format!("Content-Length: {}", body.len());
        self.asked_from(Ipv4Addr::LOCALHOST, &format!("{head} HTTP/1.1\r\n{length}"), body).await
    }

    async fn asked_from(&self, from: Ipv4Addr, head: &str, body: &[u8]) -> String {
        let mut stream = self.connect(from).await;
        let head = format!("{head}\r\nHost: h\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("sent");
        // The response may come before the whole request was read.
        let _early = stream.write_all(body).await;
        let mut answer = Vec::new();
        let _without_farewell = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).expect("text")
    }

    /// Returns the number of log lines with that text, once there is one that ends with `last`.
    async fn logged(&self, text: &str, last: &str) -> usize {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let lines = self.log.lock().expect("it").clone();
            if lines.iter().any(|line| line.ends_with(last)) {
                return lines.iter().filter(|line| line.contains(text)).count();
            }
            assert!(Instant::now() < deadline, "no line ends with {last}: {lines:?}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns the peak of its resident memory.
    #[cfg(target_os = "linux")]
    fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
        line.split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number")
    }
}

impl Drop for Injector {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}

fn cluster() -> Simulator {
    let simulator = Simulator::default();
    let kind = ResourceType::custom(GROUP, &["v1"], PLURAL, "MutatingWebhookConfiguration");
    simulator.register(kind.cluster_scoped());
    let webhooks = json!([{"name": "inject.listless.dev", "clientConfig": {"url": "https://x/"}}]);
    simulator.put(
        &GroupResource::new(GROUP, PLURAL),
        json!({"metadata": {"name": NAME}, "webhooks": webhooks}),
    );
    let metadata = json!({"namespace": "listless", "name": "listless-injector-certificates"});
    simulator.put(&GroupResource::new("", "secrets"), json!({"metadata": metadata}));
    simulator.admit("not-shown", User::admin("injector"));
    simulator
}

/// Serves the cluster, and writes a kubeconfig for it.
async fn serve(simulator: &Simulator, folder: &Path) -> std::path::PathBuf {
    let now = SystemTime::now();
    let authority = tls::Authority::generate(now).expect("an authority");
    let leaf = authority.issue(&tls::Names::of_apiserver(""), now).expect("a certificate");
    let server = tls::Server::new(leaf).expect("a server");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(simulator.clone().serve_tls(listener, server));
    let bundle = STANDARD.encode(authority.pem());
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {
            "server": format!("https://{address}"), "certificate-authority-data": bundle}}],
        "users": [{"name": "u", "user": {"token": "not-shown"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    let path = folder.join("kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).expect("written");
    path
}

async fn plain(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("text");
    answer
}

fn question(namespace: &str, pod: &Value) -> Vec<u8> {
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let request = json!({"uid": "u", "namespace": namespace, "operation": "CREATE", "kind": kind, "object": pod});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
        .to_string()
        .into_bytes()
}

fn pod() -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "o-1", "controller": true});
    let mount = json!({"name": "t", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
    json!({
        "metadata": {"generateName": "web-", "ownerReferences": [owner]},
        "spec": {
            "containers": [{"name": "web", "image": "i", "volumeMounts": [mount]}],
            "volumes": [{"name": "t", "secret": {"secretName": "t"}}],
        },
    })
}

fn body_of(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_webhook_answers_and_counts_reviews_and_refuses_other_requests() {
    let injector = Injector::start(&["--image", "example.com/listless:9"]).await;
    let answer = injector.asked("POST /inject?timeout=5s", &question("shop", &pod())).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let response = body_of(&answer)["response"].clone();
    let patch = STANDARD.decode(response["patch"].as_str().expect("a patch")).expect("base64");
    let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("a patch");
    let mut patched = pod();
    json_patch::patch(&mut patched, &patch).expect("it applies");
    assert_eq!(patched["spec"]["initContainers"][0]["image"], "example.com/listless:9");

    for namespace in ["kube-system", "listless"] {
        let answer = injector.asked("POST /inject", &question(namespace, &pod())).await;
        let response = body_of(&answer)["response"].clone();
        assert_eq!(response["auditAnnotations"]["reason"], "system_namespace", "{namespace}");
    }
    for (head, body, code) in [
        ("GET /inject", &b""[..], " 405 "),
        ("POST /", b"{}", " 404 "),
        ("POST /inject", b"{}", " 400 "),
        ("POST /inject", b"not JSON", " 400 "),
        ("POST /inject", &vec![b' '; 4 * 1024 * 1024], " 413 "),
    ] {
        let answer = injector.asked(head, body).await;
        assert!(answer.lines().next().unwrap_or("").contains(code), "{head}: {answer}");
    }
    let metrics = plain(&injector.admin, "/metrics").await;
    for line in [
        "listless_injector_requests_total{result=\"injected\",reason=\"\"} 1",
        "listless_injector_requests_total{result=\"skipped\",reason=\"system_namespace\"} 2",
        "listless_injector_requests_total{result=\"error\",reason=\"\"} 3",
        "listless_injector_duration_seconds_count 6",
        "listless_injector_ca_expiry_timestamp_seconds ",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

/// Bodies that never end take a part of the places, and none for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_review_is_answered_while_one_host_sends_bodies_that_never_end() {
    let injector = Injector::start(&[]).await;
    let mut unfinished = Vec::new();
    for _ in 0..60 {
        let mut stream = injector.connect(Ipv4Addr::new(127, 0, 0, 2)).await;
        let head = "POST /inject HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n{";
        stream.write_all(head.as_bytes()).await.expect("sent");
        unfinished.push(stream);
    }
    let began = Instant::now();
    let answer = injector.asked("POST /inject", &question("shop", &pod())).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_lines_that_one_network_causes_are_bounded_and_counted() {
    let injector = Injector::start(&[]).await;
    for _ in 0..35 {
        injector.asked("POST /inject", b"{}").await;
        injector.asked("POST /inject", &question("kube-system", &pod())).await;
    }
    let head = "POST /inject HTTP/1.1\r\nContent-Length: 2";
    injector.asked_from(Ipv4Addr::new(127, 0, 0, 2), head, b"{}").await;
    assert_eq!(injector.logged("cannot answer an admission review", "left_out=10").await, 31);
    assert_eq!(injector.logged("not injected", "left_out=10").await, 30);
}

/// A tiny piece of a body takes no more memory than its bytes.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_review_in_tiny_chunks_takes_little_memory() {
    const CHUNKS: usize = 400_000;
    const GROWTH_KIB_MAX: u64 = 8 << 10;
    let injector = Injector::start(&[]).await;
    let head = "POST /inject HTTP/1.1\r\nTransfer-Encoding: chunked";
    let chunked = |body: &[u8], spaces: usize| {
        let bytes = body.iter().copied().chain(std::iter::repeat_n(b' ', spaces));
        let mut chunks: Vec<u8> =
            bytes.flat_map(|byte| [b'1', b'\r', b'\n', byte, b'\r', b'\n']).collect();
        chunks.extend(b"0\r\n\r\n");
        chunks
    };
    let body = question("shop", &pod());
    let answer = injector.asked_from(Ipv4Addr::LOCALHOST, head, &chunked(&body, 0)).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let before = injector.peak_kib();
    // A slow machine may not read all of them in time.
    injector.asked_from(Ipv4Addr::LOCALHOST, head, &chunked(&body, CHUNKS)).await;
    let growth = injector.peak_kib() - before;
    assert!(growth <= GROWTH_KIB_MAX, "{growth} KiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_get_events_unless_disabled() {
    let events = GroupResource::new("", "events");
    let injector = Injector::start(&[]).await;
    for _ in 0..3 {
        injector.asked("POST /inject", &question("shop", &pod())).await;
    }
    let deadline = Instant::now() + START_LIMIT;
    while injector.simulator.count(&events) == 0 {
        assert!(Instant::now() < deadline, "no event");
        tokio::time::sleep(POLL).await;
    }
    let mut wrong = pod();
    wrong["metadata"]["annotations"] = json!({"listless.dev/port": "1"});
    injector.asked("POST /inject", &question("shop", &wrong)).await;
    while injector.simulator.count(&events) < 2 {
        assert!(Instant::now() < deadline, "no second event");
        tokio::time::sleep(POLL).await;
    }
    assert_eq!(injector.simulator.count(&events), 2, "the same event is sent once");

    let silent = Injector::start(&["--no-events"]).await;
    silent.asked("POST /inject", &question("shop", &pod())).await;
    assert_eq!(silent.simulator.count(&events), 0);
}

#[test]
fn wrong_flags_exit_with_2_and_are_named() {
    for (arguments, named) in [
        (&["--memory-limit", "1Mi", "--memory-request", "1Mi"][..], "memory limit of 1Mi is below"),
        (&["--cpu-request", "2"], "above its limit"),
        (&["--image", "a b"], "image"),
        (&["--port", "16020"], "16020"),
        (&["--port", "80"], "--port"),
        (&["--sidecar-health-address", "10.0.0.1"], "--sidecar-health-address"),
        (&["--mode", "audit"], "--mode"),
        (&["--authority-lifetime", "1s"], "--authority-lifetime"),
    ] {
        for command in ["injector", "inject"] {
            if command == "inject" && arguments[0] == "--authority-lifetime" {
                continue;
            }
            let mut run = Command::new(env!("CARGO_BIN_EXE_listless"));
            run.arg(command).args(arguments).stdin(Stdio::null());
            if command == "inject" {
                run.args(["-f", "-"]);
            }
            let output = run.output().expect("the binary runs");
            let told = String::from_utf8(output.stderr).expect("text");
            assert_eq!(output.status.code(), Some(2), "{command} {arguments:?}: {told}");
            assert!(told.contains(named), "{command} {arguments:?}: {told}");
        }
    }
}

#[test]
fn inject_and_uninject_read_files_and_standard_input() {
    let path = super::golden("manifests").join("deployment.yaml");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_listless"));
        command.args(arguments).stdin(std::fs::File::open(&path).expect("the file"));
        command.output().expect("the binary runs")
    };
    let file = path.to_str().expect("text");
    let by_file = run(&["inject", "-f", file]);
    let by_input = run(&["inject", "-f", "-"]);
    assert_eq!((by_file.status.code(), &by_file.stdout), (Some(0), &by_input.stdout));
    let told = String::from_utf8(by_file.stderr).expect("text");
    assert_eq!(told, format!("{file}: document 1: Deployment shop/shop-operator: injected\n"));
    let folder = tempfile::tempdir().expect("a directory");
    let injected = folder.path().join("injected.yaml");
    std::fs::write(&injected, &by_file.stdout).expect("written");
    let back = run(&["uninject", "-f", injected.to_str().expect("text")]);
    assert_eq!(back.stdout, std::fs::read(&path).expect("the file"));
    let broken = folder.path().join("broken.yaml");
    std::fs::write(&broken, "apiVersion: v1\nkind: Pod\nspec:\n  containers: none\n")
        .expect("written");
    let broken = broken.to_str().expect("text");
    let refused = run(&["inject", "-f", broken]);
    assert_eq!(refused.status.code(), Some(2));
    let told = String::from_utf8(refused.stderr).expect("text");
    assert!(
        told.contains(&format!("{broken}:4:3: document 1: spec.containers is not a list")),
        "{told}"
    );
    assert_eq!(run(&["inject", "-f", "no-such-file"]).status.code(), Some(1));
}
