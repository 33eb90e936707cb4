//! `listless check`: the preflight checks of a cluster and of an installation.
//!
//! `fetch` reads the cluster. The other parts are pure functions that judge the result. Invariant:
//! nothing in the cluster is changed; the test pod is sent with `dryRun=All`. A check without
//! permission is skipped and says so, and never counts as passed.

pub mod contact;
mod fetch;
pub mod injector;
pub mod permissions;
pub mod pods;
pub mod release;
pub mod trial;
pub mod webhook;

use std::{fmt, time::SystemTime};

use serde::Serialize;

pub use fetch::{Asker, Subject, Vantage};

use self::{
    contact::Contact,
    injector::Injector,
    permissions::{Permission, Read},
    pods::Pods,
    release::Kubelets,
    trial::Trial,
    webhook::Webhook,
};

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Not checked: not allowed, or nothing to check.
    Skipped,
    /// As it should be.
    Pass,
    /// A fact to know, or a problem to fix some time.
    Warn,
    /// A part does not work.
    Fail,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The name of the check. It is the same in every version.
    pub name: &'static str,
    /// The result.
    pub result: Outcome,
    /// The observed state.
    pub detail: String,
    /// The recommended action, if any.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub hint: &'static str,
}

/// All checks.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The version of this program.
    pub version: &'static str,
    /// The apiserver that was checked.
    pub apiserver: String,
    /// The worst result.
    pub result: Outcome,
    /// Every check, in a fixed order.
    pub checks: Vec<Row>,
}

/// The reason for a missing fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The apiserver refused the request.
    Forbidden(String),
    /// The object does not exist.
    Absent(String),
    /// There was no usable response.
    Failed(String),
}

/// A fact, or the reason for its absence.
pub type Found<T> = Result<T, Missing>;

/// All facts for the checks.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The apiserver: host and port.
    pub apiserver: String,
    /// The version of the apiserver.
    pub version: Found<String>,
    /// The served API groups with their versions, such as `apps/v1`.
    pub groups: Found<Vec<String>>,
    /// The user of this check.
    pub user: Found<String>,
    /// The resources that the user can read.
    pub reads: Found<Vec<Read>>,
    /// The webhook, if there is one.
    pub webhook: Found<Option<Webhook>>,
    /// The certificate that the webhook's server showed to a direct connection.
    pub contact: Contact,
    /// The result of the test pod, which is never stored.
    pub trial: Trial,
    /// The injector behind the webhook.
    pub injector: Found<Option<Injector>>,
    /// The permissions of the injector.
    pub injector_permissions: Found<Vec<Permission>>,
    /// The pods, counted.
    pub pods: Found<Pods>,
    /// The kubelets of the nodes.
    pub kubelets: Found<Kubelets>,
}

// === impl Row ===

impl Row {
    /// Returns a passed check.
    pub fn pass(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, result: Outcome::Pass, detail: detail.into(), hint: "" }
    }

    /// Returns a warning.
    pub fn warn(name: &'static str, detail: impl Into<String>, hint: &'static str) -> Self {
        Self { name, result: Outcome::Warn, detail: detail.into(), hint }
    }

    /// Returns a failed check.
    pub fn fail(name: &'static str, detail: impl Into<String>, hint: &'static str) -> Self {
        Self { name, result: Outcome::Fail, detail: detail.into(), hint }
    }

    /// Returns a skipped check.
    pub fn skipped(name: &'static str, detail: impl Into<String>, hint: &'static str) -> Self {
        Self { name, result: Outcome::Skipped, detail: detail.into(), hint }
    }
}

// === impl Missing ===

impl Missing {
    /// Returns the skipped row of a check without facts.
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
    /// Returns the word for the result.
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
    /// Runs all checks on the facts.
    pub fn report(&self, now: SystemTime) -> Report {
        let webhook = self.webhook.as_ref().ok().and_then(Option::as_ref);
        let injects = webhook.is_some();
        let mut checks = vec![release::version(&self.version, &self.apiserver, injects)];
        if self.version.is_ok() {
            let injector = self.injector.as_ref().ok().and_then(Option::as_ref);
            checks.extend([
                permissions::features(&self.groups),
                permissions::own(&self.user, &self.reads),
                webhook::configured(&self.webhook),
                contact::certificate(webhook, &self.contact, now),
                trial::injection(&self.trial),
                injector::runs(&self.injector, webhook),
                permissions::of_injector(&self.injector_permissions),
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
    /// Returns the report as JSON.
    pub fn to_json(&self) -> String {
        // Names, words and lists always serialize.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}
