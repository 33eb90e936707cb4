//! A client to the apiserver that counts its requests and bytes.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http::{Request, Response};
use tokio::time::Instant;

use crate::{
    api::request::Outline,
    body::{Body, Observer},
    insight::Insight,
    metrics::{Limit, Metrics, Origin, UpstreamFault, UpstreamSample},
    proxy::repeated_headers::RepeatedHeaders,
    upstream::{
        Client, Error, Lane,
        health::{ExchangeKind, Health},
    },
};

/// A client that counts the requests of one origin and learns the headers that the apiserver repeats.
#[derive(Clone)]
pub struct Metered {
    inner: Arc<dyn Client>,
    origin: Origin,
    metrics: Metrics,
    repeated: RepeatedHeaders,
    insight: Insight,
    kind: ExchangeKind,
    health: Health,
}

/// An exchange without a response yet; dropped before, it leaves a doubt about the apiserver.
struct Pending<'a> {
    health: &'a Health,
    since: Instant,
    is_over: bool,
}

/// A caller that leaves sooner says nothing about the apiserver.
const ABANDONED_AFTER: Duration = Duration::from_secs(1);

/// A counter of a body's bytes.
struct Weighed {
    origin: Origin,
    insight: Insight,
}

// === impl Metered ===

impl Metered {
    /// Creates a client that counts what `inner` sends on behalf of `origin`.
    pub fn new(
        inner: Arc<dyn Client>,
        origin: Origin,
        metrics: Metrics,
        repeated: RepeatedHeaders,
        insight: Insight,
    ) -> Self {
        let (kind, health) = (ExchangeKind::Caller, Health::default());
        Self { inner, origin, metrics, repeated, insight, kind, health }
    }

    /// Reports the end of each exchange, which is of this kind, to `health`.
    #[must_use]
    pub fn reporting(self, kind: ExchangeKind, health: &Health) -> Self {
        Self { kind, health: health.clone(), ..self }
    }

    fn answered(&self, asked: &Outline, at: Instant, result: &Result<Response<Body>, Error>) {
        let response = match result {
            Ok(response) => response,
            Err(error) => return self.failed(error),
        };
        self.health.answered(self.kind, response.status());
        // The response to a caller may have headers for that caller.
        if let (Origin::Replica, true, Some(resource), true) =
            (self.origin, asked.is_plain_read, &asked.resource, response.status().is_success())
        {
            self.repeated.learn(resource, response.headers());
        }
        self.metrics.upstream_request(&UpstreamSample {
            origin: self.origin,
            verb: asked.verb,
            resource: asked.resource.as_ref(),
            code: response.status(),
            duration: at.elapsed(),
        });
    }

    /// Counts the response's bytes; bytes to clients are counted elsewhere, as they are sent.
    fn weighed(&self, response: Response<Body>) -> Response<Body> {
        if self.origin == Origin::Client {
            return response;
        }
        let (origin, insight) = (self.origin, self.insight.clone());
        response.map(|body| body.observed(Weighed { origin, insight }))
    }

    fn failed(&self, error: &Error) {
        if matches!(error, Error::Saturated(_)) {
            self.metrics.limit_reached(Limit::UpstreamRequests);
        }
        if let Some(fault) = fault(error) {
            self.metrics.upstream_failed(self.origin, fault);
        }
        self.health.failed(self.kind, error);
    }

    fn metered(
        &self,
        asked: Outline,
        send: impl FnOnce(&dyn Client) -> BoxFuture<'static, Result<Response<Body>, Error>>,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let at = Instant::now();
        self.insight.sent();
        let sent = send(&*self.inner);
        let metered = self.clone();
        async move {
            let mut pending = Pending { health: &metered.health, since: at, is_over: false };
            let result = sent.await;
            pending.is_over = true;
            metered.answered(&asked, at, &result);
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
        let outline = Outline::of_own(request.method(), request.uri());
        self.send_read(request, lane, outline)
    }

    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let outline = Outline::of_own(request.method(), request.uri());
        self.upgrade_read(request, outline)
    }

    fn send_read(
        &self,
        request: Request<Body>,
        lane: Lane,
        outline: Outline,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.metered(outline, |inner| inner.send(request, lane))
    }

    fn upgrade_read(
        &self,
        request: Request<Body>,
        outline: Outline,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.metered(outline, |inner| inner.upgrade(request))
    }
}

// === impl Pending ===

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.since.elapsed() >= ABANDONED_AFTER {
            self.health.abandoned();
        }
    }
}

// === impl Weighed ===

impl Observer for Weighed {
    fn passed(&mut self, bytes: &Bytes) {
        self.insight.received(self.origin, bytes.len() as u64);
    }
}

/// Returns the reason why the apiserver did not answer; none if the client's request is the reason.
fn fault(error: &Error) -> Option<UpstreamFault> {
    Some(match error {
        Error::Connect(_) => UpstreamFault::Connect,
        Error::ConnectTimeout => UpstreamFault::ConnectTimeout,
        Error::Broken(_) => UpstreamFault::Broken,
        Error::Credentials(_) => UpstreamFault::Credentials,
        Error::Saturated(_) => UpstreamFault::Saturated,
        Error::RequestBody(_) => return None,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::api::{GroupVersionResource, Verb};

    /// Responds to everything with an empty object.
    pub(crate) struct Empty;

    impl Client for Empty {
        fn send(
            &self,
            _: Request<Body>,
            _: Lane,
        ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
            Box::pin(async { Ok(Response::new(Body::full("{}"))) })
        }

        fn upgrade(
            &self,
            request: Request<Body>,
        ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
            self.send(request, Lane::Long)
        }
    }

    #[tokio::test]
    async fn a_request_is_counted_as_its_sender_parsed_it() {
        let metrics = Metrics::new();
        let insight = Insight::new(metrics.clone(), Instant::now());
        let repeated = RepeatedHeaders::default();
        let way = Metered::new(Arc::new(Empty), Origin::Client, metrics.clone(), repeated, insight);
        let request = || {
            let url = "/api/v1/pods?watch=true&labelSelector=a%3Db";
            Request::get(url).body(Body::empty()).expect("a request")
        };
        // The resource differs from the URL's: the URL is not parsed again.
        let widgets = GroupVersionResource::new("x.io", "v1", "widgets");
        let outline = Outline { verb: Verb::List, resource: Some(widgets), is_plain_read: true };
        way.send_read(request(), Lane::Short, outline.clone()).await.expect("an answer");
        way.upgrade_read(request(), outline).await.expect("an answer");
        way.send(request(), Lane::Long).await.expect("an answer");
        let text = metrics.render();
        let line = |verb: &str, resource: &str| {
            let of = |line: &&str| {
                line.starts_with("listless_upstream_requests_total{")
                    && line.contains(&format!("verb=\"{verb}\""))
                    && line.contains(&format!("resource=\"{resource}\""))
            };
            text.lines().find(of).and_then(|line| line.rsplit(' ').next()).map(str::to_owned)
        };
        assert_eq!(line("list", "widgets").as_deref(), Some("2"), "{text}");
        assert_eq!(line("watch", "pods").as_deref(), Some("1"), "{text}");
    }
}
