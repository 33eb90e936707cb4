//! Authorization of cached responses; the only module that makes an [`Authorized`].
//!
//! The apiserver decides. A bearer's read needs a SelfSubjectAccessReview in the bearer's own name.
//! Its result is kept for ten seconds, renewed early and shared by concurrent reads. For Listless's
//! own user, a review of its rules is kept for a minute. Everything that is not clearly allowed is
//! forwarded. No token is kept longer than the requests that carry it.

mod attributes;
mod decided;
mod everywhere;
mod lifetime;
mod message;
mod permit;
mod predict;
mod quota;
mod rules;

use std::{
    hash::Hash,
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use tokio::time::Instant;

pub(super) use self::lifetime::left as token_left;
pub use self::{attributes::Attributes, decided::Remembered, permit::Permit};
use self::{
    decided::{Decided, OWN_TTL},
    quota::Quotas,
    rules::Rules,
};
use crate::{
    api::pushback::{RETRY_AFTER_MAX, retry_after},
    body::Body,
    hash::RandomState,
    metrics::{Metrics, Review as Reviewed},
    proxy::identify::{BearerId, Caller},
    suspension::Suspension,
    upstream::{Client, Judgement, Lane},
};

/// A value that the apiserver allowed this caller to have.
#[derive(Debug)]
pub struct Authorized<T>(T);

/// A caller and its credential, for as long as its request lasts.
///
/// It implements neither `Debug` nor `Display`, which keeps tokens out of logs.
#[derive(Clone)]
pub struct Asker {
    caller: Caller,
    /// The credential of a bearer; the credential of Listless's own user is added on the way.
    credential: Option<HeaderValue>,
}

/// The access reviews of all callers; cheap to clone.
#[derive(Clone)]
pub struct Authorize {
    own: Arc<dyn Client>,
    plain: Arc<dyn Client>,
    reviews: moka::future::Cache<ReviewKey, Arc<Decided>, RandomState>,
    /// Reviews that the apiserver did not answer, and the time before which it must not be asked
    /// again.
    postponed: moka::future::Cache<ReviewKey, Arc<Decided>, RandomState>,
    /// The rules of Listless's own user, by namespace.
    rules: moka::future::Cache<Arc<str>, Arc<Rules>, RandomState>,
    quotas: Arc<Quotas>,
    suspension: Arc<Suspension>,
    metrics: Metrics,
}

/// A caller and the attributes of a request, without a token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ReviewKey {
    caller: Caller,
    attributes: Attributes,
}

/// A failed review: neither allowed nor denied.
#[derive(Clone, Copy, Debug)]
struct NoReview;

/// The lifetime of a review.
const REVIEW_TTL: Duration = Duration::from_secs(10);

/// The age from which a review in use is renewed. The old result stays valid meanwhile: no read
/// waits for the renewal, and a short outage of the apiserver is bridged.
const RENEW_AFTER: Duration = Duration::from_secs(5);

/// The limit of remembered reviews.
const REVIEWS_MAX: u64 = 10_000;

/// The timeout of a review; the read is then forwarded.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(2);

/// The largest response to a review that is read.
const REVIEW_BYTES_MAX: usize = 64 * 1024;

// === impl Authorized ===

impl<T> Authorized<T> {
    /// Returns the allowed value.
    pub fn into_inner(self) -> T {
        self.0
    }
}

// === impl Asker ===

impl Asker {
    /// Creates the asker of a request with these headers, whose caller
    /// [`Identify`](super::identify::Identify) found.
    pub fn new(caller: Caller, headers: &HeaderMap) -> Self {
        let credential = match caller {
            Caller::Bearer(_) => headers.get(header::AUTHORIZATION).cloned().map(secret),
            Caller::Own | Caller::Other(_) => None,
        };
        Self { caller, credential }
    }

    /// Returns the same in memory of its own: a header's value keeps the whole buffer of its request.
    fn apart(&self) -> Self {
        let copy = |value: &HeaderValue| HeaderValue::from_bytes(value.as_bytes()).ok();
        Self {
            caller: self.caller,
            credential: self.credential.as_ref().and_then(copy).map(secret),
        }
    }

    /// Returns the caller.
    pub fn caller(&self) -> Caller {
        self.caller
    }

    /// Returns the id of its token and the credential, if the caller is the bearer of a token.
    pub(super) fn bearer(&self) -> Option<(BearerId, &HeaderValue)> {
        match (self.caller, &self.credential) {
            (Caller::Bearer(id), Some(credential)) => Some((id, credential)),
            _ => None,
        }
    }
}

fn secret(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

// === impl Authorize ===

impl Authorize {
    /// Creates the reviews: through `own` for Listless's own user, and through `plain` for bearers.
    pub fn new(own: Arc<dyn Client>, plain: Arc<dyn Client>, metrics: Metrics) -> Self {
        let (reviews, postponed, rules) = (remembering(), remembering(), remembering());
        let quotas = Arc::new(Quotas::new(remembering()));
        let suspension = Arc::new(Suspension::of_machine());
        Self { own, plain, reviews, postponed, rules, quotas, suspension, metrics }
    }

    /// Returns the value if the apiserver would give an equal one to the asker. `remembered`
    /// belongs to this question of this caller.
    pub async fn grant<T>(
        &self,
        asker: &Asker,
        attributes: impl FnOnce() -> Attributes,
        remembered: &Remembered,
        thing: T,
    ) -> Option<Authorized<T>> {
        self.allows(asker, attributes, remembered).await.then_some(Authorized(thing))
    }

    /// Reports whether the apiserver would let the asker do that; `remembered` as in
    /// [`Self::grant`].
    pub async fn allows(
        &self,
        asker: &Asker,
        attributes: impl FnOnce() -> Attributes,
        remembered: &Remembered,
    ) -> bool {
        if matches!(asker.caller, Caller::Other(_)) {
            return false;
        }
        if self.suspension.is_over() {
            self.forget();
        }
        if let Some(decided) = remembered.fresh() {
            return decided.allowed;
        }
        let review_key = ReviewKey { caller: asker.caller, attributes: attributes() };
        // Boxed, so that the other requests move no large future.
        let Some(decided) = Box::pin(self.decided(asker, review_key)).await else { return false };
        let allowed = decided.allowed;
        remembered.0.store(Some(decided));
        allowed
    }

    /// Returns a recent or concurrent decision. Returns an older one that is still valid only if
    /// there is no newer one.
    async fn decided_lately(
        &self,
        asker: &Asker,
        review_key: ReviewKey,
        age_max: Duration,
    ) -> Option<Arc<Decided>> {
        let held = self.reviews.get(&review_key).await;
        let old = held.filter(|decided| decided.at.elapsed() >= age_max);
        if old.is_some() {
            self.reviews.invalidate(&review_key).await;
        }
        let newer = self.decided(asker, review_key.clone()).await;
        let old = old.filter(|old| newer.is_none() && old.is_valid());
        if let Some(old) = old {
            self.reviews.insert(review_key, old.clone()).await;
            return Some(old);
        }
        newer
    }

    /// Reports whether the apiserver knows the caller: it is Listless's own user, or the bearer of a
    /// token that was accepted before.
    pub fn knows(&self, caller: Caller) -> bool {
        match caller {
            Caller::Own => true,
            Caller::Bearer(id) => self.quotas.have_accepted(id),
            Caller::Other(_) => false,
        }
    }

    /// Learns from the apiserver's response to a request of this caller.
    pub async fn learn(&self, caller: Caller, judgement: Judgement) {
        if let Caller::Bearer(id) = caller {
            self.quotas.learn(id, judgement).await;
        }
    }

    /// Publishes the number of remembered reviews as a metric.
    pub async fn report(&self) {
        // Without this call, the table counts its entries only at some later time.
        self.reviews.run_pending_tasks().await;
        self.metrics.reviews_cached(self.reviews.entry_count());
    }

    /// Forgets every review: their age is unknown.
    fn forget(&self) {
        for (_, decided) in &self.reviews {
            decided.void.store(true, Ordering::Relaxed);
        }
        self.reviews.invalidate_all();
        self.rules.invalidate_all();
    }

    async fn decided(&self, asker: &Asker, review_key: ReviewKey) -> Option<Arc<Decided>> {
        if let Some(decided) = self.reviews.get(&review_key).await {
            if decided.is_valid() {
                if decided.begin_renewal() {
                    tokio::spawn(self.clone().renew(asker.clone(), review_key, decided.clone()));
                }
                return Some(decided);
            }
            self.reviews.invalidate(&review_key).await;
        }
        let review = self.review(asker, &review_key);
        self.reviews.try_get_with_by_ref(&review_key, review).await.ok()
    }

    /// Repeats a review.
    async fn renew(self, asker: Asker, review_key: ReviewKey, old: Arc<Decided>) {
        let renewal = self.review_again(&asker, &review_key).await;
        self.renewed(review_key, &old, renewal).await;
    }

    /// Keeps the result of a renewal. If that failed, the old result stays until it expires.
    async fn renewed(
        &self,
        review_key: ReviewKey,
        old: &Decided,
        renewal: Result<Arc<Decided>, NoReview>,
    ) -> Option<Arc<Decided>> {
        let Ok(decided) = renewal else {
            old.renewing.store(false, Ordering::Relaxed);
            return None;
        };
        self.reviews.insert(review_key, decided.clone()).await;
        Some(decided)
    }

    async fn review(
        &self,
        asker: &Asker,
        review_key: &ReviewKey,
    ) -> Result<Arc<Decided>, NoReview> {
        if let Some(postponed) = self.postponed.get(review_key).await {
            if postponed.at.elapsed() < postponed.lifetime {
                return Err(NoReview);
            }
            self.postponed.invalidate(review_key).await;
        }
        if asker.caller == Caller::Own
            && let Some(decided) = Box::pin(self.by_rules(review_key)).await?
        {
            return Ok(decided);
        }
        let quota = self.quotas.of(asker.bearer().map(|(id, _)| id));
        quota.may_ask(&self.metrics)?;
        let decided = match &asker.credential {
            None => self.ask(&*self.own, None, review_key).await,
            Some(credential) => match quota.place() {
                Some(_place) => self.ask(&*self.plain, Some(credential), review_key).await,
                None => Err(NoReview),
            },
        };
        self.metrics.reviewed(match &decided {
            Ok(decided) if decided.allowed => Reviewed::Allowed,
            Ok(_) => Reviewed::Denied,
            Err(NoReview) => Reviewed::Failed,
        });
        decided.map(Arc::new)
    }

    async fn ask(
        &self,
        client: &dyn Client,
        credential: Option<&HeaderValue>,
        review_key: &ReviewKey,
    ) -> Result<Decided, NoReview> {
        let at = Instant::now();
        let request = message::request(&review_key.attributes, credential).ok_or(NoReview)?;
        let (code, body) = self.exchange(client, request, review_key).await?;
        self.learn(review_key.caller, Judgement::of(code, &HeaderMap::new())).await;
        let allowed = match code {
            code if code.is_success() => message::is_allowed(&body).ok_or(NoReview)?,
            // An unknown token, or one without the right to ask. It is remembered, to ask only
            // once.
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if credential.is_some() => false,
            _ => return Err(NoReview),
        };
        let Some(credential) = credential else { return Ok(Decided::of_own(allowed, at)) };
        let left = lifetime::left(credential, SystemTime::now());
        let lifetime = left.map_or(REVIEW_TTL, |left| left.min(REVIEW_TTL));
        Ok(Decided { lifetime, renew_after: RENEW_AFTER, ..Decided::of_own(allowed, at) })
    }

    /// Sends a review. If the apiserver answers with a retry delay, the question is not repeated
    /// before it ends.
    async fn exchange(
        &self,
        client: &dyn Client,
        request: Request<Body>,
        review_key: &ReviewKey,
    ) -> Result<(StatusCode, Bytes), NoReview> {
        let exchange = async {
            let response = client.send(request, Lane::Short).await.map_err(|_| NoReview)?;
            let code = response.status();
            if let (false, Some(delay)) = (code.is_success(), retry_after(response.headers())) {
                let postponed = Decided {
                    lifetime: delay.min(RETRY_AFTER_MAX),
                    ..Decided::of_own(false, Instant::now())
                };
                self.postponed.insert(review_key.clone(), Arc::new(postponed)).await;
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
