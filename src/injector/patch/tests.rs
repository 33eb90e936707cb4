use serde_json::{Value, json};

use super::*;

fn pod(spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "manager", "image": "i", "volumeMounts": [mount("token")]}],
        "volumes": [volume("token")],
    }});
    if let Value::Object(fields) = spec {
        for (name, value) in fields {
            pod["spec"][name] = value;
        }
    }
    pod
}

fn mount(volume: &str) -> Value {
    json!({"name": volume, "mountPath": SERVICE_ACCOUNT, "readOnly": true})
}

fn volume(name: &str) -> Value {
    json!({"name": name, "projected": {"sources": [
        {"serviceAccountToken": {"path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]}})
}

fn applied(pod: &Value, operations: &[Operation]) -> Value {
    let mut pod = pod.clone();
    operations.iter().for_each(|operation| operation.apply(&mut pod));
    pod
}

fn injected(pod: &Value) -> Value {
    let patch = patch(pod, "shop", &Settings::default()).expect("a patch");
    applied(pod, &patch.operations)
}

fn reason(pod: &Value) -> SkipReason {
    patch(pod, "shop", &Settings::default()).expect_err("a skip").reason
}

#[test]
fn later_containers_are_redirected_and_earlier_ones_are_not() {
    let before = pod(json!({}));
    let mut after = injected(&before);
    let late = json!({"name": "late", "image": "i", "volumeMounts": [mount("token")]});
    let early = json!({"name": "early", "image": "i", "volumeMounts": [mount("token")]});
    after["spec"]["containers"].as_array_mut().unwrap().push(late);
    after["spec"]["initContainers"].as_array_mut().unwrap().insert(0, early.clone());
    let completed = injected(&after);
    let late = &completed["spec"]["containers"][1];
    assert_eq!(late["env"][0], json!({"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"}));
    assert_eq!(late["volumeMounts"][0]["name"], "listless-sa");
    assert_eq!(completed["spec"]["initContainers"][0], early, "it runs before the sidecar");
    assert_eq!(reason(&completed), SkipReason::AlreadyInjected);
    let undone = applied(&completed, &undo(&completed).unwrap());
    assert_eq!(undone["spec"]["containers"][1]["volumeMounts"], json!([mount("token")]));
    assert_eq!(undone["spec"]["containers"][1].get("env"), None);
    assert_eq!(undone["spec"]["containers"][0], before["spec"]["containers"][0]);
}

#[test]
fn a_later_container_with_its_own_address_is_unchanged() {
    let mut after = injected(&pod(json!({})));
    let late = json!({"name": "late", "image": "i", "volumeMounts": [mount("token")],
        "env": [{"name": "KUBERNETES_SERVICE_HOST", "value": "api.other"}]});
    after["spec"]["containers"].as_array_mut().unwrap().push(late);
    assert_eq!(reason(&after), SkipReason::AlreadyInjected);
}

#[test]
fn empty_and_null_lists_are_restored() {
    for empty in [json!([]), Value::Null] {
        let mut before = pod(json!({"initContainers": empty, "imagePullSecrets": empty}));
        before["spec"]["containers"][0]["env"] = empty.clone();
        before["metadata"]["annotations"] = if empty.is_null() { Value::Null } else { json!({}) };
        let settings =
            Settings { image_pull_secrets: vec!["pull".to_owned()], ..Settings::default() };
        let patch = patch(&before, "shop", &settings).expect("a patch");
        let after = applied(&before, &patch.operations);
        assert_eq!(after["spec"]["imagePullSecrets"], json!([{"name": "pull"}]));
        assert_eq!(applied(&after, &undo(&after).unwrap()), before);
    }
}

#[test]
fn what_is_no_pod_is_malformed() {
    for malformed in [
        json!({}),
        json!({"spec": {"containers": []}}),
        json!({"spec": {"containers": [{"image": "no name"}]}}),
        json!({"spec": {"containers": {"name": "a map"}}}),
        json!({"spec": {"containers": ["a", "b"]}}),
        json!({"spec": {"containers": [{"name": "a", "env": 1}]}}),
        json!({"metadata": {"annotations": []}, "spec": {"containers": [{"name": "a"}]}}),
    ] {
        assert_eq!(reason(&malformed), SkipReason::Malformed, "{malformed}");
        assert!(undo(&malformed).is_err(), "{malformed}");
    }
}

#[test]
fn a_guaranteed_pod_stays_guaranteed() {
    let mut before = pod(json!({}));
    let both = json!({"cpu": "500m", "memory": "1Gi"});
    before["spec"]["containers"][0]["resources"] = json!({"requests": both, "limits": both});
    let resources = &injected(&before)["spec"]["initContainers"][0]["resources"];
    assert_eq!(resources["limits"], resources["requests"]);
    assert_eq!(resources["limits"], json!({"cpu": "100m", "memory": "256Mi"}));
    before["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("250m");
    let resources = &injected(&before)["spec"]["initContainers"][0]["resources"];
    assert_eq!(resources["requests"], json!({"cpu": "10m", "memory": "64Mi"}));
}

#[test]
fn a_pods_own_configuration_is_kept() {
    let mut before = pod(json!({}));
    let config = "apiVersion: listless.dev/v1alpha1\nkind: ProxyConfiguration\nmode: observe\n";
    before["metadata"]["annotations"] = json!({"listless.dev/config": config});
    let after = injected(&before);
    assert_eq!(after["metadata"]["annotations"]["listless.dev/config"], config);
    assert_eq!(applied(&after, &undo(&after).unwrap()), before);
    before["metadata"]["annotations"]["listless.dev/config"] = json!("mode: sometimes");
    assert_eq!(reason(&before), SkipReason::InvalidAnnotation);
}

#[test]
fn operations_are_written_as_json_patches() {
    let path = ["metadata", "annotations", "a/b~c"].into_iter().collect();
    let operation = Operation { path, action: Action::Add(json!(1)) };
    assert_eq!(
        serde_json::to_value(&operation).unwrap(),
        json!({"op": "add", "path": "/metadata/annotations/a~1b~0c", "value": 1})
    );
    let removal = Operation { path: Pointer::root().child(0), action: Action::Remove };
    assert_eq!(serde_json::to_value(&removal).unwrap(), json!({"op": "remove", "path": "/0"}));
}

#[test]
fn a_container_whose_proxy_exceptions_may_be_in_env_from_is_unchanged() {
    let proxy = json!({"name": "HTTPS_PROXY", "value": "http://proxy:3128"});
    let exceptions = json!({"name": "no_proxy", "value": ".svc"});
    let none = json!({"name": "HTTPS_PROXY", "value": ""});
    let with = |env: Value, env_from: Value| {
        let mut pod = pod(json!({}));
        pod["spec"]["containers"][0]["env"] = env;
        pod["spec"]["containers"][0]["envFrom"] = env_from;
        pod
    };
    let map = json!([{"configMapRef": {"name": "proxy"}}]);
    assert_eq!(reason(&with(json!([proxy]), map.clone())), SkipReason::UnknownProxyExceptions);
    for (env, env_from) in [
        (json!([proxy]), json!([])),
        (json!([proxy]), Value::Null),
        (json!([proxy, exceptions]), map.clone()),
        (json!([none]), map.clone()),
        (json!([]), map.clone()),
    ] {
        let after = injected(&with(env.clone(), env_from.clone()));
        let host = &after["spec"]["containers"][0]["env"][0]["name"];
        assert_eq!(host, "KUBERNETES_SERVICE_HOST", "{env} {env_from}");
    }
    let mut later = injected(&with(json!([]), map));
    later["spec"]["containers"][0]["env"].as_array_mut().unwrap().push(proxy);
    let env = &injected(&later)["spec"]["containers"][0]["env"];
    assert_eq!(env[4]["name"], "NO_PROXY", "it already uses the sidecar: {env}");
}

#[test]
fn sidecars_serve_health_at_the_address_of_the_settings() {
    let pod = pod(json!({}));
    for address in ["0.0.0.0", "[::]"] {
        let settings = Settings { health_address: address.to_owned(), ..Settings::default() };
        let patch = patch(&pod, "shop", &settings).expect("a patch");
        let after = applied(&pod, &patch.operations);
        let arguments = after["spec"]["initContainers"][0]["args"].as_array().unwrap();
        assert!(arguments.contains(&json!(format!("--health={address}:16020"))), "{arguments:?}");
    }
    assert_eq!(Settings::default().health_address, "0.0.0.0");
}

#[test]
fn probes_use_the_sidecars_health_port() {
    let pod = injected(&pod(json!({})));
    let sidecar = &pod["spec"]["initContainers"][0];
    let port = |words: &Value| {
        let words = words.as_array().unwrap().iter().filter_map(Value::as_str);
        let address = words.filter_map(|word| word.strip_prefix("--health=")).next().unwrap();
        address.rsplit(':').next().unwrap().to_owned()
    };
    for question in ["/lifecycle/postStart", "/livenessProbe"] {
        let command = sidecar.pointer(question).map(|handler| &handler["exec"]["command"]).unwrap();
        assert_eq!(port(command), port(&sidecar["args"]), "{question}");
    }
}
