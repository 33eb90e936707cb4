//! The last result of a review, however old. Mode `observe` uses it for estimates, never for a
//! response.

use futures_util::FutureExt;

use super::{Asker, Attributes, Authorize, Remembered, ReviewKey};

/// The remembered result of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReviewPrediction {
    /// The result; `None` if the question was never asked.
    pub allowed: Option<bool>,
    /// `true` if the result is recent.
    pub is_fresh: bool,
}

// === impl Authorize ===

impl Authorize {
    /// Returns the remembered result of a review; `remembered` belongs to this question.
    pub fn predict(
        &self,
        asker: &Asker,
        attributes: &Attributes,
        remembered: &Remembered,
    ) -> ReviewPrediction {
        if let Some(decided) = remembered.fresh() {
            return ReviewPrediction { allowed: Some(decided.allowed), is_fresh: true };
        }
        let review_key = ReviewKey { caller: asker.caller, attributes: attributes.clone() };
        // A value in the table is ready at once.
        let decided = self.reviews.get(&review_key).now_or_never().flatten();
        let is_fresh = decided.as_ref().is_some_and(|known| known.is_fresh());
        ReviewPrediction { allowed: decided.map(|decided| decided.allowed), is_fresh }
    }
}
