//! The tokens of the user Listless reads as.
//!
//! Invariant: no token leaves this module, and a comparison takes constant time.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use http::HeaderValue;

use crate::proxy::authorize::token_left;

/// The known tokens; cheap to clone, all clones share them.
///
/// It implements neither `Debug` nor `Display`, which keeps tokens out of logs.
#[derive(Clone)]
pub struct KnownTokens(Arc<ArcSwap<Vec<Known>>>);

/// One token, in the form of the header.
#[derive(Clone)]
struct Known {
    credential: Vec<u8>,
    /// The expiry, if the token states it.
    expires: Option<SystemTime>,
    /// `true` if Listless made the token: no apiserver knows it.
    is_made: bool,
}

/// The limit of known tokens: the current one and those before it. Each client rereads its token
/// file at its own time.
const TOKENS_MAX: usize = 4;

// === impl KnownTokens ===

impl KnownTokens {
    /// Creates a set of this token only, which Listless made; it does not expire.
    pub fn one(token: &str) -> Self {
        let credential = format!("Bearer {token}").into_bytes();
        let known = Known { credential, expires: None, is_made: true };
        Self(Arc::new(ArcSwap::from_pointee(vec![known])))
    }

    /// Creates an empty set.
    pub fn none() -> Self {
        Self(Arc::default())
    }

    /// Makes this token the current one; the ones before it stay known until they expire.
    pub fn learn(&self, token: &str, now: SystemTime) {
        let known = Known::new(token, now);
        let before = self.0.load();
        let mut next = before.as_ref().clone();
        next.retain(|other| other.credential != known.credential && other.is_good(now));
        next.insert(0, known);
        next.truncate(TOKENS_MAX);
        self.0.store(Arc::new(next));
    }

    /// Removes expired tokens.
    pub fn expire(&self, now: SystemTime) {
        if self.0.load().iter().any(|known| !known.is_good(now)) {
            let good = self.0.load().iter().filter(|known| known.is_good(now)).cloned().collect();
            self.0.store(Arc::new(good));
        }
    }

    /// Reports whether the credential is one of the tokens, byte for byte.
    pub(super) fn has(&self, credential: &HeaderValue) -> bool {
        let known = self.0.load();
        known.iter().fold(false, |found, known| found | known.is(credential.as_bytes()))
    }

    /// Reports whether the credential is the token that Listless made.
    pub(super) fn has_made(&self, credential: &HeaderValue) -> bool {
        self.0.load().iter().any(|known| known.is_made && known.is(credential.as_bytes()))
    }
}

// === impl Known ===

impl Known {
    fn new(token: &str, now: SystemTime) -> Self {
        let credential = format!("Bearer {token}");
        let left = HeaderValue::from_str(&credential).ok();
        let left: Option<Duration> = left.and_then(|credential| token_left(&credential, now));
        let expires = left.map(|left| now + left);
        Self { credential: credential.into_bytes(), expires, is_made: false }
    }

    fn is_good(&self, now: SystemTime) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }

    fn is(&self, presented: &[u8]) -> bool {
        let pairs = presented.iter().zip(&self.credential);
        let difference = pairs.fold(0, |seen, (a, b)| seen | (a ^ b));
        presented.len() == self.credential.len() && difference == 0
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn expiring(seconds: u64) -> String {
        let claims = BASE64_URL_SAFE_NO_PAD.encode(format!("{{\"exp\":{seconds}}}"));
        format!("e30.{claims}.c2ln")
    }

    fn has(known: &KnownTokens, token: &str) -> bool {
        known.has(&HeaderValue::from_str(&format!("Bearer {token}")).expect("a header"))
    }

    #[test]
    fn a_token_is_known_by_every_byte_of_it() {
        let known = KnownTokens::one("secret");
        assert!(has(&known, "secret"));
        for other in ["", "secre", "secret2", "Secret", "secret "] {
            assert!(!has(&known, other), "{other:?}");
        }
        assert!(!known.has(&HeaderValue::from_static("bearer secret")));
        assert!(!has(&KnownTokens::none(), ""));
    }

    #[test]
    fn only_a_token_that_listless_made_is_one() {
        let real = KnownTokens::none();
        real.learn("secret", at(10));
        let credential = HeaderValue::from_static("Bearer secret");
        assert!(real.has(&credential) && !real.has_made(&credential));
        assert!(KnownTokens::one("secret").has_made(&credential));
    }

    #[test]
    fn older_tokens_are_known_until_they_expire() {
        let (known, first, second) = (KnownTokens::none(), expiring(100), expiring(200));
        known.learn(&first, at(10));
        known.learn(&second, at(80));
        assert!(has(&known, &first) && has(&known, &second));
        known.expire(at(99));
        assert!(has(&known, &first));
        known.expire(at(100));
        assert!(!has(&known, &first) && has(&known, &second));
        known.learn("opaque", at(200));
        assert!(has(&known, "opaque") && !has(&known, &second));
        for number in 0..TOKENS_MAX {
            assert!(has(&known, "opaque"), "{number}");
            known.learn(&number.to_string(), at(200));
        }
        assert!(!has(&known, "opaque") && has(&known, "0"));
    }
}
