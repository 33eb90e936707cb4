//! The lesson of a request in flight: it is completed at once if no one waits for the response any
//! more.

use super::{Lesson, Lessons};
use crate::mutants::{Mutant, is_on};

/// Leaves a barrier for a write if it is dropped before it is disarmed: the write may have
/// happened.
pub(in crate::proxy::forward) struct Armed(Option<Lessons>);

// === impl Armed ===

impl Armed {
    /// Arms the lessons; must be called before the first byte is sent.
    pub(in crate::proxy::forward) fn new(lessons: Lessons) -> Self {
        Self(Some(lessons))
    }

    /// Disarms them once the outcome is known.
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
