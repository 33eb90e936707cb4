//! Listless in this process, in front of the simulated apiserver, as `listless local` runs it.

use std::{net::Ipv4Addr, sync::Arc, time::SystemTime};

use anyhow::Context;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, Response, header};
use tokio::sync::watch;

use super::{Proxy, Server, StartProxy, cluster::client_config};
use crate::{
    app::{Foundation, Running},
    body::Body,
    config::Config,
    metrics::Metrics,
    proxy::listen::Bound,
    tls::{self, Authority, Names},
    upstream::{Client, Endpoint, Error, Lane, Pool, Settings, dial::Tcp},
};

/// What pollers present to Listless; it stands for the simulated cluster's user.
const LOCAL_TOKEN: &str = "demo-token-of-listless";

/// A pool that presents the simulated cluster's token.
#[derive(Clone)]
struct Own {
    pool: Pool,
    authorization: HeaderValue,
}

/// A Listless that is drained when dropped, and the configuration it follows.
struct Guard {
    running: Option<Running>,
    _config: watch::Sender<Arc<Config>>,
}

/// Starts Listless with the default configuration.
pub(super) fn in_process() -> StartProxy {
    Box::new(|cluster| Box::pin(start(cluster)))
}

async fn start(cluster: Server) -> anyhow::Result<Proxy> {
    let now = SystemTime::now();
    let authority = Authority::generate(now)?;
    let server = tls::Server::new(authority.issue(&Names::of_apiserver(""), now)?)?;
    let bound = Bound::bind("--listen", (Ipv4Addr::LOCALHOST, 0).into()).await?;
    let address = bound.address();
    let uri = format!("https://{}", cluster.address).parse().context("a loopback address")?;
    let endpoint = Endpoint::new(&uri, client_config(&cluster.ca_pem)?, None)?;
    let pool = Pool::new(Arc::new(Tcp), endpoint, Settings::default());
    let mut authorization = HeaderValue::try_from(format!("Bearer {}", cluster.token))?;
    authorization.set_sensitive(true);
    let (publish, config) = watch::channel(Arc::new(Config::default()));
    let running = Running::start(Foundation {
        listeners: vec![bound],
        tls: Some(server),
        token: LOCAL_TOKEN.to_owned(),
        own: Arc::new(Own { pool: pool.clone(), authorization }),
        plain: Arc::new(pool),
        config,
        metrics: Metrics::new(),
    });
    let ca_pem = authority.pem().to_owned();
    Ok(Proxy {
        server: Server { address, ca_pem, token: LOCAL_TOKEN.to_owned() },
        _guard: Box::new(Guard { running: Some(running), _config: publish }),
    })
}

// === impl Own ===

impl Own {
    fn signed(&self, mut request: Request<Body>) -> Request<Body> {
        request.headers_mut().insert(header::AUTHORIZATION, self.authorization.clone());
        request
    }
}

impl Client for Own {
    fn send(
        &self,
        request: Request<Body>,
        lane: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.pool.send(self.signed(request), lane)
    }

    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.pool.upgrade(self.signed(request))
    }
}

// === impl Guard ===

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            tokio::spawn(running.drain());
        }
    }
}
