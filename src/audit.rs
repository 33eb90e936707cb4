//! A file that tells of every answer from memory: who was given what, of which version.
//!
//! The apiserver's own audit log cannot have these reads, for it was not asked. Invariants: no request
//! ever waits for the file (a full queue drops the line and counts it), and no token is in a line:
//! callers are named by a keyed hash.

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

/// Takes lines for the file of the configuration in force; cheap to clone.
#[derive(Clone)]
pub struct Audit(Arc<Inner>);

struct Inner {
    metrics: Metrics,
    /// Whether there is a file: looked at by every request.
    is_on: AtomicBool,
    current: Mutex<Option<Current>>,
}

struct Current {
    file: AuditFile,
    writer: Writer,
}

/// One answer from memory.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry<'a> {
    /// When it was given (RFC 3339).
    pub time: String,
    /// The user Listless stands for, or the keyed hash of a caller's token.
    pub who: String,
    /// What the client calls itself.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub user_agent: &'a str,
    /// What was asked; empty for a document of discovery.
    #[serde(flatten)]
    pub subject: Subject<'a>,
    /// The version that was shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// The level of freshness, or `discovery`.
    pub level: &'static str,
    /// The HTTP status.
    pub code: u16,
}

/// What an answer shows.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject<'a> {
    /// `get`, `list`, `watch`, or `other`.
    pub verb: &'static str,
    /// The API group.
    pub group: &'a str,
    /// The API version.
    pub version: &'a str,
    /// The plural name; empty for a document.
    pub resource: &'a str,
    /// The namespace of the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<&'a str>,
    /// The object of the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'a str>,
    /// The selector of labels.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label_selector: String,
    /// The selector of fields.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_selector: String,
    /// The path of a document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<&'a str>,
}

// === impl Audit ===

impl Audit {
    /// Nothing is written yet.
    pub fn new(metrics: Metrics) -> Self {
        let (is_on, current) = Default::default();
        Self(Arc::new(Inner { metrics, is_on, current }))
    }

    /// Writes to the file the configuration names, now and whenever it names another.
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

    /// Takes one line over, if there is a file; what is to be told is asked for only then.
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

    /// Whether there is a file.
    pub fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::Relaxed)
    }

    /// Writes what was taken over so far, and takes no more. Blocks until that is done.
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
                tracing::error!(%error, "answers from memory are not audited: no thread");
                None
            }
        });
        self.0.is_on.store(current.is_some(), Ordering::Relaxed);
    }
}
