//! One answer per path.

use http::{
    HeaderValue, Method, Response, StatusCode, Uri,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};

use super::{Audience, HEARTBEAT_MAX, Sources, replicas};
use crate::{body::Body, lifecycle::Part};

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const JSON: &str = "application/json";

/// What there is on the two addresses, told to who asks for anything else.
const PROBE_PATHS: &str = "/livez\n/readyz\n/readyz?verbose\n/metrics\n";
const OPERATOR_PATHS: &str = "/debug/replicas\n";

/// Answers a request by its method, path and query.
pub(super) fn answer(
    sources: &Sources,
    audience: Audience,
    method: &Method,
    uri: &Uri,
) -> Response<Body> {
    if method != Method::GET && method != Method::HEAD {
        let mut response = page(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET\n".to_owned());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let verbose = uri.query().is_some_and(|query| query.split('&').any(is_verbose));
    match (uri.path(), audience) {
        ("/livez" | "/healthz", _) => checks("livez", &live_parts(sources), verbose),
        ("/readyz", _) => checks("readyz", &ready_parts(sources), verbose),
        ("/metrics", _) => {
            sources.metrics.ready(all_pass(&ready_parts(sources)));
            page(StatusCode::OK, METRICS, sources.metrics.render())
        }
        ("/debug/replicas", Audience::Operators) => {
            page(StatusCode::OK, JSON, replicas::document(&(sources.replicas)()))
        }
        ("/", Audience::Operators) => {
            page(StatusCode::OK, TEXT, format!("{PROBE_PATHS}{OPERATOR_PATHS}"))
        }
        ("/", Audience::Probes) => page(StatusCode::OK, TEXT, PROBE_PATHS.to_owned()),
        _ => page(StatusCode::NOT_FOUND, TEXT, "not found; see /\n".to_owned()),
    }
}

fn is_verbose(parameter: &str) -> bool {
    parameter == "verbose" || parameter.starts_with("verbose=")
}

fn live_parts(sources: &Sources) -> Vec<Part> {
    vec![Part { name: "data-path", ready: sources.heartbeat.age() <= HEARTBEAT_MAX }]
}

fn ready_parts(sources: &Sources) -> Vec<Part> {
    let mut parts = sources.ready.parts();
    parts.push(Part { name: "shutdown", ready: !sources.draining.is_begun() });
    parts
}

fn all_pass(parts: &[Part]) -> bool {
    parts.iter().all(|part| part.ready)
}

/// The apiserver's form: `ok`, or a line for each check when asked for or when one fails.
fn checks(name: &str, parts: &[Part], verbose: bool) -> Response<Body> {
    let passed = all_pass(parts);
    let code = if passed { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    if passed && !verbose {
        return page(code, TEXT, "ok".to_owned());
    }
    let mut text = String::new();
    for Part { name, ready } in parts {
        let line = if *ready { format!("[+]{name} ok\n") } else { format!("[-]{name} failed\n") };
        text.push_str(&line);
    }
    text.push_str(name);
    text.push_str(if passed { " check passed\n" } else { " check failed\n" });
    page(code, TEXT, text)
}

fn page(code: StatusCode, content_type: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::full(text));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::{Duration, advance};

    use super::*;
    use crate::{
        lifecycle::{Drain, Heartbeat, Ready},
        metrics::Metrics,
    };

    struct Setup {
        drain: Drain,
        sources: Arc<Sources>,
    }

    fn setup() -> Setup {
        let drain = Drain::new();
        let sources = Sources {
            ready: Ready::default(),
            draining: drain.watch(),
            heartbeat: Heartbeat::new(),
            metrics: Metrics::new(),
            replicas: Box::new(Vec::new),
        };
        Setup { drain, sources: Arc::new(sources) }
    }

    impl Setup {
        async fn get(&self, audience: Audience, uri: &'static str) -> (u16, String) {
            let uri = Uri::from_static(uri);
            let response = answer(&self.sources, audience, &Method::GET, &uri);
            let code = response.status().as_u16();
            let body = response.into_body().collect(1 << 20).await.unwrap();
            (code, String::from_utf8(body.to_vec()).unwrap())
        }

        async fn probe(&self, uri: &'static str) -> (u16, String) {
            self.get(Audience::Probes, uri).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_names_what_is_not_ready() {
        let setup = setup();
        let listener = setup.sources.ready.register("listener");
        drop(setup.sources.ready.register("upstream"));
        let expected = "[-]listener failed\n[+]upstream ok\n[+]shutdown ok\nreadyz check failed\n";
        assert_eq!(setup.probe("/readyz").await, (503, expected.to_owned()));
        drop(listener);
        assert_eq!(setup.probe("/readyz").await, (200, "ok".to_owned()));
        let expected = "[+]listener ok\n[+]upstream ok\n[+]shutdown ok\nreadyz check passed\n";
        assert_eq!(setup.probe("/readyz?verbose").await, (200, expected.to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_ends_readiness_and_not_life() {
        let setup = setup();
        setup.drain.begin(tokio::time::Instant::now());
        let (code, text) = setup.probe("/readyz").await;
        assert_eq!(code, 503);
        assert!(text.contains("[-]shutdown failed"), "{text}");
        assert_eq!(setup.probe("/livez").await, (200, "ok".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_data_path_that_no_longer_moves_is_not_alive() {
        let setup = setup();
        advance(HEARTBEAT_MAX + Duration::from_secs(1)).await;
        let expected = "[-]data-path failed\nlivez check failed\n";
        assert_eq!(setup.probe("/livez").await, (503, expected.to_owned()));
        setup.sources.heartbeat.beat();
        assert_eq!(setup.probe("/livez").await.0, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn probes_are_not_shown_what_operators_see() {
        let setup = setup();
        assert_eq!(setup.probe("/debug/replicas").await.0, 404);
        assert_eq!(setup.get(Audience::Operators, "/debug/replicas").await.0, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn probes_and_operators_are_shown_the_same_metrics() {
        let setup = setup();
        let metrics = setup.probe("/metrics").await;
        assert_eq!(metrics.0, 200);
        assert_eq!(metrics, setup.get(Audience::Operators, "/metrics").await);
    }

    #[tokio::test(start_paused = true)]
    async fn every_path_that_is_listed_exists() {
        let setup = setup();
        for audience in [Audience::Probes, Audience::Operators] {
            let (_, list) = setup.get(audience, "/").await;
            for path in list.lines() {
                let path: &'static str = path.to_owned().leak();
                assert_eq!(setup.get(audience, path).await.0, 200, "{path}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_metrics_tell_readiness() {
        let setup = setup();
        let (_, text) = setup.get(Audience::Operators, "/metrics").await;
        assert!(text.contains("\nlistless_ready 1\n"), "{text}");
        let _waiting = setup.sources.ready.register("listener");
        let (_, text) = setup.get(Audience::Operators, "/metrics").await;
        assert!(text.contains("\nlistless_ready 0\n"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_can_be_changed() {
        let setup = setup();
        let uri = Uri::from_static("/metrics");
        let response = answer(&setup.sources, Audience::Operators, &Method::POST, &uri);
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(response.headers()[ALLOW], "GET, HEAD");
    }
}
