//! The data path on one screen: identify, classify, decide, answer, observe.
//!
//! Invariants: every request leaves through `serve` once; every forward has a reason; every
//! answer says in `Cache-Status` where it came from; memory answers only what [`authorize`] allowed.

pub mod aggregation;
pub mod authorize;
pub mod coalesce;
pub mod decide;
pub mod forward;
pub mod identify;
pub mod listen;
pub mod local;
pub mod metered;
pub mod observe;
pub mod session;
pub mod sessions;
pub mod target;
pub mod warnings;
pub mod watching;

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use tokio::{sync::watch, time::Instant};

pub use self::sessions::SharedSession;
use self::{
    aggregation::Aggregation,
    authorize::{Asker, Attributes, Authorize},
    coalesce::{Coalesce, CoalesceKey, Landed},
    decide::{Forward, ForwardReason, LocalRead, LocalWatch, Plan, Rewriting, Step},
    forward::{Clients, Forwarder},
    identify::{Caller, Identify},
    listen::{Connection, Serve},
    local::Local,
    observe::RequestLog,
    session::{Session, Source},
    sessions::{Past, SESSIONS_MAX, Sessions, Visit},
    target::{Target, Targets, negotiate, readable, sought},
    warnings::Warnings,
    watching::{Terms, Watches, Watching},
};
use crate::{
    api::{
        Verb,
        media::{Negotiated, UnmodelledMedia},
        request::{NotModelled, RequestInfo, ResourceRequest},
        version::VersionMatch,
    },
    body::Body,
    cache::{Cache, Demand, Lookup},
    config::Config,
    error::Error,
    metrics::{Metrics, Transport},
    websocket::Asked,
};

/// Everything a request meets.
pub struct Proxy {
    identify: Identify,
    targets: Targets,
    config: watch::Receiver<Arc<Config>>,
    cache: Cache,
    sessions: Sessions,
    authorize: Authorize,
    aggregation: Aggregation,
    local: Local,
    coalesce: Coalesce,
    forwarder: Forwarder,
    warnings: Warnings,
    watches: Watches,
    metrics: Metrics,
}

/// What a [`Proxy`] is made of.
pub struct Parts {
    /// How callers are told apart.
    pub identify: Identify,
    /// What clients may have seen before.
    pub past: Past,
    /// The configuration in force.
    pub config: watch::Receiver<Arc<Config>>,
    /// The replicas.
    pub cache: Cache,
    /// To the apiserver.
    pub clients: Clients,
    /// What the apiserver warns of.
    pub warnings: Warnings,
    /// What is counted.
    pub metrics: Metrics,
}

// === impl Proxy ===

impl Proxy {
    /// Joins the parts; nothing runs until a request comes.
    pub fn new(parts: Parts) -> Self {
        Self {
            identify: parts.identify,
            targets: Targets::default(),
            config: parts.config,
            cache: parts.cache,
            watches: Watches::new(parts.metrics.clone()),
            sessions: Sessions::new(parts.past, SESSIONS_MAX, parts.metrics.clone()),
            authorize: Authorize::new(
                parts.clients.own.clone(),
                parts.clients.plain.clone(),
                parts.metrics.clone(),
            ),
            aggregation: Aggregation::new(parts.clients.own.clone()),
            local: Local::default(),
            coalesce: Coalesce::default(),
            forwarder: Forwarder::new(parts.clients),
            warnings: parts.warnings,
            metrics: parts.metrics,
        }
    }

    /// Ends watches that are answered from memory, for the end is near.
    pub fn close_watches(&self) {
        self.watches.close();
    }

    /// Answers one request. Every request, however it fails, leaves through here once.
    async fn answer_logged(&self, request: Request<Incoming>) -> Response<Body> {
        let mut log = RequestLog::open(&self.metrics);
        let response = match self.answer(request, &mut log).await {
            Ok(response) => response,
            Err(error) => {
                log.failed(&error);
                error.into_response()
            }
        };
        log.close(response)
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        log: &mut RequestLog,
    ) -> Result<Response<Body>, Error> {
        let visit = self.visit(request.headers());
        let target = self.targets.read(visit.caller(), &request);
        let info = &target.info;
        log.classified(&target);
        let plan = self.plan(&visit, &target, request.headers(), log).await;
        log.decided(&plan);
        match plan {
            Plan::Read(answer) => self.read(&visit, &target, answer, request, log).await,
            Plan::Watch(answer) => self.watch(&visit, &target, answer, request, log).await,
            Plan::Share(forward) => self.share(&visit, info, forward, request, log).await,
            Plan::Forward(forward) => self.forward(&visit, info, forward, request, log).await,
        }
    }

    fn visit(&self, headers: &HeaderMap) -> Visit {
        let caller = self.identify.caller(headers);
        let session = self.sessions.of(caller, Instant::now());
        Visit { asker: Asker::new(caller, headers), session }
    }

    /// Whether the caller may learn anything of a replica: whether there is one, and how it fares.
    ///
    /// Our own user may know all of them: they were read in its name. A bearer must be allowed the
    /// very read first, so that nobody starts a replica, waits for one or is told of one without it;
    /// and what it may read must not depend on who it is.
    async fn may_know(
        &self,
        visit: &Visit,
        target: &Target,
        question: impl FnOnce(&ResourceRequest) -> Attributes,
    ) -> Result<(), ForwardReason> {
        let Caller::Bearer(_) = visit.caller() else { return Ok(()) };
        let refused = Err(ForwardReason::NotAuthorized);
        let Some(request) = target.info.resource_request() else { return refused };
        if !self.authorize.allows(&visit.asker, || question(request), &target.review).await {
            return refused;
        }
        if self.aggregation.may_serve(&request.resource).await {
            return Err(ForwardReason::MayBeAggregated);
        }
        Ok(())
    }

    /// Decides, and waits for a replica as long as the decision allows.
    async fn plan(
        &self,
        visit: &Visit,
        target: &Target,
        headers: &HeaderMap,
        log: &mut RequestLog,
    ) -> Plan {
        let info = &target.info;
        let arrived = Instant::now();
        let policy = self.config.borrow().policy.clone();
        let caller = visit.caller();
        if info.verb() == Verb::Watch {
            let (media, asked) = (Negotiated::of_watch(headers), Asked::of(headers));
            let candidate = {
                let session = visit.session.lock();
                decide::watch_candidate(info, caller, media, &asked, &policy, &session)
            };
            let candidate = match candidate {
                Ok(candidate) => candidate,
                Err(plan) => return plan,
            };
            let question = |request: &_| Attributes::of_watch(caller, request, candidate.watch);
            if let Err(reason) = self.may_know(visit, target, question).await {
                // Perhaps there was no answer: who really may not is refused by the apiserver.
                return Plan::Forward(Forward::detour(candidate.watch, reason));
            }
            let lookup = self.cache.lookup(&candidate.watch.query, Demand::Ignore);
            let step = |lookup: &Lookup, session: &Session, now, waited| {
                decide::decide_watch(&candidate, lookup, session, now, waited)
            };
            return self.settle(&visit.session, arrived, lookup, step, log).await;
        }
        let media = negotiate(info, headers);
        let candidate = decide::candidate(info, caller, media, &policy, &visit.session.lock());
        let candidate = match candidate {
            Ok(candidate) => candidate,
            Err(plan) => return plan,
        };
        let question = |request: &_| Attributes::of_read(caller, request, candidate.read);
        if let Err(reason) = self.may_know(visit, target, question).await {
            return Plan::Forward(Forward { reason, rewriting: Rewriting::Keep });
        }
        let lookup = self.cache.lookup(&candidate.read.query, candidate.demand);
        let step = |lookup: &Lookup, session: &Session, now, waited| {
            decide::decide(&candidate, lookup, session, now, waited)
        };
        self.settle(&visit.session, arrived, lookup, step, log).await
    }

    /// Decides by what is held, again and again as long as it is worth waiting.
    async fn settle(
        &self,
        session: &SharedSession,
        arrived: Instant,
        mut lookup: Lookup,
        decide: impl Fn(&Lookup, &Session, Instant, Duration) -> Step,
        log: &RequestLog,
    ) -> Plan {
        loop {
            let now = Instant::now();
            let step = decide(&lookup, &session.lock(), now, now - arrived);
            match step {
                Step::Act(plan) => return plan,
                Step::Await(wait) => {
                    let view = wait.replica.reach(&wait.reach, arrived + wait.patience).await;
                    log.waited(view.reaches(&wait.reach), now.elapsed());
                    lookup = Lookup::Found(view);
                }
            }
        }
    }

    async fn read(
        &self,
        visit: &Visit,
        target: &Target,
        answer: LocalRead,
        request: Request<Incoming>,
        log: &mut RequestLog,
    ) -> Result<Response<Body>, Error> {
        let version = answer.snapshot.version().clone();
        let level = answer.level;
        let mut reason = ForwardReason::NotAuthorized;
        if let Some((asked, read)) = readable(&target.info)
            && let question = (|| Attributes::of_read(visit.caller(), asked, read))
            && let Some(allowed) =
                self.authorize.grant(&visit.asker, question, &target.review, answer).await
        {
            let resource = read.query.resource.group_resource();
            visit.session.lock().shown(&resource, &version, Source::Storage, Instant::now());
            let answered = self.local.read(read, allowed, &target.body, request.headers()).await;
            if let Some(mut response) = answered {
                self.warnings.repeat(&read.query.resource, response.headers_mut());
                return Ok(log.hit(level, response));
            }
            reason = ForwardReason::MediaType(UnmodelledMedia::PartialObjectMetadata);
        }
        let forward = Forward { reason, rewriting: Rewriting::Keep };
        self.forward(visit, &target.info, forward, request, log).await
    }

    async fn watch(
        &self,
        visit: &Visit,
        target: &Target,
        answer: LocalWatch,
        mut request: Request<Incoming>,
        log: &mut RequestLog,
    ) -> Result<Response<Body>, Error> {
        let level = answer.level;
        let reason = match self.open_watch(visit, target, answer, request.headers()).await {
            Ok((watching, Asked::WebSocket(handshake))) => {
                watching.send_over(hyper::upgrade::on(&mut request));
                return Ok(log.hit(level, handshake.into_response()));
            }
            Ok((watching, _)) => {
                let mut response = local::stream(watching.into_body(), request.headers());
                if let Some(request) = target.info.resource_request() {
                    self.warnings.repeat(&request.resource, response.headers_mut());
                }
                return Ok(log.hit(level, response));
            }
            Err(reason) => reason,
        };
        let watch = target.info.resource_request().and_then(|request| request.watch.as_ref());
        let kept = Forward { reason, rewriting: Rewriting::Keep };
        let forward = watch.map_or(kept, |watch| Forward::detour(watch, reason));
        log.decided(&Plan::Forward(forward.clone()));
        self.forward(visit, &target.info, forward, request, log).await
    }

    async fn open_watch(
        &self,
        visit: &Visit,
        target: &Target,
        answer: LocalWatch,
        headers: &HeaderMap,
    ) -> Result<(Watching, Asked), ForwardReason> {
        let request = target.info.resource_request();
        let watch = request.and_then(|request| Some((request, request.watch.as_ref()?)));
        let (request, watch) = watch.ok_or(ForwardReason::NotModelled(NotModelled::Watch))?;
        let attributes = Attributes::of_watch(visit.caller(), request, watch);
        let allowed = self.authorize.permit(&visit.asker, attributes, answer).await;
        let allowed = allowed.ok_or(ForwardReason::NotAuthorized)?;
        let asked = Asked::of(headers);
        let transport = match asked {
            Asked::WebSocket(_) => Transport::WebSocket,
            Asked::No | Asked::Other => Transport::Http,
        };
        let terms = Terms { transport, fraction: self.cache.fraction(), now: Instant::now() };
        Ok((self.watches.open(watch, allowed, visit.session.clone(), terms)?, asked))
    }

    async fn share(
        &self,
        visit: &Visit,
        info: &RequestInfo,
        forward: Forward,
        request: Request<Incoming>,
        log: &mut RequestLog,
    ) -> Result<Response<Body>, Error> {
        let Forward { reason, rewriting } = forward;
        let key = CoalesceKey::new(visit.caller(), &request, &rewriting);
        let (caller, session) = (visit.caller(), &visit.session);
        let send = || self.forwarder.forward(caller, info, &rewriting, request, session);
        match self.coalesce.fly(key, send).await {
            Ok(Landed::Sent(response)) => Ok(log.forwarded(reason, response)),
            Ok(Landed::Shared(response)) => Ok(log.coalesced(reason, response)),
            Err(error) => Err(Error::upstream(error, info)),
        }
    }

    async fn forward(
        &self,
        visit: &Visit,
        info: &RequestInfo,
        forward: Forward,
        request: Request<Incoming>,
        log: &mut RequestLog,
    ) -> Result<Response<Body>, Error> {
        let Forward { reason, rewriting } = forward;
        let (caller, session) = (visit.caller(), &visit.session);
        let sent = self.forwarder.forward(caller, info, &rewriting, request, session).await;
        match sent {
            Ok(response) => {
                match (reason, sought(info)) {
                    (ForwardReason::LinkLost, Some((query, _))) => self.cache.nudge(query),
                    // What a request names itself may lie in a future that no bookmark reaches.
                    (ForwardReason::Behind, Some((query, version)))
                        if !matches!(version, VersionMatch::NotOlderThan(_)) =>
                    {
                        self.cache.lags(query);
                    }
                    _ => {}
                }
                Ok(log.forwarded(reason, response))
            }
            Err(error) => Err(Error::upstream(error, info)),
        }
    }
}

impl Serve for Proxy {
    async fn serve(&self, _: &Connection, request: Request<Incoming>) -> Response<Body> {
        self.answer_logged(request).await
    }
}
