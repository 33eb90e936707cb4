//! A Prometheus of this test's own, on a free port, and its API.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::rig::process::Process;

const START_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(500);

/// A running Prometheus; dropping it ends it and removes its data.
#[derive(Debug)]
pub struct Prometheus {
    process: Process,
    address: String,
    // Declared last: removed after the process has ended.
    _folder: TempDir,
}

// === impl Prometheus ===

impl Prometheus {
    /// Starts it with these scrape configurations and rules, evaluated every second.
    pub async fn start(scrapes: Vec<Value>, rules: &[PathBuf]) -> Result<Self> {
        let folder = TempDir::with_prefix("listless-prometheus-")?;
        // JSON is YAML.
        let config = json!({
            "global": {"evaluation_interval": "1s"},
            "rule_files": rules, "scrape_configs": scrapes,
        });
        let file = folder.path().join("prometheus.yml");
        fs::write(&file, config.to_string())?;
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        command.arg("--web.listen-address=127.0.0.1:0");
        let log = folder.path().join("prometheus.log");
        let mut process = Process::start("prometheus", command, &log)?;
        let deadline = Instant::now() + START_LIMIT;
        let mut poll = tokio::time::interval(POLL);
        loop {
            poll.tick().await;
            if let Some(address) = address(&process.log_tail(usize::MAX)) {
                let started = Self { process, address, _folder: folder };
                started.ready(deadline).await?;
                return Ok(started);
            }
            if !process.is_running() || Instant::now() > deadline {
                bail!("no Prometheus\n{}", process.log_tail(20));
            }
        }
    }

    async fn ready(&self, deadline: Instant) -> Result<()> {
        let mut poll = tokio::time::interval(POLL);
        while self.query("vector(1)").await.is_err() {
            if Instant::now() > deadline {
                bail!("Prometheus is not ready\n{}", self.process.log_tail(20));
            }
            poll.tick().await;
        }
        Ok(())
    }

    /// The current values of the series of an expression.
    pub async fn query(&self, expression: &str) -> Result<Vec<f64>> {
        let data = self.get(&format!("/api/v1/query?query={}", encoded(expression))).await?;
        let result = data["result"].as_array().context("no result")?;
        let value = |series: &Value| {
            let text = series["value"][1].as_str().context("no value")?;
            text.parse().with_context(|| text.to_owned())
        };
        result.iter().map(value).collect()
    }

    /// The value of the first of them.
    pub async fn value(&self, expression: &str) -> Result<f64> {
        let values = self.query(expression).await?;
        values.first().copied().with_context(|| format!("no series: {expression}"))
    }

    /// Every rule, with its health.
    pub async fn rules(&self) -> Result<Vec<Value>> {
        let data = self.get("/api/v1/rules").await?;
        let groups = data["groups"].as_array().context("no groups")?;
        let rules = groups.iter().filter_map(|group| group["rules"].as_array());
        Ok(rules.flatten().cloned().collect())
    }

    /// The names of the alerts that fire.
    pub async fn firing(&self) -> Result<BTreeSet<String>> {
        self.alerts(|state| state == "firing").await
    }

    /// The names of the alerts that fire or are about to.
    pub async fn active(&self) -> Result<BTreeSet<String>> {
        self.alerts(|_| true).await
    }

    async fn alerts(&self, wanted: impl Fn(&str) -> bool) -> Result<BTreeSet<String>> {
        let data = self.get("/api/v1/alerts").await?;
        let alerts = data["alerts"].as_array().context("no alerts")?;
        let wanted = alerts.iter().filter(|alert| alert["state"].as_str().is_some_and(&wanted));
        let names = wanted.filter_map(|alert| alert["labels"]["alertname"].as_str());
        Ok(names.map(str::to_owned).collect())
    }

    /// Waits until a condition holds; fails after a while.
    pub async fn until(&self, what: &str, limit: Duration, holds: impl AsyncFn() -> bool) {
        let missing = async || if holds().await { Vec::new() } else { vec![what.to_owned()] };
        self.until_none(what, limit, missing).await;
    }

    /// Waits until nothing is missing any more; fails after a while, with the missing items.
    pub async fn until_none(
        &self,
        what: &str,
        limit: Duration,
        missing: impl AsyncFn() -> Vec<String>,
    ) {
        let deadline = Instant::now() + limit;
        let mut poll = tokio::time::interval(POLL);
        loop {
            let missing = missing().await;
            if missing.is_empty() {
                return;
            }
            if Instant::now() > deadline {
                let log = self.process.log_tail(20);
                panic!("not so within {limit:?}: {what}\n{missing:#?}\n{log}");
            }
            poll.tick().await;
        }
    }

    async fn get(&self, target: &str) -> Result<Value> {
        let mut stream = TcpStream::connect(&self.address).await?;
        // HTTP 1.0: the response is not chunked and ends with the connection.
        let request = format!("GET {target} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let (_, body) = text.split_once("\r\n\r\n").context("no answer")?;
        let answer: Value = serde_json::from_str(body).with_context(|| text.clone())?;
        if answer["status"] != "success" {
            bail!("{target}: {answer}");
        }
        Ok(answer["data"].clone())
    }
}

/// The system chose the port; only the log contains it.
fn address(log: &str) -> Option<String> {
    let (_, rest) = log.split_once("msg=\"Listening on\" address=")?;
    // The line is whole once its end is there.
    rest.split_once('\n').map(|(address, _)| address.trim().to_owned())
}

fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
