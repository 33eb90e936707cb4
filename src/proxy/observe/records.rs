//! Who reads records but the metrics: the access log, and the audit of answers from memory.
//!
//! Invariant: neither is ever shown a credential, whichever header or parameter it stands in: of a
//! client's name only what looks like one is taken, and what repeats the caller's token is left out.

use std::{sync::Arc, time::SystemTime};

use http::{Request, StatusCode};
use tokio::sync::watch;

use crate::{
    api::{
        credential::{self, LEFT_OUT},
        request::{RequestInfo, ResourceRequest},
    },
    audit::{Audit, Entry, Subject},
    cache::reflector::Random,
    config::{AccessLevel, AccessLog, Config},
    insight::Insight,
    metrics::{Metrics, ServedBy},
    proxy::{identify::Caller, target::Target},
    tap::Tap,
};

/// Where records go; cheap to clone.
#[derive(Clone)]
pub struct Records(Arc<Inner>);

struct Inner {
    audience: Audience,
    config: watch::Receiver<Arc<Config>>,
    random: Random,
}

/// Who hears of requests.
pub struct Audience {
    /// What is counted.
    pub metrics: Metrics,
    /// Who asks what.
    pub insight: Insight,
    /// What was answered from memory.
    pub audit: Audit,
    /// Who watches requests now.
    pub tap: Tap,
}

/// What is taken down of a client beside what it asks.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    /// What it calls itself.
    pub(super) agent: Box<str>,
    /// Whether its own token stands in the target.
    pub(super) target: Exposure,
}

/// Whether a request's target repeats the caller's token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Exposure {
    #[default]
    Clean,
    Token,
}

/// Whether a request has a line of its own in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// It has.
    Shown,
    /// Only for whoever turned such lines on by the log's filter.
    Filtered,
}

// === impl Records ===

impl Records {
    /// Goes by the configuration in force; which lines are shown is drawn from `random`.
    pub fn new(audience: Audience, config: watch::Receiver<Arc<Config>>, random: Random) -> Self {
        Self(Arc::new(Inner { audience, config, random }))
    }

    /// What is counted.
    pub fn metrics(&self) -> &Metrics {
        &self.0.audience.metrics
    }

    /// Who asks what.
    pub fn insight(&self) -> &Insight {
        &self.0.audience.insight
    }

    /// Who watches requests now.
    pub(super) fn tap(&self) -> &Tap {
        &self.0.audience.tap
    }

    /// Takes down the client of a request, if anybody will look at it.
    pub(super) fn client<B>(&self, request: &Request<B>) -> Client {
        if self.access().level == AccessLevel::Off && !self.0.audience.audit.is_on() {
            return Client::default();
        }
        let headers = request.headers();
        Client { agent: credential::name_of_client(headers).into(), target: exposure(request) }
    }

    /// Whether a request that ended so has a line in the log.
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

    /// Tells of an answer from memory.
    pub(super) fn audit(
        &self,
        target: &Target,
        client: &Client,
        resource_version: Option<String>,
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
            resource_version,
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
    // The name in the path is a selector of ours, not of the client's.
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

/// Whether a request's target repeats its token.
pub(super) fn exposure<B>(request: &Request<B>) -> Exposure {
    let target = request.uri().path_and_query().map_or("", |target| target.as_str());
    if credential::is_told(request.headers(), target) { Exposure::Token } else { Exposure::Clean }
}

/// A namespace that may stand in a log: a name, and not whatever a path may hold.
pub(super) fn shown(namespace: Option<&str>) -> Option<&str> {
    const LENGTH_MAX: usize = 63;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    namespace.filter(|name| name.len() <= LENGTH_MAX && name.bytes().all(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_are_shown_as_namespaces() {
        assert_eq!(shown(Some("shop-1")), Some("shop-1"));
        for odd in ["a\nb", "a b", "x".repeat(64).as_str()] {
            assert_eq!(shown(Some(odd)), None);
        }
    }
}
