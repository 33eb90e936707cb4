//! `listless demo`: Listless as `listless local` runs it, in front of the simulated apiserver.

use std::{any::Any, process::ExitCode, sync::Arc};

use http::Uri;
use tokio::sync::watch;

use super::{
    Foundation, Running,
    local::{certificates, clients, runtime, token},
};
use crate::{
    config::Config,
    demo::{self, Args, Cluster, Proxy, Server},
    metrics::Metrics,
    proxy::listen::Bound,
    upstream::{self, dial::Tcp, identity},
};

/// What must live for as long as the demo's proxy serves.
struct Guard {
    _running: Running,
    _config: watch::Sender<Arc<Config>>,
}

/// Runs the demo and tells how it went.
pub fn demo(args: Args) -> anyhow::Result<ExitCode> {
    let runtime = runtime("demo", None)?;
    runtime.block_on(demo::run(args, Box::new(|cluster| Box::pin(start(cluster)))))
}

async fn start(cluster: Cluster) -> anyhow::Result<Proxy> {
    let bound = Bound::bind("the demo", ([127, 0, 0, 1], 0).into()).await?;
    let address = bound.address();
    let apiserver: Uri = format!("https://{}", cluster.address).parse()?;
    let access = identity::from_token(apiserver, &cluster.ca_pem, cluster.token).await?;
    let (authority, serving) = certificates(address.ip())?;
    let (plain, own) = access.clients(Arc::new(Tcp), upstream::Settings::default());
    let (publisher, config) = watch::channel(Arc::new(Config::default()));
    let token = token();
    let running = Running::start(Foundation {
        listeners: vec![bound],
        tls: Some(serving),
        token: token.clone(),
        clients: clients(plain, own),
        config,
        metrics: Metrics::new(),
    });
    let server = Server { address, ca_pem: authority.pem().to_owned(), token };
    let guard: Box<dyn Any + Send> = Box::new(Guard { _running: running, _config: publisher });
    Ok(Proxy { server, guard })
}
