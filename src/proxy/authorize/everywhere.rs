//! A review of all namespaces in place of the renewal of a review of one: a review of a namespaced
//! resource without a namespace asks about all of them (S-AUTHZ-05).

use std::sync::Arc;

use super::{Asker, Attributes, Authorize, Caller, Decided, NoReview, ReviewKey};

// === impl Authorize ===

impl Authorize {
    /// Asks again. If Listless's own user may read all namespaces, as a valid review says, that
    /// review settles those of each namespace and is renewed in place of them.
    pub(super) async fn review_again(
        &self,
        asker: &Asker,
        review_key: &ReviewKey,
    ) -> Result<Arc<Decided>, NoReview> {
        if asker.caller == Caller::Own
            && let Some(attributes) = review_key.attributes.in_all_namespaces()
            && let Some(decided) =
                self.everywhere(asker, ReviewKey { attributes, ..*review_key }).await
        {
            return Ok(decided);
        }
        self.review(asker, review_key).await
    }

    /// Returns a valid review that allows, renewed if that is due. The result has a renewal of its
    /// own.
    async fn everywhere(&self, asker: &Asker, review_key: ReviewKey) -> Option<Arc<Decided>> {
        let mut held = self.reviews.get(&review_key).await.filter(|held| held.is_valid())?;
        if held.allowed && held.begin_renewal() {
            let renewal = Box::pin(self.review(asker, &review_key)).await;
            held = self.renewed(review_key, &held, renewal).await?;
        }
        held.allowed.then(|| Arc::new(held.with_own_renewal()))
    }
}

// === impl Attributes ===

impl Attributes {
    /// Returns the same access in all namespaces, if it is one to all objects of a single one.
    fn in_all_namespaces(&self) -> Option<Self> {
        let is_narrower = self.namespace.is_some() && self.name.is_none();
        is_narrower.then(|| Self { namespace: None, ..self.clone() })
    }
}
