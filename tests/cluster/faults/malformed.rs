//! A load balancer between Listless and the apiserver that damages what passes: nothing of it is ever shown.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use bytes::Bytes;
use http::{Request as HttpRequest, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Collected, Full};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use listless::tls;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{
    COLLECTION, CONFIGURATION, FEW, PAUSE_OF_POLLER, POLL, RECOVERY, from_memory, names, write,
};
use crate::clusters::{Machine, available};
use crate::rig::client::{Client, Protocol, Request, Server};
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::proxy_process::ProxyProcess;
use crate::rig::wait::until;

/// The time of each damage.
const DAMAGED: Duration = Duration::from_secs(6);

/// The damage to the events of watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Damage {
    None,
    /// Half of the event is missing.
    CutOff,
    /// A byte of the event is another one.
    NotJson,
    /// The event is replaced by a page of HTML.
    Page,
    /// The event's object is of another kind.
    OtherKind,
}

/// What damages responses.
struct Balancer {
    apiserver: Client,
    damage: AtomicU8,
    /// The events that were damaged.
    count: AtomicUsize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_a_load_balancer_damages_is_shown_on_1_36() {
    is_damaged(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_a_load_balancer_damages_is_shown_on_1_30() {
    is_damaged(Version::V1_30).await;
}

async fn is_damaged(version: Version) {
    if !available(version) {
        return;
    }
    let _machine = Machine::beside().await;
    let plane = ControlPlane::start(version).await.expect("a control plane");
    let straight = plane.client(User::Admin, Protocol::Http2).expect("a client");
    write(&straight, "kept", FEW).await.expect("writes");
    let balancer = Arc::new(Balancer {
        apiserver: straight.clone(),
        damage: AtomicU8::new(Damage::None as u8),
        count: AtomicUsize::new(0),
    });
    let server = balancer.serve().await.expect("a balancer");
    let kubeconfig = plane.folder().join("balancer.kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig(&User::Admin.token())).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, Some(CONFIGURATION)).await.expect("a proxy");
    let through = proxy.client(Protocol::Http2);
    from_memory(&through, FEW).await.expect("a list");

    let mut told = Vec::new();
    let damages = [Damage::CutOff, Damage::NotJson, Damage::Page, Damage::OtherKind];
    for (round, damage) in damages.into_iter().enumerate() {
        let before = balancer.count.load(Ordering::Relaxed);
        balancer.damage.store(damage as u8, Ordering::Relaxed);
        let end = Instant::now() + DAMAGED;
        let (mut reads, mut hits, mut number) = (0, 0, 0);
        let mut next_write = Instant::now();
        while Instant::now() < end {
            if Instant::now() >= next_write {
                next_write = Instant::now() + POLL;
                write(&straight, &format!("new-{round}-{number}"), 1).await.expect("writes");
                number += 1;
            }
            let before =
                names(&straight.get(COLLECTION).await.expect("a list").json().expect("JSON"));
            let answer = through.get(COLLECTION).await.expect("an answer");
            assert_eq!(answer.status, 200, "{}", answer.excerpt());
            let shown =
                names(&answer.json().unwrap_or_else(|error| panic!("{damage:?}: {error:#}")));
            assert!(shown.is_subset(&before), "{damage:?}\n{}", proxy.log());
            (reads, hits) = (reads + 1, hits + usize::from(answer.is_hit()));
            tokio::time::sleep(PAUSE_OF_POLLER).await;
        }
        balancer.damage.store(Damage::None as u8, Ordering::Relaxed);
        // The rest of a damaged event is noticed with the next one.
        write(&straight, &format!("new-{round}-after"), 1).await.expect("writes");
        let begun = Instant::now();
        let expected: BTreeSet<_> =
            names(&straight.get(COLLECTION).await.expect("a list").json().expect("JSON"));
        // A kind that is not understood is forwarded from then on.
        let forwarded = damage == Damage::OtherKind;
        until("the answer has everything", RECOVERY, async || {
            let answer = through.get(COLLECTION).await?;
            Ok((forwarded || answer.is_hit()) && names(&answer.json()?) == expected)
        })
        .await
        .unwrap_or_else(|error| panic!("{damage:?}: {error:#}\n{}", proxy.log()));
        let damaged = balancer.count.load(Ordering::Relaxed) - before;
        assert!(damaged > 0, "{damage:?}: no event was damaged");
        told.push(format!(
            "{damage:?}: {damaged} events, {hits} of {reads} reads from memory, then after {:.1?}",
            begun.elapsed()
        ));
    }
    eprintln!("proof: damaged watches on {}: {told:?}", version.name());
}

// === impl Balancer ===

impl Balancer {
    /// Listens, with certificates of its own.
    async fn serve(self: &Arc<Self>) -> Result<Server> {
        let now = SystemTime::now();
        let authority = tls::Authority::generate(now)?;
        let acceptor = tls::Server::new(authority.issue(&tls::Names::of_apiserver(""), now)?)?;
        let acceptor = TlsAcceptor::from(Arc::clone(&acceptor.current()));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("https://{}", listener.local_addr()?);
        let balancer = Arc::clone(self);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&balancer).connection(acceptor.clone(), stream));
            }
        });
        Server::new(&address, authority.pem().as_bytes())
    }

    async fn connection(self: Arc<Self>, acceptor: TlsAcceptor, stream: TcpStream) {
        let Ok(stream) = acceptor.accept(stream).await else { return };
        let service = service_fn(move |request| Arc::clone(&self).pass(request));
        let server = auto::Builder::new(TokioExecutor::new());
        // A client that hangs up ends it.
        _ = server.serve_connection(TokioIo::new(stream), service).await;
    }

    async fn pass(
        self: Arc<Self>,
        request: HttpRequest<Incoming>,
    ) -> Result<Response<BoxBody<Bytes, hyper::Error>>, Infallible> {
        let (head, body) = request.into_parts();
        let target = head.uri.path_and_query().map_or("/", |it| it.as_str()).to_owned();
        let is_watch = target.contains("watch=");
        let mut asked = Request::new(head.method, &target);
        for (name, value) in &head.headers {
            let hop = ["host", "content-length", "connection"].contains(&name.as_str());
            if let Some(value) = value.to_str().ok().filter(|_| !hop) {
                asked = asked.header(name.as_str(), value);
            }
        }
        asked.body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
        let Ok(answer) = self.apiserver.open(asked).await else {
            let gone =
                Full::new(Bytes::from_static(b"no apiserver")).map_err(|never| match never {});
            let mut gone = Response::new(gone.boxed());
            *gone.status_mut() = http::StatusCode::BAD_GATEWAY;
            return Ok(gone);
        };
        Ok(answer.map(|body| {
            if is_watch {
                body.map_frame(move |frame| self.damaged(frame)).boxed()
            } else {
                body.boxed()
            }
        }))
    }

    fn damaged(&self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let damage = self.damage.load(Ordering::Relaxed);
        let Ok(data) = frame.into_data() else { return Frame::data(Bytes::new()) };
        let text = String::from_utf8_lossy(&data);
        let damaged = match damage {
            _ if !text.contains("new-") => return Frame::data(data),
            it if it == Damage::CutOff as u8 => text[..data.len() / 2].to_owned(),
            it if it == Damage::NotJson as u8 => text.replace("\"metadata\"", "\"metadata"),
            it if it == Damage::Page as u8 => "<html>Bad Gateway</html>\n".to_owned(),
            it if it == Damage::OtherKind as u8 => text.replace("\"ConfigMap\"", "\"Secret\""),
            _ => return Frame::data(data),
        };
        self.count.fetch_add(1, Ordering::Relaxed);
        Frame::data(Bytes::from(damaged))
    }
}
