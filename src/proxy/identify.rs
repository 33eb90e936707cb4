//! Who is calling: the identity Listless reads with, or anyone else.
//!
//! Only a caller that proves, byte for byte, to be the one whose identity fills the replicas is ever
//! answered from memory; everyone else is forwarded with what they sent (S-ID-01, S-ID-04).

use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION};

/// Who a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// The user whose identity Listless reads with.
    Own,
    /// Anyone else, and why.
    Other(Stranger),
}

/// Why a caller is not the one Listless reads as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stranger {
    /// No Authorization header.
    NoCredential,
    /// Another credential, or one that cannot be read unambiguously.
    OtherCredential,
    /// The right credential, asking to act as someone else.
    Impersonating,
}

/// The local token: a bearer token that stands for the kubeconfig's user on loopback.
///
/// It has neither `Debug` nor `Display`, so that it cannot reach a log.
pub struct LocalToken(Vec<u8>);

// === impl LocalToken ===

impl LocalToken {
    /// Takes the token a client must present.
    pub fn new(token: &str) -> Self {
        Self(format!("Bearer {token}").into_bytes())
    }

    /// Who sent these headers.
    pub fn caller(&self, headers: &HeaderMap) -> Caller {
        let mut credentials = headers.get_all(AUTHORIZATION).iter();
        let stranger = match (credentials.next(), credentials.next()) {
            (None, _) => Stranger::NoCredential,
            (Some(credential), None) if self.matches(credential) => {
                if !headers.keys().any(is_impersonation) {
                    return Caller::Own;
                }
                Stranger::Impersonating
            }
            _ => Stranger::OtherCredential,
        };
        Caller::Other(stranger)
    }

    /// Compares without telling by its duration how much was right.
    fn matches(&self, credential: &HeaderValue) -> bool {
        let presented = credential.as_bytes();
        let difference = presented.iter().zip(&self.0).fold(0, |seen, (a, b)| seen | (a ^ b));
        presented.len() == self.0.len() && difference == 0
    }
}

/// Whether the header asks to act as someone else.
pub fn is_impersonation(name: &HeaderName) -> bool {
    name.as_str().starts_with("impersonate-")
}

/// Whether only an authenticating proxy may send this header; it is never forwarded (S-ID-04).
pub fn is_remote_user(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-remote-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn only_the_exact_token_without_impersonation_is_our_own_user() {
        let token = LocalToken::new("secret");
        let rows = [
            (vec![("authorization", "Bearer secret")], Caller::Own),
            (vec![], Caller::Other(Stranger::NoCredential)),
            (vec![("authorization", "Bearer secre")], Caller::Other(Stranger::OtherCredential)),
            (vec![("authorization", "Bearer secret2")], Caller::Other(Stranger::OtherCredential)),
            (vec![("authorization", "bearer secret")], Caller::Other(Stranger::OtherCredential)),
            (
                vec![("authorization", "Bearer secret"), ("authorization", "Bearer secret")],
                Caller::Other(Stranger::OtherCredential),
            ),
            (
                vec![("authorization", "Bearer secret"), ("impersonate-user", "bob")],
                Caller::Other(Stranger::Impersonating),
            ),
            (
                vec![("authorization", "Bearer secret"), ("impersonate-extra-scopes", "x")],
                Caller::Other(Stranger::Impersonating),
            ),
        ];
        for (pairs, expected) in rows {
            assert_eq!(token.caller(&headers(&pairs)), expected, "{pairs:?}");
        }
    }
}
