//! The retry delay that the apiserver asks for (S-OVL-01, S-OVL-02).

use std::time::Duration;

use http::{HeaderMap, header::RETRY_AFTER};

/// The longest delay that Listless accepts for its own requests.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(120);

/// Returns the retry delay of a response: the apiserver sends whole seconds.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u32 = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_seconds_are_accepted() {
        for (value, seconds) in [("7", Some(7)), ("0", Some(0)), ("1.5", None), ("-1", None)] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
            assert_eq!(retry_after(&headers), seconds.map(Duration::from_secs), "{value}");
        }
        let date = "Wed, 21 Oct 2026 07:28:00 GMT".parse().unwrap();
        assert_eq!(retry_after(&HeaderMap::from_iter([(RETRY_AFTER, date)])), None);
    }
}
