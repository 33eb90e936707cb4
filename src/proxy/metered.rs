//! A way to the apiserver on which everything is counted.

use futures_util::{FutureExt, future::BoxFuture};
use http::{Request, Response};
use tokio::time::Instant;

use std::sync::Arc;

use crate::{
    api::{
        GroupVersionResource, Verb,
        request::{RequestInfo, ResourceRequest},
    },
    body::Body,
    metrics::{Limit, Metrics, Origin, UpstreamFault, UpstreamSample},
    proxy::warnings::Warnings,
    upstream::{Client, Error, Lane},
};

/// Counts what goes through a client on one behalf, and heeds the apiserver's warnings.
#[derive(Clone)]
pub struct Metered {
    inner: Arc<dyn Client>,
    origin: Origin,
    metrics: Metrics,
    warnings: Warnings,
}

/// What is remembered of a request until its answer comes.
struct Asked {
    verb: Verb,
    resource: Option<GroupVersionResource>,
    is_read: bool,
    at: Instant,
}

// === impl Metered ===

impl Metered {
    /// Counts what `inner` sends on behalf of `origin`.
    pub fn new(
        inner: Arc<dyn Client>,
        origin: Origin,
        metrics: Metrics,
        warnings: Warnings,
    ) -> Self {
        Self { inner, origin, metrics, warnings }
    }

    fn answered(&self, asked: &Asked, result: &Result<Response<Body>, Error>) {
        let response = match result {
            Ok(response) => response,
            Err(error) => return self.failed(error),
        };
        if let (true, Some(resource), true) =
            (asked.is_read, &asked.resource, response.status().is_success())
        {
            self.warnings.learn(resource, response.headers());
        }
        self.metrics.upstream_request(&UpstreamSample {
            origin: self.origin,
            verb: asked.verb,
            resource: asked.resource.as_ref(),
            code: response.status(),
            duration: asked.at.elapsed(),
        });
    }

    fn failed(&self, error: &Error) {
        if matches!(error, Error::Saturated(_)) {
            self.metrics.limit_reached(Limit::UpstreamRequests);
        }
        self.metrics.upstream_failed(self.origin, fault(error));
    }

    fn metered(
        &self,
        request: Request<Body>,
        send: impl FnOnce(
            &dyn Client,
            Request<Body>,
        ) -> BoxFuture<'static, Result<Response<Body>, Error>>,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let asked = Asked::of(&request);
        let sent = send(&*self.inner, request);
        let metered = self.clone();
        async move {
            let result = sent.await;
            metered.answered(&asked, &result);
            result
        }
        .boxed()
    }
}

impl Client for Metered {
    fn send(
        &self,
        request: Request<Body>,
        lane: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.metered(request, |inner, request| inner.send(request, lane))
    }

    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.metered(request, |inner, request| inner.upgrade(request))
    }
}

// === impl Asked ===

impl Asked {
    fn of<B>(request: &Request<B>) -> Self {
        let info = RequestInfo::parse(request.method(), request.uri(), request.headers());
        let (verb, resource, is_read) = match info {
            RequestInfo::Resource(ResourceRequest { verb, resource, subresource, .. }) => {
                let is_read = matches!(verb, Verb::Get | Verb::List) && subresource.is_none();
                (verb, Some(resource), is_read)
            }
            RequestInfo::NonResource(_) => (Verb::Other, None, false),
        };
        Self { verb, resource, is_read, at: Instant::now() }
    }
}

fn fault(error: &Error) -> UpstreamFault {
    match error {
        Error::Connect(_) => UpstreamFault::Connect,
        Error::ConnectTimeout => UpstreamFault::ConnectTimeout,
        Error::Broken(_) => UpstreamFault::Broken,
        Error::Credentials(_) => UpstreamFault::Credentials,
        Error::Saturated(_) => UpstreamFault::Saturated,
    }
}
