//! Keeps the webhook's certificates: in a Secret, in what the apiserver trusts, and in what is
//! shown.
//!
//! Any number of replicas do the same: the Secret's resourceVersion lets one of them take a step,
//! and the others find it taken. Invariant: the apiserver's configuration is read before the Secret
//! and changed only if it is still as it was read, so that nobody publishes an older bundle over a
//! newer one.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};

use super::{
    api,
    keyring::{Keyring, Wanted},
};
use crate::{
    error::Chain,
    lifecycle::{Draining, NotReady},
    metrics::{Certificate, Metrics, Outcome},
    tls,
    upstream::Client,
};

/// Where the certificates are kept and published.
#[derive(Clone, Debug)]
pub struct Place {
    /// The namespace of the Secret.
    pub namespace: String,
    /// The Secret.
    pub secret: String,
    /// The MutatingWebhookConfiguration.
    pub webhook: String,
}

/// Keeps them.
pub struct Keeper {
    client: Arc<dyn Client>,
    place: Place,
    wanted: Wanted,
    server: tls::Server,
    shown: Option<Keyring>,
    ready: NotReady,
    metrics: Metrics,
}

/// Why the certificates are not as they should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The apiserver could not be asked.
    #[error(transparent)]
    Api(#[from] api::Error),
    /// A certificate could not be made.
    #[error("a certificate cannot be made")]
    Issue(#[from] rcgen::Error),
    /// What the Secret holds cannot be shown.
    #[error("the certificate in the secret cannot be used")]
    Tls(#[from] tls::Error),
    /// There is no webhook to serve.
    #[error("the webhook configuration {0} has no webhooks")]
    NoWebhook(String),
}

/// Where the keyring is in the Secret; beside it stand, for people, the bundle and the certificate.
const KEYRING: &str = "keyring.json";
/// How often all is looked at.
const PERIOD_MAX: Duration = Duration::from_secs(10);
const PERIOD_MIN: Duration = Duration::from_millis(200);

// === impl Keeper ===

impl Keeper {
    /// Shows `server` what it finds, and says in `ready` whether the apiserver trusts it.
    pub fn new(
        client: Arc<dyn Client>,
        place: Place,
        wanted: Wanted,
        server: tls::Server,
        ready: NotReady,
        metrics: Metrics,
    ) -> Self {
        Self { client, place, wanted, server, shown: None, ready, metrics }
    }

    /// Looks again and again until the end begins.
    pub async fn run(mut self, mut draining: Draining) {
        let period = (self.wanted.leaf_lifetime / 40).clamp(PERIOD_MIN, PERIOD_MAX);
        loop {
            match self.look(SystemTime::now()).await {
                Ok(()) => {}
                Err(Error::Api(error)) if error.is_conflict() => {
                    tracing::debug!(%error, "another replica was faster");
                }
                Err(error) => {
                    let error = Chain(&error);
                    tracing::error!(%error, "the webhook's certificates are not looked after");
                }
            }
            tokio::select! {
                () = draining.begun() => return,
                () = tokio::time::sleep(period) => {}
            }
        }
    }

    /// Takes the next step, if there is one, and shows what there is.
    pub async fn look(&mut self, now: SystemTime) -> Result<(), Error> {
        let looked = self.step(now).await;
        if looked.is_err() {
            // What is shown stays good for as long as it is valid.
            let is_valid = self.shown.as_ref().is_some_and(|shown| shown.leaf_until() > now);
            if !is_valid {
                self.ready.set_ready(false);
            }
        }
        looked
    }

    async fn step(&mut self, now: SystemTime) -> Result<(), Error> {
        let client = Arc::clone(&self.client);
        let webhooks = api::get(client.as_ref(), &self.webhook_path()).await?;
        let published = bundles(&webhooks);
        if published.is_empty() {
            return Err(Error::NoWebhook(self.place.webhook.clone()));
        }
        let secret = api::get(client.as_ref(), &self.secret_path()).await?;
        let held = held(&secret);
        let is_published =
            |certificate: &str| published.iter().all(|bundle| has(bundle, certificate));
        let ring = Keyring::advanced(held.as_ref(), &self.wanted, is_published, now)?;
        if held.as_ref() != Some(&ring) {
            self.keep(secret, &ring).await?;
            tracing::info!(secret = %self.place.secret, "the webhook's certificates took a step");
        }
        let bundle = ring.bundle();
        if published.iter().any(|there| *there != bundle) {
            self.publish(webhooks, &bundle).await?;
            tracing::info!(webhook = %self.place.webhook, "published what the apiserver must trust");
        }
        self.show(ring, &bundle, now)
    }

    async fn keep(&self, mut secret: Value, ring: &Keyring) -> Result<(), Error> {
        let encoded = |text: &str| json!(STANDARD.encode(text));
        let text = serde_json::to_string(ring).unwrap_or_default();
        secret["data"][KEYRING] = encoded(&text);
        secret["data"]["ca.crt"] = encoded(&ring.bundle());
        secret["data"]["tls.crt"] = encoded(ring.leaf().0);
        api::put(self.client.as_ref(), &self.secret_path(), &secret).await?;
        Ok(())
    }

    async fn publish(&self, mut webhooks: Value, bundle: &str) -> Result<(), Error> {
        let entries = webhooks["webhooks"].as_array_mut().into_iter().flatten();
        for entry in entries {
            entry["clientConfig"]["caBundle"] = json!(STANDARD.encode(bundle));
        }
        // A list is merged as a whole; the version makes sure that nobody's change is lost.
        let version = &webhooks["metadata"]["resourceVersion"];
        let fields = json!({
            "metadata": {"resourceVersion": version},
            "webhooks": webhooks["webhooks"],
        });
        api::merge(self.client.as_ref(), &self.webhook_path(), &fields).await?;
        Ok(())
    }

    fn show(&mut self, ring: Keyring, bundle: &str, now: SystemTime) -> Result<(), Error> {
        let (certificate, key) = ring.leaf();
        let leaf = tls::Leaf::from_pem(certificate, key)?;
        let name = self.wanted.names.first().map_or("", String::as_str);
        let is_trusted = leaf.is_trusted(bundle, name, now);
        if self.shown.as_ref().map(Keyring::leaf) != Some(ring.leaf()) {
            self.server.replace(leaf)?;
            self.metrics.certificate_reloaded(Outcome::Success);
            self.metrics.certificate_expires(Certificate::Serving, ring.leaf_until());
        }
        self.metrics.certificate_expires(Certificate::Authority, ring.authority_until());
        self.metrics.injector_authority_expires(ring.authority_until());
        self.shown = Some(ring);
        self.ready.set_ready(is_trusted);
        Ok(())
    }

    fn secret_path(&self) -> String {
        let Place { namespace, secret, .. } = &self.place;
        format!("/api/v1/namespaces/{namespace}/secrets/{secret}")
    }

    fn webhook_path(&self) -> String {
        let group = "/apis/admissionregistration.k8s.io/v1";
        format!("{group}/mutatingwebhookconfigurations/{}", self.place.webhook)
    }
}

/// What the apiserver trusts, for each webhook.
fn bundles(webhooks: &Value) -> Vec<String> {
    let entries = webhooks["webhooks"].as_array().into_iter().flatten();
    let of = |entry: &Value| {
        let encoded = entry["clientConfig"]["caBundle"].as_str()?;
        String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
    };
    entries.map(|entry| of(entry).unwrap_or_default()).collect()
}

/// The keyring in a Secret; what cannot be read is made anew.
fn held(secret: &Value) -> Option<Keyring> {
    let bytes = STANDARD.decode(secret["data"][KEYRING].as_str()?).ok()?;
    match serde_json::from_slice(&bytes) {
        Ok(ring) => Some(ring),
        Err(error) => {
            tracing::error!(%error, "the secret holds no keyring; certificates are made anew");
            None
        }
    }
}

/// Whether a bundle has a certificate.
fn has(bundle: &str, certificate: &str) -> bool {
    let of = |pem: &str| -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok).collect()
    };
    let bundle = of(bundle);
    of(certificate).iter().all(|certificate| bundle.contains(certificate))
}
