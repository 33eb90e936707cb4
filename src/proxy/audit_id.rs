//! The audit ids of responses that the apiserver did not make (S-HDR-02).

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use http::{HeaderMap, HeaderName, HeaderValue};
use uuid::{Builder, Uuid};

/// The header that links a request with the apiserver's audit log (S-HDR-02).
pub(super) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The source of new ids: keyed hashes of a counter. An id must be unique and is no secret, so it
/// needs no system call of its own.
struct Source {
    halves: [RandomState; 2],
    next: AtomicU64,
}

static SOURCE: LazyLock<Source> = LazyLock::new(|| Source {
    halves: [RandomState::new(), RandomState::new()],
    next: AtomicU64::new(0),
});

/// Returns the request's own audit id, or a new one.
pub(super) fn audit_id(request_headers: &HeaderMap) -> HeaderValue {
    let own = request_headers.get(AUDIT_ID).filter(|id| !id.is_empty());
    own.cloned().unwrap_or_else(|| {
        let mut text = Uuid::encode_buffer();
        HeaderValue::from_str(SOURCE.next().hyphenated().encode_lower(&mut text))
            .expect("a UUID is made of ASCII letters, digits and dashes")
    })
}

// === impl Source ===

impl Source {
    fn next(&self) -> Uuid {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let [high, low] = &self.halves;
        let bits = u128::from(high.hash_one(number)) << 64 | u128::from(low.hash_one(number));
        Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn new_ids_are_unique_random_uuids_and_the_requests_own_is_kept() {
        let mut headers = HeaderMap::new();
        let new: HashSet<_> = (0..10_000).map(|_| audit_id(&headers)).collect();
        assert_eq!(new.len(), 10_000);
        for id in &new {
            let id = Uuid::try_parse_ascii(id.as_bytes()).expect("a UUID");
            assert_eq!(id.get_version(), Some(uuid::Version::Random));
        }
        headers.insert(AUDIT_ID, HeaderValue::from_static(""));
        assert!(!audit_id(&headers).is_empty());
        headers.insert(AUDIT_ID, HeaderValue::from_static("mine"));
        assert_eq!(audit_id(&headers), "mine");
    }
}
