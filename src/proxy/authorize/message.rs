//! What a review looks like on its way to the apiserver and back.

use http::{HeaderValue, Method, Request, header};
use serde::{Deserialize, Serialize};

use super::Attributes;
use crate::body::Body;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    kind: &'static str,
    api_version: &'static str,
    spec: ReviewSpec<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewSpec<'a> {
    resource_attributes: &'a Attributes,
}

#[derive(Deserialize)]
struct ReviewAnswer {
    status: ReviewStatus,
}

#[derive(Deserialize)]
struct ReviewStatus {
    allowed: bool,
    #[serde(default)]
    denied: bool,
}

const REVIEW_PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// A review of these attributes in the name of whoever has the credential; absent: in our own.
pub(super) fn request(
    attributes: &Attributes,
    credential: Option<&HeaderValue>,
) -> Option<Request<Body>> {
    let review = Review {
        kind: "SelfSubjectAccessReview",
        api_version: "authorization.k8s.io/v1",
        spec: ReviewSpec { resource_attributes: attributes },
    };
    let body = serde_json::to_vec(&review).ok()?;
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(REVIEW_PATH)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .body(Body::full(body))
        .ok()?;
    if let Some(credential) = credential {
        request.headers_mut().insert(header::AUTHORIZATION, credential.clone());
    }
    Some(request)
}

/// Whether the apiserver said yes; nothing, if its answer cannot be read.
pub(super) fn is_allowed(body: &[u8]) -> Option<bool> {
    let answer: ReviewAnswer = serde_json::from_slice(body).ok()?;
    Some(answer.status.allowed && !answer.status.denied)
}
