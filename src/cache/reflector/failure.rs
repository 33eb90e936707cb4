//! What can go wrong between a reflector and the apiserver, and what follows from it. Pure.

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

/// Why a list or watch did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// No answer came.
    #[error("no answer from the apiserver")]
    Upstream(#[source] upstream::Error),
    /// The query does not fit into a request.
    #[error("the query cannot be asked for")]
    Uri(#[from] http::uri::InvalidUri),
    /// No answer, or no more of it, came in time.
    #[error("nothing came from the apiserver for {0:?}")]
    Silence(Duration),
    /// The answer broke off.
    #[error("the answer broke off")]
    Body(#[source] BoxError),
    /// The apiserver said no.
    #[error("the apiserver answered {}: {}", .0.code, .0.message)]
    Status(Status),
    /// The answer is not JSON.
    #[error("the answer is not JSON but {0:?}")]
    ContentType(String),
    /// The list cannot be cut into items.
    #[error("the list is malformed")]
    Split(#[from] SplitError),
    /// The list around the items is unusable.
    #[error("the list is unusable")]
    Envelope(#[from] EnvelopeError),
    /// An item is unusable.
    #[error("an item of the list is unusable")]
    Item(#[from] ObjectError),
    /// Two items have one key.
    #[error("the list is malformed")]
    Duplicate(#[from] Duplicate),
    /// The list speaks of another resource or mixes ways of printing.
    #[error("the list is not one of this resource")]
    NotUnderstood,
    /// The list does not fit into the memory limit.
    #[error("the list does not fit into the memory limit")]
    OutOfMemory,
    /// The list is older than what was shown before.
    #[error("the list at {listed} is older than {shown}, which was shown")]
    Older {
        /// The list's version.
        listed: ResourceVersion,
        /// The version shown before.
        shown: ResourceVersion,
    },
    /// An event is unusable.
    #[error("an event is unusable")]
    Event(#[from] EventError),
    /// An event or bookmark is older than what was shown before.
    #[error("the watch went back from {shown} to {seen}")]
    Backwards {
        /// The event's version.
        seen: ResourceVersion,
        /// The version shown before.
        shown: ResourceVersion,
    },
    /// The apiserver's own version is below what was shown: its data was restored.
    #[error("the apiserver is at {current}, before {shown}, which was shown")]
    Restored {
        /// The apiserver's version.
        current: ResourceVersion,
        /// The version shown before.
        shown: ResourceVersion,
    },
    /// The watch ended at once.
    #[error("the watch ended at once")]
    ShortWatch,
}

/// The parts of a Status that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Status {
    /// The HTTP status code.
    #[serde(default)]
    pub code: u16,
    /// The explanation.
    #[serde(default)]
    pub message: String,
    /// More of it.
    #[serde(default)]
    pub details: Option<StatusDetails>,
}

/// The parts of a Status's details that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct StatusDetails {
    /// When to try again.
    #[serde(default, rename = "retryAfterSeconds")]
    pub retry_after_seconds: u32,
}

/// What the reflector was doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reading the whole collection: at this version or later, or consistently.
    List(Option<ResourceVersion>),
    /// Following it.
    Watch,
}

/// Why a reflector ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    Stopped,
    /// The apiserver does not let us.
    Refused {
        /// The HTTP status.
        code: u16,
    },
    /// The collection is not printed in a way we could reproduce.
    NotReplicable,
    /// The collection does not fit into memory.
    OutOfMemory,
    /// Its task ended by a bug.
    Panicked,
}

// === impl Failure ===

impl Failure {
    /// Reports whether the whole apiserver fails, not this query.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Upstream(error) => !matches!(error, upstream::Error::Saturated(_)),
            Self::Status(status) => status.code == 401,
            _ => false,
        }
    }

    /// What to do next after this happened in a step; `shown` is the version readers have seen.
    pub fn next(&self, step: &Step, shown: Option<&ResourceVersion>) -> Result<Step, Ended> {
        match self {
            Self::Status(status) if status.is_refusal() => {
                Err(Ended::Refused { code: status.code })
            }
            Self::OutOfMemory => Err(Ended::OutOfMemory),
            _ if self.is_not_understood() => Err(Ended::NotReplicable),
            // Whoever cannot go on from the version shown is asked for the newest state.
            Self::Restored { .. } | Self::Older { .. } => Ok(Step::List(None)),
            Self::Status(status) if *step != Step::Watch && status.is_about_version() => {
                Ok(Step::List(None))
            }
            // Never below what was shown (S-CONS-42).
            Self::Status(Status { code: 410, .. }) | Self::Backwards { .. } => {
                Ok(Step::List(shown.cloned()))
            }
            _ => Ok(step.clone()),
        }
    }

    /// What a watch ended of in which this happened.
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

    /// Whether a whole list came whose content is unusable.
    pub fn is_bad_list(&self) -> bool {
        match self {
            Self::Split(error) => *error != SplitError::Truncated,
            Self::Envelope(_) | Self::Item(_) | Self::Duplicate(_) => true,
            _ => false,
        }
    }

    /// Whether the apiserver has too much to do.
    pub fn is_pushback(&self) -> bool {
        matches!(self, Self::Status(Status { code: 429, .. }))
    }

    /// The wait the apiserver asked for.
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
                | Self::Split(SplitError::HeaderTooLong)
                | Self::Envelope(EnvelopeError::NotUnderstood)
                | Self::Item(ObjectError::NotUnderstood)
                | Self::Event(EventError::Object(ObjectError::NotUnderstood))
        )
    }
}

// === impl Status ===

impl Status {
    /// Whether trying again would not help: any client error but for those about time.
    fn is_refusal(&self) -> bool {
        (400..500).contains(&self.code) && !matches!(self.code, 408 | 410 | 429)
    }

    /// Whether the version asked for is too old or too new for the apiserver (S-LIST-40..41).
    fn is_about_version(&self) -> bool {
        self.code == 410
            || (self.code == 504 && self.message.contains("Too large resource version"))
    }

    fn retry_after(&self) -> Duration {
        let seconds = self.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        Duration::from_secs(seconds.into()).min(RETRY_AFTER_MAX)
    }
}
