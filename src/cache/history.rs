//! The window of recent events of one replica. Pure.

/// The recent events.
#[derive(Debug, Default)]
pub struct History {}

impl History {
    /// Memory held, estimated.
    pub fn bytes(&self) -> usize {
        0
    }
}
