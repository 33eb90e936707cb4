//! `listless check`: what stands in Listless's way in a cluster, before it is in anybody's.
//!
//! `fetch` asks, and the functions of the other parts judge what it found: they are pure. Invariant:
//! nothing is changed in the cluster; the pod that is tried is sent with `dryRun=All`. What may not
//! be looked at is skipped and says so, and never counts as passed.

pub mod contact;
mod fetch;
pub mod injector;
pub mod pods;
pub mod release;
pub mod rights;
pub mod trial;
pub mod webhook;

use std::{fmt, time::SystemTime};

use serde::Serialize;

pub use fetch::{Asker, Subject, Vantage};

use self::{
    contact::Contact,
    injector::Injector,
    pods::Pods,
    release::Kubelets,
    rights::{Read, Right},
    trial::Trial,
    webhook::Webhook,
};

/// What one check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It could not be looked at, or there is nothing to look at.
    Skipped,
    /// As it should be.
    Pass,
    /// Something to know, or to mend some time.
    Warn,
    /// Something does not work.
    Fail,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What is checked; the same in every version.
    pub name: &'static str,
    /// What it came to.
    pub result: Outcome,
    /// What was seen.
    pub detail: String,
    /// What to do about it, if anything.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub hint: &'static str,
}

/// All checks.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The version of this program.
    pub version: &'static str,
    /// Which apiserver was asked.
    pub apiserver: String,
    /// The worst of all results.
    pub result: Outcome,
    /// Every check, in a fixed order.
    pub checks: Vec<Row>,
}

/// Why something is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The apiserver did not allow it.
    Forbidden(String),
    /// It is not there.
    Absent(String),
    /// There was no usable answer.
    Failed(String),
}

/// Something, or why it is not known.
pub type Found<T> = Result<T, Missing>;

/// All that was found out, for the checks to judge.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The apiserver: host and port.
    pub apiserver: String,
    /// Its version.
    pub version: Found<String>,
    /// The groups it serves with their versions, as `apps/v1`.
    pub groups: Found<Vec<String>>,
    /// Who asks.
    pub user: Found<String>,
    /// What may be read as that user.
    pub reads: Found<Vec<Read>>,
    /// The webhook, if there is one.
    pub webhook: Found<Option<Webhook>>,
    /// What its server showed when asked directly.
    pub contact: Contact,
    /// What became of a pod that was never stored.
    pub trial: Trial,
    /// The injector behind the webhook.
    pub injector: Found<Option<Injector>>,
    /// What the injector may do.
    pub injector_rights: Found<Vec<Right>>,
    /// The pods, counted.
    pub pods: Found<Pods>,
    /// The nodes' kubelets.
    pub kubelets: Found<Kubelets>,
}

// === impl Row ===

impl Row {
    /// All is well.
    pub fn pass(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, result: Outcome::Pass, detail: detail.into(), hint: "" }
    }

    /// Something to know.
    pub fn warn(name: &'static str, detail: impl Into<String>, hint: &'static str) -> Self {
        Self { name, result: Outcome::Warn, detail: detail.into(), hint }
    }

    /// Something does not work.
    pub fn fail(name: &'static str, detail: impl Into<String>, hint: &'static str) -> Self {
        Self { name, result: Outcome::Fail, detail: detail.into(), hint }
    }

    /// Nothing could be seen.
    pub fn skipped(name: &'static str, detail: impl Into<String>, hint: &'static str) -> Self {
        Self { name, result: Outcome::Skipped, detail: detail.into(), hint }
    }
}

// === impl Missing ===

impl Missing {
    /// The row of a check that has nothing to judge.
    pub fn skip(&self, name: &'static str, hint: &'static str) -> Row {
        Row::skipped(name, self.to_string(), hint)
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden(why) | Self::Absent(why) | Self::Failed(why) => f.write_str(why),
        }
    }
}

// === impl Outcome ===

impl Outcome {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

// === impl Facts ===

impl Facts {
    /// Judges them all.
    pub fn report(&self, now: SystemTime) -> Report {
        let webhook = self.webhook.as_ref().ok().and_then(Option::as_ref);
        let injects = webhook.is_some();
        let mut checks = vec![release::version(&self.version, &self.apiserver, injects)];
        if self.version.is_ok() {
            let injector = self.injector.as_ref().ok().and_then(Option::as_ref);
            checks.extend([
                rights::features(&self.groups),
                rights::own(&self.user, &self.reads),
                webhook::configured(&self.webhook),
                contact::certificate(webhook, &self.contact, now),
                trial::injection(&self.trial),
                injector::runs(&self.injector, webhook),
                rights::of_injector(&self.injector_rights),
                pods::image(&self.pods, injector),
                pods::sidecars(&self.pods),
                pods::up_to_date(&self.pods, injector),
                pods::left_out(&self.pods, injects),
                release::kubelets(&self.kubelets, injects),
            ]);
        }
        let result = checks.iter().map(|row| row.result).max().unwrap_or(Outcome::Skipped);
        let version = env!("CARGO_PKG_VERSION");
        Report { version, apiserver: self.apiserver.clone(), result, checks }
    }
}

// === impl Report ===

impl Report {
    /// As JSON.
    pub fn to_json(&self) -> String {
        // Names, words and lists can always be written.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}
