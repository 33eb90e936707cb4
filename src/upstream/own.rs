//! Requests with Listless's own identity.
//!
//! Invariant: any identity in a request is removed before Listless's own is added. A caller is
//! never confused with Listless.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode, header::AUTHORIZATION};
use rustls::ClientConfig;
use tokio::time::Instant;
use tracing::warn;

use super::{
    Client, Error, Lane, Pool,
    identity::{Credentials, Refreshed},
};
use crate::body::Body;

/// A [`Client`] that sends every request with Listless's own credentials.
#[derive(Clone)]
pub struct Own {
    pool: Pool,
    credentials: Credentials,
    /// The TLS configuration with the client certificate that the pool uses.
    certificate: Arc<ArcSwapOption<ClientConfig>>,
    impersonation: Impersonation,
}

/// The treatment of a request's own `Impersonate-*` headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Impersonation {
    Removed,
    /// They take precedence: the apiserver decides whether Listless may act as that user.
    Kept,
}

// === impl Own ===

impl Own {
    pub(super) fn new(pool: Pool, credentials: Credentials) -> Self {
        let certificate = Arc::new(ArcSwapOption::new(credentials.tls()));
        Self { pool, credentials, certificate, impersonation: Impersonation::Removed }
    }

    /// Allows requests of Listless's own user to impersonate.
    #[must_use]
    pub fn allowing_impersonation(mut self) -> Self {
        self.impersonation = Impersonation::Kept;
        self
    }

    async fn send(self, request: Request<Body>, lane: Lane) -> Result<Response<Body>, Error> {
        let (mut head, body) = request.into_parts();
        self.introduce(&mut head.headers);
        let again = http_body::Body::is_end_stream(&body).then(|| head.clone());
        let sent_at = Instant::now();
        let request = self.signed(Request::from_parts(head, body)).await?;
        let response = self.pool.send(request, lane).await?;
        if response.status() != StatusCode::UNAUTHORIZED || !self.refreshed(sent_at).await {
            return Ok(response);
        }
        match again {
            None => Ok(response),
            Some(head) => {
                let request = self.signed(Request::from_parts(head, Body::empty())).await?;
                self.pool.send(request, lane).await
            }
        }
    }

    async fn upgrade(self, mut request: Request<Body>) -> Result<Response<Body>, Error> {
        self.introduce(request.headers_mut());
        let request = self.signed(request).await?;
        self.pool.upgrade(request).await
    }

    /// Replaces the identity that the request claims.
    fn introduce(&self, headers: &mut HeaderMap) {
        let own = self.credentials.impersonation();
        let is_ignored = !own.is_empty() && !names_one_user(headers);
        let is_claim =
            |name: &&HeaderName| self.is_claim(name) || is_ignored && is_impersonation(name);
        let claims: Vec<_> = headers.keys().filter(is_claim).cloned().collect();
        for name in &claims {
            headers.remove(name);
        }
        if !headers.keys().any(is_impersonation) {
            headers.extend(own.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
    }

    fn is_claim(&self, name: &HeaderName) -> bool {
        name == AUTHORIZATION
            || name.as_str().starts_with("x-remote-")
            || self.impersonation == Impersonation::Removed && is_impersonation(name)
    }

    async fn signed(&self, mut request: Request<Body>) -> Result<Request<Body>, Error> {
        let authorization = self.credentials.authorization().await;
        if let Some(value) = authorization.map_err(|error| Error::Credentials(error.into()))? {
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        self.install_certificate();
        Ok(request)
    }

    /// Uses a renewed client certificate. Only then has Listless connections of its own.
    fn install_certificate(&self) {
        let Some(tls) = self.credentials.tls() else { return };
        if self.certificate.load().as_ref().is_none_or(|used| !Arc::ptr_eq(used, &tls)) {
            self.pool.replace_tls(&tls);
            self.certificate.store(Some(tls));
        }
    }

    /// Renews the credentials after a refusal; reports whether a retry makes sense.
    async fn refreshed(&self, sent_at: Instant) -> bool {
        match self.credentials.refresh(sent_at).await {
            Ok(refreshed) => refreshed == Refreshed::Yes,
            Err(error) => {
                warn!(%error, "the apiserver refused the credentials, and their renewal failed");
                false
            }
        }
    }
}

fn is_impersonation(name: &HeaderName) -> bool {
    name.as_str().starts_with("impersonate-")
}

impl Client for Own {
    fn send(
        &self,
        request: Request<Body>,
        lane: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        Box::pin(self.clone().send(request, lane))
    }

    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        Box::pin(self.clone().upgrade(request))
    }
}
/// Reports whether the apiserver will act as another user: it ignores unknown impersonation headers
/// and an empty user.
fn names_one_user(headers: &HeaderMap) -> bool {
    let mut users = headers.get_all("impersonate-user").iter();
    let named = users.next().is_some_and(|user| !user.as_bytes().trim_ascii().is_empty());
    named && users.next().is_none()
}
