//! The baseline of this machine: a bare HTTP server and relay from the same libraries, without any
//! Kubernetes code.
//!
//! It serves the responses it was started with, and forwards every other request over one HTTP/2
//! connection, like Listless. It runs as a process of its own: this program, started again.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderName, Request, Response, Uri, header};
use http_body_util::StreamBody;
use hyper::{
    body::{Frame, Incoming},
    client, server,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use listless::{
    body::{Body, BoxError},
    tls::{self, Authority, Names},
};
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Mutex, broadcast},
};
use tokio_rustls::TlsAcceptor;

use crate::{form::Form, rig::process::Process, wire::Endpoint};

/// The argument that runs this program as the server.
pub(crate) const FLAG: &str = "--bare-server";

const START_LIMIT: Duration = Duration::from_secs(20);
const AUTHORITY_FILE: &str = "ca.pem";
const ADDRESS_FILE: &str = "address";
/// The prefix of files with a form and a target on the first line and their response below.
const ANSWER_PREFIX: &str = "answer-";

/// A request for this path receives its event whenever somebody requests [`TELL`].
pub(crate) const WATCH: &str = "/watch";
pub(crate) const TELL: &str = "/tell";
/// The maximum number of unread events per watcher.
const UNREAD_MAX: usize = 64;

/// The headers of a response from memory, besides type, length and date.
const HEADERS: [(HeaderName, &str); 3] = [
    (HeaderName::from_static("audit-id"), "00000000-0000-4000-8000-000000000000"),
    (header::CACHE_CONTROL, "no-cache, private"),
    (HeaderName::from_static("cache-status"), "listless; hit; detail=session"),
];

/// The running server.
pub(crate) struct Bare {
    pub(crate) endpoint: Endpoint,
    process: Process,
    // Declared last: it is removed after the process has ended.
    _folder: TempDir,
}

/// A response of the server.
pub(crate) struct Kept {
    pub(crate) form: Form,
    pub(crate) target: String,
    pub(crate) body: Bytes,
}

type Upstream = client::conn::http2::SendRequest<Incoming>;

/// The responses in each form by their targets.
type Answers = HashMap<Form, HashMap<String, Bytes>>;

/// The content of the server.
struct Served {
    answers: Answers,
    told: broadcast::Sender<()>,
    upstream: Endpoint,
}

// === impl Bare ===

impl Bare {
    /// Starts the server with these responses, in front of the apiserver of `kubeconfig`.
    pub(crate) fn start(
        kubeconfig: &Path,
        upstream: &Endpoint,
        answers: impl Iterator<Item = Kept>,
    ) -> Result<Self> {
        let folder = TempDir::with_prefix("listless-bare-")?;
        for (number, Kept { form, target, body }) in answers.enumerate() {
            let file = folder.path().join(format!("{ANSWER_PREFIX}{number}"));
            fs::write(
                file,
                [form.name().as_bytes(), b" ", target.as_bytes(), b"\n", &body].concat(),
            )?;
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(FLAG).arg(folder.path()).arg(kubeconfig);
        let process = Process::start("bare", command, &folder.path().join("log"))?;
        let address = folder.path().join(ADDRESS_FILE);
        let begun = Instant::now();
        while !address.exists() {
            ensure!(
                begun.elapsed() < START_LIMIT,
                "cannot start the bare server: {}",
                process.log_tail(20)
            );
            std::thread::yield_now();
        }
        let pem = fs::read(folder.path().join(AUTHORITY_FILE))?;
        let endpoint = upstream.at(&fs::read_to_string(address)?, tls::roots(&pem)?);
        Ok(Self { endpoint, process, _folder: folder })
    }

    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        self.process.cpu_seconds()
    }

    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        self.process.resident_bytes()
    }
}

/// Runs the server until it is killed.
pub(crate) fn serve(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let (Some(folder), Some(kubeconfig)) = (arguments.next(), arguments.next()) else {
        bail!("{FLAG} is for this program only");
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(listen(&PathBuf::from(folder), &PathBuf::from(kubeconfig)))
}

async fn listen(folder: &Path, kubeconfig: &Path) -> Result<()> {
    let authority = Authority::generate(SystemTime::now())?;
    let leaf = authority.issue(&Names::of_apiserver(""), SystemTime::now())?;
    let tls = TlsAcceptor::from(tls::Server::new(leaf)?.current());
    let upstream = Endpoint::from_kubeconfig(kubeconfig)?;
    #[expect(clippy::disallowed_methods, reason = "the load counts the events of its watchers")]
    let told = broadcast::Sender::new(UNREAD_MAX);
    let served = Arc::new(Served { answers: answers(folder)?, told, upstream });
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    fs::write(folder.join(AUTHORITY_FILE), authority.pem())?;
    // It is written under another name first, so that a waiting reader finds it complete.
    let unfinished = folder.join("unfinished");
    fs::write(&unfinished, listener.local_addr()?.to_string())?;
    fs::rename(unfinished, folder.join(ADDRESS_FILE))?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(connection(tls.clone(), stream, Arc::clone(&served)));
    }
}

fn answers(folder: &Path) -> Result<Answers> {
    let mut answers = Answers::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(ANSWER_PREFIX) {
            continue;
        }
        let file = Bytes::from(fs::read(entry.path())?);
        let end = memchr::memchr(b'\n', &file).context("no target")?;
        let line = std::str::from_utf8(&file[..end])?;
        let (form, target) = line.split_once(' ').context("no form")?;
        let form = Form::named(form).context("an unknown form")?;
        answers.entry(form).or_default().insert(target.to_owned(), file.slice(end + 1..));
    }
    Ok(answers)
}

async fn connection(tls: TlsAcceptor, stream: TcpStream, served: Arc<Served>) -> Result<()> {
    let stream = TokioIo::new(tls.accept(stream).await?);
    let upstream = Arc::new(Mutex::new(None));
    let service = service_fn(move |request: Request<Incoming>| {
        let (served, upstream) = (Arc::clone(&served), Arc::clone(&upstream));
        async move {
            let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
            let form = Form::accepted(request.headers()).unwrap_or(Form::Json);
            match (target, served.answers.get(&form).and_then(|answers| answers.get(target))) {
                (WATCH, Some(event)) => Ok(answered(form, served.follow(event.clone()))),
                (TELL, None) => {
                    // It fails if there is no watcher.
                    let _ = served.told.send(());
                    Ok(answered(form, Body::empty()))
                }
                (_, Some(body)) => Ok(answered(form, Body::full(body.clone()))),
                (_, None) => pass_on(&served.upstream, &mut *upstream.lock().await, request).await,
            }
        }
    });
    Ok(server::conn::http1::Builder::new().serve_connection(stream, service).await?)
}

// === impl Served ===

impl Served {
    /// Returns a body that receives this event on each request for [`TELL`].
    fn follow(&self, event: Bytes) -> Body {
        let told = stream::unfold((self.told.subscribe(), event), |(mut told, event)| async move {
            told.recv().await.ok()?;
            Some((Ok::<_, BoxError>(Frame::data(event.clone())), (told, event)))
        });
        Body::wrap(StreamBody::new(told))
    }
}

fn answered(form: Form, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    for (name, value) in HEADERS.into_iter().chain([(header::CONTENT_TYPE, form.content_type())]) {
        response.headers_mut().insert(name, http::HeaderValue::from_static(value));
    }
    response
}

async fn pass_on(
    endpoint: &Endpoint,
    upstream: &mut Option<Upstream>,
    mut request: Request<Incoming>,
) -> Result<Response<Body>> {
    let sender = match upstream {
        Some(sender) => sender,
        None => upstream.insert(connect(endpoint).await?),
    };
    sender.ready().await?;
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let uri = Uri::builder().scheme("https").authority(endpoint.authority.as_str());
    *request.uri_mut() = uri.path_and_query(target).build()?;
    request.headers_mut().remove(header::HOST);
    let mut response = sender.send_request(request).await?.map(Body::incoming);
    let said = http::HeaderValue::from_static("bare; fwd=bypass");
    response.headers_mut().insert("cache-status", said);
    Ok(response)
}

async fn connect(endpoint: &Endpoint) -> Result<Upstream> {
    let stream = endpoint.connect(b"h2").await?;
    let (sender, connection) =
        client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}
