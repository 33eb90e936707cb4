//! `listless sidecar`: beside one workload, whose service account it reads as.
//!
//! The workload finds the service account's directory as it would without Listless, but that its
//! `ca.crt` trusts an authority of this pod. Whoever presents a token that was mirrored is the service
//! account; all others are forwarded as they came.

use std::{path::Path, sync::Arc, time::SystemTime};

use anyhow::Context;
use tokio::time::{Duration, MissedTickBehavior};

use super::{
    Foundation, Running,
    serve::{self, AdminListeners, CLUSTER_DOMAIN, Configuration, Shared, Started},
    wire::MeteredDial,
};
use crate::{
    cli::{Announcement, SidecarOptions, UsageError},
    error::Chain,
    lifecycle::Draining,
    metrics::{Certificate, Metrics, Outcome},
    mirror::{Look, Mirror},
    proxy::{
        forward::Clients,
        identify::{Identify, KnownTokens},
        listen::{Bound, Doors},
    },
    tls,
    upstream::{self, dial::Tcp, identity},
};

/// How often the service account's files are looked at; a kubelet takes a minute to bring new ones.
const LOOK_PERIOD: Duration = Duration::from_secs(5);

/// Serves until a signal asks to stop.
pub fn sidecar(options: &SidecarOptions) -> anyhow::Result<()> {
    serve::run(&options.serving, async |shared| start(options, shared).await)
}

async fn start(options: &SidecarOptions, shared: &Shared) -> anyhow::Result<Started> {
    let (host, port) = identity::cluster_address().ok_or_else(|| {
        UsageError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: a sidecar runs in a \
             pod; use listless local on your machine"
                .to_owned(),
        )
    })?;
    let serving = &options.serving;
    let mut configuration = Configuration::load(serving.config.as_deref(), &shared.metrics)?;
    let listening = shared.ready.register("listener");
    let bound = Bound::bind("--listen", options.listen).await?;
    let listeners = AdminListeners::bind(serving)?;
    let access = identity::in_cluster(&options.service_account, &host, port).await?;

    let authority = authority(&options.state)?;
    let names = tls::Names::of_apiserver(CLUSTER_DOMAIN).and(&host);
    let address = serve::reachable(bound.address());
    let names = names.and(&address.ip().to_string());
    let now = SystemTime::now();
    let certificate = tls::Server::new(authority.issue(&names, now)?)?;
    shared.metrics.certificate_expires(Certificate::Authority, now + tls::CA_LIFETIME);
    shared.metrics.certificate_expires(Certificate::Serving, now + tls::LEAF_LIFETIME);

    let (source, target) = (options.service_account.clone(), options.mirror.clone());
    let mut follower = Follower {
        mirror: Mirror::new(source, target, authority.pem().to_owned()),
        known: KnownTokens::none(),
        metrics: shared.metrics.clone(),
    };
    follower.look(now).context("the service account cannot be mirrored")?;
    let identify = Identify::Own(follower.known.clone());
    let authorities = serve::authorities(access.endpoint()).and_cluster(CLUSTER_DOMAIN);
    let source = access.source().to_string();
    let upstream = serve::authority_of(access.endpoint());
    let dial = MeteredDial::new(Tcp, shared.metrics.clone());
    let (plain, own) = access.clients(Arc::new(dial), upstream::Settings::default());
    let running = Running::start(Foundation {
        listeners: vec![bound],
        doors: Doors { tls: Some(certificate), authorities },
        identify,
        clients: Clients::new(plain, own),
        config: configuration.current.clone(),
        metrics: shared.metrics.clone(),
        upstream,
    });
    tokio::spawn(shared.heartbeat.clone().run());
    listeners.serve(shared, &running)?;
    configuration.follow(shared);
    shared.admin.spawn(follower.follow(shared.drain.watch()));
    drop(listening);
    let server = format!("https://{address}");
    let announcement = Announcement { server, source, kubeconfig: None };
    Ok(Started { running, announcement, _configuration: configuration })
}

/// The pod's own authority, kept where containers of the pod that start again find it.
///
/// Without a place to keep it there is one for this process: the workload trusts it once it reads
/// its bundle again, which is better than no Listless.
fn authority(state: &Path) -> anyhow::Result<tls::Authority> {
    let now = SystemTime::now();
    match tls::Authority::load_or_create(state, now) {
        Ok(authority) => Ok(authority),
        Err(error) => {
            let error = Chain(&error);
            tracing::error!(%error, "the authority cannot be kept; it will be another one after a restart");
            Ok(tls::Authority::generate(now)?)
        }
    }
}

/// Keeps the copy and what is known of its tokens.
struct Follower {
    mirror: Mirror,
    known: KnownTokens,
    metrics: Metrics,
}

// === impl Follower ===

impl Follower {
    fn look(&mut self, now: SystemTime) -> Result<(), crate::mirror::Error> {
        self.known.expire(now);
        let look = self.mirror.look(now);
        match &look {
            Ok(Look::Same) => {}
            Ok(Look::Written) => {
                if let Some(token) = self.mirror.token() {
                    self.known.learn(token, now);
                }
                self.metrics.service_account_mirrored(Outcome::Success);
            }
            Err(_) => self.metrics.service_account_mirrored(Outcome::Failure),
        }
        look.map(drop)
    }

    async fn follow(mut self, mut draining: Draining) {
        let mut ticks = tokio::time::interval(LOOK_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = draining.begun() => return,
                _ = ticks.tick() => {
                    if let Err(error) = self.look(SystemTime::now()) {
                        let error = Chain(&error);
                        tracing::error!(%error, "the mirrored service account stays as it is");
                    }
                }
            }
        }
    }
}
