//! Asks a running Listless on its admin address.

use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, runtime::Builder, time::timeout};

/// Whom to ask.
#[derive(Clone, Debug, Args)]
pub(super) struct AdminOptions {
    /// The admin address of a running Listless.
    #[arg(long, value_name = "ADDRESS", default_value = ADMIN)]
    pub(super) admin: String,
}

/// Where `--admin` of the commands that serve listens by default.
const ADMIN: &str = "127.0.0.1:7444";
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// More than the longest report there can be.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

// === impl AdminOptions ===

impl AdminOptions {
    /// What it says at this path.
    pub(super) fn get(&self, path: &str) -> anyhow::Result<Bytes> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("the runtime cannot be started")?;
        let answer = runtime.block_on(async { timeout(PATIENCE, self.ask(path)).await });
        match answer {
            Ok(answer) => answer,
            Err(_) => bail!("{}: no answer within {} s", self.admin, PATIENCE.as_secs()),
        }
    }

    async fn ask(&self, path: &str) -> anyhow::Result<Bytes> {
        let address = &self.admin;
        let stream = TcpStream::connect(address).await.with_context(|| {
            format!("{address}: nothing listens there; is Listless running, with this --admin?")
        })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::get(path).header(header::HOST, address);
        let asked = sender.send_request(request.body(Empty::<Bytes>::new())?).await;
        let response =
            asked.with_context(|| format!("{address}: this is not Listless's admin address"))?;
        let code = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(anyhow::Error::from_boxed)?.to_bytes();
        match code {
            StatusCode::OK => Ok(body),
            code => bail!("{address}{path}: {code}: {}", String::from_utf8_lossy(&body).trim_end()),
        }
    }
}
