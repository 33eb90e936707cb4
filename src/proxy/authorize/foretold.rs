//! What a review came to when it was last asked, however long ago: enough to foresee, never to answer by.

use futures_util::FutureExt;

use super::{Asker, Attributes, Authorize, Question, Remembered};

/// What is known of a review without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foretold {
    /// What it came to; nothing if it was never asked.
    pub allowed: Option<bool>,
    /// Whether it was asked of late.
    pub is_fresh: bool,
}

// === impl Authorize ===

impl Authorize {
    /// What is known of a review; `remembered` is of this very question.
    pub fn foretold(
        &self,
        asker: &Asker,
        attributes: &Attributes,
        remembered: &Remembered,
    ) -> Foretold {
        if let Some(decided) = remembered.fresh() {
            return Foretold { allowed: Some(decided.allowed), is_fresh: true };
        }
        let question = Question { caller: asker.caller, attributes: attributes.clone() };
        // What the table holds is there at once.
        let decided = self.reviews.get(&question).now_or_never().flatten();
        let is_fresh = decided.as_ref().is_some_and(|known| known.is_fresh());
        Foretold { allowed: decided.map(|decided| decided.allowed), is_fresh }
    }
}
