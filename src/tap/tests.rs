//! The requests that listeners get, and the parts that are never shown.

use std::time::UNIX_EPOCH;

use http::{HeaderMap, Method, Uri};

use super::*;

const AGENT: &str = "fabric8-kubernetes-client/7.6.1";

fn tell(tap: &Tap, method: Method, url: &'static str, agent: &'static str) {
    let uri = Uri::from_static(url);
    let info = RequestInfo::parse(&method, &uri, &HeaderMap::new());
    let query = uri.query().unwrap_or_default();
    let asked = Asked { info: Some(&info), query, user_agent: agent };
    tap.tell(&asked, answered(ServedBy::Cache));
}

fn answered(served_by: ServedBy) -> Answered {
    Answered {
        at: UNIX_EPOCH + Duration::from_millis(1_700_000_000_250),
        phase: Phase::Ended,
        served_by,
        detail: "session",
        code: StatusCode::OK,
        bytes: 12,
        duration: Duration::from_micros(1500),
    }
}

async fn heard(listening: &mut Listening) -> Vec<Arc<Tapped>> {
    let mut requests = Vec::new();
    listening.next(&mut requests, 100).await;
    requests
}

#[tokio::test]
async fn a_request_is_described_in_kubernetes_terms_and_without_foreign_parameters() {
    let tap = Tap::new(Metrics::new());
    assert!(!tap.is_watched());
    let mut listening = tap.listen(Some(Filter::default())).expect("a place");
    assert!(tap.is_watched());
    let url = "/apis/apps/v1/namespaces/shop/deployments?labelSelector=app%3Dweb&secret=abc";
    tell(&tap, Method::GET, url, AGENT);
    let told = heard(&mut listening).await;
    let value = serde_json::to_value(&*told[0]).expect("JSON");
    let expected = serde_json::json!({
        "at": 1_700_000_000.25, "phase": "ended", "verb": "list", "resource": "deployments.v1.apps",
        "namespace": "shop", "query": "labelSelector=app=web (+1 not shown)", "userAgent": AGENT,
        "servedBy": "cache", "detail": "session", "code": 200, "bytes": 12, "seconds": 0.0015,
    });
    assert_eq!(value, expected);
    drop(listening);
    assert!(!tap.is_watched());
}

#[tokio::test]
async fn only_matching_requests_are_sent() {
    let tap = Tap::new(Metrics::new());
    let some = |text: &str| Some(text.to_owned());
    let wanted = |verb: &str, resource: &str, agent: &str, by: &str| Filter {
        verb: some(verb),
        resource: some(resource),
        user_agent: some(agent),
        served_by: some(by),
    };
    let mut right =
        tap.listen(Some(wanted("LIST", "deployments.apps", "Fabric8", "cache"))).unwrap();
    let wrong = [
        wanted("watch", "deployments", "", "cache"),
        wanted("list", "pods", "", "cache"),
        wanted("list", "deployments", "curl", "cache"),
        wanted("list", "deployments", "", "upstream"),
    ];
    let mut wrong: Vec<_> = wrong.map(|filter| tap.listen(Some(filter)).unwrap()).into();
    tell(&tap, Method::GET, "/apis/apps/v1/deployments", AGENT);
    assert_eq!(heard(&mut right).await.len(), 1);
    for listening in &mut wrong {
        assert!(listening.queue.try_recv().is_err());
    }
}

#[tokio::test]
async fn a_slow_listener_loses_requests_and_gets_their_number() {
    let metrics = Metrics::new();
    let tap = Tap::new(metrics.clone());
    let mut slow = tap.listen(Some(Filter::default())).expect("a place");
    for _ in 0..QUEUE_MAX + 7 {
        tell(&tap, Method::GET, "/api/v1/pods", AGENT);
    }
    assert_eq!((slow.lost(), slow.lost()), (7, 0));
    assert_eq!(metrics.totals().limits[Limit::TappedRequests as usize], 7);
    let mut requests = Vec::new();
    slow.next(&mut requests, usize::MAX).await;
    assert_eq!(requests.len(), QUEUE_MAX);
}

#[tokio::test]
async fn listeners_are_bounded_and_places_come_back() {
    let metrics = Metrics::new();
    let tap = Tap::new(metrics.clone());
    let mut listening: Vec<_> =
        (0..LISTENERS_MAX).map(|_| tap.listen(None).expect("a place")).collect();
    assert!(!tap.is_watched(), "no listener wants requests");
    assert!(tap.listen(None).is_err());
    assert_eq!(metrics.totals().limits[Limit::EventStreams as usize], 1);
    listening.pop();
    assert!(tap.listen(Some(Filter::default())).is_ok());
}
