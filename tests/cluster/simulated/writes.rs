//! The same writes to both servers: responses, and the events of a watch, must be alike.
//!
//! Uids, times and field owners are each server's own and are left out. Versions are compared by
//! the order in which they first appear. A write that should keep a version is therefore detected.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;
use http::Method;
use http_body_util::BodyExt;
use listless::simulator::Json;
use tokio::time::timeout;

use super::real_and_simulated;
use crate::clusters::Cluster;
use crate::dataset::current_version;
use crate::rig::client::{Answer, Client, Request};
use crate::rig::control_plane::Version;

const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON: &str = "application/json";

/// The limit on the delay of an event; silence after the last one is not awaited.
const EVENT_LIMIT: Duration = Duration::from_secs(60);

/// The writes to a collection, one after the other. `{o}` stands for the object's path, `@last` for
/// the body of the last response that was an object, `@first` for the first one.
const STEPS: &[(&str, &str, &str, &str)] = &[
    ("POST", "", JSON, r#"{"metadata":{"name":"a","labels":{"l":"1"}},"data":{"k":"v"}}"#),
    ("GET", "{o}", "", ""),
    ("POST", "", JSON, r#"{"metadata":{"name":"a"}}"#),
    ("POST", "", JSON, r#"{"metadata":{"labels":{"l":"1"}}}"#),
    ("POST", "", JSON, r#"{"metadata":{"name":"b","namespace":"elsewhere"}}"#),
    ("POST", "", JSON, r#"{"metadata":{"name":"b","resourceVersion":"5"}}"#),
    ("POST", "?dryRun=All", JSON, r#"{"metadata":{"name":"b"},"data":{"k":"v"}}"#),
    ("PUT", "{o}", JSON, "@last"),
    ("PUT", "{o}", JSON, r#"@last "k":"v" => "k":"w""#),
    ("PUT", "{o}", JSON, r#"@first "k":"v" => "k":"x""#),
    ("PUT", "{o}?dryRun=All", JSON, r#"@last "k":"w" => "k":"y""#),
    ("PUT", "/b", JSON, "@last"),
    ("PUT", "/b", JSON, r#"@last "name":"a" => "name":"b""#),
    ("PATCH", "{o}", MERGE, r#"{"data":{"k":"p","n":"1"},"metadata":{"labels":{"m":"2"}}}"#),
    ("PATCH", "{o}", MERGE, r#"{"data":{"k":"p"}}"#),
    ("PATCH", "{o}", MERGE, r#"{"data":{"n":null}}"#),
    ("PATCH", "{o}", MERGE, r#"{"metadata":{"resourceVersion":"1"},"data":{"k":"z"}}"#),
    ("PATCH", "{o}", JSON_PATCH, r#"[{"op":"replace","path":"/data/k","value":"j"}]"#),
    ("PATCH", "{o}", JSON_PATCH, r#"[{"op":"test","path":"/data/k","value":"no"}]"#),
    ("PATCH", "{o}", JSON_PATCH, r#"[{"op":"remove","path":"/data/none"}]"#),
    ("PATCH", "{o}", STRATEGIC, r#"{"data":{"s":"1"}}"#),
    ("PATCH", "{o}", "text/plain", "{}"),
    ("PATCH", "/none", MERGE, "{}"),
    ("PATCH", "{o}", MERGE, r#"{"metadata":{"finalizers":["example.com/hold"]}}"#),
    ("DELETE", "{o}", JSON, r#"{"preconditions":{"uid":"00000000-0000-4000-8000-000000000000"}}"#),
    ("DELETE", "{o}", JSON, r#"{"preconditions":{"resourceVersion":"1"}}"#),
    ("DELETE", "{o}?dryRun=All", "", ""),
    ("DELETE", "{o}", "", ""),
    ("DELETE", "{o}", "", ""),
    ("PATCH", "{o}", MERGE, r#"{"metadata":{"finalizers":null}}"#),
    ("GET", "{o}", "", ""),
    ("DELETE", "{o}", "", ""),
    ("POST", "", JSON, r#"{"metadata":{"name":"c","labels":{"l":"3"}}}"#),
    ("POST", "", JSON, r#"{"metadata":{"name":"d","labels":{"l":"4"}}}"#),
    ("POST", "", JSON, r#"{"metadata":{"name":"e","labels":{"l":"4"}}}"#),
    ("DELETE", "?labelSelector=l%3D4", "", ""),
    ("DELETE", "/c", "", ""),
];

/// Events of the steps above: the stored object changes this many times.
const EVENTS: usize = 15;

/// One server, and the content of its responses so far.
struct Writer {
    client: Client,
    collection: String,
    names: Names,
    first: String,
    last: String,
}

/// Versions by the order in which they appeared.
#[derive(Default)]
pub(super) struct Names(HashMap<String, usize>);

#[tokio::test]
async fn the_simulator_writes_like_the_apiserver() {
    let Some(cluster) = Cluster::take(Version::V1_36).await else { return };
    let (real, _twin, simulated) = real_and_simulated(&cluster).await;
    let mut differences = Vec::new();
    for collection in [
        "/api/v1/namespaces/empty/configmaps",
        "/apis/shop.example.com/v1/namespaces/empty/widgets",
    ] {
        let mut expected = Writer::new(&real, collection);
        let mut given = Writer::new(&simulated, collection);
        let watches = (expected.watch().await, given.watch().await);
        for step in STEPS {
            let expected = expected.step(step).await.expect("an answer");
            let given = given.step(step).await.expect("an answer");
            if expected != given {
                let (method, path, _, body) = step;
                differences.push(format!(
                    "{method} {collection}{path} {body}\n    real      {expected}\n    simulated {given}"
                ));
            }
        }
        let events = (events(watches.0).await, events(watches.1).await);
        if events.0 != events.1 {
            let [real, simulated] = [events.0, events.1].map(|events| events.join("\n    "));
            differences
                .push(format!("events of {collection}\n    {real}\n  simulated\n    {simulated}"));
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}

/// The events of the steps, each in brief.
async fn events(mut body: hyper::body::Incoming) -> Vec<String> {
    let (mut names, mut rest, mut events) = (Names::default(), Vec::new(), Vec::new());
    while events.len() < EVENTS {
        let Ok(Some(Ok(frame))) = timeout(EVENT_LIMIT, body.frame()).await else { break };
        rest.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            events.push(names.reduced(&line));
        }
    }
    events
}

// === impl Writer ===

impl Writer {
    fn new(client: &Client, collection: &str) -> Self {
        Self {
            client: client.clone(),
            collection: collection.to_owned(),
            names: Names::default(),
            first: String::new(),
            last: String::new(),
        }
    }

    async fn watch(&self) -> hyper::body::Incoming {
        let version = current_version(&self.client).await.expect("a version");
        let target = format!("{}?watch=true&resourceVersion={version}", self.collection);
        self.client.open(Request::get(&target)).await.expect("a watch").into_body()
    }

    /// Takes one step and returns its result.
    async fn step(&mut self, step: &(&str, &str, &str, &str)) -> Result<String> {
        let (method, path, content_type, body) = *step;
        let path = path.replace("{o}", "/a");
        let mut request = Request::new(
            Method::from_bytes(method.as_bytes())?,
            &(self.collection.clone() + &path),
        );
        if !body.is_empty() {
            request = request.body(content_type, self.body(body));
        }
        let answer = self.client.send(request).await?;
        if answer.status.is_success() && method != "DELETE" && !path.contains("dryRun") {
            self.last = String::from_utf8_lossy(&answer.body).into_owned();
            if self.first.is_empty() {
                self.first.clone_from(&self.last);
            }
        }
        Ok(self.told(&answer))
    }

    fn body(&self, text: &str) -> String {
        let (source, change) = match text.split_once(' ') {
            Some((source, change)) if source.starts_with('@') => (source, Some(change)),
            _ => (text, None),
        };
        let source = match source {
            "@last" => &self.last,
            "@first" => &self.first,
            _ => return self.in_kind(text),
        };
        match change.and_then(|change| change.split_once(" => ")) {
            Some((from, to)) => source.replace(from, to),
            None => source.clone(),
        }
    }

    /// A body as the collection's kind has it: custom objects must name their kind, and keep fields
    /// outside their schema in `spec`.
    fn in_kind(&self, body: &str) -> String {
        if !self.collection.contains("widgets") {
            return body.to_owned();
        }
        let body = body.replace("\"data\"", "\"spec\"").replace("/data/", "/spec/");
        let named = r#"{"kind":"Widget","apiVersion":"shop.example.com/v1","metadata":{"#;
        match body.strip_prefix(r#"{"metadata":{"#) {
            Some(rest) => format!("{named}{rest}"),
            None => body,
        }
    }

    fn told(&mut self, answer: &Answer) -> String {
        format!("{} {}", answer.status, self.names.reduced(&answer.body))
    }
}

// === impl Names ===

impl Names {
    /// A body without the parts that are each server's own.
    pub(super) fn reduced(&mut self, body: &[u8]) -> String {
        let Ok(mut json) = Json::parse(body) else {
            return String::from_utf8_lossy(body).into_owned();
        };
        self.reduce(&mut json);
        String::from_utf8_lossy(&json.to_bytes()).into_owned()
    }

    fn reduce(&mut self, json: &mut Json) {
        match json {
            Json::Array(elements) => elements.iter_mut().for_each(|element| self.reduce(element)),
            Json::Object(members) => {
                members.retain(|(key, _)| key != "managedFields");
                for (key, value) in members {
                    match key.as_str() {
                        "uid" | "creationTimestamp" | "deletionTimestamp" => *value = "~".into(),
                        "resourceVersion" => *value = self.name(value).into(),
                        "message" => *value = without_uids(value).into(),
                        _ => self.reduce(value),
                    }
                }
            }
            _ => {}
        }
    }

    fn name(&mut self, version: &Json) -> String {
        let next = self.0.len();
        let version = version.as_str().unwrap_or_default().to_owned();
        format!("#{}", self.0.entry(version).or_insert(next))
    }
}

/// A message without uids and versions.
fn without_uids(message: &Json) -> String {
    let text = message.as_str().unwrap_or_default();
    let words = text.split(' ').map(|word| {
        let own = word.contains('-') && word.chars().filter(char::is_ascii_hexdigit).count() >= 32
            || word.trim_matches(['(', ')', '.']).parse::<u64>().is_ok();
        if own { "~" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}
