//! The ways to the apiserver, each counted on the behalf of whoever uses it.

use std::sync::Arc;

use crate::{
    insight::Insight,
    metrics::{Metrics, Origin},
    proxy::{
        aggregation::Aggregation, authorize::Authorize, forward::Clients, metered::Metered,
        warnings::Warnings,
    },
    upstream::{Client, Throttled},
};

/// Who sends to the apiserver.
pub(super) struct Ways {
    /// For replicas.
    pub(super) follower: Arc<dyn Client>,
    /// For watches that tell of changes to documents of discovery.
    pub(super) discoverer: Arc<dyn Client>,
    /// For what clients ask.
    pub(super) clients: Clients,
    /// Asks what callers may.
    pub(super) authorize: Authorize,
    /// Asks who serves which group.
    pub(super) aggregation: Arc<Aggregation>,
}

// === impl Ways ===

impl Ways {
    /// All of them over these clients.
    pub(super) fn new(
        clients: &Clients,
        metrics: &Metrics,
        warnings: &Warnings,
        insight: &Insight,
    ) -> Self {
        let metered = |client: &Arc<dyn Client>, origin| -> Arc<dyn Client> {
            let (metrics, warnings) = (metrics.clone(), warnings.clone());
            Arc::new(Metered::new(client.clone(), origin, metrics, warnings, insight.clone()))
        };
        let Clients { own, impersonating, plain } = clients;
        let follower = Throttled::new(metered(own, Origin::Replica), metrics.clone());
        let follower: Arc<dyn Client> = Arc::new(follower);
        let reviewers = [own, plain].map(|client| metered(client, Origin::Client));
        let [own_reviewer, plain_reviewer] = reviewers;
        Self {
            discoverer: follower.clone(),
            follower,
            authorize: Authorize::new(own_reviewer, plain_reviewer, metrics.clone()),
            aggregation: Arc::new(Aggregation::new(metered(own, Origin::Client))),
            clients: Clients {
                own: metered(own, Origin::Client),
                impersonating: metered(impersonating, Origin::Client),
                plain: metered(plain, Origin::Client),
            },
        }
    }
}
