//! The routes of the admin server.

use std::sync::Arc;

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};

use super::{
    Audience, HEARTBEAT_MAX, Sources, assets, events, explanation,
    guard::{self, Verdict},
    parameters::Parameters,
    replicas, report,
    status::Status,
};
use crate::{body::Body, insight::report::Apiserver, lifecycle::Part};

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// The path list in the response to an unknown path.
const PROBE_PATHS: &str = "/livez\n/readyz\n/readyz?verbose\n/metrics\n";
const OPERATOR_PATHS: &str = "/\n/debug/replicas\n/api/v1/status\n/api/v1/report\n\
                              /api/v1/top\n/api/v1/timeline\n\
                              /api/v1/explain?method=GET&url=/api/v1/pods\n/api/v1/events\n";

/// The response to an unknown host.
const MISDIRECTED: &str = "this host name is not accepted here: use an IP address or localhost, or \
                           pass the name with --admin-name\n";

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Answers a request by its method, host, path and query.
pub(super) fn answer<B>(
    sources: &Arc<Sources>,
    audience: Audience,
    request: &Request<B>,
) -> Response<Body> {
    let mut response = find(sources, audience, request);
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    response
}

fn find<B>(sources: &Arc<Sources>, audience: Audience, request: &Request<B>) -> Response<Body> {
    let (method, uri) = (request.method(), request.uri());
    if method != Method::GET && method != Method::HEAD {
        let mut response = page(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET\n".to_owned());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let verbose = uri.query().is_some_and(|query| query.split('&').any(is_verbose));
    match (uri.path(), audience) {
        ("/livez" | "/healthz", _) => checks("livez", &live_parts(sources), None, verbose),
        ("/readyz", _) => {
            let apiserver = (sources.process_status)().apiserver;
            checks("readyz", &ready_parts(sources), Some(&apiserver), verbose)
        }
        ("/", Audience::Probes) => page(StatusCode::OK, TEXT, PROBE_PATHS.to_owned()),
        ("/metrics", _) => {
            sources.metrics.ready(all_pass(&ready_parts(sources)));
            page(StatusCode::OK, METRICS, sources.metrics.render())
        }
        (_, Audience::Probes) => not_found(PROBE_PATHS),
        (_, Audience::Operators) => match guard::verdict(request, &sources.names) {
            Verdict::Welcome => shown(sources, method, uri),
            Verdict::Misdirected => page(StatusCode::MISDIRECTED_REQUEST, TEXT, MISDIRECTED.into()),
            Verdict::CrossSite => page(
                StatusCode::FORBIDDEN,
                TEXT,
                "requests from other sites are \
                                                                     refused: open this address \
                                                                     directly\n"
                    .into(),
            ),
        },
    }
}

/// Answers the paths that show requests and objects.
fn shown(sources: &Arc<Sources>, method: &Method, uri: &Uri) -> Response<Body> {
    let parameters = Parameters::of(uri);
    match uri.path() {
        "/debug/replicas" => json(replicas::document(&(sources.replicas)())),
        "/api/v1/status" => json(Status::of(sources).document() + "\n"),
        "/api/v1/timeline" => {
            let since = parameters.get("since").and_then(|since| since.parse().ok());
            let document = sources.timeline.since(since.unwrap_or(0));
            json(serde_json::to_string(&document).expect("texts and numbers are JSON") + "\n")
        }
        "/api/v1/report" => respond(report::report((sources.report)(), uri.query())),
        "/api/v1/top" => respond(report::top((sources.report)(), uri.query())),
        "/api/v1/explain" => respond(explanation::document(sources, &parameters)),
        "/api/v1/events" if method == Method::HEAD => page(StatusCode::OK, EVENTS, String::new()),
        "/api/v1/events" => match events::open(sources, &parameters) {
            Ok(body) => typed(Response::new(body), EVENTS),
            Err(error) => page(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{error}\n")),
        },
        path => assets::find(path)
            .unwrap_or_else(|| not_found(&format!("{PROBE_PATHS}{OPERATOR_PATHS}"))),
    }
}

fn json(document: String) -> Response<Body> {
    page(StatusCode::OK, JSON, document)
}

fn not_found(paths: &str) -> Response<Body> {
    page(StatusCode::NOT_FOUND, TEXT, format!("not found; use one of these paths:\n{paths}"))
}

/// Responds with a document, or with the error in the parameters.
fn respond(document: Result<String, String>) -> Response<Body> {
    match document {
        Ok(document) => json(document),
        Err(why) => page(StatusCode::BAD_REQUEST, TEXT, why + "\n"),
    }
}

fn is_verbose(parameter: &str) -> bool {
    parameter == "verbose" || parameter.starts_with("verbose=")
}

fn live_parts(sources: &Sources) -> Vec<Part> {
    vec![Part { name: "data-path", ready: sources.heartbeat.age() <= HEARTBEAT_MAX }]
}

pub(super) fn ready_parts(sources: &Sources) -> Vec<Part> {
    let mut parts = sources.ready.parts();
    parts.push(Part { name: "connections", ready: (sources.has_room)() });
    parts.push(Part { name: "shutdown", ready: !sources.draining.is_begun() });
    parts
}

fn all_pass(parts: &[Part]) -> bool {
    parts.iter().all(|part| part.ready)
}

/// Formats checks like the apiserver: `ok`, or one line per check if verbose or failed.
///
/// The state of the apiserver is shown and never fails the check: an outage would otherwise take every
/// Listless out of service, with what its memory may still answer.
fn checks(
    name: &str,
    parts: &[Part],
    apiserver: Option<&Apiserver>,
    verbose: bool,
) -> Response<Body> {
    let passed = all_pass(parts);
    let code = if passed { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let outage = apiserver.and_then(Apiserver::outage);
    if passed && !verbose && outage.is_none() {
        return page(code, TEXT, "ok".to_owned());
    }
    let mut text = String::new();
    for Part { name, ready } in parts {
        let line = if *ready { format!("[+]{name} ok\n") } else { format!("[-]{name} failed\n") };
        text.push_str(&line);
    }
    match (outage, apiserver) {
        (Some(outage), _) => text.push_str(&format!("[!]apiserver warning: {outage}\n")),
        (None, Some(apiserver)) => match apiserver.state.as_str() {
            "reachable" => text.push_str("[+]apiserver ok\n"),
            "unknown" => text.push_str("[+]apiserver ok: no request yet\n"),
            _ => {}
        },
        (None, None) => {}
    }
    text.push_str(name);
    text.push_str(if passed { " check passed\n" } else { " check failed\n" });
    page(code, TEXT, text)
}

fn page(code: StatusCode, content_type: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::full(text));
    *response.status_mut() = code;
    typed(response, content_type)
}

fn typed(mut response: Response<Body>, content_type: &'static str) -> Response<Body> {
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use http::header::HOST;
    use tokio::time::{Duration, advance};

    use super::*;
    use crate::{
        admin::ProcessStatus,
        explain::Explanation,
        insight::report::Report,
        lifecycle::{Drain, Heartbeat, Ready},
        metrics::Metrics,
        tap::Tap,
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
            has_room: Box::new(|| true),
            tap: Tap::new(Metrics::new()),
            timeline: Arc::default(),
            names: Vec::new(),
            metrics: Metrics::new(),
            replicas: Box::new(Vec::new),
            report: Box::new(Report::default),
            process_status: Box::new(|| ProcessStatus {
                mode: "enforce",
                upstream: String::new(),
                apiserver: Apiserver::default(),
                up: Duration::ZERO,
                memory_limit_bytes: 0,
            }),
            explain: Box::new(|_| Explanation { told: Vec::new() }),
        };
        Setup { drain, sources: Arc::new(sources) }
    }

    impl Setup {
        async fn get(&self, audience: Audience, uri: &'static str) -> (u16, String) {
            let request = Request::get(uri).header(HOST, "127.0.0.1").body(()).unwrap();
            let response = answer(&self.sources, audience, &request);
            let code = response.status().as_u16();
            let body = response.into_body().collect(1 << 20).await.unwrap();
            (code, String::from_utf8(body.to_vec()).unwrap())
        }

        async fn probe(&self, uri: &'static str) -> (u16, String) {
            self.get(Audience::Probes, uri).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_names_the_part_that_is_not_ready() {
        let setup = setup();
        let listener = setup.sources.ready.register("listener");
        drop(setup.sources.ready.register("upstream"));
        let expected = "[-]listener failed\n[+]upstream ok\n[+]connections ok\n[+]shutdown ok\nreadyz check failed\n";
        assert_eq!(setup.probe("/readyz").await, (503, expected.to_owned()));
        drop(listener);
        assert_eq!(setup.probe("/readyz").await, (200, "ok".to_owned()));
        let expected = "[+]listener ok\n[+]upstream ok\n[+]connections ok\n[+]shutdown ok\nreadyz check passed\n";
        assert_eq!(setup.probe("/readyz?verbose").await, (200, expected.to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_of_the_apiserver_is_told_and_does_not_end_readiness() {
        let mut setup = setup();
        Arc::get_mut(&mut setup.sources).unwrap().process_status = Box::new(|| ProcessStatus {
            mode: "enforce",
            upstream: String::new(),
            apiserver: Apiserver {
                message: Some("apiserver not reachable: connection refused".to_owned()),
                for_seconds: Some(12.3),
                failures: 3,
                ..Apiserver::default()
            },
            up: Duration::ZERO,
            memory_limit_bytes: 0,
        });
        let expected = "[+]connections ok\n[+]shutdown ok\n[!]apiserver warning: apiserver not \
                        reachable: connection refused, for 12 s (3 requests failed)\nreadyz check \
                        passed\n";
        for uri in ["/readyz", "/readyz?verbose"] {
            assert_eq!(setup.probe(uri).await, (200, expected.to_owned()));
        }
        assert_eq!(setup.probe("/livez").await, (200, "ok".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_without_room_is_not_ready_and_yet_alive() {
        let mut setup = setup();
        Arc::get_mut(&mut setup.sources).unwrap().has_room = Box::new(|| false);
        let (code, text) = setup.probe("/readyz").await;
        assert_eq!(code, 503);
        assert!(text.contains("[-]connections failed"), "{text}");
        assert_eq!(setup.probe("/livez").await, (200, "ok".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_ends_readiness_but_not_liveness() {
        let setup = setup();
        setup.drain.begin(tokio::time::Instant::now());
        let (code, text) = setup.probe("/readyz").await;
        assert_eq!(code, 503);
        assert!(text.contains("[-]shutdown failed"), "{text}");
        assert_eq!(setup.probe("/livez").await, (200, "ok".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stuck_data_path_is_not_alive() {
        let setup = setup();
        advance(HEARTBEAT_MAX + Duration::from_secs(1)).await;
        let expected = "[-]data-path failed\nlivez check failed\n";
        assert_eq!(setup.probe("/livez").await, (503, expected.to_owned()));
        setup.sources.heartbeat.beat();
        assert_eq!(setup.probe("/livez").await.0, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn probe_addresses_do_not_serve_operator_paths() {
        let setup = setup();
        for uri in ["/debug/replicas", "/api/v1/report", "/api/v1/top"] {
            assert_eq!(setup.probe(uri).await.0, 404, "{uri}");
            assert_eq!(setup.get(Audience::Operators, uri).await.0, 200, "{uri}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn both_audiences_see_the_same_metrics() {
        let setup = setup();
        // The process's own figures change at any time, and their order is random.
        let steady = |(code, text): (u16, String)| {
            let lines = text.lines().filter(|line| !line.starts_with("process_"));
            (code, lines.map(str::to_owned).collect::<BTreeSet<_>>())
        };
        let metrics = steady(setup.probe("/metrics").await);
        assert_eq!(metrics.0, 200);
        assert!(metrics.1.len() > 10, "{metrics:?}");
        assert_eq!(metrics, steady(setup.get(Audience::Operators, "/metrics").await));
    }

    #[tokio::test(start_paused = true)]
    async fn invalid_parameters_are_refused() {
        let setup = setup();
        for uri in ["/api/v1/report?limit=many", "/api/v1/top?sort=colour", "/api/v1/top?x=1"] {
            assert_eq!(setup.get(Audience::Operators, uri).await.0, 400, "{uri}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_listed_path_exists() {
        let setup = setup();
        for audience in [Audience::Probes, Audience::Operators] {
            let (code, list) = setup.get(audience, "/nothing").await;
            assert_eq!(code, 404);
            // An event stream never ends, so its body is not collected.
            for path in list.lines().skip(1).filter(|path| *path != "/api/v1/events") {
                let path: &'static str = path.to_owned().leak();
                assert_eq!(setup.get(audience, path).await.0, 200, "{path}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_metrics_report_readiness() {
        let setup = setup();
        let (_, text) = setup.get(Audience::Operators, "/metrics").await;
        assert!(text.contains("\nlistless_ready 1\n"), "{text}");
        let _waiting = setup.sources.ready.register("listener");
        let (_, text) = setup.get(Audience::Operators, "/metrics").await;
        assert!(text.contains("\nlistless_ready 0\n"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn only_read_methods_are_allowed() {
        let setup = setup();
        let request = Request::post("/metrics").body(()).unwrap();
        let response = answer(&setup.sources, Audience::Operators, &request);
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(response.headers()[ALLOW], "GET, HEAD");
    }
}
