//! The address of a server and its trusted authorities.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// The address of an HTTPS server and the certificate authorities that vouch for it.
#[derive(Clone, Debug)]
pub struct Server {
    uri: Uri,
    authorities_pem: Vec<u8>,
    roots: Arc<RootCertStore>,
}

// === impl Server ===

impl Server {
    /// Takes an `https://host:port[/path]` address and PEM certificates.
    pub fn new(address: &str, authorities_pem: &[u8]) -> Result<Self> {
        let uri: Uri = address.trim_end_matches('/').parse()?;
        if uri.scheme_str() != Some("https") || uri.port().is_none() {
            bail!("not an https address with a port: {address}");
        }
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authorities_pem) {
            roots.add(certificate?)?;
        }
        Ok(Self { uri, authorities_pem: authorities_pem.to_vec(), roots: Arc::new(roots) })
    }

    /// Reads server and authority of the first cluster of a kubeconfig, and its user's token.
    pub fn from_kubeconfig(text: &str) -> Result<(Self, Option<String>)> {
        let config: serde_json::Value = serde_saphyr::from_str(text)?;
        let cluster = &config["clusters"][0]["cluster"];
        let address = cluster["server"].as_str().context("no server in the kubeconfig")?;
        let authorities = cluster["certificate-authority-data"]
            .as_str()
            .context("no certificate-authority-data in the kubeconfig")?;
        let token = config["users"][0]["user"]["token"].as_str().map(str::to_owned);
        Ok((Self::new(address, &STANDARD.decode(authorities)?)?, token))
    }

    /// Writes the kubeconfig of a caller with a token; JSON, which is YAML too.
    pub fn kubeconfig(&self, token: &str) -> String {
        let cluster = serde_json::json!({
            "server": self.uri.to_string().trim_end_matches('/'),
            "certificate-authority-data": STANDARD.encode(&self.authorities_pem),
        });
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "cluster",
            "clusters": [{"name": "cluster", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": "user"}}],
        });
        config.to_string()
    }

    /// The certificate authorities that vouch for it.
    pub fn authorities_pem(&self) -> &[u8] {
        &self.authorities_pem
    }

    /// Host and port.
    pub fn authority(&self) -> &str {
        self.uri.authority().map_or("", |authority| authority.as_str())
    }

    /// The host alone.
    pub fn host(&self) -> &str {
        self.uri.host().unwrap_or_default()
    }

    /// The path before every target, without a slash at its end.
    pub fn base_path(&self) -> &str {
        self.uri.path().trim_end_matches('/')
    }

    pub(super) fn tls(&self, alpn: &[u8]) -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider's own protocol versions fit it")
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.to_vec()];
        Arc::new(config)
    }
}
