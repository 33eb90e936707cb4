//! Requests that the listener itself refuses, and their responses.

use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{CONNECTION, CONTENT_TYPE, EXPECT, RETRY_AFTER, UPGRADE},
};
use hyper::body::Incoming;

use super::{
    Connection, Protocol, Serve,
    connect::{self, Tunnels},
    guard::Verdict,
};
use crate::{
    body::Body,
    connection_limit::{Busy, NotBegun},
    metrics::EdgeRefusal,
    proxy::request_log::CACHE_STATUS,
};

/// The delay after which a client may send a request again that was one too many.
const RETRY_AFTER_SECONDS: u64 = 1;

/// Responds to a request of an HTTP/1 connection, whose framing may be wrong.
pub(super) async fn answer_http1<S: Serve>(
    service: &S,
    connection: &Connection,
    verdict: &Verdict,
    tunnels: &Tunnels,
    mut request: Request<Incoming>,
) -> Response<Body> {
    if let Some(violation) = verdict.violation() {
        return closing(bad_request(EdgeRefusal::Framing, violation.message()));
    }
    if let Some(response) = tunnels.answer(&mut request) {
        return response;
    }
    if nominates_credential(request.headers()) {
        let message = "the Connection header names a credential";
        return closing(bad_request(EdgeRefusal::Credential, message));
    }
    if !can_meet_expectation(request.headers()) {
        let (why, code) = (EdgeRefusal::Expectation, StatusCode::EXPECTATION_FAILED);
        let message = "the Expect header is not 100-continue";
        return closing(refusal(why, code, "", message));
    }
    let upgrade = request.headers().contains_key(UPGRADE);
    let mut response = answer(service, connection, request).await;
    if upgrade && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        // The client may already have sent bytes for the tunnel it expected.
        close(&mut response);
    }
    response
}

/// Responds to a request, if it may begin.
pub(super) async fn while_busy(
    begun: Result<Busy, NotBegun>,
    answer: impl Future<Output = Response<Body>>,
) -> Response<Body> {
    let busy = match begun {
        Ok(busy) => busy,
        Err(not_begun) => return refusal_of(not_begun),
    };
    let response = answer.await;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        busy.keep();
        return response;
    }
    // A client that does not read an error holds no slot with it.
    if response.status().is_client_error() || response.status().is_server_error() {
        return response;
    }
    response.map(|body| body.holding(busy))
}

pub(super) async fn answer<S: Serve>(
    service: &S,
    connection: &Connection,
    request: Request<Incoming>,
) -> Response<Body> {
    let mut response = if request.method() == Method::CONNECT {
        connect::not_supported()
    } else if is_bare_authority(request.uri()) {
        bad_request(EdgeRefusal::Target, "the request target is neither a path nor a URL")
    } else if !is_whole(request.uri()) {
        bad_request(EdgeRefusal::Target, "the request target has an invalid escape")
    } else {
        return service.serve(connection, request).await;
    };
    if connection.protocol == Protocol::Http1 {
        close(&mut response);
    }
    response
}

/// Reports whether a target has the form that only CONNECT may have (RFC 9112 §3.2.3).
fn is_bare_authority(target: &Uri) -> bool {
    target.scheme().is_none() && target.authority().is_some()
}

/// Reports whether an apiserver can parse a target. It answers 400 to others, or breaks the stream.
fn is_whole(target: &Uri) -> bool {
    let mut parts = target.path().as_bytes().split(|byte| *byte == b'%');
    // The text before the first escape is not an escape.
    parts.next();
    let is_escape =
        |part: &[u8]| matches!(part, [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    parts.all(is_escape)
        && !target.path_and_query().is_some_and(|all| all.as_str().contains('\x7f'))
}

/// Returns the options of a connection, and the headers that end with it.
pub(in crate::proxy) fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let values = headers.get_all(CONNECTION).iter();
    values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

/// Reports whether a client asks to remove its own credential on the way.
fn nominates_credential(headers: &HeaderMap) -> bool {
    named_by_connection(headers).any(|name| {
        let begins =
            |with: &[u8]| name.len() >= with.len() && name[..with.len()].eq_ignore_ascii_case(with);
        name.eq_ignore_ascii_case(b"authorization")
            || name.eq_ignore_ascii_case(b"sec-websocket-protocol")
            || begins(b"impersonate-")
    })
}

/// Reports whether a server can do what the client expects of it (RFC 9110 §10.1.1).
fn can_meet_expectation(headers: &HeaderMap) -> bool {
    let is_met = |value: &[u8]| value.is_empty() || value.eq_ignore_ascii_case(b"100-continue");
    headers.get_all(EXPECT).iter().all(|value| is_met(value.as_bytes().trim_ascii()))
}

fn closing(mut response: Response<Body>) -> Response<Body> {
    close(&mut response);
    response
}

pub(super) fn close(response: &mut Response<Body>) {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
}

fn refusal_of(not_begun: NotBegun) -> Response<Body> {
    match not_begun {
        NotBegun::Closed => {
            let message = "the connection was idle and was closed";
            let code = StatusCode::SERVICE_UNAVAILABLE;
            refusal(EdgeRefusal::Closed, code, "ServiceUnavailable", message)
        }
        NotBegun::Full => {
            let message = "listless has reached its limit of concurrent requests; retry later";
            let (why, code) = (EdgeRefusal::TooMany, StatusCode::TOO_MANY_REQUESTS);
            let mut response = refusal(why, code, "TooManyRequests", message);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
            response
        }
    }
}

/// Returns the refusal of a request that the client should not have sent.
pub(super) fn bad_request(why: EdgeRefusal, message: &str) -> Response<Body> {
    refusal(why, StatusCode::BAD_REQUEST, "BadRequest", message)
}

/// Returns a refusal in the apiserver's form: a Status. The listener counts it by its extension.
pub(super) fn refusal(
    why: EdgeRefusal,
    code: StatusCode,
    reason: &str,
    message: &str,
) -> Response<Body> {
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
        .headers_mut()
        .insert(CACHE_STATUS, HeaderValue::from_static("listless; detail=refused"));
    response.extensions_mut().insert(why);
    response
}
