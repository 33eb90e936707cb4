//! Why a request was forwarded: the words of the metric label, the log and Cache-Status.

use crate::{
    api::{media::UnmodelledMedia, request::NotModelled},
    cache::Absence,
    proxy::identify::Stranger,
};

/// Why memory does not answer a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForwardReason {
    /// Neither an API resource nor a document that may be kept: health, version.
    NonResource,
    /// A document of discovery or OpenAPI that is not proven to hold, or not held.
    Discovery,
    /// It changes something, or may.
    Write,
    /// The caller is not the one Listless reads as.
    Caller(Stranger),
    /// Its form is not one that memory can answer.
    NotModelled(NotModelled),
    /// Mode `observe`.
    Observing,
    /// The rules keep this resource out of memory.
    NeverCached,
    /// The answer's form cannot be produced exactly.
    MediaType(UnmodelledMedia),
    /// More objects match than the page it asks for.
    Limited,
    /// It asks for one exact version.
    ExactVersion,
    /// The level is `mostRecent`.
    MostRecent,
    /// The session was last told that its version had expired.
    AfterExpiry,
    /// No replica covers it, and why.
    NotCovered(Absence),
    /// The replica has no first LIST yet.
    NotSynced,
    /// Whether the resource has namespaces is not known, so that its path may not exist.
    PathUnknown,
    /// The replica's link to the apiserver was lost longer than `maxStaleness` ago.
    LinkLost,
    /// Neither event nor bookmark came for too long.
    NoProgress,
    /// A watch of a version that our window of events no longer holds.
    BeforeWindow,
    /// It asks to switch protocols in a way that a server may refuse.
    Upgrade,
    /// As many watches as may be are answered from memory.
    TooManyWatches,
    /// The replica is behind what the session has seen, written or asked for.
    Behind,
    /// The session did something whose version is unknown.
    Barred,
    /// An access review did not allow the read.
    NotAuthorized,
    /// Its server may show each caller something else.
    MayBeAggregated,
}

// === impl ForwardReason ===

impl ForwardReason {
    /// The metric label and the `detail` of Cache-Status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NonResource => "non-resource",
            Self::Discovery => "discovery",
            Self::Write => "write",
            Self::Caller(Stranger::NoCredential) => "no-credential",
            Self::Caller(Stranger::OtherCredential) => "other-credential",
            Self::Caller(Stranger::Impersonating | Stranger::ImpersonatingBearer) => {
                "impersonation"
            }
            Self::Caller(Stranger::SafeMode) => "safe-mode",
            Self::NotModelled(why) => why.as_str(),
            Self::Observing => "observe",
            Self::NeverCached => "never-cached",
            Self::MediaType(media) => media.as_str(),
            Self::Limited => "limit",
            Self::ExactVersion => "exact-version",
            Self::MostRecent => "most-recent",
            Self::AfterExpiry => "after-expiry",
            Self::NotCovered(Absence::NotDemanded) => "not-demanded",
            Self::NotCovered(Absence::Refused { .. }) => "refused",
            Self::NotCovered(Absence::OutOfMemory) => "out-of-memory",
            Self::NotCovered(Absence::TooMany) => "too-many-replicas",
            Self::NotCovered(Absence::NotReplicable) => "not-replicable",
            Self::NotSynced => "not-synced",
            Self::PathUnknown => "path-unknown",
            Self::LinkLost => "link-lost",
            Self::NoProgress => "no-progress",
            Self::BeforeWindow => "before-window",
            Self::Upgrade => "upgrade",
            Self::TooManyWatches => "too-many-watches",
            Self::Behind => "behind",
            Self::Barred => "barred",
            Self::NotAuthorized => "not-authorized",
            Self::MayBeAggregated => "may-be-aggregated",
        }
    }

    /// The `fwd` parameter of Cache-Status (RFC 9211, section 2.2).
    pub fn forwarded_as(self) -> &'static str {
        match self {
            Self::Write => "method",
            Self::NonResource
            | Self::Caller(_)
            | Self::Observing
            | Self::NeverCached
            | Self::MayBeAggregated => "bypass",
            Self::NotModelled(_)
            | Self::Limited
            | Self::ExactVersion
            | Self::MostRecent
            | Self::Upgrade => "request",
            Self::MediaType(_) => "vary-miss",
            Self::NotCovered(_) | Self::NotSynced | Self::PathUnknown => "uri-miss",
            Self::AfterExpiry
            | Self::LinkLost
            | Self::NoProgress
            | Self::BeforeWindow
            | Self::Behind
            | Self::Barred => "stale",
            Self::Discovery | Self::NotAuthorized | Self::TooManyWatches => "miss",
        }
    }
}

impl From<Stranger> for ForwardReason {
    fn from(stranger: Stranger) -> Self {
        Self::Caller(stranger)
    }
}

impl From<NotModelled> for ForwardReason {
    fn from(why: NotModelled) -> Self {
        Self::NotModelled(why)
    }
}

impl From<&Absence> for ForwardReason {
    fn from(absence: &Absence) -> Self {
        Self::NotCovered(*absence)
    }
}
