//! The simulator's rules, tested as a client sees them: requests in, bytes out.

mod access;
mod reads;
mod sockets;
mod upgrades;
mod watches;
mod writes;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::{Features, Json, ResourceType, Settings, Simulator};
use crate::{api::GroupResource, body::Body};

/// A simulator and a client of it.
struct Bench {
    simulator: Simulator,
    headers: HeaderMap,
}

/// A whole response.
struct Answer {
    code: u16,
    headers: HeaderMap,
    body: String,
}

/// An open watch, read event by event.
struct Events {
    body: Body,
    rest: Vec<u8>,
}

// === impl Bench ===

impl Bench {
    fn new() -> Self {
        Self::with(Settings::default())
    }

    /// Returns a release before WatchList.
    fn old() -> Self {
        Self::with(Settings { features: Features::OLD, ..Settings::default() })
    }

    fn with(settings: Settings) -> Self {
        let simulator = Simulator::new(settings);
        simulator.register(ResourceType::custom("x.io", &["v1", "v1beta1"], "widgets", "Widget"));
        Self { simulator, headers: HeaderMap::new() }
    }

    fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(name, http::HeaderValue::from_static(value));
        self
    }

    async fn open(&self, method: Method, path: &str, body: &str) -> http::Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.headers.clone());
        }
        let request = request.body(Body::full(body.to_owned())).expect("a request");
        self.simulator.answer(request).await.expect("an answer")
    }

    async fn send(&self, method: Method, path: &str, body: &str) -> Answer {
        let (parts, body) = self.open(method, path, body).await.into_parts();
        let bytes = body.collect(64 << 20).await.expect("a whole body");
        let body = String::from_utf8_lossy(&bytes).into_owned();
        Answer { code: parts.status.as_u16(), headers: parts.headers, body }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, "").await
    }

    async fn post(&self, path: &str, body: &str) -> Answer {
        self.send(Method::POST, path, body).await
    }

    async fn patch(&self, path: &str, content_type: &'static str, body: &str) -> Answer {
        let simulator = self.simulator.clone();
        let bench = Self { simulator, headers: self.headers.clone() };
        bench.header("content-type", content_type).send(Method::PATCH, path, body).await
    }

    async fn watch(&self, path: &str) -> Events {
        let (parts, body) = self.open(Method::GET, path, "").await.into_parts();
        assert_eq!(parts.status, StatusCode::OK, "{path}");
        Events { body, rest: Vec::new() }
    }

    /// Writes a pod as controllers do and returns its version.
    fn pod(&self, namespace: &str, name: &str, phase: &str) -> u64 {
        let pod = serde_json::json!({
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
            "status": {"phase": phase},
        });
        self.simulator.put(&pods(), pod).expect("pods are built in")
    }
}

// === impl Answer ===

impl Answer {
    fn json(&self) -> Json {
        Json::parse(self.body.as_bytes()).expect("a JSON body")
    }

    fn text_at(&self, path: &[&str]) -> String {
        self.json().str_at(path).unwrap_or_default().to_owned()
    }

    /// Returns the names of a list's items, each with its namespace.
    fn names(&self) -> Vec<String> {
        let json = self.json();
        let name = |item: &Json| {
            let part = |key| item.str_at(&["metadata", key]).unwrap_or_default();
            format!("{}/{}", part("namespace"), part("name"))
        };
        json.get("items").map(Json::as_array).unwrap_or_default().iter().map(name).collect()
    }

    fn version(&self) -> u64 {
        self.text_at(&["metadata", "resourceVersion"]).parse().expect("a version")
    }
}

// === impl Events ===

impl Events {
    /// Returns the next event's type and name; for bookmarks and errors its version or message.
    async fn next(&mut self) -> Option<(String, String)> {
        let event = Json::parse(&self.next_bytes().await?).expect("an event");
        let object = event.get("object").expect("an object");
        let kind = event.str_at(&["type"]).expect("a type");
        let what = match kind {
            "BOOKMARK" => object.str_at(&["metadata", "resourceVersion"]),
            "ERROR" => object.str_at(&["message"]),
            _ => object.str_at(&["metadata", "name"]),
        };
        Some((kind.to_owned(), what.unwrap_or_default().to_owned()))
    }

    /// Returns the next event's line. `None` if the stream has ended or broken.
    async fn next_bytes(&mut self) -> Option<Bytes> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(line.into());
            }
            let frame = self.body.frame().await?.ok()?;
            self.rest.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
    }

    /// Asserts that nothing arrives for a moment of virtual time.
    async fn assert_silent(&mut self) {
        let silence = timeout(Duration::from_millis(200), self.next_bytes()).await;
        assert!(silence.is_err(), "an event or the end arrived: {silence:?}");
    }

    async fn expect(&mut self, expected: &[(&str, &str)]) {
        for (kind, what) in expected {
            let event = self.next().await;
            assert_eq!(event, Some(((*kind).to_owned(), (*what).to_owned())));
        }
    }
}

fn pods() -> GroupResource {
    GroupResource::new("", "pods")
}
