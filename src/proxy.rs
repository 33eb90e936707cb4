//! The data path: identify, classify, decide, respond, record.
//!
//! Invariants: every request leaves through `serve` once. Every forward has a reason. The
//! `Cache-Status` header of every response names its source. The cache returns only what
//! [`authorize`] allowed.

pub mod aggregation;
mod audit_id;
pub mod authorize;
pub mod caller_names;
pub mod coalesce;
pub mod decide;
pub mod discovery;
mod evidence;
pub mod forward;
pub mod identify;
pub mod listen;
pub mod local;
pub mod metered;
mod observe_mode;
mod pacing;
mod planning;
pub mod repeated_headers;
pub mod request_log;
mod self_review;
pub mod session;
pub mod sessions;
mod shadow;
mod sharing;
pub mod target;
mod token_review;
pub mod watching;
mod write_observer;

use std::{net::IpAddr, sync::Arc};

use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use tokio::{sync::watch, time::Instant};

pub use self::sessions::SharedSession;
use self::{
    aggregation::Aggregation,
    authorize::{Asker, Attributes, Authorize},
    caller_names::{CallerName, CallerNames},
    coalesce::{Coalesce, SendTime},
    decide::{Forward, ForwardReason, LocalRead, LocalWatch, Plan, Reject, Rewriting},
    discovery::Discovery,
    forward::{Clients, Forwarder, Learners},
    identify::Identify,
    listen::{Connection, Serve},
    local::{Local, NotMade},
    observe_mode::Prefetches,
    pacing::Pacing,
    repeated_headers::RepeatedHeaders,
    request_log::{Records, RequestLog},
    session::Source,
    sessions::{Past, RequestContext, SESSIONS_MAX, Sessions},
    shadow::Shadows,
    target::{Target, Targets, readable},
    watching::{Terms, Watches, Watching},
};
use crate::{
    api::{
        media::UnmodelledMedia,
        request::{NotModelled, RequestInfo},
    },
    body::Body,
    cache::{Cache, store::Snapshot},
    config::Config,
    error::Error,
    insight::{Insight, cost::Collection},
    metrics::Transport,
    policy::Mode,
    websocket::Asked,
};

/// The request handler and everything that a request passes through.
pub struct Proxy {
    identify: Identify,
    targets: Targets,
    config: watch::Receiver<Arc<Config>>,
    cache: Cache,
    sessions: Sessions,
    /// The sessions as mode `enforce` would have them; used in mode `observe`.
    predicted: Sessions,
    prefetches: Prefetches,
    shadow: Shadows,
    pacing: Pacing,
    authorize: Authorize,
    caller_names: CallerNames,
    aggregation: Arc<Aggregation>,
    local: Local,
    coalesce: Coalesce,
    forwarder: Forwarder,
    repeated: RepeatedHeaders,
    watches: Watches,
    discovery: Discovery,
    insight: Insight,
    records: Records,
}

/// The parts of a [`Proxy`].
pub struct Parts {
    /// The identification of callers.
    pub identify: Identify,
    /// The responses that clients may have seen before this process started.
    pub past: Past,
    /// The current configuration.
    pub config: watch::Receiver<Arc<Config>>,
    /// The replicas.
    pub cache: Cache,
    /// The cached documents of discovery and OpenAPI.
    pub discovery: Discovery,
    /// The clients to the apiserver.
    pub clients: Clients,
    /// The access reviews.
    pub authorize: Authorize,
    /// The names of callers.
    pub caller_names: CallerNames,
    /// The server of each API group.
    pub aggregation: Arc<Aggregation>,
    /// The headers that the apiserver repeats.
    pub repeated: RepeatedHeaders,
    /// The record of each request.
    pub records: Records,
}

// === impl Proxy ===

impl Proxy {
    /// Joins the parts; starts nothing until the first request.
    pub fn new(parts: Parts) -> Self {
        let metrics = parts.records.metrics().clone();
        let insight = parts.records.insight().clone();
        let cache = parts.cache.clone();
        let local = Local::new(cache.clone(), metrics.clone());
        let forwarder = Forwarder::new(parts.clients, cache, insight.clone(), metrics.clone());
        Self {
            identify: parts.identify,
            targets: Targets::default(),
            config: parts.config,
            cache: parts.cache,
            watches: Watches::new(metrics.clone()),
            sessions: Sessions::new(parts.past, SESSIONS_MAX, metrics.clone()),
            predicted: Sessions::new(parts.past, SESSIONS_MAX, metrics.clone()),
            prefetches: Prefetches::default(),
            shadow: Shadows::new(metrics.clone()),
            pacing: Pacing::new(metrics.clone()),
            authorize: parts.authorize,
            caller_names: parts.caller_names,
            aggregation: parts.aggregation,
            local,
            coalesce: Coalesce::new(metrics),
            forwarder,
            repeated: parts.repeated,
            discovery: parts.discovery,
            insight,
            records: parts.records,
        }
    }

    /// Ends the watches that are served from the cache, before the process ends.
    pub fn close_watches(&self) {
        self.watches.close();
    }

    async fn answer(
        &self,
        peer: IpAddr,
        request: Request<Incoming>,
        log: &mut RequestLog,
    ) -> Result<Response<Body>, Error> {
        let context = self.context(peer, request.headers());
        let target = self.targets.read(context.caller(), &request);
        let config = self.config.borrow().clone();
        let known = match config.report_callers {
            true => self.caller_names.of(context.caller()).await,
            false => None,
        };
        let name = known.as_ref().and_then(CallerName::name);
        log.classified(&target, target.asker(&self.insight, request.headers(), name));
        let response = self.answer_classified(&context, &target, &config, request, log).await?;
        if config.report_callers && response.status().is_success() {
            self.caller_names.learn(&context.asker, known).await;
        }
        Ok(response)
    }

    async fn answer_classified(
        &self,
        context: &RequestContext,
        target: &Arc<Target>,
        config: &Arc<Config>,
        request: Request<Incoming>,
        log: &mut RequestLog,
    ) -> Result<Response<Body>, Error> {
        if config.policy.mode() == Mode::Observe {
            return Box::pin(self.observe(context, target, config, request, log)).await;
        }
        let rules = target.rules(&config.policy, request.headers());
        let plan = match target.info {
            RequestInfo::NonResource(_) => self.plan_document(context.caller(), &request).await,
            RequestInfo::Resource(_) => {
                self.plan(context, target, &rules, request.headers(), log).await
            }
        };
        log.decided(&plan);
        let info = &target.info;
        let send_time = SendTime::AtOnce;
        // All but the hit are boxed, so that a hit moves none of their large futures.
        match plan {
            Plan::Read(answer) => self.read(context, target, answer, request, log).await,
            Plan::Watch(answer) => {
                Box::pin(self.watch(context, target, answer, request, log)).await
            }
            Plan::Document(plan) => {
                Box::pin(self.document(context, info, plan, request, log)).await
            }
            Plan::Share(forward) => {
                Box::pin(self.share(context, info, forward, send_time, request, log)).await
            }
            Plan::Forward(forward) => {
                Box::pin(self.forward(context, info, forward, request, log)).await
            }
            Plan::Pace(pace) => {
                Box::pin(self.pace(context, target, &rules, pace, request, log)).await
            }
            Plan::Reject(Reject { retry_after_secs }) => {
                Err(Error::RepeatedPoll { retry_after_secs })
            }
        }
    }

    fn context(&self, peer: IpAddr, headers: &HeaderMap) -> RequestContext {
        let caller = self.identify.caller(headers);
        let session = self.sessions.of(caller, Instant::now());
        RequestContext { asker: Asker::new(caller, headers), peer, session }
    }

    async fn read(
        &self,
        context: &RequestContext,
        target: &Target,
        answer: LocalRead,
        request: Request<Incoming>,
        log: &mut RequestLog,
    ) -> Result<Response<Body>, Error> {
        let (version, held) = (answer.snapshot.version().clone(), collection(&answer.snapshot));
        let (level, replica) = (answer.level, answer.replica.clone());
        let answer = answer.at_list_version();
        let given = answer.snapshot.version().clone();
        let outstanding = answer.outstanding();
        let unprintable = UnmodelledMedia::unprintable(answer.representation);
        let mut reason = ForwardReason::NotAuthorized;
        if let Some((asked, read)) = readable(&target.info)
            && let attributes_of = (|| Attributes::of_read(context.caller(), asked, read))
            && let Some(allowed) =
                self.authorize.grant(&context.asker, attributes_of, &target.review, answer).await
        {
            let now = Instant::now();
            context.session.lock().shown_by(replica.shape(), &version, Source::Storage, now);
            if let Some(outstanding) = outstanding {
                self.cache.keep(outstanding, now);
            }
            match self.local.read(read, allowed, &target.body, request.headers()).await {
                Ok(mut response) => {
                    self.repeated.repeat(&read.query.resource, response.headers_mut());
                    log.shown_content(self.insight.content(&version), held);
                    return Ok(log.hit(level, Some(given), response));
                }
                Err(NotMade::Unprintable) => reason = ForwardReason::MediaType(unprintable),
                Err(NotMade::TooManyBytes) => reason = ForwardReason::TooManyBytes,
            }
        }
        let forward = Forward { reason, rewriting: Rewriting::Keep };
        log.decided(&Plan::Forward(forward.clone()));
        Box::pin(self.forward(context, &target.info, forward, request, log)).await
    }

    async fn watch(
        &self,
        context: &RequestContext,
        target: &Target,
        answer: LocalWatch,
        mut request: Request<Incoming>,
        log: &mut RequestLog,
    ) -> Result<Response<Body>, Error> {
        let (level, form) = (answer.level, answer.representation.form(answer.replica.form()));
        let reason = match self.open_watch(context, target, answer, request.headers()).await {
            Ok((watching, Asked::WebSocket(handshake))) => {
                watching.send_over(hyper::upgrade::on(&mut request), form);
                return Ok(log.hit(level, None, handshake.into_response()));
            }
            Ok((watching, _)) => {
                let mut response =
                    local::stream(self.watches.stream(watching), form, request.headers());
                if let Some(request) = target.info.resource_request() {
                    self.repeated.repeat(&request.resource, response.headers_mut());
                }
                return Ok(log.hit(level, None, response));
            }
            Err(reason) => reason,
        };
        let watch = target.info.resource_request().and_then(|request| request.watch.as_ref());
        let kept = Forward { reason, rewriting: Rewriting::Keep };
        let forward = watch.map_or(kept, |watch| Forward::detour(watch, reason));
        log.decided(&Plan::Forward(forward.clone()));
        self.forward(context, &target.info, forward, request, log).await
    }

    async fn open_watch(
        &self,
        context: &RequestContext,
        target: &Target,
        answer: LocalWatch,
        headers: &HeaderMap,
    ) -> Result<(Watching, Asked), ForwardReason> {
        let request = target.info.resource_request();
        let watch = request.and_then(|request| Some((request, request.watch.as_ref()?)));
        let (request, watch) = watch.ok_or(ForwardReason::NotModelled(NotModelled::Watch))?;
        let attributes = Attributes::of_watch(context.caller(), request, watch);
        let allowed = self.authorize.permit(&context.asker, attributes, answer).await;
        let allowed = allowed.ok_or(ForwardReason::NotAuthorized)?;
        let asked = Asked::of(headers);
        let transport = match asked {
            Asked::WebSocket(_) => Transport::WebSocket,
            Asked::No | Asked::Other => Transport::Http,
        };
        let terms = Terms { transport, fraction: self.cache.fraction(), now: Instant::now() };
        Ok((self.watches.open(watch, allowed, context.session.clone(), terms)?, asked))
    }

    async fn forward(
        &self,
        context: &RequestContext,
        info: &RequestInfo,
        forward: Forward,
        request: Request<Incoming>,
        log: &mut RequestLog,
    ) -> Result<Response<Body>, Error> {
        let Forward { reason, rewriting } = forward;
        let caller = context.caller();
        if token_review::is_one(caller, info, request.headers()) {
            let sent = token_review::send(&self.identify, &self.forwarder, request).await;
            return Ok(log.forwarded(reason, sent.map_err(|error| Error::upstream(error, info))?));
        }
        let write_observer = write_observer::of(info, log.asker(), &self.insight, &self.cache);
        let learners =
            Learners { write_observer: write_observer.as_ref(), ..Learners::one(&context.session) };
        let mut noticed = self.discovery.notice(info, self.authorize.knows(caller));
        let sent = self.send(context, info, &rewriting, request, learners).await;
        let response = sent.map_err(|error| Error::upstream(error, info))?;
        if let Some(noticed) = &mut noticed {
            noticed.answered(response.status());
        }
        self.pacing.wrote(caller, info, &response);
        self.hint(reason, info);
        Ok(log.forwarded(reason, response))
    }
}

impl Serve for Proxy {
    /// Every request leaves through this function once, also if it fails.
    async fn serve(&self, connection: &Connection, request: Request<Incoming>) -> Response<Body> {
        let mut log = RequestLog::open(&self.records, connection.id, &request);
        let response = match self.answer(connection.peer.ip(), request, &mut log).await {
            Ok(response) => response,
            Err(error) => {
                log.failed(&error);
                error.into_response()
            }
        };
        log.close(response)
    }
}

/// Returns the size of a replica's objects.
fn collection(held: &Snapshot) -> Collection {
    let objects = u32::try_from(held.len()).unwrap_or(u32::MAX);
    Collection { objects, bytes: held.pages().text_bytes() }
}
