//! Reviews of a token that Listless itself created, which the apiserver cannot know.
//!
//! The review is first sent to the apiserver, complete: the apiserver checks it and the caller's
//! permissions. Only a response that calls this token unknown is completed. The
//! user comes from a SelfSubjectReview in Listless's own name. Invariant: the apiserver's response
//! stays for any other token, and for a review of other audiences than the issuer's.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode,
    header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE},
};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use super::{
    forward::Forwarder,
    identify::{Caller, Identify},
    self_review,
};
use crate::{
    api::{
        Verb,
        request::{RequestInfo, ResourceRequest},
    },
    body::Body,
    upstream::Error,
};

/// The part of a TokenReview that a client sends.
#[derive(Deserialize)]
struct Asked {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    token: String,
    #[serde(default)]
    audiences: Option<Vec<String>>,
}

/// The part of a TokenReview that the apiserver adds.
#[derive(Deserialize)]
struct Answered<'a> {
    #[serde(borrow)]
    status: &'a RawValue,
}

#[derive(Deserialize)]
struct Verdict {
    #[serde(default)]
    authenticated: bool,
}

/// The document that names the issuer, by default the apiserver's own audience.
#[derive(Deserialize)]
struct Issuer {
    issuer: String,
}

const GROUP: &str = "authentication.k8s.io";
const ISSUER: &str = "/.well-known/openid-configuration";
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The largest review that is parsed; a larger one is forwarded unparsed.
const REVIEW_BYTES_MAX: usize = 64 * 1024;

/// Reports whether a request of Listless's own user may review the token of that user.
pub(super) fn is_one(caller: Caller, info: &RequestInfo, headers: &HeaderMap) -> bool {
    let is_review = |request: &ResourceRequest| {
        request.verb == Verb::Create
            && *request.resource.group == *GROUP
            && *request.resource.resource == *"tokenreviews"
            && request.subresource.is_none()
    };
    caller == Caller::Own && info.resource_request().is_some_and(is_review) && is_short(headers)
}

/// Sends a review and completes the response if the token is that of Listless's own user.
pub(super) async fn send(
    identify: &Identify,
    forwarder: &Forwarder,
    request: Request<Incoming>,
) -> Result<Response<Body>, Error> {
    let (head, body) = request.into_parts();
    let body = Body::incoming(body).collect(REVIEW_BYTES_MAX).await.map_err(Error::Broken)?;
    let sent = Request::from_parts(head, Body::full(body.clone()));
    let response = forwarder.send_own(sent).await?;
    let Some(spec) = reviewed(&body).filter(|spec| identify.is_made_token(&spec.token)) else {
        return Ok(response);
    };
    if response.status() != StatusCode::CREATED || !is_plain_json(response.headers()) {
        return Ok(response);
    }
    let (mut head, body) = response.into_parts();
    let body = body.collect(REVIEW_BYTES_MAX).await.map_err(Error::Broken)?;
    let completed = match unknown(&body) {
        Some(status) => {
            status_of_own(forwarder, &spec).await.map(|own| spliced(&body, status, &own))
        }
        None => None,
    };
    if completed.is_some() {
        head.headers.remove(CONTENT_LENGTH);
    }
    Ok(Response::from_parts(head, Body::full(completed.unwrap_or(body))))
}

fn is_short(headers: &HeaderMap) -> bool {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    length.is_some_and(|length: usize| length <= REVIEW_BYTES_MAX)
        && !headers.contains_key(CONTENT_ENCODING)
}

fn is_plain_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(JSON.as_bytes()))
        && !headers.contains_key(CONTENT_ENCODING)
}

fn reviewed(body: &[u8]) -> Option<Spec> {
    Some(serde_json::from_slice::<Asked>(body).ok()?.spec)
}

/// Returns the status within a response that calls the token unknown.
fn unknown(answer: &[u8]) -> Option<&str> {
    let status = serde_json::from_slice::<Answered<'_>>(answer).ok()?.status.get();
    let verdict: Verdict = serde_json::from_str(status).ok()?;
    (!verdict.authenticated).then_some(status)
}

/// Returns the response with another status in place of `status`, which is a part of it.
fn spliced(answer: &[u8], status: &str, own: &str) -> Bytes {
    let begin = status.as_ptr().addr() - answer.as_ptr().addr();
    let (before, rest) = answer.split_at(begin);
    [before, own.as_bytes(), &rest[status.len()..]].concat().into()
}

/// Returns the status that the apiserver would give a token of Listless's own user.
async fn status_of_own(forwarder: &Forwarder, spec: &Spec) -> Option<String> {
    let own_audience = audience(forwarder).await;
    let audiences = match (spec.audiences.as_deref(), own_audience) {
        // A response without audiences is for the apiserver itself.
        (None | Some([]), None) => String::new(),
        (asked, Some(own)) if asked.is_none_or(|all| all.is_empty() || all.contains(&own)) => {
            format!(",\"audiences\":{}", json!([own]))
        }
        _ => return None,
    };
    let answer = read(forwarder, self_review::request()?).await?;
    let user = self_review::user(&answer)?;
    Some(format!("{{\"authenticated\":true,\"user\":{user}{audiences}}}"))
}

/// Returns the apiserver's own audience, if its issuer may be read.
async fn audience(forwarder: &Forwarder) -> Option<String> {
    let document = read(forwarder, Request::get(ISSUER).body(Body::empty()).ok()?).await?;
    Some(serde_json::from_slice::<Issuer>(&document).ok()?.issuer)
}

/// Returns the body of a successful response in JSON.
async fn read(forwarder: &Forwarder, mut request: Request<Body>) -> Option<Bytes> {
    request.headers_mut().insert(ACCEPT, JSON);
    let response = forwarder.send_own(request).await.ok()?;
    if !response.status().is_success() {
        return None;
    }
    response.into_body().collect(REVIEW_BYTES_MAX).await.ok()
}
