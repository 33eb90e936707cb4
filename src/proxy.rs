//! The data path on one screen: identify, classify, decide, answer, observe.
//!
//! Invariants: every request leaves through `serve` once; every forward has a reason; every
//! answer says in `Cache-Status` where it came from; memory answers only what [`authorize`] allowed.

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
pub mod target;
pub mod warnings;
pub mod watching;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use tokio::{sync::watch, time::Instant};

use self::{
    authorize::Authorize,
    coalesce::{Coalesce, CoalesceKey, Landed},
    decide::{Forward, ForwardReason, LocalRead, LocalWatch, Plan, Rewriting, Step},
    forward::{Clients, Forwarder},
    identify::{Caller, LocalToken},
    listen::{Connection, Serve},
    local::Local,
    observe::RequestLog,
    session::{Session, Source},
    target::{Target, Targets},
    warnings::Warnings,
    watching::{Terms, Watches, Watching},
};
use crate::{
    api::{
        Verb,
        media::{Negotiated, UnmodelledMedia},
        query::Query,
        request::{NotModelled, Read, RequestInfo},
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
    token: LocalToken,
    targets: Targets,
    config: watch::Receiver<Arc<Config>>,
    cache: Cache,
    session: SharedSession,
    authorize: Authorize,
    local: Local,
    coalesce: Coalesce,
    forwarder: Forwarder,
    warnings: Warnings,
    watches: Watches,
    metrics: Metrics,
}

/// What a [`Proxy`] is made of.
pub struct Parts {
    /// What proves that a caller is the user Listless reads as.
    pub token: LocalToken,
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

/// A session that requests and the answers still streaming share.
#[derive(Clone, Debug, Default)]
pub struct SharedSession(Arc<Mutex<Session>>);

// === impl SharedSession ===

impl SharedSession {
    /// Held for a few instructions at a time, never across an await.
    pub fn lock(&self) -> MutexGuard<'_, Session> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Proxy ===

impl Proxy {
    /// Joins the parts; nothing runs until a request comes.
    pub fn new(parts: Parts) -> Self {
        let session = SharedSession::default();
        Self {
            token: parts.token,
            targets: Targets::default(),
            config: parts.config,
            cache: parts.cache,
            watches: Watches::new(session.clone(), parts.metrics.clone()),
            session,
            authorize: Authorize::new(parts.clients.own.clone()),
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
        let caller = self.token.caller(request.headers());
        let target = self.targets.read(caller, &request);
        let info = &target.info;
        log.classified(&target);
        let plan = self.plan(caller, info, request.headers(), log).await;
        log.decided(&plan);
        match plan {
            Plan::Read(answer) => self.read(caller, &target, answer, request, log).await,
            Plan::Watch(answer) => self.watch(caller, &target, answer, request, log).await,
            Plan::Share(reason) => self.share(caller, info, reason, request, log).await,
            Plan::Forward(forward) => self.forward(caller, info, forward, request, log).await,
        }
    }

    /// Decides, and waits for a replica as long as the decision allows.
    async fn plan(
        &self,
        caller: Caller,
        info: &RequestInfo,
        headers: &HeaderMap,
        log: &mut RequestLog,
    ) -> Plan {
        let arrived = Instant::now();
        let policy = self.config.borrow().policy.clone();
        if info.verb() == Verb::Watch {
            let (media, asked) = (Negotiated::of_watch(headers), Asked::of(headers));
            let candidate = {
                let session = self.session.lock();
                decide::watch_candidate(info, caller, media, &asked, &policy, &session)
            };
            let candidate = match candidate {
                Ok(candidate) => candidate,
                Err(plan) => return plan,
            };
            let lookup = self.cache.lookup(&candidate.watch.query, Demand::Ignore);
            let step = |lookup: &Lookup, session: &Session, now, waited| {
                decide::decide_watch(&candidate, lookup, session, now, waited)
            };
            return self.settle(arrived, lookup, step, log).await;
        }
        let media = negotiate(info, headers);
        let candidate = decide::candidate(info, caller, media, &policy, &self.session.lock());
        let candidate = match candidate {
            Ok(candidate) => candidate,
            Err(plan) => return plan,
        };
        let lookup = self.cache.lookup(&candidate.read.query, candidate.demand);
        let step = |lookup: &Lookup, session: &Session, now, waited| {
            decide::decide(&candidate, lookup, session, now, waited)
        };
        self.settle(arrived, lookup, step, log).await
    }

    /// Decides by what is held, again and again as long as it is worth waiting.
    async fn settle(
        &self,
        arrived: Instant,
        mut lookup: Lookup,
        decide: impl Fn(&Lookup, &Session, Instant, Duration) -> Step,
        log: &RequestLog,
    ) -> Plan {
        loop {
            let now = Instant::now();
            let step = decide(&lookup, &self.session.lock(), now, now - arrived);
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
        caller: Caller,
        target: &Target,
        answer: LocalRead,
        request: Request<Incoming>,
        log: &mut RequestLog,
    ) -> Result<Response<Body>, Error> {
        let version = answer.snapshot.version().clone();
        let level = answer.level;
        let mut reason = ForwardReason::NotAuthorized;
        if let Some(read) = readable(&target.info)
            && let Some(allowed) = self.authorize.read(read, answer, &target.review).await
        {
            let resource = read.query.resource.group_resource();
            self.session.lock().shown(&resource, &version, Source::Storage, Instant::now());
            let answered = self.local.read(read, allowed, &target.body, request.headers()).await;
            if let Some(mut response) = answered {
                self.warnings.repeat(&read.query.resource, response.headers_mut());
                return Ok(log.hit(level, response));
            }
            reason = ForwardReason::MediaType(UnmodelledMedia::PartialObjectMetadata);
        }
        let forward = Forward { reason, rewriting: Rewriting::Keep };
        self.forward(caller, &target.info, forward, request, log).await
    }

    async fn watch(
        &self,
        caller: Caller,
        target: &Target,
        answer: LocalWatch,
        mut request: Request<Incoming>,
        log: &mut RequestLog,
    ) -> Result<Response<Body>, Error> {
        let level = answer.level;
        let reason = match self.open_watch(target, answer, request.headers()).await {
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
        let forward = Forward { reason, rewriting: Rewriting::Keep };
        log.decided(&Plan::Forward(forward.clone()));
        self.forward(caller, &target.info, forward, request, log).await
    }

    async fn open_watch(
        &self,
        target: &Target,
        answer: LocalWatch,
        headers: &HeaderMap,
    ) -> Result<(Watching, Asked), ForwardReason> {
        let watch = target.info.resource_request().and_then(|request| request.watch.as_ref());
        let watch = watch.ok_or(ForwardReason::NotModelled(NotModelled::Watch))?;
        let allowed = self.authorize.watch(watch, answer).await;
        let allowed = allowed.ok_or(ForwardReason::NotAuthorized)?;
        let asked = Asked::of(headers);
        let transport = match asked {
            Asked::WebSocket(_) => Transport::WebSocket,
            Asked::No | Asked::Other => Transport::Http,
        };
        let terms = Terms { transport, fraction: self.cache.fraction(), now: Instant::now() };
        Ok((self.watches.open(watch, allowed, terms)?, asked))
    }

    async fn share(
        &self,
        caller: Caller,
        info: &RequestInfo,
        reason: ForwardReason,
        request: Request<Incoming>,
        log: &mut RequestLog,
    ) -> Result<Response<Body>, Error> {
        let key = CoalesceKey::new(caller, &request);
        let rewriting = Rewriting::Keep;
        let send = || self.forwarder.forward(caller, info, &rewriting, request, &self.session);
        match self.coalesce.fly(key, send).await {
            Ok(Landed::Sent(response)) => Ok(log.forwarded(reason, response)),
            Ok(Landed::Shared(response)) => Ok(log.coalesced(reason, response)),
            Err(error) => Err(Error::upstream(error, info)),
        }
    }

    async fn forward(
        &self,
        caller: Caller,
        info: &RequestInfo,
        forward: Forward,
        request: Request<Incoming>,
        log: &mut RequestLog,
    ) -> Result<Response<Body>, Error> {
        let Forward { reason, rewriting } = forward;
        let sent = self.forwarder.forward(caller, info, &rewriting, request, &self.session).await;
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

/// The read a request makes, when it makes one.
fn readable(info: &RequestInfo) -> Option<&Read> {
    match info {
        RequestInfo::Resource(request) => request.read.as_ref().ok(),
        RequestInfo::NonResource(_) => None,
    }
}

/// What a read or a watch selects, and from which version.
fn sought(info: &RequestInfo) -> Option<(&Query, &VersionMatch)> {
    let request = info.resource_request()?;
    match (&request.read, &request.watch) {
        (Ok(read), _) => Some((&read.query, &read.version)),
        (Err(_), Some(watch)) => Some((&watch.query, &watch.version)),
        (Err(_), None) => None,
    }
}

fn negotiate(info: &RequestInfo, headers: &HeaderMap) -> Negotiated {
    Negotiated::of(headers, readable(info).and_then(|read| read.pretty.as_deref()))
}
