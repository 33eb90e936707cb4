//! The steps from a request to its plan: the queries before the decision, their order, and the
//! waits.
//!
//! [`decide`] makes the decisions. This module collects their input: the rules, the session, access
//! reviews, the replicas. A plan is then checked against the limits on repeated reads. A held read
//! is planned again when it is released.

use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use tokio::time::{Duration, Instant};

use super::{
    Proxy, SharedSession,
    aggregation::GroupServer,
    authorize::Attributes,
    coalesce::SendTime,
    decide::{
        self, Candidate, Forward, ForwardReason, Pace, Plan, Rewriting, Step, WatchCandidate,
    },
    evidence::weigh,
    identify::Caller,
    request_log::RequestLog,
    session::Session,
    sessions::RequestContext,
    target::{Target, negotiate, rest, sought},
};
use crate::{
    api::{
        Verb,
        media::Negotiated,
        query::Query,
        request::{RequestInfo, ResourceRequest, Rest, Start},
        version::VersionMatch,
    },
    body::Body,
    cache::{Cache, Demand, Lookup},
    error::Error,
    policy::ResourcePolicy,
    websocket::Asked,
};

/// A read or watch that memory could answer.
pub(super) enum Question<'a> {
    Read(Candidate<'a>),
    Watch(WatchCandidate<'a>),
}

// === impl Proxy ===

impl Proxy {
    /// Decides, and waits for a replica as long as the decision allows; then applies the limits on
    /// repeated reads.
    pub(super) async fn plan(
        &self,
        context: &RequestContext,
        target: &Target,
        rules: &ResourcePolicy,
        headers: &HeaderMap,
        log: &mut RequestLog,
    ) -> Plan {
        let arrived = Instant::now();
        let plan = self.plan_read(context, target, rules, headers, log).await;
        let paced = self.pacing.check(&plan, target, context.caller(), rules, arrived);
        log.costs(paced.toll);
        paced.plan.unwrap_or(plan)
    }

    /// Holds a poll, then answers it from the state at its release, or sends it with all that
    /// waited.
    pub(super) async fn pace(
        &self,
        context: &RequestContext,
        target: &Target,
        rules: &ResourcePolicy,
        pace: Pace,
        request: Request<Incoming>,
        log: &mut RequestLog,
    ) -> Result<Response<Body>, Error> {
        let since = Instant::now();
        self.pacing.hold(pace, target, context.caller(), rules).await;
        log.held(pace.limit, since.elapsed());
        let plan = self.plan_read(context, target, rules, request.headers(), log).await;
        match plan.after_hold() {
            Ok(answer) => self.read(context, target, answer, request, log).await,
            Err(forward) => {
                log.decided(&Plan::Share(forward.clone()));
                let send_time = SendTime::Together;
                self.share(context, &target.info, forward, send_time, request, log).await
            }
        }
    }

    async fn plan_read(
        &self,
        context: &RequestContext,
        target: &Target,
        rules: &ResourcePolicy,
        headers: &HeaderMap,
        log: &RequestLog,
    ) -> Plan {
        let (arrived, session) = (Instant::now(), &context.session);
        if let Some(rest) = rest(&target.info) {
            let media = negotiate(&target.info, headers);
            return self.plan_page(context, target, rules, media, rest).await;
        }
        let question = match self.question(target, rules, headers, session) {
            Ok(question) => question,
            Err(plan) => return plan,
        };
        let attributes_of = |request: &_| question.attributes(context.caller(), request);
        if let Err(reason) = self.may_know(context, target, rules, attributes_of).await {
            return question.refused(reason);
        }
        self.settle(session, &question, arrived, log).await
    }

    /// Returns the read or watch that memory could answer, or else the plan of its forward.
    pub(super) fn question<'a>(
        &self,
        target: &'a Target,
        rules: &ResourcePolicy,
        headers: &HeaderMap,
        session: &SharedSession,
    ) -> Result<Question<'a>, Plan> {
        let (info, caller) = (&target.info, target.caller());
        if info.verb() == Verb::Watch {
            let (media, asked) = (Negotiated::of_watch(headers), Asked::of(headers));
            let session = session.lock();
            let watch = decide::watch_candidate(info, caller, media, &asked, rules, &session)?;
            return Ok(Question::Watch(watch));
        }
        let media = negotiate(info, headers);
        let mut read = decide::candidate(info, caller, media, rules, &session.lock())?;
        // Only a page has a token.
        let token_form = |_| self.cache.token_form(&read.read.query.resource.group_resource());
        read.token_form = read.read.limit.and_then(token_form);
        Ok(Question::Read(read))
    }

    async fn plan_page(
        &self,
        context: &RequestContext,
        target: &Target,
        rules: &ResourcePolicy,
        media: Negotiated,
        rest: &Rest,
    ) -> Plan {
        let (info, caller) = (&target.info, context.caller());
        let candidate =
            decide::page_candidate(info, caller, media, rest, rules, &context.session.lock());
        let candidate = match candidate {
            Ok(candidate) => candidate,
            Err(plan) => return plan,
        };
        let attributes_of = |request: &_| Attributes::of_read(caller, request, candidate.read);
        if let Err(reason) = self.may_know(context, target, rules, attributes_of).await {
            return Plan::Forward(Forward { reason, rewriting: Rewriting::Keep });
        }
        let now = Instant::now();
        let kept = match &rest.read.version {
            VersionMatch::Exact(version) => {
                self.cache.kept(&rest.read.query, candidate.form(), version, now)
            }
            _ => None,
        };
        decide::decide_page(&candidate, rest, kept, now)
    }

    /// Checks whether the caller may know that a replica exists, and its state.
    ///
    /// Listless's own user may know all replicas: they were read in its name. A bearer must first
    /// be allowed the same read. Without it, no caller starts a replica, waits for one or learns of
    /// one. The content of the read must not depend on the caller. A server behind the apiserver may
    /// number versions as it likes, so its resources are read for the own user only if a rule names
    /// them.
    async fn may_know(
        &self,
        context: &RequestContext,
        target: &Target,
        rules: &ResourcePolicy,
        attributes_of: impl FnOnce(&ResourceRequest) -> Attributes,
    ) -> Result<(), ForwardReason> {
        let refused = Err(ForwardReason::NotAuthorized);
        let Some(request) = target.info.resource_request() else { return refused };
        let Caller::Bearer(_) = context.caller() else {
            if rules.named {
                return Ok(());
            }
            return match self.aggregation.server_for_own(&request.resource).await {
                GroupServer::Another => Err(ForwardReason::MayBeAggregated),
                GroupServer::Apiserver | GroupServer::Unknown => Ok(()),
            };
        };
        if !self.authorize.allows(&context.asker, || attributes_of(request), &target.review).await {
            return refused;
        }
        match self.aggregation.server(&request.resource).await {
            GroupServer::Apiserver => Ok(()),
            GroupServer::Another | GroupServer::Unknown => Err(ForwardReason::MayBeAggregated),
        }
    }

    /// Decides by the current state, and repeats that while a wait can help.
    async fn settle(
        &self,
        session: &SharedSession,
        question: &Question<'_>,
        arrived: Instant,
        log: &RequestLog,
    ) -> Plan {
        let mut lookup = question.lookup(&self.cache);
        loop {
            let now = Instant::now();
            weigh(&self.cache, session, question.query(), &lookup);
            let step = question.decide(&lookup, &session.lock(), now, now - arrived);
            match step {
                Step::Act(plan) => return plan,
                Step::Await(wait) => {
                    // A version that may be lost ends a watch unless it comes. In a quiet
                    // collection only a bookmark shows it.
                    if matches!(&lookup, Lookup::Found(view) if view.restored) {
                        wait.replica.lags();
                    }
                    let view = wait.replica.reach(&wait.reach, arrived + wait.patience).await;
                    log.waited(view.reaches(&wait.reach), now.elapsed());
                    lookup = Lookup::Found(view);
                }
            }
        }
    }

    /// Passes to the replicas the facts that a forward shows.
    pub(super) fn hint(&self, reason: ForwardReason, info: &RequestInfo) {
        match (reason, sought(info)) {
            (ForwardReason::LinkLost, Some((query, _))) => self.cache.retry_now(query),
            // A version that a request names may be a future one that no bookmark reaches.
            (ForwardReason::Behind, Some((query, version)))
                if !matches!(version, VersionMatch::NotOlderThan(_)) =>
            {
                self.cache.lags(query);
            }
            _ => {}
        }
    }
}

// === impl Question ===

impl Question<'_> {
    /// Returns the query that a replica must cover.
    pub(super) fn query(&self) -> &Query {
        match self {
            Self::Read(read) => &read.read.query,
            Self::Watch(watch) => &watch.watch.query,
        }
    }

    /// Returns the attributes that its caller must be allowed.
    pub(super) fn attributes(&self, caller: Caller, request: &ResourceRequest) -> Attributes {
        match self {
            Self::Read(read) => Attributes::of_read(caller, request, read.read),
            Self::Watch(watch) => Attributes::of_watch(caller, request, watch.watch),
        }
    }

    /// Returns the plan for a caller who may not know of replicas. The review may have failed: the
    /// apiserver refuses a caller without the right itself.
    pub(super) fn refused(&self, reason: ForwardReason) -> Plan {
        Plan::Forward(match self {
            Self::Read(_) => Forward { reason, rewriting: Rewriting::Keep },
            Self::Watch(watch) => Forward::detour(watch.watch, reason),
        })
    }

    /// Finds the replica. A watch that begins with the state is a list, and may be an informer's
    /// initial one.
    pub(super) fn lookup(&self, cache: &Cache) -> Lookup {
        let (form, demand) = match self {
            Self::Read(read) => (read.form(), read.demand),
            Self::Watch(watch) if watch.watch.start == Start::State => {
                (watch.form(), Demand::Repeated)
            }
            Self::Watch(watch) => (watch.form(), Demand::Ignore),
        };
        cache.lookup(self.query(), form, demand)
    }

    /// Decides whether the current state may answer it.
    pub(super) fn decide(
        &self,
        lookup: &Lookup,
        session: &Session,
        now: Instant,
        waited: Duration,
    ) -> Step {
        match self {
            Self::Read(read) => decide::decide(read, lookup, session, now, waited),
            Self::Watch(watch) => decide::decide_watch(watch, lookup, session, now, waited),
        }
    }
}
