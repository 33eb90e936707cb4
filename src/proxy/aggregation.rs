//! API groups whose server may filter its responses by caller.
//!
//! The responses of the apiserver itself, for built-in and custom resources, are the same for all
//! callers who may read them. An aggregated server may show each caller different objects. A cached
//! response could then show a caller too much. A group counts as aggregated unless it is known to
//! be served by the apiserver itself.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
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
    upstream::{AGENT, Client, Lane},
};

/// The server of each group and version, queried with Listless's own identity and remembered.
pub struct Aggregation {
    client: Arc<dyn Client>,
    /// The table; it takes no memory before the first query.
    servers: LazyLock<Servers>,
    /// `true` while an entry is renewed in the background.
    renews: AtomicBool,
}

type Servers = moka::future::Cache<(Arc<str>, Arc<str>), Known, RandomState>;

#[derive(Clone, Copy)]
struct Known {
    server: GroupServer,
    at: Instant,
}

/// The server of a group and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupServer {
    /// The apiserver itself.
    Apiserver,
    /// A server behind it.
    Another,
    /// It is not known: Listless may not read the APIService, or there is none.
    Unknown,
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

/// The same for the reads of Listless's own user, who may see every response that memory has.
const OWN_TTL: Duration = Duration::from_secs(10 * 60);

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
        Self { client, servers: LazyLock::new(nobody_asked), renews: AtomicBool::new(false) }
    }

    /// Returns the server of this resource, as it was within the last minute.
    pub async fn server(&self, resource: &GroupVersionResource) -> GroupServer {
        if field::is_built_in_group(&resource.group) {
            return GroupServer::Apiserver;
        }
        match self.known(resource) {
            Some(known) if known.at.elapsed() < TTL => known.server,
            _ => Box::pin(self.renewed(resource)).await,
        }
    }

    /// Returns the server of this resource for a read of Listless's own user. Only the first read
    /// waits for it.
    pub async fn server_for_own(self: &Arc<Self>, resource: &GroupVersionResource) -> GroupServer {
        if field::is_built_in_group(&resource.group) {
            return GroupServer::Apiserver;
        }
        let Some(known) = self.known(resource) else {
            return Box::pin(self.renewed(resource)).await;
        };
        if known.at.elapsed() >= OWN_TTL && !self.renews.swap(true, Ordering::AcqRel) {
            let (this, resource) = (Arc::clone(self), resource.clone());
            tokio::spawn(async move {
                if let Ok(known) = this.ask(&resource).await {
                    this.servers.insert(key(&resource), known).await;
                }
                this.renews.store(false, Ordering::Release);
            });
        }
        known.server
    }

    /// Returns the remembered server without a query, however old it is.
    pub fn predict(&self, resource: &GroupVersionResource) -> Option<GroupServer> {
        if field::is_built_in_group(&resource.group) {
            return Some(GroupServer::Apiserver);
        }
        self.known(resource).map(|known| known.server)
    }

    fn known(&self, resource: &GroupVersionResource) -> Option<Known> {
        // A value in the table is ready at once.
        self.servers.get(&key(resource)).now_or_never().flatten()
    }

    /// Asks again; concurrent callers share the query.
    async fn renewed(&self, resource: &GroupVersionResource) -> GroupServer {
        let key = key(resource);
        self.servers.invalidate(&key).await;
        let asked = self.servers.try_get_with_by_ref(&key, self.ask(resource)).await;
        asked.map_or(GroupServer::Unknown, |known| known.server)
    }

    /// Asks for a server; a failed query is not remembered.
    async fn ask(&self, resource: &GroupVersionResource) -> Result<Known, NoAnswer> {
        let (at, GroupVersionResource { group, version, .. }) = (Instant::now(), resource);
        let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{version}.{group}");
        let request = Request::get(path)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, AGENT);
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
                service.spec.service.map_or(GroupServer::Apiserver, |_| GroupServer::Another)
            }
            StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => GroupServer::Unknown,
            _ => return Err(NoAnswer),
        };
        Ok(Known { server, at })
    }
}

fn key(resource: &GroupVersionResource) -> (Arc<str>, Arc<str>) {
    (resource.group.clone(), resource.version.clone())
}

fn nobody_asked() -> Servers {
    let servers = moka::future::Cache::builder().max_capacity(KNOWN_MAX);
    servers.build_with_hasher(RandomState::default())
}
