//! Every object that an apiserver holds, by name.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use http::StatusCode;
use serde_json::Value;

use super::objects::{group_versions, resources};
use crate::rig::client::{Client, Request};

const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// Resources whose objects come and go by themselves.
const RESTLESS: [&str; 2] = ["events", "leases"];
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(500);

/// Lists every resource that can be listed.
pub async fn everything(client: &Client) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for (_, prefix) in group_versions(client).await? {
        for resource in resources(client, &prefix).await? {
            let name = resource["name"].as_str().unwrap_or_default();
            let verbs = resource["verbs"].as_array().cloned().unwrap_or_default();
            if !verbs.contains(&Value::from("list")) || RESTLESS.contains(&name) {
                continue;
            }
            let list = list(client, &format!("{prefix}/{name}")).await?;
            for item in list["items"].as_array().into_iter().flatten() {
                let metadata = &item["metadata"];
                let namespace = metadata["namespace"].as_str().unwrap_or("-");
                let object = metadata["name"].as_str().unwrap_or_default();
                found.insert(format!("{prefix}/{name} {namespace}/{object}"));
            }
        }
    }
    Ok(found)
}

/// A list; the storage of a kind that was just defined may still answer with a retry.
async fn list(client: &Client, path: &str) -> Result<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = client.send(Request::get(path).header("Accept", METADATA)).await?;
        if answer.status != StatusCode::TOO_MANY_REQUESTS || Instant::now() > deadline {
            return answer.successful()?.json();
        }
        tokio::time::sleep(POLL).await;
    }
}
