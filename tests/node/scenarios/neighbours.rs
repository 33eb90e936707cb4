//! Another container of a pod, which has no token.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::manifests::{SHOP, container, deployment, polling, template};
use crate::stage::Stage;

const PORT: u16 = 8081;
/// A token that nobody issued.
const FORGED: &str = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJzeXN0ZW06YWRtaW4ifQ.c2lnbmVk";
const SIDECARS: [&str; 3] =
    ["/run/listless/state/ca.key", "/run/listless/sa/token", "/run/listless/state"];

pub async fn a_neighbour_without_the_token_gets_nothing(stage: &mut Stage<'_>) -> Result<()> {
    let mut spec = polling(&[]);
    let mut neighbour = container("neighbour", "stand", &[("PORT", "8081")]);
    // An empty volume hides the directory that it would get.
    let hidden = "/var/run/secrets/kubernetes.io/serviceaccount";
    neighbour["volumeMounts"] = json!([{"name": "nothing", "mountPath": hidden}]);
    spec["containers"].as_array_mut().context("containers")?.push(neighbour);
    spec["volumes"] = json!([{"name": "nothing", "emptyDir": {}}]);
    let made = deployment(SHOP, "shared", 1, &template("shared", &json!({}), &spec));
    let pod = stage.poller(&made).await?;

    let lists = "https://127.0.0.1:16443/api/v1/namespaces/fleet/pods";
    for (bearer, what) in [("", "no token"), (FORGED, "a forged one")] {
        let reached = reach(stage, &pod, lists, bearer).await?;
        let status = reached["status"].as_u64().unwrap_or_default();
        ensure!(status == 401 || status == 403, "with {what}: {reached}");
        let cache = reached["cacheStatus"].as_str().unwrap_or_default();
        ensure!(!cache.contains("; hit"), "from memory, with {what}: {reached}");
        ensure!(!reached.to_string().contains("pod-000"), "pods, with {what}: {reached}");
    }
    for file in SIDECARS {
        let answer = stage.kube.ask(SHOP, &pod, PORT, &format!("/file?path={file}")).await?;
        ensure!(answer.status == 404, "{file}: {}", answer.excerpt());
    }
    // The sidecar's own pages contain no object and no token.
    let page = reach(stage, &pod, "http://127.0.0.1:16021/api/v1/report", "").await?.to_string();
    ensure!(!page.contains("pod-000") && !page.contains("eyJ"), "{page}");
    stage.kube.kubectl(&["delete", "deployment", "shared", "-n", SHOP]).await.map(drop)
}

/// The response of a URL to the neighbour.
async fn reach(stage: &Stage<'_>, pod: &str, url: &str, bearer: &str) -> Result<Value> {
    let path = format!("/reach?url={url}&bearer={bearer}");
    stage.kube.ask(SHOP, pod, PORT, &path).await?.successful()?.json()
}
