//! Leave to watch, which may be withdrawn while the watch goes on.

use std::sync::Arc;

use super::{Asker, Attributes, Authorize, Authorized, Decided, Question};
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

    async fn decided(&self) -> Option<Arc<Decided>> {
        let caller = self.asker.caller();
        if matches!(caller, Caller::Other(_)) {
            return None;
        }
        let question = Question { caller, attributes: self.attributes.clone() };
        self.authorize.decided(&self.asker, question).await
    }
}
