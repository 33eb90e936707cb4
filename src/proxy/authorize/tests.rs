use std::sync::Mutex;

use futures_util::future::BoxFuture;
use http::{Method, Request, Response};

use super::{
    decided::OWN_RENEW_AFTER,
    quota::{BEARER_REVIEWS_MAX, STRANGERS_PART},
    *,
};
use crate::{
    api::{GroupVersionResource, Scope, Verb},
    proxy::identify::{Identify, KnownTokens, TokenHasher, Unauthenticated},
    testing::pass,
    upstream,
};

/// A client that answers reviews with a fixed body and records the credential of each. It refuses
/// reviews of rules, unless it has an answer to them.
struct Reviewer {
    status: u16,
    answer: &'static str,
    rules: Option<&'static str>,
    asked: Mutex<Vec<String>>,
}

impl Reviewer {
    fn new(status: u16, answer: &'static str) -> Arc<Self> {
        Arc::new(Self { status, answer, rules: None, asked: Mutex::default() })
    }

    fn with_rules(rules: &'static str) -> Arc<Self> {
        Arc::new(Self { status: 201, answer: DENIED, rules: Some(rules), asked: Mutex::default() })
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic holds it").clone()
    }
}

impl Client for Reviewer {
    fn send(
        &self,
        request: Request<Body>,
        _: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, upstream::Error>> {
        if request.uri().path().ends_with("rulesreviews") && self.rules.is_none() {
            let absent = Response::builder().status(404).body(Body::full("{}"));
            return Box::pin(async move { Ok(absent.expect("a response")) });
        }
        let answer = self.rules.unwrap_or(self.answer);
        let credential = request.headers().get(header::AUTHORIZATION);
        let credential = credential.map_or("none", |value| value.to_str().expect("a text"));
        self.asked.lock().expect("no panic holds it").push(credential.to_owned());
        let response = Response::builder().status(self.status).body(Body::full(answer));
        Box::pin(async move {
            pass(Duration::from_millis(1)).await;
            Ok(response.expect("a response"))
        })
    }

    fn upgrade(
        &self,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Body>, upstream::Error>> {
        self.send(request, Lane::Long)
    }
}

const ALLOWED: &str = r#"{"status":{"allowed":true}}"#;
const DENIED: &str = r#"{"status":{"allowed":false}}"#;

fn list() -> Attributes {
    let pods = GroupVersionResource::new("", "v1", "pods");
    Attributes::new(Verb::List, &pods, &Scope::All, None)
}

fn own() -> Asker {
    Asker::new(Caller::Own, &HeaderMap::new())
}

fn bearer(token: &str) -> Asker {
    let value = HeaderValue::from_str(&format!("Bearer {token}")).expect("a header");
    let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
    Asker::new(Identify::Bearers(TokenHasher::new(&[1; 32])).caller(&headers), &headers)
}

/// Creates the reviews with one reviewer for Listless's own user and one for bearers.
fn authorize(own: &Arc<Reviewer>, plain: &Arc<Reviewer>) -> Authorize {
    Authorize::new(own.clone(), plain.clone(), Metrics::new())
}

#[tokio::test(start_paused = true)]
async fn the_number_of_remembered_reviews_is_published() {
    let (own_reviewer, plain) = (Reviewer::new(201, ALLOWED), Reviewer::new(201, DENIED));
    let metrics = Metrics::new();
    let authorize = Authorize::new(own_reviewer, plain, metrics.clone());
    for asker in [own(), own(), bearer("a"), bearer("b")] {
        authorize.allows(&asker, list, &Remembered::default()).await;
    }
    authorize.report().await;
    let text = metrics.render();
    assert!(text.contains("\nlistless_access_reviews_cached 3\n"), "{text}");
}

/// Returns whether Listless's own user is allowed, and the number of reviews for two reads.
async fn allowed(status: u16, answer: &'static str) -> (bool, usize) {
    let reviewer = Reviewer::new(status, answer);
    let authorize = authorize(&reviewer, &Reviewer::new(201, ALLOWED));
    let first = authorize.grant(&own(), list, &Remembered::default(), ()).await.is_some();
    let second = authorize.grant(&own(), list, &Remembered::default(), ()).await.is_some();
    assert_eq!(first, second);
    (first, reviewer.asked().len())
}

#[tokio::test(start_paused = true)]
async fn only_an_explicit_allow_counts_and_it_is_remembered() {
    assert_eq!(allowed(201, ALLOWED).await, (true, 1));
    assert_eq!(allowed(201, DENIED).await, (false, 1));
    assert_eq!(allowed(201, r#"{"status":{"allowed":true,"denied":true}}"#).await, (false, 1));
    // A response that is not a review is not remembered.
    assert_eq!(allowed(403, ALLOWED).await, (false, 2));
    assert_eq!(allowed(201, "{}").await, (false, 2));
}

#[tokio::test(start_paused = true)]
async fn a_review_is_renewed_early_and_not_used_after_its_expiry() {
    let reviewer = Reviewer::new(201, ALLOWED);
    let authorize = authorize(&reviewer, &Reviewer::new(201, DENIED));
    let asked_after = async |wait| {
        pass(wait).await;
        assert!(authorize.allows(&own(), list, &Remembered::default()).await);
        pass(Duration::from_millis(2)).await;
        reviewer.asked().len()
    };
    assert_eq!(asked_after(Duration::ZERO).await, 1);
    assert_eq!(asked_after(OWN_RENEW_AFTER.saturating_sub(Duration::from_millis(4))).await, 1);
    assert_eq!(asked_after(Duration::from_millis(2)).await, 2, "renewed ahead");
    assert_eq!(asked_after(Duration::from_secs(1)).await, 2);
    assert_eq!(asked_after(OWN_TTL).await, 3, "asked anew");
}

#[tokio::test(start_paused = true)]
async fn no_review_outlives_a_suspension_of_the_machine() {
    let reviewer = Reviewer::new(201, ALLOWED);
    let authorize = authorize(&reviewer, &Reviewer::new(201, DENIED));
    let remembered = Remembered::default();
    for asked in [1, 1, 2, 2] {
        if asked == 2 && reviewer.asked().len() == 1 {
            authorize.forget();
        }
        assert!(authorize.allows(&own(), list, &remembered).await);
        assert_eq!(reviewer.asked().len(), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn one_rules_review_decides_every_read_of_its_namespace() {
    let reviewer = Reviewer::with_rules(
        r#"{"status":{"resourceRules":[{"verbs":["list"],"apiGroups":[""],"resources":["*"]}]}}"#,
    );
    let authorize = authorize(&reviewer, &reviewer);
    let allows = async |verb, resource, scope: &Scope| {
        let resource = GroupVersionResource::new("", "v1", resource);
        let attributes_of = || Attributes::new(verb, &resource, scope, None);
        authorize.allows(&own(), attributes_of, &Remembered::default()).await
    };
    let namespace = Scope::Namespace("a".into());
    for _ in 0..2 {
        for resource in ["pods", "services", "nodes"] {
            assert!(allows(Verb::List, resource, &namespace).await);
            assert!(!allows(Verb::Get, resource, &namespace).await);
            assert!(allows(Verb::List, resource, &Scope::All).await);
        }
        pass(Duration::from_secs(29)).await;
    }
    assert_eq!(reviewer.asked().len(), 2, "the namespace, and all of them");
    // The rules of Listless's own user do not apply to bearers.
    assert!(!authorize.allows(&bearer("ann"), list, &Remembered::default()).await);
}

/// Lists a resource of a namespace, or of all; returns whether that is allowed, and the reviews so far.
async fn lists(
    (authorize, reviewer): (&Authorize, &Reviewer),
    asker: &Asker,
    namespace: Option<&str>,
    name: Option<&str>,
) -> (bool, usize) {
    let pods = GroupVersionResource::new("", "v1", "pods");
    let scope = namespace.map_or(Scope::All, |namespace| Scope::Namespace(namespace.into()));
    let attributes = || Attributes::new(Verb::List, &pods, &scope, name);
    let allowed = authorize.allows(asker, attributes, &Remembered::default()).await;
    pass(Duration::from_millis(2)).await;
    (allowed, reviewer.asked().len())
}

#[tokio::test(start_paused = true)]
async fn a_review_of_all_namespaces_is_renewed_in_place_of_those_of_each() {
    let reviewer = Reviewer::new(201, ALLOWED);
    let both = (&authorize(&reviewer, &reviewer), &*reviewer);
    let asker = own();
    let namespaces = [None, Some("a"), Some("b")];
    for (asked, namespace) in namespaces.into_iter().enumerate() {
        assert_eq!(lists(both, &asker, namespace, None).await, (true, asked + 1));
    }
    assert_eq!(lists(both, &asker, Some("a"), Some("x")).await, (true, 4), "a name");
    // Whoever reads first renews the one review, and the others take its result.
    for (round, namespace) in [Some("b"), None, Some("a"), Some("a")].into_iter().enumerate() {
        pass(OWN_RENEW_AFTER).await;
        for namespace in [namespace, Some("a"), Some("b"), None, Some("a")] {
            assert_eq!(lists(both, &asker, namespace, None).await, (true, 5 + round));
        }
    }
    // A result taken over is no older than it says.
    pass(OWN_TTL).await;
    assert_eq!(lists(both, &asker, Some("b"), None).await, (true, 9));
}

#[tokio::test(start_paused = true)]
async fn a_review_of_all_namespaces_that_is_refused_or_a_bearers_renews_no_other() {
    for (asker, answer, allowed, renew_after) in
        [(own(), DENIED, false, OWN_RENEW_AFTER), (bearer("ann"), ALLOWED, true, RENEW_AFTER)]
    {
        let reviewer = Reviewer::new(201, answer);
        let both = (&authorize(&reviewer, &reviewer), &*reviewer);
        assert_eq!(lists(both, &asker, None, None).await, (allowed, 1));
        assert_eq!(lists(both, &asker, Some("a"), None).await, (allowed, 2));
        pass(renew_after).await;
        assert_eq!(lists(both, &asker, None, None).await, (allowed, 3));
        assert_eq!(lists(both, &asker, Some("a"), None).await, (allowed, 4));
    }
}

#[tokio::test(start_paused = true)]
async fn the_review_in_a_target_expires_with_the_review() {
    let reviewer = Reviewer::new(201, ALLOWED);
    let authorize = authorize(&reviewer, &reviewer);
    let remembered = Remembered::default();
    for (asker, reviews) in [(own(), 1), (bearer("e30.eyJleHAiOjF9.c2ln"), 6)] {
        remembered.0.store(None);
        for _ in 0..5 {
            assert!(authorize.allows(&asker, list, &remembered).await);
        }
        assert_eq!(reviewer.asked().len(), reviews);
    }
}

#[tokio::test(start_paused = true)]
async fn each_bearer_is_reviewed_with_its_own_token() {
    let (ours, theirs) = (Reviewer::new(201, ALLOWED), Reviewer::new(201, DENIED));
    let authorize = authorize(&ours, &theirs);
    assert!(authorize.allows(&own(), list, &Remembered::default()).await);
    for token in ["ann", "bob", "ann"] {
        assert!(!authorize.allows(&bearer(token), list, &Remembered::default()).await, "{token}");
    }
    assert_eq!(ours.asked(), ["none"]);
    assert_eq!(theirs.asked(), ["Bearer ann", "Bearer bob"]);
}

#[tokio::test(start_paused = true)]
async fn unauthenticated_callers_are_denied_without_a_review() {
    let reviewer = Reviewer::new(201, ALLOWED);
    let authorize = authorize(&reviewer, &reviewer);
    for other_caller in [
        Unauthenticated::NoCredential,
        Unauthenticated::OtherCredential,
        Unauthenticated::Impersonating,
    ] {
        let asker = Asker::new(Caller::Other(other_caller), &HeaderMap::new());
        assert!(!authorize.allows(&asker, list, &Remembered::default()).await);
    }
    assert!(reviewer.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_is_not_reviewed_each_time() {
    for status in [401, 403] {
        let reviewer = Reviewer::new(status, ALLOWED);
        let authorize = authorize(&reviewer, &reviewer);
        for _ in 0..5 {
            assert!(!authorize.allows(&bearer("ann"), list, &Remembered::default()).await);
        }
        assert_eq!(reviewer.asked().len(), 1, "{status}");
        pass(REVIEW_TTL).await;
        assert!(!authorize.allows(&bearer("ann"), list, &Remembered::default()).await);
        assert_eq!(reviewer.asked().len(), 2, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_reviews_of_new_tokens_are_limited() {
    let reviewer = Reviewer::new(201, ALLOWED);
    let authorize = authorize(&reviewer, &reviewer);
    let reads =
        (0..3 * BEARER_REVIEWS_MAX).map(|number| {
            let authorize = authorize.clone();
            async move {
                authorize.allows(&bearer(&number.to_string()), list, &Remembered::default()).await
            }
        });
    let allowed = futures_util::future::join_all(reads).await;
    let places = BEARER_REVIEWS_MAX / STRANGERS_PART as usize;
    assert_eq!(allowed.iter().filter(|allowed| **allowed).count(), places);
    assert_eq!(reviewer.asked().len(), places);
    pass(Duration::from_secs(1)).await;
    assert!(
        authorize.allows(&bearer("new"), list, &Remembered::default()).await,
        "places are given back"
    );
}

#[tokio::test(start_paused = true)]
async fn ever_new_tokens_use_up_no_reviews_of_accepted_ones() {
    let plain = Reviewer::new(201, ALLOWED);
    let authorize = authorize(&plain, &plain);
    let known = bearer("known");
    assert!(authorize.allows(&known, list, &Remembered::default()).await);
    for round in 0..2_000 {
        let _ = authorize.allows(&bearer(&round.to_string()), list, &Remembered::default()).await;
    }
    let nodes = GroupVersionResource::new("", "v1", "nodes");
    let other = || Attributes::new(Verb::List, &nodes, &Scope::All, None);
    assert!(authorize.allows(&known, other, &Remembered::default()).await);
    let waiting = (0..3 * BEARER_REVIEWS_MAX).map(|number| {
        let authorize = authorize.clone();
        let asker = bearer(&format!("other-{number}"));
        async move { authorize.allows(&asker, list, &Remembered::default()).await }
    });
    pass(Duration::from_secs(60)).await;
    let remembered = Remembered::default();
    let (_, answered) = tokio::join!(
        futures_util::future::join_all(waiting),
        authorize.allows(&known, list, &remembered)
    );
    assert!(answered, "asked again while others hold all their places");
}

#[tokio::test(start_paused = true)]
async fn a_review_is_not_used_after_the_expiry_of_its_token() {
    let reviewer = Reviewer::new(201, ALLOWED);
    let authorize = authorize(&reviewer, &reviewer);
    // The claims are {"exp":1}, in 1970.
    let ended = bearer("e30.eyJleHAiOjF9.c2ln");
    for _ in 0..3 {
        assert!(
            authorize.allows(&ended, list, &Remembered::default()).await,
            "the apiserver says so"
        );
    }
    assert_eq!(reviewer.asked().len(), 3);
}

#[test]
fn a_bearers_review_is_exact_and_that_of_our_own_user_covers_the_scope() {
    let told = |caller: Caller, path: &'static str| {
        let uri = http::Uri::from_static(path);
        let info = crate::api::request::RequestInfo::parse(&Method::GET, &uri, &HeaderMap::new());
        let request = info.resource_request().expect("a resource");
        let read = request.read.as_ref().expect("a read");
        serde_json::to_string(&Attributes::of_read(caller, request, read)).expect("JSON")
    };
    let ann = bearer("ann").caller();
    let web = "/api/v1/namespaces/a/pods/web";
    let in_a = r#"{"verb":"get","group":"","version":"v1","resource":"pods","namespace":"a""#;
    assert_eq!(told(Caller::Own, web), format!("{in_a}}}"));
    assert_eq!(told(ann, web), format!(r#"{in_a},"name":"web"}}"#));
    let namespace = r#""resource":"namespaces","namespace":"a","name":"a"}"#;
    assert!(told(ann, "/api/v1/namespaces/a").ends_with(namespace));
    let pinned = "/api/v1/pods?fieldSelector=metadata.name%3Dweb";
    assert!(told(ann, pinned).ends_with(r#""resource":"pods","name":"web"}"#));
}

#[test]
fn a_token_that_is_kept_for_a_review_is_marked_as_secret() {
    assert!(bearer("ann").credential.is_some_and(|credential| credential.is_sensitive()));
    let identify = Identify::Own(KnownTokens::one("t"));
    let headers =
        HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static("Bearer t"))]);
    let own = Asker::new(identify.caller(&headers), &headers);
    assert!(own.credential.is_none(), "our own user's is added on the way");
}

#[test]
fn the_asker_of_an_open_watch_keeps_no_buffer_of_its_request() {
    let buffer = Bytes::from(b"Bearer a and the rest of the head".to_vec());
    let value = HeaderValue::from_maybe_shared(buffer.slice(..8)).expect("a header");
    let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
    let identify = Identify::Bearers(TokenHasher::new(&[1; 32]));
    let mut asker = Asker::new(identify.caller(&headers), &headers);
    drop(headers);
    assert!(!buffer.is_unique(), "a request shares it");
    asker = asker.apart();
    assert!(buffer.is_unique());
    let (_, credential) = asker.bearer().expect("the bearer of a token");
    assert!(credential == "Bearer a" && credential.is_sensitive());
}
