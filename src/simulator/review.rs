//! SelfSubjectAccessReview and SelfSubjectReview: the caller asks about itself (S-AUTHZ-04).

use http::{Method, Request, Response};

use super::{
    access::{Attributes, Caller},
    json::Json,
    route::Target,
    status::{Failure, json_response},
    write::BODY_BYTES_MAX,
};
use crate::body::Body;

/// A review that is answered and never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Review {
    /// May I do this?
    SelfSubjectAccess,
    /// Who am I?
    SelfSubject,
}

// === impl Review ===

impl Review {
    /// The review a request asks for, if it is one.
    pub(super) fn of(target: &Target, method: &Method) -> Option<Self> {
        let parts = (target.group.as_str(), target.version.as_str(), target.resource.as_str());
        match parts {
            _ if *method != Method::POST => None,
            ("authorization.k8s.io", "v1", "selfsubjectaccessreviews") => {
                Some(Self::SelfSubjectAccess)
            }
            ("authentication.k8s.io", "v1", "selfsubjectreviews") => Some(Self::SelfSubject),
            _ => None,
        }
    }

    /// Answers it; a caller without a token may ask nothing.
    pub(super) async fn answer(
        self,
        caller: &Caller,
        request: Request<Body>,
    ) -> Result<Response<Body>, Failure> {
        if matches!(caller, Caller::Anonymous) {
            return Err(Failure::new(403, "Forbidden", self.refusal()));
        }
        let unreadable = || Failure::bad_request("the body is not a review");
        let body = request.into_body().collect(BODY_BYTES_MAX).await.map_err(|_| unreadable())?;
        let mut review = Json::parse(&body).map_err(|_| unreadable())?;
        review.entry("metadata").remove("creationTimestamp");
        let status = match self {
            Self::SelfSubjectAccess => access_status(caller, &review),
            Self::SelfSubject => {
                Json::object([("userInfo", Json::object([("username", caller.name().into())]))])
            }
        };
        review.set("status", status);
        Ok(json_response(201, &review))
    }

    fn refusal(self) -> String {
        let (resource, group) = match self {
            Self::SelfSubjectAccess => ("selfsubjectaccessreviews", "authorization.k8s.io"),
            Self::SelfSubject => ("selfsubjectreviews", "authentication.k8s.io"),
        };
        format!(
            "{resource}.{group} is forbidden: User \"system:anonymous\" cannot create resource \
             \"{resource}\" in API group \"{group}\" at the cluster scope"
        )
    }
}

fn access_status(caller: &Caller, review: &Json) -> Json {
    let attributes = review.at(&["spec", "resourceAttributes"]);
    let part = |key: &str| attributes.and_then(|found| found.str_at(&[key])).unwrap_or_default();
    let allowed = match attributes {
        Some(_) => caller.may(&Attributes {
            verb: part("verb"),
            group: part("group"),
            resource: part("resource"),
            subresource: part("subresource"),
            namespace: part("namespace"),
            name: part("name"),
        }),
        None => true,
    };
    let mut status = Json::object([("allowed", allowed.into())]);
    if allowed {
        status.set("reason", "allowed by the simulator's rules");
    }
    status
}
