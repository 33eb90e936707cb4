//! Reloads a changed configuration file without a restart.
//!
//! Invariant: a published configuration is always valid. A bad or missing file changes only the log
//! and a metric. The reload polls the file's identity and time instead of notifications, because a
//! kubelet swaps mounted files by symbolic links.

use std::{
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{sync::watch, time::MissedTickBehavior};

use super::{Config, Error, read};
use crate::{
    error::Chain,
    lifecycle::Draining,
    metrics::{Metrics, Outcome},
};

/// A follower of one file.
pub struct Reloader {
    file: PathBuf,
    metrics: Metrics,
    seen: Option<Fingerprint>,
    content: Content,
    publish: watch::Sender<Arc<Config>>,
}

/// The result of one check of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The file is unchanged.
    None,
    /// The new content is in use.
    Taken,
    /// The new content is invalid or missing, and not in use.
    Refused,
}

/// The last seen content, so that each error is logged once.
#[derive(PartialEq, Eq)]
enum Content {
    Bytes(Vec<u8>),
    Unreadable(String),
}

/// The properties that change when a file is written or replaced.
#[derive(PartialEq, Eq)]
struct Fingerprint {
    modified: Option<SystemTime>,
    length: u64,
    #[cfg(unix)]
    inode: u64,
}

/// The period of the checks.
const PERIOD: Duration = Duration::from_secs(1);

// === impl Reloader ===

impl Reloader {
    /// Reads the file for the first time, when it must be valid. The receiver gets its changes.
    pub fn start(
        file: PathBuf,
        metrics: Metrics,
    ) -> Result<(Self, watch::Receiver<Arc<Config>>), Error> {
        let seen = Fingerprint::of(&file);
        let bytes = read(&file)?;
        let config = Config::from_bytes(&file, &bytes)?;
        log_warnings(&file, &config);
        metrics.config_in_use(SystemTime::now(), config.memory_limit_bytes);
        let (publish, receiver) = watch::channel(Arc::new(config));
        let content = Content::Bytes(bytes);
        Ok((Self { file, metrics, seen, content, publish }, receiver))
    }

    /// Checks the file every second, and at every SIGHUP, until the drain begins.
    pub async fn run(mut self, mut draining: Draining) -> std::io::Result<()> {
        let mut hangups = hangups()?;
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = draining.begun() => return Ok(()),
                _ = ticks.tick() => { self.look(); }
                () = hangups.next() => {
                    tracing::info!(file = %self.file.display(), "SIGHUP: read the configuration \
                                                                 again");
                    self.seen = None;
                    self.look();
                }
            }
        }
    }

    /// Checks the file, and applies it if it changed and is valid.
    pub fn look(&mut self) -> Change {
        let now = Fingerprint::of(&self.file);
        if now.is_some() && now == self.seen {
            return Change::None;
        }
        self.seen = now;
        match read(&self.file) {
            Ok(bytes) => self.offer(bytes),
            Err(error) => self.refuse_unreadable(&error),
        }
    }

    fn offer(&mut self, bytes: Vec<u8>) -> Change {
        let content = Content::Bytes(bytes);
        if content == self.content {
            return Change::None;
        }
        self.content = content;
        let Content::Bytes(bytes) = &self.content else { return Change::None };
        match Config::from_bytes(&self.file, bytes) {
            Ok(config) => {
                log_warnings(&self.file, &config);
                tracing::info!(file = %self.file.display(), "the configuration changed");
                self.metrics.config_in_use(SystemTime::now(), config.memory_limit_bytes);
                self.publish.send_replace(Arc::new(config));
                self.metrics.config_reloaded(Outcome::Success);
                Change::Taken
            }
            Err(error) => self.refuse(&error),
        }
    }

    fn refuse_unreadable(&mut self, error: &Error) -> Change {
        let content = Content::Unreadable(Chain(error).to_string());
        if content == self.content {
            return Change::None;
        }
        self.content = content;
        self.refuse(error)
    }

    fn refuse(&self, error: &Error) -> Change {
        tracing::error!("the configuration is unchanged; fix the file: {}", Chain(error));
        self.metrics.config_reloaded(Outcome::Failure);
        Change::Refused
    }
}

fn log_warnings(file: &std::path::Path, config: &Config) {
    for warning in config.warnings() {
        tracing::warn!(file = %file.display(), "{warning}");
    }
}

// === impl Fingerprint ===

impl Fingerprint {
    /// Returns the fingerprint of a file, through symbolic links.
    fn of(file: &std::path::Path) -> Option<Self> {
        let metadata = fs::metadata(file).ok()?;
        Some(Self {
            modified: metadata.modified().ok(),
            length: metadata.len(),
            #[cfg(unix)]
            inode: std::os::unix::fs::MetadataExt::ino(&metadata),
        })
    }
}

/// A source of SIGHUPs. It has none on platforms without signals.
struct Hangups {
    #[cfg(unix)]
    signal: tokio::signal::unix::Signal,
}

fn hangups() -> std::io::Result<Hangups> {
    Ok(Hangups {
        #[cfg(unix)]
        signal: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?,
    })
}

// === impl Hangups ===

impl Hangups {
    async fn next(&mut self) {
        #[cfg(unix)]
        if self.signal.recv().await.is_some() {
            return;
        }
        std::future::pending::<()>().await;
    }
}
