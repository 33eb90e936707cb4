//! The shape of the configuration file. Its doc comments become the comments of the default file.
//!
//! It defines only the shape; `check` tests the relations between values.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_saphyr::FlowSeq;

use super::quantity::{Quantity, Span};
use crate::{
    api::{form::Form, version::Freshness},
    policy::{
        CORE_RESOURCES, MAX_STALENESS, Mode, ReadVerb, RepeatAction, Rewrite, Selectors, Start,
    },
};

/// The configuration file of Listless.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "ProxyConfiguration")]
pub struct RawConfig {
    /// The version of this file's shape.
    pub api_version: ApiVersion,
    /// The kind of this file.
    pub kind: Kind,
    /// Act on decisions (enforce), or forward everything unchanged and only report (observe).
    #[serde(default)]
    pub mode: Mode,
    /// The cache.
    #[serde(default)]
    pub cache: CacheSection,
    /// Unsafe reads that are not answered from memory.
    #[serde(default)]
    pub uncached_reads: UncachedReadsSection,
    /// Limits on repeated identical reads of one client. A read does not count if the client wrote
    /// to that type before it, or if its response changed.
    #[serde(default)]
    pub repeat_polls: RepeatPollsSection,
    /// Further work in mode observe.
    #[serde(default)]
    pub observe: ObserveSection,
    /// Discovery and OpenAPI documents.
    #[serde(default)]
    pub discovery: DiscoverySection,
    /// The report on clients: `listless top`, `listless report` and the page.
    #[serde(default)]
    pub report: ReportSection,
    /// A log line for each request.
    #[serde(default)]
    pub access_log: AccessLogSection,
    /// A file with each response from memory. The apiserver's own audit log does not have them.
    #[serde(default)]
    pub audit: AuditSection,
}

/// The version of the file's shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApiVersion {
    /// The only version so far.
    #[default]
    #[serde(rename = "listless.dev/v1alpha1")]
    V1Alpha1,
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Kind {
    /// A proxy.
    #[default]
    ProxyConfiguration,
}

/// The cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CacheSection {
    /// Memory limit of all replicas together, in bytes of objects; from 1Mi. Reads that do not fit
    /// are forwarded.
    pub memory_limit: Quantity,
    /// Limit of objects that are held uncompressed because they are read often, in bytes; 0 compresses
    /// all. They count in memoryLimit.
    pub uncompressed_limit: Quantity,
    /// Limit of responses kept for repetition, in bytes; from 1Mi. They count in memoryLimit, and
    /// give way to replicas.
    pub response_limit: Quantity,
    /// Time after which an unread replica is evicted; from 10s to 24h. Eager ones are never
    /// evicted.
    pub idle_timeout: Span,
    /// Rules for the cached resources and the freshness of their responses. The first matching rule
    /// applies; a resource without a matching rule is never cached. A rule may select reads by
    /// `namespaces: [shop]`, `verbs: [get, list, watch]`, `userAgents: ["*fabric8*"]` and
    /// `selectors: present` (or absent). It may also have its own `rewrite` and `repeatPolls`, and
    /// an eager rule its `forms: [json, protobuf, table]`.
    pub rules: Vec<RuleSection>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuleSection {
    /// Plural names: pods, deployments.apps, deployments.v1.apps, or "*" for every resource except
    /// secrets, events, leases, reviews and those of aggregated API servers, which must be named.
    #[serde(serialize_with = "on_one_line")]
    #[schemars(schema_with = "resource_names")]
    pub resources: Vec<String>,
    /// Namespaces of the rule; absent: any, and cluster-scoped resources.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "some_on_one_line")]
    #[schemars(with = "Vec<String>")]
    pub namespaces: Option<Vec<String>>,
    /// Verbs of the rule: get, list, watch; absent: all three.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "some_on_one_line")]
    #[schemars(with = "Vec<ReadVerb>")]
    pub verbs: Option<Vec<ReadVerb>>,
    /// Clients of the rule, by User-Agent; `*` matches any text. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "some_on_one_line")]
    #[schemars(with = "Vec<String>")]
    pub user_agents: Option<Vec<String>>,
    /// Match reads with a label or field selector (present), without one (absent), or all (any).
    #[serde(default, skip_serializing_if = "is_default")]
    pub selectors: Selectors,
    /// Start of a replica: never, after an unsafe read repeats (onDemand), or at start-up and
    /// permanently (eager; resources named without a version are cached at v1).
    #[serde(default)]
    pub start: Start,
    /// Forms in which an eager rule holds its objects: json, protobuf (Go clients), table (kubectl);
    /// absent: json. Other forms start on demand.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "some_on_one_line")]
    #[schemars(with = "Vec<Form>")]
    pub forms: Option<Vec<Form>>,
    /// Minimum freshness of a response to an unsafe read.
    #[serde(default)]
    pub freshness: Freshness,
    /// Time for which a replica may answer after it loses its connection to the apiserver; up to
    /// 10m.
    #[serde(default = "max_staleness")]
    pub max_staleness: Span,
    /// Rewrite of its unsafe reads that are not answered from memory; absent: as `uncachedReads`
    /// says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Rewrite")]
    pub rewrite: Option<Rewrite>,
    /// Limits on its repeated polls; an absent key is as in `repeatPolls` of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RuleRepeatPollsSection")]
    pub repeat_polls: Option<RuleRepeatPollsSection>,
}

/// Limits on repeated polls, where a rule differs from the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RuleRepeatPollsSection {
    /// Polls per second that may reach the apiserver; above 0, up to 1000.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "some_number")]
    #[schemars(with = "f64")]
    pub per_second: Option<f64>,
    /// Burst of polls that may reach the apiserver; from 1 to 10000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub burst: Option<u32>,
    /// Treatment of further polls.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RepeatAction")]
    pub action: Option<RepeatAction>,
    /// Maximum delay of a poll; up to 8s.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Span")]
    pub max_delay: Option<Span>,
    /// Identical, unchanged responses from memory per second and client; from 1 to 1000000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub from_memory_per_second: Option<u32>,
}

/// Unsafe reads that are not answered from memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct UncachedReadsSection {
    /// Forward them unchanged (keep), or let the apiserver's cache answer them at any version (any,
    /// resourceVersion=0) or at one not older than the session has seen (notOlderThan).
    pub rewrite: Rewrite,
}

/// Limits on repeated identical reads of one client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RepeatPollsSection {
    /// Polls per second that may reach the apiserver; above 0, up to 1000.
    #[serde(serialize_with = "number")]
    pub per_second: f64,
    /// Burst of polls that may reach the apiserver; from 1 to 10000.
    pub burst: u32,
    /// Treatment of further polls: delay them (pace), refuse them with 429 (reject), or forward
    /// them (off). With off, fromMemoryPerSecond does not apply either.
    pub action: RepeatAction,
    /// Maximum delay of a poll; up to 8s, because clients time out after 10.
    pub max_delay: Span,
    /// Limit on a client in a loop: identical, unchanged responses from memory per second. Further
    /// ones are delayed by at most 50ms, and never refused; from 1 to 1000000.
    pub from_memory_per_second: u32,
}

/// Further work in mode observe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ObserveSection {
    /// Fraction of possible responses from memory that is compared with the apiserver's; from 0 to
    /// 1.
    #[serde(serialize_with = "number")]
    pub check_share: f64,
}

/// Discovery and OpenAPI documents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DiscoverySection {
    /// Cache them, revalidate them with the apiserver, and serve them while they are proved
    /// current.
    pub cache: bool,
}

/// The report on clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ReportSection {
    /// Name the caller in each row, at a gateway: a user, or a service account with its namespace. The
    /// apiserver is asked once in 10m for each token that it accepted (SelfSubjectReview).
    pub callers: bool,
}

/// A log line for each request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AccessLogSection {
    /// Logged requests: none (off), those that failed in the apiserver or in Listless with a status
    /// from 500 (errors), or all (all).
    pub level: AccessLevel,
    /// Fraction of the other requests that is logged: from 0 to 1.
    #[serde(serialize_with = "number")]
    pub sample: f64,
}

/// The selection of requests that are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AccessLevel {
    /// None.
    #[default]
    Off,
    /// Failed requests.
    Errors,
    /// All requests.
    All,
}

/// A file with each response from memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AuditSection {
    /// Path of the file; empty: none. Only its owner may read it.
    pub file: String,
    /// Maximum size of the file; from 64Ki. It is then renamed to end in .1, and a new one starts.
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
            report: ReportSection::default(),
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
            uncompressed_limit: Quantity(64 << 20),
            response_limit: Quantity(32 << 20),
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

/// The schema of [`RuleSection::resources`]: a name without a group is one of the core group.
fn resource_names(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let core = CORE_RESOURCES.join("|");
    let pattern = format!(r"^(\*|({core})|[a-z0-9-]+\.[a-z0-9.-]+)$");
    schemars::json_schema!({"type": "array", "items": {"type": "string", "pattern": pattern}})
}

// === impl RuleSection ===

impl RuleSection {
    /// Returns a rule for these resources with defaults for everything else.
    pub fn of(resources: &[&str]) -> Self {
        Self {
            resources: resources.iter().map(|&name| name.to_owned()).collect(),
            namespaces: None,
            verbs: None,
            user_agents: None,
            selectors: Selectors::default(),
            start: Start::default(),
            forms: None,
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
