//! `listless gateway`: one proxy for many callers, each with a token of its own.
//!
//! Replicas are read with the identity of the pod's service account or of a kubeconfig's user. No
//! caller ever gets that identity.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::Context;

use super::{
    Announce, Announcement, Foundation, LEAVE_TIME, Running, kubeconfig,
    options::{GatewayOptions, KubeconfigOptions, UsageError},
    reachable,
    serve::{self, AdminListeners, CLUSTER_DOMAIN, Configuration, Shared, Started},
    wire::MeteredDial,
};
use crate::{
    lifecycle::survive_hangup,
    proxy::{
        forward::Clients,
        identify::{Identify, TokenHasher},
        listen::{Authorities, Bound, ListenerTls},
        sessions::Past,
    },
    tls,
    upstream::{
        self,
        dial::Tcp,
        identity::{self, Access},
    },
};

/// The source of the apiserver's address.
enum AddressSource {
    /// The pod's environment: host and port.
    Cluster(String, u16),
    /// A kubeconfig.
    Outside,
}

/// The source of the listener's certificate.
enum Certificate {
    /// The operator's files, reloaded when they change.
    Files(tls::Files),
    /// A private authority, created at each start.
    Own,
}

/// Serves until a stop signal.
pub fn gateway(options: &GatewayOptions, announce: Announce) -> anyhow::Result<()> {
    serve::run(&options.serving, announce, async |shared| start(options, shared).await).map(drop)
}

async fn start(options: &GatewayOptions, shared: &Shared) -> anyhow::Result<Started> {
    survive_hangup().context("cannot listen for signals")?;
    let place = AddressSource::of(options)?;
    let certificate = Certificate::of(options, &place)?;
    let serving = &options.serving;
    let mut configuration = Configuration::load(serving.config.as_deref(), &shared.metrics)?;
    let listening = shared.ready.register("listener");
    let bound = Bound::bind("--listen", options.listen).await?;
    let listeners = AdminListeners::bind(serving)?;
    let access = place.access(options).await?;

    let address = reachable(bound.address());
    let hosts = [address.ip().to_string(), access.endpoint().host()];
    let (tls, authority_pem) = certificate.serve(&hosts, shared)?;
    let authorities = place.authorities(&access);
    let server = format!("https://{address}");
    let source = access.source().to_string();
    if let (Some(file), Some(authority_pem)) = (&options.write_kubeconfig, &authority_pem) {
        write_kubeconfig(options, &server, authority_pem, file)?;
    }
    let kubeconfig = options.write_kubeconfig.clone();
    let announcement = Announcement { server, source, kubeconfig, asks_apiserver: true };
    let upstream = serve::authority_of(access.endpoint());
    let dial = MeteredDial::new(Tcp::default(), shared.metrics.clone());
    let access = access.metered(&shared.metrics);
    let (plain, own) = access.clients(Arc::new(dial), upstream::Settings::default());
    let running = Running::start(Foundation {
        listeners: vec![bound],
        tls: ListenerTls { tls: Some(tls), authorities },
        identify: Identify::Bearers(hasher()?),
        past: Past::None,
        clients: Clients::new(plain, own),
        config: configuration.current.clone(),
        metrics: shared.metrics.clone(),
        upstream,
    });
    shared.beat();
    listeners.serve(shared, &running)?;
    configuration.follow(shared);
    drop(listening);
    Ok(Started {
        running,
        announcement: Some(announcement),
        _configuration: configuration,
        leave_time: place.leave_time(),
    })
}

/// Returns a token hasher with a random key that lives as long as the process.
fn hasher() -> anyhow::Result<TokenHasher> {
    let mut key = [0; 32];
    aws_lc_rs::rand::fill(&mut key).map_err(|_| {
        anyhow::anyhow!(
            "cannot read random numbers for \
                                                                 the token key"
        )
    })?;
    Ok(TokenHasher::new(&key))
}

/// Writes a kubeconfig for the gateway. The user entry is copied unchanged: every caller sends its
/// own token.
fn write_kubeconfig(
    options: &GatewayOptions,
    server: &str,
    authority_pem: &str,
    file: &Path,
) -> anyhow::Result<()> {
    let (path, context) = (&options.upstream.kubeconfig, &options.upstream.context);
    let redirected =
        identity::redirected(path.as_deref(), context.as_deref(), server, authority_pem)?;
    if identity::has_only_certificate(&redirected) {
        tracing::warn!(
            "the context's user has only a client certificate, which a gateway cannot forward: its \
             requests would have no credentials; use listless local for it"
        );
    }
    kubeconfig::write_kubeconfig(redirected, file)?;
    Ok(())
}

// === impl AddressSource ===

impl AddressSource {
    fn of(options: &GatewayOptions) -> Result<Self, UsageError> {
        let KubeconfigOptions { kubeconfig, context } = &options.upstream;
        let address = identity::cluster_unless_named(kubeconfig.as_deref(), context.as_deref());
        let Some((host, port)) = address else { return Ok(Self::Outside) };
        if options.write_kubeconfig.is_some() {
            return Err(UsageError(
                "--write-kubeconfig: there is no kubeconfig to copy in a cluster; pass --kubeconfig"
                    .to_owned(),
            ));
        }
        Ok(Self::Cluster(host, port))
    }

    async fn access(&self, options: &GatewayOptions) -> Result<Access, identity::Error> {
        match self {
            Self::Cluster(host, port) => {
                identity::in_cluster(&options.service_account, host, *port).await
            }
            Self::Outside => {
                let KubeconfigOptions { kubeconfig, context } = &options.upstream;
                identity::from_kubeconfig(kubeconfig.as_deref(), context.as_deref()).await
            }
        }
    }

    /// Returns the leave time. Outside a cluster no Service leads clients here, so it is zero.
    fn leave_time(&self) -> Duration {
        match self {
            Self::Cluster(..) => LEAVE_TIME,
            Self::Outside => Duration::ZERO,
        }
    }

    /// Returns the hosts that CONNECT may open.
    fn authorities(&self, access: &Access) -> Authorities {
        let known = serve::authorities(access.endpoint());
        match self {
            Self::Cluster(..) => known.and_cluster(CLUSTER_DOMAIN),
            Self::Outside => known,
        }
    }
}

// === impl Certificate ===

impl Certificate {
    fn of(options: &GatewayOptions, place: &AddressSource) -> anyhow::Result<Self> {
        match (&options.tls_cert, &options.tls_key, place) {
            (Some(certificate), Some(key), _) => {
                let files = tls::Files::load(certificate.clone(), key.clone());
                Ok(Self::Files(files.context("--tls-cert and --tls-key")?))
            }
            (.., AddressSource::Outside) => Ok(Self::Own),
            (.., AddressSource::Cluster(..)) => Err(UsageError(
                "--tls-cert and --tls-key are required in a cluster: clients cannot trust a \
                 private authority that changes at each start; set both"
                    .to_owned(),
            )
            .into()),
        }
    }

    /// Returns the listener's TLS settings, and the authority that clients must trust if it is
    /// private.
    fn serve(
        self,
        hosts: &[String],
        shared: &Shared,
    ) -> anyhow::Result<(tls::Server, Option<String>)> {
        match self {
            Self::Files(files) => {
                let server = files.server();
                let (draining, metrics) = (shared.drain.watch(), shared.metrics.clone());
                shared.admin.spawn(files.follow(draining, metrics));
                Ok((server, None))
            }
            Self::Own => {
                let names = tls::Names::of_apiserver(CLUSTER_DOMAIN);
                let names = hosts.iter().fold(names, |names, host| names.and(host));
                let certificate = serve::own_certificate(None, names, &shared.metrics)?;
                let (server, pem) = (certificate.server(), certificate.authority_pem().to_owned());
                shared.admin.spawn(certificate.follow(shared.drain.watch()));
                Ok((server, Some(pem)))
            }
        }
    }
}
