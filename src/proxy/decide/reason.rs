//! The forward reasons, as in the metric label, the log and Cache-Status.

use crate::{
    api::{media::UnmodelledMedia, request::NotModelled},
    cache::Absence,
    proxy::identify::Unauthenticated,
};

/// The reason why the cache does not answer a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForwardReason {
    /// Neither an API resource nor a document that may be cached: health, version.
    NonResource,
    /// A document of discovery or OpenAPI that is not cached, or not proven to be valid.
    Discovery,
    /// The request changes something, or may.
    Write,
    /// The caller is not authenticated by Listless.
    Caller(Unauthenticated),
    /// The cache does not support the form of the request.
    NotModelled(NotModelled),
    /// The mode is `observe`.
    Observe,
    /// The rules exclude this resource from the cache.
    NeverCached,
    /// The cache cannot produce the response's media type exactly.
    MediaType(UnmodelledMedia),
    /// More objects match than the requested page holds.
    Limited,
    /// The read asks for one exact version.
    ExactVersion,
    /// The level is `mostRecent`.
    MostRecent,
    /// The last response to the session said that its version had expired.
    AfterExpiry,
    /// No replica covers the read; the payload says why.
    NotCovered(Absence),
    /// The replica has no first LIST yet.
    NotSynced,
    /// It is unknown whether the resource is namespaced. Its path may not exist.
    PathUnknown,
    /// The replica lost its link to the apiserver longer than `maxStaleness` ago.
    LinkLost,
    /// The replica received neither an event nor a bookmark for too long.
    NoProgress,
    /// A watch from a version that the replica's window of events no longer holds.
    BeforeWindow,
    /// The request asks for a protocol switch that a server may refuse.
    Upgrade,
    /// The limit of watches that are served from the cache is reached.
    TooManyWatches,
    /// Too many bytes of compressed and printed responses are on their way to clients.
    TooManyBytes,
    /// The replica is older than a version that the session has seen, written or asked for.
    Behind,
    /// The session did something whose version is unknown.
    Barred,
    /// An access review did not allow the read.
    NotAuthorized,
    /// The resource's server may show each caller different objects.
    MayBeAggregated,
}

// === impl ForwardReason ===

impl ForwardReason {
    /// Returns the metric label, which is also the `detail` of Cache-Status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NonResource => "non-resource",
            Self::Discovery => "discovery",
            Self::Write => "write",
            Self::Caller(Unauthenticated::NoCredential) => "no-credential",
            Self::Caller(Unauthenticated::OtherCredential) => "other-credential",
            Self::Caller(Unauthenticated::Impersonating | Unauthenticated::ImpersonatingBearer) => {
                "impersonation"
            }
            Self::Caller(Unauthenticated::SafeMode) => "safe-mode",
            Self::NotModelled(why) => why.as_str(),
            Self::Observe => "observe",
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
            Self::TooManyBytes => "too-many-bytes",
            Self::Behind => "behind",
            Self::Barred => "barred",
            Self::NotAuthorized => "not-authorized",
            Self::MayBeAggregated => "may-be-aggregated",
        }
    }

    /// Returns the `fwd` parameter of Cache-Status (RFC 9211, section 2.2).
    pub fn forwarded_as(self) -> &'static str {
        match self {
            Self::Write => "method",
            Self::NonResource
            | Self::Caller(_)
            | Self::Observe
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
            Self::Discovery | Self::NotAuthorized | Self::TooManyWatches | Self::TooManyBytes => {
                "miss"
            }
        }
    }
}

impl From<Unauthenticated> for ForwardReason {
    fn from(unauthenticated: Unauthenticated) -> Self {
        Self::Caller(unauthenticated)
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
