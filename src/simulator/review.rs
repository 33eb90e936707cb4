//! Reviews: self-subject reviews (S-AUTHZ-04) and token reviews.

use http::{Method, Request, Response};

use super::{
    Core,
    access::{Access, Attributes, Caller, Rule},
    json::Json,
    route::Target,
    status::{StatusFailure, json_response},
    write::BODY_BYTES_MAX,
};
use crate::{api::Verb, body::Body};

/// A review, which is answered and never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Review {
    /// The caller's access to one action.
    Access,
    /// The caller's rules in a namespace.
    Rules,
    /// The caller's identity.
    Identity,
    /// The owner of a token.
    Token,
}

/// The issuer of tokens, and the audience of the simulated apiserver itself.
pub(super) const AUDIENCE: &str = "https://kubernetes.default.svc";

// === impl Review ===

impl Review {
    /// Returns the review of a request, if it is one.
    pub(super) fn of(target: &Target, method: &Method) -> Option<Self> {
        let parts = (target.group.as_str(), target.version.as_str(), target.resource.as_str());
        match parts {
            _ if *method != Method::POST => None,
            ("authorization.k8s.io", "v1", "selfsubjectaccessreviews") => Some(Self::Access),
            ("authorization.k8s.io", "v1", "selfsubjectrulesreviews") => Some(Self::Rules),
            ("authentication.k8s.io", "v1", "selfsubjectreviews") => Some(Self::Identity),
            ("authentication.k8s.io", "v1", "tokenreviews") => Some(Self::Token),
            _ => None,
        }
    }

    /// Answers the review. A caller without a token is refused.
    pub(super) async fn answer(
        self,
        core: &Core,
        caller: &Caller,
        target: &Target,
        request: Request<Body>,
    ) -> Result<Response<Body>, StatusFailure> {
        match self {
            Self::Token => caller.check(target, Verb::Create, None)?,
            _ if matches!(caller, Caller::Anonymous) => {
                return Err(StatusFailure::new(403, "Forbidden", self.refusal()));
            }
            _ => {}
        }
        let unreadable = || StatusFailure::bad_request("the body is not a review");
        let body = request.into_body().collect(BODY_BYTES_MAX).await.map_err(|_| unreadable())?;
        let mut review = Json::parse(&body).map_err(|_| unreadable())?;
        review.entry("metadata").remove("creationTimestamp");
        let status = match self {
            Self::Access => access_status(caller, &review),
            Self::Rules => {
                let namespace = review.str_at(&["spec", "namespace"]).unwrap_or_default();
                if namespace.is_empty() {
                    return Err(StatusFailure::bad_request("no namespace on request"));
                }
                rules_status(caller, namespace, core.access.knows_all_rules())
            }
            Self::Identity => Json::object([("userInfo", user(caller))]),
            Self::Token => token_status(&core.access, &review),
        };
        review.set("status", status);
        Ok(json_response(201, &review))
    }

    fn refusal(self) -> String {
        let (resource, group) = match self {
            Self::Access => ("selfsubjectaccessreviews", "authorization.k8s.io"),
            Self::Rules => ("selfsubjectrulesreviews", "authorization.k8s.io"),
            Self::Identity => ("selfsubjectreviews", "authentication.k8s.io"),
            Self::Token => ("tokenreviews", "authentication.k8s.io"),
        };
        format!(
            "{resource}.{group} is forbidden: User \"system:anonymous\" cannot create resource \
             \"{resource}\" in API group \"{group}\" at the cluster scope"
        )
    }
}

fn user(caller: &Caller) -> Json {
    Json::object([("username", caller.name().into())])
}

/// Returns the status of a token review, for the apiserver's own audience or the requested ones.
fn token_status(access: &Access, review: &Json) -> Json {
    let token = review.str_at(&["spec", "token"]).unwrap_or_default();
    let asked = review.at(&["spec", "audiences"]).map(Json::as_array).unwrap_or_default();
    let is_meant = asked.is_empty() || asked.iter().any(|one| one.as_str() == Some(AUDIENCE));
    match access.owner(token).filter(|_| is_meant) {
        Some(owner) => Json::object([
            ("authenticated", true.into()),
            ("user", user(&owner)),
            ("audiences", Json::Array(vec![AUDIENCE.into()])),
        ]),
        None => Json::object([
            ("user", Json::object::<0>([])),
            ("error", "invalid bearer token".into()),
        ]),
    }
}

fn rules_status(caller: &Caller, namespace: &str, complete: bool) -> Json {
    let texts = |texts: &[String]| {
        Json::Array(match texts {
            [] => vec!["*".into()],
            texts => texts.iter().map(|text| text.as_str().into()).collect(),
        })
    };
    let everything = [Rule::default()];
    let rules: &[Rule] = match caller {
        Caller::Anyone => &everything,
        Caller::Known(user) => &user.rules,
        Caller::Anonymous => &[],
    };
    let within = |rule: &&Rule| {
        rule.namespaces.is_empty() || rule.namespaces.iter().any(|held| held == namespace)
    };
    let printed = rules.iter().filter(within).map(|rule| {
        let mut printed = Json::object([
            ("verbs", texts(&rule.verbs)),
            ("apiGroups", texts(&rule.groups)),
            ("resources", texts(&rule.resources)),
        ]);
        if !rule.names.is_empty() {
            printed.set("resourceNames", texts(&rule.names));
        }
        printed
    });
    Json::object([
        ("resourceRules", Json::Array(printed.collect())),
        ("nonResourceRules", Json::Array(Vec::new())),
        ("incomplete", (!complete).into()),
    ])
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
