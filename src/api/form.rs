//! The encoding in which a replica holds its objects. A replica is of one query and one form.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::protobuf;

/// A form of objects.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Form {
    /// JSON.
    #[default]
    Json,
    /// Protobuf, which only built-in types have (S-CT-04).
    Protobuf,
    /// Rows of a Table, in JSON.
    Table,
}

// === impl Form ===

impl Form {
    /// Every form, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Json, Self::Protobuf, Self::Table];

    /// Returns the word for logs and status documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Protobuf => "protobuf",
            Self::Table => "table",
        }
    }

    /// Returns the media type of responses with one body (S-CT-05).
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json | Self::Table => "application/json",
            Self::Protobuf => protobuf::MEDIA_TYPE,
        }
    }

    /// Returns the media type of watches (S-WATCH-40, S-WATCH-41).
    pub fn stream_media_type(self) -> &'static str {
        match self {
            Self::Json | Self::Table => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}
