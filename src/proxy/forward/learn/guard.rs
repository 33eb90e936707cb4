//! The learning from a request in flight: completed at once if no one waits for the response.

use super::{Learning, LearningPair};

/// Leaves a barrier for a write if it is dropped before it is disarmed: the write may have
/// happened.
pub(in crate::proxy::forward) struct Armed(Option<LearningPair>);

// === impl Armed ===

impl Armed {
    /// Arms the learning; must be called before the first byte is sent.
    pub(in crate::proxy::forward) fn new(learning: LearningPair) -> Self {
        Self(Some(learning))
    }

    /// Disarms them once the outcome is known.
    pub(in crate::proxy::forward) fn disarm(mut self) -> LearningPair {
        let none = || LearningPair { session: Learning::none(), predicted: Learning::none() };
        self.0.take().unwrap_or_else(none)
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        let learning = self.0.take().into_iter();
        let exchanges = learning.flat_map(|learning| [learning.session.0, learning.predicted.0]);
        exchanges.flatten().for_each(|exchange| exchange.lost());
    }
}
