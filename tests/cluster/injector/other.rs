//! A webhook of another product: it adds a container to every pod.

use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use listless::tls;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

pub(super) struct Other {
    address: String,
    bundle: String,
    task: tokio::task::JoinHandle<()>,
}

// === impl Other ===

impl Other {
    /// Serves until it is dropped; `name` is that of the container.
    pub(super) async fn start(name: &'static str) -> Result<Self> {
        Self::start_as_of(name, SystemTime::now()).await
    }

    /// The same with certificates that were made at another time.
    pub(super) async fn start_as_of(name: &'static str, now: SystemTime) -> Result<Self> {
        let authority = tls::Authority::generate(now)?;
        let leaf = authority.issue(&tls::Names::of_apiserver(""), now)?;
        let server = tls::Server::new(leaf)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let bundle = STANDARD.encode(authority.pem());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = TlsAcceptor::from(Arc::clone(&server.current()));
                tokio::spawn(serve(acceptor, stream, name));
            }
        });
        Ok(Self { address, bundle, task })
    }

    pub(super) fn url(&self) -> String {
        format!("https://{}/", self.address)
    }

    /// The CA bundle, as a webhook configuration contains it.
    pub(super) fn bundle(&self) -> String {
        self.bundle.clone()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, name: &'static str) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(move |request| answer(request, name));
    let served = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        eprintln!("the other webhook: {error}");
    }
}

async fn answer(
    request: Request<Incoming>,
    name: &'static str,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let question: Value = serde_json::from_slice(&body).unwrap_or_default();
    let pod = &question["request"]["object"];
    let containers = pod["spec"]["containers"].as_array().map_or(&[][..], Vec::as_slice);
    let mut response = json!({"uid": question["request"]["uid"], "allowed": true});
    if containers.iter().all(|container| container["name"] != name) {
        let container = json!({"name": name, "image": "example.com/other"});
        let patch = json!([{"op": "add", "path": "/spec/containers/-", "value": container}]);
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(STANDARD.encode(patch.to_string()));
    }
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    Ok(response)
}
