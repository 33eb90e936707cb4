//! Listless's own credentials: an Authorization header that stays fresh, and a client certificate.
//!
//! Invariants: no credential can be printed. Files are read again as they rotate. Plugins run on
//! threads that may block, one at a time, and never for each refused request. A run goes on if those
//! who wait for it leave.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Request, Response, header::AUTHORIZATION};
use kube::{
    client::ConfigExt,
    config::{AuthInfo, Config},
};
use rustls::ClientConfig;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, util::BoxCloneSyncService};

use super::{
    fault::{CredentialsError, NOT_A_TOKEN},
    flight::Flight,
};
use crate::{
    body::{Body, BoxError},
    metrics::{Metrics, Outcome},
    upstream::expiry,
};

/// The time for which a token from a file is used; the kubelet renews it long before its expiry.
const TOKEN_FILE_LIFETIME: Duration = Duration::from_secs(60);

/// The shortest interval between renewals of refused credentials.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// Listless's own credentials for one apiserver.
#[derive(Clone)]
pub(in crate::upstream) struct Credentials(Arc<Shared>);

struct Shared {
    config: Config,
    /// The headers for `as`, `as-groups` and the like of a kubeconfig's user.
    impersonation: HeaderMap,
    token_file: Option<PathBuf>,
    current: ArcSwap<Current>,
    /// The renewal of the credentials in progress.
    obtaining: Flight<Result<(), CredentialsError>>,
    /// The renewal in progress of a credential that renews itself.
    renewing: Flight<Result<Option<HeaderValue>, CredentialsError>>,
    /// The metrics of a service account's token.
    metrics: OnceLock<Metrics>,
}

/// The last credentials.
struct Current {
    header: Header,
    tls: Option<Arc<ClientConfig>>,
    obtained_at: Instant,
}

#[derive(Clone)]
enum Header {
    None,
    Fixed(HeaderValue),
    /// A credential of the `kube` crate, which renews itself before its expiry.
    Renewing(BoxCloneSyncService<Request<Body>, Response<Option<HeaderValue>>, BoxError>),
}

/// The result of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum Refreshed {
    /// The credentials differ from the refused ones: a retry may succeed.
    Yes,
    /// The credentials were renewed only just now.
    No,
}

// === impl Credentials ===

impl Credentials {
    pub(super) async fn new(
        mut config: Config,
        token_file: Option<PathBuf>,
    ) -> Result<Self, CredentialsError> {
        let token_file = token_file.or_else(|| plain_token_file(&config.auth_info));
        if let Some(token) = config.auth_info.token.take() {
            config.auth_info.token = Some(checked(&token)?);
        }
        let impersonation = impersonation(&config).await?;
        let current = obtain(&config, token_file.as_ref()).await?;
        Ok(Self(Arc::new(Shared {
            config,
            impersonation,
            token_file,
            current: ArcSwap::from_pointee(current),
            obtaining: Flight::new(),
            renewing: Flight::new(),
            metrics: OnceLock::new(),
        })))
    }

    /// Publishes metrics of a service account's token, now and whenever it is read again.
    pub(super) fn metered(&self, metrics: Metrics) {
        self.0.current.load().header.tell_expiry(&metrics);
        self.0.metrics.get_or_init(|| metrics);
    }

    /// Returns the current value of the Authorization header.
    pub(in crate::upstream) async fn authorization(
        &self,
    ) -> Result<Option<HeaderValue>, CredentialsError> {
        let mut current = self.0.current.load_full();
        if self.0.token_file.is_some() && current.obtained_at.elapsed() > TOKEN_FILE_LIFETIME {
            // If a file cannot be read for the moment, the current token stays in use.
            let _ = self.obtain_after(current.obtained_at).await;
            current = self.0.current.load_full();
        }
        match self.value(&current.header).await {
            // A plugin may return another kind of credential than before.
            Err(_) if current.obtained_at.elapsed() >= REFRESH_INTERVAL => {
                self.obtain_after(current.obtained_at).await?;
                self.value(&self.0.current.load_full().header).await
            }
            value => value,
        }
    }

    async fn value(&self, header: &Header) -> Result<Option<HeaderValue>, CredentialsError> {
        match header {
            Header::None => Ok(None),
            Header::Fixed(value) => Ok(Some(value.clone())),
            Header::Renewing(service) => {
                let (service, shared) = (service.clone(), Arc::clone(&self.0));
                let renewal = async move {
                    let renewed = service.oneshot(Request::new(Body::empty())).await;
                    let user = &shared.config.auth_info;
                    renewed.map(Response::into_body).map_err(|e| CredentialsError::of(&*e, user))
                };
                self.0.renewing.join(|| renewal.boxed()).await
            }
        }
    }

    /// Returns the headers of every own request.
    pub(in crate::upstream) fn impersonation(&self) -> &HeaderMap {
        &self.0.impersonation
    }

    /// Returns the TLS configuration with Listless's client certificate, if it has one.
    pub(in crate::upstream) fn tls(&self) -> Option<Arc<ClientConfig>> {
        self.0.current.load().tls.clone()
    }

    /// Reports whether they include a client certificate, or may do so later.
    pub(in crate::upstream) fn may_have_certificate(&self) -> bool {
        has_certificate(&self.0.config.auth_info)
    }

    /// Renews the credentials because the apiserver refused a request sent at `sent_at`.
    pub(in crate::upstream) async fn refresh(
        &self,
        sent_at: Instant,
    ) -> Result<Refreshed, CredentialsError> {
        let obtained_at = self.0.current.load().obtained_at;
        if obtained_at > sent_at {
            return Ok(Refreshed::Yes);
        }
        if obtained_at.elapsed() < REFRESH_INTERVAL {
            return Ok(Refreshed::No);
        }
        self.obtain_after(obtained_at).await?;
        Ok(Refreshed::Yes)
    }

    /// Replaces credentials obtained at `known`, unless another task has done it meanwhile.
    async fn obtain_after(&self, known: Instant) -> Result<(), CredentialsError> {
        let this = self.clone();
        self.0.obtaining.join(|| async move { this.replace(known).await }.boxed()).await
    }

    async fn replace(&self, known: Instant) -> Result<(), CredentialsError> {
        if self.0.current.load().obtained_at != known {
            return Ok(());
        }
        let obtained = obtain(&self.0.config, self.0.token_file.as_ref()).await;
        self.tell(obtained.as_ref().ok());
        let current = match obtained {
            Ok(current) => current,
            Err(error) => {
                // It waits before a retry: a failure now would repeat in a moment.
                let old = self.0.current.load_full();
                let (header, tls) = (old.header.clone(), old.tls.clone());
                self.0.current.store(Arc::new(Current {
                    header,
                    tls,
                    obtained_at: Instant::now(),
                }));
                return Err(error);
            }
        };
        self.0.current.store(Arc::new(current));
        Ok(())
    }

    /// Publishes metrics of new credentials, unless they equal the old ones.
    fn tell(&self, obtained: Option<&Current>) {
        let Some(metrics) = self.0.metrics.get() else { return };
        let Some(current) = obtained else {
            metrics.token_reloaded(Outcome::Failure);
            return;
        };
        if current.header.fixed() != self.0.current.load().header.fixed() {
            metrics.token_reloaded(Outcome::Success);
            current.header.tell_expiry(metrics);
        }
    }
}

// === impl Header ===

impl Header {
    fn fixed(&self) -> Option<&HeaderValue> {
        match self {
            Self::Fixed(value) => Some(value),
            Self::None | Self::Renewing(_) => None,
        }
    }

    fn tell_expiry(&self, metrics: &Metrics) {
        let end = self.fixed().and_then(expiry::unix_seconds);
        let since = end.and_then(|end| Duration::try_from_secs_f64(end).ok());
        if let Some(at) = since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since)) {
            metrics.token_expires(at);
        }
    }
}

/// Returns the token file of a user, if no other credential takes precedence.
fn plain_token_file(user: &AuthInfo) -> Option<PathBuf> {
    let other = user.auth_provider.is_some() || user.username.is_some() || user.token.is_some();
    user.token_file.as_ref().filter(|_| !other).map(PathBuf::from)
}

async fn obtain(
    config: &Config,
    token_file: Option<&PathBuf>,
) -> Result<Current, CredentialsError> {
    let user = &config.auth_info;
    let of = |error: BoxError| CredentialsError::of(&*error, user);
    let header = match token_file {
        Some(path) => Header::Fixed(read_token(path).await?),
        None => from_user(config).await.map_err(of)?,
    };
    // A plugin that returned a token would only be run once more for a certificate.
    let ask = matches!(header, Header::None);
    let tls = certificate(config, ask).await.map_err(of)?;
    // The library hides the failure of a plugin that is run for its certificate.
    if ask && tls.is_none() && user.exec.is_some() {
        return Err(CredentialsError::new("exec returned neither a token nor a certificate"));
    }
    Ok(Current { header, tls, obtained_at: Instant::now() })
}

async fn read_token(path: &PathBuf) -> Result<HeaderValue, CredentialsError> {
    let unusable =
        |reason: &str| CredentialsError::new(format!("token file {}: {reason}", path.display()));
    let text = tokio::fs::read_to_string(path).await.map_err(|e| unusable(&e.to_string()))?;
    let token = text.trim();
    // A writer may have emptied it to write it again.
    if token.is_empty() {
        return Err(unusable("it is empty"));
    }
    let mut value = bearer(token).ok_or_else(|| unusable(NOT_A_TOKEN))?;
    value.set_sensitive(true);
    Ok(value)
}

fn bearer(token: &str) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("Bearer {token}")).ok()
}

/// Checks a token of a kubeconfig, with which the library would panic otherwise.
fn checked(token: &SecretString) -> Result<SecretString, CredentialsError> {
    let token = token.expose_secret().trim();
    match bearer(token) {
        Some(_) => Ok(token.into()),
        None => Err(CredentialsError::new(NOT_A_TOKEN)),
    }
}

/// Returns the user's other credentials; may run a plugin.
async fn from_user(config: &Config) -> Result<Header, BoxError> {
    let layer = if runs_a_plugin(&config.auth_info) {
        let config = config.clone();
        tokio::task::spawn_blocking(move || config.auth_layer()).await??
    } else {
        config.auth_layer()?
    };
    let Some(layer) = layer else { return Ok(Header::None) };
    let service = layer.layer(tower::service_fn(|request: Request<Body>| async move {
        Ok::<_, BoxError>(Response::new(request.headers().get(AUTHORIZATION).cloned()))
    }));
    let service = BoxCloneSyncService::new(service);
    if runs_a_plugin(&config.auth_info) || config.auth_info.token_file.is_some() {
        return Ok(Header::Renewing(service));
    }
    let header = service.oneshot(Request::new(Body::empty())).await?.into_body();
    Ok(header.map_or(Header::None, Header::Fixed))
}

/// Returns a TLS configuration with the user's certificate, if it has one; a plugin runs for it if
/// `ask`.
async fn certificate(config: &Config, ask: bool) -> Result<Option<Arc<ClientConfig>>, BoxError> {
    let mut config = config.clone();
    if !ask {
        config.auth_info.exec = None;
    }
    config.auth_info.auth_provider = None;
    if !has_certificate(&config.auth_info) {
        return Ok(None);
    }
    let tls = tokio::task::spawn_blocking(move || super::client_config(&config)).await??;
    Ok(tls.client_auth_cert_resolver.has_certs().then(|| Arc::new(tls)))
}

/// Reports whether the credentials come from a plugin, which may take long.
fn runs_a_plugin(user: &AuthInfo) -> bool {
    user.exec.is_some() || user.auth_provider.is_some()
}

/// Reports whether the user has a certificate, or a plugin that may return one.
fn has_certificate(user: &AuthInfo) -> bool {
    let own = user.client_certificate.is_some() || user.client_certificate_data.is_some();
    own || user.exec.is_some()
}

async fn impersonation(config: &Config) -> Result<HeaderMap, CredentialsError> {
    let unusable = |error: &dyn std::fmt::Display| CredentialsError::new(format!("as: {error}"));
    let layer = config.extra_headers_layer().map_err(|error| unusable(&error))?;
    let service = layer.layer(tower::service_fn(|request: Request<Body>| async move {
        Ok::<_, BoxError>(request.headers().clone())
    }));
    service.oneshot(Request::new(Body::empty())).await.map_err(|error| unusable(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn header(user: &str) -> Header {
        let mut config = Config::new(http::Uri::from_static("https://apiserver.test"));
        config.auth_info = serde_json::from_str(user).expect("a user of a kubeconfig");
        from_user(&config).await.expect("credentials")
    }

    #[tokio::test]
    async fn only_a_credential_that_can_change_is_asked_for_with_each_request() {
        for user in [r#"{"token": "t"}"#, r#"{"username": "a", "password": "b"}"#] {
            let header = header(user).await;
            assert!(header.fixed().is_some_and(HeaderValue::is_sensitive), "{user}");
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "t").expect("a file");
        let user = serde_json::json!({ "tokenFile": file.path() }).to_string();
        assert!(matches!(header(&user).await, Header::Renewing(_)), "{user}");
        assert!(matches!(header("{}").await, Header::None));
    }
}
