//! The rate limit of Listless's own requests to the apiserver.
//!
//! Replicas list, watch, probe and catch up. Each of these has its own limit, and this one limits
//! all of them together: in a failure, Listless does not add load. A request above the limit waits
//! its turn, and fails as saturated if that takes too long.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use http::{Request, Response};
use tokio::time::{Instant, sleep};

use super::{Client, Error, Lane};
use crate::{
    body::Body,
    limit::{Ceiling, Rate},
    metrics::{Limit, Metrics},
};

/// A client that sends no more often than its limit allows.
#[derive(Clone)]
pub struct Throttled {
    inner: Arc<dyn Client>,
    ceiling: Arc<Ceiling>,
    metrics: Metrics,
}

/// A queued request; if it is dropped before its turn, it leaves the turn to others.
struct Turn {
    ceiling: Arc<Ceiling>,
    used: bool,
}

/// The rate, as high as a busy controller's own client allows.
const PER_SECOND: f64 = 50.0;

/// The burst: a start, or an end of an outage, lists and watches everything at once.
const BURST: u32 = 100;

/// The longest wait for a turn.
const WAIT_MAX: Duration = Duration::from_secs(10);

// === impl Throttled ===

impl Throttled {
    /// Creates a client that sends through `inner`.
    pub fn new(inner: Arc<dyn Client>, metrics: Metrics) -> Self {
        let ceiling = Ceiling::new(Rate::new(PER_SECOND, BURST), Instant::now());
        Self { inner, ceiling: Arc::new(ceiling), metrics }
    }

    /// Returns a client that sends through another client, under the same limit.
    pub fn beside(&self, inner: Arc<dyn Client>) -> Self {
        Self { inner, ceiling: self.ceiling.clone(), metrics: self.metrics.clone() }
    }

    async fn turn(&self) -> Result<(), Error> {
        let wait = match self.ceiling.reserve(WAIT_MAX, Instant::now()) {
            Ok(Duration::ZERO) => return Ok(()),
            Ok(wait) => Some(wait),
            Err(_) => None,
        };
        self.metrics.limit_reached(Limit::OwnRequests);
        let Some(wait) = wait else { return Err(Error::Saturated("own requests")) };
        let mut turn = Turn { ceiling: self.ceiling.clone(), used: false };
        sleep(wait).await;
        turn.used = true;
        Ok(())
    }
}

impl Client for Throttled {
    fn send(
        &self,
        request: Request<Body>,
        lane: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let client = self.clone();
        Box::pin(async move {
            client.turn().await?;
            client.inner.send(request, lane).await
        })
    }

    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let client = self.clone();
        Box::pin(async move {
            client.turn().await?;
            client.inner.upgrade(request).await
        })
    }
}

// === impl Turn ===

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.used {
            self.ceiling.credit();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http::StatusCode;

    use super::*;

    /// Records the time of each request.
    #[derive(Clone, Default)]
    struct Noting(Arc<Mutex<Vec<Instant>>>);

    impl Client for Noting {
        fn send(
            &self,
            _: Request<Body>,
            _: Lane,
        ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
            self.0.lock().expect("no panic").push(Instant::now());
            Box::pin(async {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::OK;
                Ok(response)
            })
        }

        fn upgrade(
            &self,
            request: Request<Body>,
        ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
            self.send(request, Lane::Long)
        }
    }

    fn request() -> Request<Body> {
        Request::new(Body::empty())
    }

    #[tokio::test(start_paused = true)]
    async fn requests_above_the_burst_are_sent_at_the_rate_and_in_order() {
        let noting = Noting::default();
        let client = Throttled::new(Arc::new(noting.clone()), Metrics::new());
        let start = Instant::now();
        let sends = (0..200).map(|_| client.send(request(), Lane::Short));
        for sent in futures_util::future::join_all(sends).await {
            assert!(sent.is_ok());
        }
        let times = noting.0.lock().expect("no panic").clone();
        let at_once = times.iter().filter(|at| **at == start).count();
        assert_eq!(at_once, BURST as usize);
        // A hundred more at fifty a second; timers have a resolution of a millisecond.
        let took = *times.last().expect("requests") - start;
        assert!((1.9..2.1).contains(&took.as_secs_f64()), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_would_wait_too_long_fails_and_is_counted() {
        let metrics = Metrics::new();
        let client = Throttled::new(Arc::new(Noting::default()), metrics.clone());
        let sends = (0..1000).map(|_| client.send(request(), Lane::Short));
        let sent = futures_util::future::join_all(sends).await;
        let refused = sent.iter().filter(|sent| matches!(sent, Err(Error::Saturated(_)))).count();
        assert_eq!(refused, 1000 - BURST as usize - 500);
        let reported = "listless_limits_reached_total{limit=\"own_requests\"} 900";
        assert!(metrics.render().contains(reported), "{}", metrics.render());
    }

    #[tokio::test(start_paused = true)]
    async fn two_clients_share_one_limit() {
        let client = Throttled::new(Arc::new(Noting::default()), Metrics::new());
        let beside = client.beside(Arc::new(Noting::default()));
        for way in [&client, &beside].into_iter().cycle().take(BURST as usize) {
            way.send(request(), Lane::Short).await.expect("an answer");
        }
        let start = Instant::now();
        beside.send(request(), Lane::Short).await.expect("an answer");
        assert!(start.elapsed() > Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_request_leaves_its_turn_to_others() {
        let noting = Noting::default();
        let client = Throttled::new(Arc::new(noting.clone()), Metrics::new());
        for _ in 0..BURST {
            client.send(request(), Lane::Short).await.expect("an answer");
        }
        for _ in 0..100 {
            // The request is dropped as soon as it waits.
            let _ = tokio::time::timeout(Duration::ZERO, client.send(request(), Lane::Short)).await;
        }
        let start = Instant::now();
        client.send(request(), Lane::Short).await.expect("an answer");
        assert!(start.elapsed() <= Duration::from_millis(21), "{:?}", start.elapsed());
    }
}
