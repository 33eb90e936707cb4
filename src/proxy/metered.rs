//! A way to the apiserver on which everything is counted.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

use crate::{
    api::{
        GroupVersionResource, Verb,
        request::{RequestInfo, ResourceRequest},
    },
    body::{Body, BoxError},
    insight::Insight,
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
    insight: Insight,
}

/// A body whose bytes are counted.
struct Weighed {
    inner: Body,
    origin: Origin,
    insight: Insight,
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
        insight: Insight,
    ) -> Self {
        Self { inner, origin, metrics, warnings, insight }
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

    /// What clients are sent is counted where it reaches them.
    fn weighed(&self, response: Response<Body>) -> Response<Body> {
        if self.origin == Origin::Client {
            return response;
        }
        let (origin, insight) = (self.origin, self.insight.clone());
        response.map(|inner| Body::wrap(Weighed { inner, origin, insight }))
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
        self.insight.sent();
        let sent = send(&*self.inner, request);
        let metered = self.clone();
        async move {
            let result = sent.await;
            metered.answered(&asked, &result);
            result.map(|response| metered.weighed(response))
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

// === impl Weighed ===

impl http_body::Body for Weighed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
            self.insight.received(self.origin, bytes);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
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
