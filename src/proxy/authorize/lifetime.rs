//! The remaining lifetime of a token, as its own claims state it.
//!
//! Nothing is verified: the result can only shorten the lifetime of a review. Pure.

use std::time::{Duration, SystemTime};

use http::HeaderValue;

use crate::upstream::expiry;

/// Returns the remaining lifetime of the token in an Authorization header; `None` if the token does
/// not state it.
pub(in crate::proxy) fn left(credential: &HeaderValue, now: SystemTime) -> Option<Duration> {
    let end = expiry::unix_seconds(credential)?;
    let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs_f64();
    Some(Duration::try_from_secs_f64(end - now).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};

    use super::*;

    fn left_of(credential: &str) -> Option<Duration> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        left(&HeaderValue::from_str(credential).expect("a header"), now)
    }

    fn token(claims: &str) -> String {
        format!("Bearer e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn only_the_expiry_of_a_token_is_read() {
        assert_eq!(left_of(&token(r#"{"exp":1004,"sub":"x"}"#)), Some(Duration::from_secs(4)));
        assert_eq!(left_of(&token(r#"{"exp":1000.5}"#)), Some(Duration::from_millis(500)));
        for over in [r#"{"exp":1000}"#, r#"{"exp":3}"#, r#"{"exp":-1e300}"#] {
            assert_eq!(left_of(&token(over)), Some(Duration::ZERO), "{over}");
        }
        let opaque = ["Bearer abc", "Bearer a.b.c", "Bearer a.%.c", "Basic YTpi", ""];
        let claims = [r#"{"sub":"x"}"#, r#"{"exp":"soon"}"#, r#"{"exp":null}"#, "[]", ""];
        for credential in opaque.map(str::to_owned).into_iter().chain(claims.map(token)) {
            assert_eq!(left_of(&credential), None, "{credential}");
        }
    }
}
