//! The shape of the configuration file. Its doc comments become the comments of the default file.
//!
//! Shape only: what the values must satisfy together is checked in `check`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_saphyr::FlowSeq;

use super::quantity::{Quantity, Span};
use crate::{
    api::version::Freshness,
    policy::{MAX_STALENESS, Mode, ReadVerb, RepeatAction, Rewrite, Selectors, Start},
};

/// The configuration file of Listless.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "ProxyConfiguration")]
pub struct RawConfig {
    /// The version of this file's shape.
    pub api_version: ApiVersion,
    /// What the file configures.
    pub kind: Kind,
    /// Whether decisions are acted upon (enforce), or everything is forwarded unchanged and only
    /// accounted for (observe).
    #[serde(default)]
    pub mode: Mode,
    /// What is kept in memory.
    #[serde(default)]
    pub cache: CacheSection,
    /// Unsafe reads that memory does not answer.
    #[serde(default)]
    pub uncached_reads: UncachedReadsSection,
    /// Limits on the same read over and over by one client. A read after a write of the client to that
    /// type, or whose response changed, never counts.
    #[serde(default)]
    pub repeat_polls: RepeatPollsSection,
    /// What else is done in mode observe.
    #[serde(default)]
    pub observe: ObserveSection,
    /// Documents of discovery and OpenAPI.
    #[serde(default)]
    pub discovery: DiscoverySection,
    /// A line in the log for each request.
    #[serde(default)]
    pub access_log: AccessLogSection,
    /// A file that tells of each answer from memory, which the apiserver's own audit log does not.
    #[serde(default)]
    pub audit: AuditSection,
}

/// The version of the file's shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApiVersion {
    /// The only one so far.
    #[default]
    #[serde(rename = "listless.dev/v1alpha1")]
    V1Alpha1,
}

/// What a file configures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Kind {
    /// A proxy.
    #[default]
    ProxyConfiguration,
}

/// What is kept in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CacheSection {
    /// How many bytes of objects all replicas together may hold; from 1Mi. What does not fit is
    /// forwarded.
    pub memory_limit: Quantity,
    /// How long a replica that nobody reads is kept; from 10s to 24h. Eager ones always are.
    pub idle_timeout: Span,
    /// Which resources may be kept, and how fresh their answers must be. The first matching rule
    /// wins; a resource no rule matches is never kept. A rule may be for some reads only:
    /// `namespaces: [shop]`, `verbs: [get, list, watch]`, `userAgents: ["*fabric8*"]`,
    /// `selectors: present` (or absent). And it may have a `rewrite` and `repeatPolls` of its own.
    pub rules: Vec<RuleSection>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuleSection {
    /// Plural names: pods, deployments.apps, deployments.v1.apps, or "*" for every resource but
    /// secrets, events, leases, reviews and those of aggregated API servers, which must be named.
    #[serde(serialize_with = "on_one_line")]
    pub resources: Vec<String>,
    /// The namespaces the rule is for; absent: any, and cluster-scoped resources.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "some_on_one_line")]
    #[schemars(with = "Vec<String>")]
    pub namespaces: Option<Vec<String>>,
    /// The verbs the rule is for: get, list, watch; absent: all three.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "some_on_one_line")]
    #[schemars(with = "Vec<ReadVerb>")]
    pub verbs: Option<Vec<ReadVerb>>,
    /// The clients the rule is for, by User-Agent; `*` stands for anything. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "some_on_one_line")]
    #[schemars(with = "Vec<String>")]
    pub user_agents: Option<Vec<String>>,
    /// Whether the rule is for reads with a label or field selector, without one, or for any.
    #[serde(default, skip_serializing_if = "is_default")]
    pub selectors: Selectors,
    /// When a replica may come to be: never, after an unsafe read repeats (onDemand), or at once and
    /// for good (eager; resources named without a version are followed at v1).
    #[serde(default)]
    pub start: Start,
    /// How fresh an answer to an unsafe read must be.
    #[serde(default)]
    pub freshness: Freshness,
    /// How long a replica may still answer once its link to the apiserver is lost; up to 10m.
    #[serde(default = "max_staleness")]
    pub max_staleness: Span,
    /// What becomes of its unsafe reads that memory does not answer; absent: as `uncachedReads` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Rewrite")]
    pub rewrite: Option<Rewrite>,
    /// Limits on its polls that repeat; an absent key is as in `repeatPolls` of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RuleRepeatPollsSection")]
    pub repeat_polls: Option<RuleRepeatPollsSection>,
}

/// Limits on polls that repeat, where a rule differs from the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RuleRepeatPollsSection {
    /// Polls per second that may reach the apiserver; above 0, up to 1000.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "some_number")]
    #[schemars(with = "f64")]
    pub per_second: Option<f64>,
    /// Polls that may reach the apiserver at once; from 1 to 10000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub burst: Option<u32>,
    /// Treatment of further ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RepeatAction")]
    pub action: Option<RepeatAction>,
    /// Longest hold of a poll; up to 8s.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Span")]
    pub max_delay: Option<Span>,
    /// Identical, unchanged responses from memory per second and client; from 1 to 1000000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub from_memory_per_second: Option<u32>,
}

/// Unsafe reads that memory does not answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct UncachedReadsSection {
    /// Leave them as they are (keep), let them ask for whatever the apiserver's own cache holds (any,
    /// resourceVersion=0), or for at least what the session has seen (notOlderThan).
    pub rewrite: Rewrite,
}

/// Limits on the same read over and over by one client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RepeatPollsSection {
    /// Polls per second that may reach the apiserver; above 0, up to 1000.
    #[serde(serialize_with = "number")]
    pub per_second: f64,
    /// Polls that may reach the apiserver at once; from 1 to 10000.
    pub burst: u32,
    /// Treatment of further ones: hold them a while (pace), refuse them with 429 (reject), or send
    /// them (off). With off, fromMemoryPerSecond does not apply either.
    pub action: RepeatAction,
    /// Longest hold of a poll; up to 8s, because clients give up after 10.
    pub max_delay: Span,
    /// Guard against a client in a loop: identical, unchanged responses from memory per second. Further
    /// ones are held for at most 50ms, and never refused; from 1 to 1000000.
    pub from_memory_per_second: u32,
}

/// What else is done in mode observe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ObserveSection {
    /// Which share of the answers that memory could have given is compared with what it would have
    /// said; from 0 to 1.
    #[serde(serialize_with = "number")]
    pub check_share: f64,
}

/// Documents of discovery and OpenAPI.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DiscoverySection {
    /// Whether they are kept, confirmed by the apiserver, and given again while they are proven to hold.
    pub cache: bool,
}

/// A line in the log for each request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AccessLogSection {
    /// Which requests have a line: none (off), those that failed at the apiserver or in Listless, with
    /// a status from 500 (errors), or every one (all).
    pub level: AccessLevel,
    /// Of the others, this share has a line: from 0 to 1.
    #[serde(serialize_with = "number")]
    pub sample: f64,
}

/// Which requests have a line in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AccessLevel {
    /// None.
    #[default]
    Off,
    /// Those that failed.
    Errors,
    /// Every one.
    All,
}

/// A file that tells of each answer from memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AuditSection {
    /// The file; empty: none. Its owner alone may read it.
    pub file: String,
    /// A file that would grow beyond this is renamed to end in .1, and a new one begun; from 64Ki.
    pub max_bytes: Quantity,
}

// === defaults, one per section ===

impl Default for RawConfig {
    fn default() -> Self {
        Self {
            api_version: ApiVersion::V1Alpha1,
            kind: Kind::ProxyConfiguration,
            mode: Mode::default(),
            cache: CacheSection::default(),
            uncached_reads: UncachedReadsSection::default(),
            repeat_polls: RepeatPollsSection::default(),
            observe: ObserveSection::default(),
            discovery: DiscoverySection::default(),
            access_log: AccessLogSection::default(),
            audit: AuditSection::default(),
        }
    }
}

impl Default for CacheSection {
    fn default() -> Self {
        let left_alone =
            ["secrets", "leases.coordination.k8s.io", "events", "events.events.k8s.io"];
        Self {
            memory_limit: Quantity(256 << 20),
            idle_timeout: Span(std::time::Duration::from_secs(600)),
            rules: vec![
                RuleSection { start: Start::Never, ..RuleSection::of(&left_alone) },
                RuleSection::of(&["*"]),
            ],
        }
    }
}

impl Default for RepeatPollsSection {
    fn default() -> Self {
        Self {
            per_second: 5.0,
            burst: 20,
            action: RepeatAction::Pace,
            max_delay: Span(std::time::Duration::from_secs(2)),
            from_memory_per_second: 200,
        }
    }
}

impl Default for ObserveSection {
    fn default() -> Self {
        Self { check_share: 0.01 }
    }
}

impl Default for DiscoverySection {
    fn default() -> Self {
        Self { cache: true }
    }
}

impl Default for AccessLogSection {
    fn default() -> Self {
        Self { level: AccessLevel::Off, sample: 1.0 }
    }
}

impl Default for AuditSection {
    fn default() -> Self {
        Self { file: String::new(), max_bytes: Quantity(64 << 20) }
    }
}

// === impl RuleSection ===

impl RuleSection {
    /// A rule for these resources with everything else at its default.
    pub fn of(resources: &[&str]) -> Self {
        Self {
            resources: resources.iter().map(|&name| name.to_owned()).collect(),
            namespaces: None,
            verbs: None,
            user_agents: None,
            selectors: Selectors::default(),
            start: Start::default(),
            freshness: Freshness::default(),
            max_staleness: max_staleness(),
            rewrite: None,
            repeat_polls: None,
        }
    }
}

fn max_staleness() -> Span {
    Span(MAX_STALENESS)
}

fn on_one_line<S: Serializer>(names: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    FlowSeq(names).serialize(serializer)
}

fn some_on_one_line<T: Serialize, S: Serializer>(
    names: &Option<Vec<T>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    FlowSeq(names.as_deref().unwrap_or_default()).serialize(serializer)
}

fn is_default(selectors: &Selectors) -> bool {
    *selectors == Selectors::default()
}

fn some_number<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => number(value, serializer),
        None => serializer.serialize_none(),
    }
}

/// Prints 5, not 5.0.
fn number<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.fract() == 0.0 {
        (*number as i64).serialize(serializer)
    } else {
        number.serialize(serializer)
    }
}
