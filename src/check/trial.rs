//! The test pod: it requests a sidecar and is never stored. Pure.

use serde_json::{Value, json};

use super::Row;
use crate::injector::patch::{SIDECAR, injected_by};

/// The test and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trial {
    /// There is no webhook.
    NoWebhook,
    /// The pod was sent to the apiserver, with `dryRun=All`.
    ThroughApiserver {
        /// The namespace of the pod.
        namespace: String,
        /// The result.
        came: Came,
        /// The webhook's response to a direct call, if there was one.
        directly: Option<Came>,
    },
    /// The pod was sent to the webhook directly.
    Directly(Came),
    /// No test was possible.
    Untried(String),
}

/// The result for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// It has a sidecar of this injector version.
    Injected(String),
    /// It has no sidecar, for this reason if one was given.
    Left(String),
    /// It was rejected, or there was no response.
    Refused(String),
}

/// The directory in which clients look for their service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Returns a pod that any namespace admits, and that requests a sidecar.
///
/// The pod names and mounts its service account itself, because a direct call has no apiserver to
/// add it.
pub fn pod() -> Value {
    let token = json!({"path": "token", "expirationSeconds": 3607});
    let authority =
        json!({"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]});
    let own = json!({"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}});
    let sources = json!([
        {"serviceAccountToken": token}, {"configMap": authority}, {"downwardAPI": {"items": [own]}},
    ]);
    let resources = json!({
        "requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "1", "memory": "16Mi"},
    });
    let container = json!({
        "name": "check",
        "image": "listless.invalid/never-pulled:1",
        "resources": resources,
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true},
        "volumeMounts": [{"name": "account", "mountPath": ACCOUNT, "readOnly": true}],
    });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "listless-check-", "labels": {"listless.dev/inject": "true"}},
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": "default",
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
            "volumes": [{"name": "account", "projected": {"sources": sources}}],
        },
    })
}

/// Returns the admission review for a direct call of the webhook.
pub fn question(namespace: &str) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "00000000-0000-0000-0000-000000000000",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": namespace,
            "operation": "CREATE",
            "dryRun": true,
            "object": pod(),
        },
    })
}

/// Returns the result for a pod that the apiserver admitted, with the response's warnings.
pub fn stored(pod: &Value, warnings: &[String]) -> Came {
    let containers = pod["spec"]["initContainers"].as_array().into_iter().flatten();
    let has_sidecar = containers.into_iter().any(|container| container["name"] == SIDECAR);
    if has_sidecar {
        return Came::Injected(injected_by(pod).unwrap_or_default());
    }
    Came::Left(warnings.join("; "))
}

/// Returns the result of a direct call.
pub fn answered(review: &Value) -> Came {
    let response = &review["response"];
    if response["patch"].as_str().is_some_and(|patch| !patch.is_empty()) {
        return Came::Injected(String::new());
    }
    let warnings = response["warnings"].as_array().into_iter().flatten();
    let warnings: Vec<_> = warnings.filter_map(Value::as_str).collect();
    Came::Left(warnings.join("; "))
}

/// Checks that a pod gets the requested sidecar.
pub fn injection(trial: &Trial) -> Row {
    let name = "injection";
    let (namespace, came, directly) = match trial {
        Trial::NoWebhook => return Row::skipped(name, "there is no known webhook", ""),
        Trial::Untried(why) => {
            let hint = "allow create of pods for the test (--namespace selects where); nothing is \
                        stored";
            return Row::skipped(name, why, hint);
        }
        Trial::Directly(Came::Injected(_)) => {
            let detail =
                "the webhook injects a pod when called from here; the apiserver was not tested";
            return Row::pass(name, detail);
        }
        Trial::Directly(Came::Left(why) | Came::Refused(why)) => {
            let detail = format!(
                "the webhook does not inject a pod when called from here: {}",
                reason_text(why)
            );
            return Row::fail(name, detail, "see the injector's log");
        }
        Trial::ThroughApiserver { namespace, came, directly } => (namespace, came, directly),
    };
    match (came, directly) {
        (Came::Injected(version), _) => {
            let detail = format!("a pod in {namespace} gets its sidecar, by version {version}");
            Row::pass(name, detail)
        }
        (Came::Refused(why), _) => {
            let hint = "name a namespace for the test pod with --namespace; nothing is stored";
            Row::warn(name, format!("a pod in {namespace} is rejected: {why}"), hint)
        }
        (Came::Left(why), Some(Came::Injected(_))) => {
            let detail = format!(
                "a pod in {namespace} gets no sidecar ({}), but the webhook injects it when called \
                 from here",
                reason_text(why)
            );
            let hint = "the apiserver does not reach the webhook: private control planes need a \
                        firewall rule, some overlay networks injector.hostNetwork";
            Row::fail(name, detail, hint)
        }
        (Came::Left(why), _) => {
            let detail = format!("a pod in {namespace} gets no sidecar ({})", reason_text(why));
            let hint = "see the rows above, the injector's log, and the webhook's selectors; test \
                        another namespace with --namespace";
            Row::fail(name, detail, hint)
        }
    }
}

fn reason_text(why: &str) -> &str {
    if why.is_empty() { "no reason given" } else { why }
}

#[cfg(test)]
mod tests {
    use super::{super::Outcome, *};
    use crate::injector::{
        patch::{Settings, patch},
        review,
    };

    #[test]
    fn the_injector_injects_the_test_pod() {
        let settings = Settings::default();
        assert!(patch(&pod(), "shop", &settings).is_ok());
        let question = question("shop").to_string();
        let (answer, _) = review::answer(question.as_bytes(), &settings).expect("an answer");
        let answer = serde_json::to_value(answer).expect("JSON");
        assert_eq!(answered(&answer), Came::Injected(String::new()));
        let own = Settings { excluded_namespaces: vec!["shop".to_owned()], ..settings };
        let (answer, _) = review::answer(question.as_bytes(), &own).expect("an answer");
        let answer = serde_json::to_value(answer).expect("JSON");
        assert!(matches!(answered(&answer), Came::Left(_)));
    }

    #[test]
    fn an_admitted_pod_gives_the_version_or_the_warnings() {
        let mut injected = pod();
        injected["spec"]["initContainers"] = json!([{"name": "listless-proxy"}]);
        injected["metadata"]["annotations"] = json!({"listless.dev/status":
            r#"{"version":"1.2.3","rev":"","mode":"enforce","port":1,"containers":[],"mirrors":{}}"#});
        assert_eq!(stored(&injected, &[]), Came::Injected("1.2.3".to_owned()));
        let warned = ["not injected: because".to_owned()];
        assert_eq!(stored(&pod(), &warned), Came::Left("not injected: because".to_owned()));
    }

    #[test]
    fn a_webhook_that_answers_only_direct_calls_indicates_a_network_problem() {
        let tried = |came, directly| {
            injection(&Trial::ThroughApiserver { namespace: "shop".to_owned(), came, directly })
        };
        let injected = || Came::Injected("1".to_owned());
        let left = || Came::Left(String::new());
        assert_eq!(tried(injected(), None).result, Outcome::Pass);
        assert_eq!(tried(Came::Refused("quota".to_owned()), None).result, Outcome::Warn);
        assert_eq!(tried(left(), None).result, Outcome::Fail);
        let row = tried(left(), Some(injected()));
        assert_eq!(row.result, Outcome::Fail);
        assert!(row.hint.contains("firewall"), "{row:?}");
        assert_eq!(injection(&Trial::Directly(injected())).result, Outcome::Pass);
        assert_eq!(injection(&Trial::Directly(left())).result, Outcome::Fail);
        assert_eq!(injection(&Trial::Untried("no".to_owned())).result, Outcome::Skipped);
        assert_eq!(injection(&Trial::NoWebhook).result, Outcome::Skipped);
    }
}
