//! `listless injector`: the mutating webhook and its certificate rotation.
//!
//! Its listener is that of the data path, with another service. Each outcome is logged and counted.
//! It is also reported as an event to the pod's owner if configured.

use std::{sync::Arc, time::SystemTime};

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::{
    sync::Semaphore,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

use super::{
    Announce, Announcement, DRAIN_DEADLINE, GAUGES_PERIOD, LEAVE_TIME,
    options::{InjectorOptions, ServingOptions, UsageError},
    reachable,
    serve::{self, AdminListeners, CLUSTER_DOMAIN, Shared},
    wire::MeteredDial,
};
use crate::{
    body::{Body, BoxError},
    error::Chain,
    injector::{
        events::{self, Asker, Events},
        keeper::{CertificateObjects, Keeper},
        keyring::Wanted,
        lines::{Line, Lines},
        patch::{Origin, Settings, SkipReason},
        review::{self, Verdict},
    },
    lifecycle::Signals,
    metrics::{Injection, Metrics},
    proxy::listen::{self, Bound, Connection, ListenerTls, Serve},
    shares::{Network, Shares},
    tls,
    upstream::{
        self, Client,
        dial::Tcp,
        identity::{self, Access},
    },
};

/// The webhook's request handler.
struct Webhook {
    settings: Settings,
    events: Option<Events>,
    lines: Lines,
    /// The places of bodies that are read, and the share of each network.
    places: Semaphore,
    shares: Shares<Network>,
    metrics: Metrics,
}

/// The path of the admission webhook.
const PATH: &str = "/inject";
/// The maximum body size. The apiserver sends no larger objects.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// The bodies that are read at once. The others wait, of those beyond a network's share so many.
const BODIES_MAX: usize = 16;
const WAITING_MAX: usize = 256;
/// The timeout for a body with its wait. The apiserver waits five seconds in all.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout for a body that has a place. The apiserver sends it with the request.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves until a stop signal.
pub fn injector(options: &InjectorOptions, announce: Announce) -> anyhow::Result<()> {
    let runtime = serve::runtime("injector", 1)?;
    let admin = serve::runtime("admin", 1)?;
    let shared = Shared::new(admin.handle().clone());
    let ended = runtime.block_on(run(&shared, options, announce));
    runtime.shutdown_timeout(Duration::from_millis(200));
    admin.shutdown_background();
    ended
}

async fn run(shared: &Shared, options: &InjectorOptions, announce: Announce) -> anyhow::Result<()> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let mut settings = options.sidecar.settings(Origin::Admission)?;
    let listening = shared.ready.register("listener");
    let bound = Bound::bind("--listen", options.listen).await?;
    let server = format!("https://{}", reachable(bound.address()));
    AdminListeners::bind(&serving(options))?.serve_process_health(shared)?;
    let access = access(options).await?;
    let namespace = namespace(options, &access)?;
    settings.excluded_namespaces.extend(options.excluded_namespaces.iter().cloned());
    settings.excluded_namespaces.push(namespace.clone());
    let source = access.source().to_string();
    let dial = MeteredDial::new(Tcp::default(), shared.metrics.clone());
    let access = access.metered(&shared.metrics);
    let (_, own) = access.clients(Arc::new(dial), upstream::Settings::default());
    let client: Arc<dyn Client> = Arc::new(own);

    let tls = look_after_certificates(shared, options, namespace, client.clone())?;
    let asker = match options.client_authority {
        Some(_) => Asker::Proven,
        None => Asker::Anybody,
    };
    let events = (!options.no_events).then(|| {
        let (events, sender) = events::channel(client, shared.metrics.clone(), asker);
        tokio::spawn(sender.run(shared.drain.watch()));
        events
    });
    let places = Semaphore::new(BODIES_MAX);
    let shares = Shares::new(BODIES_MAX, WAITING_MAX, BODY_TIMEOUT);
    let (lines, metrics) = (Lines::new(asker), shared.metrics.clone());
    metrics.injections_begin();
    let webhook = Webhook { settings, events, lines, places, shares, metrics };
    let (begin, limits) = (CancellationToken::new(), listen::Limits::default());
    let serving = tokio::spawn(listen::serve(
        vec![bound],
        ListenerTls { tls: Some(tls), ..ListenerTls::default() },
        Arc::new(webhook),
        (limits.clone(), limits.connection_limit()),
        listen::Drain { begin: begin.clone(), deadline: DRAIN_DEADLINE },
        shared.metrics.clone(),
    ));
    shared.beat();
    tokio::spawn(keep_metrics(shared.metrics.clone()));
    drop(listening);
    announce(&Announcement { server, source, kubeconfig: None, asks_apiserver: false }, None)?;

    let signal = signals.next().await;
    shared.drain.begin(Instant::now() + LEAVE_TIME + DRAIN_DEADLINE);
    serve::leave(LEAVE_TIME, signal, &mut signals).await;
    begin.cancel();
    tokio::select! {
        served = serving => served.context("the listener task failed"),
        signal = signals.next() => bail!("{signal} again: cut off the requests in flight"),
    }
}

fn serving(options: &InjectorOptions) -> ServingOptions {
    let (admin, health) = (options.admin, options.health);
    ServingOptions { admin, admin_names: Vec::new(), health, config: None, worker_threads: 1 }
}

/// Connects as the pod's service account, or as a kubeconfig's user if one is given or there is no
/// pod.
async fn access(options: &InjectorOptions) -> anyhow::Result<Access> {
    let upstream = &options.upstream;
    let (kubeconfig, context) = (upstream.kubeconfig.as_deref(), upstream.context.as_deref());
    Ok(identity::here(kubeconfig, context, &options.service_account).await?)
}

fn namespace(options: &InjectorOptions, access: &Access) -> Result<String, UsageError> {
    let own = Some(access.source().namespace()).filter(|namespace| !namespace.is_empty());
    let namespace = options.namespace.as_deref().or(own);
    namespace.map(str::to_owned).ok_or_else(|| {
        UsageError("the injector's namespace is unknown; pass --namespace".to_owned())
    })
}

/// Starts the certificate rotation. Until its first run the listener shows an untrusted
/// certificate.
fn look_after_certificates(
    shared: &Shared,
    options: &InjectorOptions,
    namespace: String,
    client: Arc<dyn Client>,
) -> anyhow::Result<tls::Server> {
    let service = format!("{}.{namespace}", options.service);
    let mut names =
        vec![format!("{service}.svc"), format!("{service}.svc.{CLUSTER_DOMAIN}"), service];
    names.extend(options.names.iter().cloned());
    let now = SystemTime::now();
    let nobody = tls::Authority::generate(now)?;
    let first = nobody.issue(&tls::Names::of_apiserver(""), now)?;
    let server = match &options.client_authority {
        None => tls::Server::new(first)?,
        Some(file) => {
            let clients = tls::ClientAuthorities::load(file.clone()).context("--client-ca")?;
            let server = tls::Server::for_clients_of(first, &clients)?;
            tokio::spawn(clients.follow(shared.drain.watch(), shared.metrics.clone()));
            server
        }
    };
    let wanted = Wanted {
        names,
        authority_lifetime: options.authority_lifetime,
        leaf_lifetime: options.certificate_lifetime,
    };
    let place = CertificateObjects {
        namespace,
        secret: options.secret.clone(),
        webhook: options.webhook_configuration.clone(),
    };
    let (ready, metrics) = (shared.ready.register("certificate"), shared.metrics.clone());
    let keeper = Keeper::new(client, place, wanted, server.clone(), ready, metrics);
    tokio::spawn(keeper.run(shared.drain.watch()));
    Ok(server)
}

async fn keep_metrics(metrics: Metrics) {
    let mut ticks = tokio::time::interval(GAUGES_PERIOD);
    loop {
        ticks.tick().await;
        metrics.run_upkeep();
    }
}

// === impl Webhook ===

impl Serve for Webhook {
    async fn serve(&self, connection: &Connection, request: Request<Incoming>) -> Response<Body> {
        match (request.method(), request.uri().path()) {
            (&Method::POST, PATH) => {}
            (_, PATH) => return said(StatusCode::METHOD_NOT_ALLOWED, "only POST\n"),
            _ => return said(StatusCode::NOT_FOUND, "not found\n"),
        }
        let (started, network) = (Instant::now(), Network::from(connection.peer.ip()));
        let body = async {
            let _share = self.shares.take(network).await?;
            let _place = self.places.acquire().await;
            tokio::time::timeout(READ_TIMEOUT, whole(request.into_body())).await.ok()
        };
        match tokio::time::timeout(BODY_TIMEOUT, body).await {
            Ok(Some(Ok(body))) => self.answer(network, &body, started),
            Ok(Some(Err(error))) if error.is::<LengthLimitError>() => self.refuse(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the body is larger than any object\n",
                started,
            ),
            Ok(Some(Err(_))) => {
                self.refuse(StatusCode::BAD_REQUEST, "the body ended early\n", started)
            }
            Ok(None) | Err(_) => {
                self.refuse(StatusCode::REQUEST_TIMEOUT, "the body took too long\n", started)
            }
        }
    }
}

impl Webhook {
    fn answer(&self, network: Network, body: &[u8], started: Instant) -> Response<Body> {
        let (answer, verdict) = match review::answer(body, &self.settings) {
            Ok(answered) => answered,
            Err(error) => {
                if let Some(Line { left_out }) = self.lines.take(network, Instant::now()) {
                    let error = Chain(&error);
                    tracing::warn!(%error, left_out, "cannot answer an admission review");
                }
                return self.refuse(StatusCode::BAD_REQUEST, "no AdmissionReview\n", started);
            }
        };
        self.tell(network, &verdict, started);
        let Ok(body) = serde_json::to_vec(&answer) else {
            return said(
                StatusCode::INTERNAL_SERVER_ERROR,
                "cannot write the admission response\n",
            );
        };
        let mut response = Response::new(Body::full(Bytes::from(body)));
        let json = header::HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }

    fn refuse(&self, code: StatusCode, text: &'static str, started: Instant) -> Response<Body> {
        self.metrics.injection(Injection::Error, "", started.elapsed());
        said(code, text)
    }

    fn tell(&self, network: Network, verdict: &Verdict, started: Instant) {
        let (result, reason) = match &verdict.outcome {
            Ok(_) => (Injection::Injected, ""),
            Err(skip) => (Injection::Skipped, skip.reason.as_str()),
        };
        self.metrics.injection(result, reason, started.elapsed());
        if let Some(line) = self.lines.take(network, Instant::now()) {
            log(verdict, &line);
        }
        // A repeated call for the same pod, after other webhooks, is not logged again.
        let is_new =
            !matches!(&verdict.outcome, Err(skip) if skip.reason == SkipReason::AlreadyInjected);
        if let Some(events) = self.events.as_ref().filter(|_| is_new) {
            events.tell(verdict, network);
        }
    }
}

/// Reads a body into one piece. The pieces may be tiny, and each would take more than its bytes.
async fn whole(body: Incoming) -> Result<Vec<u8>, BoxError> {
    let (mut body, mut bytes) = (Limited::new(body, BODY_BYTES_MAX), Vec::new());
    while let Some(frame) = body.frame().await {
        if let Some(piece) = frame?.data_ref() {
            bytes.extend_from_slice(piece);
        }
    }
    Ok(bytes)
}

fn log(verdict: &Verdict, &Line { left_out }: &Line) {
    let Verdict { namespace, pod, owner, .. } = verdict;
    let owner = format!("{}/{}", owner.kind, owner.name);
    match &verdict.outcome {
        Ok(_) => tracing::info!(namespace, pod, owner, left_out, "injected"),
        Err(skip) => {
            let reason = skip.reason.as_str();
            tracing::info!(namespace, pod, owner, reason, %skip, left_out, "not injected");
        }
    }
}

fn said(code: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::full(text));
    *response.status_mut() = code;
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}
