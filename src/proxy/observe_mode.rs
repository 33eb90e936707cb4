//! Mode `observe`: every request is forwarded unchanged, and the outcome in mode `enforce` is
//! computed beside it.
//!
//! The same code makes the decision, with the same replicas and the session as mode `enforce` would
//! have it. No request waits for it. A wait that `enforce` would make counts as successful. An
//! access review that is not known yet counts as refused.

mod permissions;

use std::sync::Arc;

use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Duration, Instant},
};

use super::{
    Proxy,
    decide::{
        DocumentPlan, DocumentSource, Forward, ForwardReason, LocalRead, Plan, Rewriting, Step,
    },
    discovery::{Known, Offer},
    evidence::weigh,
    forward::Learners,
    pacing::Toll,
    planning::Question,
    request_log::RequestLog,
    session::Source,
    sessions::{RequestContext, SharedSession},
    shadow::Check,
    target::Target,
    write_observer,
};
use crate::{
    api::{request::RequestInfo, version::VersionMatch},
    body::Body,
    cache::{Attached, Lookup, Replica, portion::Portion},
    config::Config,
    error::Error,
    metrics::Would,
    policy::ResourcePolicy,
};

/// The outcome of a request in mode `enforce`.
pub(super) struct Prediction {
    /// The final outcome.
    pub(super) would: Would,
    /// `true` if it would have been held first.
    pub(super) paced: bool,
    /// The token it would have cost.
    pub(super) toll: Option<Toll>,
    /// The reason of its forward, if it would have been forwarded.
    pub(super) reason: Option<ForwardReason>,
    /// The rewriting of that forward.
    rewriting: Rewriting,
    /// The response from the cache.
    answer: Option<Answer>,
    /// The replica of a watch, kept in use.
    pub(super) attached: Option<Attached>,
}

/// A response from the cache.
struct Answer {
    replica: Arc<Replica>,
    read: LocalRead,
}

/// The background requests, such as access reviews, that the estimate of later requests needs.
pub(super) struct Prefetches(Arc<Semaphore>);

/// The limit of concurrent background requests.
const PREFETCHES_MAX: usize = 64;

// === impl Proxy ===

impl Proxy {
    /// Forwards a request unchanged, and records its outcome in mode `enforce`.
    pub(super) async fn observe(
        &self,
        context: &RequestContext,
        target: &Arc<Target>,
        config: &Config,
        request: Request<Incoming>,
        log: &mut RequestLog,
    ) -> Result<Response<Body>, Error> {
        if matches!(target.info, RequestInfo::NonResource(_)) {
            return self.observe_document(context, &target.info, request, log).await;
        }
        let is_known = self.authorize.knows(context.caller());
        let mut noticed = self.discovery.notice(&target.info, is_known);
        let session = self.predicted.of(context.caller(), Instant::now());
        let mut predicted = self.predict(context, &session, target, config, request.headers());
        let check = self.check(target, &predicted, config);
        let forward = Forward { reason: ForwardReason::Observe, rewriting: Rewriting::Keep };
        let (caller, info) = (context.caller(), &target.info);
        let write_observer = write_observer::of(info, log.asker(), &self.insight, &self.cache);
        let learners = Learners {
            write_observer: write_observer.as_ref(),
            session: &context.session,
            predicted: predicted.is_sent().then_some((&session, &predicted.rewriting)),
        };
        let sent = self
            .forwarder
            .forward(context.sender(), info, &forward.rewriting, request, learners)
            .await;
        log.decided(&Plan::Forward(forward));
        if let (Ok(_), Some(reason)) = (&sent, predicted.reason) {
            self.hint(reason, info);
        }
        log.predicted(&mut predicted);
        let response = sent.map_err(|error| Error::upstream(error, info))?;
        if let Some(noticed) = &mut noticed {
            noticed.answered(response.status());
        }
        self.pacing.wrote(caller, info, &response);
        let response = match check {
            Some(check) => check.attach(response),
            None => response,
        };
        Ok(log.forwarded(ForwardReason::Observe, response))
    }

    /// Does the same for a request without a resource: a document is stored as often as `enforce`
    /// would fetch it.
    async fn observe_document(
        &self,
        context: &RequestContext,
        info: &RequestInfo,
        request: Request<Incoming>,
        log: &mut RequestLog,
    ) -> Result<Response<Body>, Error> {
        let plan = self.plan_document(context.caller(), &request).await;
        let sent = match &plan {
            Plan::Document(DocumentPlan { wanted, source: DocumentSource::Ask(known) }) => {
                let known = Known { document: known.as_ref(), offered: Offer::Nothing };
                let asked = self.ask_for(context, info, wanted, known, request).await;
                asked.map(|(response, _)| response)
            }
            _ => {
                let (sender, learners) = (context.sender(), Learners::one(&context.session));
                self.forwarder.forward(sender, info, &Rewriting::Keep, request, learners).await
            }
        };
        let reason = ForwardReason::Observe;
        log.decided(&Plan::Forward(Forward { reason, rewriting: Rewriting::Keep }));
        log.predicted(&mut Prediction::by(&plan));
        Ok(log.forwarded(reason, sent.map_err(|error| Error::upstream(error, info))?))
    }

    /// Returns the outcome in mode `enforce`, decided at once.
    fn predict(
        &self,
        context: &RequestContext,
        session: &SharedSession,
        target: &Arc<Target>,
        config: &Config,
        headers: &HeaderMap,
    ) -> Prediction {
        let (caller, now) = (context.caller(), Instant::now());
        let rules = target.rules(&config.policy, headers);
        let predicted = match self.question(target, &rules, headers, session) {
            Ok(question) => self.predict_answer(context, session, target, &rules, &question),
            Err(plan) => Prediction::by(&plan),
        };
        let Some(plan) = predicted.plan() else { return predicted };
        let paced = self.pacing.check(&plan, target, caller, &rules, now);
        match paced.plan {
            Some(Plan::Reject(_)) => Prediction::of(Would::Reject),
            plan => Prediction { toll: paced.toll, ..predicted }.after_pacing(plan.is_some()),
        }
    }

    fn predict_answer(
        &self,
        context: &RequestContext,
        session: &SharedSession,
        target: &Arc<Target>,
        rules: &ResourcePolicy,
        question: &Question<'_>,
    ) -> Prediction {
        let attributes_of = |request: &_| question.attributes(context.caller(), request);
        if let Err(reason) = self.predict_permissions(context, target, rules, attributes_of) {
            return Prediction::by(&question.refused(reason));
        }
        let (lookup, now) = (question.lookup(&self.cache), Instant::now());
        weigh(&self.cache, session, question.query(), &lookup);
        let mut session = session.lock();
        let plan = match question.decide(&lookup, &session, now, Duration::ZERO) {
            Step::Act(plan) => Some(plan),
            Step::Await(_) => None,
        };
        let would = match question {
            Question::Read(_) => Would::Read,
            Question::Watch(_) => Would::Watch,
        };
        let mut predicted = plan.as_ref().map_or_else(|| Prediction::of(would), Prediction::by);
        let Lookup::Found(view) = lookup else { return predicted };
        if predicted.would == Would::Watch {
            predicted.attached = Some(view.replica.attach());
        }
        if let Some(Plan::Read(read)) = plan {
            let version = read.snapshot.version();
            session.shown_by(view.replica.shape(), version, Source::Storage, now);
            predicted.answer = Some(Answer { replica: view.replica, read });
        }
        predicted
    }

    /// Reports whether the response is compared with the one from the cache.
    fn check(&self, target: &Target, predicted: &Prediction, config: &Config) -> Option<Check> {
        let answer = predicted.answer.as_ref()?;
        let read = target.info.resource_request()?.read.as_ref().ok()?;
        // A response to another read may be older than the cache; a page has a token of its version.
        if answer.read.portion != Portion::default() {
            return None;
        }
        if read.version != VersionMatch::MostRecent || self.cache.fraction() >= config.check_share {
            return None;
        }
        self.shadow.check(read, &answer.read, &answer.replica)
    }
}

// === impl Prediction ===

impl Prediction {
    fn of(would: Would) -> Self {
        let (toll, reason, answer, attached) = (None, None, None, None);
        Self { would, paced: false, toll, reason, rewriting: Rewriting::Keep, answer, attached }
    }

    fn by(plan: &Plan) -> Self {
        match plan {
            Plan::Read(_) => Self::of(Would::Read),
            Plan::Watch(_) => Self::of(Would::Watch),
            Plan::Reject(_) => Self::of(Would::Reject),
            Plan::Pace(_) => Self::of(Would::Pace),
            Plan::Document(DocumentPlan { source: DocumentSource::Memory(..), .. }) => {
                Self::of(Would::Discovery)
            }
            Plan::Document(_) => {
                Self { reason: Some(ForwardReason::Discovery), ..Self::of(Would::Forward) }
            }
            Plan::Share(forward) => Self::of(Would::Share).sent(forward),
            Plan::Forward(forward) => Self::of(Would::Forward).sent(forward),
        }
    }

    fn sent(self, forward: &Forward) -> Self {
        let (reason, rewriting) = (Some(forward.reason), forward.rewriting.clone());
        Self { reason, rewriting, ..self }
    }

    /// Returns the plan that the limits on repeated reads apply to, if it is known.
    fn plan(&self) -> Option<Plan> {
        match (&self.answer, self.reason) {
            (Some(answer), _) => Some(Plan::Read(answer.read.clone())),
            (None, Some(reason)) => {
                Some(Plan::Forward(Forward { reason, rewriting: self.rewriting.clone() }))
            }
            (None, None) => None,
        }
    }

    /// Returns the same with the shared forward of a held read: it is sent together with those it
    /// waited with.
    fn after_pacing(self, paced: bool) -> Self {
        let would = match self.would {
            Would::Forward if paced => Would::Share,
            would => would,
        };
        Self { would, paced, ..self }
    }

    /// Reports whether the session would also have learned from the apiserver's response. A watch
    /// would show only its replica's state, in a known format. This holds even if another request
    /// is forwarded in its place.
    fn is_sent(&self) -> bool {
        matches!(self.would, Would::Share | Would::Forward)
    }
}

// === impl Prefetches ===

impl Prefetches {
    fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().try_acquire_owned().ok()
    }
}

impl Default for Prefetches {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PREFETCHES_MAX)))
    }
}
