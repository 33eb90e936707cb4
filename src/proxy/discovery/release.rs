//! Notices that another release of the apiserver answers.
//!
//! Another release may show objects in other bytes at the versions they have: it adds defaults, drops
//! fields and converts differently. No event tells of it, but an upgrade ends every watch. So after a
//! watch has ended, `/version` is compared with the last answer, and a difference makes all replicas
//! list again. Two releases behind one address are told apart only by the one that answers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use tokio::time::{Duration, Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    api::release::{self, CONSISTENT_READS_FROM_CACHE},
    body::Body,
    cache::Cache,
    insight::{Insight, cost::Lists},
    upstream::{AGENT, Client, Lane},
};

/// The release that answered last.
pub(super) struct Release {
    client: Arc<dyn Client>,
    stop: CancellationToken,
    cache: Cache,
    insight: Insight,
    state: Mutex<ReleaseState>,
}

/// The body of `/version`, as far as it matters.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version<'a> {
    #[serde(borrow)]
    git_version: &'a str,
}

#[derive(Default)]
struct ReleaseState {
    /// The body of the last answer.
    seen: Option<Bytes>,
    /// The number of watches that had ended when that answer was requested.
    watches_ended: u64,
    /// The time of the last request.
    requested_at: Option<Instant>,
    /// `true` if every replica must list again, as soon as [`RELIST_PERIOD_MIN`] allows.
    due: bool,
    /// The time when every replica last had to list again.
    relisted_at: Option<Instant>,
}

/// A request follows the last one no sooner.
const PERIOD_MIN: Duration = Duration::from_secs(10);

/// Every replica lists again no sooner, whichever of two releases behind one address answers.
const RELIST_PERIOD_MIN: Duration = Duration::from_secs(300);

/// The longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// An answer that is longer is not one.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

// === impl Release ===

impl Release {
    pub(super) fn new(
        client: Arc<dyn Client>,
        stop: CancellationToken,
        cache: Cache,
        insight: Insight,
    ) -> Self {
        Self { client, stop, cache, insight, state: Mutex::default() }
    }

    /// Requests the release if a watch has ended since it was last known. Costs nothing while there
    /// is no replica.
    pub(super) fn tend(self: &Arc<Self>, now: Instant) {
        let ended = self.cache.counters().watches_ended.interrupted();
        let is_idle = self.cache.is_empty();
        let mut state = self.state();
        let is_soon = state.relisted_at.is_some_and(|at| now < at + RELIST_PERIOD_MIN);
        if state.due && !is_soon {
            (state.due, state.relisted_at) = (false, Some(now));
            tracing::info!("another release of the apiserver answers; every replica lists again");
            self.cache.redefine_all();
        }
        let is_known = state.seen.is_some() && state.watches_ended == ended;
        let is_early = state.requested_at.is_some_and(|at| now < at + PERIOD_MIN);
        if is_idle || is_known || is_early {
            return;
        }
        state.requested_at = Some(now);
        drop(state);
        let this = self.clone();
        tokio::spawn(async move {
            let stop = this.stop.clone();
            stop.run_until_cancelled(this.compare(ended)).await;
        });
    }

    async fn compare(&self, ended: u64) {
        let Ok(Some(body)) = timeout(ANSWER_MAX, self.request()).await else { return };
        self.insight.set_lists(lists(&body));
        let mut state = self.state();
        state.watches_ended = ended;
        match &state.seen {
            // A server that has just started may refuse what it allows a moment later.
            Some(before) if body.is_empty() || *before == body => return,
            Some(before) => state.due |= !before.is_empty(),
            None => {}
        }
        state.seen = Some(body);
    }

    async fn request(&self) -> Option<Bytes> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = "/version".parse().ok()?;
        request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static(AGENT));
        let response = self.client.send(request, Lane::Short).await.ok()?;
        match response.status() {
            StatusCode::OK => {}
            // A server that does not tell its release tells no other one either.
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => {
                return Some(Bytes::new());
            }
            _ => return None,
        }
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        body.ok().map(http_body_util::Collected::to_bytes)
    }

    fn state(&self) -> MutexGuard<'_, ReleaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the source of consistent lists of the release in a body of `/version`.
fn lists(body: &[u8]) -> Lists {
    let version: Option<Version<'_>> = serde_json::from_slice(body).ok();
    match version.and_then(|version| release::Release::parse(version.git_version)) {
        Some(release) if release < CONSISTENT_READS_FROM_CACHE => Lists::FromEtcd,
        _ => Lists::FromCache,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consistent_lists_come_from_etcd_before_the_release_that_caches_them() {
        let of = |version| lists(format!(r#"{{"gitVersion":"{version}"}}"#).as_bytes());
        assert_eq!([of("v1.30.14"), of("v1.28.2+k3s1")], [Lists::FromEtcd; 2]);
        assert_eq!([of("v1.31.0"), of("v1.36.3-eks"), of("")], [Lists::FromCache; 3]);
        assert_eq!(lists(b"no JSON"), Lists::FromCache);
    }
}
