use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use http::HeaderMap;

use super::*;
use crate::proxy::identify::Unauthenticated;

const TAG: &str = "\"A1\"";

fn wanted(target: &str, tag: Option<&str>) -> Wanted {
    let request = Request::get(target).header("accept", "application/json");
    let request = match tag {
        Some(tag) => request.header("if-none-match", tag),
        None => request,
    };
    Wanted::of(&request.body(()).expect("a request")).expect("a document")
}

fn document(tag: Option<&'static str>, at: Instant) -> Arc<Document> {
    let mut headers = HeaderMap::new();
    if let Some(tag) = tag {
        headers.insert("etag", http::HeaderValue::from_static(tag));
    }
    let document = Document::of(&headers, &VecDeque::from([Bytes::from("{}")]), at);
    Arc::new(document.expect("a document"))
}

fn confirmed(document: &Arc<Document>, at: Instant) -> Held {
    let believed = Duration::from_secs(10);
    Held::Confirmed(Confirmed { document: document.clone(), at, believed })
}

/// Returns a standing with both watches open and no change for a minute.
fn quiet(now: Instant) -> WatchProof {
    let changed_at = before(now, Duration::from_secs(60));
    WatchProof { proven_at: Some(now), changed_at, remote: Arc::default() }
}

fn source(wanted: Wanted, held: Held, watch_proof: &WatchProof, now: Instant) -> DocumentSource {
    match decide_document(wanted, held, watch_proof, now) {
        Plan::Document(plan) => plan.source,
        plan => panic!("{plan:?}"),
    }
}

fn is_from_memory(target: &str, held: Held, watch_proof: &WatchProof, now: Instant) -> bool {
    matches!(source(wanted(target, None), held, watch_proof, now), DocumentSource::Memory(..))
}

/// Returns an instant more than a minute after the start of the clock.
fn moment() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

fn before(now: Instant, time: Duration) -> Instant {
    now.checked_sub(time).expect("a late moment")
}

#[test]
fn a_confirmed_and_proven_document_is_answered_from_the_cache() {
    let now = moment();
    for tag in [None, Some(TAG)] {
        let held = confirmed(&document(tag, now), now);
        assert!(is_from_memory("/apis", held, &quiet(now), now));
    }
    for held in [Held::Nothing, Held::Known(document(Some(TAG), now))] {
        assert!(!is_from_memory("/apis", held, &quiet(now), now));
    }
}

#[test]
fn an_unproven_document_is_forwarded() {
    let now = moment();
    let quiet = quiet(now);
    let second = Duration::from_secs(1);
    let silent = Some(before(now, PROGRESS_MAX + second));
    let rows = [
        (quiet.clone(), true),
        (WatchProof { proven_at: None, ..quiet.clone() }, false),
        (WatchProof { proven_at: silent, ..quiet.clone() }, false),
        (WatchProof { proven_at: Some(before(now, PROGRESS_MAX)), ..quiet.clone() }, true),
        (WatchProof { changed_at: now, ..quiet.clone() }, false),
        (WatchProof { changed_at: before(now, SETTLING) + second, ..quiet.clone() }, false),
        (WatchProof { changed_at: before(now, SETTLING), ..quiet }, true),
    ];
    for (watch_proof, expected) in rows {
        let held = confirmed(&document(Some(TAG), now), now);
        assert_eq!(is_from_memory("/apis", held, &watch_proof, now), expected, "{watch_proof:?}");
    }
}

#[test]
fn a_confirmation_too_soon_after_a_change_does_not_count() {
    let now = moment();
    let changed_at = before(now, Duration::from_secs(15));
    let watch_proof = WatchProof { changed_at, ..quiet(now) };
    let held = |age| {
        let at = before(now, Duration::from_secs(age));
        confirmed(&document(Some(TAG), at), at)
    };
    assert!(is_from_memory("/apis", held(5), &watch_proof, now));
    assert!(!is_from_memory("/apis", held(6), &watch_proof, now));
}

#[test]
fn a_confirmation_expires() {
    let now = moment();
    let at = before(now, Duration::from_secs(10));
    let held = confirmed(&document(Some(TAG), at), at);
    assert!(!is_from_memory("/apis", held, &quiet(now), now));
}

#[test]
fn documents_of_aggregated_servers_are_forwarded() {
    let now = moment();
    let remote = Arc::new(BTreeSet::from(["v1beta1.metrics.k8s.io".into()]));
    let watch_proof = WatchProof { remote, ..quiet(now) };
    for (target, expected) in [
        ("/api", true),
        ("/apis/apps/v1", true),
        ("/apis/metrics.k8s.io/v1beta1", false),
        ("/openapi/v2", false),
        ("/openapi/v3/api/v1", false),
    ] {
        let held = confirmed(&document(Some(TAG), now), now);
        assert_eq!(is_from_memory(target, held, &watch_proof, now), expected, "{target}");
    }
}

#[test]
fn not_modified_is_returned_once_its_headers_are_known() {
    let now = moment();
    let kept = document(Some(TAG), now);
    let ask = |tag| source(wanted("/apis", Some(tag)), confirmed(&kept, now), &quiet(now), now);
    assert!(matches!(ask("\"B2\""), DocumentSource::Memory(_, Form::Whole)));
    assert!(matches!(ask(TAG), DocumentSource::Ask(Some(_))));
    kept.learn_not_modified(&HeaderMap::new());
    assert!(matches!(ask(TAG), DocumentSource::Memory(_, Form::NotModified)));
    let untagged = document(None, now);
    let held = confirmed(&untagged, now);
    let source = source(wanted("/apis", Some(TAG)), held, &quiet(now), now);
    assert!(matches!(source, DocumentSource::Memory(_, Form::Whole)));
}

#[test]
fn documents_are_served_only_to_known_callers_if_enabled() {
    let other_caller = Caller::Other(Unauthenticated::NoCredential);
    let rows = [
        ("/apis", Caller::Own, Keeping::Documents, None),
        ("/version", Caller::Own, Keeping::Documents, Some("non-resource")),
        ("/apis", other_caller, Keeping::Documents, Some("no-credential")),
        ("/apis", Caller::Own, Keeping::Nothing, Some("never-cached")),
    ];
    for (target, caller, keeping, expected) in rows {
        let request = Request::get(target).body(()).expect("a request");
        let refused = document_candidate(&request, caller, keeping).err();
        let reason = refused.map(|plan| match plan {
            Plan::Forward(forward) => forward.reason.as_str(),
            plan => panic!("{plan:?}"),
        });
        assert_eq!(reason, expected, "{target} {caller:?} {keeping:?}");
    }
}
