//! May this caller have this from memory? The only maker of [`Authorized`].
//!
//! The apiserver decides: a SelfSubjectAccessReview in the caller's own name, remembered for ten
//! seconds, renewed ahead, and shared by concurrent reads. Our own user is asked about by its rules,
//! which are believed for a minute. Whatever is not a clean "allowed" is forwarded. No token outlives
//! the requests that brought it.

mod attributes;
mod decided;
mod foretold;
mod lifetime;
mod message;
mod permit;
mod rules;

use std::{
    hash::Hash,
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use tokio::{sync::Semaphore, time::Instant};

pub(super) use self::lifetime::left as token_left;
pub use self::{attributes::Attributes, decided::Remembered, permit::Permit};
use self::{
    decided::{Decided, OWN_TTL},
    rules::Rules,
};
use crate::{
    api::pushback::{RETRY_AFTER_MAX, retry_after},
    body::Body,
    hash::RandomState,
    limit::{Ceiling, Rate},
    metrics::{Limit, Metrics, Review as Reviewed},
    mutants::{Mutant, is_on},
    proxy::identify::Caller,
    upstream::{Client, Lane},
};

/// Something the apiserver allowed this caller to have.
#[derive(Debug)]
pub struct Authorized<T>(T);

/// A caller and what proves it, for as long as its request goes on.
///
/// It has neither `Debug` nor `Display`, so that no token can reach a log.
#[derive(Clone)]
pub struct Asker {
    caller: Caller,
    /// Of a bearer; our own user's is added on the way.
    credential: Option<HeaderValue>,
}

/// The access reviews of all callers; cheap to clone.
#[derive(Clone)]
pub struct Authorize {
    own: Arc<dyn Client>,
    plain: Arc<dyn Client>,
    reviews: moka::future::Cache<Question, Arc<Decided>, RandomState>,
    /// What the apiserver did not answer, and for how long it wants not to be asked.
    postponed: moka::future::Cache<Question, Arc<Decided>, RandomState>,
    /// The rules of our own user, by namespace.
    rules: moka::future::Cache<Arc<str>, Arc<Rules>, RandomState>,
    /// Reviews of bearers that may be under way at a time.
    places: Arc<Semaphore>,
    /// Reviews that may be asked in a while.
    ceiling: Arc<Ceiling>,
    metrics: Metrics,
}

/// May this caller do that? No token is part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Question {
    caller: Caller,
    attributes: Attributes,
}

/// No review was had: neither allowed nor denied.
#[derive(Clone, Copy, Debug)]
struct NoReview;

/// How long a review is believed.
const REVIEW_TTL: Duration = Duration::from_secs(10);

/// A review in use that is older than this is renewed while it is still believed, so that no read
/// waits for one, and a short absence of the apiserver is bridged.
const RENEW_AFTER: Duration = Duration::from_secs(5);

/// How many reviews are remembered.
const REVIEWS_MAX: u64 = 10_000;

/// How many reviews of bearers may be under way; the reads of others are forwarded meanwhile, so that
/// callers with ever new tokens cost the apiserver hardly more than they would without us.
const BEARER_REVIEWS_MAX: usize = 128;

/// How many reviews may be asked a second, and at once; the reads of others are forwarded meanwhile,
/// which costs no more than without us.
const REVIEWS_PER_SECOND: f64 = 500.0;

/// See [`REVIEWS_PER_SECOND`].
const REVIEWS_BURST: u32 = 1000;

/// How long a review may take; the read is forwarded then.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(2);

/// The largest answer to a review that is read.
const REVIEW_BYTES_MAX: usize = 64 * 1024;

// === impl Authorized ===

impl<T> Authorized<T> {
    /// What was allowed.
    pub fn into_inner(self) -> T {
        self.0
    }
}

// === impl Asker ===

impl Asker {
    /// Whoever sent these headers, whom [`Identify`](super::identify::Identify) took for `caller`.
    pub fn new(caller: Caller, headers: &HeaderMap) -> Self {
        let credential = match caller {
            Caller::Bearer(_) => headers.get(header::AUTHORIZATION).cloned().map(secret),
            Caller::Own | Caller::Other(_) => None,
        };
        Self { caller, credential }
    }

    /// Who it is.
    pub fn caller(&self) -> Caller {
        self.caller
    }
}

fn secret(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

// === impl Authorize ===

impl Authorize {
    /// Reviews in our own user's name through `own`, and in that of bearers through `plain`.
    pub fn new(own: Arc<dyn Client>, plain: Arc<dyn Client>, metrics: Metrics) -> Self {
        let (reviews, postponed, rules) = (remembering(), remembering(), remembering());
        let places = Arc::new(Semaphore::new(BEARER_REVIEWS_MAX));
        let rate = Rate::new(REVIEWS_PER_SECOND, REVIEWS_BURST);
        let ceiling = Arc::new(Ceiling::new(rate, Instant::now()));
        Self { own, plain, reviews, postponed, rules, places, ceiling, metrics }
    }

    /// The thing, if the apiserver would give one like it to who asks; `remembered` is of this very
    /// question, asked by this very caller.
    pub async fn grant<T>(
        &self,
        asker: &Asker,
        attributes: impl FnOnce() -> Attributes,
        remembered: &Remembered,
        thing: T,
    ) -> Option<Authorized<T>> {
        self.allows(asker, attributes, remembered).await.then_some(Authorized(thing))
    }

    /// Whether the apiserver would let who asks do that; `remembered` as above.
    pub async fn allows(
        &self,
        asker: &Asker,
        attributes: impl FnOnce() -> Attributes,
        remembered: &Remembered,
    ) -> bool {
        if matches!(asker.caller, Caller::Other(_)) {
            return false;
        }
        if let Some(decided) = remembered.fresh() {
            return decided.allowed;
        }
        let caller = if is_on(Mutant::CallersShareReview) { Caller::Own } else { asker.caller };
        let question = Question { caller, attributes: attributes() };
        let Some(decided) = self.decided(asker, question).await else { return false };
        let allowed = decided.allowed;
        remembered.0.store(Some(decided));
        allowed
    }

    /// What was decided in the last few seconds, or is now; an older answer, as long as it is
    /// believed at all, only if there is no newer one.
    async fn decided_lately(
        &self,
        asker: &Asker,
        question: Question,
        age_max: Duration,
    ) -> Option<Arc<Decided>> {
        let held = self.reviews.get(&question).await;
        let old = held.filter(|decided| decided.at.elapsed() >= age_max);
        if old.is_some() {
            self.reviews.invalidate(&question).await;
        }
        let newer = self.decided(asker, question.clone()).await;
        let old = old.filter(|old| newer.is_none() && old.at.elapsed() < old.lifetime);
        if let Some(old) = old {
            self.reviews.insert(question, old.clone()).await;
            return Some(old);
        }
        newer
    }

    /// Tells how many reviews are remembered.
    pub async fn report(&self) {
        // Without it, entries are counted only when the table gets round to it.
        self.reviews.run_pending_tasks().await;
        self.metrics.reviews_cached(self.reviews.entry_count());
    }

    async fn decided(&self, asker: &Asker, question: Question) -> Option<Arc<Decided>> {
        if let Some(decided) = self.reviews.get(&question).await {
            let age = decided.at.elapsed();
            if age < decided.lifetime {
                if age >= decided.renew_after && !decided.renewing.swap(true, Ordering::Relaxed) {
                    tokio::spawn(self.clone().renew(asker.clone(), question, decided.clone()));
                }
                return Some(decided);
            }
            self.reviews.invalidate(&question).await;
        }
        let review = self.review(asker, &question);
        self.reviews.try_get_with_by_ref(&question, review).await.ok()
    }

    /// Asks again; without an answer the old one goes on until it has run out.
    async fn renew(self, asker: Asker, question: Question, old: Arc<Decided>) {
        match self.review(&asker, &question).await {
            Ok(decided) => self.reviews.insert(question, decided).await,
            Err(NoReview) => old.renewing.store(false, Ordering::Relaxed),
        }
    }

    async fn review(&self, asker: &Asker, question: &Question) -> Result<Arc<Decided>, NoReview> {
        if let Some(postponed) = self.postponed.get(question).await {
            if postponed.at.elapsed() < postponed.lifetime {
                return Err(NoReview);
            }
            self.postponed.invalidate(question).await;
        }
        if asker.caller == Caller::Own
            && let Some(decided) = Box::pin(self.by_rules(question)).await?
        {
            return Ok(decided);
        }
        self.may_ask()?;
        let decided = match &asker.credential {
            None => self.ask(&*self.own, None, question).await,
            Some(credential) => match self.places.try_acquire() {
                Ok(_place) => self.ask(&*self.plain, Some(credential), question).await,
                Err(_) => Err(NoReview),
            },
        };
        self.metrics.reviewed(match &decided {
            Ok(decided) if decided.allowed => Reviewed::Allowed,
            Ok(_) => Reviewed::Denied,
            Err(NoReview) => Reviewed::Failed,
        });
        decided.map(Arc::new)
    }

    fn may_ask(&self) -> Result<(), NoReview> {
        self.ceiling.take(Instant::now()).map_err(|_| {
            self.metrics.limit_reached(Limit::OwnRequests);
            NoReview
        })
    }

    async fn ask(
        &self,
        client: &dyn Client,
        credential: Option<&HeaderValue>,
        question: &Question,
    ) -> Result<Decided, NoReview> {
        let at = Instant::now();
        let request = message::request(&question.attributes, credential).ok_or(NoReview)?;
        let (code, body) = self.exchange(client, request, question).await?;
        let allowed = match code {
            code if code.is_success() => message::is_allowed(&body).ok_or(NoReview)?,
            // Nobody, or nobody who may ask: remembered, so that they are not asked about each time.
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if credential.is_some() => false,
            _ => return Err(NoReview),
        };
        let Some(credential) = credential else { return Ok(Decided::of_own(allowed, at)) };
        let left = lifetime::left(credential, SystemTime::now());
        let lifetime = left.map_or(REVIEW_TTL, |left| left.min(REVIEW_TTL));
        Ok(Decided { allowed, at, lifetime, renew_after: RENEW_AFTER, renewing: false.into() })
    }

    /// Sends a review. If the apiserver asks for patience, the question is not asked again meanwhile.
    async fn exchange(
        &self,
        client: &dyn Client,
        request: Request<Body>,
        question: &Question,
    ) -> Result<(StatusCode, Bytes), NoReview> {
        let exchange = async {
            let response = client.send(request, Lane::Short).await.map_err(|_| NoReview)?;
            let code = response.status();
            if let (false, Some(told)) = (code.is_success(), retry_after(response.headers())) {
                let postponed = Decided {
                    lifetime: told.min(RETRY_AFTER_MAX),
                    ..Decided::of_own(false, Instant::now())
                };
                self.postponed.insert(question.clone(), Arc::new(postponed)).await;
            }
            let body = response.into_body().collect(REVIEW_BYTES_MAX).await;
            Ok((code, body.map_err(|_| NoReview)?))
        };
        tokio::time::timeout(REVIEW_TIMEOUT, exchange).await.map_err(|_| NoReview)?
    }
}

fn remembering<K, V>() -> moka::future::Cache<K, V, RandomState>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    moka::future::Cache::builder()
        .max_capacity(REVIEWS_MAX)
        .build_with_hasher(RandomState::default())
}

#[cfg(test)]
mod tests;
