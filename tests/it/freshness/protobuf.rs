//! Who writes in protobuf reads its own writes: the simulator answers in JSON, and on the way back
//! its answers become what a real apiserver would have sent.

use futures_util::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, header};
use listless::{
    api::Verb,
    body::Body,
    simulator::{Asked, Effect, Fault, Simulator},
    upstream::{Client, Error, Lane},
};
use serde_json::Value;

use crate::harness::{Setup, pod, populated};

/// An apiserver whose answers to writes are protobuf.
struct Protobuf(Simulator);

impl Client for Protobuf {
    fn send(
        &self,
        request: Request<Body>,
        lane: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let is_write = request.method() != Method::GET && request.uri().path().ends_with("/pods");
        let answer = self.0.send(request, lane);
        Box::pin(async move {
            let answer = answer.await?;
            if !is_write {
                return Ok(answer);
            }
            let (mut parts, body) = answer.into_parts();
            let json = body.collect(1 << 20).await.expect("a body");
            let encoded = encoded(&serde_json::from_slice(&json).expect("JSON"));
            let media = HeaderValue::from_static("application/vnd.kubernetes.protobuf");
            parts.headers.insert(header::CONTENT_TYPE, media);
            parts.headers.remove(header::CONTENT_LENGTH);
            Ok(Response::from_parts(parts, Body::full(encoded)))
        })
    }

    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.0.upgrade(request)
    }
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

/// What a session learns from, as `k8s.io/apimachinery` encodes it (S-CT-20).
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

#[tokio::test(start_paused = true)]
async fn who_creates_in_protobuf_is_shown_it_and_what_it_has_no_part_in_stays_in_memory() {
    const PODS: &str = "/api/v1/namespaces/a/pods";
    let simulator = populated();
    let protobuf = Protobuf(simulator.clone());
    let proxy = Setup::of(simulator).upstream(protobuf).in_memory();
    let watches = |asked: &Asked| asked.verb == Verb::Watch;
    proxy.simulator.inject(Fault::always(Effect::StallAfter(0), watches));
    proxy.warm(PODS).await;
    let client = proxy.client();
    let new = pod("a", "new", &[("app", "web")], "n1");
    let created = client.create(PODS, &new).await;
    assert_eq!(created.header("content-type"), "application/vnd.kubernetes.protobuf");
    let others = client.get(&format!("{PODS}?labelSelector=app%3Ddb")).await;
    assert!(others.is_hit(), "{}", others.summary());
    let listed = client.get(&format!("{PODS}?labelSelector=app%3Dweb")).await;
    assert!(listed.names().contains(&"a/new".to_owned()), "{}", listed.summary());
    assert_eq!(listed.detail(), "behind");
}
