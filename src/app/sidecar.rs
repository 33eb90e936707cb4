//! `listless sidecar`: serves one workload with the identity of the pod's service account.
//!
//! The workload reads a copy of the service account's directory at the usual path. Its `ca.crt`
//! trusts an authority of this pod. A caller with a mirrored token is the service account. All
//! other requests are forwarded unchanged. A worker serves; its supervisor holds the sockets and
//! restarts it.

use std::{ffi::OsString, io, path::Path, process::ExitCode, sync::Arc, time::SystemTime};

use anyhow::Context;
use tokio::time::Duration;

use super::{
    Announce, Announcement, Foundation, Running,
    certificate::IssuedCertificate,
    options::{SidecarOptions, UsageError},
    reachable,
    serve::{self, AdminListeners, CLUSTER_DOMAIN, Configuration, Shared, Started},
    wire::MeteredDial,
};
use crate::{
    error::Chain,
    lifecycle::{Draining, survive_hangup},
    metrics::{Metrics, Outcome},
    mirror::{Look, Mirror},
    proxy::{
        forward::Clients,
        identify::{Identify, KnownTokens},
        listen::{Bound, ListenerTls},
        sessions::Past,
    },
    supervisor::{self, Addresses, Role, Sockets},
    tls,
    upstream::{self, dial::Tcp, identity},
};

/// The period at which the service account's files are checked. A kubelet takes about a minute to
/// update them.
const LOOK_PERIOD: Duration = Duration::from_secs(5);

/// Serves until a stop signal.
///
/// The supervisor starts its workers with the same `arguments`.
pub fn sidecar(
    options: &SidecarOptions,
    arguments: &[OsString],
    announce: Announce,
) -> anyhow::Result<ExitCode> {
    let Some(role) = options.worker else { return supervise(options, arguments) };
    supervisor::end_with_supervisor().context("cannot watch for the supervisor's end")?;
    let sockets = Sockets::inherited().context("cannot take over the supervisor's sockets")?;
    let sockets = sockets.ok_or_else(|| UsageError("a worker needs a supervisor".to_owned()))?;
    serve::run(&options.serving, announce, async |shared| {
        start(options, role, sockets, shared).await
    })?;
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

/// Returns the apiserver's host and port from the pod's environment.
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
    survive_hangup().context("cannot listen for signals")?;
    let (host, port) = apiserver()?;
    shared.metrics.worker(role == Role::Safe, options.restarts.all());
    // The configuration file may be the cause of the crashes.
    let file = options.serving.config.as_deref().filter(|_| role != Role::Safe);
    let mut configuration = Configuration::load(file, &shared.metrics)?;
    let listening = shared.ready.register("listener");
    let listeners = {
        let names = options.serving.admin_names.clone();
        AdminListeners::inherit(sockets.admin, sockets.health, names)?
    };
    let data: io::Result<Vec<_>> = sockets.data.into_iter().map(Bound::inherit).collect();
    let data = data.context("cannot take over the supervisor's sockets")?;
    let access = identity::in_cluster(&options.service_account, &host, port).await?;

    let now = SystemTime::now();
    let mut names = tls::Names::of_apiserver(CLUSTER_DOMAIN).and(&host);
    for bound in &data {
        names = names.and(&reachable(bound.address()).ip().to_string());
    }
    let past = past(options, role);
    let authority = authority(&options.state, &names)?;
    let certificate = IssuedCertificate::new(authority, names, shared.metrics.clone(), now)?;

    let (source, target) = (options.service_account.clone(), options.mirror.clone());
    let others = options.also_mirror.iter().map(|(source, target)| {
        Mirror::new(source.clone(), target.clone(), certificate.authority_pem().to_owned())
    });
    let mut follower = Follower {
        others: others.collect(),
        mirror: Mirror::new(source, target, certificate.authority_pem().to_owned()),
        known: KnownTokens::none(),
        metrics: shared.metrics.clone(),
    };
    follower.look(now).context("cannot mirror the service account")?;
    let identify = match role {
        Role::Safe => Identify::Nobody,
        Role::First | Role::Again => Identify::Own(follower.known.clone()),
    };
    let authorities = serve::authorities(access.endpoint()).and_cluster(CLUSTER_DOMAIN);
    let announcement = announcement(role, &data, access.source().to_string());
    let upstream = serve::authority_of(access.endpoint());
    let dial = MeteredDial::new(Tcp::default(), shared.metrics.clone());
    let access = access.metered(&shared.metrics);
    let (plain, own) = access.clients(Arc::new(dial), upstream::Settings::default());
    let running = Running::start(Foundation {
        listeners: data,
        tls: ListenerTls { tls: Some(certificate.server()), authorities },
        identify,
        past,
        clients: Clients::new(plain, own),
        config: configuration.current.clone(),
        metrics: shared.metrics.clone(),
        upstream,
    });
    shared.beat();
    listeners.serve(shared, &running)?;
    configuration.follow(shared);
    shared.admin.spawn(follower.follow(shared.drain.watch()));
    shared.admin.spawn(certificate.follow(shared.drain.watch()));
    drop(listening);
    Ok(Started { running, announcement, _configuration: configuration, leave_time: Duration::ZERO })
}

/// Returns the versions that the workload may have seen: none only for the pod's first worker.
///
/// A restarted container has a new supervisor, whose first worker is not the pod's first. The copy
/// and the authority are written before the first response and stay as long as the pod. If either
/// is absent, no client was answered yet.
fn past(options: &SidecarOptions, role: Role) -> Past {
    let is_pristine = !Mirror::is_in(&options.mirror) && !tls::Authority::is_kept(&options.state);
    if role == Role::First && is_pristine { Past::None } else { Past::Unknown }
}

/// Returns the announcement of the first worker. The supervisor logs the later ones.
fn announcement(role: Role, data: &[Bound], source: String) -> Option<Announcement> {
    let first = data.first().filter(|_| role == Role::First)?;
    let server = format!("https://{}", reachable(first.address()));
    // Pods that start must not add to the load: their workloads ask soon enough.
    Some(Announcement { server, source, kubeconfig: None, asks_apiserver: false })
}

/// Returns the pod's authority, stored where restarted containers of the pod find it.
///
/// One that is damaged is replaced. If none can be stored, the process uses an authority of its own. The
/// workload trusts another authority after it re-reads its bundle.
fn authority(state: &Path, names: &tls::Names) -> anyhow::Result<tls::Authority> {
    let now = SystemTime::now();
    let kept = || tls::Authority::load_or_create(state, names, now);
    let kept = kept().or_else(|error| {
        if !error.is_damage() {
            return Err(error);
        }
        tracing::error!(error = %Chain(&error), "the stored authority is unusable; creating another");
        tls::Authority::discard(state).and_then(|()| kept())
    });
    match kept {
        Ok(authority) => Ok(authority),
        Err(error) => {
            let error = Chain(&error);
            tracing::error!(%error, "cannot store the authority; a restart will create a new one");
            Ok(tls::Authority::generate_for(names, now)?)
        }
    }
}

/// Maintains the mirror and the known tokens.
struct Follower {
    mirror: Mirror,
    /// Other service accounts. A caller with one of their tokens is not identified.
    others: Vec<Mirror>,
    known: KnownTokens,
    metrics: Metrics,
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

    /// The workload works without them, so a failure is only logged.
    fn look_at_others(&mut self, now: SystemTime) {
        for other in &mut self.others {
            match other.look(now) {
                Ok(Look::Same) => {}
                Ok(Look::Written) => self.metrics.service_account_mirrored(Outcome::Success),
                Err(error) => {
                    self.metrics.service_account_mirrored(Outcome::Failure);
                    let error = Chain(&error);
                    tracing::error!(%error, "cannot update a further mirrored service account; its \
                                             copy is unchanged");
                }
            }
        }
    }

    async fn follow(mut self, draining: Draining) {
        let look = || {
            if let Err(error) = self.look(SystemTime::now()) {
                let error = Chain(&error);
                tracing::error!(%error, "cannot update the mirrored service account; its copy is \
                                         unchanged");
            }
        };
        draining.act_every(LOOK_PERIOD, look).await;
    }
}
