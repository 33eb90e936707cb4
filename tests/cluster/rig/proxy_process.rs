//! The `listless` binary in front of a control plane, started as a user would start it.
//!
//! Ready means: the requested kubeconfig exists and its server answers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::artifact::work_folder;
use super::client::{Client, Protocol, Server};
use super::control_plane::RequestCounts;
use super::process::{Process, Signal};

const START_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// A running `listless local` or `listless gateway`.
#[derive(Debug)]
pub struct ProxyProcess {
    process: Process,
    server: Server,
    token: Option<String>,
    kubeconfig: PathBuf,
    admin: String,
    // Declared last: removed after the process has ended.
    folder: TempDir,
}

/// The program that cargo built beside the tests.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_listless");

/// Builds the binary of the image.
pub fn shipped() -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let binary = work_folder().with_file_name("image").join("listless");
    let status = Command::new(source.join("image/binary.sh")).arg(&binary).status()?;
    ensure!(status.success(), "the build of the image's binary failed");
    Ok(binary)
}

// === impl ProxyProcess ===

impl ProxyProcess {
    /// Starts `listless local` for the first context of a kubeconfig; `config` is the YAML of its
    /// configuration file, if it has one.
    pub async fn start(kubeconfig: &Path, config: Option<&str>) -> Result<Self> {
        Self::start_program(PROGRAM.as_ref(), "local", kubeconfig, config).await
    }

    /// Starts `listless gateway` in the same way; its own token is the user's.
    pub async fn gateway(kubeconfig: &Path, config: Option<&str>) -> Result<Self> {
        Self::start_program(PROGRAM.as_ref(), "gateway", kubeconfig, config).await
    }

    /// Starts a subcommand of another build in the same way.
    pub async fn start_program(
        program: &Path,
        name: &str,
        kubeconfig: &Path,
        config: Option<&str>,
    ) -> Result<Self> {
        let folder = TempDir::with_prefix("listless-")?;
        let written = folder.path().join("kubeconfig");
        let mut command = Command::new(program);
        command.args([name, "--context", "cluster", "--kubeconfig"]).arg(kubeconfig);
        for flag in ["--listen", "--admin", "--health"] {
            command.args([flag, "127.0.0.1:0"]);
        }
        command.arg("--write-kubeconfig").arg(&written);
        if let Some(config) = config {
            let file = folder.path().join("config.yaml");
            fs::write(&file, config)?;
            command.arg("--config").arg(file);
        }
        let mut process = Process::start("listless", command, &folder.path().join("listless.log"))?;
        let (server, token) = ready(&mut process, &written).await?;
        let admin = admin_address(&process.log_tail(usize::MAX))?;
        Ok(Self { process, server, token, kubeconfig: written, admin, folder })
    }

    /// Starts `listless sidecar` for a service account's directory; its copy and its authority are
    /// side by side in a folder.
    pub async fn sidecar(apiserver: &Server, account: &Path, pod: &Path) -> Result<Self> {
        Self::sidecar_program(PROGRAM.as_ref(), apiserver, account, pod).await
    }

    /// Starts a sidecar of another program in the same way.
    pub async fn sidecar_program(
        program: &Path,
        apiserver: &Server,
        account: &Path,
        pod: &Path,
    ) -> Result<Self> {
        let folder = TempDir::with_prefix("listless-")?;
        let (host, port) = apiserver.authority().rsplit_once(':').context("no port")?;
        let mut command = Command::new(program);
        command.env("KUBERNETES_SERVICE_HOST", host).env("KUBERNETES_SERVICE_PORT", port);
        command.args(["sidecar", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.args(["--health", "127.0.0.1:0", "--service-account"]).arg(account);
        let mirror = pod.join("mirror");
        command.arg("--mirror").arg(&mirror).arg("--state").arg(pod.join("state"));
        let mut process = Process::start("listless", command, &folder.path().join("listless.log"))?;
        let deadline = Instant::now() + START_LIMIT;
        let mut poll = tokio::time::interval(POLL);
        loop {
            poll.tick().await;
            let log = process.log_tail(40);
            // The supervisor listens before its worker logs the operators' address.
            if let (Some((_, rest)), Ok(admin)) =
                (log.split_once(" at https://"), admin_address(&process.log_tail(usize::MAX)))
            {
                let address = rest.lines().next().unwrap_or_default();
                let bundle = fs::read(mirror.join("ca.crt"))?;
                let server = Server::new(&format!("https://{address}"), &bundle)?;
                let (token, kubeconfig) = (None, PathBuf::new());
                return Ok(Self { process, server, token, kubeconfig, admin, folder });
            }
            if !process.is_running() || Instant::now() > deadline {
                anyhow::bail!("no sidecar: {log}");
            }
        }
    }

    /// The address where it listens.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The token of the written kubeconfig.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The kubeconfig it wrote.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A client that speaks as the kubeconfig's user.
    pub fn client(&self, protocol: Protocol) -> Client {
        Client::new(&self.server, self.token(), protocol)
    }

    /// The address where it serves metrics.
    pub fn admin_address(&self) -> &str {
        &self.admin
    }

    /// Its own metrics.
    pub async fn metrics(&self) -> Result<RequestCounts> {
        Ok(RequestCounts::parse(&self.metrics_text().await?))
    }

    /// The same in the exported form.
    pub async fn metrics_text(&self) -> Result<String> {
        self.admin("/metrics").await
    }

    /// The response of its admin address.
    pub async fn admin(&self, target: &str) -> Result<String> {
        let mut stream = TcpStream::connect(&self.admin).await?;
        // HTTP 1.0: the response is not chunked and ends with the connection.
        let request = format!("GET {target} HTTP/1.0\r\nHost: {}\r\n\r\n", self.admin);
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let (head, body) = text.split_once("\r\n\r\n").context("no answer")?;
        ensure!(head.split(' ').nth(1) == Some("200"), "{target}: {head}");
        Ok(body.to_owned())
    }

    /// Replaces the content of its configuration file, which it notices by itself.
    pub fn configure(&self, config: &str) -> Result<()> {
        let (file, new) =
            (self.folder.path().join("config.yaml"), self.folder.path().join("config.new"));
        fs::write(&new, config)?;
        Ok(fs::rename(new, file)?)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Reports whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Processor time it has used.
    pub fn cpu_seconds(&self) -> Result<f64> {
        self.process.cpu_seconds()
    }

    /// Memory it holds.
    pub fn resident_bytes(&self) -> Result<u64> {
        self.process.resident_bytes()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The last lines it wrote.
    pub fn log(&self) -> String {
        self.process.log_tail(40)
    }
}

async fn ready(process: &mut Process, written: &Path) -> Result<(Server, Option<String>)> {
    let deadline = Instant::now() + START_LIMIT;
    let mut poll = tokio::time::interval(POLL);
    loop {
        poll.tick().await;
        if let Some(found) = answering(written).await {
            return Ok(found);
        }
        if !process.is_running() || Instant::now() > deadline {
            return Err(not_ready(written)).with_context(|| process.log_tail(40));
        }
    }
}

/// The system chose the port; only the log contains it.
fn admin_address(log: &str) -> Result<String> {
    let (_, rest) = log.split_once("--admin: http://").context("no admin address in the log")?;
    Ok(rest.split_whitespace().next().unwrap_or_default().to_owned())
}

fn not_ready(written: &Path) -> anyhow::Error {
    if written.exists() {
        anyhow::anyhow!("the server of the written kubeconfig does not answer")
    } else {
        anyhow::anyhow!("the kubeconfig was not written")
    }
}

/// Returns the server of a written kubeconfig and its token, once it answers.
pub async fn answering(written: &Path) -> Option<(Server, Option<String>)> {
    // Half-written files fail to parse and are read again.
    let (server, token) = Server::from_kubeconfig(&fs::read_to_string(written).ok()?).ok()?;
    let client = Client::new(&server, token.as_deref(), Protocol::Http1);
    client.get("/version").await.ok()?.successful().ok()?;
    Some((server, token))
}
