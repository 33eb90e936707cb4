//! The record of a request: its metrics, its log line and its `Cache-Status`.
//!
//! Write-only: no code on the data path reads it. It closes when the response's last byte has been
//! passed on, or when the client has left.

mod cache_status;
mod counted;
mod ended;
mod records;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use memchr::memmem;
use tokio::time::Instant;

use crate::{
    api::{
        Verb, credential, form::Form, protobuf::MEDIA_TYPE, pushback::retry_after,
        request::ResourceRequest, version::ResourceVersion,
    },
    body::Body,
    cache::Attached,
    error::{Error, Fault},
    insight::{
        Asker,
        account::{Answer, Otherwise, Pace, Record},
        cost::{Collection, Encoding},
        fingerprint::Fingerprint,
    },
    metrics::{DocumentResult, Lane, Metrics, PollLimit, Presence, ServedBy, Wait, Would},
    proxy::{
        decide::{DocumentSource, ForwardReason, Level, Plan, Rewriting},
        forward::ListContent,
        observe_mode::Prediction,
        pacing::Toll,
        target::Target,
    },
    tap::{Answered, Asked, Phase},
};

pub(in crate::proxy) use self::cache_status::CACHE_STATUS;
pub use self::records::{Audience, Records};
use self::{
    cache_status::{given_of, header_value, hit_of, with_status},
    counted::{Counted, Length, is_gzip},
    records::{Client, Exposure},
};

/// The record of one request.
pub struct RequestLog {
    records: Records,
    metrics: Metrics,
    client: Client,
    /// The event for live viewers; absent if none were connected when the request arrived.
    viewer_event: Option<ViewerEvent>,
    started: Instant,
    verb: Verb,
    /// `true` if the client accepts Tables: all who do prefer them.
    wants_table: bool,
    target: Option<Arc<Target>>,
    version: Option<ResourceVersion>,
    served_by: ServedBy,
    detail: &'static str,
    code: StatusCode,
    bytes: u64,
    present: Option<Presence>,
    /// The token it costs, settled when the response ends.
    toll: Option<Toll>,
    /// The limit that held it, and for how long.
    held: Option<(PollLimit, Duration)>,
    /// In mode `observe`: the outcome in mode `enforce`, and the reason of its forward.
    would: Option<Would>,
    would_detail: &'static str,
    fault: Option<Fault>,
    /// The replica that the watch would follow, kept in use.
    attached: Option<Attached>,
    asker: Option<Asker>,
    connection: u64,
    facts: ResponseFacts,
    retry_after: Option<Duration>,
}

/// The detail of a request whose client hung up before its response.
const CLIENT_CLOSED: &str = "client-closed";

/// The event that live viewers of requests receive.
struct ViewerEvent {
    user_agent: Box<str>,
    target: Exposure,
}

/// The part of a response that the account records.
#[derive(Clone, Copy, Debug, Default)]
struct ResponseFacts {
    /// The fingerprint of the content.
    content: Option<u32>,
    encoding: Encoding,
    /// The objects of the replica that answered.
    collection: Option<Collection>,
    /// `true` if a watch ended because its version had expired.
    expired: bool,
}

/// Returns the status of a request whose client hung up before its response, as in nginx and
/// kube-apiserver.
fn client_closed() -> StatusCode {
    StatusCode::from_u16(499).expect("a number of three digits")
}

/// Reports whether the client accepts Tables.
fn wants_table(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).map_or(&b""[..], HeaderValue::as_bytes);
    memmem::find(accept, b"as=Table").is_some()
}

// === impl RequestLog ===

impl RequestLog {
    /// Opens the record of a request that just arrived.
    pub fn open<B>(records: &Records, connection: u64, request: &Request<B>) -> Self {
        let viewer_event = || ViewerEvent {
            user_agent: credential::user_agent(request.headers()).into(),
            target: records::exposure(request),
        };
        Self {
            records: records.clone(),
            metrics: records.metrics().clone(),
            client: records.client(request),
            viewer_event: records.tap().is_watched().then(viewer_event),
            version: None,
            started: Instant::now(),
            verb: Verb::Other,
            wants_table: wants_table(request.headers()),
            target: None,
            // The value until there is a response.
            served_by: ServedBy::ClientClosed,
            detail: CLIENT_CLOSED,
            code: client_closed(),
            bytes: 0,
            present: None,
            toll: None,
            held: None,
            would: None,
            would_detail: "",
            fault: None,
            attached: None,
            asker: None,
            connection,
            facts: ResponseFacts::default(),
            retry_after: None,
        }
    }

    /// Records the parsed request.
    pub fn classified(&mut self, target: &Arc<Target>, asker: Asker) {
        asker.begins();
        self.asker = Some(asker);
        self.verb = target.info.verb();
        self.target = Some(target.clone());
        let lane = if self.verb == Verb::Watch { Lane::Long } else { Lane::Short };
        self.present = Some(self.metrics.in_flight(lane));
    }

    /// Records the plan.
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

    /// Notes the token that the request costs.
    pub(super) fn costs(&mut self, toll: Option<Toll>) {
        self.toll = toll;
    }

    /// Notes the limit that held it, and for how long.
    pub fn held(&mut self, limit: PollLimit, duration: Duration) {
        self.held = Some((limit, duration));
    }

    /// Records the outcome that the request would have in mode `enforce`.
    pub(super) fn predicted(&mut self, predicted: &mut Prediction) {
        self.metrics.would_have(predicted.would);
        if predicted.paced {
            self.metrics.would_have(Would::Pace);
        }
        self.would = Some(predicted.would);
        self.would_detail = predicted.reason.map_or("", ForwardReason::as_str);
        self.attached = predicted.attached.take();
        self.toll = predicted.toll.take();
    }

    /// Records a wait for a replica.
    pub fn waited(&self, reached: bool, duration: Duration) {
        let wait = if reached { Wait::Reached } else { Wait::GaveUp };
        self.metrics.waited(wait, duration);
    }

    /// Returns the account that the request belongs to.
    pub fn asker(&self) -> Option<&Asker> {
        self.asker.as_ref()
    }

    /// Records the fingerprint of a response from the cache and the replica's objects.
    pub fn shown_content(&mut self, content: u32, collection: Collection) {
        let collection = Some(collection);
        self.facts = ResponseFacts { content: Some(content), collection, ..self.facts };
    }

    /// Records a hit, with the state at this version, or with the events from now on.
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

    /// Records a response of the apiserver.
    pub fn forwarded(&mut self, reason: ForwardReason, response: Response<Body>) -> Response<Body> {
        self.served_by = ServedBy::Upstream;
        self.detail = reason.as_str();
        let forwarded_as = format!("fwd={}", reason.forwarded_as());
        self.with_status(response, &forwarded_as, reason.as_str())
    }

    /// Records a document of discovery or OpenAPI.
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

    /// Records a response that the apiserver gave to an identical read.
    pub fn coalesced(&mut self, reason: ForwardReason, response: Response<Body>) -> Response<Body> {
        self.metrics.coalesced();
        self.served_by = ServedBy::Coalesced;
        self.detail = reason.as_str();
        let forwarded_as = format!("fwd={}; collapsed", reason.forwarded_as());
        self.with_status(response, &forwarded_as, reason.as_str())
    }

    /// Records a failure.
    pub fn failed(&mut self, error: &Error) {
        self.served_by = ServedBy::Proxy;
        self.detail = error.as_str();
        self.fault = Some(error.fault());
    }

    fn request(&self) -> Option<&ResourceRequest> {
        self.target.as_ref()?.info.resource_request()
    }

    /// Adds `Cache-Status`; the record ends with the response's body.
    pub fn close(mut self, response: Response<Body>) -> Response<Body> {
        self.code = response.status();
        if self.served_by == ServedBy::ClientClosed {
            (self.served_by, self.detail) = (ServedBy::Proxy, "");
        }
        self.metrics.response_head(self.verb, self.served_by, self.started.elapsed());
        if !self.code.is_success() {
            self.retry_after = retry_after(response.headers());
        }
        let mut response = if response.headers().contains_key(CACHE_STATUS) {
            response
        } else if self.fault == Some(Fault::Client) {
            // The request was not forwarded, or not whole.
            with_status(response, header_value(&format!("listless; detail={}", self.detail)))
        } else {
            self.with_status(response, "fwd=miss", self.detail)
        };
        if let (ServedBy::Cache, Some(target)) = (self.served_by, &self.target) {
            let version = self.version.as_ref();
            self.records.audit(target, &self.client, version, self.detail, self.code);
        }
        if self.verb == Verb::Watch {
            self.tell(Phase::Began, self.started.elapsed());
        }
        if !self.code.is_success() {
            self.target = self.target.take().filter(|target| !target.is_large());
        }
        let fingerprint = self.fingerprint(&response);
        let list = response.extensions_mut().remove::<ListContent>();
        self.facts.encoding.form = self.form(response.headers());
        let length = is_gzip(response.headers()).then(Length::default);
        response.map(|body| body.observed(Counted { log: self, fingerprint, list, length }))
    }

    /// Returns the fingerprint that compares a response of the apiserver with the one before.
    fn fingerprint(&self, response: &Response<Body>) -> Option<Box<Fingerprint>> {
        let comparable = self.code == StatusCode::OK && self.facts.content.is_none();
        let fingerprint = || Fingerprint::of(self.verb, response.headers());
        comparable.then(fingerprint).flatten().map(Box::new)
    }

    /// Returns the form of a response with these headers.
    fn form(&self, headers: &HeaderMap) -> Form {
        let media = headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        match self.wants_table {
            true => Form::Table,
            false if media.starts_with(MEDIA_TYPE.as_bytes()) => Form::Protobuf,
            false => Form::Json,
        }
    }

    fn record(&self, took: Duration) -> Record {
        let expired = self.facts.expired;
        Record {
            started: self.started,
            took,
            answer: match self.served_by {
                ServedBy::Cache => Answer::Memory,
                ServedBy::Coalesced => Answer::Shared(self.detail),
                ServedBy::Upstream => Answer::Upstream(self.detail),
                ServedBy::Proxy => Answer::Own(self.detail),
                ServedBy::ClientClosed => Answer::Closed,
            },
            code: if expired { StatusCode::GONE.as_u16() } else { self.code.as_u16() },
            bytes: self.bytes,
            content: self.facts.content,
            encoding: self.facts.encoding,
            collection: self.facts.collection,
            retry_after: self.retry_after,
            pace: self.held.map_or(Pace::Free, |(limit, _)| Pace::Held(limit)),
            otherwise: match self.would {
                Some(Would::Read | Would::Watch | Would::Discovery) => Otherwise::Saved,
                _ => Otherwise::Same,
            },
        }
    }

    /// Sends the event to live viewers.
    fn tell(&self, phase: Phase, duration: Duration) {
        let (Some(viewer_event), true) = (&self.viewer_event, self.records.tap().is_watched())
        else {
            return;
        };
        let target = self.target.as_ref().filter(|_| viewer_event.target == Exposure::Clean);
        let query = target.map_or("", |target| target.query());
        let info = target.map(|target| &target.info);
        let asked = Asked { info, query, user_agent: &viewer_event.user_agent };
        let Self { served_by, detail, code, bytes, .. } = *self;
        let at = SystemTime::now();
        let answered = Answered { at, phase, served_by, detail, code, bytes, duration };
        self.records.tap().tell(&asked, answered);
    }

    /// Adds `Cache-Status`, with the milliseconds for which the request was held.
    fn with_status(&self, response: Response<Body>, how: &str, detail: &str) -> Response<Body> {
        let status = match self.held {
            None => format!("listless; {how}; detail={detail}"),
            Some((_, held)) => {
                format!("listless; {how}; paced={}; detail={detail}", held.as_millis())
            }
        };
        with_status(response, header_value(&status))
    }
}
