//! The protection of a request's credential, wherever it is in the request.
//!
//! Invariant: the results of these functions can be logged and shown.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue, header};
use memchr::memmem;

/// The longest client name that is shown.
const AGENT_BYTES_MAX: usize = 64;

/// The longest part of a client name; a longer one is neither a name nor a version.
const WORD_BYTES_MAX: usize = 40;

/// The shortest part of a token that is removed; a shorter one reveals nothing.
const PIECE_BYTES_MIN: usize = 6;

/// The start of JSON web tokens.
const TOKEN_START: &str = "eyJ";

/// The replacement of a removed text.
pub const LEFT_OUT: &str = "[redacted]";

/// Reports whether a request's target, its path and query as sent, contains the request's own
/// token.
pub fn is_exposed(headers: &HeaderMap, target: &str) -> bool {
    token(headers).is_some_and(|token| repeats(target, token))
}

/// Returns the first word of the user agent, such as `kubectl/v1.36.3`, if it has the form of a
/// name.
pub fn name_of_client(headers: &HeaderMap) -> &str {
    let token = token(headers);
    let Some(agent) = headers.get(header::USER_AGENT).map(HeaderValue::to_str) else {
        return "";
    };
    let first = agent.unwrap_or_default().split([' ', '\t', ';', ',']).next().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/+:@".contains(&byte);
    let is_name = first.len() <= AGENT_BYTES_MAX
        && first.bytes().all(plain)
        && first.split('/').all(|word| word.len() <= WORD_BYTES_MAX)
        && !first.contains(TOKEN_START)
        && !token.is_some_and(|token| first.contains(token) || is_part(first, token));
    if is_name || first.is_empty() { first } else { LEFT_OUT }
}

/// Returns the whole user agent, unless it contains a token.
pub fn user_agent(headers: &HeaderMap) -> Cow<'_, str> {
    let agent = headers.get(header::USER_AGENT).map_or(&[][..], HeaderValue::as_bytes);
    let agent = String::from_utf8_lossy(agent);
    let has = |token: &str| agent.len() >= token.len() && agent.contains(token);
    if has(TOKEN_START) || token(headers).is_some_and(has) { LEFT_OUT.into() } else { agent }
}

/// Returns the token of a request's own credential, whatever its scheme.
fn token(headers: &HeaderMap) -> Option<&str> {
    let credential = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok())?;
    credential.rsplit(' ').find(|word| !word.is_empty())
}

/// Reports whether a target contains this text, escaped or not.
fn repeats(target: &str, token: &str) -> bool {
    // Linear in both: callers choose their lengths.
    let is_escaped = || memmem::find(&unescaped(target), token.as_bytes()).is_some();
    target.len() >= token.len()
        && (target.contains(token) || (target.contains('%') && is_escaped()))
}

fn unescaped(target: &str) -> Vec<u8> {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let bytes = target.as_bytes();
    let (mut plain, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        match (byte, digit(bytes.get(at + 1)), digit(bytes.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                plain.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                plain.push(*byte);
                at += 1;
            }
        }
    }
    plain
}

/// Reports whether a word may be a part of the token instead of a word of its own.
fn is_part(word: &str, token: &str) -> bool {
    word.len() >= PIECE_BYTES_MIN && token.contains(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(agent: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, HeaderValue::from_str(agent).expect("a header"));
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer s3cret"));
        headers
    }

    #[test]
    fn the_name_of_a_client_is_its_first_word_if_valid() {
        for (agent, expected) in [
            ("kubectl/v1.36.3 (linux/amd64) kubernetes/abc", "kubectl/v1.36.3"),
            ("fabric8-kubernetes-client/6.13.4", "fabric8-kubernetes-client/6.13.4"),
            ("", ""),
            ("s3cret", LEFT_OUT),
            ("tool/s3cret", LEFT_OUT),
            ("tool/eyJhbGciOiJSUzI1NiJ9", LEFT_OUT),
            ("0123456789012345678901234567890123456789x", LEFT_OUT),
            ("a{b}", LEFT_OUT),
        ] {
            assert_eq!(name_of_client(&headers(agent)), expected, "{agent}");
        }
    }

    #[test]
    fn a_token_in_a_target_is_found_escaped_or_not() {
        for target in ["/x?token=s3cret", "/x?a=b%733cret", "/s3cret/y", "/%73%33%63%72%65%74"] {
            assert!(repeats(target, "s3cret"), "{target}");
        }
        assert!(!repeats("/x?token=s3cre%", "s3cret"));
    }

    #[test]
    fn a_user_agent_is_shown_completely_or_not_at_all() {
        let whole = "kubectl/v1.36.3 (linux/amd64) kubernetes/abc";
        assert_eq!(user_agent(&headers(whole)), whole);
        for agent in ["s3cret", "tool/s3cret (linux)", "tool/1 eyJhbGciOiJSUzI1NiJ9.e30.x"] {
            assert_eq!(user_agent(&headers(agent)), LEFT_OUT, "{agent}");
        }
        assert_eq!(user_agent(&HeaderMap::new()), "");
    }

    #[test]
    fn a_target_that_repeats_the_token_is_detected() {
        assert!(is_exposed(&headers("a"), "/api?x=s3cret"));
        assert!(!is_exposed(&headers("a"), "/api?x=other"));
        assert!(!is_exposed(&HeaderMap::new(), "/api?x=s3cret"));
    }
}
