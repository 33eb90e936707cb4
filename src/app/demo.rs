//! `listless demo`: a proxy in front of the simulated apiserver, made as `local` makes one.

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context;
use futures_util::{FutureExt, future::BoxFuture};
use http::{HeaderValue, Request, Response, Uri, header::AUTHORIZATION};
use tokio::sync::watch;

use super::{Foundation, Running, local};
use crate::{
    body::Body,
    config::Config,
    demo::{self, Cluster, Proxy, Server},
    metrics::Metrics,
    proxy::listen::Bound,
    tls,
    upstream::{self, Client, Endpoint, Lane, Pool, dial::Tcp},
};

/// Requests in the name of the simulated cluster's only user.
struct WithToken {
    pool: Pool,
    authorization: HeaderValue,
}

/// Keeps the proxy running.
struct Guard {
    running: Option<Running>,
    /// Nobody else publishes the configuration.
    _config: watch::Sender<Arc<Config>>,
}

/// Runs the demo to its end.
pub fn demo(arguments: demo::Args) -> anyhow::Result<ExitCode> {
    let runtime = local::runtime("data", None)?;
    let start = |cluster| start(cluster).boxed();
    let ended = runtime.block_on(demo::run(arguments, Box::new(start)));
    runtime.shutdown_background();
    ended
}

async fn start(cluster: Cluster) -> anyhow::Result<Proxy> {
    let server: Uri = format!("https://{}", cluster.address).parse()?;
    let config = Arc::new(tls::client_config(cluster.ca_pem.as_bytes())?);
    let endpoint = Endpoint::new(&server, config, None)?;
    let plain = Pool::new(Arc::new(Tcp), endpoint, upstream::Settings::default());
    let mut authorization = HeaderValue::from_str(&format!("Bearer {}", cluster.token))
        .context("the simulated cluster's token")?;
    authorization.set_sensitive(true);
    let own = WithToken { pool: plain.clone(), authorization };

    let bound = Bound::bind("--listen", SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)).await?;
    let address = bound.address();
    let (authority, serving) = local::certificates(address.ip())?;
    let token = local::token();
    let (publisher, config) = watch::channel(Arc::new(Config::default()));
    let running = Running::start(Foundation {
        listeners: vec![bound],
        tls: Some(serving),
        token: token.clone(),
        own: Arc::new(own),
        plain: Arc::new(plain),
        config,
        metrics: Metrics::new(),
    });
    let guard = Guard { running: Some(running), _config: publisher };
    let server = Server { address, ca_pem: authority.pem().to_owned(), token };
    Ok(Proxy { server, guard: Box::new(guard) })
}

// === impl WithToken ===

impl Client for WithToken {
    fn send(
        &self,
        request: Request<Body>,
        lane: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, upstream::Error>> {
        self.pool.send(self.signed(request), lane)
    }

    fn upgrade(
        &self,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Body>, upstream::Error>> {
        self.pool.upgrade(self.signed(request))
    }
}

impl WithToken {
    fn signed(&self, mut request: Request<Body>) -> Request<Body> {
        request.headers_mut().insert(AUTHORIZATION, self.authorization.clone());
        request
    }
}

// === impl Guard ===

impl Drop for Guard {
    fn drop(&mut self) {
        if let (Some(running), Ok(runtime)) =
            (self.running.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(running.drain());
        }
    }
}
