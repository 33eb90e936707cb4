//! The webhook's certificates: an authority, its successor, and a server certificate.
//!
//! The rotation takes one step at a time, and each only after the previous one is published. An
//! authority signs nothing before the apiserver trusts it, and is trusted until it expires. All
//! replicas take the same steps over one Secret; a later replica finds the step done.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use serde::{Deserialize, Serialize};

/// The content of the Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keyring {
    /// The current authority.
    signer: Signer,
    /// The next authority, which signs once it is published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<Signer>,
    /// Earlier authorities whose certificates may still be in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    previous: Vec<Previous>,
    leaf: Leaf,
}

/// An authority with its key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Signer {
    certificate: String,
    key: String,
    /// Seconds since 1970, like all times here.
    since: u64,
    until: u64,
}

/// An authority without its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Previous {
    certificate: String,
    until: u64,
}

/// The server certificate.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Leaf {
    certificate: String,
    key: String,
    names: Vec<String>,
    since: u64,
    until: u64,
}

/// The requirements for a keyring.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The DNS names and addresses of the webhook.
    pub names: Vec<String>,
    /// The lifetime of an authority. It is replaced after two thirds of it.
    pub authority_lifetime: Duration,
    /// The lifetime of a server certificate. It is replaced after half of it.
    pub leaf_lifetime: Duration,
}

/// The allowance for clock differences.
const BACKDATING: Duration = Duration::from_secs(3600);
/// The maximum time between the publication of the next authority and its first signature.
/// Apiservers learn of it by a watch.
const OVERLAP_MAX: Duration = Duration::from_secs(600);

// === impl Keyring ===

impl Keyring {
    /// Returns the keyring after the next step, unchanged if there is none. `is_published` reports
    /// whether the apiserver trusts a certificate.
    pub fn advanced(
        held: Option<&Self>,
        wanted: &Wanted,
        is_published: impl Fn(&str) -> bool,
        now: SystemTime,
    ) -> Result<Self, rcgen::Error> {
        let at = seconds(now);
        let Some(mut ring) = held.cloned() else { return Self::new(wanted, now) };
        ring.previous.retain(|previous| previous.until > at);
        let overlap = (wanted.authority_lifetime / 20).min(OVERLAP_MAX).as_secs();
        let is_due = |next: &Signer| is_published(&next.certificate) && at >= next.since + overlap;
        if let Some(next) = ring.next.take_if(|next| is_due(next)) {
            let old = std::mem::replace(&mut ring.signer, next);
            ring.previous.push(Previous { certificate: old.certificate, until: old.until });
            ring.leaf = ring.signer.issue(wanted, now)?;
        }
        if ring.signer.until <= at {
            let next = ring.next.take().filter(|next| next.until > at);
            ring.signer = next.map_or_else(|| Signer::new(wanted, now), Ok)?;
            ring.leaf = ring.signer.issue(wanted, now)?;
        }
        let age = at.saturating_sub(ring.signer.since);
        if ring.next.is_none() && age >= wanted.authority_lifetime.as_secs() * 2 / 3 {
            ring.next = Some(Signer::new(wanted, now)?);
        }
        let leaf_age = at.saturating_sub(ring.leaf.since);
        let is_old = leaf_age >= wanted.leaf_lifetime.as_secs() / 2 || ring.leaf.until <= at;
        if is_old || ring.leaf.names != wanted.names {
            ring.leaf = ring.signer.issue(wanted, now)?;
        }
        Ok(ring)
    }

    fn new(wanted: &Wanted, now: SystemTime) -> Result<Self, rcgen::Error> {
        let signer = Signer::new(wanted, now)?;
        let leaf = signer.issue(wanted, now)?;
        Ok(Self { signer, next: None, previous: Vec::new(), leaf })
    }

    /// Returns the trusted certificates as PEM.
    pub fn bundle(&self) -> String {
        let next = self.next.iter().map(|next| next.certificate.as_str());
        let previous = self.previous.iter().map(|previous| previous.certificate.as_str());
        [self.signer.certificate.as_str()].into_iter().chain(next).chain(previous).collect()
    }

    /// Returns the server certificate and its key, as PEM.
    pub fn leaf(&self) -> (&str, &str) {
        (&self.leaf.certificate, &self.leaf.key)
    }

    /// Returns the first and the last moment at which the current authority is valid.
    pub fn authority_validity(&self) -> (SystemTime, SystemTime) {
        (time(self.signer.since), time(self.signer.until))
    }

    /// Returns the first and the last moment at which the server certificate is valid.
    pub fn leaf_validity(&self) -> (SystemTime, SystemTime) {
        (time(self.leaf.since), time(self.leaf.until))
    }
}

// === impl Signer ===

impl Signer {
    fn new(wanted: &Wanted, now: SystemTime) -> Result<Self, rcgen::Error> {
        let since = seconds(now);
        let until = since + wanted.authority_lifetime.as_secs();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = authority_params(since, until).self_signed(&key)?.pem();
        Ok(Self { certificate, key: key.serialize_pem(), since, until })
    }

    fn issue(&self, wanted: &Wanted, now: SystemTime) -> Result<Leaf, rcgen::Error> {
        let since = seconds(now);
        let until = (since + wanted.leaf_lifetime.as_secs()).min(self.until);
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name("listless injector".to_owned());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.not_before = (time(since) - BACKDATING).into();
        params.not_after = time(until).into();
        for name in &wanted.names {
            params.subject_alt_names.push(match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(name.as_str().try_into()?),
            });
        }
        let issuer =
            Issuer::new(authority_params(self.since, self.until), KeyPair::from_pem(&self.key)?);
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.signed_by(&key, &issuer)?.pem();
        let names = wanted.names.clone();
        Ok(Leaf { certificate, key: key.serialize_pem(), names, since, until })
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("since", &self.since).finish_non_exhaustive()
    }
}

// === impl Leaf ===

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaf").field("since", &self.since).finish_non_exhaustive()
    }
}

/// Returns an authority's parameters. The same times give the same name.
fn authority_params(since: u64, until: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(format!("Listless injector CA {since}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = (time(since) - BACKDATING).into();
    params.not_after = time(until).into();
    params
}

fn common_name(name: String) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn time(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn wanted() -> Wanted {
        Wanted {
            names: vec!["listless-injector.listless.svc".to_owned(), "127.0.0.1".to_owned()],
            authority_lifetime: 90 * DAY,
            leaf_lifetime: 8 * DAY,
        }
    }

    fn day(number: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + 20_000 * DAY + number * DAY
    }

    fn advanced(ring: &Keyring, is_published: bool, now: SystemTime) -> Keyring {
        Keyring::advanced(Some(ring), &wanted(), |_| is_published, now).expect("a keyring")
    }

    #[test]
    fn nothing_changes_before_its_time() {
        let first = Keyring::advanced(None, &wanted(), |_| false, day(0)).expect("a keyring");
        assert_eq!(advanced(&first, true, day(3)), first);
        assert_eq!(first.leaf_validity().1, day(8));
        assert_eq!(first.authority_validity().1, day(90));
        let kept: Keyring = serde_json::from_str(&serde_json::to_string(&first).unwrap()).unwrap();
        assert_eq!(kept, first);
    }

    #[test]
    fn a_leaf_is_replaced_after_half_its_life_and_for_other_names() {
        let first = Keyring::advanced(None, &wanted(), |_| false, day(0)).expect("a keyring");
        let second = advanced(&first, true, day(4));
        assert_ne!(second.leaf, first.leaf);
        assert_eq!((&second.signer, second.leaf_validity().1), (&first.signer, day(12)));
        let wanted = Wanted { names: vec!["other".to_owned()], ..wanted() };
        let third = Keyring::advanced(Some(&second), &wanted, |_| true, day(4)).expect("a keyring");
        assert_eq!(third.leaf.names, ["other"]);
    }

    #[test]
    fn an_authority_signs_only_once_it_is_published_and_the_old_one_is_trusted_until_it_expires() {
        let first = Keyring::advanced(None, &wanted(), |_| false, day(0)).expect("a keyring");
        let prepared = advanced(&first, true, day(60));
        let next = prepared.next.clone().expect("the next authority");
        assert_eq!(prepared.signer, first.signer);
        assert!(prepared.bundle().contains(&next.certificate));
        assert_eq!(advanced(&prepared, false, day(61)).signer, first.signer, "unpublished");
        assert_eq!(advanced(&prepared, true, day(60)).signer, first.signer, "just published");
        let promoted = advanced(&prepared, true, day(61));
        assert_eq!((&promoted.signer, &promoted.next), (&next, &None));
        assert_ne!(promoted.leaf, prepared.leaf);
        assert!(promoted.bundle().contains(&first.signer.certificate));
        let kept = serde_json::to_string(&promoted).unwrap();
        assert!(!kept.contains(&first.signer.key[40..80]), "its key is gone");
        let later = advanced(&promoted, true, day(91));
        assert!(!later.bundle().contains(&first.signer.certificate), "expired");
    }

    #[test]
    fn an_expired_authority_is_replaced_at_once() {
        let first = Keyring::advanced(None, &wanted(), |_| false, day(0)).expect("a keyring");
        let later = advanced(&first, false, day(200));
        assert_ne!(later.signer, first.signer);
        assert_eq!(later.leaf_validity().1, day(208));
    }
}
