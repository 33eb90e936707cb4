//! Listless's own certificates, and the TLS configurations of both sides.
//!
//! Invariant: one crypto provider (aws-lc-rs), TLS 1.2 and 1.3, keys on disk readable by their
//! owner only. `upstream::identity` handles the kubeconfig's settings for the apiserver's
//! certificate.

mod clients;
mod files;
mod self_signed;
mod server;
mod trust;
mod validity;

use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints, PKCS_ECDSA_P256_SHA256, PublicKeyData as _, SanType,
};
use rustls::{
    ClientConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject},
};

pub use clients::ClientAuthorities;
pub use files::Files;
pub use self_signed::accept_trusted;
pub use server::Server;
pub use trust::{certificates, expires, is_trusted, roots};

const CA_FILE: &str = "ca.crt";
const CA_KEY_FILE: &str = "ca.key";
/// The lifetime of an authority.
pub const CA_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// The lifetime of a server certificate.
pub const LEAF_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// The allowance for clock differences: certificates are valid from this long before their
/// creation.
const BACKDATING: Duration = Duration::from_secs(3600);

/// The reason why certificates or TLS configurations could not be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file does not have the expected PEM.
    #[error("{} does not hold usable PEM", .path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The stored authority cannot issue certificates that clients accept.
    #[error("{} and {} {reason}; remove both", .certificate.display(), .key.display())]
    Authority {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// The reason.
        reason: &'static str,
    },
    /// A bundle has no usable certificate.
    #[error("no usable certificate in the bundle")]
    NoCertificate,
    /// A file has no usable key.
    #[error("no usable key")]
    NoKey,
    /// A certificate could not be issued.
    #[error("cannot issue a certificate")]
    Issue(#[from] rcgen::Error),
    /// A configuration could not be created.
    #[error("cannot create a TLS configuration")]
    Config(#[from] rustls::Error),
}

/// A certificate authority of Listless's own.
pub struct Authority {
    certificate: CertificateDer<'static>,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate chain and its key, for one server.
pub struct Leaf {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// The names that a server certificate is valid for.
#[derive(Clone, Debug)]
pub struct Names(Vec<Name>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    Dns(String),
    Ip(IpAddr),
}

// === impl Error ===

impl Error {
    /// Reports whether a stored authority can be read but not used.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Pem { .. } | Self::Authority { .. } => true,
            Self::File { source, .. } => source.kind() == io::ErrorKind::InvalidData,
            _ => false,
        }
    }
}

// === impl Authority ===

impl Authority {
    /// Returns a new authority, valid from `now`.
    pub fn generate(now: SystemTime) -> Result<Self, Error> {
        Self::of(authority_params(now))
    }

    /// Returns a new authority that is restricted to servers of these names and on loopback. A
    /// thief of its key can impersonate no other server.
    pub fn generate_for(names: &Names, now: SystemTime) -> Result<Self, Error> {
        let mut params = authority_params(now);
        params.name_constraints = Some(names.constraints());
        Self::of(params)
    }

    fn of(params: CertificateParams) -> Result<Self, Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.self_signed(&key)?;
        let pem = certificate.pem();
        let certificate = certificate.der().clone();
        Ok(Self { certificate, pem, issuer: Issuer::new(params, key) })
    }

    /// Loads the authority of `directory`, or creates one for `names` there.
    pub fn load_or_create(directory: &Path, names: &Names, now: SystemTime) -> Result<Self, Error> {
        Self::kept(directory, now, || Self::generate_for(names, now))
    }

    /// Loads the authority of `directory`, or creates one there.
    pub fn kept(
        directory: &Path,
        now: SystemTime,
        make: impl FnOnce() -> Result<Self, Error>,
    ) -> Result<Self, Error> {
        let (certificate, key) = (directory.join(CA_FILE), directory.join(CA_KEY_FILE));
        if certificate.exists() && key.exists() {
            return Self::load(&certificate, &key, now);
        }
        let authority = make()?;
        make_private(directory)?;
        let key_pem = authority.issuer.key().serialize_pem();
        write_private(&key, key_pem.as_bytes())?;
        write_private(&certificate, authority.pem.as_bytes())?;
        Ok(authority)
    }

    /// Reports whether a directory has any part of an authority.
    pub fn is_kept(directory: &Path) -> bool {
        [CA_FILE, CA_KEY_FILE].into_iter().any(|file| directory.join(file).exists())
    }

    /// Removes an authority that cannot be used from a directory.
    pub fn discard(directory: &Path) -> Result<(), Error> {
        for path in [directory.join(CA_KEY_FILE), directory.join(CA_FILE)] {
            match std::fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::File { path, source });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn load(certificate: &Path, key: &Path, now: SystemTime) -> Result<Self, Error> {
        let unusable = |path: &Path, source: Box<dyn std::error::Error + Send + Sync>| Error::Pem {
            path: path.to_owned(),
            source,
        };
        let pem = read(certificate)?;
        let der = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| unusable(certificate, error.into()))?;
        let pair = KeyPair::from_pem(&read(key)?).map_err(|error| unusable(key, error.into()))?;
        let refused = |reason| {
            let (certificate, key) = (certificate.to_owned(), key.to_owned());
            Err(Error::Authority { certificate, key, reason })
        };
        // Two processes may have created it at once.
        if memchr::memmem::find(&der, pair.der_bytes()).is_none() {
            return refused("do not belong together");
        }
        if !validity::validity(&der).is_some_and(|(from, until)| from <= now && now < until) {
            return refused("are not valid now");
        }
        // Issuing needs only the authority's name and key, and the name is always the same.
        let issuer = Issuer::new(authority_params(now), pair);
        Ok(Self { certificate: der, pem, issuer })
    }

    /// Returns the authority's certificate for clients.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Issues a server certificate, valid for a year from `now`.
    pub fn issue(&self, names: &Names, now: SystemTime) -> Result<Leaf, Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = leaf_params(names, now)?.signed_by(&key, &self.issuer)?;
        Ok(Leaf {
            chain: vec![certificate.der().clone(), self.certificate.clone()],
            key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        })
    }
}

fn authority_params(now: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name("Listless proxy CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = (now - BACKDATING).into();
    params.not_after = (now + CA_LIFETIME).into();
    params
}

fn leaf_params(names: &Names, now: SystemTime) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name("listless");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params.not_before = (now - BACKDATING).into();
    params.not_after = (now + LEAF_LIFETIME).into();
    for name in &names.0 {
        params.subject_alt_names.push(match name {
            Name::Dns(name) => SanType::DnsName(name.as_str().try_into()?),
            Name::Ip(address) => SanType::IpAddress(*address),
        });
    }
    Ok(params)
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })
}

/// Creates a directory of mode 0700, unless it exists.
fn make_private(directory: &Path) -> Result<(), Error> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|source| Error::File { path: directory.to_owned(), source })
}

/// Writes a file of mode 0600 atomically.
fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    use std::{io::Write, os::unix::fs::OpenOptionsExt};
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    let unfinished = PathBuf::from(unfinished);
    let write = || {
        let _ = std::fs::remove_file(&unfinished);
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)
    };
    write().map_err(|source| Error::File { path: path.to_owned(), source })
}

// === impl Names ===

impl Names {
    /// Returns the names of an apiserver on loopback or inside a cluster.
    ///
    /// Loopback addresses are IP names, because clients refuse them as DNS names.
    pub fn of_apiserver(cluster_domain: &str) -> Self {
        let mut names = Self(Vec::new())
            .and("127.0.0.1")
            .and("::1")
            .and("localhost")
            .and("kubernetes")
            .and("kubernetes.default")
            .and("kubernetes.default.svc");
        if !cluster_domain.is_empty() {
            names = names.and(&format!("kubernetes.default.svc.{cluster_domain}"));
        }
        names
    }

    /// Adds a name or address.
    #[must_use]
    pub fn and(mut self, name: &str) -> Self {
        let name = match name.parse() {
            Ok(address) => Name::Ip(address),
            Err(_) => Name::Dns(name.to_owned()),
        };
        if !self.0.contains(&name) {
            self.0.push(name);
        }
        self
    }

    /// Returns the name constraints of an authority for servers of these names.
    fn constraints(&self) -> NameConstraints {
        let own = self.0.iter().map(|name| match name {
            Name::Dns(name) => GeneralSubtree::DnsName(name.clone()),
            Name::Ip(address) => {
                let bits = if address.is_ipv4() { 32 } else { 128 };
                GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(*address, bits))
            }
        });
        let loopback = GeneralSubtree::IpAddress(CidrSubnet::from_v4_prefix([127, 0, 0, 0], 8));
        NameConstraints {
            permitted_subtrees: own.chain([loopback]).collect(),
            excluded_subtrees: Vec::new(),
        }
    }
}

// === impl Leaf ===

impl Leaf {
    /// Loads a chain and key from PEM files, such as a mounted `kubernetes.io/tls` secret.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, Error> {
        let unusable = |path: &Path, source: rustls::pki_types::pem::Error| Error::Pem {
            path: path.to_owned(),
            source: source.into(),
        };
        let chain = CertificateDer::pem_slice_iter(read(certificate)?.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| unusable(certificate, error))?;
        let key = PrivateKeyDer::from_pem_slice(read(key)?.as_bytes())
            .map_err(|error| unusable(key, error))?;
        Ok(Self { chain, key })
    }

    /// Returns the first and the last moment at which the certificate of the chain that expires first
    /// is valid, if readable.
    pub fn validity(&self) -> Option<(SystemTime, SystemTime)> {
        self.chain.iter().filter_map(validity::validity).min_by_key(|(_, until)| *until)
    }

    /// Parses a chain and key that are not in files.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, Error> {
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| Error::NoCertificate)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| Error::NoKey)?;
        Ok(Self { chain, key })
    }

    /// Reports whether a client with this bundle trusts the certificate for a name.
    pub fn is_trusted(&self, bundle: &str, name: &str, now: SystemTime) -> bool {
        is_trusted(&self.chain, bundle, name, now)
    }
}

/// Returns the one crypto provider.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Returns a client configuration that trusts the certificates in `pem` and has none of its own.
pub fn client_config(pem: &[u8]) -> Result<ClientConfig, Error> {
    let builder =
        ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots(pem)?).with_no_client_auth())
}

#[cfg(test)]
mod tests;
