use serde_json::json;

use super::{
    super::{Missing, Outcome},
    *,
};

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": name},
        "spec": {"containers": [{"name": "web", "image": "web"}]},
        "status": {"phase": "Running"},
    })
}

fn injected(name: &str, version: &str, state: &Value, restarts: u64) -> Value {
    let mut pod = pod(name);
    let status = json!({"version": version, "rev": "", "mode": "enforce", "port": 1,
        "containers": [], "mirrors": {}});
    pod["metadata"]["annotations"] = json!({"listless.dev/status": status.to_string()});
    pod["spec"]["initContainers"] = json!([{"name": SIDECAR, "image": "r/listless:1"}]);
    pod["status"]["initContainerStatuses"] =
        json!([{"name": SIDECAR, "state": state, "restartCount": restarts}]);
    pod
}

fn running() -> Value {
    json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}})
}

fn waiting(reason: &str) -> Value {
    json!({"waiting": {"reason": reason}})
}

fn counted(pods: &[Value]) -> Found<Pods> {
    let mut counted = Pods::new(Ok(vec!["shop".to_owned()]));
    pods.iter().for_each(|pod| counted.add(pod));
    Ok(counted)
}

fn injector(image: &str, version: &str) -> Injector {
    let deployment = json!({
        "metadata": {"namespace": "system", "name": "injector",
            "labels": {"app.kubernetes.io/version": version}},
        "spec": {"template": {"spec": {"containers": [
            {"name": "injector", "image": image, "args": ["injector"]},
        ]}}},
    });
    Injector::read(&deployment).expect("an injector")
}

#[test]
fn pods_that_wait_for_the_image_fail_with_the_kubelets_reason() {
    let mut part = pod("injector-1");
    part["metadata"]["labels"] = json!({"listless.dev/component": "injector"});
    part["status"]["containerStatuses"] =
        json!([{"name": "web", "state": waiting("ErrImagePull")}]);
    let pods = counted(&[
        injected("a", "1", &waiting("ImagePullBackOff"), 0),
        injected("b", "1", &waiting("ImagePullBackOff"), 0),
        part,
    ]);
    let row = image(&pods, None);
    assert_eq!(row.result, Outcome::Fail);
    let expected =
        "ErrImagePull: the pod shop/injector-1; ImagePullBackOff: 2 pods, such as shop/a";
    assert_eq!(row.detail, expected);
    assert_eq!(sidecars(&pods).result, Outcome::Pass, "reported only once");
}

#[test]
fn an_image_passes_once_it_runs() {
    let own = injector("r/listless:1", "1");
    let none = counted(&[pod("plain")]);
    assert_eq!(image(&none, Some(&own)).result, Outcome::Skipped);
    assert_eq!(image(&none, None).result, Outcome::Skipped);
    let some = counted(&[injected("a", "1", &running(), 0)]);
    let row = image(&some, Some(&own));
    assert_eq!((row.result, &*row.detail), (Outcome::Pass, "r/listless:1 runs in 1 pods"));
    for image_name in ["r:5000/listless", "listless:latest"] {
        let loose = injector(image_name, "1");
        assert_eq!(image(&some, Some(&loose)).result, Outcome::Warn, "{image_name}");
    }
    let pinned = injector("r/listless@sha256:00", "1");
    assert_eq!(image(&some, Some(&pinned)).result, Outcome::Skipped);
}

#[test]
fn crashing_sidecars_fail_and_restarted_ones_warn() {
    let crashing = injected("a", "1", &waiting("CrashLoopBackOff"), 9);
    let often = injected("b", "1", &running(), RESTARTS_MANY);
    let fine = injected("c", "1", &running(), 0);
    let starting = injected("d", "1", &waiting("PodInitializing"), 0);
    let judge = |pods: &[&Value]| {
        let pods: Vec<_> = pods.iter().map(|pod| (*pod).clone()).collect();
        sidecars(&counted(&pods))
    };
    assert_eq!(judge(&[&crashing, &often, &fine]).result, Outcome::Fail);
    assert_eq!(judge(&[&often, &fine]).result, Outcome::Warn);
    let row = judge(&[&fine, &starting, &pod("plain")]);
    assert_eq!((row.result, &*row.detail), (Outcome::Pass, "2 of 3 pods have one, 1 not started"));
}

#[test]
fn sidecars_of_another_version_than_the_injectors_are_out_of_date() {
    let pods =
        counted(&[injected("a", "1.0.0", &running(), 0), injected("b", "1.1.0", &running(), 0)]);
    let row = up_to_date(&pods, Some(&injector("r/listless:x", "1.1.0")));
    assert_eq!(row.result, Outcome::Warn);
    let expected = "the injector is 1.1.0, sidecars are of 1.0.0: the pod shop/a";
    assert_eq!(row.detail, expected);
    let pods = counted(&[injected("b", "1.1.0", &running(), 0)]);
    let row = up_to_date(&pods, Some(&injector("r/listless:x", "1.1.0")));
    assert_eq!(row.result, Outcome::Pass);
    assert_eq!(up_to_date(&counted(&[]), None).result, Outcome::Skipped);
}

#[test]
fn pods_that_request_a_sidecar_and_have_none_are_reported() {
    let with = |name: &str, part: Value| {
        let mut pod = pod(name);
        for half in ["metadata", "spec", "status"] {
            for (field, value) in part[half].as_object().into_iter().flatten() {
                pod[half][field] = value.clone();
            }
        }
        pod
    };
    let no = |kind: &str, value: &str| {
        let wish = json!({"listless.dev/inject": value});
        json!({"metadata": {kind: wish}})
    };
    let elsewhere = json!({"metadata": {"namespace": "till"}});
    let mut asked = elsewhere.clone();
    asked["metadata"]["labels"] = json!({"listless.dev/inject": "true"});
    let mut withdrawn = asked.clone();
    withdrawn["metadata"]["annotations"] = json!({"listless.dev/inject": "false"});
    let fine = counted(&[
        with("no", no("labels", "false")),
        with("disabled", no("labels", "disabled")),
        with("annotated", no("annotations", "false")),
        with("withdrawn", withdrawn),
        with("elsewhere", elsewhere),
        with("host", json!({"spec": {"hostNetwork": true}})),
        with("done", json!({"status": {"phase": "Succeeded"}})),
        injected("has", "1", &running(), 0),
    ]);
    assert_eq!(left_out(&fine, true).result, Outcome::Pass);
    let unknown = Pods::new(Err(Missing::Forbidden("no".to_owned())));
    assert_eq!(left_out(&Ok(unknown), true).result, Outcome::Skipped, "the namespaces are unknown");
    let row = left_out(&counted(&[with("asked", asked), pod("labelled")]), true);
    assert_eq!(row.result, Outcome::Warn);
    assert!(row.detail.ends_with("2 pods, such as till/asked"), "{row:?}");
}

#[test]
fn groups_beyond_the_maximum_are_counted_together() {
    let pods: Vec<_> =
        (0..100).map(|number| injected("p", &format!("v{number}"), &running(), 0)).collect();
    let Ok(counted) = counted(&pods) else { panic!("counted") };
    assert_eq!(counted.sidecar_count(), 100);
    assert_eq!(counted.injected.len(), KINDS_MAX + 1);
}
