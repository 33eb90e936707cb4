//! Admission reviews: the apiserver's request for one pod, and the response.
//!
//! Any host that reaches the port may send one. So a review has no side effects and sends no
//! requests: it is a computation over a body of bounded size, and builds a tree of bounded size.

mod tree;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

use super::patch::{Note, Patch, Settings, Skip, SkipReason, patch};

/// The request, an `AdmissionReview` of `admission.k8s.io/v1`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionReview {
    #[serde(rename = "apiVersion")]
    api_version: String,
    request: Option<Request>,
}

/// The subject of the review.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    uid: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    kind: Kind,
    #[serde(default, deserialize_with = "tree::bounded")]
    object: Value,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Default, Deserialize)]
struct Kind {
    #[serde(default)]
    group: String,
    #[serde(default)]
    kind: String,
}

/// The response.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    api_version: &'static str,
    kind: &'static str,
    response: Response,
}

/// The outcome for the pod, which is always admitted.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    /// The JSON patch in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    audit_annotations: BTreeMap<&'static str, String>,
}

/// The outcome of a review, for logs, metrics and events.
#[derive(Debug)]
pub struct Verdict {
    /// The pod's namespace.
    pub namespace: String,
    /// `true` if the request is a dry run.
    pub dry_run: bool,
    /// The pod's name, as far as it is known.
    pub pod: String,
    /// The recipient of events: the pod's owner, or the pod.
    pub owner: Owner,
    /// The outcome.
    pub outcome: Result<Vec<Note>, Skip>,
}

/// The owner of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The API version of its kind.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid. Empty for a pod that has none yet.
    pub uid: String,
}

/// The reason why a review has no response.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The body is not JSON, has the wrong shape, or an object of too many values.
    #[error("cannot parse the body as an AdmissionReview")]
    Shape(#[from] serde_json::Error),
    /// The review has another version.
    #[error("this AdmissionReview is of version {0:?}; expected admission.k8s.io/v1")]
    Version(String),
    /// The review has no request.
    #[error("this AdmissionReview has no request")]
    NoRequest,
    /// The response cannot be serialized.
    #[error("cannot serialize the response")]
    Answer(#[source] serde_json::Error),
}

const VERSION: &str = "admission.k8s.io/v1";
/// The maximum length of a warning. Clients cut or refuse longer ones.
const WARNING_LENGTH_MAX: usize = 240;
/// The maximum length of an annotation. Longer ones fill audit logs.
const ANNOTATION_LENGTH_MAX: usize = 1024;

/// Returns the response to a review, and its outcome.
pub fn answer(body: &[u8], settings: &Settings) -> Result<(Answer, Verdict), Error> {
    let question: AdmissionReview = serde_json::from_slice(body)?;
    if question.api_version != VERSION {
        return Err(Error::Version(question.api_version));
    }
    let request = question.request.ok_or(Error::NoRequest)?;
    let is_new_pod = request.operation == "CREATE"
        && request.kind.kind == "Pod"
        && request.kind.group.is_empty();
    let result = match is_new_pod {
        true => patch(&request.object, &request.namespace, settings),
        false => Err(Skip { reason: SkipReason::Malformed, detail: None }),
    };
    let response = Response::to(&request, &result)?;
    let answer = Answer { api_version: VERSION, kind: "AdmissionReview", response };
    let metadata = &request.object["metadata"];
    let text = |name: &str| metadata[name].as_str().filter(|text| !text.is_empty());
    let verdict = Verdict {
        pod: text("name").or_else(|| text("generateName")).unwrap_or("").to_owned(),
        owner: Owner::of(metadata),
        namespace: request.namespace,
        dry_run: request.dry_run,
        outcome: result.map(|patch| patch.notes),
    };
    Ok((answer, verdict))
}

// === impl Response ===

impl Response {
    fn to(request: &Request, result: &Result<Patch, Skip>) -> Result<Self, Error> {
        let mut response = Self {
            uid: request.uid.clone(),
            allowed: true,
            patch_type: None,
            patch: None,
            warnings: Vec::new(),
            audit_annotations: BTreeMap::new(),
        };
        match result {
            Ok(patch) => {
                let operations = serde_json::to_vec(&patch.operations).map_err(Error::Answer)?;
                response.patch_type = Some("JSONPatch");
                response.patch = Some(STANDARD.encode(operations));
                response.warnings =
                    patch.notes.iter().map(|note| warning(&note.to_string())).collect();
                response.audit_annotations.insert("result", "injected".to_owned());
            }
            Err(skip) => {
                if is_for_its_owner(skip.reason) {
                    response.warnings.push(warning(&format!("not injected: {skip}")));
                }
                let annotations = &mut response.audit_annotations;
                annotations.insert("result", "skipped".to_owned());
                annotations.insert("reason", skip.reason.as_str().to_owned());
                if let Some(detail) = &skip.detail {
                    annotations.insert("detail", cut(detail, ANNOTATION_LENGTH_MAX));
                }
            }
        }
        Ok(response)
    }
}

/// Reports whether the pod's owner can act on the reason.
fn is_for_its_owner(reason: SkipReason) -> bool {
    match reason {
        SkipReason::OptedOut
        | SkipReason::SystemNamespace
        | SkipReason::HostNetwork
        | SkipReason::Windows
        | SkipReason::MirrorPod
        | SkipReason::AlreadyInjected
        | SkipReason::NoServiceAccountMount
        | SkipReason::Malformed => false,
        SkipReason::IncompleteInjection
        | SkipReason::SubpathMount
        | SkipReason::UnusableServiceAccount
        | SkipReason::UnknownProxyExceptions
        | SkipReason::ConflictingApiserverEnv
        | SkipReason::PortTaken
        | SkipReason::SharedProcessNamespace
        | SkipReason::PodResources
        | SkipReason::NameTaken
        | SkipReason::InvalidAnnotation => true,
    }
}

fn warning(text: &str) -> String {
    cut(&format!("listless: {text}"), WARNING_LENGTH_MAX)
}

/// Cuts a text to a maximum size of printable characters, because warnings become HTTP headers.
fn cut(text: &str, length_max: usize) -> String {
    let printable = text.chars().map(|c| if (' '..='~').contains(&c) { c } else { '?' });
    printable.take(length_max).collect()
}

// === impl Owner ===

impl Owner {
    fn of(metadata: &Value) -> Self {
        let references = metadata["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
        let Some(owner) = references.iter().find(|owner| owner["controller"] == true) else {
            let name = metadata["name"].as_str().unwrap_or("");
            let (api_version, kind) = ("v1".to_owned(), "Pod".to_owned());
            return Self { api_version, kind, name: name.to_owned(), uid: String::new() };
        };
        let text = |name: &str| owner[name].as_str().unwrap_or("").to_owned();
        Self {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("name"),
            uid: text("uid"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::Chain;

    fn asked(pod: &Value) -> (Value, Verdict) {
        let question = json!({"apiVersion": VERSION, "kind": "AdmissionReview", "request": {
            "uid": "u-1", "namespace": "shop", "operation": "CREATE",
            "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": pod, "dryRun": true,
        }});
        let body = serde_json::to_vec(&question).unwrap();
        let (answer, verdict) = answer(&body, &Settings::default()).expect("an answer");
        (serde_json::to_value(&answer).unwrap(), verdict)
    }

    fn pod() -> Value {
        let mount = "/var/run/secrets/kubernetes.io/serviceaccount";
        json!({"metadata": {"generateName": "web-", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "o", "controller": true},
        ]}, "spec": {
            "containers": [{"name": "web", "volumeMounts": [{"name": "t", "mountPath": mount}]}],
            "volumes": [{"name": "t", "secret": {"secretName": "t"}}],
        }})
    }

    #[test]
    fn a_patch_is_sent_as_base64() {
        let (answer, verdict) = asked(&pod());
        let response = &answer["response"];
        assert_eq!((&response["uid"], &response["allowed"]), (&json!("u-1"), &json!(true)));
        assert_eq!(response["patchType"], "JSONPatch");
        let patch = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
        let patch: Value = serde_json::from_slice(&patch).unwrap();
        assert_eq!(patch[0]["op"], "add");
        assert_eq!(response["auditAnnotations"], json!({"result": "injected"}));
        assert!(verdict.outcome.is_ok() && verdict.dry_run);
        assert_eq!((verdict.pod.as_str(), verdict.owner.name.as_str()), ("web-", "web"));
    }

    #[test]
    fn a_skipped_pod_is_admitted_with_the_reason() {
        let mut pod = pod();
        pod["metadata"]["annotations"] = json!({"listless.dev/mode": "sometimes\u{e9}\n"});
        let (answer, verdict) = asked(&pod);
        let response = &answer["response"];
        assert_eq!((&response["allowed"], &response["patch"]), (&json!(true), &Value::Null));
        assert_eq!(response["auditAnnotations"]["reason"], "invalid_annotation");
        let warning = response["warnings"][0].as_str().unwrap();
        assert!(warning.starts_with("listless: not injected: an annotation"), "{warning}");
        assert!(warning.chars().all(|c| (' '..='~').contains(&c)), "{warning}");
        assert_eq!(verdict.outcome.unwrap_err().reason, SkipReason::InvalidAnnotation);
        pod["spec"]["hostNetwork"] = json!(true);
        assert_eq!(asked(&pod).0["response"]["warnings"], Value::Null);
    }

    #[test]
    fn an_invalid_review_has_no_response() {
        let settings = Settings::default();
        for body in ["", "[]", "{}", r#"{"apiVersion":"admission.k8s.io/v1"}"#] {
            assert!(answer(body.as_bytes(), &settings).is_err(), "{body}");
        }
        let old = json!({"apiVersion": "admission.k8s.io/v1beta1", "request": {"uid": "u"}});
        let refused = answer(old.to_string().as_bytes(), &settings).unwrap_err();
        assert!(matches!(refused, Error::Version(_)), "{refused}");
        let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
        assert!(matches!(answer(deep.as_bytes(), &settings), Err(Error::Shape(_))));
        let node = json!({"apiVersion": VERSION, "request": {
            "uid": "u", "operation": "CREATE", "kind": {"group": "", "kind": "Node"}}});
        let (_, verdict) = answer(node.to_string().as_bytes(), &settings).unwrap();
        assert_eq!(verdict.outcome.unwrap_err().reason, SkipReason::Malformed);
    }

    #[test]
    fn a_review_of_many_tiny_values_is_refused() {
        let list_of = |item: &str| format!("[{item}{}]", format!(",{item}").repeat((3 << 20) / 8));
        for item in ["{\"a\":{}}", "[[],0]", "{}", "0"] {
            let items = list_of(item);
            let review = |object: &str| {
                let request = format!(r#"{{"uid":"u","operation":"CREATE",{object}}}"#);
                format!(r#"{{"apiVersion":"{VERSION}","request":{request}}}"#)
            };
            for object in [
                format!(r#""object":{items}"#),
                format!(r#""object":{{"metadata":{items}}}"#),
                format!(r#""object":{{"spec":{{"containers":{items}}}}}"#),
            ] {
                let body = review(&object);
                let refused = answer(body.as_bytes(), &Settings::default()).expect_err(item);
                let told = Chain(&refused).to_string();
                let expected = "cannot parse the body as an AdmissionReview: the object has more \
                                than 10000 values";
                assert!(told.starts_with(expected), "{item}: {told}");
            }
            let unread = review(&format!(r#""oldObject":{items},"object":{{}}"#));
            assert!(answer(unread.as_bytes(), &Settings::default()).is_ok(), "{item}");
        }
    }

    #[test]
    fn a_large_pod_with_many_managed_fields_is_injected() {
        let mut pod = pod();
        let variable = |number| json!({"name": format!("VARIABLE_{number}"), "value": "text"});
        pod["spec"]["containers"][0]["env"] = (0..1_500).map(variable).collect();
        let fields: serde_json::Map<_, _> = (0..5_000)
            .map(|number| {
                let fields = json!({".": {}, "f:name": {}, "f:value": {}});
                (format!("k:{{\"name\":\"VARIABLE_{number}\"}}"), fields)
            })
            .collect();
        let fields = json!({"f:spec": {"f:containers": {"f:env": fields}}});
        pod["metadata"]["managedFields"] = json!([{"manager": "kubectl", "fieldsV1": fields}]);
        assert!(pod.to_string().len() > 256 << 10);
        let (answer, verdict) = asked(&pod);
        assert!(verdict.outcome.is_ok(), "{:?}", verdict.outcome);
        let patch = STANDARD.decode(answer["response"]["patch"].as_str().unwrap()).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        let mut patched = pod.clone();
        json_patch::patch(&mut patched, &patch).unwrap();
        assert_eq!(patched["metadata"]["managedFields"], pod["metadata"]["managedFields"]);
        assert_eq!(patched["metadata"]["ownerReferences"], pod["metadata"]["ownerReferences"]);
    }
}
