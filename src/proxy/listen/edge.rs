//! Requests that nobody behind the listener should see, and their answers.

use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{CONNECTION, CONTENT_TYPE, UPGRADE},
};
use hyper::body::Incoming;

use super::{
    Connection, Protocol, Serve,
    connect::{self, Tunnels},
    guard::Verdict,
};
use crate::body::Body;

/// Answers a request of an HTTP/1 connection, whose framing may be wrong.
pub(super) async fn answer_http1<S: Serve>(
    service: &S,
    connection: &Connection,
    verdict: &Verdict,
    tunnels: &Tunnels,
    mut request: Request<Incoming>,
) -> Response<Body> {
    if let Some(violation) = verdict.violation() {
        let mut response = refusal(StatusCode::BAD_REQUEST, "BadRequest", violation.message());
        close(&mut response);
        return response;
    }
    if let Some(response) = tunnels.answer(&mut request) {
        return response;
    }
    let upgrade = request.headers().contains_key(UPGRADE);
    let mut response = answer(service, connection, request).await;
    if upgrade && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        // Whoever hoped for a tunnel may have sent bytes for it already.
        close(&mut response);
    }
    response
}

pub(super) async fn answer<S: Serve>(
    service: &S,
    connection: &Connection,
    request: Request<Incoming>,
) -> Response<Body> {
    let mut response = if request.method() == Method::CONNECT {
        connect::not_supported()
    } else if is_bare_authority(request.uri()) {
        let message = "the request target is neither a path nor a URL";
        refusal(StatusCode::BAD_REQUEST, "BadRequest", message)
    } else {
        return service.serve(connection, request).await;
    };
    if connection.protocol == Protocol::Http1 {
        close(&mut response);
    }
    response
}

/// Whether a target has the form that only CONNECT may have (RFC 9112 §3.2.3).
fn is_bare_authority(target: &Uri) -> bool {
    target.scheme().is_none() && target.authority().is_some()
}

pub(super) fn close(response: &mut Response<Body>) {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
}

/// A refusal as an apiserver would word it: a Status.
pub(super) fn refusal(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let status = serde_json::json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code.as_u16(),
    });
    let mut response = Response::new(Body::full(status.to_string()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
