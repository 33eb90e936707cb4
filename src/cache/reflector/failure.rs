//! The failures between a reflector and the apiserver, and the step after each. Pure.

use std::time::Duration;

use serde::Deserialize;

use super::event::EventError;
use crate::{
    api::{pushback::RETRY_AFTER_MAX, version::ResourceVersion},
    body::BoxError,
    cache::{envelope::EnvelopeError, reader::ObjectError, rebuild::Duplicate, split::SplitError},
    metrics::ReplicaWatchEnd,
    upstream,
};

/// The reason why a list or watch failed.
#[derive(Debug, thiserror::Error)]
pub enum ReflectorFailure {
    /// No response.
    #[error("no response from the apiserver")]
    Upstream(#[source] upstream::Error),
    /// The query does not fit into a request.
    #[error("the query does not fit into a request URI")]
    Uri(#[from] http::uri::InvalidUri),
    /// A timeout of a response or of its next chunk.
    #[error("the apiserver sent nothing for {0:?}")]
    Silence(Duration),
    /// The response broke off.
    #[error("the response broke off")]
    Body(#[source] BoxError),
    /// An error response of the apiserver.
    #[error("the apiserver returned status {}: {}", .0.code, .0.message)]
    Status(Status),
    /// The response is not JSON.
    #[error("the response is not JSON but {0:?}")]
    ContentType(String),
    /// The list cannot be split into items.
    #[error("the list is malformed")]
    Split(#[from] SplitError),
    /// The list around the items is invalid.
    #[error("the list is invalid")]
    Envelope(#[from] EnvelopeError),
    /// An item is invalid.
    #[error("an item of the list is invalid")]
    Item(#[from] ObjectError),
    /// Two items have one key.
    #[error("the list is malformed")]
    Duplicate(#[from] Duplicate),
    /// The list is of another resource or mixes printed forms.
    #[error("the list is not one of this resource")]
    NotUnderstood,
    /// The list does not fit into the memory limit.
    #[error("the list does not fit into the memory limit")]
    OutOfMemory,
    /// The list is older than the published version.
    #[error("the list at {listed} is older than the published version {shown}")]
    Older {
        /// The list's version.
        listed: ResourceVersion,
        /// The published version.
        shown: ResourceVersion,
    },
    /// An event is invalid.
    #[error("an event is invalid")]
    Event(#[from] EventError),
    /// An event or bookmark is older than the published version.
    #[error("the watch went back from version {shown} to {seen}")]
    Backwards {
        /// The event's version.
        seen: ResourceVersion,
        /// The published version.
        shown: ResourceVersion,
    },
    /// The apiserver's own version is below the published one: its storage was restored.
    #[error("the apiserver is at version {current}, before the published version {shown}")]
    Restored {
        /// The apiserver's version.
        current: ResourceVersion,
        /// The published version.
        shown: ResourceVersion,
    },
    /// The watch ended at once.
    #[error("the watch ended at once")]
    ShortWatch,
}

/// The parts of a Status that the reflector uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Status {
    /// The HTTP status code.
    #[serde(default)]
    pub code: u16,
    /// The explanation.
    #[serde(default)]
    pub message: String,
    /// The details.
    #[serde(default)]
    pub details: Option<StatusDetails>,
}

/// The parts of a Status's details that the reflector uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct StatusDetails {
    /// The retry delay, in seconds.
    #[serde(default, rename = "retryAfterSeconds")]
    pub retry_after_seconds: u32,
}

/// The current step of the reflector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A list of the collection: at this version or later, or consistent.
    List(Option<ResourceVersion>),
    /// A watch of the collection.
    Watch,
}

/// The reason why a reflector ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was stopped.
    Stopped,
    /// The apiserver refuses the request.
    Refused {
        /// The HTTP status.
        code: u16,
    },
    /// The collection is printed in a form that Listless cannot reproduce.
    NotReplicable,
    /// The collection does not fit into memory.
    OutOfMemory,
    /// Its task panicked.
    Panicked,
}

// === impl ReflectorFailure ===

impl ReflectorFailure {
    /// Reports whether the whole apiserver fails, not this query.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Upstream(error) => !matches!(error, upstream::Error::Saturated(_)),
            Self::Status(status) => status.code == 401,
            _ => false,
        }
    }

    /// Reports whether the apiserver, and its storage, may have been replaced meanwhile.
    pub fn is_break(&self) -> bool {
        // A load balancer tells the absence of the apiserver by a status.
        let is_absent = matches!(self, Self::Status(status) if status.code >= 500);
        self.is_outage() || is_absent || matches!(self, Self::Body(_) | Self::Silence(_))
    }

    /// Returns the step after this failure in a step; `shown` is the published version.
    pub fn next(&self, step: &Step, shown: Option<&ResourceVersion>) -> Result<Step, Ended> {
        match self {
            Self::Status(status) if status.is_refusal() => {
                Err(Ended::Refused { code: status.code })
            }
            Self::OutOfMemory => Err(Ended::OutOfMemory),
            _ if self.is_not_understood() => Err(Ended::NotReplicable),
            // A server that cannot continue from the published version is asked for the newest
            // state.
            Self::Restored { .. } | Self::Older { .. } => Ok(Step::List(None)),
            Self::Status(status) if *step != Step::Watch && status.is_about_version() => {
                Ok(Step::List(None))
            }
            // The list must not be below the published version (S-CONS-42).
            Self::Status(Status { code: 410, .. })
            | Self::Backwards { .. }
            | Self::Event(EventError::Columns) => Ok(Step::List(shown.cloned())),
            _ => Ok(step.clone()),
        }
    }

    /// Returns the reason of a watch's end by this failure.
    pub fn watch_end(&self) -> ReplicaWatchEnd {
        match self {
            Self::Upstream(_) => ReplicaWatchEnd::Unanswered,
            Self::Silence(_) => ReplicaWatchEnd::Silent,
            Self::Body(_) => ReplicaWatchEnd::Broken,
            Self::Status(Status { code: 410, .. }) => ReplicaWatchEnd::Expired,
            Self::Status(status) if status.is_refusal() => ReplicaWatchEnd::Refused,
            Self::Status(_) => ReplicaWatchEnd::Status,
            Self::ShortWatch => ReplicaWatchEnd::Closed,
            Self::Older { .. } | Self::Backwards { .. } | Self::Restored { .. } => {
                ReplicaWatchEnd::Backwards
            }
            Self::Uri(_)
            | Self::ContentType(_)
            | Self::Split(_)
            | Self::Envelope(_)
            | Self::Item(_)
            | Self::Duplicate(_)
            | Self::NotUnderstood
            | Self::OutOfMemory
            | Self::Event(_) => ReplicaWatchEnd::Malformed,
        }
    }

    /// Reports whether a complete list arrived whose content is invalid.
    pub fn is_bad_list(&self) -> bool {
        match self {
            Self::Split(error) => *error != SplitError::Truncated,
            Self::Envelope(_) | Self::Item(_) | Self::Duplicate(_) => true,
            _ => false,
        }
    }

    /// Reports whether the apiserver is overloaded.
    pub fn is_pushback(&self) -> bool {
        matches!(self, Self::Status(Status { code: 429, .. }))
    }

    /// Returns the retry delay that the apiserver asked for.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Status(status) => status.retry_after(),
            _ => Duration::ZERO,
        }
    }

    fn is_not_understood(&self) -> bool {
        matches!(
            self,
            Self::NotUnderstood
                | Self::Uri(_)
                | Self::Split(SplitError::HeaderTooLong | SplitError::NotUnderstood)
                | Self::Envelope(EnvelopeError::NotUnderstood)
                | Self::Item(ObjectError::NotUnderstood)
                | Self::Event(EventError::Object(ObjectError::NotUnderstood))
        )
    }
}

// === impl Status ===

impl Status {
    /// Reports whether a retry is useless: every client error except those about time.
    fn is_refusal(&self) -> bool {
        (400..500).contains(&self.code) && !matches!(self.code, 408 | 410 | 429)
    }

    /// Reports whether the requested version is too old or too new for the apiserver
    /// (S-LIST-40..41).
    fn is_about_version(&self) -> bool {
        self.code == 410
            || (self.code == 504 && self.message.contains("Too large resource version"))
    }

    fn retry_after(&self) -> Duration {
        let seconds = self.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        Duration::from_secs(seconds.into()).min(RETRY_AFTER_MAX)
    }
}
