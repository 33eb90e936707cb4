//! The stream of live requests for viewers, without secrets.
//!
//! Invariants: an unwatched request costs one relaxed load. A slow listener loses requests and gets
//! their number; nothing waits for it. Of a request's headers only User-Agent is included, and of
//! its parameters only the API's own options.

mod redact;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use http::StatusCode;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::{
    api::{GroupVersionResource, Verb, request::RequestInfo},
    metrics::{Limit, Metrics, ServedBy},
};

pub use redact::shown;

/// The sender of requests to listeners. It is cheap to clone.
#[derive(Clone)]
pub struct Tap(Arc<Shared>);

struct Shared {
    /// The number of listeners that want requests, readable without the lock.
    listening: AtomicUsize,
    listeners: Mutex<Vec<Listener>>,
    metrics: Metrics,
}

struct Listener {
    id: u64,
    /// `None`: no requests, only a place among the streams.
    filter: Option<Filter>,
    queue: mpsc::Sender<Arc<Tapped>>,
    lost: Arc<AtomicU64>,
}

/// A listener. It listens until it is dropped.
pub struct Listening {
    tap: Tap,
    id: u64,
    queue: mpsc::Receiver<Arc<Tapped>>,
    lost: Arc<AtomicU64>,
}

/// The requests that a listener wants. An absent field matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The verb, such as `list`.
    pub verb: Option<String>,
    /// The resource: `pods`, or `deployments.apps`.
    pub resource: Option<String>,
    /// A part of the user agent.
    pub user_agent: Option<String>,
    /// The source of the response: `cache`, `coalesced`, `upstream` or `proxy`.
    pub served_by: Option<String>,
}

/// The facts about a request from its record.
pub struct Asked<'a> {
    /// The parsed request, if it is known and may be shown.
    pub info: Option<&'a RequestInfo>,
    /// The query of its URL, as sent.
    pub query: &'a str,
    /// The client's user agent, without credentials.
    pub user_agent: &'a str,
}

/// The facts about a response, so far or final.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// The present time.
    pub at: SystemTime,
    /// The phase of the response.
    pub phase: Phase,
    /// The source of the response.
    pub served_by: ServedBy,
    /// The word of its Cache-Status.
    pub detail: &'static str,
    /// The status.
    pub code: StatusCode,
    /// Bytes of the body sent.
    pub bytes: u64,
    /// The time since the request arrived.
    pub duration: Duration,
}

/// The phase of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// A watch has begun; another record follows at its end.
    Began,
    /// The response has ended.
    Ended,
}

/// One request as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tapped {
    /// The time of this record, in Unix time.
    pub at: f64,
    /// The phase of the response.
    pub phase: Phase,
    /// The verb.
    pub verb: &'static str,
    /// The resource, such as `deployments.v1.apps`, or the path if it is no resource.
    pub resource: String,
    /// The namespace of the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The object name of the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The subresource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// The API's own options of the query, in readable form.
    pub query: String,
    /// The client's user agent.
    pub user_agent: String,
    /// The source of the response.
    pub served_by: &'static str,
    /// The word of its Cache-Status.
    pub detail: &'static str,
    /// The status.
    pub code: u16,
    /// Bytes of the body sent.
    pub bytes: u64,
    /// The time since the request arrived.
    pub seconds: f64,
    #[serde(skip)]
    group_resource: Option<GroupVersionResource>,
}

/// The error at the maximum number of listeners.
#[derive(Debug, thiserror::Error)]
#[error("{} streams are open already; close one first", LISTENERS_MAX)]
pub struct TooMany;

/// The maximum number of listeners.
pub const LISTENERS_MAX: usize = 16;

/// The maximum number of queued requests per listener. Further ones are lost.
pub const QUEUE_MAX: usize = 1024;

// === impl Tap ===

impl Tap {
    /// Returns a tap without listeners.
    pub fn new(metrics: Metrics) -> Self {
        let (listening, listeners) = (AtomicUsize::new(0), Mutex::default());
        Self(Arc::new(Shared { listening, listeners, metrics }))
    }

    /// Reports whether there is a listener.
    pub fn is_watched(&self) -> bool {
        self.0.listening.load(Ordering::Relaxed) > 0
    }

    /// Sends one request to the listeners. It is formatted only if there is one.
    pub fn tell(&self, asked: &Asked<'_>, answered: Answered) {
        if !self.is_watched() {
            return;
        }
        let tapped = Arc::new(Tapped::new(asked, answered));
        for listener in self.listeners().iter().filter(|listener| listener.wants(&tapped)) {
            if listener.queue.try_send(tapped.clone()).is_err() {
                listener.lost.fetch_add(1, Ordering::Relaxed);
                self.0.metrics.limit_reached(Limit::TappedRequests);
            }
        }
    }

    /// Adds a listener for the requests that a filter matches, or for none.
    pub fn listen(&self, filter: Option<Filter>) -> Result<Listening, TooMany> {
        let (sender, queue) = mpsc::channel(QUEUE_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let mut listeners = self.listeners();
        if listeners.len() >= LISTENERS_MAX {
            self.0.metrics.limit_reached(Limit::EventStreams);
            return Err(TooMany);
        }
        let id = listeners.iter().map(|listener| listener.id + 1).max().unwrap_or(0);
        listeners.push(Listener { id, filter, queue: sender, lost: lost.clone() });
        self.0.count(&listeners);
        Ok(Listening { tap: self.clone(), id, queue, lost })
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Listener>> {
        self.0.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Shared ===

impl Shared {
    fn count(&self, listeners: &[Listener]) {
        let wanting = listeners.iter().filter(|listener| listener.filter.is_some()).count();
        self.listening.store(wanting, Ordering::Relaxed);
    }
}

// === impl Listener ===

impl Listener {
    fn wants(&self, tapped: &Tapped) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.wants(tapped))
    }
}

// === impl Listening ===

impl Listening {
    /// Waits for requests and returns a limited number of them.
    pub async fn next(&mut self, requests: &mut Vec<Arc<Tapped>>, requests_max: usize) {
        self.queue.recv_many(requests, requests_max).await;
    }

    /// Returns the number of lost requests since the last call.
    pub fn lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut listeners = self.tap.listeners();
        listeners.retain(|listener| listener.id != self.id);
        self.tap.0.count(&listeners);
    }
}

// === impl Filter ===

impl Filter {
    /// Reports whether a request matches.
    pub fn wants(&self, tapped: &Tapped) -> bool {
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(found))
        };
        let part = |wanted: &Option<String>, found: &str| {
            let contains = |wanted: &str| found.to_lowercase().contains(&wanted.to_lowercase());
            wanted.as_deref().is_none_or(contains)
        };
        is(&self.verb, tapped.verb)
            && is(&self.served_by, tapped.served_by)
            && part(&self.user_agent, &tapped.user_agent)
            && self.resource.as_deref().is_none_or(|wanted| tapped.is_of(wanted))
    }
}

// === impl Tapped ===

impl Tapped {
    fn new(asked: &Asked<'_>, answered: Answered) -> Self {
        let request = asked.info.and_then(RequestInfo::resource_request);
        let resource = match asked.info {
            Some(RequestInfo::Resource(request)) => request.resource.to_string(),
            Some(RequestInfo::NonResource(other)) => shown(&other.path),
            None => String::new(),
        };
        let namespace = request.and_then(|request| request.scope.namespace());
        let at = answered.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            at: at.as_millis() as f64 / 1e3,
            phase: answered.phase,
            verb: request.map_or(Verb::Other, |request| request.verb).as_str(),
            resource: shown(&resource),
            namespace: namespace.map(shown),
            name: request.and_then(|request| request.name.as_deref()).map(shown),
            subresource: request.and_then(|request| request.subresource.as_deref()).map(shown),
            query: redact::query(asked.query),
            user_agent: shown(asked.user_agent),
            served_by: answered.served_by.as_str(),
            detail: answered.detail,
            code: answered.code.as_u16(),
            bytes: answered.bytes,
            seconds: answered.duration.as_micros() as f64 / 1e6,
            group_resource: request.map(|request| request.resource.clone()),
        }
    }

    /// Reports whether it has this resource: the plural name, with or without the group.
    fn is_of(&self, wanted: &str) -> bool {
        let Some(resource) = &self.group_resource else { return self.resource == wanted };
        wanted == &*resource.resource
            || wanted == self.resource
            || wanted == format!("{}.{}", resource.resource, resource.group)
    }
}

#[cfg(test)]
mod tests;
