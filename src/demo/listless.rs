//! Listless in this process, in front of the simulated apiserver, like `listless local`.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::Arc,
    time::SystemTime,
};

use anyhow::Context;
use tokio::sync::watch;

use super::{Proxy, Server, StartProxy};
use crate::{
    admin::{self, Audience},
    app::{Foundation, ProcessHealth, Running},
    config::Config,
    lifecycle::{Drain, Heartbeat, Ready},
    metrics::Metrics,
    proxy::{
        forward::Clients,
        identify::{Identify, KnownTokens},
        listen::{Bound, ListenerTls},
        sessions::Past,
    },
    tls::{self, Authority, Names},
    upstream::{Settings, dial::Tcp, identity},
};

/// The token of pollers at Listless. It stands for the simulated cluster's user.
const LOCAL_TOKEN: &str = "demo-token-of-listless";

/// A Listless that drains when dropped, and its configuration.
struct Guard {
    running: Option<Running>,
    _config: watch::Sender<Arc<Config>>,
    _drain: Drain,
}

/// Starts Listless with the default configuration, and its page on a socket.
pub(super) fn in_process(admin: Option<TcpListener>) -> StartProxy {
    Box::new(|cluster| Box::pin(start(cluster, admin)))
}

async fn start(cluster: Server, admin: Option<TcpListener>) -> anyhow::Result<Proxy> {
    let now = SystemTime::now();
    let authority = Authority::generate(now)?;
    let server = tls::Server::new(authority.issue(&Names::of_apiserver(""), now)?)?;
    let bound = Bound::bind("--listen", (Ipv4Addr::LOCALHOST, 0).into()).await?;
    let address = bound.address();
    let uri = format!("https://{}", cluster.address).parse().context("a loopback address")?;
    let access = identity::from_token(uri, &cluster.ca_pem, cluster.token).await?;
    let (plain, own) = access.clients(Arc::new(Tcp::default()), Settings::default());
    let (publish, config) = watch::channel(Arc::new(Config::default()));
    let running = Running::start(Foundation {
        listeners: vec![bound],
        tls: ListenerTls { tls: Some(server), ..ListenerTls::default() },
        identify: Identify::Own(KnownTokens::one(LOCAL_TOKEN)),
        past: Past::None,
        clients: Clients::new(plain, own),
        config,
        metrics: Metrics::new(),
        upstream: format!("{} (simulated)", cluster.address),
    });
    let drain = Drain::new();
    let page = admin.map(|listener| show(listener, &running, &drain)).transpose()?;
    let ca_pem = authority.pem().to_owned();
    Ok(Proxy {
        server: Server { address, ca_pem, token: LOCAL_TOKEN.to_owned() },
        page,
        _guard: Box::new(Guard { running: Some(running), _config: publish, _drain: drain }),
    })
}

/// Serves the page and its data until the runtime ends.
fn show(listener: TcpListener, running: &Running, drain: &Drain) -> anyhow::Result<SocketAddr> {
    let address = listener.local_addr()?;
    let heartbeat = Heartbeat::new();
    tokio::spawn(heartbeat.clone().run());
    let sources = running.sources(ProcessHealth {
        ready: Ready::default(),
        draining: drain.watch(),
        heartbeat,
        names: Vec::new(),
    });
    let listener = tokio::net::TcpListener::from_std(listener)?;
    tokio::spawn(admin::serve(listener, Audience::Operators, Arc::new(sources)));
    Ok(address)
}

// === impl Guard ===

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            tokio::spawn(running.drain());
        }
    }
}
