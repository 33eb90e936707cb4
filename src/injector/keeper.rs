//! Rotates the webhook's certificates: in a Secret, in the webhook configuration, and on the
//! listener.
//!
//! Any number of replicas run the same rotation: the Secret's resourceVersion lets one of them take
//! a step, and the others see the result. Invariant: the webhook configuration is read before the
//! Secret and changed only if it is unchanged since. So no replica overwrites a newer bundle with
//! an older one.

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

/// The objects with the certificates.
#[derive(Clone, Debug)]
pub struct CertificateObjects {
    /// The namespace of the Secret.
    pub namespace: String,
    /// The Secret.
    pub secret: String,
    /// The MutatingWebhookConfiguration.
    pub webhook: String,
}

/// The task that rotates the certificates.
pub struct Keeper {
    client: Arc<dyn Client>,
    place: CertificateObjects,
    wanted: Wanted,
    server: tls::Server,
    shown: Option<Keyring>,
    ready: NotReady,
    metrics: Metrics,
}

/// The reason why a rotation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The apiserver could not be reached.
    #[error(transparent)]
    Api(#[from] api::Error),
    /// A certificate could not be issued.
    #[error("cannot issue a certificate")]
    Issue(#[from] rcgen::Error),
    /// The Secret's certificate cannot be used by the listener.
    #[error("cannot use the certificate in the secret")]
    Tls(#[from] tls::Error),
    /// The webhook configuration has no webhook.
    #[error("the webhook configuration {0} has no webhooks; reinstall the chart")]
    NoWebhook(String),
}

/// The key of the keyring in the Secret. The bundle and the certificate are stored beside it for
/// people.
const KEYRING: &str = "keyring.json";
/// The maximum period of checks.
const PERIOD_MAX: Duration = Duration::from_secs(10);
const PERIOD_MIN: Duration = Duration::from_millis(200);

// === impl Keeper ===

impl Keeper {
    /// Creates the task. It sets the certificate of `server`, and `ready` once the apiserver trusts
    /// it.
    pub fn new(
        client: Arc<dyn Client>,
        place: CertificateObjects,
        wanted: Wanted,
        server: tls::Server,
        ready: NotReady,
        metrics: Metrics,
    ) -> Self {
        Self { client, place, wanted, server, shown: None, ready, metrics }
    }

    /// Checks periodically until the drain begins.
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
                    tracing::error!(%error, "cannot rotate the webhook's certificates");
                }
            }
            tokio::select! {
                () = draining.begun() => return,
                () = tokio::time::sleep(period) => {}
            }
        }
    }

    /// Takes the next step, if there is one, and serves the current certificate.
    pub async fn look(&mut self, now: SystemTime) -> Result<(), Error> {
        let looked = self.step(now).await;
        if looked.is_err() {
            // The current certificate stays in use while it is valid.
            let is_valid = self.shown.as_ref().is_some_and(|shown| shown.leaf_validity().1 > now);
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
            tracing::info!(secret = %self.place.secret, "rotated the webhook's certificates by one \
                                                         step");
        }
        let bundle = ring.bundle();
        if published.iter().any(|there| *there != bundle) {
            self.publish(webhooks, &bundle).await?;
            tracing::info!(webhook = %self.place.webhook, "published the webhook's trusted \
                                                           certificates");
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
        // A list is merged as a whole; the version prevents lost updates.
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
            let (from, until) = ring.leaf_validity();
            self.metrics.certificate_valid(Certificate::Serving, from, until);
        }
        let (from, until) = ring.authority_validity();
        self.metrics.certificate_valid(Certificate::Authority, from, until);
        self.metrics.injector_authority_expires(until);
        self.shown = Some(ring);
        self.ready.set_ready(is_trusted);
        Ok(())
    }

    fn secret_path(&self) -> String {
        let CertificateObjects { namespace, secret, .. } = &self.place;
        format!("/api/v1/namespaces/{namespace}/secrets/{secret}")
    }

    fn webhook_path(&self) -> String {
        let group = "/apis/admissionregistration.k8s.io/v1";
        format!("{group}/mutatingwebhookconfigurations/{}", self.place.webhook)
    }
}

/// Returns the trusted certificates of each webhook.
fn bundles(webhooks: &Value) -> Vec<String> {
    let entries = webhooks["webhooks"].as_array().into_iter().flatten();
    let of = |entry: &Value| {
        let encoded = entry["clientConfig"]["caBundle"].as_str()?;
        String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
    };
    entries.map(|entry| of(entry).unwrap_or_default()).collect()
}

/// Returns the keyring of a Secret, or a new one if it is unreadable.
fn held(secret: &Value) -> Option<Keyring> {
    let bytes = STANDARD.decode(secret["data"][KEYRING].as_str()?).ok()?;
    match serde_json::from_slice(&bytes) {
        Ok(ring) => Some(ring),
        Err(error) => {
            tracing::error!(%error, "the secret has no keyring; creating new certificates");
            None
        }
    }
}

/// Reports whether a bundle contains a certificate.
fn has(bundle: &str, certificate: &str) -> bool {
    let of = |pem: &str| -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok).collect()
    };
    let bundle = of(bundle);
    of(certificate).iter().all(|certificate| bundle.contains(certificate))
}
