//! An apiserver that cannot be reached, is not trusted, or accepts no credentials: each surface shows it.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use ::listless::{
    body::Body,
    simulator::{Simulator, User},
    tls::{Authority, Names, Server},
    upstream::{Client, Lane, Settings, dial::Tcp, identity},
};
use serde_json::Value;

use super::{
    LISTLESS, announced,
    check::{ADMIN, Cluster},
    kubeconfig::unmarked,
    listless, signal, text,
};

/// Nothing here takes longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running `listless local`, its ready line, and its files.
struct Local {
    child: Child,
    ready_line: String,
    directory: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

// === impl Local ===

impl Local {
    /// Starts it in front of `server`, with an authority and a token.
    fn start(server: &str, authority: &str, token: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str| directory.path().join(name);
        fs::write(file("ca.crt"), authority).expect("written");
        let kubeconfig = format!(
            "clusters: [{{name: c, cluster: {{server: \"{server}\", certificate-authority: \
             ca.crt}}}}]\n\
             users: [{{name: u, user: {{token: {token}}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u, namespace: shop}}}}]\n\
             current-context: x\n"
        );
        fs::write(file("source"), kubeconfig).expect("written");
        let mut command = Command::new(LISTLESS);
        command.args(["local", "--kubeconfig", "source", "--write-kubeconfig", "written"]);
        for flag in ["--listen", "--admin", "--health"] {
            command.args([flag, "127.0.0.1:0"]);
        }
        command.current_dir(directory.path()).env_remove("LISTLESS_LOG").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(File::create(file("log")).expect("a file"));
        let mut child = command.spawn().expect("the binary runs");
        let ready_line = announced(&mut child);
        let runtime = tokio::runtime::Runtime::new().expect("threads");
        Self { child, ready_line, directory, runtime }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).expect("text")
    }

    /// The lines of the log with this part.
    fn logged(&self, part: &str) -> Vec<String> {
        self.log().lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
    }

    /// The address that the log names for a flag.
    fn address(&self, flag: &str) -> String {
        let log = self.log();
        let line = log.lines().find(|line| line.contains(flag)).expect("the address is logged");
        line.rsplit_once("http://").expect("a URL").1.trim().to_owned()
    }

    /// The body at a path of the health or admin address.
    fn get(&self, flag: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address(flag)).expect("a port");
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        answer
    }

    fn json(&self, path: &str) -> Value {
        let answer = self.get("--admin:", path);
        let body = answer.split_once("\r\n\r\n").expect("a body").1;
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// The message of the Status that a client gets, or nothing if it is served.
    fn client_message(&self) -> Option<String> {
        let written = fs::read_to_string(self.directory.path().join("written")).expect("written");
        let client = self.directory.path().join("client");
        fs::write(&client, unmarked(&written)).expect("written");
        self.runtime.block_on(async {
            let access = identity::from_kubeconfig(Some(&client), None).await.expect("a context");
            let (_, client) = access.clients(Arc::new(Tcp::default()), Settings::default());
            let list = http::Request::get("/api/v1/namespaces/shop/pods?limit=1");
            let list = list.body(Body::empty()).expect("a request");
            let response = client.send(list, Lane::Short).await.expect("a response");
            if response.status().is_success() {
                return None;
            }
            let body = response.into_body().collect(1 << 16).await.expect("a body");
            let status: Value = serde_json::from_slice(&body).expect("a Status");
            Some(status["message"].as_str().expect("a text").to_owned())
        })
    }

    /// Waits until this holds.
    fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < deadline, "no {what} in\n{}", self.log());
            self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(50)).await });
        }
    }

    /// Demands that every surface shows this outage, and no surface shows what `secrets` name.
    fn shows(&self, expected: &Expected<'_>, secrets: &[&str]) {
        let Expected { state, cause, ready, headline, message } = *expected;
        let expected = format!(" ({ready}) at https://");
        assert!(self.ready_line.contains(&expected), "{}", self.ready_line);
        for _ in 0..3 {
            let told = self.client_message().expect("a failure");
            assert!(told.contains(message), "{told}");
            secrets.iter().for_each(|secret| assert!(!told.contains(secret), "{told}"));
        }
        let status = self.json("/api/v1/status");
        let shown = &status["apiserver"];
        assert_eq!((&shown["state"], &shown["cause"]), (&state.into(), &cause.into()), "{shown}");
        assert_eq!(shown["message"], headline, "{shown}");
        assert!(shown["since"].as_u64() > Some(1_700_000_000), "{shown}");
        assert!(shown["failures"].as_u64() >= Some(1), "{shown}");
        assert_eq!(self.json("/api/v1/report")["apiserver"]["cause"], cause);

        let checks = self.get("--health:", "/readyz?verbose");
        assert!(checks.starts_with("HTTP/1.1 200 "), "a pod must not leave service: {checks}");
        assert!(checks.contains(&format!("[!]apiserver warning: {headline}, for ")), "{checks}");
        self.until("metrics", |local| {
            let metrics = local.get("--health:", "/metrics");
            let outage = format!("\nlistless_upstream_outages_total{{cause=\"{cause}\"}} 1\n");
            metrics.contains("\nlistless_upstream_reachable 0\n") && metrics.contains(&outage)
        });
        self.until("incident", |local| {
            let timeline = local.json("/api/v1/timeline");
            let marks = timeline["marks"].as_array().expect("a list");
            marks.iter().any(|mark| mark["kind"] == "outage" && mark["text"] == headline)
        });
        let admin = self.address("--admin:");
        for command in [&["top", "--once"][..], &["report"], &["report", "-o", "markdown"]] {
            let output = listless(&[command, &["--admin", &admin]].concat());
            let told = text(&output.stdout);
            assert!(told.contains(&format!("{headline}, for ")), "{command:?}: {told}");
        }
        let page = self.get("--admin:", "/page.js");
        assert!(page.contains("apiserver.message"), "the page has a banner");
        assert_eq!(self.logged(headline).len(), 1, "one line an outage:\n{}", self.log());
        assert_eq!(self.logged(" WARN ").len(), 1, "{}", self.log());
        assert!(!self.log().contains(ADMIN), "no secret in the log");
    }

    fn end(mut self) {
        signal(&self.child, "TERM");
        assert_eq!(self.child.wait().expect("an end").code(), Some(0));
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.child.kill();
    }
}

/// The text that the surfaces show during an outage.
struct Expected<'a> {
    state: &'a str,
    cause: &'a str,
    /// Part of the ready line.
    ready: &'a str,
    headline: &'a str,
    /// Part of the message that clients get.
    message: &'a str,
}

fn closed_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address")
}

fn other_authority() -> Authority {
    Authority::generate(SystemTime::now()).expect("an authority")
}

#[test]
fn an_unreachable_apiserver_is_shown_everywhere_until_it_comes_back() {
    let address = closed_port();
    let authority = other_authority();
    let local = Local::start(&format!("https://{address}"), authority.pem(), ADMIN);
    let expected = Expected {
        state: "unreachable",
        cause: "connection_refused",
        ready: "apiserver not reachable yet: connection refused",
        headline: "apiserver not reachable: connection refused",
        message: "listless cannot connect to the apiserver: connection refused",
    };
    local.shows(&expected, &[&address.to_string(), ADMIN]);

    let simulator = Simulator::default();
    simulator.admit(ADMIN, User::admin("admin"));
    let leaf = authority.issue(&Names::of_apiserver(""), SystemTime::now()).expect("a leaf");
    let server = Server::new(leaf).expect("a configuration");
    local.runtime.spawn(async move {
        let listener = tokio::net::TcpListener::bind(address).await.expect("the same port");
        simulator.serve_tls(listener, server).await;
    });
    // No client asks meanwhile.
    local.until("recovery", |local| local.logged("apiserver reachable again").len() == 1);
    let shown = &local.json("/api/v1/status")["apiserver"];
    assert_eq!((&shown["state"], &shown["message"]), (&"reachable".into(), &Value::Null));
    let ready = local.get("--health:", "/readyz?verbose");
    assert!(ready.contains("[+]apiserver ok\n"), "{ready}");
    local.until("incident", |local| {
        let timeline = local.json("/api/v1/timeline");
        let marks = timeline["marks"].as_array().expect("a list");
        marks.iter().any(|mark| mark["kind"] == "outageEnd")
    });
    assert_eq!(local.client_message(), None);
    local.end();
}

#[test]
fn an_apiserver_with_another_authority_is_shown_as_untrusted() {
    let cluster = Cluster::start();
    let server = format!("https://{}", cluster.address);
    let local = Local::start(&server, other_authority().pem(), ADMIN);
    let expected = Expected {
        state: "unreachable",
        cause: "tls_untrusted_issuer",
        ready: "apiserver not reachable yet: its certificate is signed by an unknown authority",
        headline: "apiserver not reachable: its certificate is signed by an unknown authority",
        message: "listless cannot connect to the apiserver: its certificate is signed by an \
                  unknown authority",
    };
    local.shows(&expected, &[&cluster.address.to_string(), ADMIN]);
    assert_eq!(local.logged("invalid peer certificate").len(), 1, "{}", local.log());
    local.end();
}

#[test]
fn an_apiserver_that_accepts_no_credentials_is_shown_as_refusing() {
    let cluster = Cluster::start();
    let server = format!("https://{}", cluster.address);
    let local = Local::start(&server, cluster.authority.pem(), "unknown-token");
    let expected = Expected {
        state: "refusing",
        cause: "unauthorized",
        ready: "apiserver does not serve Listless: own credentials are not accepted (401 \
                Unauthorized)",
        headline: "apiserver does not serve Listless: own credentials are not accepted (401 \
                   Unauthorized)",
        message: "Unauthorized",
    };
    local.shows(&expected, &["unknown-token"]);
    local.end();
}

#[test]
fn an_apiserver_that_does_not_respond_is_named_in_the_ready_line_within_seconds() {
    // The kernel takes the connection; nobody reads from it.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let begun = Instant::now();
    let local = Local::start(&format!("http://{address}"), other_authority().pem(), ADMIN);
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let expected = "(apiserver not reachable yet: no response within 2 s)";
    assert!(local.ready_line.contains(expected), "{}", local.ready_line);
    local.end();
}

#[test]
fn the_ready_line_names_the_written_kubeconfig_by_an_absolute_path() {
    let local = Local::start("http://127.0.0.1:1", other_authority().pem(), ADMIN);
    let path = local.ready_line.split("export KUBECONFIG=").nth(1).expect("a path").trim();
    assert!(Path::new(path).is_absolute() && Path::new(path).exists(), "{path}");
    local.end();
}
