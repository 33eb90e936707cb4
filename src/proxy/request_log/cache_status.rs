//! The values of `Cache-Status`: the source of a response (RFC 9211).

use http::{HeaderName, HeaderValue, Response};

use crate::{api::version::Freshness, body::Body, metrics::DocumentResult, proxy::decide::Level};

/// The header.
pub(in crate::proxy) const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Adds the header to a response.
pub(super) fn with_status(mut response: Response<Body>, status: HeaderValue) -> Response<Body> {
    response.headers_mut().append(CACHE_STATUS, status);
    response
}

/// Returns the value for a hit. The values are constants, because every response from the cache has
/// one.
pub(super) fn hit_of(level: Level) -> &'static str {
    match level {
        Level::Configured(Freshness::MostRecent) => "listless; hit; detail=mostRecent",
        Level::Configured(Freshness::Session) => "listless; hit; detail=session",
        Level::Configured(Freshness::Bounded) => "listless; hit; detail=bounded",
        Level::Configured(Freshness::Any) | Level::Any => "listless; hit; detail=any",
        Level::NotOlderThan => "listless; hit; detail=notOlderThan",
        Level::Exact => "listless; hit; detail=exact",
    }
}

/// Returns the value for a document of discovery.
pub(super) fn given_of(result: DocumentResult) -> &'static str {
    match result {
        DocumentResult::Memory => "listless; hit; detail=discovery",
        DocumentResult::Revalidated => "listless; fwd=stale; fwd-status=304; detail=discovery",
        DocumentResult::Fetched | DocumentResult::NotKept => "listless; fwd=miss; detail=discovery",
    }
}

/// Converts a value of the header.
pub(super) fn header_value(status: &str) -> HeaderValue {
    HeaderValue::from_str(status).expect("made of our own words")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_detail_of_a_hit_is_the_level() {
        let configured =
            [Freshness::MostRecent, Freshness::Session, Freshness::Bounded, Freshness::Any];
        let levels = configured.into_iter().map(Level::Configured);
        for level in levels.chain([Level::Any, Level::NotOlderThan, Level::Exact]) {
            assert_eq!(hit_of(level), format!("listless; hit; detail={}", level.as_str()));
        }
    }
}
