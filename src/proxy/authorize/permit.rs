//! Watch authorization, re-checked while the watch is open.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Asker, Attributes, Authorize, Authorized, Decided, OWN_TTL, REVIEW_TTL, ReviewKey};
use crate::{
    api::{
        Verb,
        request::{ResourceRequest, Watch},
    },
    proxy::identify::Caller,
};

/// Watch authorization, with the credential to check it again.
#[derive(Clone)]
pub struct Permit {
    authorize: Authorize,
    asker: Asker,
    attributes: Attributes,
    /// The expiry of the last review.
    believed_until: Instant,
}

/// The interval between reviews of a bearer's watch.
const BEARER_REVIEW_EVERY: Duration = Duration::from_secs(5);

/// The interval between reviews of a watch of Listless's own user, in whose name the replica was
/// read.
const OWN_REVIEW_EVERY: Duration = Duration::from_secs(30);

// A review that permits a watch is at most one interval old. A withdrawn right then ends a watch
// within the time for which other reviews are valid.
const _: () = assert!(2 * BEARER_REVIEW_EVERY.as_secs() <= REVIEW_TTL.as_secs());
const _: () = assert!(2 * OWN_REVIEW_EVERY.as_secs() <= OWN_TTL.as_secs());

// === impl Attributes ===

impl Attributes {
    /// Returns the attributes of a watch by this caller. A watch of one named object only is
    /// forwarded.
    pub fn of_watch(caller: Caller, request: &ResourceRequest, watch: &Watch) -> Self {
        match caller {
            Caller::Bearer(_) => Self::new(Verb::Watch, &request.resource, &request.scope, None),
            Caller::Own | Caller::Other(_) => {
                Self::new(Verb::Watch, &watch.query.resource, &watch.query.scope, None)
            }
        }
    }
}

// === impl Authorize ===

impl Authorize {
    /// Returns the value if the apiserver would give an equal one to the asker, and the permit that
    /// re-checks this later.
    pub async fn permit<T>(
        &self,
        asker: &Asker,
        attributes: Attributes,
        thing: T,
    ) -> Option<Authorized<(T, Permit)>> {
        let (authorize, believed_until) = (self.clone(), Instant::now());
        let mut permit = Permit { authorize, asker: asker.apart(), attributes, believed_until };
        let decided = permit.decided().await?;
        permit.believed_until = decided.believed_until();
        decided.allowed.then_some(Authorized((thing, permit)))
    }
}

// === impl Permit ===

impl Permit {
    /// Repeats the review and returns its expiry; `None` if the apiserver now denies it. If the
    /// review fails, the permit of Listless's own user stays valid. The permit of a bearer does
    /// not: its token may have expired.
    pub async fn renewed(self) -> Option<Instant> {
        match (self.decided().await, self.asker.caller()) {
            (Some(decided), _) => decided.allowed.then(|| decided.believed_until()),
            (None, Caller::Own) => Some(Instant::now() + self.review_every()),
            (None, Caller::Bearer(_) | Caller::Other(_)) => None,
        }
    }

    /// Returns the expiry of the last review.
    pub fn believed_until(&self) -> Instant {
        self.believed_until
    }

    /// Returns the interval between reviews.
    pub fn review_every(&self) -> Duration {
        match self.asker.caller() {
            Caller::Bearer(_) => BEARER_REVIEW_EVERY,
            Caller::Own | Caller::Other(_) => OWN_REVIEW_EVERY,
        }
    }

    async fn decided(&self) -> Option<Arc<Decided>> {
        let caller = self.asker.caller();
        if matches!(caller, Caller::Other(_)) {
            return None;
        }
        let review_key = ReviewKey { caller, attributes: self.attributes.clone() };
        self.authorize.decided_lately(&self.asker, review_key, self.review_every()).await
    }
}
