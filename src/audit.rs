//! The audit file: one line per response from memory, with caller and version.
//!
//! The apiserver's audit log has no entry for these reads. Invariants: no request waits for the
//! file (a full queue drops the line and counts it), and no line has a token (callers appear as a
//! keyed hash).

mod writer;

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use serde::Serialize;
use tokio::{sync::watch, task::JoinHandle};

use self::writer::Writer;
use crate::{
    config::{AuditFile, Config},
    metrics::{AuditResult, Limit, Metrics},
};

/// A handle that sends lines to the configured file. It is cheap to clone.
#[derive(Clone)]
pub struct Audit(Arc<Inner>);

struct Inner {
    metrics: Metrics,
    /// `true` if a file is configured. Every request reads it.
    is_on: AtomicBool,
    current: Mutex<Option<Current>>,
}

struct Current {
    file: AuditFile,
    writer: Writer,
}

/// One response from memory.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry<'a> {
    /// The time of the response (RFC 3339).
    pub time: String,
    /// Listless's own user, or the keyed hash of a caller's token.
    pub who: String,
    /// The client's user agent.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub user_agent: &'a str,
    /// The subject of the request. Empty for a discovery document.
    #[serde(flatten)]
    pub subject: Subject<'a>,
    /// The version of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// The level of freshness, or `discovery`.
    pub level: &'static str,
    /// The HTTP status.
    pub code: u16,
}

/// The subject of a request.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject<'a> {
    /// The verb: `get`, `list`, `watch`, or `other`.
    pub verb: &'static str,
    /// The API group.
    pub group: &'a str,
    /// The API version.
    pub version: &'a str,
    /// The plural resource name. Empty for a discovery document.
    pub resource: &'a str,
    /// The namespace of the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<&'a str>,
    /// The object name of the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'a str>,
    /// The label selector.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label_selector: String,
    /// The field selector.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_selector: String,
    /// The path of a discovery document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<&'a str>,
}

// === impl Audit ===

impl Audit {
    /// Returns a handle without a file.
    pub fn new(metrics: Metrics) -> Self {
        let (is_on, current) = Default::default();
        Self(Arc::new(Inner { metrics, is_on, current }))
    }

    /// Follows the configuration and writes to the file that it names.
    pub fn follow(&self, mut config: watch::Receiver<Arc<Config>>) -> JoinHandle<()> {
        self.use_file(config.borrow_and_update().audit.clone());
        let audit = self.clone();
        tokio::spawn(async move {
            while config.changed().await.is_ok() {
                let file = config.borrow_and_update().audit.clone();
                audit.use_file(file);
            }
        })
    }

    /// Queues one line if there is a file. `entry` runs only then.
    pub fn tell<'a>(&self, entry: impl FnOnce() -> Entry<'a>) {
        if !self.is_on() {
            return;
        }
        let current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Current { writer, .. }) = &*current else { return };
        let Ok(mut line) = serde_json::to_vec(&entry()) else { return };
        line.push(b'\n');
        if !writer.take(line) {
            self.0.metrics.audited(AuditResult::Dropped, 1);
            self.0.metrics.limit_reached(Limit::AuditQueue);
        }
    }

    /// Reports whether a file is configured.
    pub fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::Relaxed)
    }

    /// Writes all queued lines and stops. It blocks until that is done.
    pub fn close(&self) {
        self.0.is_on.store(false, Ordering::Relaxed);
        let current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Current { writer, .. }) = current {
            writer.close();
        }
    }

    /// The old file is finished by its own thread.
    fn use_file(&self, wanted: Option<AuditFile>) {
        let mut current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().map(|current| &current.file) == wanted.as_ref() {
            return;
        }
        *current = wanted.and_then(|file| match Writer::start(&file, self.0.metrics.clone()) {
            Ok(writer) => Some(Current { file, writer }),
            Err(error) => {
                tracing::error!(%error, "cannot audit responses from memory: no thread could be \
                                         started");
                None
            }
        });
        self.0.is_on.store(current.is_some(), Ordering::Relaxed);
    }
}
