//! `listless local`: one context of a kubeconfig, served on this machine to its own user.

use std::{path::PathBuf, sync::Arc};

use uuid::Uuid;

use super::{
    Foundation, Running,
    serve::{self, AdminListeners, CLUSTER_DOMAIN, Configuration, Shared, Started},
    wire::MeteredDial,
};
use crate::{
    cli::{Announcement, Kubeconfig, LocalOptions, UsageError, reachable},
    proxy::{
        forward::Clients,
        identify::{Identify, KnownTokens},
        listen::{Bound, Doors},
        sessions::Past,
    },
    tls,
    upstream::{
        self,
        dial::Tcp,
        identity::{self, Access, Source},
    },
};

/// Serves until a signal asks to stop.
pub fn local(options: &LocalOptions) -> anyhow::Result<()> {
    serve::run(&options.serving, async |shared| start(options, shared).await)
}

async fn start(options: &LocalOptions, shared: &Shared) -> anyhow::Result<Started> {
    let written = kubeconfig_to_write(options)?;
    let serving = &options.serving;
    let mut configuration = Configuration::load(serving.config.as_deref(), &shared.metrics)?;
    let listening = shared.ready.register("listener");
    let bound = Bound::bind("--listen", options.listen).await?;
    let listeners = AdminListeners::bind(serving)?;
    let upstream = &options.upstream;
    let (kubeconfig, context) = (upstream.kubeconfig.as_deref(), upstream.context.as_deref());
    let access = identity::from_kubeconfig(kubeconfig, context).await?;

    let server = format!("https://{}", reachable(bound.address()));
    let token = token();
    let names = tls::Names::of_apiserver(CLUSTER_DOMAIN)
        .and(&bound.address().ip().to_string())
        .and(&access.endpoint().host());
    let authorities = serve::authorities(access.endpoint());
    let (authority, certificate) = serve::own_certificates(&names, &shared.metrics)?;
    let announcement = written_kubeconfig(&access, &server, &authority, &token, written)?;
    let upstream = serve::authority_of(access.endpoint());
    let dial = MeteredDial::new(Tcp, shared.metrics.clone());
    let (plain, own) = access.clients(Arc::new(dial), upstream::Settings::default());
    let running = Running::start(Foundation {
        listeners: vec![bound],
        doors: Doors { tls: Some(certificate), authorities },
        identify: Identify::Own(KnownTokens::one(&token)),
        past: Past::None,
        clients: Clients::new(plain, own),
        config: configuration.current.clone(),
        metrics: shared.metrics.clone(),
        upstream,
    });
    tokio::spawn(shared.heartbeat.clone().run());
    listeners.serve(shared, &running)?;
    configuration.follow(shared);
    drop(listening);
    Ok(Started { running, announcement: Some(announcement), _configuration: configuration })
}

fn kubeconfig_to_write(options: &LocalOptions) -> Result<PathBuf, UsageError> {
    options.kubeconfig_to_write().ok_or_else(|| {
        UsageError("there is no home directory; name a file with --write-kubeconfig".to_owned())
    })
}

fn written_kubeconfig(
    access: &Access,
    server: &str,
    authority: &tls::Authority,
    token: &str,
    file: PathBuf,
) -> anyhow::Result<Announcement> {
    let (context, namespace) = match access.source() {
        Source::Kubeconfig { context, namespace, .. } => (context.as_str(), namespace.as_str()),
        Source::ServiceAccount { namespace, .. } => ("listless", namespace.as_str()),
        Source::Given { .. } => ("listless", ""),
    };
    let authority_pem = authority.pem();
    Kubeconfig { server, authority_pem, token, context, namespace }.write(&file)?;
    Ok(Announcement {
        server: server.to_owned(),
        source: access.source().to_string(),
        kubeconfig: Some(file),
    })
}

/// A secret that no one can guess; the prefix keeps YAML from reading it as a number.
fn token() -> String {
    format!("listless-{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}
