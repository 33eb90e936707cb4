//! `listless sidecar`: beside one workload, whose service account it reads as.
//!
//! The workload finds the service account's directory as it would without Listless, but that its
//! `ca.crt` trusts an authority of this pod. Whoever presents a token that was mirrored is the service
//! account; all others are forwarded as they came. What serves is a worker; its supervisor has the
//! sockets and starts another one should it end.

use std::{ffi::OsString, io, path::Path, process::ExitCode, sync::Arc, time::SystemTime};

use anyhow::Context;
use tokio::time::{Duration, MissedTickBehavior};

use super::{
    Foundation, Running,
    serve::{self, AdminListeners, CLUSTER_DOMAIN, Configuration, Shared, Started},
    wire::MeteredDial,
};
use crate::{
    cli::{Announcement, SidecarOptions, UsageError, reachable},
    error::Chain,
    lifecycle::Draining,
    metrics::{Certificate, Metrics, Outcome},
    mirror::{Look, Mirror},
    proxy::{
        forward::Clients,
        identify::{Identify, KnownTokens},
        listen::{Bound, Doors},
        sessions::Past,
    },
    supervisor::{self, Addresses, Role, Sockets},
    tls,
    upstream::{self, dial::Tcp, identity},
};

/// How often the service account's files are looked at; a kubelet takes a minute to bring new ones.
const LOOK_PERIOD: Duration = Duration::from_secs(5);

/// The listener's certificate is made anew when so much of its life is left.
const RENEWED_BEFORE_END: Duration = Duration::from_secs(30 * 24 * 3600);

/// Serves until a signal asks to stop.
///
/// Its supervisor starts workers with the same `arguments`.
pub fn sidecar(options: &SidecarOptions, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let Some(role) = options.worker else { return supervise(options, arguments) };
    supervisor::end_with_supervisor().context("the supervisor's end cannot be followed")?;
    let sockets = Sockets::inherited().context("the supervisor's sockets cannot be taken over")?;
    let sockets = sockets.ok_or_else(|| UsageError("a worker needs a supervisor".to_owned()))?;
    serve::run(&options.serving, async |shared| start(options, role, sockets, shared).await)?;
    Ok(ExitCode::SUCCESS)
}

fn supervise(options: &SidecarOptions, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    apiserver()?;
    let serving = &options.serving;
    let (admin, health) = (serving.admin, serving.health);
    serve::warn_of_openness(serving);
    let sockets = Sockets::bind(&Addresses { data: &options.listen, admin, health })?;
    supervisor::run(&sockets, arguments)
}

/// Where the cluster says its apiserver is.
fn apiserver() -> Result<(String, u16), UsageError> {
    identity::cluster_address().ok_or_else(|| {
        UsageError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: a sidecar runs in a \
             pod; use listless local on your machine"
                .to_owned(),
        )
    })
}

async fn start(
    options: &SidecarOptions,
    role: Role,
    sockets: Sockets,
    shared: &Shared,
) -> anyhow::Result<Started> {
    let (host, port) = apiserver()?;
    shared.metrics.worker(role == Role::Safe, options.restarts.all());
    // What made workers crash may be what the file asks for.
    let file = options.serving.config.as_deref().filter(|_| role != Role::Safe);
    let mut configuration = Configuration::load(file, &shared.metrics)?;
    let listening = shared.ready.register("listener");
    let listeners = {
        let names = options.serving.admin_names.clone();
        AdminListeners::inherit(sockets.admin, sockets.health, names)?
    };
    let data: io::Result<Vec<_>> = sockets.data.into_iter().map(Bound::inherit).collect();
    let data = data.context("the supervisor's sockets cannot be taken over")?;
    let access = identity::in_cluster(&options.service_account, &host, port).await?;

    let now = SystemTime::now();
    let mut names = tls::Names::of_apiserver(CLUSTER_DOMAIN).and(&host);
    for bound in &data {
        names = names.and(&reachable(bound.address()).ip().to_string());
    }
    let past = past(options, role);
    let authority = authority(&options.state, &names)?;
    let serving = Serving::new(authority, names, shared.metrics.clone(), now)?;

    let (source, target) = (options.service_account.clone(), options.mirror.clone());
    let others = options.also_mirror.iter().map(|(source, target)| {
        Mirror::new(source.clone(), target.clone(), serving.authority.pem().to_owned())
    });
    let mut follower = Follower {
        others: others.collect(),
        mirror: Mirror::new(source, target, serving.authority.pem().to_owned()),
        known: KnownTokens::none(),
        metrics: shared.metrics.clone(),
    };
    follower.look(now).context("the service account cannot be mirrored")?;
    let identify = match role {
        Role::Safe => Identify::Nobody,
        Role::First | Role::Again => Identify::Own(follower.known.clone()),
    };
    let authorities = serve::authorities(access.endpoint()).and_cluster(CLUSTER_DOMAIN);
    let announcement = announcement(role, &data, access.source().to_string());
    let upstream = serve::authority_of(access.endpoint());
    let dial = MeteredDial::new(Tcp, shared.metrics.clone());
    let access = access.metered(&shared.metrics);
    let (plain, own) = access.clients(Arc::new(dial), upstream::Settings::default());
    let running = Running::start(Foundation {
        listeners: data,
        doors: Doors { tls: Some(serving.server.clone()), authorities },
        identify,
        past,
        clients: Clients::new(plain, own),
        config: configuration.current.clone(),
        metrics: shared.metrics.clone(),
        upstream,
    });
    tokio::spawn(shared.heartbeat.clone().run());
    listeners.serve(shared, &running)?;
    configuration.follow(shared);
    shared.admin.spawn(follower.follow(serving, shared.drain.watch()));
    drop(listening);
    Ok(Started { running, announcement, _configuration: configuration, leave_time: Duration::ZERO })
}

/// What the workload may have seen: nothing only if this is the pod's first worker.
///
/// A container that starts again has a new supervisor, whose first worker is not the pod's. The copy
/// and the authority are both written before anybody is answered, and stay as long as the pod does, so
/// that none of them is there only where nobody was answered yet.
fn past(options: &SidecarOptions, role: Role) -> Past {
    let is_pristine = !Mirror::is_in(&options.mirror) && !tls::Authority::is_kept(&options.state);
    if role == Role::First && is_pristine { Past::None } else { Past::Unknown }
}

/// What is told once, by the first worker; the supervisor's log tells of the others.
fn announcement(role: Role, data: &[Bound], source: String) -> Option<Announcement> {
    let first = data.first().filter(|_| role == Role::First)?;
    let server = format!("https://{}", reachable(first.address()));
    // Pods that start must not add to the load: their workloads ask soon enough.
    Some(Announcement { server, source, kubeconfig: None, asks_apiserver: false })
}

/// The pod's own authority, kept where containers of the pod that start again find it.
///
/// Without a place to keep it there is one for this process: the workload trusts it once it reads
/// its bundle again, which is better than no Listless.
fn authority(state: &Path, names: &tls::Names) -> anyhow::Result<tls::Authority> {
    let now = SystemTime::now();
    match tls::Authority::load_or_create(state, names, now) {
        Ok(authority) => Ok(authority),
        Err(error) => {
            let error = Chain(&error);
            tracing::error!(%error, "the authority cannot be kept; it will be another one after a restart");
            Ok(tls::Authority::generate_for(names, now)?)
        }
    }
}

/// The certificate that the workload is shown, and who makes the next.
struct Serving {
    authority: tls::Authority,
    names: tls::Names,
    server: tls::Server,
    metrics: Metrics,
    expires: SystemTime,
}

/// Keeps the copy and what is known of its tokens.
struct Follower {
    mirror: Mirror,
    /// Other accounts: whoever presents one of their tokens is a stranger.
    others: Vec<Mirror>,
    known: KnownTokens,
    metrics: Metrics,
}

// === impl Serving ===

impl Serving {
    fn new(
        authority: tls::Authority,
        names: tls::Names,
        metrics: Metrics,
        now: SystemTime,
    ) -> Result<Self, tls::Error> {
        let server = tls::Server::new(authority.issue(&names, now)?)?;
        let expires = now + tls::LEAF_LIFETIME;
        metrics.certificate_expires(Certificate::Authority, now + tls::CA_LIFETIME);
        metrics.certificate_expires(Certificate::Serving, expires);
        Ok(Self { authority, names, server, metrics, expires })
    }

    /// Makes the next certificate before the present one ends.
    fn renew(&mut self, now: SystemTime) -> Result<(), tls::Error> {
        if self.expires.duration_since(now).is_ok_and(|left| left > RENEWED_BEFORE_END) {
            return Ok(());
        }
        self.server.replace(self.authority.issue(&self.names, now)?)?;
        self.expires = now + tls::LEAF_LIFETIME;
        self.metrics.certificate_expires(Certificate::Serving, self.expires);
        Ok(())
    }
}

// === impl Follower ===

impl Follower {
    fn look(&mut self, now: SystemTime) -> Result<(), crate::mirror::Error> {
        self.known.expire(now);
        self.look_at_others(now);
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

    /// Without one of them the workload can do what it is here for.
    fn look_at_others(&mut self, now: SystemTime) {
        for other in &mut self.others {
            match other.look(now) {
                Ok(Look::Same) => {}
                Ok(Look::Written) => self.metrics.service_account_mirrored(Outcome::Success),
                Err(error) => {
                    self.metrics.service_account_mirrored(Outcome::Failure);
                    let error = Chain(&error);
                    tracing::error!(%error, "another mirrored service account stays as it is");
                }
            }
        }
    }

    async fn follow(mut self, mut serving: Serving, mut draining: Draining) {
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
                    if let Err(error) = serving.renew(SystemTime::now()) {
                        let error = Chain(&error);
                        tracing::error!(%error, "the listener's certificate cannot be renewed");
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
