//! Random pods: a second injection changes nothing, and the removal restores them.

use listless::injector::patch::{Origin, Settings, SkipReason, patch, undo};
use proptest::{collection::vec, option, prelude::*, sample::select, test_runner::Config};
use serde_json::{Value, json};

use super::{applied, settings};

const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const CASES: u32 = 512;

fn variable() -> impl Strategy<Value = Value> {
    let names = [
        "A",
        "KUBERNETES_SERVICE_HOST",
        "KUBERNETES_SERVICE_PORT",
        "KUBERNETES_SERVICE_PORT_HTTPS",
        "HTTPS_PROXY",
        "http_proxy",
        "NO_PROXY",
        "no_proxy",
        "KUBECONFIG",
        "LISTLESS_NO_PROXY",
    ];
    let values = ["", "x", "127.0.0.1", "16443", "6443", "api.one", "localhost,.svc", "*", "$(A)"];
    let from = json!({"fieldRef": {"fieldPath": "status.hostIP"}});
    (select(names.to_vec()), 0..12_usize).prop_map(move |(name, value)| match values.get(value) {
        Some(value) => json!({"name": name, "value": value}),
        None if value == 11 => json!({"name": name}),
        None => json!({"name": name, "valueFrom": from}),
    })
}

fn mount() -> impl Strategy<Value = Value> {
    let volumes = ["account", "robot", "masked", "data"];
    let paths = [ACCOUNT, "/data", "/var/run/secrets/kubernetes.io/serviceaccount/"];
    (select(volumes.to_vec()), select(paths.to_vec()), option::of(any::<bool>())).prop_map(
        |(volume, path, read_only)| match read_only {
            Some(read_only) => json!({"name": volume, "mountPath": path, "readOnly": read_only}),
            None => json!({"name": volume, "mountPath": path}),
        },
    )
}

/// A list that is absent, null, empty, or has elements.
fn list<S: Strategy<Value = Value>>(
    element: S,
    most: usize,
) -> impl Strategy<Value = Option<Value>> {
    (0..4_usize, vec(element, 1..=most)).prop_map(|(kind, elements)| match kind {
        0 => None,
        1 => Some(Value::Null),
        2 => Some(json!([])),
        _ => Some(Value::Array(elements)),
    })
}

fn container() -> impl Strategy<Value = Value> {
    let user = option::of(select(vec![0, 1000, 2000]));
    (list(variable(), 4), list(mount(), 2), user).prop_map(|(env, mounts, user)| {
        let mut container = json!({"image": "i"});
        if let Some(env) = env {
            container["env"] = env;
        }
        if let Some(mounts) = mounts {
            container["volumeMounts"] = mounts;
        }
        if let Some(user) = user {
            container["securityContext"] = json!({"runAsUser": user});
        }
        container
    })
}

fn pod() -> impl Strategy<Value = Value> {
    let names = ["web", "helper", "istio-proxy", "vault-agent"];
    let metadata = select(vec![
        Value::Null,
        json!({}),
        json!({"annotations": null}),
        json!({"annotations": {}}),
        json!({"annotations": {"listless.dev/mode": "observe", "a": "b"}}),
        json!({"name": "p", "labels": {"listless.dev/inject": "true"}}),
    ]);
    (metadata, any::<bool>(), vec(container(), 1..4), list(container(), 2)).prop_map(
        move |(metadata, has_metadata, mut containers, mut init)| {
            for (index, container) in containers.iter_mut().enumerate() {
                container["name"] = json!(names[index]);
            }
            if let Some(Value::Array(init)) = &mut init {
                for (index, container) in init.iter_mut().enumerate() {
                    container["name"] = json!(format!("init-{index}"));
                }
            }
            let account = json!({"name": "account", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token"}},
                {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            ]}});
            let robot = json!({"name": "robot", "secret": {"secretName": "robot"}});
            let others = ["masked", "data"].map(|name| json!({"name": name, "emptyDir": {}}));
            let [masked, data] = others;
            let mut pod = json!({"spec": {
                "containers": containers,
                "volumes": [account, robot, masked, data],
            }});
            if has_metadata {
                pod["metadata"] = metadata;
            }
            if let Some(init) = init {
                pod["spec"]["initContainers"] = init;
            }
            pod
        },
    )
}

fn holds(pod: &Value, settings: &Settings) -> Result<(), TestCaseError> {
    let Ok(patched) = patch(pod, "shop", settings) else {
        prop_assert_eq!(undo(pod).expect("a pod"), vec![]);
        return Ok(());
    };
    prop_assert!(!patched.operations.is_empty());
    let after = applied(pod, &patched.operations);
    let again = patch(&after, "shop", settings).expect_err("nothing to do");
    prop_assert_eq!(again.reason, SkipReason::AlreadyInjected);
    prop_assert_eq!(&applied(&after, &undo(&after).expect("a pod")), pod);
    Ok(())
}

proptest! {
    #![proptest_config(Config { cases: CASES, failure_persistence: None, ..Config::default() })]

    #[test]
    fn injection_is_idempotent_and_its_removal_restores_the_pod(pod in pod()) {
        holds(&pod, &settings())?;
    }

    #[test]
    fn the_same_holds_for_pods_in_files(pod in pod()) {
        holds(&pod, &Settings { origin: Origin::Manifest, ..settings() })?;
    }

    #[test]
    fn a_later_container_is_served_and_nothing_else_changes(
        pod in pod(), late in container()
    ) {
        let Ok(first) = patch(&pod, "shop", &settings()) else { return Ok(()) };
        let mut after = applied(&pod, &first.operations);
        let mut late = late;
        late["name"] = json!("late");
        after["spec"]["containers"].as_array_mut().expect("containers").push(late.clone());
        let Ok(second) = patch(&after, "shop", &settings()) else { return Ok(()) };
        let at = after["spec"]["containers"].as_array().expect("containers").len() - 1;
        let place = format!("/spec/containers/{at}/");
        for operation in &second.operations {
            let path = operation.path.to_string();
            prop_assert!(
                path.starts_with(&place) || path == "/metadata/annotations/listless.dev~1status",
                "{}", path
            );
        }
        let completed = applied(&after, &second.operations);
        let undone = applied(&completed, &undo(&completed).expect("a pod"));
        prop_assert_eq!(&undone["spec"]["containers"][at], &late);
    }
}
