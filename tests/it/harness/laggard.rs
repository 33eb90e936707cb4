//! Apiservers behind a load balancer: each response is as old as the request allows (S-CONS-04),
//! and is delayed on its way back.

use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Request, Response};
use listless::{
    body::Body,
    simulator::Simulator,
    upstream::{Client, Error, Lane},
};

use super::pass;

/// A client of a simulated apiserver whose cached lists come from a moment in the past.
pub(crate) struct Laggard {
    simulator: Simulator,
    /// Chooses a version from the oldest that is allowed to the newest there is.
    choose: Box<dyn Fn(u64, u64) -> u64 + Send + Sync>,
    /// Chooses the delay of the response to a target on its way back.
    distance: Box<dyn Fn(&str) -> Duration + Send + Sync>,
}

/// The number of revisions by which a cache may lag.
const BEHIND_MAX: u64 = 30;

// === impl Laggard ===

impl Laggard {
    /// Responds at a version that `choose` picks from a range.
    pub(crate) fn new(
        simulator: Simulator,
        choose: impl Fn(u64, u64) -> u64 + Send + Sync + 'static,
    ) -> Self {
        Self { simulator, choose: Box::new(choose), distance: Box::new(|_| Duration::ZERO) }
    }

    /// Delays the response to each target on its way back, and so makes it older.
    pub(crate) fn far(
        mut self,
        distance: impl Fn(&str) -> Duration + Send + Sync + 'static,
    ) -> Self {
        self.distance = Box::new(distance);
        self
    }

    /// The same list at a version that satisfies it; other requests unchanged.
    fn aged(&self, target: &str) -> Option<String> {
        let newest = self.simulator.revision();
        let (rest, oldest) = if let Some(rest) = target.strip_suffix("resourceVersion=0") {
            (rest, newest.saturating_sub(BEHIND_MAX).max(FIRST_REVISION))
        } else {
            let relaxed = target.strip_suffix("&resourceVersionMatch=NotOlderThan")?;
            let (at, _) = relaxed.match_indices("resourceVersion=").last()?;
            let version = relaxed[at + "resourceVersion=".len()..].parse().ok()?;
            (&relaxed[..at], version)
        };
        let is_list = ["pods?", "configmaps?", "widgets?"].iter().any(|part| rest.contains(part));
        if !is_list || rest.contains("watch=") || oldest > newest {
            return None;
        }
        let version = (self.choose)(oldest, newest);
        Some(format!("{rest}resourceVersion={version}&resourceVersionMatch=Exact"))
    }
}

/// The simulator's first version.
const FIRST_REVISION: u64 = 1000;

impl Client for Laggard {
    fn send(
        &self,
        mut request: Request<Body>,
        lane: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let target = request.uri().to_string();
        if let Some(aged) = self.aged(&target) {
            *request.uri_mut() = aged.parse().expect("a target");
        }
        let (answer, distance) = (self.simulator.send(request, lane), (self.distance)(&target));
        if distance.is_zero() {
            return answer;
        }
        Box::pin(async move {
            let answer = answer.await;
            pass(distance).await;
            answer
        })
    }

    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.simulator.upgrade(request)
    }
}
