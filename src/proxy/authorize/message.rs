//! The request and response of a review.

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
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_attributes: Option<&'a Attributes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
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

const RULES_PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";

/// Builds a review of these attributes in the name of the credential's owner; without one, in
/// Listless's own name.
pub(super) fn request(
    attributes: &Attributes,
    credential: Option<&HeaderValue>,
) -> Option<Request<Body>> {
    let spec = ReviewSpec { resource_attributes: Some(attributes), namespace: None };
    let mut request = post(REVIEW_PATH, "SelfSubjectAccessReview", spec)?;
    if let Some(credential) = credential {
        request.headers_mut().insert(header::AUTHORIZATION, credential.clone());
    }
    Some(request)
}

/// Builds a review of all rules in a namespace, in Listless's own name.
pub(super) fn rules_request(namespace: &str) -> Option<Request<Body>> {
    let spec = ReviewSpec { resource_attributes: None, namespace: Some(namespace) };
    post(RULES_PATH, "SelfSubjectRulesReview", spec)
}

fn post(path: &str, kind: &'static str, spec: ReviewSpec<'_>) -> Option<Request<Body>> {
    let review = Review { kind, api_version: "authorization.k8s.io/v1", spec };
    let body = serde_json::to_vec(&review).ok()?;
    Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .body(Body::full(body))
        .ok()
}

/// Returns `true` if the apiserver allowed it; `None` if its response cannot be parsed.
pub(super) fn is_allowed(body: &[u8]) -> Option<bool> {
    let answer: ReviewAnswer = serde_json::from_slice(body).ok()?;
    Some(answer.status.allowed && !answer.status.denied)
}
