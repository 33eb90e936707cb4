//! A simulated apiserver that speaks protobuf. It converts JSON responses into the bytes of a real
//! apiserver: those to writes of pods, and to watches that accept protobuf.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{future::BoxFuture, stream};
use http::{HeaderValue, Method, Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use listless::{
    body::{Body, BoxError},
    simulator::Simulator,
    upstream::{Client, Error, Lane},
};
use serde_json::Value;
use tokio::time::{Duration, timeout};

use super::{TestClient, request};

/// A simulator behind a converter; clones share the recorded bytes.
#[derive(Clone)]
pub(crate) struct Protobuf {
    simulator: Simulator,
    said: Arc<Mutex<Vec<u8>>>,
}

/// An open watch in protobuf.
pub(crate) struct DelimitedWatch {
    /// The head of the response.
    pub(crate) head: http::response::Parts,
    /// Every received byte.
    pub(crate) received: Vec<u8>,
    body: Body,
    /// The offset of the next event.
    next: usize,
}

/// Lines of JSON that become frames.
struct Lines {
    body: Body,
    rest: Vec<u8>,
    said: Arc<Mutex<Vec<u8>>>,
}

pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The limit on the wait for an event.
const EVENT_WAIT: Duration = Duration::from_secs(60);

// === impl Protobuf ===

impl Protobuf {
    /// Puts the converter in front of this simulator.
    pub(crate) fn of(simulator: Simulator) -> Self {
        Self { simulator, said: Arc::default() }
    }

    /// Every byte of every watch.
    pub(crate) fn said(&self) -> Vec<u8> {
        self.said.lock().expect("no panic holds it").clone()
    }
}

impl Client for Protobuf {
    fn send(
        &self,
        mut request: Request<Body>,
        lane: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let accepts = request.headers().get(header::ACCEPT);
        let takes =
            accepts.is_some_and(|accept| accept.as_bytes().starts_with(PROTOBUF.as_bytes()));
        let is_watch = takes && request.uri().query().is_some_and(|it| it.contains("watch=1"));
        let is_write = request.method() != Method::GET && request.uri().path().ends_with("/pods");
        if is_watch {
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert(header::ACCEPT, json);
        }
        let (answer, said) = (self.simulator.send(request, lane), self.said.clone());
        Box::pin(async move {
            let (mut parts, body) = answer.await?.into_parts();
            let (media, body) = if is_watch {
                ("application/vnd.kubernetes.protobuf;stream=watch", frames(body, said))
            } else if is_write {
                let json = body.collect(1 << 20).await.expect("a body");
                parts.headers.remove(header::CONTENT_LENGTH);
                (PROTOBUF, Body::full(encoded(&serde_json::from_slice(&json).expect("JSON"))))
            } else {
                return Ok(Response::from_parts(parts, body));
            };
            parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
            Ok(Response::from_parts(parts, body))
        })
    }

    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.simulator.upgrade(request)
    }
}

// === impl DelimitedWatch ===

impl DelimitedWatch {
    /// Opens it; `path` contains `watch=1`.
    pub(crate) async fn open(client: &TestClient, path: &str) -> Self {
        let response = client.open(request(Method::GET, path, Body::empty())).await;
        let (head, body) = response.into_parts();
        Self { head, received: Vec::new(), body, next: 0 }
    }

    /// The next event, without its length.
    pub(crate) async fn next(&mut self) -> Vec<u8> {
        loop {
            if let Some((length, rest)) = self.received[self.next..].split_first_chunk::<4>() {
                let length = u32::from_be_bytes(*length) as usize;
                if let Some(event) = rest.get(..length) {
                    self.next += 4 + length;
                    return event.to_vec();
                }
            }
            let frame = timeout(EVENT_WAIT, self.body.frame()).await.expect("an event in time");
            let frame = frame.expect("no end").expect("no break");
            self.received.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
    }

    /// Waits for an event about one object, and for no other event.
    pub(crate) async fn tells(&mut self, kind: &str, name: &str) {
        let event = self.next().await;
        let has = |text: &str| event.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(has(kind) && has(name), "no {kind} of {name}: {}", event.escape_ascii());
    }
}

fn frames(body: Body, said: Arc<Mutex<Vec<u8>>>) -> Body {
    let lines = Lines { body, rest: Vec::new(), said };
    let frames = stream::unfold(lines, async |mut lines| {
        let frame = lines.next().await?;
        Some((frame.map(|bytes| Frame::data(Bytes::from(bytes))), lines))
    });
    Body::wrap(StreamBody::new(frames))
}

// === impl Lines ===

impl Lines {
    /// The next event as a frame.
    async fn next(&mut self) -> Option<Result<Vec<u8>, BoxError>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let frame = delimited(&serde_json::from_slice(&line).expect("an event"));
                self.said.lock().expect("no panic holds it").extend_from_slice(&frame);
                return Some(Ok(frame));
            }
            match self.body.frame().await? {
                Ok(frame) => self.rest.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// An event as `k8s.io/apimachinery` encodes it: its length, its type, the object in its envelope.
fn delimited(event: &Value) -> Vec<u8> {
    let object = field(2, &field(1, &encoded(&event["object"])));
    let event = [text(1, &event["type"]), object].concat();
    let length = u32::try_from(event.len()).expect("small");
    [&length.to_be_bytes()[..], &event].concat()
}

/// A field whose value has a length.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = value.len();
    while length >= 0x80 {
        field.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend_from_slice(value);
    field
}

fn text(number: u8, value: &Value) -> Vec<u8> {
    field(number, value.as_str().unwrap_or_default().as_bytes())
}

/// The parts that a session learns from, as `k8s.io/apimachinery` encodes them (S-CT-20).
fn encoded(object: &Value) -> Vec<u8> {
    let meta = &object["metadata"];
    let mut metadata = [text(1, &meta["name"]), text(3, &meta["namespace"])].concat();
    metadata.extend([text(5, &meta["uid"]), text(6, &meta["resourceVersion"])].concat());
    for (key, value) in meta["labels"].as_object().into_iter().flatten() {
        metadata.extend(field(11, &[field(1, key.as_bytes()), text(2, value)].concat()));
    }
    let kind = [text(1, &object["apiVersion"]), text(2, &object["kind"])].concat();
    let unknown = [field(1, &kind), field(2, &field(1, &metadata))].concat();
    [b"k8s\0".to_vec(), unknown].concat()
}
