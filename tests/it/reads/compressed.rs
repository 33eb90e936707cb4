//! Compressed lists while objects change: parts of the earlier state are taken over.

use std::{io::Read, time::Duration};

use flate2::bufread::GzDecoder;
use http::Request;
use listless::{api::ObjectKey, body::Body};
use serde_json::{Value, json};

use crate::harness::{
    Answer, Setup, TABLE, TestClient, TestProxy, group_resource, pass, pod, settle,
};

const PODS: &str = "/api/v1/namespaces/large/pods";

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf,application/json";

const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

const TYPED_METADATA: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// Every form in which memory prints a list.
const FORMS: [&str; 5] = ["application/json", PROTOBUF, TABLE, METADATA, TYPED_METADATA];

/// Whole lists, selections by object, and a page.
const SUFFIXES: [&str; 4] =
    ["", "?labelSelector=app%3Deven", "?labelSelector=app%3Dodd", "?limit=150"];

/// Returns a pod of 3 kB that repeats itself only a little.
fn large_pod(number: usize, change: usize) -> Value {
    let app = if number.is_multiple_of(2) { "even" } else { "odd" };
    let mut pod = pod("large", &format!("p-{number:03}"), &[("app", app)], "n1");
    let text = |index| format!("{:x}.", (number + 7 * change + index) * 2_654_435_761 % 65_521);
    let padding: String = (0..700).map(text).collect();
    pod["metadata"]["annotations"] = json!({"padding": padding});
    pod
}

async fn proxy() -> TestProxy {
    configured("").await
}

async fn configured(config: &str) -> TestProxy {
    let proxy = Setup::default().config(config).in_memory();
    for number in 0..200 {
        put(&proxy, number, 0);
    }
    for accept in FORMS {
        let client = proxy.client().with("accept", accept);
        client.get(PODS).await;
        client.get(PODS).await;
        // The form of tokens is learned from the apiserver's.
        client.get(&format!("{PODS}?limit=1")).await;
        settle().await;
    }
    proxy
}

fn put(proxy: &TestProxy, number: usize, change: usize) {
    proxy.simulator.put(&group_resource("pods"), large_pod(number, change)).expect("served");
}

/// Decodes one gzip member, and requires that no byte follows it.
fn unzipped(answer: &Answer) -> Vec<u8> {
    let (mut text, mut rest) = (Vec::new(), &answer.body[..]);
    GzDecoder::new(&mut rest).read_to_end(&mut text).expect("a gzip member");
    assert!(rest.is_empty(), "more than one member");
    text
}

/// Compares every form and selection, compressed, with the same response as it is.
async fn are_equal(client: &TestClient) {
    for accept in FORMS {
        // Pages of Tables come from the apiserver.
        for suffix in SUFFIXES.iter().filter(|suffix| accept != TABLE || **suffix != "?limit=150") {
            let (path, client) = (format!("{PODS}{suffix}"), client.with("accept", accept));
            let answer = client.with("accept-encoding", "gzip").get(&path).await;
            assert!(answer.is_hit(), "{accept} {path}: {}", answer.cache_status());
            assert_eq!(answer.header("content-encoding"), "gzip", "{accept} {path}");
            assert_eq!(answer.header("content-length"), answer.body.len().to_string());
            let plain = client.get(&path).await;
            assert!(plain.is_hit(), "{accept} {path}: {}", plain.cache_status());
            assert_eq!(answer.header("content-type"), plain.header("content-type"));
            assert!(unzipped(&answer) == plain.body, "{accept} {path}: another text");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_changing_list_is_one_gzip_member_in_every_form() {
    let proxy = proxy().await;
    let clients = [proxy.client(), proxy.client().over_http2()];
    are_equal(&clients[0]).await;
    let removed = ObjectKey::new(Some("large"), "p-100");
    for round in 1..11 {
        match round {
            // An object in the middle, the first and the last one change.
            1 => put(&proxy, 77, round),
            2 => put(&proxy, 0, round),
            3 => put(&proxy, 199, round),
            // One goes, others come at both ends of the list and between.
            4 => drop(proxy.simulator.remove(&group_resource("pods"), &removed)),
            5 => [100, 200, 201].into_iter().for_each(|number| put(&proxy, number, round)),
            6 => (0..200).step_by(3).for_each(|number| put(&proxy, number, round)),
            // Nothing changes, or nothing but the ages of Tables.
            7 => {}
            8 | 9 => pass(Duration::from_millis(700)).await,
            _ => pass(Duration::from_secs(90)).await,
        }
        settle().await;
        are_equal(&clients[round % 2]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_readers_of_a_changed_list_get_its_newest_state() {
    let proxy = proxy().await;
    let client = proxy.client().with("accept-encoding", "gzip");
    for change in 1..4 {
        put(&proxy, 50, change);
        settle().await;
        let plain = proxy.client().get(PODS).await;
        let answers = futures_util::future::join_all((0..8).map(|_| client.get(PODS))).await;
        for answer in answers {
            assert!(answer.is_hit() && unzipped(&answer) == plain.body, "{}", answer.summary());
        }
    }
}

/// Each list has a selection of its own, so that no other response shares its bytes. It is larger than
/// the buffers of connections.
#[tokio::test(start_paused = true)]
async fn lists_that_nobody_reads_are_bounded_in_bytes() {
    let proxy = configured("cache: {responseLimit: 1Mi}\n").await;
    for number in 0..200 {
        let mut pod = large_pod(number, 1);
        let more = (1..6).map(|change| large_pod(number, 1000 * change)["metadata"].take());
        pod["metadata"]["annotations"]["more"] = json!(Value::from_iter(more).to_string());
        proxy.simulator.put(&group_resource("pods"), pod).expect("served");
    }
    for (accept, encoding) in [("application/json", "gzip"), (METADATA, "identity")] {
        let client = proxy.client().with("accept", accept).with("accept-encoding", encoding);
        unread_lists_are_bounded(&client, "app!%3Dn").await;
    }
    assert!(proxy.counted("listless_limits_reached_total", "limit=\"unread_responses\"") > 0.0);
}

#[tokio::test(start_paused = true)]
async fn copies_of_small_objects_that_nobody_reads_are_bounded_in_bytes() {
    let proxy = configured("cache: {responseLimit: 1Mi}\n").await;
    let client = proxy.client().with("accept-encoding", "identity");
    unread_lists_are_bounded(&client, "app%3Deven,app!%3Dn").await;
}

/// Opens lists of unlike selectors and reads none.
async fn unread_lists_are_bounded(client: &TestClient, selector: &str) {
    let path = |number| format!("{PODS}?labelSelector={selector}{number}");
    let (mut unread, mut forwarded) = (Vec::new(), 0);
    for number in 0..48 {
        let request = Request::get(path(number)).body(Body::empty()).expect("a request");
        let response = client.open(request).await;
        let status = response.headers()["cache-status"].to_str().expect("a text").to_owned();
        forwarded += u32::from(status == "listless; fwd=miss; detail=too-many-bytes");
        assert!(forwarded > 0 || status.starts_with("listless; hit"), "{status}");
        unread.push(response);
    }
    assert!(forwarded > 0, "all are held");
    drop(unread);
    settle().await;
    pass(Duration::from_secs(2)).await;
    assert!(client.get(&path(100)).await.is_hit());
}
