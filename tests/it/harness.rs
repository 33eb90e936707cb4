//! The whole proxy in one process, with a simulated apiserver behind it and clients in front of it.
//!
//! In memory, under a paused clock, minutes pass in milliseconds; on loopback everything is real.

mod answer;
mod client;
mod cluster;
mod consistency;
mod echo;
mod laggard;
mod protobuf;
mod raw;
mod tcp;
mod upstream;

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use http::{HeaderMap, Method};
use listless::{
    admin::{self, Audience},
    api::ObjectKey,
    app::{Foundation, ProcessHealth, Running},
    cache::{Consistency, OnDifference, ReplicaStatus, clock::Clock},
    config::Config,
    explain::{ExplainedRequest, Explanation},
    insight::report::Report,
    lifecycle::{Drain, Heartbeat, Ready},
    metrics::Metrics,
    proxy::{
        Proxy,
        forward::Clients,
        identify::{Identify, KnownTokens, TokenHasher},
        listen::{Authorities, Bound, ListenerTls},
        sessions::Past,
    },
    simulator::{Simulator, User},
    tls, upstream as api,
};
use tokio::{net::TcpListener, sync::watch, time::Instant};

use self::consistency::{Inspection, checked_often};

/// The forms that kubectl accepts.
pub(crate) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

pub(crate) use self::{
    answer::{Answer, without_version},
    client::{Door, TestClient, Via, Watch, request},
    cluster::{group_resource, incompressible, pod, populated, widget},
    consistency::checked_as_shipped,
    echo::{Echo, Piece, piped},
    laggard::Laggard,
    protobuf::{DelimitedWatch, PROTOBUF, Protobuf},
    raw::{RawAnswer, RawConnection},
    tcp::{TcpApiserver, WithUpgrades},
    upstream::{Identity, Requests, Upstream, is_check},
};

/// A proxy under test; everything of it ends with the runtime.
pub(crate) struct TestProxy {
    /// The apiserver behind it.
    pub(crate) simulator: Simulator,
    /// Requests that reached the apiserver through the proxy.
    pub(crate) upstream: Requests,
    door: Door,
    config: watch::Sender<Arc<Config>>,
    drain: Drain,
    running: Running,
    _inspection: Option<Inspection>,
}

/// The parts of a proxy under test.
pub(crate) struct Setup {
    simulator: Simulator,
    upstream: Option<Arc<dyn api::Client>>,
    config: String,
    seed: u64,
    identify: Identify,
    authorities: Authorities,
    consistency: Consistency,
}

/// The token that the user Listless reads as presents to the proxy.
pub(crate) const LOCAL_TOKEN: &str = "local-token";

/// The token that Listless itself presents to the apiserver.
pub(crate) const OWN_TOKEN: &str = "own-identity";

/// The token of another user, whom the apiserver knows.
pub(crate) const OTHER_TOKEN: &str = "strangers-token";

/// The limit on every wait.
const PATIENCE: Duration = Duration::from_secs(10);

// === impl Setup ===

impl Default for Setup {
    fn default() -> Self {
        Self::of(populated())
    }
}

impl Setup {
    /// In front of this apiserver, which then knows [`OWN_TOKEN`] and [`OTHER_TOKEN`].
    pub(crate) fn of(simulator: Simulator) -> Self {
        simulator.admit(OWN_TOKEN, User::admin("own"));
        simulator.admit(OTHER_TOKEN, User::admin("stranger"));
        let identify = Identify::Own(KnownTokens::one(LOCAL_TOKEN));
        let (config, authorities) = (String::new(), Authorities::default());
        let consistency = checked_often();
        Self { simulator, upstream: None, config, seed: 1, identify, authorities, consistency }
    }

    /// Puts another service in the simulator's place.
    pub(crate) fn upstream(mut self, upstream: impl api::Client) -> Self {
        self.upstream = Some(Arc::new(upstream));
        self
    }

    /// Sections of the configuration file.
    pub(crate) fn config(mut self, sections: &str) -> Self {
        self.config = sections.to_owned();
        self
    }

    /// The apiserver it will stand in front of.
    pub(crate) fn simulator(&self) -> &Simulator {
        &self.simulator
    }

    /// Lets CONNECT lead to the apiserver under this name.
    pub(crate) fn known_as(mut self, host: &str, port: u16) -> Self {
        self.authorities = self.authorities.and(host, port);
        self
    }

    /// As a gateway: every caller has its own token, which only the apiserver knows.
    pub(crate) fn gateway(mut self) -> Self {
        self.identify = Identify::Bearers(TokenHasher::new(&[7; 32]));
        self
    }

    /// The source of random numbers for the waits of replicas.
    pub(crate) fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Without sockets, so that the clock may be paused.
    pub(crate) fn in_memory(self) -> TestProxy {
        self.start(Vec::new(), None, |proxy| Door::Memory(proxy.clone()))
    }

    /// On a loopback port, with TLS.
    pub(crate) async fn on_loopback(self) -> TestProxy {
        let now = SystemTime::now();
        let authority = tls::Authority::generate(now).expect("an authority");
        let leaf = authority.issue(&tls::Names::of_apiserver(""), now).expect("a certificate");
        let server = tls::Server::new(leaf).expect("a configuration");
        let client = tls::client_config(authority.pem().as_bytes()).expect("a configuration");
        self.listening(Some(server), |address| Door::Tls(address, Arc::new(client))).await
    }

    /// On a loopback port, in plain text.
    pub(crate) async fn in_plain_text(self) -> TestProxy {
        self.listening(None, Door::Plain).await
    }

    async fn listening(
        self,
        tls: Option<tls::Server>,
        door: impl FnOnce(SocketAddr) -> Door,
    ) -> TestProxy {
        let bound = Bound::bind("--listen", ([127, 0, 0, 1], 0).into()).await.expect("a port");
        let address = bound.address();
        self.start(vec![bound], tls, |_| door(address))
    }

    fn start(
        self,
        listeners: Vec<Bound>,
        tls: Option<tls::Server>,
        door: impl FnOnce(&Arc<Proxy>) -> Door,
    ) -> TestProxy {
        let (upstream, clients) = self.ways_up();
        let (publish, config) = watch::channel(Arc::new(configuration(&self.config)));
        let (identify, counted) = (self.identify, Metrics::new());
        let tls = ListenerTls { tls, authorities: self.authorities };
        let metrics = counted;
        let foundation = Foundation {
            listeners,
            tls,
            identify,
            past: Past::None,
            clients,
            config,
            metrics,
            upstream: "simulated".to_owned(),
        };
        let inspected = self.consistency.on_difference == OnDifference::Panic;
        let random = fractions(self.seed);
        let clock = Clock::started(self.simulator.wall_clock(), Instant::now());
        let running = Running::start_with(foundation, random, clock, self.consistency);
        let (simulator, door) = (self.simulator, door(running.proxy()));
        let _inspection = inspected.then(|| Inspection::of(running.cache()));
        let drain = Drain::new();
        TestProxy { simulator, upstream, door, config: publish, drain, running, _inspection }
    }

    /// The clients to the apiserver, one for each identity, and the record of their requests.
    fn ways_up(&self) -> (Requests, Clients) {
        let requests = Requests::default();
        let target: Arc<dyn api::Client> =
            self.upstream.clone().unwrap_or_else(|| Arc::new(self.simulator.clone()));
        let way = |identity| -> Arc<dyn api::Client> {
            Arc::new(Upstream::new(target.clone(), identity, requests.clone()))
        };
        let clients = Clients {
            own: way(Identity::Own),
            impersonating: way(Identity::Impersonating),
            plain: way(Identity::Plain),
        };
        (requests, clients)
    }
}

// === impl TestProxy ===

impl TestProxy {
    /// The user Listless reads as, on a connection of its own.
    pub(crate) fn client(&self) -> TestClient {
        self.anybody().with("authorization", &format!("Bearer {LOCAL_TOKEN}"))
    }

    /// A client without credentials.
    pub(crate) fn anybody(&self) -> TestClient {
        TestClient::new(self.door.clone())
    }

    /// A client with a bearer token, on a connection of its own.
    pub(crate) fn bearer(&self, token: &str) -> TestClient {
        self.anybody().with("authorization", &format!("Bearer {token}"))
    }

    /// Listless's own identity, directly at the apiserver.
    pub(crate) fn straight(&self) -> TestClient {
        self.straight_as(OWN_TOKEN)
    }

    /// A client with a bearer token, directly at the apiserver.
    pub(crate) fn straight_as(&self, token: &str) -> TestClient {
        TestClient::new(Door::Straight(self.simulator.clone()))
            .with("authorization", &format!("Bearer {token}"))
    }

    /// A connection for bytes; only on loopback.
    pub(crate) async fn raw(&self) -> RawConnection {
        RawConnection::open(&self.door).await
    }

    /// A client that uses the port as an HTTP proxy; only on loopback.
    pub(crate) fn through_connect(&self, via: Via, authority: &'static str) -> TestClient {
        TestClient::new(self.connect_door(via, authority))
    }

    /// The same for bytes.
    pub(crate) fn connect_door(&self, via: Via, authority: &'static str) -> Door {
        self.door.connect(via, authority)
    }

    /// The same below TLS.
    pub(crate) async fn raw_tcp(&self) -> RawConnection {
        RawConnection::open(&self.door.without_tls()).await
    }

    /// The figures of every replica.
    pub(crate) fn replicas(&self) -> Vec<ReplicaStatus> {
        self.running.cache().replicas()
    }

    /// Turns its report on.
    pub(crate) fn reporter(&self) -> Box<dyn Fn() -> Report + Send + Sync> {
        self.running.reporter()
    }

    /// Its report, as it is now.
    pub(crate) fn report(&self) -> Report {
        self.reporter()()
    }

    /// A proxy with the default setup that answers this path from memory.
    pub(crate) async fn warmed(path: &str) -> Self {
        let proxy = Setup::default().in_memory();
        proxy.warm(path).await;
        proxy
    }

    /// Creates or replaces a pod of namespace `a` directly; returns its version.
    pub(crate) fn put_pod(&self, name: &str, app: &str) -> u64 {
        let object = pod("a", name, &[("app", app)], "n1");
        self.simulator.put(&group_resource("pods"), object).expect("a served resource")
    }

    /// Removes a pod of namespace `a` directly.
    pub(crate) fn remove_pod(&self, name: &str) {
        let key = ObjectKey::new(Some("a"), name);
        self.simulator.remove(&group_resource("pods"), &key).expect("an object");
    }

    /// Reads until memory answers, which takes two unsafe reads.
    pub(crate) async fn warm(&self, path: &str) {
        let client = self.client();
        client.get(path).await;
        let second = client.get(path).await;
        assert!(second.is_hit(), "{path}: {} {}", second.status, second.cache_status());
        settle().await;
        self.upstream.forget();
    }

    /// The sum of all series of a metric with these labels, written as exported.
    pub(crate) fn counted(&self, metric: &str, labels: &str) -> f64 {
        let text = self.metrics().render();
        let fits =
            |line: &&str| line.split(['{', ' ']).next() == Some(metric) && line.contains(labels);
        let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse().ok());
        text.lines().filter(fits).map(|line| value(line).unwrap_or(0.0)).sum()
    }

    /// Serves its admin address from now on.
    pub(crate) async fn admin_address(&self) -> SocketAddr {
        self.address_for(Audience::Operators).await
    }

    /// Serves probes, or operators, from now on.
    pub(crate) async fn address_for(&self, audience: Audience) -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let sources = Arc::new(self.sources());
        tokio::spawn(admin::serve(listener, audience, sources));
        address
    }

    /// The explanation of a GET at this moment.
    pub(crate) fn explained(&self, path: &str) -> Explanation {
        let (uri, headers) = (path.parse().expect("a path"), HeaderMap::new());
        let question = ExplainedRequest { method: &Method::GET, uri: &uri, headers: &headers };
        (self.sources().explain)(question)
    }

    /// Reports whether an admin client follows requests.
    pub(crate) fn is_tapped(&self) -> bool {
        self.sources().tap.is_watched()
    }

    /// The counters.
    pub(crate) fn metrics(&self) -> Metrics {
        self.sources().metrics
    }

    pub(crate) fn sources(&self) -> admin::Sources {
        self.running.sources(ProcessHealth {
            ready: Ready::default(),
            draining: self.drain.watch(),
            heartbeat: Heartbeat::new(),
            names: vec!["listless.shop.svc".to_owned()],
        })
    }

    /// A client of the admin address.
    pub(crate) async fn admin(&self) -> TestClient {
        TestClient::new(Door::Plain(self.admin_address().await))
    }

    /// Publishes another configuration.
    pub(crate) fn configure(&self, sections: &str) {
        self.config.send_replace(Arc::new(configuration(sections)));
    }

    /// Stops accepting and waits until it has ended.
    pub(crate) async fn drain(self) {
        self.running.drain().await;
    }
}

/// A configuration file with these sections. Tests repeat requests without a pause. The throttle of
/// polls is off unless a section turns it on.
pub(crate) fn configuration(sections: &str) -> Config {
    let head = "apiVersion: listless.dev/v1alpha1\nkind: ProxyConfiguration\n";
    let polls = if sections.contains("repeatPolls") { "" } else { "repeatPolls: {action: off}\n" };
    let text = format!("{head}{polls}{sections}");
    Config::from_bytes(Path::new("test.yaml"), text.as_bytes()).expect("a good configuration")
}

/// Runs everything that needs no more time; the clock must be paused for certainty.
pub(crate) async fn settle() {
    // A paused clock moves on only once nothing else can run.
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Lets this much time pass.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        // This is not a yield. A paused clock advances only while everything waits.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Numbers in 0..1, the same ones for the same seed.
pub(crate) fn fractions(seed: u64) -> Arc<dyn Fn() -> f64 + Send + Sync> {
    let state = AtomicU64::new(seed);
    Arc::new(move || {
        let next = |state: u64| {
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
        };
        let state = state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| Some(next(state)))
            .unwrap_or_default();
        f64::from((next(state) >> 40) as u32) / f64::from(1 << 24)
    })
}
