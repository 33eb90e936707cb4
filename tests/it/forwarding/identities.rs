//! Credentials: each request is forwarded with its own, and nobody else gets Listless's.

use http::Method;

use crate::harness::{
    Answer, Identity, LOCAL_TOKEN, OTHER_TOKEN, OWN_TOKEN, Setup, TestClient, TestProxy,
};

const PODS: &str = "/api/v1/pods";

/// Every kind of request.
async fn everything(client: &TestClient) -> Vec<Answer> {
    let mut answers = Vec::new();
    for (method, path) in [
        ("GET", PODS),
        ("GET", "/api/v1/namespaces/a/pods/web-0"),
        ("GET", "/api/v1/pods?watch=1&timeoutSeconds=1"),
        ("GET", "/api/v1/namespaces/a/pods/web-0/log"),
        ("POST", "/api/v1/namespaces/a/pods"),
        ("DELETE", "/api/v1/namespaces/a/pods/none"),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ] {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        answers.push(client.send(method, path, "").await);
    }
    answers
}

#[tokio::test(start_paused = true)]
async fn other_callers_keep_their_own_credentials_and_are_never_answered_from_memory() {
    let proxy = TestProxy::warmed(PODS).await;
    let credentials = [
        format!("Bearer {OTHER_TOKEN}"),
        "Bearer unknown".to_owned(),
        format!("Bearer {LOCAL_TOKEN}2"),
        format!("Bearer {}", &LOCAL_TOKEN[1..]),
        format!("bearer {LOCAL_TOKEN}"),
        format!("Bearer  {LOCAL_TOKEN}"),
        "Basic dXNlcjpwYXNz".to_owned(),
        "Negotiate x".to_owned(),
        String::new(),
    ];
    for credential in credentials {
        proxy.upstream.forget();
        let client = proxy.anybody().with("authorization", &credential);
        for answer in everything(&client).await {
            assert_eq!(answer.detail(), "other-credential", "{credential:?}");
        }
        for seen in proxy.upstream.all() {
            assert_eq!(seen.identity, Identity::Plain, "{credential:?}: {:?}", seen.asked);
            assert_eq!(seen.headers["authorization"], *credential);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_credentials_is_forwarded_without_any() {
    let proxy = TestProxy::warmed(PODS).await;
    for answer in everything(&proxy.anybody()).await {
        assert_eq!(answer.detail(), "no-credential");
        assert!(matches!(answer.status, 403 | 200), "{}", answer.summary());
    }
    for seen in proxy.upstream.all() {
        assert_eq!(seen.identity, Identity::Plain, "{:?}", seen.asked);
        assert!(!seen.headers.contains_key("authorization"));
    }
    let refused = proxy.anybody().get(PODS).await;
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("system:anonymous"), "{}", refused.text());
}

#[tokio::test(start_paused = true)]
async fn a_request_with_two_credentials_is_not_the_local_users() {
    let proxy = TestProxy::warmed(PODS).await;
    let client = proxy.client().with("authorization", &format!("Bearer {OTHER_TOKEN}"));
    for answer in everything(&client).await {
        assert_eq!(answer.detail(), "other-credential");
    }
    for seen in proxy.upstream.all() {
        assert_eq!(seen.identity, Identity::Plain);
        assert_eq!(seen.headers.get_all("authorization").iter().count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_local_user_is_forwarded_with_listless_own_credentials() {
    let proxy = TestProxy::warmed(PODS).await;
    everything(&proxy.client()).await;
    everything(&proxy.anybody()).await;
    everything(&proxy.anybody().with("authorization", "Bearer x")).await;
    let own = proxy.upstream.all().iter().filter(|seen| seen.identity == Identity::Own).count();
    // These are all requests but the two reads and the watch that memory answers, and their
    // reviews.
    assert_eq!(own, 7 - 3 + proxy.upstream.reviews() - 3);
}

#[tokio::test(start_paused = true)]
async fn impersonation_is_forwarded_unchanged() {
    let proxy = TestProxy::warmed(PODS).await;
    for (name, value) in [
        ("impersonate-user", "bob"),
        ("impersonate-group", "admins"),
        ("impersonate-uid", "u"),
        ("impersonate-extra-scopes", "view"),
    ] {
        proxy.upstream.forget();
        for answer in everything(&proxy.client().with(name, value)).await {
            assert_eq!(answer.detail(), "impersonation", "{name}");
        }
        for seen in proxy.upstream.all() {
            assert_eq!(seen.identity, Identity::Impersonating, "{:?}", seen.asked);
            assert_eq!(seen.headers[name], value);
        }
        proxy.upstream.forget();
        for answer in everything(&proxy.anybody().with(name, value)).await {
            assert!(!answer.is_hit(), "{name}");
        }
        for seen in proxy.upstream.all() {
            assert_eq!(seen.identity, Identity::Plain, "{:?}", seen.asked);
            assert_eq!(seen.headers[name], value);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn headers_of_an_authenticating_proxy_are_not_accepted() {
    let proxy = TestProxy::warmed(PODS).await;
    let posing = |client: TestClient| {
        let client = client.with("x-remote-user", "admin").with("x-remote-group", "system:masters");
        client
            .with("x-remote-uid", "1")
            .with("x-remote-extra-scopes", "all")
            .with("x-remotely", "1")
    };
    everything(&posing(proxy.client())).await;
    everything(&posing(proxy.anybody())).await;
    everything(&posing(proxy.anybody().with("authorization", "Bearer x"))).await;
    for seen in proxy.upstream.all() {
        let posing = seen.headers.keys().any(|name| name.as_str().starts_with("x-remote-"));
        assert!(!posing, "{:?}", seen.headers);
    }
}

#[tokio::test(start_paused = true)]
async fn reads_of_other_callers_do_not_change_the_session() {
    let proxy = TestProxy::warmed(PODS).await;
    let before = proxy.client().get(PODS).await.version();
    proxy.simulator.skip_revisions(100);
    let other_caller = proxy.anybody().with("authorization", &format!("Bearer {OTHER_TOKEN}"));
    assert!(other_caller.get(PODS).await.version() >= before + 100);
    let after = proxy.client().get(PODS).await;
    assert!(after.is_hit(), "{}", after.cache_status());
    assert_eq!(after.version(), before);
}

#[tokio::test]
async fn callers_on_one_connection_are_distinguished() {
    let proxy = Setup::default().on_loopback().await;
    proxy.warm(PODS).await;
    for base in [proxy.anybody(), proxy.anybody().over_http2()] {
        let own = base.with("authorization", &format!("Bearer {LOCAL_TOKEN}"));
        let other_caller = base.with("authorization", &format!("Bearer {OWN_TOKEN}x"));
        for _ in 0..3 {
            assert_eq!(own.get(PODS).await.status, 200);
            assert_eq!(other_caller.get(PODS).await.status, 401);
            assert_eq!(base.get(PODS).await.status, 403);
        }
    }
    proxy.drain().await;
}
