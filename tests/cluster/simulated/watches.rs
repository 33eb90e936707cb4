//! Watches from every start on both servers: the events before any change, and the end.

use http_body_util::BodyExt;

use super::real_and_simulated;
use super::writes::Names;
use crate::clusters::Cluster;
use crate::rig::client::{Client, Request};
use crate::rig::control_plane::Version;

/// Every stream ends by itself after this; too short for a bookmark between.
const SECOND: &str = "watch=true&timeoutSeconds=1";

/// The number of attempts for a start: on a busy machine a bookmark may be due before a stream
/// ends.
const ATTEMPTS: usize = 3;

const COLLECTIONS: [&str; 4] = [
    "/api/v1/namespaces/shop/services",
    "/api/v1/nodes",
    "/apis/shop.example.com/v1beta1/namespaces/shop/widgets",
    "/api/v1/namespaces/shop/events",
];

/// Starts, with `{v}` for the current version.
const STARTS: &[&str] = &[
    "",
    "allowWatchBookmarks=true",
    "resourceVersion=0",
    "resourceVersion=0&allowWatchBookmarks=true",
    "resourceVersion={v}",
    "resourceVersion={v}&allowWatchBookmarks=true",
    "resourceVersion={v}&limit=1",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={v}&allowWatchBookmarks=1",
    // The wait is longer than a second.
    "timeoutSeconds=9&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=999999999",
    "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={v}",
    "labelSelector=size%3Dlarge",
    "fieldSelector=metadata.name%3Dwidget-1",
    "fieldSelector=metadata.name!%3Dwidget-1&labelSelector=!size",
    // Refused before the stream begins.
    "sendInitialEvents=true",
    "sendInitialEvents=true&resourceVersionMatch=Exact",
    "resourceVersion={v}&resourceVersionMatch=NotOlderThan",
    "resourceVersionMatch=Exact",
    "continue=x",
    "continue=x&resourceVersion={v}",
    "resourceVersion=x",
    "resourceVersion=-1",
    "fieldSelector=spec.none=1",
    "timeoutSeconds=x",
    "limit=x",
];

#[tokio::test]
async fn the_simulator_watches_like_the_apiserver() {
    let Some(cluster) = Cluster::take(Version::V1_36).await else { return };
    let (real, twin, simulated) = real_and_simulated(&cluster).await;
    let mut differences = Vec::new();
    for collection in COLLECTIONS {
        for start in STARTS {
            let mut differing = None;
            for _ in 0..ATTEMPTS {
                twin.catch_up(&real).await.expect("a version");
                let target = target(collection, start, twin.simulator.revision());
                differing = difference(&real, &simulated, &target).await;
                if differing.is_none() {
                    break;
                }
            }
            differences.extend(differing);
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}

fn target(collection: &str, start: &str, version: u64) -> String {
    // The first value of a parameter counts, so a start may have its own timeout.
    let query = format!("{start}&{SECOND}").replace("{v}", &version.to_string());
    format!("{collection}?{}", query.trim_start_matches('&'))
}

/// Both streams, unless they are equal.
async fn difference(real: &Client, simulated: &Client, target: &str) -> Option<String> {
    let (expected, given) = tokio::join!(stream(real, target), stream(simulated, target));
    let [real, simulated] = [&expected, &given].map(|lines| lines.join("\n    "));
    let told = || format!("{target}\n    {real}\n  simulated\n    {simulated}");
    (expected != given).then(told)
}

/// The status and every line of a stream, without the parts that are each server's own.
async fn stream(client: &Client, target: &str) -> Vec<String> {
    let answer = client.open(Request::get(target)).await.expect("an answer");
    let mut lines = vec![answer.status().to_string()];
    let body = answer.into_body().collect().await.expect("a clean end").to_bytes();
    let mut names = Names::default();
    let events = body.split_inclusive(|byte| *byte == b'\n').map(|line| names.reduced(line));
    lines.extend(events.map(|event| {
        if event.contains("\"type\":\"BOOKMARK\"") {
            return without_versions(&event);
        }
        // One second or two: the server adds some of its own.
        match event.split_once("\"retryAfterSeconds\":") {
            Some((before, _)) => before.to_owned(),
            None => event,
        }
    }));
    lines
}

/// A bookmark without its version: caches of both servers are right at any that is new enough.
fn without_versions(event: &str) -> String {
    let mut out = String::new();
    let mut rest = event;
    while let Some((before, after)) = rest.split_once('#') {
        out.push_str(before);
        rest = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
    }
    out + rest
}
