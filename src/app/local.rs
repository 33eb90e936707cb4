//! `listless local`: serves one context of a kubeconfig on this machine to its own user.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::time::{Duration, MissedTickBehavior};
use uuid::Uuid;

use super::{
    Announce, Announcement, Foundation, Running,
    kubeconfig::{Kubeconfig, KubeconfigError, running_server, token_of},
    options::{LocalOptions, UsageError},
    reachable,
    serve::{
        self, AdminListeners, CLUSTER_DOMAIN, Configuration, Ended, Follower, Shared, Started,
    },
    wire::MeteredDial,
};
use crate::{
    error::Chain,
    proxy::{
        forward::Clients,
        identify::{Identify, KnownTokens},
        listen::{Bound, ListenerTls},
        sessions::Past,
    },
    tls,
    upstream::{
        self,
        dial::Tcp,
        identity::{self, Access, Followed, Source, Turn},
    },
};

/// The period at which the kubeconfig is checked for changes.
const LOOK_PERIOD: Duration = Duration::from_secs(2);

/// Serves until a stop signal, or until the kubeconfig selects another context and --follow-context
/// is set.
pub fn local(options: &LocalOptions, announce: Announce) -> anyhow::Result<Ended> {
    serve::run(&options.serving, announce, async |shared| start(options, shared).await)
}

async fn start(options: &LocalOptions, shared: &Shared) -> anyhow::Result<Started> {
    let written = kubeconfig_to_write(options)?;
    // The listener of this process could answer there too, so this comes before it.
    let used_server = running_server(&written);
    let serving = &options.serving;
    let mut configuration = Configuration::load(serving.config.as_deref(), &shared.metrics)?;
    let listening = shared.ready.register("listener");
    let bound = Bound::bind("--listen", options.listen).await?;
    let listeners = AdminListeners::bind(serving)?;
    let upstream = &options.upstream;
    let (kubeconfig, context) = (upstream.kubeconfig.as_deref(), upstream.context.as_deref());
    let followed = Followed::begin(kubeconfig, context)?;
    let access = identity::from_kubeconfig(kubeconfig, context).await?;

    let server = format!("https://{}", reachable(bound.address()));
    if let Some(other) = used_server.filter(|used| *used != server) {
        return Err(KubeconfigError::InUse { file: written, server: other }.into());
    }
    let token = token(options, &written, followed.context());
    let names = tls::Names::of_apiserver(CLUSTER_DOMAIN)
        .and(&bound.address().ip().to_string())
        .and(&access.endpoint().host());
    let authorities = serve::authorities(access.endpoint());
    let past = past(options);
    let certificate = serve::own_certificate(options.state.as_deref(), names, &shared.metrics)?;
    let authority_pem = certificate.authority_pem();
    let announcement = written_kubeconfig(&access, &server, authority_pem, &token, written)?;
    let upstream = serve::authority_of(access.endpoint());
    let dial = MeteredDial::new(Tcp::default(), shared.metrics.clone());
    let (plain, own) = access.clients(Arc::new(dial), upstream::Settings::default());
    let running = Running::start(Foundation {
        listeners: vec![bound],
        tls: ListenerTls { tls: Some(certificate.server()), authorities },
        identify: Identify::Own(KnownTokens::one(&token)),
        past,
        clients: Clients::new(plain, own),
        config: configuration.current.clone(),
        metrics: shared.metrics.clone(),
        upstream,
    });
    shared.beat();
    listeners.serve(shared, &running)?;
    configuration.follow(shared);
    shared.admin.spawn(certificate.follow(shared.drain.watch()));
    shared.admin.spawn(follow(followed, shared.follower(options.follow_context)));
    drop(listening);
    Ok(Started {
        running,
        announcement: Some(announcement),
        _configuration: configuration,
        leave_time: Duration::ZERO,
    })
}

fn kubeconfig_to_write(options: &LocalOptions) -> Result<PathBuf, UsageError> {
    options.kubeconfig_to_write().ok_or_else(|| {
        UsageError("there is no home directory; pass a file with --write-kubeconfig".to_owned())
    })
}

fn written_kubeconfig(
    access: &Access,
    server: &str,
    authority_pem: &str,
    token: &str,
    file: PathBuf,
) -> anyhow::Result<Announcement> {
    let (context, namespace) = match access.source() {
        Source::Kubeconfig { context, namespace, .. } => (context.as_str(), namespace.as_str()),
        Source::ServiceAccount { namespace, .. } => ("listless", namespace.as_str()),
        Source::Given { .. } => ("listless", ""),
    };
    Kubeconfig { server, authority_pem, token, context, namespace }.write(&file)?;
    Ok(Announcement {
        server: server.to_owned(),
        source: access.source().to_string(),
        kubeconfig: Some(file),
        asks_apiserver: true,
    })
}

/// Follows the kubeconfig. On a change, logs it or ends serving.
async fn follow(mut followed: Followed, mut follower: Follower) {
    let mut ticks = tokio::time::interval(LOOK_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = follower.draining.begun() => return,
            _ = ticks.tick() => {}
        }
        let served = followed.context().to_owned();
        let now = match followed.look() {
            Ok(None) => continue,
            Ok(Some(Turn::Back)) => {
                tracing::info!(served, "the kubeconfig again selects the context that is served");
                continue;
            }
            Ok(Some(Turn::Changed)) => served.clone(),
            Ok(Some(Turn::Elsewhere(context))) => context,
            Err(error) => {
                let error = Chain(&error);
                tracing::warn!(%error, served, "the kubeconfig changed and cannot be used");
                continue;
            }
        };
        match follower.switched {
            Some(switched) => {
                tracing::info!(served, now, "the kubeconfig changed; serving its new context");
                return switched.cancel();
            }
            None => tracing::warn!(
                served,
                now,
                "the kubeconfig changed; still serving the earlier context; restart, or pass \
                 --follow-context to switch automatically"
            ),
        }
    }
}

/// Returns the versions that clients may have seen. Clients of a stored authority may be older than
/// this process.
fn past(options: &LocalOptions) -> Past {
    let is_kept = options.state.as_deref().is_some_and(tls::Authority::is_kept);
    if is_kept { Past::Unknown } else { Past::None }
}

/// Returns the clients' token: the written one if the authority is stored too, else a new one.
fn token(options: &LocalOptions, written: &Path, context: &str) -> String {
    let kept = options.state.as_ref().and_then(|_| token_of(written, context));
    kept.unwrap_or_else(new_token)
}

/// Returns a random secret. The prefix stops YAML from reading it as a number.
fn new_token() -> String {
    format!("listless-{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}
