//! When a token ends, as far as it says so itself.
//!
//! Nothing is verified, so that nothing but caution may be built on it. Pure.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::HeaderValue;
use serde::Deserialize;

/// What a JSON web token claims of its end (RFC 7519, section 4.1.4).
#[derive(Deserialize)]
struct Claims {
    exp: Option<f64>,
}

/// The end of the token in an Authorization header, in Unix time; none of a token that does not say.
pub fn unix_seconds(credential: &HeaderValue) -> Option<f64> {
    let (_, token) = credential.to_str().ok()?.split_once(' ')?;
    let mut parts = token.split('.');
    let (_header, claims, _signature) = (parts.next()?, parts.next()?, parts.next()?);
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?;
    serde_json::from_slice::<Claims>(&claims).ok()?.exp
}
