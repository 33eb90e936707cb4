//! SelfSubjectReviews: the apiserver's name for the user behind a credential.

use http::{
    HeaderValue, Request,
    header::{ACCEPT, CONTENT_TYPE},
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::body::Body;

#[derive(Deserialize)]
struct SelfReview<'a> {
    #[serde(borrow)]
    status: SelfStatus<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SelfStatus<'a> {
    #[serde(borrow)]
    user_info: &'a RawValue,
}

/// The largest response that is read.
pub(super) const RESPONSE_BYTES_MAX: usize = 64 * 1024;

const PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEW: &str = r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}"#;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Returns a review without a credential.
pub(super) fn request() -> Option<Request<Body>> {
    let request = Request::post(PATH).header(CONTENT_TYPE, JSON).header(ACCEPT, JSON);
    request.body(Body::full(REVIEW)).ok()
}

/// Returns the user in a successful response, as JSON.
pub(super) fn user(response: &[u8]) -> Option<&str> {
    let review: SelfReview<'_> = serde_json::from_slice(response).ok()?;
    Some(review.status.user_info.get())
}
