//! The clients to the apiserver, each counted by its use.

use std::sync::Arc;

use crate::{
    insight::Insight,
    metrics::{Metrics, Origin},
    proxy::{
        aggregation::Aggregation, authorize::Authorize, caller_names::CallerNames,
        forward::Clients, metered::Metered, repeated_headers::RepeatedHeaders,
    },
    upstream::{
        Client, Throttled,
        health::{ExchangeKind, Health},
    },
};

/// The clients of a running proxy.
pub(super) struct UpstreamClients {
    /// The client for replicas.
    pub(super) follower: Arc<dyn Client>,
    /// The client for watches on which discovery documents depend.
    pub(super) discoverer: Arc<dyn Client>,
    /// The client for forwarded requests.
    pub(super) clients: Clients,
    /// The client for access reviews.
    pub(super) authorize: Authorize,
    /// The client for the names of callers.
    pub(super) caller_names: CallerNames,
    /// The client for aggregated API groups.
    pub(super) aggregation: Arc<Aggregation>,
    /// Learns the state of the apiserver.
    pub(super) prober: Arc<dyn Client>,
}

// === impl UpstreamClients ===

impl UpstreamClients {
    /// Builds all of them over the given clients.
    pub(super) fn new(
        clients: &Clients,
        metrics: &Metrics,
        repeated: &RepeatedHeaders,
        insight: &Insight,
        health: &Health,
    ) -> Self {
        let metered = |client: &Arc<dyn Client>, origin, kind| -> Arc<dyn Client> {
            let (metrics, repeated) = (metrics.clone(), repeated.clone());
            let way = Metered::new(client.clone(), origin, metrics, repeated, insight.clone());
            Arc::new(way.reporting(kind, health))
        };
        let (by_caller, by_own) = (ExchangeKind::Caller, ExchangeKind::Own);
        let Clients { own, impersonating, plain } = clients;
        let follower = Throttled::new(metered(own, Origin::Replica, by_own), metrics.clone());
        let discoverer = follower.beside(metered(own, Origin::Discovery, by_own));
        let own_reviewer = metered(own, Origin::Review, ExchangeKind::OwnReview);
        let plain_reviewer = metered(plain, Origin::Review, by_caller);
        Self {
            follower: Arc::new(follower),
            discoverer: Arc::new(discoverer),
            caller_names: CallerNames::new(plain_reviewer.clone()),
            authorize: Authorize::new(own_reviewer, plain_reviewer, metrics.clone()),
            aggregation: Arc::new(Aggregation::new(metered(own, Origin::Discovery, by_own))),
            clients: Clients {
                own: metered(own, Origin::Client, by_own),
                impersonating: metered(impersonating, Origin::Client, by_own),
                plain: metered(plain, Origin::Client, by_caller),
            },
            prober: metered(own, Origin::Discovery, ExchangeKind::Probe),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Request};
    use tokio::time::Instant;

    use super::*;
    use crate::{
        api::{GroupVersionResource, Scope, Verb},
        body::Body,
        proxy::{
            authorize::{Asker, Attributes, Remembered},
            identify::Caller,
            metered::tests::Empty,
        },
        upstream::Lane,
    };

    #[tokio::test]
    async fn only_client_requests_count_as_client_requests() {
        let metrics = Metrics::new();
        let insight = Insight::new(metrics.clone(), Instant::now());
        let [own, impersonating, plain] =
            std::array::from_fn(|_| Arc::new(Empty) as Arc<dyn Client>);
        let clients = Clients { own, impersonating, plain };
        let upstream_clients = UpstreamClients::new(
            &clients,
            &metrics,
            &RepeatedHeaders::default(),
            &insight,
            &Health::default(),
        );
        let things = GroupVersionResource::new("example.com", "v1", "things");
        let list = || Attributes::new(Verb::List, &things, &Scope::All, None);
        let asker = Asker::new(Caller::Own, &HeaderMap::new());
        upstream_clients.authorize.allows(&asker, list, &Remembered::default()).await;
        upstream_clients.aggregation.server(&things).await;
        for client in
            [upstream_clients.follower, upstream_clients.discoverer, upstream_clients.clients.own]
        {
            let request = Request::get("/version").body(Body::empty()).expect("a request");
            client.send(request, Lane::Short).await.expect("an answer");
        }
        let totals = metrics.totals();
        let counted = |origin: Origin| totals.upstream[origin as usize];
        assert_eq!(Origin::ALL.iter().map(|origin| counted(*origin)).sum::<u64>(), 5);
        assert_eq!([Origin::Client, Origin::Replica, Origin::Review].map(counted), [1; 3]);
        assert_eq!((counted(Origin::Discovery), totals.upstream_for_itself()), (2, 4));
    }
}
