//! One record per request: its metrics, its log line and its `Cache-Status`.
//!
//! Write-only: nothing in the data path reads it back. It closes when the answer's last byte has
//! been handed on, or when the client went away.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::Instant;

use crate::{
    api::{Verb, request::ResourceRequest, version::Freshness},
    body::{Body, BoxError},
    error::Error,
    metrics::{Lane, Metrics, Presence, RequestSample, ServedBy, Wait},
    proxy::{
        decide::{ForwardReason, Level, Plan, Rewriting},
        target::Target,
    },
};

/// The record of one request.
pub struct RequestLog {
    metrics: Metrics,
    started: Instant,
    verb: Verb,
    target: Option<Arc<Target>>,
    served_by: ServedBy,
    detail: &'static str,
    code: StatusCode,
    bytes: u64,
    present: Option<Presence>,
}

/// A body that reports to its record.
struct Counted {
    inner: Body,
    log: RequestLog,
}

/// Where an answer came from (RFC 9211).
const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

// === impl RequestLog ===

impl RequestLog {
    /// Opens the record of a request that just arrived.
    pub fn open(metrics: &Metrics) -> Self {
        Self {
            metrics: metrics.clone(),
            started: Instant::now(),
            verb: Verb::Other,
            target: None,
            served_by: ServedBy::Proxy,
            detail: "",
            code: StatusCode::OK,
            bytes: 0,
            present: None,
        }
    }

    /// What it asks is known.
    pub fn classified(&mut self, target: &Arc<Target>) {
        self.verb = target.info.verb();
        self.target = Some(target.clone());
        let lane = if self.verb == Verb::Watch { Lane::Long } else { Lane::Short };
        self.present = Some(self.metrics.in_flight(lane));
    }

    /// What will be done is known.
    pub fn decided(&mut self, plan: &Plan) {
        match plan {
            Plan::Forward(forward) | Plan::Share(forward) => {
                self.metrics.forwarded(forward.reason.as_str(), self.verb);
                match forward.rewriting {
                    Rewriting::Keep => {}
                    Rewriting::Any => self.metrics.rewritten("any"),
                    Rewriting::NotOlderThan(_) => self.metrics.rewritten("notOlderThan"),
                    Rewriting::Brief(_) => self.metrics.rewritten("brief"),
                }
            }
            Plan::Read(_) | Plan::Watch(_) => {}
        }
    }

    /// It waited for a replica.
    pub fn waited(&self, reached: bool, duration: Duration) {
        let wait = if reached { Wait::Reached } else { Wait::GaveUp };
        self.metrics.waited(wait, duration);
    }

    /// Memory answered.
    pub fn hit(&mut self, level: Level, response: Response<Body>) -> Response<Body> {
        self.served_by = ServedBy::Cache;
        self.detail = level.as_str();
        with_status(response, HeaderValue::from_static(hit_of(level)))
    }

    /// The apiserver answered.
    pub fn forwarded(&mut self, reason: ForwardReason, response: Response<Body>) -> Response<Body> {
        self.served_by = ServedBy::Upstream;
        self.detail = reason.as_str();
        let (forwarded_as, detail) = (reason.forwarded_as(), reason.as_str());
        with_status(response, said(&format!("listless; fwd={forwarded_as}; detail={detail}")))
    }

    /// The apiserver answered an identical read.
    pub fn coalesced(&mut self, reason: ForwardReason, response: Response<Body>) -> Response<Body> {
        self.metrics.coalesced();
        self.served_by = ServedBy::Coalesced;
        self.detail = reason.as_str();
        let (forwarded_as, detail) = (reason.forwarded_as(), reason.as_str());
        let status = format!("listless; fwd={forwarded_as}; collapsed; detail={detail}");
        with_status(response, said(&status))
    }

    /// Nobody could answer.
    pub fn failed(&mut self, error: &Error) {
        self.served_by = ServedBy::Proxy;
        self.detail = error.as_str();
    }

    /// The answer goes out; the record ends with its body.
    pub fn close(mut self, response: Response<Body>) -> Response<Body> {
        self.code = response.status();
        let response = if response.headers().contains_key(CACHE_STATUS) {
            response
        } else {
            let status = format!("listless; fwd=miss; detail={}", self.detail);
            with_status(response, said(&status))
        };
        match response.body().size_hint().exact() {
            // Already in memory: there is nothing to wait for.
            Some(bytes) if self.served_by == ServedBy::Cache => {
                self.bytes = bytes;
                drop(self);
                response
            }
            _ => response.map(|inner| Body::wrap(Counted { inner, log: self })),
        }
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        let duration = self.started.elapsed();
        let (verb, served_by, code) = (self.verb, self.served_by, self.code);
        let request = self.target.as_ref().and_then(|target| target.info.resource_request());
        let target = request.map(|request| (&request.resource, &request.scope));
        let sample = RequestSample { verb, target, served_by, code, duration };
        self.metrics.request(&sample);
        if request.is_some_and(ResourceRequest::is_unsafe_read) {
            self.metrics.unsafe_read(&sample);
        }
        self.metrics.client_sent(served_by, self.bytes);
        tracing::debug!(
            target: "listless::access",
            verb = verb.as_str(),
            resource = target.map(|(resource, _)| tracing::field::display(resource)),
            served_by = served_by.as_str(),
            detail = self.detail,
            code = code.as_u16(),
            bytes = self.bytes,
            duration = ?duration,
            "request",
        );
    }
}

// === impl Counted ===

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.log.bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
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

fn with_status(mut response: Response<Body>, status: HeaderValue) -> Response<Body> {
    response.headers_mut().append(CACHE_STATUS, status);
    response
}

/// Written out, because every answer from memory carries one of them.
fn hit_of(level: Level) -> &'static str {
    match level {
        Level::Configured(Freshness::MostRecent) => "listless; hit; detail=mostRecent",
        Level::Configured(Freshness::Session) => "listless; hit; detail=session",
        Level::Configured(Freshness::Bounded) => "listless; hit; detail=bounded",
        Level::Configured(Freshness::Any) | Level::Any => "listless; hit; detail=any",
        Level::NotOlderThan => "listless; hit; detail=notOlderThan",
    }
}

fn said(status: &str) -> HeaderValue {
    HeaderValue::from_str(status).expect("made of our own words")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_of_a_hit_is_the_level() {
        let configured =
            [Freshness::MostRecent, Freshness::Session, Freshness::Bounded, Freshness::Any];
        let levels = configured.into_iter().map(Level::Configured);
        for level in levels.chain([Level::Any, Level::NotOlderThan]) {
            assert_eq!(hit_of(level), format!("listless; hit; detail={}", level.as_str()));
        }
    }
}
