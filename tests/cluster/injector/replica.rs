//! One running `listless injector`.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::json;

use crate::rig::client::{Client, Protocol, Request, Server};
use crate::rig::control_plane::ControlPlane;
use crate::rig::process::Process;

const START_LIMIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);

pub(crate) struct Replica {
    address: String,
    admin: String,
    process: Process,
}

// === impl Replica ===

impl Replica {
    /// Starts it as the user of a kubeconfig; its probe reports when it is ready.
    pub(crate) async fn start(
        plane: &ControlPlane,
        kubeconfig: &Path,
        flags: &[&str],
    ) -> Result<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_listless"));
        command.args(["injector", "--kubeconfig"]).arg(kubeconfig);
        command.args(["--namespace", "listless", "--name", "127.0.0.1"]);
        for flag in ["--listen", "--admin", "--health"] {
            command.args([flag, "127.0.0.1:0"]);
        }
        command.args(flags);
        let log = plane.folder().join(format!("injector-{}.log", uuid::Uuid::new_v4()));
        let mut process = Process::start("injector", command, &log)?;
        let deadline = Instant::now() + START_LIMIT;
        let mut poll = tokio::time::interval(POLL);
        loop {
            poll.tick().await;
            let log = process.log_tail(usize::MAX);
            if let Some(address) = word_after(&log, " at https://")
                && let Some(admin) = word_after(&log, "--admin: http://")
                && let Some(health) = word_after(&log, "--health: http://")
                && is_ready(&health).await
            {
                return Ok(Self { address, admin, process });
            }
            if !process.is_running() || Instant::now() > deadline {
                bail!("no injector: {log}");
            }
        }
    }

    pub(crate) fn admin_address(&self) -> &str {
        &self.admin
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}/inject", self.address)
    }

    /// Calls it as the apiserver does, with only the apiserver's trust.
    pub(crate) async fn asked_directly(&self, bundle: &str) -> Result<()> {
        let server = Server::new(&format!("https://{}", self.address), bundle.as_bytes())?;
        let request = json!({"uid": "u", "namespace": "shop", "operation": "CREATE",
            "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": {}});
        let question = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        let request = Request::new(Method::POST, "/inject").json(&question);
        let client = Client::new(&server, None, Protocol::Http1);
        let answer = client.send(request).await.with_context(|| self.process.log_tail(20))?;
        let answer = answer.successful()?.json()?;
        anyhow::ensure!(answer["response"]["allowed"] == true, "{answer}");
        Ok(())
    }
}

async fn is_ready(health: &str) -> bool {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let asked = async {
        let mut stream = tokio::net::TcpStream::connect(health).await?;
        stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        std::io::Result::Ok(text)
    };
    asked.await.is_ok_and(|text| text.contains(" 200 "))
}

fn word_after(log: &str, marker: &str) -> Option<String> {
    let (_, rest) = log.split_once(marker)?;
    Some(rest.split_whitespace().next()?.to_owned())
}

/// The PEM behind base64; `None` if there is none.
pub(crate) fn decoded(text: &str) -> String {
    STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}
