//! Calls the webhook's server directly, for its certificate and its response.

use std::{
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::Vantage;
use crate::{
    check::{
        contact::Contact,
        trial::{self, Came},
        webhook::{Webhook, WebhookAddress},
    },
    error::Chain,
    tls,
};

/// The address of the server and the name that it must prove.
pub(super) struct Server {
    /// The host. `None` if the address may belong to another host.
    host: Option<String>,
    port: u16,
    /// The name in its certificate.
    name: String,
    path: String,
}

/// The failure of a connection.
enum Broken {
    /// No server answered.
    Unreached(String),
    /// The server could not prove the name.
    Refused(String),
}

/// The timeout of each step. The apiserver waits five seconds in all.
const PATIENCE: Duration = Duration::from_secs(3);
/// The maximum size of a response.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// The cluster IP of a headless Service.
const HEADLESS: &str = "None";

// === impl Server ===

impl Server {
    /// Returns the server that the apiserver calls.
    pub(super) fn of(
        webhook: &Webhook,
        service: Option<&Value>,
        vantage: Vantage,
    ) -> Result<Self, String> {
        match &webhook.place {
            WebhookAddress::Url(url) => {
                let uri: Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
                let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
                let port = uri.port_u16().unwrap_or(443);
                let path = uri.path().to_owned();
                Ok(Self { name: host.clone(), host: Some(host), port, path })
            }
            WebhookAddress::Service { namespace, name, port, path } => {
                let address = service.and_then(|service| service["spec"]["clusterIP"].as_str());
                let address = address.filter(|address| !address.is_empty() && *address != HEADLESS);
                let host = address.filter(|_| vantage == Vantage::Pod).map(str::to_owned);
                let name = format!("{name}.{namespace}.svc");
                Ok(Self { host, port: *port, name, path: path.clone() })
            }
        }
    }

    /// Performs a TLS handshake as the apiserver does.
    pub(super) async fn contact(&self, bundle: &str) -> Contact {
        match self.connected(bundle).await {
            Ok(stream) => {
                let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
                Contact::Trusted { until: chain.first().and_then(tls::expires) }
            }
            Err(Broken::Refused(why)) => Contact::Refused(why),
            Err(Broken::Unreached(why)) => Contact::Unreached(why),
        }
    }

    /// Returns the certificate that the injector's Secret stores.
    pub(super) fn kept(&self, bundle: &str, secret: &Value, why: String) -> Contact {
        let decoded =
            secret["data"]["tls.crt"].as_str().and_then(|text| STANDARD.decode(text).ok());
        let Some(pem) = decoded.and_then(|bytes| String::from_utf8(bytes).ok()) else {
            return Contact::Unreached(why);
        };
        let chain = tls::certificates(&pem);
        let trusted = tls::is_trusted(&chain, bundle, &self.name, SystemTime::now());
        Contact::Kept { why, trusted, until: chain.first().and_then(tls::expires) }
    }

    /// Sends an admission review for a pod. Returns `None` without a response.
    pub(super) async fn asked(&self, bundle: &str, question: &Value) -> Option<Came> {
        let stream = self.connected(bundle).await.ok()?;
        let answer = async {
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            let request = Request::post(&self.path)
                .header(header::HOST, &self.name)
                .header(header::CONTENT_TYPE, "application/json")
                .body(Full::new(Bytes::from(question.to_string())))
                .map_err(anyhow::Error::from)?;
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(anyhow::Error::from_boxed)?.to_bytes();
            anyhow::ensure!(status.is_success(), "{status}");
            Ok::<Value, anyhow::Error>(serde_json::from_slice(&body)?)
        };
        Some(match timeout(PATIENCE, answer).await {
            Ok(Ok(review)) => trial::answered(&review),
            Ok(Err(error)) => Came::Refused(Chain(error.as_ref()).to_string()),
            Err(_) => Came::Refused(format!("no response within {PATIENCE:?}")),
        })
    }

    async fn connected(&self, bundle: &str) -> Result<TlsStream<TcpStream>, Broken> {
        let config = tls::client_config(bundle.as_bytes());
        let config = config.map_err(|error| Broken::Refused(Chain(&error).to_string()))?;
        let name = ServerName::try_from(self.name.clone());
        let name = name.map_err(|error| Broken::Refused(format!("{}: {error}", self.name)))?;
        let host = self.host.as_deref().ok_or_else(|| {
            Broken::Unreached("its Service has an address only within the cluster".to_owned())
        })?;
        let stream = timeout(PATIENCE, TcpStream::connect((host, self.port))).await;
        let stream = match stream {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(Broken::Unreached(error.to_string())),
            Err(_) => return Err(Broken::Unreached(format!("no connection within {PATIENCE:?}"))),
        };
        shaken(config, name, stream).await
    }
}

async fn shaken(
    config: ClientConfig,
    name: ServerName<'static>,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, Broken> {
    match timeout(PATIENCE, TlsConnector::from(Arc::new(config)).connect(name, stream)).await {
        Ok(Ok(stream)) => Ok(stream),
        // A server that hangs up has not shown another certificate.
        Ok(Err(error)) if error.kind() != io::ErrorKind::InvalidData => {
            Err(Broken::Unreached(error.to_string()))
        }
        Ok(Err(error)) => Err(Broken::Refused(error.to_string())),
        Err(_) => Err(Broken::Unreached(format!("no handshake within {PATIENCE:?}"))),
    }
}
