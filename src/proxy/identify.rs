//! The identification of a caller: Listless's own user, the bearer of another token, or an
//! unauthenticated caller.
//!
//! The cache answers only callers whose only credential is fully parsed. Every other request is
//! forwarded with its own headers (S-ID-01, S-ID-04). This module stores no credential: it knows
//! the bearer of a token by a keyed hash of the token.

mod known;

use std::fmt;

use aws_lc_rs::hmac;
use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION};

pub use self::known::KnownTokens;
use crate::websocket::has_bearer;

/// The caller of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// The user whose identity Listless reads with.
    Own,
    /// The bearer of a token that only the apiserver can verify.
    Bearer(BearerId),
    /// Any other caller, with the reason.
    Other(Unauthenticated),
}

/// The reason why a caller is never answered from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unauthenticated {
    /// No Authorization header.
    NoCredential,
    /// Another credential, more than one, or an ambiguous one.
    OtherCredential,
    /// Listless's own user, impersonating another user.
    Impersonating,
    /// The bearer of a token, impersonating another user.
    ImpersonatingBearer,
    /// Any caller in safe mode, which forwards everything.
    SafeMode,
}

/// The id of a token: its HMAC-SHA256 under a key that only this process has.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BearerId([u8; 32]);

/// The method that identifies callers.
pub enum Identify {
    /// A caller with one of these tokens is the user Listless reads as; all others are
    /// unauthenticated.
    Own(KnownTokens),
    /// Every caller is the bearer of its own token.
    Bearers(TokenHasher),
    /// Every caller is unauthenticated: everything is forwarded unchanged.
    Nobody,
}

/// The maker of the [`BearerId`] of a token.
pub struct TokenHasher(Box<hmac::Key>);

/// The authentication scheme of bearer tokens.
const SCHEME: &[u8] = b"bearer ";

// === impl Identify ===

impl Identify {
    /// Returns the caller that sent these headers.
    pub fn caller(&self, headers: &HeaderMap) -> Caller {
        if let Self::Nobody = self {
            return Caller::Other(Unauthenticated::SafeMode);
        }
        let mut credentials = headers.get_all(AUTHORIZATION).iter();
        let caller = match (credentials.next(), credentials.next()) {
            (None, _) => Caller::Other(Unauthenticated::NoCredential),
            (Some(credential), None) => self.known(credential),
            (Some(_), Some(_)) => Caller::Other(Unauthenticated::OtherCredential),
        };
        match caller {
            Caller::Other(_) => caller,
            _ if has_bearer(headers) => Caller::Other(Unauthenticated::OtherCredential),
            _ if !headers.keys().any(is_impersonation) => caller,
            Caller::Own => Caller::Other(Unauthenticated::Impersonating),
            Caller::Bearer(_) => Caller::Other(Unauthenticated::ImpersonatingBearer),
        }
    }

    /// Reports whether this is the token that Listless made for the user it reads as. The apiserver's verdict on
    /// that user's other tokens stands: it knows whether they are still valid.
    pub(super) fn is_made_token(&self, token: &str) -> bool {
        let credential = HeaderValue::from_str(&format!("Bearer {token}"));
        match (self, credential) {
            (Self::Own(tokens), Ok(credential)) => tokens.has_made(&credential),
            _ => false,
        }
    }

    /// Returns the caller whose only credential this is.
    fn known(&self, credential: &HeaderValue) -> Caller {
        match self {
            Self::Own(tokens) if tokens.has(credential) => Caller::Own,
            Self::Bearers(hasher) if is_bearer_token(credential) => {
                Caller::Bearer(hasher.id(credential))
            }
            Self::Own(_) | Self::Bearers(_) | Self::Nobody => {
                Caller::Other(Unauthenticated::OtherCredential)
            }
        }
    }
}

// === impl TokenHasher ===

impl TokenHasher {
    /// Creates a hasher with this key, which must be secret.
    pub fn new(key: &[u8; 32]) -> Self {
        Self(Box::new(hmac::Key::new(hmac::HMAC_SHA256, key)))
    }

    fn id(&self, credential: &HeaderValue) -> BearerId {
        let tag = hmac::sign(&self.0, credential.as_bytes());
        BearerId(tag.as_ref().try_into().expect("SHA-256 gives 32 bytes"))
    }
}

// === impl BearerId ===

impl BearerId {
    /// Returns half of the hash as text: enough to distinguish all callers of one process, and no
    /// token.
    pub fn to_hex(self) -> String {
        self.0[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for BearerId {
    /// Prints enough of the hash to distinguish the callers of one process in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Reports whether this is exactly one bearer token (RFC 6750, section 2.1).
///
/// The apiserver accepts the second word of some more forms; those are forwarded for it to verify.
fn is_bearer_token(credential: &HeaderValue) -> bool {
    let bytes = credential.as_bytes();
    let Some((scheme, token)) = bytes.split_at_checked(SCHEME.len()) else { return false };
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
    scheme.eq_ignore_ascii_case(SCHEME) && !token.is_empty() && token.iter().all(is_token)
}

/// Reports whether the header asks for impersonation.
pub fn is_impersonation(name: &HeaderName) -> bool {
    name.as_str().starts_with("impersonate-")
}

/// Reports whether only an authenticating proxy may send this header; it is never forwarded
/// (S-ID-04).
pub fn is_remote_user(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-remote-")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Headers = Vec<(&'static str, &'static str)>;

    const SUB_PROTOCOL: (&str, &str) = (
        "sec-websocket-protocol",
        "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0",
    );

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn only_the_exact_token_without_impersonation_is_our_own_user() {
        let identify = Identify::Own(KnownTokens::one("secret"));
        let own = ("authorization", "Bearer secret");
        let other = Caller::Other(Unauthenticated::OtherCredential);
        let impersonating = Caller::Other(Unauthenticated::Impersonating);
        let rows: [(Headers, Caller); 10] = [
            (vec![own], Caller::Own),
            (vec![], Caller::Other(Unauthenticated::NoCredential)),
            (vec![("authorization", "Bearer secre")], other),
            (vec![("authorization", "Bearer secret2")], other),
            (vec![("authorization", "bearer secret")], other),
            (vec![own, own], other),
            (vec![own, SUB_PROTOCOL], other),
            (vec![own, ("sec-websocket-protocol", "v4.base64.channel.k8s.io")], Caller::Own),
            (vec![own, ("impersonate-user", "bob")], impersonating),
            (vec![own, ("impersonate-extra-scopes", "x")], impersonating),
        ];
        for (pairs, expected) in rows {
            assert_eq!(identify.caller(&headers(&pairs)), expected, "{pairs:?}");
        }
    }

    #[test]
    fn a_gateway_knows_only_the_bearers_of_tokens() {
        let identify = Identify::Bearers(TokenHasher::new(&[7; 32]));
        let ann = ("authorization", "Bearer ann.b-C_9~+/=");
        for pairs in [vec![ann], vec![("authorization", "bearer x")], vec![ann, ("cookie", "a=b")]]
        {
            let caller = identify.caller(&headers(&pairs));
            assert!(matches!(caller, Caller::Bearer(_)), "{pairs:?}: {caller:?}");
        }
        let rows: [(Headers, Unauthenticated); 13] = [
            (vec![], Unauthenticated::NoCredential),
            (vec![SUB_PROTOCOL], Unauthenticated::NoCredential),
            (vec![("impersonate-user", "bob")], Unauthenticated::NoCredential),
            (vec![("authorization", "")], Unauthenticated::OtherCredential),
            (vec![("authorization", "Bearer")], Unauthenticated::OtherCredential),
            (vec![("authorization", "Bearer ")], Unauthenticated::OtherCredential),
            (vec![("authorization", "Bearer  ann")], Unauthenticated::OtherCredential),
            (vec![("authorization", "Bearer ann bob")], Unauthenticated::OtherCredential),
            (vec![("authorization", "Bearer ann, Bearer bob")], Unauthenticated::OtherCredential),
            (vec![("authorization", "Basic YTpi")], Unauthenticated::OtherCredential),
            (vec![ann, ann], Unauthenticated::OtherCredential),
            (vec![ann, SUB_PROTOCOL], Unauthenticated::OtherCredential),
            (vec![ann, ("impersonate-group", "g")], Unauthenticated::ImpersonatingBearer),
        ];
        for (pairs, expected) in rows {
            assert_eq!(identify.caller(&headers(&pairs)), Caller::Other(expected), "{pairs:?}");
        }
    }

    #[test]
    fn a_bearer_id_depends_on_the_token_and_the_process() {
        let of = |key: [u8; 32], token| {
            Identify::Bearers(TokenHasher::new(&key)).caller(&headers(&[("authorization", token)]))
        };
        let ann = of([1; 32], "Bearer ann");
        assert_eq!(ann, of([1; 32], "Bearer ann"));
        assert_ne!(ann, of([1; 32], "Bearer bob"));
        assert_ne!(ann, of([2; 32], "Bearer ann"));
        assert!(!format!("{ann:?}").contains("ann"), "a log shows the hash");
    }
}
