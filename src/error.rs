//! Turns an error of the data path into a `Status` response.
//!
//! The client gets the kind of cause and whether to retry, but no addresses or credentials. Those
//! are logged where the error is handled.

use std::{borrow::Cow, error, fmt, num::NonZeroU32};

use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use serde::Serialize;

use crate::{
    api::{Verb, request::RequestInfo},
    body::Body,
    metrics::UpstreamCause,
    upstream::{self, health::cause_of},
};

/// The reason for an error response of Listless's own.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The apiserver did not answer.
    #[error("the apiserver did not answer")]
    Upstream {
        /// The cause.
        #[source]
        source: upstream::Error,
        /// The retry advice for the client.
        retry: Retry,
    },
    /// The client repeats the same read too often.
    #[error("the same read was repeated too often")]
    RepeatedPoll {
        /// The time after which the client may retry.
        retry_after_secs: NonZeroU32,
    },
}

/// The party at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The client sent an impossible request.
    Client,
    /// The apiserver, or the network path to it.
    Upstream,
    /// Listless.
    Proxy,
}

/// The retry advice for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Retry after a second. A retry changes nothing.
    Invite,
    /// The client decides: the request may have had its effect, or is not known to be a read.
    Leave,
}

/// Prints an error and all its causes on one line.
pub struct Chain<'a>(pub &'a (dyn error::Error + 'a));

/// A `Status` in the apiserver's form.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusBody<'a> {
    kind: &'a str,
    api_version: &'a str,
    metadata: Empty,
    status: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    code: u16,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    retry_after_seconds: u64,
}

/// The delay that a retrying client is advised.
const RETRY_AFTER_SECONDS: u64 = 1;

// === impl Error ===

impl Error {
    /// Returns the error for a request that the apiserver did not answer.
    pub fn upstream(error: upstream::Error, info: &RequestInfo) -> Self {
        let retry = match (&error, info.verb()) {
            (upstream::Error::RequestBody(_), _) => Retry::Leave,
            (_, Verb::Get | Verb::List | Verb::Watch) => Retry::Invite,
            _ => Retry::Leave,
        };
        Self::Upstream { source: error, retry }
    }

    /// Returns the party at fault.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Upstream { source: upstream::Error::Credentials(_), .. } => Fault::Proxy,
            Self::Upstream { source: upstream::Error::Saturated(_), .. } => Fault::Proxy,
            Self::Upstream { source: upstream::Error::RequestBody(_), .. } => Fault::Client,
            Self::Upstream { .. } => Fault::Upstream,
            Self::RepeatedPoll { .. } => Fault::Client,
        }
    }

    /// Returns the word for logs and Cache-Status.
    pub fn as_str(&self) -> &'static str {
        let source = match self {
            Self::Upstream { source, .. } => source,
            Self::RepeatedPoll { .. } => return "repeated-poll",
        };
        match source {
            upstream::Error::Connect(_) => "upstream-unreachable",
            upstream::Error::ConnectTimeout => "upstream-timeout",
            upstream::Error::Broken(_) => "upstream-broken",
            upstream::Error::RequestBody(_) => "request-body",
            upstream::Error::Credentials(_) => "own-credentials",
            upstream::Error::Saturated(_) => "upstream-saturated",
        }
    }

    /// Returns the response for the client.
    pub fn into_response(self) -> Response<Body> {
        let (source, retry) = match &self {
            Self::Upstream { source, retry } => (source, retry),
            Self::RepeatedPoll { retry_after_secs } => return repeated(*retry_after_secs),
        };
        let (code, reason) = match (source, retry) {
            (upstream::Error::RequestBody(_), _) => (StatusCode::BAD_REQUEST, Some("BadRequest")),
            // The request may have had its effect: this is a gateway error, not a server error.
            (upstream::Error::Broken(_), Retry::Leave) => (StatusCode::BAD_GATEWAY, None),
            _ => (StatusCode::SERVICE_UNAVAILABLE, Some("ServiceUnavailable")),
        };
        let retry_after = (*retry == Retry::Invite).then_some(RETRY_AFTER_SECONDS);
        answer(code, reason, retry_after, &message(source))
    }
}

/// Returns the refusal of a repeated read. Few clients heed a delay, and those only in whole
/// seconds, in the header or in the Status.
fn repeated(retry_after_secs: NonZeroU32) -> Response<Body> {
    let retry_after = Some(retry_after_secs.get().into());
    let message = "listless refuses this read for now: it was repeated too often; retry later";
    answer(StatusCode::TOO_MANY_REQUESTS, Some("TooManyRequests"), retry_after, message)
}

/// Returns the message for the client.
fn message(error: &upstream::Error) -> Cow<'static, str> {
    let message = match error {
        upstream::Error::Connect(_) => {
            let cause = cause_of(error).unwrap_or(UpstreamCause::Connect);
            return format!("listless cannot connect to the apiserver: {}", cause.text()).into();
        }
        upstream::Error::ConnectTimeout => "listless cannot connect to the apiserver in time",
        upstream::Error::Broken(_) => {
            "the connection between listless and the apiserver broke before a response"
        }
        upstream::Error::RequestBody(_) => "the body of the request ended early or is malformed",
        upstream::Error::Credentials(_) => "listless has no valid credentials of its own",
        upstream::Error::Saturated(_) => {
            "listless has reached its limit of concurrent requests to the apiserver; retry later"
        }
    };
    message.into()
}

fn answer(
    code: StatusCode,
    reason: Option<&str>,
    retry_after: Option<u64>,
    message: &str,
) -> Response<Body> {
    let failure = StatusBody {
        kind: "Status",
        api_version: "v1",
        metadata: Empty {},
        status: "Failure",
        message,
        reason,
        details: retry_after.map(|seconds| Details { retry_after_seconds: seconds }),
        code: code.as_u16(),
    };
    let body = serde_json::to_vec(&failure).expect("texts and numbers are JSON");
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

// === impl Chain ===

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut written = self.0.to_string();
        f.write_str(&written)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Some errors already include their cause.
            if !written.ends_with(&text) {
                write!(f, ": {text}")?;
                written = text;
            }
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use http::{HeaderMap, Method, Uri};

    use super::*;

    const SECRET: &str = "10.1.2.3:6443 refused";

    fn broken() -> upstream::Error {
        upstream::Error::Broken(Box::new(io::Error::other(SECRET)))
    }

    fn unreachable() -> upstream::Error {
        upstream::Error::Connect(Box::new(io::Error::other(SECRET)))
    }

    async fn answered(
        error: upstream::Error,
        method: Method,
        uri: &'static str,
    ) -> (u16, Option<String>, serde_json::Value) {
        let info = RequestInfo::parse(&method, &Uri::from_static(uri), &HeaderMap::new());
        let response = Error::upstream(error, &info).into_response();
        let retry = response.headers().get(RETRY_AFTER).map(|v| v.to_str().unwrap().to_owned());
        let code = response.status().as_u16();
        let body = response.into_body().collect(1 << 16).await.unwrap();
        assert!(!body.windows(4).any(|part| part == b"6443"), "no address in an answer");
        (code, retry, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn failed_reads_advise_a_retry_in_header_and_status() {
        for (error, uri) in [
            (unreachable(), "/api/v1/pods"),
            (broken(), "/api/v1/namespaces/shop/pods/web-0"),
            (upstream::Error::ConnectTimeout, "/api/v1/pods?watch=1"),
        ] {
            let (code, retry, status) = answered(error, Method::GET, uri).await;
            assert_eq!((code, retry.as_deref()), (503, Some("1")), "{uri}");
            assert_eq!(status["details"]["retryAfterSeconds"], 1);
            assert_eq!(status["reason"], "ServiceUnavailable");
            assert_eq!((&status["kind"], &status["code"]), (&"Status".into(), &503.into()));
        }
    }

    #[tokio::test]
    async fn failed_writes_advise_no_retry() {
        let pods = "/api/v1/namespaces/shop/pods";
        let (code, retry, status) = answered(unreachable(), Method::POST, pods).await;
        assert_eq!((code, retry), (503, None));
        assert_eq!(status.get("details"), None);
        let (code, retry, status) = answered(broken(), Method::POST, pods).await;
        assert_eq!((code, retry), (502, None));
        assert_eq!(status.get("reason"), None);
    }

    #[tokio::test]
    async fn a_broken_request_body_is_the_fault_of_the_client() {
        let broken = || upstream::Error::RequestBody(Box::new(io::Error::other(SECRET)));
        for method in [Method::GET, Method::POST] {
            let (code, retry, status) = answered(broken(), method, "/api/v1/pods").await;
            assert_eq!((code, retry), (400, None));
            assert_eq!(status["reason"], "BadRequest");
        }
        let info = RequestInfo::parse(&Method::GET, &Uri::from_static("/a"), &HeaderMap::new());
        let error = Error::upstream(broken(), &info);
        assert_eq!((error.fault(), error.as_str()), (Fault::Client, "request-body"));
    }

    #[tokio::test]
    async fn a_throttled_poll_gets_a_retry_delay() {
        let retry_after_secs = NonZeroU32::new(7).unwrap();
        let error = Error::RepeatedPoll { retry_after_secs };
        assert_eq!((error.fault(), error.as_str()), (Fault::Client, "repeated-poll"));
        let response = error.into_response();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[RETRY_AFTER], "7");
        let body = response.into_body().collect(1 << 16).await.unwrap();
        let status: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&status["kind"], &status["code"]), (&"Status".into(), &429.into()));
        assert_eq!(status["reason"], "TooManyRequests");
        assert_eq!(status["details"]["retryAfterSeconds"], 7);
    }

    #[test]
    fn a_chain_names_every_cause_on_one_line() {
        let error = broken();
        let expected = format!("the connection to the apiserver broke before a response: {SECRET}");
        assert_eq!(Chain(&error).to_string(), expected);
    }

    #[test]
    fn a_cause_is_named_only_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("reading failed: {0}")]
        struct Talkative(#[source] io::Error);

        let error = Talkative(io::Error::other("no such file"));
        assert_eq!(Chain(&error).to_string(), "reading failed: no such file");
    }
}
