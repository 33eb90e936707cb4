//! The server side of TLS, whose certificate may be replaced at run time.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::{ServerConfig, crypto::aws_lc_rs, server::danger::ClientCertVerifier};

use super::{ClientAuthorities, Error, Leaf, provider};

/// A listener's TLS configuration, replaceable at run time.
#[derive(Clone)]
pub struct Server {
    config: Arc<ArcSwap<ServerConfig>>,
    /// The authorities of required client certificates, if any.
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

// === impl Server ===

impl Server {
    /// Returns a server for `leaf` without client certificates.
    pub fn new(leaf: Leaf) -> Result<Self, Error> {
        Self::with(leaf, None)
    }

    /// Returns a server for `leaf` that requires client certificates of these authorities.
    pub fn for_clients_of(leaf: Leaf, authorities: &ClientAuthorities) -> Result<Self, Error> {
        Self::with(leaf, Some(authorities.verifier()))
    }

    fn with(leaf: Leaf, clients: Option<Arc<dyn ClientCertVerifier>>) -> Result<Self, Error> {
        let config = Arc::new(ArcSwap::from_pointee(server_config(leaf, clients.clone())?));
        Ok(Self { config, clients })
    }

    /// Serves another certificate on connections accepted from now on.
    pub fn replace(&self, leaf: Leaf) -> Result<(), Error> {
        self.config.store(Arc::new(server_config(leaf, self.clients.clone())?));
        Ok(())
    }

    /// Returns the configuration for a connection accepted now.
    pub fn current(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }
}

fn server_config(
    leaf: Leaf,
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<ServerConfig, Error> {
    let builder =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match clients {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(leaf.chain, leaf.key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Some clients open a connection per request: tickets save them the full handshake.
    config.ticketer = aws_lc_rs::Ticketer::new()?;
    Ok(config)
}
