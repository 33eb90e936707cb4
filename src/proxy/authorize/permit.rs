//! Leave to watch, which may be withdrawn while the watch goes on.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Asker, Attributes, Authorize, Authorized, Decided, OWN_TTL, Question, REVIEW_TTL};
use crate::{
    api::{
        Verb,
        request::{ResourceRequest, Watch},
    },
    proxy::identify::Caller,
};

/// Leave to watch, and what proves whose it is.
#[derive(Clone)]
pub struct Permit {
    authorize: Authorize,
    asker: Asker,
    attributes: Attributes,
    /// Until then the last review is believed.
    believed_until: Instant,
}

/// How often a watch of a bearer's is to ask.
const BEARER_REVIEW_EVERY: Duration = Duration::from_secs(5);

/// The same for our own user: what is in memory was read in its name.
const OWN_REVIEW_EVERY: Duration = Duration::from_secs(30);

// An answer that is enough for a watch is at most as old as the time from one review to the next. What
// was withdrawn ends within the time other answers are believed for.
const _: () = assert!(2 * BEARER_REVIEW_EVERY.as_secs() <= REVIEW_TTL.as_secs());
const _: () = assert!(2 * OWN_REVIEW_EVERY.as_secs() <= OWN_TTL.as_secs());

// === impl Attributes ===

impl Attributes {
    /// A watch as this caller asks for it; who may watch but one object is forwarded.
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
    /// The thing, if the apiserver would give one like it to who asks, and what tells later whether
    /// it still would.
    pub async fn permit<T>(
        &self,
        asker: &Asker,
        attributes: Attributes,
        thing: T,
    ) -> Option<Authorized<(T, Permit)>> {
        let (authorize, believed_until) = (self.clone(), Instant::now());
        let mut permit = Permit { authorize, asker: asker.clone(), attributes, believed_until };
        let decided = permit.decided().await?;
        permit.believed_until = decided.believed_until();
        decided.allowed.then_some(Authorized((thing, permit)))
    }
}

// === impl Permit ===

impl Permit {
    /// Until when it is believed, asked again; nothing if the apiserver says no by now. Without its answer
    /// our own user's permit stands, and a bearer's does not: its token may have ended.
    pub async fn renewed(self) -> Option<Instant> {
        match (self.decided().await, self.asker.caller()) {
            (Some(decided), _) => decided.allowed.then(|| decided.believed_until()),
            (None, Caller::Own) => Some(Instant::now() + self.review_every()),
            (None, Caller::Bearer(_) | Caller::Other(_)) => None,
        }
    }

    /// Until when the last review is believed.
    pub fn believed_until(&self) -> Instant {
        self.believed_until
    }

    /// How often that is to be asked.
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
        let question = Question { caller, attributes: self.attributes.clone() };
        self.authorize.decided_lately(&self.asker, question, self.review_every()).await
    }
}
