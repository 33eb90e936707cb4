//! Reads that share one upstream request, and the callers that may share.
//!
//! Invariant: a caller that the apiserver has not accepted shares nothing, so that it neither waits
//! for another request nor has others wait for its own.

use http::{Method, Request, Response};
use hyper::body::Incoming;

use super::{
    Proxy,
    coalesce::{CoalesceKey, Coalesced, SendTime},
    decide::{Forward, Rewriting},
    forward::Learners,
    request_log::RequestLog,
    sessions::RequestContext,
};
use crate::{
    api::request::RequestInfo,
    body::Body,
    error::Error,
    upstream::{self, Judgement},
};

// === impl Proxy ===

impl Proxy {
    /// Forwards a read together with identical concurrent ones.
    pub(super) async fn share(
        &self,
        context: &RequestContext,
        info: &RequestInfo,
        forward: Forward,
        send_time: SendTime,
        request: Request<Incoming>,
        log: &mut RequestLog,
    ) -> Result<Response<Body>, Error> {
        let Forward { reason, rewriting } = forward;
        let key = self.coalesce_key(context, &request, &rewriting);
        let learners = Learners::one(&context.session);
        let send = || self.send(context, info, &rewriting, request, learners);
        match self.coalesce.run(key, send_time, send).await {
            Ok(Coalesced::Sent(response)) => Ok(log.forwarded(reason, response)),
            Ok(Coalesced::Shared(response)) => Ok(log.coalesced(reason, response)),
            Err(error) => Err(Error::upstream(error, info)),
        }
    }

    /// Returns the key of a read that may share a request.
    pub(super) fn coalesce_key<B>(
        &self,
        context: &RequestContext,
        request: &Request<B>,
        rewriting: &Rewriting,
    ) -> Option<CoalesceKey> {
        let caller = context.caller();
        self.authorize.knows(caller).then(|| CoalesceKey::new(caller, request, rewriting))
    }

    /// Forwards a request. The status of its response shows if the apiserver accepts the caller.
    pub(super) async fn send(
        &self,
        context: &RequestContext,
        info: &RequestInfo,
        rewriting: &Rewriting,
        request: Request<Incoming>,
        learners: Learners<'_>,
    ) -> Result<Response<Body>, upstream::Error> {
        let sender = context.sender();
        // The apiserver may answer it before it checks the credential.
        let shows_caller = request.method() != Method::OPTIONS;
        let response = self.forwarder.forward(sender, info, rewriting, request, learners).await?;
        if shows_caller {
            let judgement = Judgement::of(response.status(), response.headers());
            self.authorize.learn(sender.caller, judgement).await;
        }
        Ok(response)
    }
}
