//! The receivers of request records beside the metrics: the access log, and the audit of responses
//! from the cache.
//!
//! Invariant: neither receives a credential, in whichever header or parameter it is. A client's
//! name is recorded only if it has the form of a name. A text that repeats the caller's token is
//! omitted.

use std::{sync::Arc, time::SystemTime};

use http::{Request, StatusCode};
use tokio::sync::watch;

use crate::{
    api::{
        credential::{self, LEFT_OUT},
        request::{RequestInfo, ResourceRequest},
        version::ResourceVersion,
    },
    audit::{Audit, Entry, Subject},
    cache::reflector::Random,
    config::{AccessLevel, AccessLog, Config},
    insight::Insight,
    metrics::{Metrics, ServedBy},
    proxy::{identify::Caller, target::Target},
    tap::Tap,
};

/// The receivers of records; cheap to clone.
#[derive(Clone)]
pub struct Records(Arc<Inner>);

struct Inner {
    audience: Audience,
    config: watch::Receiver<Arc<Config>>,
    random: Random,
}

/// The receivers of request records.
pub struct Audience {
    /// The metrics.
    pub metrics: Metrics,
    /// The accounts of requests.
    pub insight: Insight,
    /// The audit of responses from the cache.
    pub audit: Audit,
    /// The live viewers of requests.
    pub tap: Tap,
}

/// The recorded properties of a client, beside its request.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    /// Its user agent.
    pub(super) agent: Box<str>,
    /// The exposure of its token in the target.
    pub(super) target: Exposure,
}

/// The target of log lines of requests.
pub(super) const ACCESS_LOG: &str = "listless::access";

/// The exposure of the caller's token in a request's target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Exposure {
    #[default]
    Clean,
    Token,
}

/// The choice whether a request has its own log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// It has one.
    Shown,
    /// It has one only if the log's filter enables such lines.
    Filtered,
}

// === impl Records ===

impl Records {
    /// Creates the receivers. They follow the current configuration; the sample of log lines is
    /// drawn from `random`.
    pub fn new(audience: Audience, config: watch::Receiver<Arc<Config>>, random: Random) -> Self {
        Self(Arc::new(Inner { audience, config, random }))
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.0.audience.metrics
    }

    /// Returns the accounts of requests.
    pub fn insight(&self) -> &Insight {
        &self.0.audience.insight
    }

    /// Returns the live viewers of requests.
    pub(super) fn tap(&self) -> &Tap {
        &self.0.audience.tap
    }

    /// Records the client of a request, if any receiver needs it.
    pub(super) fn client<B>(&self, request: &Request<B>) -> Client {
        let is_filtered = || tracing::enabled!(target: ACCESS_LOG, tracing::Level::DEBUG);
        if self.access().level == AccessLevel::Off
            && !self.0.audience.audit.is_on()
            && !is_filtered()
        {
            return Client::default();
        }
        let headers = request.headers();
        Client { agent: credential::name_of_client(headers).into(), target: exposure(request) }
    }

    /// Selects whether a request with this result has a log line.
    pub(super) fn line(&self, code: StatusCode, served_by: ServedBy) -> Line {
        let AccessLog { level, sample } = self.access();
        let failed = code.is_server_error() || served_by == ServedBy::Proxy;
        let shown = match level {
            AccessLevel::Off => false,
            AccessLevel::Errors => failed,
            AccessLevel::All => failed || sample >= 1.0 || (self.0.random)() < sample,
        };
        if shown { Line::Shown } else { Line::Filtered }
    }

    /// Writes a response from the cache to the audit.
    pub(super) fn audit(
        &self,
        target: &Target,
        client: &Client,
        resource_version: Option<&ResourceVersion>,
        level: &'static str,
        code: StatusCode,
    ) {
        self.0.audience.audit.tell(|| Entry {
            time: now(),
            who: who(target.caller()),
            user_agent: &client.agent,
            subject: match client.target {
                Exposure::Clean => subject(&target.info),
                Exposure::Token => Subject {
                    verb: target.info.verb().as_str(),
                    path: Some(LEFT_OUT),
                    ..Subject::default()
                },
            },
            resource_version: resource_version.map(ToString::to_string),
            level,
            code: code.as_u16(),
        });
    }

    fn access(&self) -> AccessLog {
        self.0.config.borrow().access_log
    }
}

fn now() -> String {
    let now = jiff::Timestamp::try_from(SystemTime::now()).unwrap_or_default();
    format!("{now:.3}")
}

fn who(caller: Caller) -> String {
    match caller {
        Caller::Own => "own".to_owned(),
        Caller::Bearer(id) => format!("bearer:{}", id.to_hex()),
        Caller::Other(_) => "other".to_owned(),
    }
}

fn subject(info: &RequestInfo) -> Subject<'_> {
    match info {
        RequestInfo::Resource(request) => of_resource(request),
        RequestInfo::NonResource(document) => {
            Subject { verb: info.verb().as_str(), path: Some(&document.path), ..Subject::default() }
        }
    }
}

fn of_resource(request: &ResourceRequest) -> Subject<'_> {
    let read = request.read.as_ref().map(|read| &read.query).ok();
    let query = read.or_else(|| request.watch.as_ref().map(|watch| &watch.query));
    // The name in the path becomes a selector here; the client did not send it as one.
    let fields = query.filter(|_| request.name.is_none()).map(|query| &query.fields);
    Subject {
        verb: request.verb.as_str(),
        group: &request.resource.group,
        version: &request.resource.version,
        resource: &request.resource.resource,
        namespace: request.scope.namespace(),
        name: request.name.as_deref(),
        label_selector: query.map(|query| query.labels.to_string()).unwrap_or_default(),
        field_selector: fields.map(ToString::to_string).unwrap_or_default(),
        path: None,
    }
}

/// Checks whether a request's target repeats its token.
pub(super) fn exposure<B>(request: &Request<B>) -> Exposure {
    let target = request.uri().path_and_query().map_or("", |target| target.as_str());
    if credential::is_exposed(request.headers(), target) {
        Exposure::Token
    } else {
        Exposure::Clean
    }
}

/// Returns a namespace that may be logged: only a valid name, because a path may hold any text.
pub(super) fn shown(namespace: Option<&str>) -> Option<&str> {
    const LENGTH_MAX: usize = 63;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    namespace.filter(|name| name.len() <= LENGTH_MAX && name.bytes().all(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_names_are_logged_as_namespaces() {
        assert_eq!(shown(Some("shop-1")), Some("shop-1"));
        for odd in ["a\nb", "a b", "x".repeat(64).as_str()] {
            assert_eq!(shown(Some(odd)), None);
        }
    }
}
