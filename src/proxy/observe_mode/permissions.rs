//! The permissions of a caller as they are remembered: no request of mode `observe` waits for them.

use std::sync::Arc;

use super::super::{
    Proxy, aggregation::GroupServer, authorize::Attributes, decide::ForwardReason,
    identify::Caller, sessions::RequestContext, target::Target,
};
use crate::{api::request::ResourceRequest, policy::ResourcePolicy};

impl Proxy {
    /// Returns the remembered result of [`Proxy::may_know`]; an unknown one is requested in the
    /// background.
    pub(super) fn predict_permissions(
        &self,
        context: &RequestContext,
        target: &Arc<Target>,
        rules: &ResourcePolicy,
        attributes_of: impl FnOnce(&ResourceRequest) -> Attributes,
    ) -> Result<(), ForwardReason> {
        let refused = Err(ForwardReason::NotAuthorized);
        let Some(request) = target.info.resource_request() else { return refused };
        let server = self.aggregation.predict(&request.resource);
        let Caller::Bearer(_) = context.caller() else {
            if server.is_none() && !rules.named {
                self.prefetch(context, target, None);
            }
            return match server {
                Some(GroupServer::Another) if !rules.named => Err(ForwardReason::MayBeAggregated),
                _ => Ok(()),
            };
        };
        let attributes = attributes_of(request);
        let review = self.authorize.predict(&context.asker, &attributes, &target.review);
        if !review.is_fresh || server.is_none() {
            self.prefetch(context, target, Some(attributes));
        }
        match (review.allowed, server) {
            (Some(true), Some(GroupServer::Apiserver)) => Ok(()),
            (Some(true), Some(_)) => Err(ForwardReason::MayBeAggregated),
            _ => refused,
        }
    }

    /// Asks the apiserver for the facts that the estimate of the next identical request needs.
    fn prefetch(
        &self,
        context: &RequestContext,
        target: &Arc<Target>,
        attributes: Option<Attributes>,
    ) {
        let Some(place) = self.prefetches.place() else { return };
        let (authorize, aggregation) = (self.authorize.clone(), self.aggregation.clone());
        let (asker, target) = (context.asker.clone(), target.clone());
        tokio::spawn(async move {
            let allowed = match attributes {
                Some(attributes) => authorize.allows(&asker, || attributes, &target.review).await,
                None => true,
            };
            if let (true, Some(request)) = (allowed, target.info.resource_request()) {
                aggregation.server(&request.resource).await;
            }
            drop(place);
        });
    }
}
