//! The objects of one loop, its writes to them, and its reads of them.

use anyhow::{Context, Result};
use http::Method;
use serde_json::{Value, json};

use super::operation::{Expected, Operation};
use crate::rig::client::{Answer, Client, Request};

/// The encodings of a write's response; a proxy must learn from each.
const ANSWERS: [&str; 4] = [
    "application/json",
    "application/vnd.kubernetes.protobuf,application/json",
    "application/yaml",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
];
const FINALIZER: &str = "example.com/stay";

/// One loop's kind of write, its client and its objects.
#[derive(Debug)]
pub(super) struct Subject {
    client: Client,
    pub(super) operation: Operation,
    /// Distinguishes loops of the same kind.
    index: usize,
    made: bool,
    /// The object that was created last, to be removed before the next.
    last: Option<String>,
}

// === impl Subject ===

impl Subject {
    pub(super) fn new(client: Client, operation: Operation, index: usize) -> Self {
        Self { client, operation, index, made: false, last: None }
    }

    /// Every collection any loop works on.
    pub(super) fn collections() -> Vec<String> {
        let mut all: Vec<String> = Operation::ALL.map(Operation::collection).into();
        all.sort();
        all.dedup();
        all
    }

    /// Writes once and returns the state that reads must show from then on.
    pub(super) async fn write(&mut self, number: u32) -> Result<Expected> {
        match self.operation {
            Operation::Create | Operation::CreateWithGeneratedName => self.create(number).await,
            Operation::Delete | Operation::Eviction => self.remove(number).await,
            Operation::DeleteCollection => self.remove_collection(number).await,
            Operation::Finalizer => self.remove_finalizer(number).await,
            _ => self.change(number).await,
        }
    }

    /// A LIST by selector, then a GET; each response with its errors.
    pub(super) async fn read(&self, expected: &Expected) -> Result<Vec<(Answer, Option<String>)>> {
        let target = format!("{}?labelSelector={}", self.collection(), self.selector());
        let list = self.client.get(&target).await?;
        let get = self.client.get(&self.path(expected.name())).await?;
        let name = expected.name();
        let tell = |what: &str, wrong: String| format!("{what} {name}: {wrong}");
        let in_list = wrong_in_list(&list, expected).map(|wrong| tell("LIST", wrong));
        let in_get = wrong_in_get(&get, expected).map(|wrong| tell("GET", wrong));
        Ok(vec![(list, in_list), (get, in_get)])
    }

    /// One change to another object with the same label.
    pub(super) async fn churn(client: &Client, operation: Operation, number: u64) -> Result<()> {
        let name = format!("churn-{}", operation.label());
        let mut object = object(operation, &name, &number.to_string());
        if operation == Operation::DeleteCollection {
            // The loop that deletes by label must not delete it.
            object["metadata"]["labels"] = json!({"operation": "none"});
        }
        let path = format!("{}/{name}", operation.collection());
        let annotations = &object["metadata"]["annotations"];
        let patch = json!({"metadata": {"annotations": annotations}}).to_string();
        let patch = Request::new(Method::PATCH, &path).body(MERGE, patch);
        if client.send(patch).await?.status.as_u16() == 404 {
            let post = Request::new(Method::POST, &operation.collection()).json(&object);
            client.send(post).await?.successful()?;
        }
        Ok(())
    }

    fn collection(&self) -> String {
        self.operation.collection()
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.collection())
    }

    fn selector(&self) -> String {
        format!("operation%3D{}", self.operation.label())
    }

    fn name(&self, number: u32) -> String {
        format!("{}-{}-{number}", self.operation.label(), self.index)
    }

    async fn send(&self, request: Request, number: u32) -> Result<Answer> {
        let accept = ANSWERS[number as usize % ANSWERS.len()];
        self.client.send(request.header("Accept", accept)).await?.successful()
    }

    async fn make(&self, object: &Value, number: u32) -> Result<Answer> {
        let post = Request::new(Method::POST, &self.collection()).json(object);
        self.send(post, number).await
    }

    async fn create(&mut self, number: u32) -> Result<Expected> {
        // The previous object is removed, so that lists stay short.
        if let Some(last) = self.last.take() {
            self.client
                .send(Request::new(Method::DELETE, &self.path(&last)))
                .await?
                .successful()?;
        }
        let mut object = object(self.operation, &self.name(number), &number.to_string());
        let mut accepted = number;
        if self.operation == Operation::CreateWithGeneratedName {
            object["metadata"]["generateName"] = json!(format!("{}-", self.name(number)));
            object["metadata"].as_object_mut().context("metadata")?.remove("name");
            // Only the response contains the name. It must be an encoding that the loop can read.
            accepted = 0;
        }
        let answer = self.make(&object, accepted).await?;
        let name = match version_and_name(&answer) {
            Some((_, name)) if accepted == 0 => name,
            _ => self.name(number),
        };
        self.last = Some(name.clone());
        Ok(present(&name, &number.to_string(), &answer, true))
    }

    async fn change(&mut self, number: u32) -> Result<Expected> {
        let name = self.name(0);
        if !self.made {
            self.make(&object(self.operation, &name, "none"), number).await?;
            self.made = true;
        }
        let value = number.to_string();
        let selected = self.operation != Operation::Relabel || number.is_multiple_of(2);
        let request = self.changing(&name, &value, selected).await?;
        let answer = self.send(request, number).await?;
        Ok(present(&name, &value, &answer, selected))
    }

    async fn changing(&self, name: &str, value: &str, selected: bool) -> Result<Request> {
        let path = self.path(name);
        let annotations = json!({"example.com/value": value});
        let merge = json!({"metadata": {"annotations": annotations}}).to_string();
        let patch = |path: &str, kind: &str, body: String| {
            Request::new(Method::PATCH, path).body(kind, body)
        };
        Ok(match self.operation {
            Operation::Update => {
                let mut held = self.client.get(&path).await?.successful()?.json()?;
                held["metadata"]["annotations"] = annotations;
                Request::new(Method::PUT, &path).json(&held)
            }
            Operation::JsonPatch => {
                let at = "/metadata/annotations/example.com~1value";
                let body = json!([{"op": "replace", "path": at, "value": value}]);
                patch(&path, "application/json-patch+json", body.to_string())
            }
            Operation::StrategicPatch => {
                patch(&path, "application/strategic-merge-patch+json", merge)
            }
            Operation::Apply => {
                let metadata = json!({"name": name, "annotations": annotations});
                let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
                let path = format!("{path}?fieldManager=rig&force=true");
                patch(&path, "application/apply-patch+yaml", body.to_string())
            }
            Operation::Relabel => {
                let label = if selected { self.operation.label() } else { "elsewhere".to_owned() };
                let metadata = json!({"annotations": annotations, "labels": {"operation": label}});
                patch(&path, MERGE, json!({"metadata": metadata}).to_string())
            }
            Operation::Status => {
                let body = json!({"metadata": {"annotations": annotations},
                                  "status": {"message": value}});
                patch(&format!("{path}/status"), MERGE, body.to_string())
            }
            _ => patch(&path, MERGE, merge),
        })
    }

    async fn remove(&mut self, number: u32) -> Result<Expected> {
        let name = self.name(number);
        self.make(&object(self.operation, &name, ""), number).await?;
        let request = if self.operation == Operation::Eviction {
            let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
                                  "metadata": {"name": name}});
            Request::new(Method::POST, &format!("{}/eviction", self.path(&name))).json(&eviction)
        } else {
            Request::new(Method::DELETE, &self.path(&name))
        };
        self.client.send(request).await?.successful()?;
        Ok(Expected::Absent { name })
    }

    async fn remove_collection(&mut self, number: u32) -> Result<Expected> {
        // Each loop deletes its own: another's create may come between.
        let own = format!("loop-{}", self.index);
        for part in 0..2 {
            let name = format!("{}-{part}", self.name(number));
            let mut object = object(self.operation, &name, "");
            object["metadata"]["labels"]["loop"] = json!(own);
            self.make(&object, number).await?;
        }
        let target = format!("{}?labelSelector=loop%3D{own}", self.collection());
        self.client.send(Request::new(Method::DELETE, &target)).await?.successful()?;
        Ok(Expected::Absent { name: format!("{}-1", self.name(number)) })
    }

    async fn remove_finalizer(&mut self, number: u32) -> Result<Expected> {
        let name = self.name(number);
        let mut object = object(self.operation, &name, "");
        object["metadata"]["finalizers"] = json!([FINALIZER]);
        self.make(&object, number).await?;
        let path = self.path(&name);
        self.client.send(Request::new(Method::DELETE, &path)).await?.successful()?;
        let patch = json!({"metadata": {"finalizers": null}}).to_string();
        let patch = Request::new(Method::PATCH, &path).body(MERGE, patch);
        self.send(patch, number).await?;
        Ok(Expected::Absent { name })
    }
}

const MERGE: &str = "application/merge-patch+json";

fn object(operation: Operation, name: &str, value: &str) -> Value {
    let metadata = json!({
        "name": name,
        "labels": {"operation": operation.label()},
        "annotations": {"example.com/value": value},
    });
    match operation.collection().rsplit('/').next() {
        Some("pods") => {
            let containers = json!([{"name": "main", "image": "example.com/app:1"}]);
            let spec = json!({"containers": containers, "terminationGracePeriodSeconds": 0});
            json!({"metadata": metadata, "spec": spec})
        }
        Some("widgets") => json!({
            "apiVersion": "shop.example.com/v1", "kind": "Widget",
            "metadata": metadata, "spec": {"color": "red"},
        }),
        _ => json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}),
    }
}

fn present(name: &str, value: &str, answer: &Answer, selected: bool) -> Expected {
    let version = version_and_name(answer).map(|(version, _)| version);
    Expected::Present { name: name.to_owned(), value: value.to_owned(), version, selected }
}

/// The content of a write's response, where it is in JSON.
fn version_and_name(answer: &Answer) -> Option<(u64, String)> {
    let metadata = &answer.json().ok()?["metadata"];
    let version = metadata["resourceVersion"].as_str()?.parse().ok()?;
    Some((version, metadata["name"].as_str()?.to_owned()))
}

fn wrong_in_list(answer: &Answer, expected: &Expected) -> Option<String> {
    let Ok(list) = answer.json() else { return Some(format!("{}: no JSON", answer.status)) };
    let Some(items) = list["items"].as_array() else {
        return Some(format!("{}: {}", answer.status, answer.excerpt()));
    };
    let own: Vec<&Value> =
        items.iter().filter(|item| item["metadata"]["name"] == expected.name()).collect();
    match (expected, own.as_slice()) {
        (Expected::Absent { .. } | Expected::Present { selected: false, .. }, []) => None,
        (Expected::Present { selected: true, .. }, [item]) => {
            wrong_object(item, expected).or_else(|| {
                let number = |value: &Value| value["resourceVersion"].as_str()?.parse().ok();
                let (list, item): (Option<u64>, Option<u64>) =
                    (number(&list["metadata"]), number(&item["metadata"]));
                (list < item).then(|| format!("a list at {list:?} with an item at {item:?}"))
            })
        }
        (_, found) => Some(format!("{} times in a list of {}", found.len(), items.len())),
    }
}

fn wrong_in_get(answer: &Answer, expected: &Expected) -> Option<String> {
    match (expected, answer.status.as_u16()) {
        (Expected::Absent { .. }, 404) => None,
        (Expected::Present { .. }, 200) => match answer.json() {
            Ok(object) => wrong_object(&object, expected),
            Err(error) => Some(format!("{error:#}")),
        },
        (_, status) => Some(format!("status {status}")),
    }
}

fn wrong_object(object: &Value, expected: &Expected) -> Option<String> {
    let Expected::Present { value, version, .. } = expected else { return None };
    let metadata = &object["metadata"];
    let held = &metadata["annotations"]["example.com/value"];
    if held != value {
        return Some(format!("value {held} instead of {value}"));
    }
    let held = metadata["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok());
    match version {
        Some(version) if held != Some(*version) => {
            Some(format!("version {held:?} instead of {version}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn answer(status: u16, body: &Value) -> Answer {
        let status = StatusCode::from_u16(status).expect("a status");
        Answer { status, headers: http::HeaderMap::new(), body: body.to_string().into() }
    }

    fn item(value: &str, version: &str) -> Value {
        let annotations = json!({"example.com/value": value});
        json!({"metadata": {"name": "a", "resourceVersion": version, "annotations": annotations}})
    }

    fn list(version: &str, items: &[Value]) -> Answer {
        answer(200, &json!({"metadata": {"resourceVersion": version}, "items": items}))
    }

    #[test]
    fn stale_and_impossible_answers_are_misses() {
        let (name, value) = ("a".to_owned(), "7".to_owned());
        let present = Expected::Present { name, value, version: Some(9), selected: true };
        let absent = Expected::Absent { name: "a".to_owned() };

        assert_eq!(wrong_in_list(&list("9", &[item("7", "9")]), &present), None);
        for wrong in [
            list("9", &[]),
            list("9", &[item("6", "8")]),
            list("9", &[item("7", "8")]),
            list("8", &[item("7", "9")]),
            list("9", &[item("7", "9"), item("7", "9")]),
            answer(503, &json!({"kind": "Status"})),
        ] {
            assert!(wrong_in_list(&wrong, &present).is_some(), "{}", wrong.excerpt());
        }
        assert_eq!(wrong_in_list(&list("9", &[]), &absent), None);
        assert!(wrong_in_list(&list("9", &[item("7", "9")]), &absent).is_some());

        assert_eq!(wrong_in_get(&answer(200, &item("7", "9")), &present), None);
        assert!(wrong_in_get(&answer(200, &item("6", "8")), &present).is_some());
        assert!(wrong_in_get(&answer(404, &json!({})), &present).is_some());
        assert!(wrong_in_get(&answer(200, &item("7", "9")), &absent).is_some());
        assert_eq!(wrong_in_get(&answer(404, &json!({})), &absent), None);
    }
}
