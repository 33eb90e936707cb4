//! Requests that switch protocols: watches over WebSocket, and an echo for exec and similar
//! streams.
//!
//! A watch sends one message per event (S-WATCH-45), text or binary, and ignores the client's messages except
//! the close. Exec, attach and port-forward answer 101 and echo every byte, which proves without a
//! kubelet that a tunnel is transparent.

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, split};

use super::{
    Interruption,
    route::Target,
    status::{StatusFailure, response},
};
use crate::{
    body::Body,
    notify::Follower,
    websocket::{self, has_token},
};

/// The requested protocol, and the connection after the switch.
pub(super) struct Switch {
    protocol: HeaderValue,
    accept: Option<HeaderValue>,
    origin: bool,
    connection: OnUpgrade,
}

/// A response's extension: its body is sent as messages over this connection.
#[derive(Clone)]
pub(super) struct Messages {
    connection: std::sync::Arc<std::sync::Mutex<Option<OnUpgrade>>>,
    /// `true` if the events are in protobuf.
    pub binary: bool,
}

const CLOSE_OPCODE: u8 = 0x8;

const READ_BYTES: usize = 1024;

/// The length before an event in protobuf.
const EVENT_LENGTH_BYTES: usize = 4;

// === impl Switch ===

impl Switch {
    /// Returns the protocol switch that a request's headers ask for, if any.
    pub(super) fn asked<B>(request: &mut Request<B>) -> Option<Self> {
        let headers = request.headers();
        let upgrades = has_token(headers, "upgrade");
        let protocol = headers.get(header::UPGRADE).filter(|_| upgrades)?.clone();
        let key = headers.get(header::SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok());
        let accept = key.and_then(|key| HeaderValue::try_from(websocket::accept(key)).ok());
        let origin = headers.contains_key(header::ORIGIN);
        Some(Self { protocol, accept, origin, connection: hyper::upgrade::on(request) })
    }

    /// Reports whether the client speaks WebSocket.
    pub(super) fn is_websocket(&self) -> bool {
        self.protocol.as_bytes().eq_ignore_ascii_case(b"websocket")
    }

    /// Turns a watch's response into messages. Errors stay plain responses.
    pub(super) fn send_messages(self, answer: Response<Body>) -> Response<Body> {
        if answer.status() != StatusCode::OK {
            return answer;
        }
        let (true, Some(accept)) = (self.origin, self.accept) else {
            return response(403, "text/plain; charset=utf-8", Bytes::new());
        };
        let mut switched = switching(&self.protocol);
        switched.headers_mut().insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        let connection = std::sync::Mutex::new(Some(self.connection)).into();
        switched.extensions_mut().insert(Messages { connection, binary: false });
        *switched.body_mut() = answer.into_body();
        switched
    }

    /// Switches and echoes every byte until the client ends or an outage occurs.
    pub(super) fn echo(self, interruptions: Follower<Interruption>) -> Response<Body> {
        let switched = switching(&self.protocol);
        tokio::spawn(echo(self.connection, interruptions));
        switched
    }
}

// === impl Messages ===

impl Messages {
    /// Sends a body's frames as messages after the switch.
    pub(super) fn send(&self, body: Body) {
        let mut connection =
            self.connection.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(connection) = connection.take() {
            tokio::spawn(send_messages(connection, body, self.binary));
        }
    }
}

/// Reports whether a subresource is a stream of its own protocol (S-NET-04).
pub(super) fn is_stream(target: &Target) -> bool {
    matches!(target.subresource.as_deref(), Some("exec" | "attach" | "portforward"))
}

/// Returns the response to a client that does not switch.
pub(super) fn required() -> StatusFailure {
    StatusFailure::bad_request("Upgrade request required")
}

fn switching(protocol: &HeaderValue) -> Response<Body> {
    let mut switching = Response::new(Body::empty());
    *switching.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = switching.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, protocol.clone());
    switching
}

async fn echo(connection: OnUpgrade, mut interruptions: Follower<Interruption>) {
    let resets = interruptions.value().resets;
    let Ok(stream) = connection.await else { return };
    let (mut reader, mut writer) = split(TokioIo::new(stream));
    let echoed = async {
        if copy(&mut reader, &mut writer).await.is_ok() {
            let _ = writer.shutdown().await;
        }
    };
    tokio::select! {
        () = echoed => {}
        _ = interruptions.until(|now| now.resets != resets) => {}
    }
}

async fn send_messages(connection: OnUpgrade, mut body: Body, binary: bool) {
    let Ok(stream) = connection.await else { return };
    let (mut reader, mut writer) = split(TokioIo::new(stream));
    let mut received = [0; READ_BYTES];
    loop {
        tokio::select! {
            frame = body.frame() => {
                let message = match frame {
                    Some(Ok(frame)) => message(frame.data_ref().map_or(&[], |data| data), binary),
                    // A broken body has no close message, as with a lost connection.
                    Some(Err(_)) => return,
                    None => websocket::CLOSE.to_vec(),
                };
                let last = message == websocket::CLOSE;
                if writer.write_all(&message).await.is_err() || last {
                    return;
                }
            }
            read = reader.read(&mut received) => match read {
                Ok(bytes) if bytes > 0 && received[0] & 0x0f != CLOSE_OPCODE => {}
                _ => return,
            },
        }
    }
}

/// Returns one unmasked message. An event in protobuf has no length before it there.
fn message(event: &[u8], binary: bool) -> Vec<u8> {
    let payload = if binary { event.get(EVENT_LENGTH_BYTES..).unwrap_or_default() } else { event };
    let header = if binary { websocket::binary_header } else { websocket::text_header };
    let mut message = header(payload.len());
    message.extend_from_slice(payload);
    message
}
