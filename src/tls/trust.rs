//! The trust of clients: bundles of certificates, and their verification of a server.

use std::{sync::Arc, time::SystemTime};

use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};

use super::{Error, provider, validity};

/// Returns the certificates in a text, and skips everything else.
pub fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok).collect()
}

/// Returns the expiry time of a certificate, if readable.
pub fn expires(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    validity::not_after(certificate)
}

/// Reports whether clients with this bundle trust the chain for a server name.
pub fn is_trusted(chain: &[CertificateDer<'_>], bundle: &str, name: &str, now: SystemTime) -> bool {
    let verify = || {
        let roots = Arc::new(roots(bundle.as_bytes()).ok()?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider());
        let name = ServerName::try_from(name).ok()?;
        let now = UnixTime::since_unix_epoch(now.duration_since(SystemTime::UNIX_EPOCH).ok()?);
        let (own, others) = chain.split_first()?;
        let verifier = verifier.build().ok()?;
        verifier.verify_server_cert(own, others, &name, &[], now).ok()
    };
    verify().is_some()
}

/// Returns the certificates of a bundle as roots, and skips unusable blocks.
pub fn roots(pem: &[u8]) -> Result<RootCertStore, Error> {
    of_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok))
}

/// Returns certificates as roots, and skips unusable ones.
pub(super) fn of_certificates(
    certificates: impl IntoIterator<Item = CertificateDer<'static>>,
) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 { Err(Error::NoCertificate) } else { Ok(roots) }
}
