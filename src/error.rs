//! The one place that turns a failure into a Status answer.
//!
//! The client is told what happened and whether to try again, nothing of addresses, credentials or
//! causes; those are for the log, where the failure is handled.

use std::{borrow::Cow, error, fmt, num::NonZeroU32};

use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use serde::Serialize;

use crate::{
    api::{Verb, request::RequestInfo},
    body::Body,
    metrics::{UpstreamCause, UpstreamFault},
    mutants::{Mutant, is_on},
    upstream::{self, health::cause_of},
};

/// Why a request has no answer of its own.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The apiserver did not answer.
    #[error("the apiserver did not answer")]
    Upstream {
        /// Why.
        #[source]
        source: upstream::Error,
        /// Whether the client is asked to try again.
        retry: Retry,
    },
    /// The client asks for the same again and again.
    #[error("the same read was repeated too often")]
    RepeatedPoll {
        /// When it may come again.
        retry_after_secs: NonZeroU32,
    },
}

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The client asked for something impossible.
    Client,
    /// The apiserver, or the way to it.
    Upstream,
    /// Listless.
    Proxy,
}

/// Whether the client is asked to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// After a second: asking again changes nothing.
    Invite,
    /// That is the client's to decide: the request may have had its effect, or is not known to be a
    /// read.
    Leave,
}

/// Prints an error with everything that caused it, on one line.
pub struct Chain<'a>(pub &'a (dyn error::Error + 'a));

/// A `Status` as the apiserver sends them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Failure<'a> {
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

/// How long a client that is asked to try again should wait.
const RETRY_AFTER_SECONDS: u64 = 1;

// === impl Error ===

impl Error {
    /// The apiserver did not answer this request.
    pub fn upstream(error: upstream::Error, info: &RequestInfo) -> Self {
        let retry = match info.verb() {
            Verb::Get | Verb::List | Verb::Watch => Retry::Invite,
            _ => Retry::Leave,
        };
        Self::Upstream { source: error, retry }
    }

    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Upstream { source: upstream::Error::Credentials(_), .. } => Fault::Proxy,
            Self::Upstream { source: upstream::Error::Saturated(_), .. } => Fault::Proxy,
            Self::Upstream { .. } => Fault::Upstream,
            Self::RepeatedPoll { .. } => Fault::Client,
        }
    }

    /// The word for logs and Cache-Status.
    pub fn as_str(&self) -> &'static str {
        let source = match self {
            Self::Upstream { source, .. } => source,
            Self::RepeatedPoll { .. } => return "repeated-poll",
        };
        match source {
            upstream::Error::Connect(_) => "upstream-unreachable",
            upstream::Error::ConnectTimeout => "upstream-timeout",
            upstream::Error::Broken(_) => "upstream-broken",
            upstream::Error::Credentials(_) => "own-credentials",
            upstream::Error::Saturated(_) => "upstream-saturated",
        }
    }

    /// The answer.
    pub fn into_response(self) -> Response<Body> {
        let (source, retry) = match &self {
            Self::Upstream { source, retry } => (source, retry),
            Self::RepeatedPoll { retry_after_secs } => return repeated(*retry_after_secs),
        };
        let (code, reason) = match (source, retry) {
            // The request may have had its effect: a gateway's failure, not the server's.
            (upstream::Error::Broken(_), Retry::Leave) => (StatusCode::BAD_GATEWAY, None),
            _ => (StatusCode::SERVICE_UNAVAILABLE, Some("ServiceUnavailable")),
        };
        let retry_after = (*retry == Retry::Invite).then_some(RETRY_AFTER_SECONDS);
        answer(code, reason, retry_after, &message(source))
    }
}

/// Few clients heed it, and those only in whole seconds, in the header or in the Status.
fn repeated(retry_after_secs: NonZeroU32) -> Response<Body> {
    let retry_after = (!is_on(Mutant::NoRetryAfter)).then(|| retry_after_secs.get().into());
    let message = "listless refuses this read for now: it was repeated too often";
    answer(StatusCode::TOO_MANY_REQUESTS, Some("TooManyRequests"), retry_after, message)
}

/// What the client is told.
fn message(error: &upstream::Error) -> Cow<'static, str> {
    let message = match error {
        upstream::Error::Connect(_) => {
            let cause = cause_of(error).unwrap_or(UpstreamCause::Connect);
            return format!("listless cannot connect to the apiserver: {}", cause.text()).into();
        }
        upstream::Error::ConnectTimeout => "listless cannot connect to the apiserver in time",
        upstream::Error::Broken(_) => {
            "the connection between listless and the apiserver broke before an answer came"
        }
        upstream::Error::Credentials(_) => "listless has no valid credentials of its own",
        upstream::Error::Saturated(_) => {
            "listless has as many requests to the apiserver under way as it allows"
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
    let failure = Failure {
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

// === impl UpstreamFault ===

impl From<&upstream::Error> for UpstreamFault {
    fn from(error: &upstream::Error) -> Self {
        match error {
            upstream::Error::Connect(_) => Self::Connect,
            upstream::Error::ConnectTimeout => Self::ConnectTimeout,
            upstream::Error::Broken(_) => Self::Broken,
            upstream::Error::Credentials(_) => Self::Credentials,
            upstream::Error::Saturated(_) => Self::Saturated,
        }
    }
}

// === impl Chain ===

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = self.0.to_string();
        f.write_str(&told)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Some errors already tell their cause.
            if !told.ends_with(&text) {
                write!(f, ": {text}")?;
                told = text;
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
    async fn reads_are_invited_to_try_again_in_both_ways_clients_look_for() {
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
    async fn writes_are_not_invited_to_try_again() {
        let pods = "/api/v1/namespaces/shop/pods";
        let (code, retry, status) = answered(unreachable(), Method::POST, pods).await;
        assert_eq!((code, retry), (503, None));
        assert_eq!(status.get("details"), None);
        let (code, retry, status) = answered(broken(), Method::POST, pods).await;
        assert_eq!((code, retry), (502, None));
        assert_eq!(status.get("reason"), None);
    }

    #[tokio::test]
    async fn a_poll_that_repeats_too_often_is_told_when_to_come_again() {
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
    fn a_chain_tells_every_cause_on_one_line() {
        let error = broken();
        let expected =
            format!("the connection to the apiserver broke before an answer came: {SECRET}");
        assert_eq!(Chain(&error).to_string(), expected);
    }

    #[test]
    fn a_cause_that_was_told_already_is_not_told_again() {
        #[derive(Debug, thiserror::Error)]
        #[error("reading failed: {0}")]
        struct Talkative(#[source] io::Error);

        let error = Talkative(io::Error::other("no such file"));
        assert_eq!(Chain(&error).to_string(), "reading failed: no such file");
    }
}
