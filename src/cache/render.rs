//! LIST bodies out of snapshots. Pure.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::api::version::ResourceVersion;

/// A LIST's answer, ready to send.
#[derive(Debug)]
pub struct ListBody {
    /// The version in the list's metadata.
    pub version: ResourceVersion,
    /// The body, in order.
    pub chunks: VecDeque<Bytes>,
    /// How many items there are.
    pub count: usize,
    /// The length of the body: its exact Content-Length.
    pub bytes: usize,
}
