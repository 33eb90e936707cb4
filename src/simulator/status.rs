//! Status responses in the apiserver's words (S-ERR-01).
//!
//! They are separate from the proxy's own, so that one checks the other.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use super::{json::Json, kind::ResourceType};
use crate::{api::GroupResource, body::Body};

/// A failure as the apiserver reports it, for a response or an ERROR event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StatusFailure {
    code: u16,
    reason: &'static str,
    message: String,
    details: Option<Json>,
    continue_token: Option<String>,
    retry_after_secs: Option<u64>,
}

// === impl StatusFailure ===

impl StatusFailure {
    /// Returns a failure without details.
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, reason, message, details: None, continue_token: None, retry_after_secs: None }
    }

    /// Returns a 400.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Returns a 500 without a reason, as for an error of the storage layer.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// Returns a 401.
    pub(super) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// Returns a 404 of an object (S-GET-07).
    pub(super) fn not_found(kind: &ResourceType, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.group_resource());
        Self::new(404, "NotFound", message).about(&kind.group_resource(), name)
    }

    /// Returns a 404 of a resource or subresource that a known group does not have.
    pub(super) fn unknown_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
            .with_empty_details()
    }

    /// Returns a 405.
    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with_empty_details()
    }

    /// Returns a 409 of a create.
    pub(super) fn already_exists(kind: &ResourceType, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.group_resource());
        Self::new(409, "AlreadyExists", message).about(&kind.group_resource(), name)
    }

    /// Returns a 409 of a write whose precondition does not hold.
    pub(super) fn conflict(kind: &ResourceType, name: &str, why: &str) -> Self {
        let resource = kind.group_resource();
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        Self::new(409, "Conflict", message).about(&kind.group_resource(), name)
    }

    /// Returns a 409 of a deletion whose precondition does not hold. It names the kind, not the
    /// resource.
    pub(super) fn precondition(kind: &ResourceType, name: &str, why: &str) -> Self {
        let subject = GroupResource::new(&kind.group, &kind.kind);
        let message = format!("Operation cannot be fulfilled on {subject} \"{name}\": {why}");
        Self::new(409, "Conflict", message).about(&subject, name)
    }

    /// Returns a 410 (S-LIST-41, S-WATCH-14).
    pub(super) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// Returns a 504 for a future version (S-LIST-40).
    pub(super) fn too_large_version(
        asked: u64,
        current: u64,
        retry_after_secs: Option<u64>,
    ) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut failure = Self::new(504, "Timeout", message);
        let cause = Json::object([
            ("reason", "ResourceVersionTooLarge".into()),
            ("message", "Too large resource version".into()),
        ]);
        let mut details = Json::object([("causes", Json::Array(vec![cause]))]);
        if let Some(seconds) = retry_after_secs {
            details.set("retryAfterSeconds", seconds);
        }
        failure.details = Some(details);
        failure.retry_after_secs = retry_after_secs;
        failure
    }

    /// Adds a delay of a second, if the failure is about a future version.
    pub(super) fn with_delay_of_too_large_version(mut self) -> Self {
        if let (504, Some(details)) = (self.code, &mut self.details) {
            details.set("retryAfterSeconds", 1);
        }
        self
    }

    /// Returns a 422 of an object or of options.
    pub(super) fn invalid(group: &str, kind: &str, name: &str, faults: &[FieldFault]) -> Self {
        let subject = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let texts: Vec<_> =
            faults.iter().map(|fault| format!("{}: {}", fault.field, fault.message)).collect();
        let text = match texts.as_slice() {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let mut failure =
            Self::new(422, "Invalid", format!("{subject} \"{name}\" is invalid: {text}"));
        let mut details = Json::Object(Vec::new());
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.set(key, value);
            }
        }
        details.set("causes", Json::Array(faults.iter().map(FieldFault::cause).collect()));
        failure.details = Some(details);
        failure
    }

    /// Returns a 429 or 503 with a Retry-After.
    pub(super) fn retry_later(
        code: u16,
        reason: &'static str,
        message: &str,
        seconds: u64,
    ) -> Self {
        let mut failure = Self::new(code, reason, message);
        failure.details = Some(Json::object([("retryAfterSeconds", seconds.into())]));
        failure.retry_after_secs = Some(seconds);
        failure
    }

    /// Adds `"details":{}`.
    pub(super) fn with_empty_details(mut self) -> Self {
        self.details = Some(Json::Object(Vec::new()));
        self
    }

    /// Adds `details` that name an object.
    pub(super) fn about(mut self, resource: &GroupResource, name: &str) -> Self {
        self.details = Some(object_details(resource, name, None));
        self
    }

    /// Adds a token to continue inconsistently (S-LIST-41).
    pub(super) fn continuing_with(mut self, token: String) -> Self {
        self.continue_token = Some(token);
        self
    }

    /// Returns the HTTP status.
    pub(super) fn code(&self) -> u16 {
        self.code
    }

    /// Returns the Status object.
    pub(super) fn to_json(&self) -> Json {
        let mut metadata = Json::Object(Vec::new());
        if let Some(token) = &self.continue_token {
            metadata.set("continue", token.as_str());
        }
        let mut status = Json::object([
            ("kind", "Status".into()),
            ("apiVersion", "v1".into()),
            ("metadata", metadata),
            ("status", "Failure".into()),
            ("message", self.message.as_str().into()),
        ]);
        if !self.reason.is_empty() {
            status.set("reason", self.reason);
        }
        if let Some(details) = &self.details {
            status.set("details", details.clone());
        }
        status.set("code", u64::from(self.code));
        status
    }

    /// Returns the HTTP response.
    pub(super) fn into_response(self) -> Response<Body> {
        let mut response = json_response(self.code, &self.to_json());
        if let Some(seconds) = self.retry_after_secs {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.code == 403 {
            let nosniff = HeaderValue::from_static("nosniff");
            response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
        }
        response
    }
}

/// One invalid field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldFault {
    reason: &'static str,
    field: &'static str,
    message: String,
}

// === impl FieldFault ===

impl FieldFault {
    /// Returns the fault of a field that may not be set.
    pub(super) fn forbidden(field: &'static str, why: &str) -> Self {
        Self { reason: "FieldValueForbidden", field, message: format!("Forbidden: {why}") }
    }

    /// Returns the fault of a missing field.
    pub(super) fn required(field: &'static str, why: &str) -> Self {
        Self { reason: "FieldValueRequired", field, message: format!("Required value: {why}") }
    }

    /// Returns the fault of a field with an invalid value.
    pub(super) fn invalid(field: &'static str, value: &str, why: &str) -> Self {
        let message = format!("Invalid value: {value}: {why}");
        Self { reason: "FieldValueInvalid", field, message }
    }

    /// Returns the fault of a field with a value outside a fixed set.
    pub(super) fn unsupported(field: &'static str, value: &str, supported: &[&str]) -> Self {
        let listed: Vec<_> = supported.iter().map(|value| format!("{value:?}")).collect();
        let message =
            format!("Unsupported value: {value:?}: supported values: {}", listed.join(", "));
        Self { reason: "FieldValueNotSupported", field, message }
    }

    fn cause(&self) -> Json {
        Json::object([
            ("reason", self.reason.into()),
            ("message", self.message.as_str().into()),
            ("field", self.field.into()),
        ])
    }
}

/// Returns the Status that confirms a deletion without the object (S-WRITE-05).
pub(super) fn deleted(kind: &ResourceType, name: &str, uid: &str) -> Json {
    let mut status = success();
    status.set("details", object_details(&kind.group_resource(), name, Some(uid)));
    status
}

/// Returns the Status of an eviction (S-WRITE-12).
pub(super) fn evicted() -> Json {
    let mut status = success();
    status.set("code", 201);
    status
}

/// Returns a JSON response with the encoder's trailing newline.
pub(super) fn json_response(code: u16, value: &Json) -> Response<Body> {
    let mut bytes = value.to_bytes();
    bytes.push(b'\n');
    response(code, "application/json", bytes)
}

/// Returns a response of any media type.
pub(super) fn response(
    code: u16,
    content_type: &'static str,
    bytes: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(Body::full(bytes));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Returns the plain 404 of an unknown path (S-URL-12).
pub(super) fn unknown_path() -> Response<Body> {
    let mut response = response(404, "text/plain; charset=utf-8", "404 page not found\n");
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

fn success() -> Json {
    Json::object([
        ("kind", "Status".into()),
        ("apiVersion", "v1".into()),
        ("metadata", Json::Object(Vec::new())),
        ("status", "Success".into()),
    ])
}

fn object_details(resource: &GroupResource, name: &str, uid: Option<&str>) -> Json {
    let mut details = Json::Object(Vec::new());
    if !name.is_empty() {
        details.set("name", name);
    }
    if !resource.group.is_empty() {
        details.set("group", &*resource.group);
    }
    details.set("kind", &*resource.resource);
    if let Some(uid) = uid {
        details.set("uid", uid);
    }
    details
}
