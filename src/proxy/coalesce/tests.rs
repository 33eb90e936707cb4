//! Tests of keys, roles and bounds of shared requests.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn key(target: &str) -> CoalesceKey {
    let request = Request::get(target).body(()).expect("a request");
    CoalesceKey::new(Caller::Own, &request, &Rewriting::Keep)
}

async fn text(outcome: Coalesced) -> (bool, String) {
    let (shared, response) = match outcome {
        Coalesced::Sent(response) => (false, response),
        Coalesced::Shared(response) => (true, response),
    };
    let bytes = response.into_body().collect(1024).await.expect("a body");
    (shared, String::from_utf8(bytes.to_vec()).expect("text"))
}

#[tokio::test]
async fn a_read_shares_only_a_request_sent_after_it_arrived() {
    let coalesce = Arc::new(Coalesce::new(Metrics::new()));
    let sent = Arc::new(AtomicUsize::new(0));
    let (release, _) = watch::channel(0_usize);
    let read = || {
        let (coalesce, sent, mut released) = (coalesce.clone(), sent.clone(), release.subscribe());
        tokio::spawn(async move {
            let send = || async move {
                let number = sent.fetch_add(1, Ordering::SeqCst) + 1;
                let _ = released.wait_for(|released| *released >= number).await;
                Ok(Response::new(Body::full(number.to_string())))
            };
            let flown = coalesce.run(Some(key("/api/v1/pods")), SendTime::AtOnce, send);
            text(flown.await.expect("an answer")).await
        })
    };
    let first = read();
    while sent.load(Ordering::SeqCst) < 1 {
        tokio::task::yield_now().await;
    }
    // These reads arrive while the first request is in flight. They must not share it, but they
    // share the next.
    let (second, third) = (read(), read());
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert_eq!(sent.load(Ordering::SeqCst), 1);
    release.send_replace(9);
    assert_eq!(first.await.expect("no panic"), (false, "1".to_owned()));
    let mut rest = [second.await.expect("no panic"), third.await.expect("no panic")];
    rest.sort();
    assert_eq!(rest, [(false, "2".to_owned()), (true, "2".to_owned())]);
    assert!(lock(&coalesce.keys).is_empty(), "nothing is left behind");
}

#[tokio::test]
async fn the_bytes_of_unread_shared_responses_are_bounded() {
    const LENGTH: usize = 12 * 1024 * 1024;
    let coalesce = Arc::new(Coalesce::new(Metrics::new()));
    let pair = async |target: &str| {
        let send = || async { Ok(Response::new(Body::full(vec![b'x'; LENGTH]))) };
        let run = || coalesce.run(Some(key(target)), SendTime::Together, send);
        let (one, other) = tokio::join!(run(), run());
        (one.expect("an answer"), other.expect("an answer"))
    };
    let mut unread = Vec::new();
    for number in 0..8 {
        unread.push(pair(&format!("/{number}")).await);
    }
    let shared = unread.iter().filter(|(_, other)| matches!(other, Coalesced::Shared(_)));
    assert_eq!(shared.count(), HELD_BYTES_MAX / LENGTH);
    drop(unread);
    assert_eq!(coalesce.held.total(), 0);
    assert!(matches!(pair("/again").await.1, Coalesced::Shared(_)));
}

#[tokio::test]
async fn tiny_chunks_count_with_their_overhead() {
    let chunk = || Ok::<_, crate::body::BoxError>(http_body::Frame::data(Bytes::from("x")));
    let tiny = futures_util::stream::iter((0..200_000).map(move |_| chunk()));
    let body = Body::wrap(http_body_util::StreamBody::new(tiny));
    let (_, flight) = buffer(Response::new(body), &HeldBytes::default(), &Metrics::new()).await;
    assert!(matches!(flight, Flight::TooLarge));
}

#[tokio::test]
async fn reads_released_together_share_one_request() {
    let coalesce = Arc::new(Coalesce::new(Metrics::new()));
    let sent = Arc::new(AtomicUsize::new(0));
    let reads: Vec<_> = (0..9)
        .map(|_| {
            let (coalesce, sent) = (coalesce.clone(), sent.clone());
            tokio::spawn(async move {
                let send = || async move {
                    sent.fetch_add(1, Ordering::SeqCst);
                    Ok(Response::new(Body::full("x")))
                };
                let key = Some(key("/api/v1/pods"));
                let flown = coalesce.run(key, SendTime::Together, send);
                text(flown.await.expect("an answer")).await.0
            })
        })
        .collect();
    let mut shared = 0;
    for read in reads {
        shared += usize::from(read.await.expect("no panic"));
    }
    assert_eq!((sent.load(Ordering::SeqCst), shared), (1, 8));
}

#[tokio::test]
async fn reads_without_a_key_share_nothing() {
    let coalesce = Coalesce::new(Metrics::new());
    let send = || async { Ok(Response::new(Body::full("x"))) };
    let run = || coalesce.run(None, SendTime::Together, send);
    let (one, other) = tokio::join!(run(), run());
    for outcome in [one, other] {
        assert!(matches!(outcome, Ok(Coalesced::Sent(_))));
    }
    assert!(lock(&coalesce.keys).is_empty());
}

#[test]
fn reads_beyond_the_bound_of_waiting_ones_send_their_own_request() {
    let coalesce = Coalesce::new(Metrics::new());
    let leaders = [coalesce.join(key("/a")), coalesce.join(key("/b"))];
    assert!(leaders.iter().all(|role| matches!(role, Role::Leader(_))));
    let mut waiters: Vec<_> = (0..WAITERS_MAX).map(|_| coalesce.join(key("/a"))).collect();
    assert!(waiters.iter().all(|role| matches!(role, Role::Waiter(..))));
    assert!(matches!(coalesce.join(key("/a")), Role::Alone));
    assert!(matches!(coalesce.join(key("/b")), Role::Alone));
    assert!(matches!(coalesce.join(key("/c")), Role::Leader(_)));
    waiters.pop();
    assert!(matches!(coalesce.join(key("/b")), Role::Waiter(..)));
    let line = "listless_limits_reached_total{limit=\"shared_responses\"} 2";
    let metrics = coalesce.metrics.render();
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn a_key_holds_nothing_of_its_request() {
    let long = "x".repeat(64 * 1024);
    let request = |value: &str| Request::get("/x").header("a", value).body(()).unwrap();
    let key = |value: &str| CoalesceKey::new(Caller::Own, &request(value), &Rewriting::Keep);
    assert!(!mem::needs_drop::<CoalesceKey>() && size_of::<CoalesceKey>() == 32);
    assert_eq!(key(&long), key(&long));
    assert_ne!(key(&long), key(&long[1..]));
}

#[test]
fn headers_do_not_run_into_each_other() {
    let key = |pairs: &[(&str, &str)]| {
        let mut request = Request::get("/x").body(()).expect("a request");
        for (name, value) in pairs {
            let name = http::HeaderName::try_from(*name).expect("a name");
            request.headers_mut().append(name, value.parse().expect("a value"));
        }
        CoalesceKey::new(Caller::Own, &request, &Rewriting::Keep)
    };
    let all = [
        key(&[("a", "bc")]),
        key(&[("ab", "c")]),
        key(&[("a", "b"), ("c", "")]),
        key(&[("a", "b"), ("a", "c")]),
        key(&[("a", "c"), ("a", "b")]),
        key(&[]),
    ];
    let different: std::collections::HashSet<_> = all.into_iter().collect();
    assert_eq!(different.len(), 6);
    assert_eq!(key(&[("a", "b"), ("c", "d")]), key(&[("c", "d"), ("a", "b")]));
}

#[test]
fn keys_differ_by_caller_target_and_headers_but_not_by_credential() {
    let plain = Request::get("/x").body(()).expect("a request");
    let table = Request::get("/x").header("accept", "table").body(()).expect("a request");
    let token = Request::get("/x").header("authorization", "Bearer t").body(()).expect("a request");
    let own = |request| CoalesceKey::new(Caller::Own, request, &Rewriting::Keep);
    assert_ne!(own(&plain), own(&table));
    assert_eq!(own(&plain), own(&token));
    assert_ne!(own(&plain), key("/y"));
    let other_caller = Caller::Other(crate::proxy::identify::Unauthenticated::NoCredential);
    assert_ne!(own(&plain), CoalesceKey::new(other_caller, &plain, &Rewriting::Keep));
}

#[tokio::test]
async fn a_shared_list_shows_everyone_whether_its_content_changed() {
    let content = ListContent::default();
    let mut response = Response::new(Body::full("list"));
    response.extensions_mut().insert(content.clone());
    let (held, metrics) = (HeldBytes::default(), Metrics::new());
    let (given, flight) = buffer(response, &held, &metrics).await;
    let Flight::Done(buffered) = flight else { panic!("the list was not buffered") };
    for response in [given, buffered.response()] {
        assert!(response.extensions().get::<ListContent>().is_some());
    }
}
