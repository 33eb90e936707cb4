//! Leave to watch, which may be withdrawn while the watch goes on.

use std::{sync::Arc, time::Duration};

use super::{Asker, Attributes, Authorize, Authorized, Decided, Question, REVIEW_TTL};
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
}

/// How often a watch of a bearer's is to ask.
const BEARER_REVIEW_EVERY: Duration = Duration::from_secs(5);

/// How old an answer may be that is enough for a watch.
const AGE_MAX: Duration = Duration::from_secs(5);

// What was withdrawn ends within the time other answers are believed for.
const _: () = assert!(BEARER_REVIEW_EVERY.as_secs() + AGE_MAX.as_secs() <= REVIEW_TTL.as_secs());

/// The same for our own user: what is in memory was read in its name.
const OWN_REVIEW_EVERY: Duration = Duration::from_secs(30);

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
        let permit = Permit { authorize: self.clone(), asker: asker.clone(), attributes };
        let decided = permit.decided().await?;
        decided.allowed.then_some(Authorized((thing, permit)))
    }
}

// === impl Permit ===

impl Permit {
    /// Whether the apiserver says no by now. Without its answer our own user's permit stands, and a
    /// bearer's does not: its token may have ended.
    pub async fn is_withdrawn(self) -> bool {
        match (self.decided().await, self.asker.caller()) {
            (Some(decided), _) => !decided.allowed,
            (None, caller) => caller != Caller::Own,
        }
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
        self.authorize.decided_lately(&self.asker, question, AGE_MAX).await
    }
}
