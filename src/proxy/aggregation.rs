//! Which API groups may be answered by a server that filters by caller.
//!
//! What the apiserver serves itself, built-in or custom, is the same for all who may read it. An
//! aggregated server may show each caller something else, so that what we hold may be too much for
//! another. Whatever is not known to be the apiserver's own counts as aggregated.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use futures_util::FutureExt;
use http::{Request, StatusCode, header};
use serde::{Deserialize, de::IgnoredAny};
use tokio::time::Instant;

use crate::{
    api::{GroupVersionResource, field},
    body::Body,
    hash::RandomState,
    upstream::{Client, Lane},
};

/// Who serves which group and version; asked in our own name, and remembered.
pub struct Aggregation {
    client: Arc<dyn Client>,
    /// Takes memory only where bearers are answered.
    servers: LazyLock<Servers>,
}

type Servers = moka::future::Cache<(Arc<str>, Arc<str>), Known, RandomState>;

#[derive(Clone, Copy)]
struct Known {
    server: Server,
    at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Apiserver,
    /// Another, or nobody would say.
    Other,
}

/// An `apiregistration.k8s.io/v1` APIService; without a service the apiserver is its server.
#[derive(Deserialize)]
struct ApiService {
    spec: ApiServiceSpec,
}

#[derive(Deserialize)]
struct ApiServiceSpec {
    service: Option<IgnoredAny>,
}

/// No answer was had, or none that could be read.
struct NoAnswer;

/// How long what was heard is believed; a group changes its server only when an operator does that.
const TTL: Duration = Duration::from_secs(60);

/// How many groups and versions are remembered.
const KNOWN_MAX: u64 = 1024;

/// How long the apiserver may take to say.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The largest answer that is read.
const BYTES_MAX: usize = 256 * 1024;

// === impl Aggregation ===

impl Aggregation {
    /// Asks through `client`.
    pub fn new(client: Arc<dyn Client>) -> Self {
        Self { client, servers: LazyLock::new(nobody_asked) }
    }

    /// Whether an aggregated server may answer reads of this resource.
    pub async fn may_serve(&self, resource: &GroupVersionResource) -> bool {
        if field::is_built_in_group(&resource.group) {
            return false;
        }
        let key = (resource.group.clone(), resource.version.clone());
        if let Some(known) = self.servers.get(&key).await {
            if known.at.elapsed() < TTL {
                return known.server == Server::Other;
            }
            self.servers.invalidate(&key).await;
        }
        let asked =
            self.servers.try_get_with_by_ref(&key, self.ask(&resource.group, &resource.version));
        asked.await.map_or(true, |known| known.server == Server::Other)
    }

    /// What is known of that without asking, however old.
    pub fn foretold(&self, resource: &GroupVersionResource) -> Option<bool> {
        if field::is_built_in_group(&resource.group) {
            return Some(false);
        }
        let key = (resource.group.clone(), resource.version.clone());
        // What the table holds is there at once.
        let known = self.servers.get(&key).now_or_never().flatten();
        known.map(|known| known.server == Server::Other)
    }

    /// No answer is not remembered.
    async fn ask(&self, group: &str, version: &str) -> Result<Known, NoAnswer> {
        let at = Instant::now();
        let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{version}.{group}");
        let request = Request::get(path).header(header::ACCEPT, "application/json");
        let request = request.body(Body::empty()).map_err(|_| NoAnswer)?;
        let exchange = async {
            let response = self.client.send(request, Lane::Short).await.map_err(|_| NoAnswer)?;
            let code = response.status();
            let body = response.into_body().collect(BYTES_MAX).await;
            Ok::<_, NoAnswer>((code, body.map_err(|_| NoAnswer)?))
        };
        let (code, body) =
            tokio::time::timeout(TIMEOUT, exchange).await.map_err(|_| NoAnswer)??;
        let server = match code {
            StatusCode::OK => {
                let service: ApiService = serde_json::from_slice(&body).map_err(|_| NoAnswer)?;
                service.spec.service.map_or(Server::Apiserver, |_| Server::Other)
            }
            StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => Server::Other,
            _ => return Err(NoAnswer),
        };
        Ok(Known { server, at })
    }
}

fn nobody_asked() -> Servers {
    let servers = moka::future::Cache::builder().max_capacity(KNOWN_MAX);
    servers.build_with_hasher(RandomState::default())
}
