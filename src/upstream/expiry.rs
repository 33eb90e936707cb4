//! The expiry of a token, as its own claims state it.
//!
//! Nothing is verified: the result may only be used to be more careful. Pure.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::HeaderValue;
use serde::Deserialize;

/// The claim of a JSON web token about its expiry (RFC 7519, section 4.1.4).
#[derive(Deserialize)]
struct Claims {
    exp: Option<f64>,
}

/// Returns the expiry of the token in an Authorization header, in Unix time; `None` if the token
/// does not state it.
pub fn unix_seconds(credential: &HeaderValue) -> Option<f64> {
    let (_, token) = credential.to_str().ok()?.split_once(' ')?;
    let mut parts = token.split('.');
    let (_header, claims, _signature) = (parts.next()?, parts.next()?, parts.next()?);
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?;
    serde_json::from_slice::<Claims>(&claims).ok()?.exp
}
