//! Servers that present the very certificate that their clients trust.
//!
//! Go clients such as kubectl accept it, also if it is an authority, which is what `openssl req -x509`
//! makes. webpki takes an authority for no server's certificate.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use super::{Error, provider, trust, validity};

/// Verifies as usual, and also accepts a trusted certificate that the server presents itself.
#[derive(Debug)]
struct Verifier {
    usual: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

/// Makes a client that trusts these certificates also accept a server that presents one of them.
pub fn accept_trusted(
    tls: &mut ClientConfig,
    trusted: Vec<CertificateDer<'static>>,
) -> Result<(), Error> {
    let roots = Arc::new(trust::of_certificates(trusted.iter().cloned())?);
    let usual = WebPkiServerVerifier::builder_with_provider(roots, provider()).build();
    let usual = usual.map_err(|_| Error::NoCertificate)?;
    tls.dangerous().set_certificate_verifier(Arc::new(Verifier { usual, trusted }));
    Ok(())
}

// === impl Verifier ===

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let usual = self.usual.verify_server_cert(own, others, name, ocsp, now);
        if usual.is_ok() || !self.trusted.contains(own) {
            return usual;
        }
        let (from, until) = validity::validity(own).ok_or(CertificateError::BadEncoding)?;
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now.as_secs());
        if now < from {
            return Err(CertificateError::NotValidYet.into());
        }
        if now > until {
            return Err(CertificateError::Expired.into());
        }
        verify_server_name(&ParsedCertificate::try_from(own)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls12_signature(message, own, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls13_signature(message, own, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    use super::*;

    /// Returns a certificate for 127.0.0.1 that is an authority of its own.
    fn self_signed(until: i32) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().clone()
    }

    fn verified(
        trusted: &CertificateDer<'static>,
        presented: &CertificateDer<'static>,
        name: &'static str,
    ) -> Result<(), rustls::Error> {
        let roots = Arc::new(trust::of_certificates([trusted.clone()]).expect("a root"));
        let usual = WebPkiServerVerifier::builder_with_provider(roots, provider()).build();
        let usual = usual.expect("a verifier");
        let verifier = Verifier { usual, trusted: vec![trusted.clone()] };
        let name = ServerName::try_from(name).expect("a name");
        verifier.verify_server_cert(presented, &[], &name, &[], UnixTime::now()).map(drop)
    }

    #[test]
    fn only_the_trusted_certificate_itself_is_accepted_for_its_name_and_time() {
        let [own, other, old] = [2100, 2100, 2021].map(self_signed);
        assert_eq!(verified(&own, &own, "127.0.0.1"), Ok(()));
        assert!(verified(&own, &own, "127.0.0.2").is_err(), "another name");
        assert!(verified(&own, &other, "127.0.0.1").is_err(), "another certificate");
        assert_eq!(
            verified(&old, &old, "127.0.0.1"),
            Err(CertificateError::Expired.into()),
            "an old certificate"
        );
    }
}
