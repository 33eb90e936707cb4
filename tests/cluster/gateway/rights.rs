//! Rights that are withdrawn while a client polls and watches.

use std::time::{Duration, Instant};

use http::Method;
use http_body_util::BodyExt;
use listless::api::form::Form;
use serde_json::{Value, json};

use super::{BINDING, COLLECTION, NAMESPACE, Shop};
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{User, Version};

/// The time in the gateway's documentation, plus that of a review, and of the apiserver itself.
const ENDS_WITHIN: Duration = Duration::from_secs(12);
const POLL: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn withdrawn_rights_end_answers_from_memory_on_1_36() {
    withdrawn_rights_end(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn withdrawn_rights_end_answers_from_memory_on_1_30() {
    withdrawn_rights_end(Version::V1_30).await;
}

/// Lets the reader read pods.
pub(super) fn binding() -> Value {
    json!({
        "metadata": {"name": "readers"},
        "subjects": [
            {"kind": "User", "name": User::Reader.name(), "apiGroup": "rbac.authorization.k8s.io"},
        ],
        "roleRef": {"kind": "Role", "name": "readers", "apiGroup": "rbac.authorization.k8s.io"},
    })
}

async fn withdrawn_rights_end(version: Version) {
    let Some(shop) = Shop::open(version).await else { return };
    let gateway = shop.gateway(Form::Json).await.expect("a gateway");
    let client = |server, protocol| Client::new(server, Some(&User::Reader.token()), protocol);
    let through = client(gateway.server(), Protocol::Http1);
    let straight = client(&shop.plane.server().expect("a server"), Protocol::Http1);

    let path = format!("{COLLECTION}?watch=1");
    let watch = through.open(Request::get(&path)).await.expect("an answer");
    assert_eq!(watch.status(), 200);
    let said = watch.headers()["cache-status"].to_str().expect("a text");
    assert!(said.starts_with("listless; hit;"), "{said}");
    let mut watched = watch.into_body();
    let watching = tokio::spawn(async move {
        while let Some(Ok(_)) = watched.frame().await {}
        Instant::now()
    });
    // The client polls for a while first. The review of its rights then has any age when they end.
    let mut poll = tokio::time::interval(POLL);
    for _ in 0..150 {
        poll.tick().await;
        assert!(through.get(COLLECTION).await.expect("an answer").is_hit());
    }
    let revoked = Request::new(Method::DELETE, BINDING);
    shop.client().send(revoked).await.expect("an answer").successful().expect("a revocation");
    let begun = Instant::now();
    let (mut last_hit, mut hits) = (Duration::ZERO, 0);
    let refused = loop {
        poll.tick().await;
        let sent = begun.elapsed();
        let answer = through.get(COLLECTION).await.expect("an answer");
        if answer.status.as_u16() != 200 {
            break answer;
        }
        (last_hit, hits) = (sent, hits + 1);
        assert!(sent < ENDS_WITHIN, "still answered {sent:?} after the rights were withdrawn");
    };
    let own = straight.get(COLLECTION).await.expect("an answer");
    assert_eq!((refused.status.as_u16(), own.status.as_u16()), (403, 403));
    assert_eq!(refused.body, own.body);
    assert!(!refused.is_hit(), "{:?}", refused.headers);
    let ended = watching.await.expect("no panic").saturating_duration_since(begun);
    eprintln!(
        "rights withdrawn in {NAMESPACE} on {}: {hits} more answers, the last asked for {last_hit:.1?} \
         later; the watch ended after {ended:.1?}",
        version.name()
    );
    assert!(ended < ENDS_WITHIN, "{ended:?}");
    // The answers do not come back either.
    for _ in 0..20 {
        poll.tick().await;
        assert_eq!(through.get(COLLECTION).await.expect("an answer").status.as_u16(), 403);
        let again = through.get(&path).await.expect("an answer");
        assert_eq!(again.status.as_u16(), 403);
    }
}
