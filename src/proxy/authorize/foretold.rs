//! The last result of a review, however old. Mode `observe` uses it for estimates, never for a
//! response.

use futures_util::FutureExt;

use super::{Asker, Attributes, Authorize, Question, Remembered};

/// The remembered result of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foretold {
    /// The result; `None` if the question was never asked.
    pub allowed: Option<bool>,
    /// `true` if the result is recent.
    pub is_fresh: bool,
}

// === impl Authorize ===

impl Authorize {
    /// Returns the remembered result of a review; `remembered` belongs to this question.
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
        // A value in the table is ready at once.
        let decided = self.reviews.get(&question).now_or_never().flatten();
        let is_fresh = decided.as_ref().is_some_and(|known| known.is_fresh());
        Foretold { allowed: decided.map(|decided| decided.allowed), is_fresh }
    }
}
