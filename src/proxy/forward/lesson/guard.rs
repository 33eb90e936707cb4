//! A lesson whose request is on its way: if nobody waits for the answer any more, it is drawn at once.

use super::{Lesson, Lessons};
use crate::mutants::{Mutant, is_on};

/// Dropped before it is disarmed, a write leaves a barrier: it may have happened.
pub(in crate::proxy::forward) struct Armed(Option<Lessons>);

// === impl Armed ===

impl Armed {
    /// To be made before the first byte is sent.
    pub(in crate::proxy::forward) fn new(lessons: Lessons) -> Self {
        Self(Some(lessons))
    }

    /// The outcome is known.
    pub(in crate::proxy::forward) fn disarm(mut self) -> Lessons {
        let none = || Lessons { session: Lesson::none(), foreseen: Lesson::none() };
        self.0.take().unwrap_or_else(none)
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        let lessons = self.0.take().filter(|_| !is_on(Mutant::CancelledWriteForgotten)).into_iter();
        let exchanges = lessons.flat_map(|lessons| [lessons.session.0, lessons.foreseen.0]);
        exchanges.flatten().for_each(|exchange| exchange.lost());
    }
}
