//! The server side of a WebSocket, as far as watches need it (RFC 6455, S-WATCH-45).
//!
//! It accepts only a fully understood handshake, sends messages, and reads pings and the close
//! message. No extension is ever negotiated. This module does no I/O.

mod incoming;

use aws_lc_rs::digest;
use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri, header};

use crate::body::Body;

pub use incoming::{Broken, Incoming, Message};

/// A client's WebSocket handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    accept: HeaderValue,
    protocol: Option<HeaderValue>,
}

/// The protocol switch that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// None.
    No,
    /// A WebSocket that this server can accept.
    WebSocket(Handshake),
    /// Another protocol, or a form that a server may refuse.
    Other,
}

/// The suffix that is hashed with a WebSocket key.
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The only WebSocket version.
const VERSION: &str = "13";

/// The prefix of a subprotocol with a credential (S-WATCH-46).
const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

const FINAL_TEXT: u8 = 0x81;
const FINAL_BINARY: u8 = 0x82;
const FINAL_PONG: u8 = 0x8a;

/// A close message of status 1000.
pub const CLOSE: [u8; 4] = [0x88, 0x02, 0x03, 0xe8];

/// A close message of status 1002: the client broke the protocol.
pub const CLOSE_PROTOCOL_ERROR: [u8; 4] = [0x88, 0x02, 0x03, 0xea];

/// The maximum size of a message header.
const HEADER_BYTES_MAX: usize = 10;

// === impl Asked ===

impl Asked {
    /// Parses the headers of a request.
    pub fn of(headers: &HeaderMap) -> Self {
        if !headers.contains_key(header::UPGRADE) {
            return Self::No;
        }
        Handshake::read(headers).map_or(Self::Other, Self::WebSocket)
    }
}

// === impl Handshake ===

impl Handshake {
    fn read(headers: &HeaderMap) -> Option<Self> {
        let upgrade = single(headers, &header::UPGRADE)?;
        let version = single(headers, &header::SEC_WEBSOCKET_VERSION)?;
        let key = single(headers, &header::SEC_WEBSOCKET_KEY)?.trim();
        let understood = upgrade.eq_ignore_ascii_case("websocket")
            // The apiserver's handshake reads one line only.
            && single(headers, &header::CONNECTION).is_some()
            && has_token(headers, "upgrade")
            && version == VERSION
            && !key.is_empty()
            && is_origin(single(headers, &header::ORIGIN)?);
        let protocol = match headers.get(header::SEC_WEBSOCKET_PROTOCOL) {
            None => None,
            Some(_) => {
                let offered = single(headers, &header::SEC_WEBSOCKET_PROTOCOL)?.trim();
                // The apiserver accepts none of several.
                if offered.is_empty() || offered.contains([',', ' ']) {
                    return None;
                }
                if offered.starts_with(BEARER_PROTOCOL) {
                    return None;
                }
                Some(HeaderValue::from_str(offered).ok()?)
            }
        };
        let accept = HeaderValue::try_from(accept(key)).ok()?;
        understood.then_some(Self { accept, protocol })
    }

    /// Returns the accepting response.
    pub fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, self.accept);
        if let Some(protocol) = self.protocol {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        response
    }
}

/// Returns the proof for a client that its key was read.
pub fn accept(key: &str) -> String {
    let text = format!("{}{KEY_SUFFIX}", key.trim());
    STANDARD.encode(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()))
}

/// Reports whether a request carries a token as a sub-protocol: a credential beside any other.
pub fn has_bearer(headers: &HeaderMap) -> bool {
    let protocols = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    protocols
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .any(|protocol| protocol.trim_ascii().starts_with(BEARER_PROTOCOL.as_bytes()))
}

/// Reports whether the Connection headers contain an option.
pub fn has_token(headers: &HeaderMap, token: &str) -> bool {
    let values = headers.get_all(header::CONNECTION).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|part| part.trim().eq_ignore_ascii_case(token))
}

/// Returns the header of an unmasked text message of this length.
pub fn text_header(length: usize) -> Vec<u8> {
    header(FINAL_TEXT, length)
}

/// Returns the header of an unmasked binary message of this length.
pub fn binary_header(length: usize) -> Vec<u8> {
    header(FINAL_BINARY, length)
}

/// Returns the response to a ping.
pub fn pong(payload: &[u8]) -> Vec<u8> {
    let mut message = header(FINAL_PONG, payload.len());
    message.extend_from_slice(payload);
    message
}

fn header(first: u8, length: usize) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES_MAX);
    header.push(first);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(length @ 0..=125), _) => header.push(length),
        (_, Ok(length)) => {
            header.push(126);
            header.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            header.push(127);
            header.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    header
}

/// Returns the value of a header that is present exactly once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Reports whether an origin is well-formed. The apiserver refuses others.
fn is_origin(text: &str) -> bool {
    let uri: Result<Uri, _> = text.parse();
    uri.is_ok_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FABRIC8: [(&str, &str); 5] = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("origin", "https://127.0.0.1:7443"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-version", "13"),
    ];

    fn asked(pairs: &[(&'static str, &'static str)]) -> Asked {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value);
        }
        Asked::of(&headers)
    }

    #[test]
    fn the_standards_example_is_accepted() {
        let Asked::WebSocket(handshake) = asked(&FABRIC8) else { panic!("a handshake") };
        let response = handshake.into_response();
        assert_eq!(response.status(), 101);
        assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(!response.headers().contains_key("sec-websocket-protocol"));
        assert_eq!(asked(&[]), Asked::No);
    }

    #[test]
    fn a_handshake_that_the_apiserver_may_refuse_is_not_accepted() {
        for missing in 0..FABRIC8.len() {
            let mut pairs = FABRIC8.to_vec();
            let (name, _) = pairs.remove(missing);
            let expected = if name == "upgrade" { Asked::No } else { Asked::Other };
            assert_eq!(asked(&pairs), expected, "without {name}");
        }
        for (name, value) in [
            ("upgrade", "SPDY/3.1"),
            ("origin", "null"),
            ("origin", "example.com"),
            ("sec-websocket-key", "another"),
            ("sec-websocket-key", ""),
            ("sec-websocket-version", "8"),
            ("sec-websocket-protocol", "a, b"),
            ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.c2VjcmV0"),
        ] {
            let mut pairs: Vec<_> =
                FABRIC8.into_iter().filter(|(other, _)| *other != name).collect();
            pairs.push((name, value));
            if name == "sec-websocket-key" && !value.is_empty() {
                pairs.push((name, "second"));
            }
            assert_eq!(asked(&pairs), Asked::Other, "{name}: {value}");
        }
        let mut two_lines = FABRIC8.to_vec();
        two_lines.insert(0, ("connection", "keep-alive"));
        assert_eq!(asked(&two_lines), Asked::Other);
    }

    #[test]
    fn the_only_offered_subprotocol_is_accepted() {
        let mut pairs = FABRIC8.to_vec();
        pairs.push(("sec-websocket-protocol", "v4.channel.k8s.io"));
        let Asked::WebSocket(handshake) = asked(&pairs) else { panic!("a handshake") };
        let response = handshake.into_response();
        assert_eq!(response.headers()["sec-websocket-protocol"], "v4.channel.k8s.io");
    }

    #[test]
    fn messages_encode_their_length_in_the_shortest_form() {
        for (length, head) in [
            (5, vec![0x81, 5]),
            (125, vec![0x81, 125]),
            (126, vec![0x81, 126, 0, 126]),
            (65_535, vec![0x81, 126, 0xff, 0xff]),
            (70_000, vec![0x81, 127, 0, 0, 0, 0, 0, 1, 0x11, 0x70]),
        ] {
            assert_eq!(text_header(length), head);
        }
        assert_eq!(binary_header(5), [0x82, 5]);
        assert_eq!(pong(b"ab"), [0x8a, 2, b'a', b'b']);
    }
}
