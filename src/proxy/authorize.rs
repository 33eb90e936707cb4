//! May this caller read this from memory? The only maker of [`Authorized`].
//!
//! The apiserver decides: a SelfSubjectAccessReview with the caller's own identity, remembered for
//! ten seconds, renewed ahead, and shared by concurrent reads. Whatever is not a clean "allowed" is forwarded.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use http::{Method, Request, header};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{
    api::{
        Verb,
        query::Query,
        request::{Read, Watch},
    },
    body::Body,
    hash::RandomState,
    proxy::decide::{LocalRead, LocalWatch},
    upstream::{Client, Lane},
};

/// Something the apiserver allowed this caller to have.
#[derive(Debug)]
pub struct Authorized<T>(T);

/// The access reviews of one identity; cheap to clone.
#[derive(Clone)]
pub struct Authorize {
    client: Arc<dyn Client>,
    reviews: moka::future::Cache<Attributes, Arc<Decided>, RandomState>,
}

/// Leave to watch, which may be withdrawn.
#[derive(Clone)]
pub struct Permit {
    authorize: Authorize,
    attributes: Attributes,
}

/// What a review came to, kept where the next identical read finds it without a search.
#[derive(Default)]
pub struct Remembered(ArcSwapOption<Decided>);

/// What a review came to.
struct Decided {
    allowed: bool,
    at: Instant,
    /// Whether someone is asking again already.
    renewing: AtomicBool,
}

/// What is asked of the authorizer: `authorization.k8s.io/v1` ResourceAttributes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
struct Attributes {
    verb: &'static str,
    group: Arc<str>,
    version: Arc<str>,
    resource: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<Arc<str>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    kind: &'static str,
    api_version: &'static str,
    spec: ReviewSpec<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewSpec<'a> {
    resource_attributes: &'a Attributes,
}

#[derive(Deserialize)]
struct ReviewAnswer {
    status: ReviewStatus,
}

#[derive(Deserialize)]
struct ReviewStatus {
    allowed: bool,
    #[serde(default)]
    denied: bool,
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

/// How long a review may take; the read is forwarded then.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(2);

/// The largest answer to a review that is read.
const REVIEW_BYTES_MAX: usize = 64 * 1024;

const REVIEW_PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

// === impl Authorized ===

impl<T> Authorized<T> {
    /// What was allowed.
    pub fn into_inner(self) -> T {
        self.0
    }
}

// === impl Authorize ===

impl Authorize {
    /// Reviews for the identity `client` sends with.
    pub fn new(client: Arc<dyn Client>) -> Self {
        let reviews = moka::future::Cache::builder().max_capacity(REVIEWS_MAX);
        Self { client, reviews: reviews.build_with_hasher(RandomState::default()) }
    }

    /// The answer, if the apiserver would give one like it to this identity; `remembered` is of
    /// reads like this one only.
    pub async fn read(
        &self,
        read: &Read,
        answer: LocalRead,
        remembered: &Remembered,
    ) -> Option<Authorized<LocalRead>> {
        let decided = match remembered.fresh() {
            Some(decided) => decided,
            None => {
                let verb = if read.name.is_some() { Verb::Get } else { Verb::List };
                let decided = self.decided(attributes(verb, &read.query)).await?;
                remembered.0.store(Some(decided.clone()));
                decided
            }
        };
        decided.allowed.then_some(Authorized(answer))
    }

    /// The answer to a watch, if the apiserver would give one like it to this identity, and what
    /// tells later whether it still would.
    pub async fn watch(
        &self,
        watch: &Watch,
        answer: LocalWatch,
    ) -> Option<Authorized<(LocalWatch, Permit)>> {
        let attributes = attributes(Verb::Watch, &watch.query);
        let decided = self.decided(attributes.clone()).await?;
        let permit = Permit { authorize: self.clone(), attributes };
        decided.allowed.then_some(Authorized((answer, permit)))
    }

    async fn decided(&self, attributes: Attributes) -> Option<Arc<Decided>> {
        if let Some(decided) = self.reviews.get(&attributes).await {
            let age = decided.at.elapsed();
            if age < REVIEW_TTL {
                if age >= RENEW_AFTER && !decided.renewing.swap(true, Ordering::Relaxed) {
                    tokio::spawn(self.clone().renew(attributes, decided.clone()));
                }
                return Some(decided);
            }
            self.reviews.invalidate(&attributes).await;
        }
        self.reviews.try_get_with(attributes.clone(), self.review(attributes)).await.ok()
    }

    /// Asks again; without an answer the old one goes on until it has run out.
    async fn renew(self, attributes: Attributes, old: Arc<Decided>) {
        match self.review(attributes.clone()).await {
            Ok(decided) => self.reviews.insert(attributes, decided).await,
            Err(NoReview) => old.renewing.store(false, Ordering::Relaxed),
        }
    }

    async fn review(&self, attributes: Attributes) -> Result<Arc<Decided>, NoReview> {
        let at = Instant::now();
        let review = Review {
            kind: "SelfSubjectAccessReview",
            api_version: "authorization.k8s.io/v1",
            spec: ReviewSpec { resource_attributes: &attributes },
        };
        let body = serde_json::to_vec(&review).map_err(|_| NoReview)?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(REVIEW_PATH)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(Body::full(body))
            .map_err(|_| NoReview)?;
        let exchange = async {
            let response = self.client.send(request, Lane::Short).await.map_err(|_| NoReview)?;
            if !response.status().is_success() {
                return Err(NoReview);
            }
            response.into_body().collect(REVIEW_BYTES_MAX).await.map_err(|_| NoReview)
        };
        let answer =
            tokio::time::timeout(REVIEW_TIMEOUT, exchange).await.map_err(|_| NoReview)??;
        let answer: ReviewAnswer = serde_json::from_slice(&answer).map_err(|_| NoReview)?;
        let allowed = answer.status.allowed && !answer.status.denied;
        Ok(Arc::new(Decided { allowed, at, renewing: AtomicBool::new(false) }))
    }
}

// === impl Remembered ===

impl Remembered {
    /// What was decided, until it is time to ask again.
    fn fresh(&self) -> Option<Arc<Decided>> {
        let decided = self.0.load();
        decided.as_ref().filter(|decided| decided.at.elapsed() < RENEW_AFTER).cloned()
    }
}

fn attributes(verb: Verb, query: &Query) -> Attributes {
    let resource = &query.resource;
    Attributes {
        verb: verb.as_str(),
        group: resource.group.clone(),
        version: resource.version.clone(),
        resource: resource.resource.clone(),
        namespace: query.scope.namespace().map(Into::into),
    }
}

// === impl Permit ===

impl Permit {
    /// Whether the apiserver says no by now; without its answer the permit stands.
    pub async fn is_withdrawn(self) -> bool {
        let decided = self.authorize.decided(self.attributes).await;
        decided.is_some_and(|decided| !decided.allowed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::future::BoxFuture;
    use http::Response;

    use super::*;
    use crate::{
        api::{
            GroupVersionResource, Scope,
            media::Representation,
            query::Query,
            version::{Freshness, VersionMatch},
        },
        cache::testing::pods,
        proxy::decide::Level,
        upstream,
    };

    /// Answers reviews with a fixed body, and keeps what it was asked.
    struct Reviewer {
        status: u16,
        answer: &'static str,
        asked: Mutex<Vec<String>>,
    }

    impl Client for Reviewer {
        fn send(
            &self,
            request: Request<Body>,
            _: Lane,
        ) -> BoxFuture<'static, Result<Response<Body>, upstream::Error>> {
            self.asked.lock().expect("no panic holds it").push(request.uri().to_string());
            let response = Response::builder().status(self.status).body(Body::full(self.answer));
            Box::pin(async move { Ok(response.expect("a response")) })
        }

        fn upgrade(
            &self,
            request: Request<Body>,
        ) -> BoxFuture<'static, Result<Response<Body>, upstream::Error>> {
            self.send(request, Lane::Long)
        }
    }

    fn held() -> LocalRead {
        let level = Level::Configured(Freshness::Session);
        let representation = Representation::Object;
        LocalRead { snapshot: pods(1, &[]), representation, level }
    }

    fn list() -> Read {
        Read {
            query: Query::all(GroupVersionResource::new("", "v1", "pods"), Scope::All),
            name: None,
            version: VersionMatch::MostRecent,
            limit: None,
            pretty: None,
        }
    }

    async fn allowed(status: u16, answer: &'static str) -> (bool, usize) {
        let reviewer = Arc::new(Reviewer { status, answer, asked: Mutex::default() });
        let authorize = Authorize::new(reviewer.clone());
        let remembered = Remembered::default();
        let first = authorize.read(&list(), held(), &remembered).await.is_some();
        let second = authorize.read(&list(), held(), &remembered).await.is_some();
        let elsewhere = authorize.read(&list(), held(), &Remembered::default()).await.is_some();
        assert_eq!((first, first), (second, elsewhere));
        let asked = reviewer.asked.lock().expect("no panic holds it").len();
        (first, asked)
    }

    #[tokio::test]
    async fn only_a_clean_allow_opens_the_local_answer_and_it_is_remembered() {
        assert_eq!(allowed(201, r#"{"status":{"allowed":true}}"#).await, (true, 1));
        assert_eq!(allowed(201, r#"{"status":{"allowed":false}}"#).await, (false, 1));
        assert_eq!(allowed(201, r#"{"status":{"allowed":true,"denied":true}}"#).await, (false, 1));
        // What is not a review is not remembered either.
        assert_eq!(allowed(403, r#"{"status":{"allowed":true}}"#).await, (false, 3));
        assert_eq!(allowed(201, "{}").await, (false, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_is_renewed_ahead_and_never_believed_longer_than_its_time() {
        let (status, answer) = (201, r#"{"status":{"allowed":true}}"#);
        let reviewer = Arc::new(Reviewer { status, answer, asked: Mutex::default() });
        let authorize = Authorize::new(reviewer.clone());
        let remembered = Remembered::default();
        let asked_after = async |wait| {
            tokio::time::sleep(wait).await;
            assert!(authorize.read(&list(), held(), &remembered).await.is_some());
            tokio::task::yield_now().await;
            reviewer.asked.lock().expect("no panic holds it").len()
        };
        assert_eq!(asked_after(Duration::ZERO).await, 1);
        assert_eq!(asked_after(RENEW_AFTER.saturating_sub(Duration::from_millis(1))).await, 1);
        assert_eq!(asked_after(Duration::from_millis(1)).await, 2, "renewed ahead");
        assert_eq!(asked_after(Duration::from_secs(1)).await, 2);
        assert_eq!(asked_after(REVIEW_TTL).await, 3, "asked anew");
    }
}
