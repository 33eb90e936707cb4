//! API groups whose server may filter its responses by caller.
//!
//! The responses of the apiserver itself, for built-in and custom resources, are the same for all
//! callers who may read them. An aggregated server may show each caller different objects. A cached
//! response could then show a caller too much. A group counts as aggregated unless it is known to
//! be served by the apiserver itself.

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

/// The server of each group and version, queried with Listless's own identity and remembered.
pub struct Aggregation {
    client: Arc<dyn Client>,
    /// The table; it takes memory only where bearers get responses from the cache.
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
    /// Another server, or an unknown one.
    Other,
}

/// An `apiregistration.k8s.io/v1` APIService; without a service, the apiserver serves it.
#[derive(Deserialize)]
struct ApiService {
    spec: ApiServiceSpec,
}

#[derive(Deserialize)]
struct ApiServiceSpec {
    service: Option<IgnoredAny>,
}

/// No response, or one that could not be parsed.
struct NoAnswer;

/// The lifetime of an entry; a group changes its server only when an operator changes it.
const TTL: Duration = Duration::from_secs(60);

/// The limit of remembered groups and versions.
const KNOWN_MAX: u64 = 1024;

/// The timeout of a query.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The largest response that is read.
const BYTES_MAX: usize = 256 * 1024;

// === impl Aggregation ===

impl Aggregation {
    /// Creates a table that sends its queries through `client`.
    pub fn new(client: Arc<dyn Client>) -> Self {
        Self { client, servers: LazyLock::new(nobody_asked) }
    }

    /// Reports whether an aggregated server may serve this resource.
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

    /// Returns the remembered result without a query, however old it is.
    pub fn predict(&self, resource: &GroupVersionResource) -> Option<bool> {
        if field::is_built_in_group(&resource.group) {
            return Some(false);
        }
        let key = (resource.group.clone(), resource.version.clone());
        // A value in the table is ready at once.
        let known = self.servers.get(&key).now_or_never().flatten();
        known.map(|known| known.server == Server::Other)
    }

    /// Asks for a server; a failed query is not remembered.
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
