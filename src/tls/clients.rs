//! The authorities of client certificates in a file, which is reloaded when it changes.
//!
//! Invariant: a file that cannot be used changes only the log and a metric. It is read again when it
//! changes.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use rustls::{
    DigitallySignedStruct, DistinguishedName, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, UnixTime},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

use super::{Error, provider, roots};
use crate::{
    error::Chain,
    lifecycle::Draining,
    metrics::{Metrics, Outcome},
};

/// A file of authorities, and the verifier that trusts them.
pub struct ClientAuthorities {
    file: PathBuf,
    /// The last tried content, whether used or not. Empty for an unreadable file.
    seen: Option<Vec<u8>>,
    verifier: Arc<Replaceable>,
}

/// Verifies certificates as the verifier of the file's last usable content does.
#[derive(Debug)]
struct Replaceable(ArcSwap<Arc<dyn ClientCertVerifier>>);

/// The period of checks. A kubelet takes about a minute to update files.
const PERIOD: Duration = Duration::from_secs(5);

// === impl ClientAuthorities ===

impl ClientAuthorities {
    /// Reads the file for the first time, when it must be usable.
    pub fn load(file: PathBuf) -> Result<Self, Error> {
        let content = fs::read(&file);
        let content = content.map_err(|source| Error::File { path: file.clone(), source })?;
        let verifier = Replaceable(ArcSwap::from_pointee(trusting(&content, &file)?));
        Ok(Self { file, seen: Some(content), verifier: Arc::new(verifier) })
    }

    /// Returns the verifier of the file's present and later authorities.
    pub(super) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        self.verifier.clone()
    }

    /// Checks the file every few seconds until the drain begins.
    pub async fn follow(mut self, draining: Draining, metrics: Metrics) {
        let check = || {
            if let Some(outcome) = self.look() {
                metrics.certificate_reloaded(outcome);
            }
        };
        draining.act_every(PERIOD, check).await;
    }

    /// Uses the file's content if it changed.
    fn look(&mut self) -> Option<Outcome> {
        let content = fs::read(&self.file);
        if content.as_ref().ok() == self.seen.as_ref() {
            return None;
        }
        let file = self.file.clone();
        let taken = match &content {
            Ok(content) => trusting(content, &file),
            Err(error) => Err(Error::File { path: file, source: error.kind().into() }),
        };
        self.seen = content.ok();
        Some(match taken {
            Ok(verifier) => {
                self.verifier.0.store(Arc::new(verifier));
                tracing::info!(file = %self.file.display(), "client authorities replaced");
                Outcome::Success
            }
            Err(error) => {
                let error = Chain(&error);
                tracing::error!(%error, "cannot use the new client authorities; still trusting the old ones");
                Outcome::Failure
            }
        })
    }
}

fn trusting(pem: &[u8], file: &Path) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let unusable = |source| Error::Pem { path: file.to_owned(), source };
    let roots = roots(pem).map_err(|error| unusable(error.into()))?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    verifier.map_err(|error| unusable(error.into()))
}

// === impl Replaceable ===

impl ClientCertVerifier for Replaceable {
    /// Names no authority, so that a client also sends a certificate of one that is new.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.0.load().verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.load().verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.load().verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.load().supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    };

    use super::*;

    /// Returns an authority in PEM, and a client certificate of it.
    fn pair() -> (String, CertificateDer<'static>) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let issuer = Issuer::new(params, key);
        let mut leaf = CertificateParams::default();
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        (pem, leaf.signed_by(&key, &issuer).expect("a certificate").der().clone())
    }

    #[test]
    fn new_authorities_are_trusted_and_a_broken_file_changes_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("ca.crt");
        let write = |text: &str| fs::write(&file, text).expect("written");
        let (old, new) = (pair(), pair());
        assert!(ClientAuthorities::load(file.clone()).is_err(), "there is no file");
        write(&old.0);
        let mut authorities = ClientAuthorities::load(file.clone()).expect("usable");
        let verifier = authorities.verifier();
        let trusts = |leaf: &CertificateDer<'static>| {
            verifier.verify_client_cert(leaf, &[], UnixTime::now()).is_ok()
        };
        assert_eq!((trusts(&old.1), trusts(&new.1)), (true, false));
        assert_eq!(authorities.look(), None);
        write("nonsense");
        assert_eq!(authorities.look(), Some(Outcome::Failure));
        assert_eq!(authorities.look(), None, "it is logged once");
        assert!(trusts(&old.1));
        write(&new.0);
        assert_eq!(authorities.look(), Some(Outcome::Success));
        assert_eq!((trusts(&old.1), trusts(&new.1)), (false, true));
    }
}
