//! Rendered objects, and their paths at an apiserver.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::rig::client::Client;

/// The path of each kind: by group and version, then by kind.
#[derive(Debug)]
pub struct Locations(BTreeMap<(String, String), Location>);

#[derive(Clone, Debug)]
struct Location {
    prefix: String,
    plural: String,
    namespaced: bool,
}

/// The objects of a rendered chart.
pub fn read(rendered: &str) -> Result<Vec<Value>> {
    let documents = rendered.split("\n---\n").map(serde_saphyr::from_str::<Value>);
    let objects: Vec<Value> = documents.collect::<Result<_, _>>()?;
    Ok(objects.into_iter().filter(Value::is_object).collect())
}

/// Its kind and name, for messages.
pub fn said(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// Every group and version that an apiserver serves, as the beginning of a path.
pub async fn group_versions(client: &Client) -> Result<Vec<(String, String)>> {
    let groups = client.get("/apis").await?.successful()?.json()?;
    let mut found = vec![("v1".to_owned(), "/api/v1".to_owned())];
    for group in groups["groups"].as_array().context("groups")? {
        for version in group["versions"].as_array().context("versions")? {
            let name = version["groupVersion"].as_str().context("a name")?;
            found.push((name.to_owned(), format!("/apis/{name}")));
        }
    }
    Ok(found)
}

/// The resources of a group and version, without subresources.
pub async fn resources(client: &Client, prefix: &str) -> Result<Vec<Value>> {
    let list = client.get(prefix).await?.successful()?.json()?;
    let all = list["resources"].as_array().context("resources")?.iter();
    let whole = |resource: &&Value| !resource["name"].as_str().unwrap_or("/").contains('/');
    Ok(all.filter(whole).cloned().collect())
}

// === impl Locations ===

impl Locations {
    /// From discovery.
    pub async fn read(client: &Client) -> Result<Self> {
        let mut places = BTreeMap::new();
        for (group_version, prefix) in group_versions(client).await? {
            for resource in resources(client, &prefix).await? {
                let text = |name: &str| resource[name].as_str().unwrap_or_default().to_owned();
                let namespaced = resource["namespaced"] == true;
                let place = Location { prefix: prefix.clone(), plural: text("name"), namespaced };
                places.insert((group_version.clone(), text("kind")), place);
            }
        }
        Ok(Self(places))
    }

    /// The path of an object; one without a namespace belongs to this one.
    pub fn path(&self, object: &Value, namespace: &str) -> Result<String> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let version = text(&object["apiVersion"]).context("no apiVersion")?;
        let kind = text(&object["kind"]).context("no kind")?;
        let name = text(&object["metadata"]["name"]).context("no name")?;
        let place = self.0.get(&(version, kind)).with_context(|| format!("unknown {object}"))?;
        let Location { prefix, plural, namespaced } = place;
        if !namespaced {
            return Ok(format!("{prefix}/{plural}/{name}"));
        }
        let namespace =
            text(&object["metadata"]["namespace"]).unwrap_or_else(|| namespace.to_owned());
        Ok(format!("{prefix}/namespaces/{namespace}/{plural}/{name}"))
    }
}
