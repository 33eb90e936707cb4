//! Memory gives a caller only what the apiserver allows that caller's token.

use std::time::Duration;

use listless::{
    api::Verb,
    simulator::{Asked, Effect, Fault, User},
};
use serde_json::json;

use super::{ANN, BOB, EVE, IN_A, IN_B, PODS, WEB, gateway, on_pods, warmed};
use crate::harness::{Identity, TestProxy, group_resource, pass, pod, settle};

/// Checks that the response is the apiserver's own, forwarded for the given reason.
async fn assert_forwarded(proxy: &TestProxy, token: &str, path: &str, reason: &str) -> u16 {
    let straight = proxy.straight_as(token).get(path).await;
    let answer = proxy.bearer(token).get(path).await;
    assert_eq!(answer.detail(), reason, "{path}: {}", answer.summary());
    assert_eq!((answer.status, answer.text()), (straight.status, straight.text()), "{path}");
    answer.status
}

#[tokio::test(start_paused = true)]
async fn all_authorized_callers_share_one_replica() {
    let proxy = warmed().await;
    for (token, path) in [(ANN, PODS), (ANN, IN_B), (ANN, WEB), (BOB, IN_A), (BOB, WEB)] {
        let (answer, straight) =
            (proxy.bearer(token).get(path).await, proxy.straight_as(token).get(path).await);
        assert!(answer.is_hit(), "{token} {path}: {}", answer.summary());
        assert_eq!(answer.json()["items"], straight.json()["items"]);
    }
    assert_eq!(proxy.upstream.count(Verb::List, "pods"), 0);
    assert_eq!(proxy.replicas().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn unauthorized_callers_get_the_apiservers_refusal() {
    let proxy = warmed().await;
    for (token, path) in [(BOB, PODS), (BOB, IN_B), (EVE, PODS), (EVE, IN_A), (EVE, WEB)] {
        assert_eq!(assert_forwarded(&proxy, token, path, "not-authorized").await, 403);
    }
    assert_eq!(assert_forwarded(&proxy, "unknown", IN_A, "not-authorized").await, 401);
    let selected = "/api/v1/namespaces/b/pods?labelSelector=app";
    assert_eq!(assert_forwarded(&proxy, BOB, selected, "not-authorized").await, 403);
    assert_eq!(
        assert_forwarded(&proxy, BOB, "/api/v1/pods?resourceVersion=0", "not-authorized").await,
        403
    );
}

#[tokio::test(start_paused = true)]
async fn reviews_and_forwards_carry_the_callers_token_and_replicas_use_listless_own() {
    let proxy = gateway();
    let ann = proxy.bearer(ANN);
    for _ in 0..3 {
        ann.get(IN_A).await;
    }
    ann.delete("/api/v1/namespaces/a/pods/web-1").await;
    let mut of_replicas = 0;
    for seen in proxy.upstream.all() {
        match seen.headers.get("authorization") {
            Some(token) => {
                assert_eq!(seen.identity, Identity::Plain, "{:?}", seen.asked);
                assert_eq!(token, &format!("Bearer {ANN}"));
            }
            None => {
                assert_eq!(seen.identity, Identity::Own, "{:?}", seen.asked);
                assert!(matches!(seen.asked.verb, Verb::List | Verb::Watch), "{:?}", seen.asked);
                of_replicas += 1;
            }
        }
    }
    assert_eq!((of_replicas, proxy.upstream.reviews()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_review_names_the_object_that_is_read() {
    let proxy = warmed().await;
    let mut only_web = on_pods(&["get"]).within("a");
    only_web.names.push("web-0".to_owned());
    proxy.simulator.admit(BOB, User::with_rules("bob", vec![only_web]));
    assert!(proxy.bearer(BOB).get(WEB).await.is_hit());
    let other = "/api/v1/namespaces/a/pods/db-0";
    assert_eq!(assert_forwarded(&proxy, BOB, other, "not-authorized").await, 403);
    assert_eq!(assert_forwarded(&proxy, BOB, IN_A, "not-authorized").await, 403);
}

#[tokio::test(start_paused = true)]
async fn revoked_rights_end_answers_from_memory_within_ten_seconds() {
    let proxy = warmed().await;
    let bob = proxy.bearer(BOB);
    for _ in 0..10 {
        assert!(bob.get(IN_A).await.is_hit());
        pass(Duration::from_secs(1)).await;
    }
    proxy.simulator.admit(BOB, User::with_rules("bob", Vec::new()));
    let mut answered = 0;
    while bob.get(IN_A).await.is_hit() {
        answered += 1;
        pass(Duration::from_secs(1)).await;
    }
    assert!(answered <= 10, "answered for {answered} s after the end of the rights");
    assert_eq!(assert_forwarded(&proxy, BOB, IN_A, "not-authorized").await, 403);
    assert!(proxy.bearer(ANN).get(IN_A).await.is_hit(), "the others are not concerned");

    proxy.simulator.admit(BOB, User::with_rules("bob", vec![on_pods(&["list"])]));
    pass(Duration::from_secs(11)).await;
    assert!(bob.get(IN_A).await.is_hit(), "new rights count as soon");
}

#[tokio::test(start_paused = true)]
async fn an_expired_token_ends_answers_from_memory() {
    let proxy = warmed().await;
    assert!(proxy.bearer(BOB).get(IN_A).await.is_hit());
    proxy.simulator.expel(BOB);
    pass(Duration::from_secs(11)).await;
    for _ in 0..3 {
        assert_eq!(assert_forwarded(&proxy, BOB, IN_A, "not-authorized").await, 401);
    }
}

#[tokio::test(start_paused = true)]
async fn rights_are_reviewed_every_ten_seconds_for_each_caller() {
    let proxy = warmed().await;
    pass(Duration::from_secs(11)).await;
    let callers = [proxy.bearer(ANN), proxy.bearer(BOB), proxy.bearer(EVE)];
    for round in 1..=3 {
        for caller in &callers {
            for _ in 0..20 {
                caller.get(IN_A).await;
            }
        }
        assert_eq!(proxy.upstream.reviews(), 3 * round);
        pass(Duration::from_secs(11)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_reads_share_a_review_only_within_one_caller() {
    let proxy = warmed().await;
    let slow = Effect::Delay(Duration::from_millis(500));
    let review = |asked: &Asked| asked.resource == "selfsubjectaccessreviews";
    proxy.simulator.inject(Fault::always(slow, review));
    let reads = (0..30).map(|number| {
        let (token, hit) = if number % 2 == 0 { (BOB, true) } else { (EVE, false) };
        let client = proxy.bearer(token);
        tokio::spawn(async move { assert_eq!(client.get(IN_A).await.is_hit(), hit) })
    });
    for read in futures_util::future::join_all(reads).await {
        read.expect("no panic");
    }
    assert_eq!(proxy.upstream.reviews(), 2);
}

#[tokio::test(start_paused = true)]
async fn impersonation_is_forwarded_with_the_callers_own_token_only() {
    let proxy = warmed().await;
    let ann = proxy.bearer(ANN);
    for (name, value) in [
        ("impersonate-user", "bob"),
        ("impersonate-group", "admins"),
        ("impersonate-extra-scopes", "view"),
        ("impersonate-something-new", "x"),
    ] {
        let answer = ann.with(name, value).get(PODS).await;
        assert_eq!(answer.detail(), "impersonation", "{name}");
        let seen = proxy.upstream.last();
        assert_eq!(
            (seen.identity, &seen.headers[name]),
            (Identity::Plain, &value.parse().unwrap())
        );
        assert_eq!(seen.headers["authorization"], format!("Bearer {ANN}"));
    }
    assert_eq!(proxy.upstream.reviews(), 0);
}

#[tokio::test(start_paused = true)]
async fn ambiguous_credentials_are_forwarded_as_they_came() {
    let proxy = warmed().await;
    let ann = proxy.bearer(ANN);
    let token = "base64url.bearer.authorization.k8s.io.YW5u";
    for (client, detail) in [
        (ann.with("authorization", &format!("Bearer {ANN}")), "other-credential"),
        (ann.with("authorization", "Basic YTpi"), "other-credential"),
        (ann.with("sec-websocket-protocol", token), "other-credential"),
        (proxy.anybody().with("authorization", "Basic YTpi"), "other-credential"),
        (proxy.anybody().with("authorization", &format!("Bearer  {ANN}")), "other-credential"),
        (proxy.anybody().with("sec-websocket-protocol", token), "no-credential"),
        (proxy.anybody(), "no-credential"),
    ] {
        let answer = client.get(PODS).await;
        assert_eq!(answer.detail(), detail, "{:?}", client.headers());
        let seen = proxy.upstream.last();
        assert_eq!(seen.identity, Identity::Plain);
        for name in ["authorization", "sec-websocket-protocol"] {
            let sent: Vec<_> = client.headers().get_all(name).iter().collect();
            assert_eq!(seen.headers.get_all(name).iter().collect::<Vec<_>>(), sent);
        }
    }
    let posing = ann.with("x-remote-user", "admin").with("x-remote-group", "system:masters");
    posing.create(IN_A, &json!({"metadata": {"generateName": "p-"}})).await;
    let seen = proxy.upstream.last();
    assert!(!seen.headers.keys().any(|name| name.as_str().starts_with("x-remote-")));
}

#[tokio::test(start_paused = true)]
async fn a_failed_review_allows_nothing_and_is_not_cached() {
    let review = |asked: &Asked| asked.resource == "selfsubjectaccessreviews";
    for effect in [
        Effect::Answer { code: 500, retry_after_secs: None },
        Effect::Answer { code: 429, retry_after_secs: None },
        Effect::Garbage,
        Effect::Close,
        Effect::Delay(Duration::from_secs(20)),
    ] {
        let proxy = warmed().await;
        // One review is for the check before the replica; the forward needs none.
        proxy.simulator.inject(Fault::next(1, effect, review));
        let bob = proxy.bearer(BOB);
        let answer = bob.get(IN_A).await;
        assert_eq!((answer.status, answer.detail()), (200, "not-authorized"), "{effect:?}");
        assert!(bob.get(IN_A).await.is_hit(), "{effect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_memory_requires_watch_rights_and_ends_with_them() {
    let proxy = warmed().await;
    let watch = async |token: &str| {
        let version = proxy.straight().get(IN_A).await.version();
        let path = format!("{IN_A}?watch=1&resourceVersion={version}&timeoutSeconds=600");
        proxy.bearer(token).watch(&path).await
    };
    let status = |watch: &crate::harness::Watch| {
        watch.head.headers["cache-status"].to_str().expect("a text").to_owned()
    };
    let refused = watch(EVE).await;
    assert_eq!(refused.head.status, 403);
    assert!(status(&refused).ends_with("detail=not-authorized"), "{}", status(&refused));
    let mut bobs = watch(BOB).await;
    assert!(status(&bobs).starts_with("listless; hit"), "{}", status(&bobs));
    proxy.simulator.admit(BOB, User::with_rules("bob", Vec::new()));
    let begun = tokio::time::Instant::now();
    while bobs.next().await.is_some() {}
    assert!(begun.elapsed() <= Duration::from_secs(11), "ended after {:?}", begun.elapsed());
    assert_eq!(watch(BOB).await.head.status, 403);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_no_event_from_ten_seconds_after_its_rights_ended() {
    for over_http2 in [false, true] {
        let proxy = warmed().await;
        let put = |number: usize| {
            let mut large = pod("a", &format!("p-{number}"), &[], "n1");
            large["metadata"]["annotations"] = json!({"a": "x".repeat(3000)});
            proxy.simulator.put(&group_resource("pods"), large).expect("served")
        };
        let version = proxy.simulator.revision();
        let ann = proxy.bearer(ANN);
        let ann = if over_http2 { ann.over_http2() } else { ann };
        let mut watch = ann.watch(&format!("{PODS}?watch=1&resourceVersion={version}")).await;
        // This is more than the buffers on the way hold.
        for number in 0..300 {
            put(number);
            settle().await;
        }
        proxy.simulator.admit(ANN, User::with_rules("ann", Vec::new()));
        let mut shown = 0;
        for _ in 0..101 {
            pass(Duration::from_millis(100)).await;
            shown = watch.next_line().await.map_or(shown, |line| version_of(&line));
        }
        let last_allowed = proxy.simulator.revision();
        for number in 300..320 {
            put(number);
        }
        pass(Duration::from_millis(100)).await;
        while let Some(line) = watch.next_line().await {
            shown = version_of(&line);
        }
        assert!(shown > version, "nothing was shown");
        assert!(shown <= last_allowed, "{shown} was shown, made after {last_allowed}");
    }
}

fn version_of(line: &[u8]) -> u64 {
    let event: serde_json::Value = serde_json::from_slice(line).expect("an event");
    let version = event["object"]["metadata"]["resourceVersion"].as_str().expect("a version");
    version.parse().expect("a number")
}
