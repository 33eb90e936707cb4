//! A gateway of two instances, of which one ends.

use std::time::Duration;

use anyhow::{Result, ensure};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;

use super::install::{chart, image_settings, prepare_namespace};
use crate::kube::{LIMIT, is_injected, name, until};
use crate::manifests::{deployment, namespace, polling, template};
use crate::stage::Stage;

const PLACE: &str = "gateways";
const CALLERS: &str = "callers";
const NAME: &str = "two-listless-gateway";
/// The time that callers continue after the end of an instance.
const AFTERWARDS: Duration = Duration::from_secs(5);

pub async fn one_of_two_gateways_goes_and_clients_read_on(stage: &mut Stage<'_>) -> Result<()> {
    let host = format!("{NAME}.{PLACE}.svc");
    let authority = certify(stage, &host).await?;
    let mut words = vec!["install", "two", chart(), "--namespace", PLACE, "--wait"];
    let settings = image_settings();
    settings.iter().for_each(|setting| words.extend(["--set", setting]));
    words.extend(["--set", "injector.enabled=false", "--set", "gateway.enabled=true"]);
    words.extend(["--set", "gateway.replicas=2", "--set", "gateway.tls.secretName=certificate"]);
    stage.kube.helm(&words).await?;

    prepare_namespace(stage, CALLERS, &json!({})).await?;
    let server = format!("https://{host}");
    let environment = [("SERVER", server.as_str()), ("SERVER_AUTHORITY", &authority)];
    let template = template("caller", &json!({}), &polling(&environment));
    let caller = stage.poller(&deployment(CALLERS, "caller", 1, &template)).await?;
    ensure!(!is_injected(&stage.kube.pod(CALLERS, "caller").await?), "the caller has a sidecar");

    let pods = format!("/api/v1/namespaces/{PLACE}/pods");
    let mut failed = 0;
    // They end one after the other, so that the one in use is among them.
    for pod in stage.kube.list(&pods).await? {
        stage.reset(CALLERS, &caller).await?;
        stage.kube.kubectl(&["delete", "pod", name(&pod), "-n", PLACE]).await?;
        tokio::time::sleep(AFTERWARDS).await;
        let seen = stage.seen(CALLERS, &caller).await?;
        seen.at_most_one_failure_each()?;
        failed += seen.failed();
        stage.kube.rolled_out(PLACE, NAME).await?;
        stage.until_from_memory(CALLERS, &caller).await?;
    }
    stage.table.row(
        "two gateways, each replaced once: lists of four clients that failed",
        failed.to_string(),
    );
    stage.kube.helm(&["uninstall", "two", "--namespace", PLACE, "--wait"]).await?;
    stage.kube.kubectl(&["delete", "namespace", CALLERS, "--wait=false"]).await?;
    until(LIMIT, "the end of the gateways", async || {
        Ok(stage.kube.list(&pods).await?.is_empty().then_some(()))
    })
    .await
}

/// Creates the gateway's certificate; returns its authority.
async fn certify(stage: &Stage<'_>, host: &str) -> Result<String> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key)?.pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate()?;
    let leaf = CertificateParams::new(vec![host.to_owned()])?.signed_by(&key, &issuer)?;
    stage.kube.apply(&namespace(PLACE, &json!({}))).await?;
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": "certificate", "namespace": PLACE},
        "stringData": {"tls.crt": leaf.pem(), "tls.key": key.serialize_pem()},
    });
    stage.kube.apply(&secret).await?;
    Ok(authority)
}
