//! The credentials that the apiserver accepted.
//!
//! The apiserver closes HTTP/2 connections over which it answers 401, or an anonymous request. A
//! request therefore shares connections with others only if its credential was accepted before.
//! Invariant: nothing is stored of a credential that was not accepted.

use std::{
    collections::HashSet,
    hash::BuildHasher,
    sync::{Mutex, MutexGuard, PoisonError},
};

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::AUTHORIZATION,
};

use crate::{hash::RandomState, websocket::has_bearer};

/// The accepted credentials of one pool, each as a keyed hash of eight bytes.
#[derive(Default)]
pub(super) struct Trust {
    accepted: Mutex<Accepted>,
    hasher: RandomState,
}

/// Two generations: the older one is dropped when the younger one is full.
#[derive(Default)]
struct Accepted {
    young: HashSet<u64, RandomState>,
    old: HashSet<u64, RandomState>,
}

/// The key of a request's credential, if it is one bearer token and nothing else.
#[derive(Clone, Copy)]
pub(super) struct Credential(Option<u64>);

/// Every apiserver sets it in each response; whatever stands before one does not.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The apiserver's judgement of a bearer token, as the status of a response shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It knows the token.
    Accepted,
    /// It does not know the token.
    Refused,
    /// The status shows neither.
    Unknown,
}

/// The limit of credentials in a generation.
const GENERATION_MAX: usize = 8192;

// === impl Trust ===

impl Trust {
    pub(super) fn credential<B>(&self, request: &Request<B>) -> Credential {
        let headers = request.headers();
        let mut all = headers.get_all(AUTHORIZATION).iter();
        match (all.next(), all.next()) {
            // The apiserver may accept the second credential, or answer before it checks any.
            _ if has_bearer(headers) || request.method() == Method::OPTIONS => Credential(None),
            (Some(one), None) if is_bearer_token(one) => {
                Credential(Some(self.hasher.hash_one(one.as_bytes())))
            }
            // The apiserver treats any other credential as anonymous.
            _ => Credential(None),
        }
    }

    /// Returns its key if the apiserver has accepted it and not refused it since.
    pub(super) fn accepted(&self, credential: Credential) -> Option<u64> {
        credential.0.filter(|key| self.lock().has(*key))
    }

    /// Learns from the response to a request.
    pub(super) fn learn<B>(&self, credential: Credential, response: &Response<B>) {
        let Some(key) = credential.0 else { return };
        match Judgement::of(response.status(), response.headers()) {
            Judgement::Refused => self.lock().remove(key),
            Judgement::Accepted => self.lock().insert(key),
            Judgement::Unknown => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Accepted> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Judgement ===

impl Judgement {
    /// Returns the judgement that the response to a request with one bearer token shows.
    pub fn of(status: StatusCode, headers: &HeaderMap) -> Self {
        match status {
            StatusCode::UNAUTHORIZED => Self::Refused,
            StatusCode::SWITCHING_PROTOCOLS => Self::Accepted,
            // The apiserver gives these after its check of the credential. A load balancer also has
            // them, for requests that it does not pass on.
            StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::CONFLICT
                if headers.contains_key(AUDIT_ID) =>
            {
                Self::Accepted
            }
            status if status.is_success() => Self::Accepted,
            _ => Self::Unknown,
        }
    }
}

// === impl Accepted ===

impl Accepted {
    fn has(&self, key: u64) -> bool {
        self.young.contains(&key) || self.old.contains(&key)
    }

    fn insert(&mut self, key: u64) {
        if self.young.contains(&key) {
            return;
        }
        if self.young.len() >= GENERATION_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key);
    }

    fn remove(&mut self, key: u64) {
        self.young.remove(&key);
        self.old.remove(&key);
    }
}

/// Reports whether the apiserver parses this as a token: it answers 401 to an unknown one.
fn is_bearer_token(credential: &HeaderValue) -> bool {
    let bytes = credential.as_bytes();
    let Some((scheme, token)) = bytes.split_at_checked(b"bearer ".len()) else { return false };
    scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty() && !token.contains(&b' ')
}

#[cfg(test)]
mod tests {
    use http::header::SEC_WEBSOCKET_PROTOCOL;

    use super::*;

    #[test]
    fn accepted_credentials_are_bounded_and_used_ones_stay() {
        let trust = Trust::default();
        let credential = |number: usize| {
            let request = Request::builder().header(AUTHORIZATION, format!("Bearer {number}"));
            trust.credential(&request.body(()).unwrap())
        };
        let used = credential(usize::MAX);
        let learn = |credential, status| trust.learn(credential, &answer(status));
        for number in 0..3 * GENERATION_MAX {
            learn(used, StatusCode::OK);
            learn(credential(number), StatusCode::OK);
        }
        assert!(trust.accepted(used).is_some() && trust.accepted(credential(0)).is_none());
        let accepted = trust.lock();
        assert!(accepted.young.len() <= GENERATION_MAX && accepted.old.len() <= GENERATION_MAX);
        drop(accepted);
        learn(used, StatusCode::UNAUTHORIZED);
        assert!(trust.accepted(used).is_none());
    }

    #[test]
    fn a_request_that_may_pass_without_its_token_does_not_prove_it() {
        let trust = Trust::default();
        let credential = |method: Method, protocol: &str| {
            let request = Request::builder().method(method).header(AUTHORIZATION, "Bearer one");
            let request = request.header(SEC_WEBSOCKET_PROTOCOL, protocol);
            trust.credential(&request.body(()).unwrap()).0
        };
        assert!(credential(Method::GET, "v4.channel.k8s.io").is_some());
        assert!(credential(Method::OPTIONS, "v4.channel.k8s.io").is_none());
        let second = "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0";
        assert!(credential(Method::GET, second).is_none());
    }

    #[test]
    fn a_refusal_of_a_load_balancer_accepts_no_credential() {
        for status in [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND, StatusCode::CONFLICT] {
            let (trust, credential) = (Trust::default(), Credential(Some(1)));
            let mut response = answer(status);
            trust.learn(credential, &response);
            assert!(trust.accepted(credential).is_none(), "{status}");
            response.headers_mut().insert(AUDIT_ID, HeaderValue::from_static("an id"));
            trust.learn(credential, &response);
            assert!(trust.accepted(credential).is_some(), "{status}");
        }
    }

    fn answer(status: StatusCode) -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() = status;
        response
    }
}
