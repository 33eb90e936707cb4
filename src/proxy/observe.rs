//! One record per request: its metrics, its log line and its `Cache-Status`.
//!
//! Write-only: nothing in the data path reads it back. It closes when the answer's last byte has
//! been handed on, or when the client went away.

mod cache_status;
mod counted;
mod records;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body as _;
use tokio::time::Instant;

use crate::{
    api::{
        Verb, credential, pushback::retry_after, request::ResourceRequest, version::ResourceVersion,
    },
    body::Body,
    cache::Attached,
    error::{Error, Fault},
    insight::{
        Asker,
        account::{Answer, Otherwise, Pace, Record},
        fingerprint::Fingerprint,
    },
    metrics::{DocumentResult, Lane, Metrics, Presence, RequestSample, ServedBy, Wait, Would},
    proxy::{
        decide::{DocumentSource, ForwardReason, Level, Plan, Rewriting},
        observing::Foreseen,
        target::Target,
    },
    tap::{Answered, Asked, Phase},
};

pub use self::records::{Audience, Records};
use self::{
    cache_status::{CACHE_STATUS, given_of, hit_of, said, with_status},
    counted::Counted,
    records::{Client, Exposure, Line},
};

/// The record of one request.
pub struct RequestLog {
    records: Records,
    metrics: Metrics,
    client: Client,
    /// Absent if nobody watched requests when it came.
    told: Option<Told>,
    started: Instant,
    verb: Verb,
    target: Option<Arc<Target>>,
    version: Option<ResourceVersion>,
    served_by: ServedBy,
    detail: &'static str,
    code: StatusCode,
    bytes: u64,
    present: Option<Presence>,
    /// How long it was held back.
    held: Option<Duration>,
    /// In mode `observe`: what enforce would have done, and why it would have been forwarded.
    would: Option<Would>,
    would_detail: &'static str,
    fault: Option<Fault>,
    /// Keeps a replica in use that a watch would have followed.
    attached: Option<Attached>,
    asker: Option<Asker>,
    connection: u64,
    said: Said,
    retry_after: Option<Duration>,
}

/// What whoever watches requests is told of it.
struct Told {
    user_agent: Box<str>,
    target: Exposure,
}

/// What the account is told of an answer.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    /// What it says, in short.
    content: Option<u32>,
    /// How many objects the replica holds that gave it.
    objects: Option<u32>,
    /// A watch was told that its version had expired.
    expired: bool,
}

// === impl RequestLog ===

impl RequestLog {
    /// Opens the record of a request that just arrived.
    pub fn open<B>(records: &Records, connection: u64, request: &Request<B>) -> Self {
        let told = || Told {
            user_agent: credential::user_agent(request.headers()).into(),
            target: records::exposure(request),
        };
        Self {
            records: records.clone(),
            metrics: records.metrics().clone(),
            client: records.client(request),
            told: records.tap().is_watched().then(told),
            version: None,
            started: Instant::now(),
            verb: Verb::Other,
            target: None,
            served_by: ServedBy::Proxy,
            detail: "",
            code: StatusCode::OK,
            bytes: 0,
            present: None,
            held: None,
            would: None,
            would_detail: "",
            fault: None,
            attached: None,
            asker: None,
            connection,
            said: Said::default(),
            retry_after: None,
        }
    }

    /// What it asks is known.
    pub fn classified(&mut self, target: &Arc<Target>, asker: Asker) {
        asker.begins();
        self.asker = Some(asker);
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
            Plan::Document(plan) if matches!(plan.source, DocumentSource::Ask(_)) => {
                self.metrics.forwarded(ForwardReason::Discovery.as_str(), self.verb);
            }
            Plan::Reject(_) => self.metrics.refused(self.verb),
            Plan::Read(_) | Plan::Watch(_) | Plan::Pace(_) | Plan::Document(_) => {}
        }
    }

    /// It was held back for so long.
    pub fn held(&mut self, duration: Duration) {
        self.held = Some(duration);
    }

    /// What enforce would have done with it is known.
    pub(super) fn foreseen(&mut self, foreseen: &mut Foreseen) {
        self.metrics.would_have(foreseen.would);
        if foreseen.paced {
            self.metrics.would_have(Would::Pace);
        }
        self.would = Some(foreseen.would);
        self.would_detail = foreseen.reason.map_or("", ForwardReason::as_str);
        self.attached = foreseen.attached.take();
    }

    /// It waited for a replica.
    pub fn waited(&self, reached: bool, duration: Duration) {
        let wait = if reached { Wait::Reached } else { Wait::GaveUp };
        self.metrics.waited(wait, duration);
    }

    /// Whose account it is counted in.
    pub fn asker(&self) -> Option<&Asker> {
        self.asker.as_ref()
    }

    /// What the answer from memory says, in short, and how many objects are held.
    pub fn said(&mut self, content: u32, objects: usize) {
        let objects = u32::try_from(objects).ok();
        self.said = Said { content: Some(content), objects, ..self.said };
    }

    /// Memory answered, with the state at this version, or with what happens from now on.
    pub fn hit(
        &mut self,
        level: Level,
        version: Option<ResourceVersion>,
        response: Response<Body>,
    ) -> Response<Body> {
        self.served_by = ServedBy::Cache;
        self.version = version;
        self.detail = level.as_str();
        match self.held {
            None => with_status(response, HeaderValue::from_static(hit_of(level))),
            Some(_) => self.with_status(response, "hit", level.as_str()),
        }
    }

    /// The apiserver answered.
    pub fn forwarded(&mut self, reason: ForwardReason, response: Response<Body>) -> Response<Body> {
        self.served_by = ServedBy::Upstream;
        self.detail = reason.as_str();
        let forwarded_as = format!("fwd={}", reason.forwarded_as());
        self.with_status(response, &forwarded_as, reason.as_str())
    }

    /// A document was given.
    pub fn document(&mut self, result: DocumentResult, response: Response<Body>) -> Response<Body> {
        self.metrics.document(result);
        self.detail = ForwardReason::Discovery.as_str();
        self.served_by = match result {
            DocumentResult::Memory => ServedBy::Cache,
            DocumentResult::Revalidated | DocumentResult::Fetched | DocumentResult::NotKept => {
                ServedBy::Upstream
            }
        };
        with_status(response, HeaderValue::from_static(given_of(result)))
    }

    /// The apiserver answered an identical read.
    pub fn coalesced(&mut self, reason: ForwardReason, response: Response<Body>) -> Response<Body> {
        self.metrics.coalesced();
        self.served_by = ServedBy::Coalesced;
        self.detail = reason.as_str();
        let forwarded_as = format!("fwd={}; collapsed", reason.forwarded_as());
        self.with_status(response, &forwarded_as, reason.as_str())
    }

    /// Nobody could answer.
    pub fn failed(&mut self, error: &Error) {
        self.served_by = ServedBy::Proxy;
        self.detail = error.as_str();
        self.fault = Some(error.fault());
    }

    fn request(&self) -> Option<&ResourceRequest> {
        self.target.as_ref()?.info.resource_request()
    }

    /// The answer goes out; the record ends with its body.
    pub fn close(mut self, response: Response<Body>) -> Response<Body> {
        self.code = response.status();
        if !self.code.is_success() {
            self.retry_after = retry_after(response.headers());
        }
        let response = if response.headers().contains_key(CACHE_STATUS) {
            response
        } else if self.fault == Some(Fault::Client) {
            // It went nowhere.
            with_status(response, said(&format!("listless; detail={}", self.detail)))
        } else {
            self.with_status(response, "fwd=miss", self.detail)
        };
        if let (ServedBy::Cache, Some(target)) = (self.served_by, &self.target) {
            let version = self.version.as_ref().map(ToString::to_string);
            self.records.audit(target, &self.client, version, self.detail, self.code);
        }
        if self.verb == Verb::Watch {
            self.tell(Phase::Began, self.started.elapsed());
        }
        match response.body().size_hint().exact() {
            // Already in memory: there is nothing to wait for.
            Some(bytes) if self.served_by == ServedBy::Cache => {
                self.bytes = bytes;
                drop(self);
                response
            }
            _ => {
                let fingerprint = self.fingerprint(&response);
                response.map(|inner| Body::wrap(Counted { inner, log: self, fingerprint }))
            }
        }
    }

    /// To compare an answer of the apiserver's with the one before.
    fn fingerprint(&self, response: &Response<Body>) -> Option<Box<Fingerprint>> {
        let comparable = self.code == StatusCode::OK && self.said.content.is_none();
        let fingerprint = || Fingerprint::of(self.verb, response.headers());
        comparable.then(fingerprint).flatten().map(Box::new)
    }

    fn record(&self, took: Duration) -> Record {
        let expired = self.said.expired;
        Record {
            started: self.started,
            took,
            answer: match self.served_by {
                ServedBy::Cache => Answer::Memory,
                ServedBy::Coalesced => Answer::Shared(self.detail),
                ServedBy::Upstream => Answer::Upstream(self.detail),
                ServedBy::Proxy => Answer::Own(self.detail),
            },
            code: if expired { StatusCode::GONE.as_u16() } else { self.code.as_u16() },
            bytes: self.bytes,
            content: self.said.content,
            objects: self.said.objects,
            retry_after: self.retry_after,
            pace: if self.held.is_some() { Pace::Held } else { Pace::Free },
            otherwise: match self.would {
                Some(Would::Read | Would::Watch | Would::Discovery) => Otherwise::Saved,
                _ => Otherwise::Same,
            },
        }
    }

    /// Shows it to those who watch requests now.
    fn tell(&self, phase: Phase, duration: Duration) {
        let (Some(told), true) = (&self.told, self.records.tap().is_watched()) else { return };
        let target = self.target.as_ref().filter(|_| told.target == Exposure::Clean);
        let query = target.map_or("", |target| target.query());
        let info = target.map(|target| &target.info);
        let asked = Asked { info, query, user_agent: &told.user_agent };
        let Self { served_by, detail, code, bytes, .. } = *self;
        let at = SystemTime::now();
        let answered = Answered { at, phase, served_by, detail, code, bytes, duration };
        self.records.tap().tell(&asked, answered);
    }

    /// How it was answered, with the milliseconds it was held back.
    fn with_status(&self, response: Response<Body>, how: &str, detail: &str) -> Response<Body> {
        let status = match self.held {
            None => format!("listless; {how}; detail={detail}"),
            Some(held) => {
                format!("listless; {how}; paced={}; detail={detail}", held.as_millis())
            }
        };
        with_status(response, said(&status))
    }
}

/// Writes the line of a request at a level that the macro must know beforehand.
macro_rules! line {
    ($level:ident, $log:expr, $duration:expr) => {{
        let log: &RequestLog = $log;
        let request = log.request();
        tracing::$level!(
            target: "listless::access",
            verb = log.verb.as_str(),
            resource = request.map(|request| tracing::field::display(&request.resource)),
            namespace = request.and_then(|request| records::shown(request.scope.namespace())),
            user_agent = (!log.client.agent.is_empty()).then_some(&*log.client.agent),
            served_by = log.served_by.as_str(),
            detail = log.detail,
            code = log.code.as_u16(),
            bytes = log.bytes,
            duration = ?$duration,
            held = log.held.map(tracing::field::debug),
            would = log.would.map(Would::as_str),
            would_detail = log.would_detail,
            "request",
        );
    }};
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        let duration = self.started.elapsed();
        self.tell(Phase::Ended, duration);
        if let Some(asker) = &self.asker {
            self.records.insight().record(asker, self.connection, &self.record(duration));
        }
        let (verb, served_by, code) = (self.verb, self.served_by, self.code);
        let request = self.request();
        let target = request.map(|request| (&request.resource, &request.scope));
        let sample = RequestSample { verb, target, served_by, code, duration, bytes: self.bytes };
        self.metrics.request(&sample);
        if request.is_some_and(ResourceRequest::is_unsafe_read) {
            self.metrics.unsafe_read(&sample);
        }
        self.metrics.client_sent(served_by, self.bytes);
        match self.records.line(code, served_by) {
            Line::Shown => line!(info, self, duration),
            Line::Filtered => line!(debug, self, duration),
        }
    }
}
