//! Records of requests: lines in the log, the audit file of answers from memory, the report and the
//! live tap. None of them contains a token, wherever a client puts one.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use listless::{
    simulator::{Effect, Fault, User},
    tap::{Filter, QUEUE_MAX},
};
use serde_json::Value;
use tempfile::TempDir;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

use crate::harness::{LOCAL_TOKEN, Setup, TestProxy, pass, settle};

const PODS: &str = "/api/v1/pods";
const IN_A: &str = "/api/v1/namespaces/a/pods";

/// A log that can be read.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic holds it").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Log {
    /// Every log line of this thread, at this level and above, until the guard is dropped.
    fn start(level: tracing::Level) -> (Self, DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(log.clone())
            .json()
            .flatten_event(true);
        (log, tracing::subscriber::set_default(subscriber.finish()))
    }

    fn text(&self) -> String {
        let bytes = self.0.lock().expect("no panic holds it").clone();
        String::from_utf8(bytes).expect("UTF-8")
    }

    /// Returns the lines of requests so far, and forgets them.
    fn requests(&self) -> Vec<Value> {
        let text = self.text();
        self.0.lock().expect("no panic holds it").clear();
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        lines.filter(|line: &Value| line["target"] == "listless::access").collect()
    }
}

fn audited(directory: &TempDir, more: &str) -> String {
    let file = directory.path().join("audit");
    format!("audit: {{file: {:?}}}\n{more}", file.display().to_string())
}

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_log_line_has_client_request_and_outcome() {
    let (log, _guard) = Log::start(tracing::Level::INFO);
    let proxy = Setup::default().config("accessLog: {level: all}\n").in_memory();
    let client = proxy.client().with("user-agent", "kubectl/v1.36.3 (linux/amd64) x/y");
    client.get(IN_A).await;
    client.get(IN_A).await;
    client.get("/version").await;
    let lines = log.requests();
    let said = |line: &Value| {
        let part = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        ["verb", "resource", "namespace", "user_agent", "served_by", "detail"].map(part)
    };
    let kubectl = "kubectl/v1.36.3";
    assert_eq!(said(&lines[0]), ["list", "pods.v1", "a", kubectl, "upstream", "not-demanded"]);
    assert_eq!(said(&lines[1]), ["list", "pods.v1", "a", kubectl, "cache", "session"]);
    assert_eq!(said(&lines[2]), ["other", "", "", kubectl, "upstream", "non-resource"]);
    for line in &lines {
        assert_eq!((&line["level"], &line["code"]), (&"INFO".into(), &200.into()), "{line}");
        assert!(line["bytes"].as_u64() > Some(0) && line["duration"].is_string(), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn log_level_and_sample_select_the_logged_requests() {
    let (log, _guard) = Log::start(tracing::Level::INFO);
    let proxy = Setup::default().in_memory();
    for (config, good, bad) in [
        ("", 0, 0),
        ("accessLog: {level: off}\n", 0, 0),
        ("accessLog: {level: errors}\n", 0, 10),
        ("accessLog: {level: all, sample: 0}\n", 0, 10),
        ("accessLog: {level: all}\n", 200, 10),
    ] {
        proxy.configure(config);
        ask(&proxy, 200).await;
        assert_eq!(log.requests().len(), good, "{config}");
        proxy.simulator.inject(Fault::next(5, Effect::Close, |_| true));
        let effect = Effect::Answer { code: 503, retry_after_secs: None };
        proxy.simulator.inject(Fault::next(5, effect, |_| true));
        ask(&proxy, 10).await;
        assert_eq!(log.requests().len(), bad, "{config}");
    }
    proxy.configure("accessLog: {level: all, sample: 0.25}\n");
    ask(&proxy, 400).await;
    let sampled = log.requests().len();
    assert!((60..=140).contains(&sampled), "{sampled} of 400");
}

async fn ask(proxy: &TestProxy, times: usize) {
    for _ in 0..times {
        proxy.client().get("/version").await;
    }
}

#[tokio::test(start_paused = true)]
async fn only_answers_from_memory_are_audited() {
    let directory = tempfile::tempdir().expect("a directory");
    let proxy = Setup::default().config(&audited(&directory, "")).in_memory();
    let client = proxy.client().with("user-agent", "agent/1");
    let selected =
        "/api/v1/namespaces/a/pods?labelSelector=app%3Dweb&fieldSelector=spec.nodeName%3Dn1";
    client.get(PODS).await;
    let listed = client.get(PODS).await;
    assert!(listed.is_hit());
    assert!(client.get(selected).await.is_hit());
    assert_eq!(client.get("/api/v1/namespaces/a/pods/none").await.status, 404);
    let mut watch = client.watch("/api/v1/pods?watch=1&resourceVersion=0").await;
    assert!(watch.next().await.is_some());
    drop(watch);
    client.get("/version").await;
    settle().await;
    let file = directory.path().join("audit");
    proxy.drain().await;
    let lines = lines(&file);
    assert_eq!(lines.len(), 4, "{lines:?}");
    for line in &lines {
        assert_eq!(line["who"], "own");
        assert_eq!(line["userAgent"], "agent/1");
        assert_eq!((&line["group"], &line["version"]), (&"".into(), &"v1".into()));
        assert_eq!(line["resource"], "pods");
        let time = line["time"].as_str().expect("a time");
        assert!(time.ends_with('Z') && time.contains('T') && time.len() == 24, "{time}");
    }
    let version = listed.version().to_string();
    assert_eq!((&lines[0]["verb"], &lines[0]["level"]), (&"list".into(), &"session".into()));
    assert_eq!((&lines[0]["resourceVersion"], &lines[0]["code"]), (&version.into(), &200.into()));
    assert_eq!(lines[1]["namespace"], "a");
    assert_eq!(lines[1]["labelSelector"], "app=web");
    assert_eq!(lines[1]["fieldSelector"], "spec.nodeName=n1");
    assert_eq!((&lines[2]["verb"], &lines[2]["name"]), (&"get".into(), &"none".into()));
    assert_eq!(lines[2]["code"], 404);
    assert_eq!(lines[3]["verb"], "watch");
    let mode = fs::metadata(&file).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test(start_paused = true)]
async fn a_document_of_discovery_from_memory_is_audited_by_its_path() {
    let directory = tempfile::tempdir().expect("a directory");
    let proxy = Setup::default().config(&audited(&directory, "")).in_memory();
    let client = proxy.client().with("user-agent", "agent/1");
    // Repeated documents come from memory once nothing has changed for some seconds.
    for _ in 0..2 {
        client.get("/api").await;
    }
    pass(Duration::from_secs(12)).await;
    let fetched = client.get("/apis/x.io/v1").await;
    assert!(!fetched.cache_status().contains("hit"), "{}", fetched.cache_status());
    let held = client.get("/apis/x.io/v1").await;
    assert_eq!(held.cache_status(), "listless; hit; detail=discovery");
    settle().await;
    let file = directory.path().join("audit");
    proxy.drain().await;
    let lines = lines(&file);
    assert_eq!(lines.len(), 1, "only what memory answered: {lines:?}");
    let line = &lines[0];
    assert_eq!((&line["who"], &line["userAgent"]), (&"own".into(), &"agent/1".into()));
    assert_eq!((&line["verb"], &line["path"]), (&"other".into(), &"/apis/x.io/v1".into()));
    assert_eq!((&line["resource"], &line["level"]), (&"".into(), &"discovery".into()));
    assert_eq!((&line["code"], &line["resourceVersion"]), (&200.into(), &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn the_audit_file_can_be_changed_and_disabled_at_run_time() {
    let (first, second) = (tempfile::tempdir(), tempfile::tempdir());
    let (first, second) = (first.expect("a directory"), second.expect("a directory"));
    let proxy = Setup::default().config(&audited(&first, "")).in_memory();
    proxy.warm(PODS).await;
    proxy.configure(&audited(&second, ""));
    settle().await;
    proxy.client().get(PODS).await;
    proxy.client().get(PODS).await;
    proxy.configure("");
    settle().await;
    proxy.client().get(PODS).await;
    proxy.drain().await;
    assert_eq!(lines_in_time(&second.path().join("audit"), 2).await, 2);
    assert_eq!(lines_in_time(&first.path().join("audit"), 1).await, 1);
}

/// Returns the number of lines of a file that is no longer in use. Its thread ends by itself after
/// it writes the last line.
async fn lines_in_time(file: &Path, expected: usize) -> usize {
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while lines(file).len() != expected && std::time::Instant::now() < deadline {
        // This is not the paused clock's time: another thread does the work.
        tokio::task::spawn_blocking(std::thread::yield_now).await.expect("no panic");
    }
    lines(file).len()
}

/// A value that no record may contain.
const SECRET: &str = "planted-s3cret-0123456789";

#[tokio::test(start_paused = true)]
async fn no_record_contains_a_token() {
    let (log, _guard) = Log::start(tracing::Level::TRACE);
    let directory = tempfile::tempdir().expect("a directory");
    let setup = Setup::default();
    setup.simulator().admit(SECRET, User::admin("ann"));
    let config = audited(&directory, "accessLog: {level: all}\n");
    let proxy = setup.gateway().config(&config).in_memory();
    let ann = proxy.bearer(SECRET);
    let mut watching = proxy.sources().tap.listen(Some(Filter::default())).expect("a place");
    ann.get(PODS).await;
    assert!(ann.get(PODS).await.is_hit());
    for header in
        ["user-agent", "x-anything", "x-request-id", "cookie", "accept", "referer", "audit-id"]
    {
        for value in [SECRET.to_owned(), format!("tool/{SECRET}"), format!("a {SECRET} b")] {
            ann.with(header, &value).get(PODS).await;
            ann.with(header, &value).get("/api").await;
        }
    }
    for (name, value) in [
        ("sec-websocket-protocol", format!("base64url.bearer.authorization.k8s.io.{SECRET}")),
        ("proxy-authorization", format!("Bearer {SECRET}")),
        ("authorization", format!("Basic {SECRET}")),
        ("x-remote-user", SECRET.to_owned()),
        ("impersonate-user", SECRET.to_owned()),
    ] {
        ann.with(name, &value).get(PODS).await;
    }
    let escaped = SECRET.replace('s', "%73");
    for path in [
        format!("{PODS}?token={SECRET}"),
        format!("{PODS}?labelSelector=app%3D{SECRET}"),
        format!("{PODS}?labelSelector=app%3D{escaped}"),
        format!("{PODS}?fieldSelector=spec.nodeName%3D{SECRET}"),
        format!("{PODS}?continue={SECRET}"),
        format!("{IN_A}/{SECRET}"),
        format!("{IN_A}/{escaped}"),
        format!("/apis/{SECRET}/v1"),
        format!("/apis/{SECRET}/v1/pods"),
        format!("/api/v1/{SECRET}"),
        format!("/api/v1/namespaces/{SECRET}/pods"),
        format!("/openapi/v3/apis/x.io/v1?hash={SECRET}"),
        format!("/nowhere?{SECRET}"),
    ] {
        for _ in 0..2 {
            ann.get(&path).await;
        }
    }
    settle().await;
    let report = serde_json::to_string(&proxy.report()).expect("JSON");
    assert!(report.contains("pods") && !report.contains(SECRET), "{report}");
    let mut tapped = Vec::new();
    watching.next(&mut tapped, QUEUE_MAX).await;
    let tapped: Vec<_> = tapped.iter().map(|request| &**request).collect();
    let tapped = serde_json::to_string(&tapped).expect("JSON");
    assert!(tapped.contains("pods") && !tapped.contains(SECRET), "{tapped}");
    proxy.drain().await;
    let audit = fs::read_to_string(directory.path().join("audit")).expect("a file");
    let hits = audit.lines().count();
    assert!(hits > 20, "only {hits} lines");
    assert!(!audit.contains(SECRET), "{audit}");
    assert!(audit.contains("bearer:") && !audit.contains(LOCAL_TOKEN));
    let text = log.text();
    assert!(text.lines().filter(|line| line.contains("listless::access")).count() > 50);
    for line in text.lines() {
        assert!(!line.contains(SECRET), "{line}");
    }
}
