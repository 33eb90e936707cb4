//! The rendered chart, checked by kubeconform against the schemas that an apiserver publishes for
//! its kinds.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::helm::{Helm, Major, built_with_go};
use super::install::{POLL, SETTLE_LIMIT, Stage};
use super::objects::{read, said};
use super::{EXAMPLES, render};
use crate::clusters::skipped;
use crate::rig::artifact::Built;
use crate::rig::client::Client;
use crate::rig::control_plane::Version;

/// kubeconform, and a folder of schemas from an apiserver.
struct Kubeconform {
    binary: PathBuf,
    schemas: TempDir,
}

/// An API version and a kind.
type Kind = (String, String);

#[tokio::test]
async fn every_rendered_object_conforms_to_the_openapi_of_1_36() {
    conforms(Version::V1_36).await;
}

#[tokio::test]
async fn every_rendered_object_conforms_to_the_openapi_of_1_30() {
    conforms(Version::V1_30).await;
}

async fn conforms(version: Version) {
    let Some(kubeconform) = Kubeconform::get() else { return };
    let Some(stage) = Stage::set(version).await else { return };
    let Some(helm) = Helm::get(Major::Four, None) else { return };
    let release = version.release().trim_start_matches('v');
    let (mut known, mut checked) = (BTreeSet::new(), 0);
    let mut all = Vec::new();
    for name in EXAMPLES {
        let text = render::render(&helm, name, release);
        let objects = read(&text).expect("YAML");
        for object in &objects {
            if known.insert(kind_of(object)) {
                kubeconform.learn(&stage.client, &kind_of(object)).await.expect("a schema");
            }
        }
        let found = kubeconform.check(&text).expect("a result");
        let valid = json!({"valid": objects.len(), "invalid": 0, "errors": 0, "skipped": 0});
        assert_eq!(found["summary"], valid, "{name}: {found:#}");
        checked += objects.len();
        all.extend(objects);
    }
    for (object, field) in wrong(&all) {
        let found = kubeconform.check(&object.to_string()).expect("a result");
        let told = found["resources"][0]["msg"].to_string();
        assert_eq!(found["summary"]["invalid"], 1, "{}: {found:#}", said(&object));
        assert!(told.contains(field), "{field}: {told}");
    }
    let kinds = known.len();
    eprintln!(
        "proof: chart: {checked} objects of {kinds} kinds conform to the OpenAPI of {release}"
    );
}

/// Objects with one mistake each, and the field that is wrong.
fn wrong(objects: &[Value]) -> Vec<(Value, &'static str)> {
    let of =
        |kind: &str| objects.iter().find(|object| object["kind"] == kind).expect("one").clone();
    let mut unknown = of("Deployment");
    unknown["spec"]["replica"] = json!(1);
    let mut ill_typed = of("Deployment");
    ill_typed["spec"]["replicas"] = json!("two");
    let mut deep = of("Deployment");
    deep["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = json!("Always");
    let mut missing = of("ClusterRoleBinding");
    missing.as_object_mut().expect("an object").remove("roleRef");
    let mut foreign = of("PodMonitor");
    foreign["spec"]["selectors"] = json!({});
    vec![
        (unknown, "replica"),
        (ill_typed, "/spec/replicas"),
        (deep, "imagePullPolice"),
        (missing, "roleRef"),
        (foreign, "selectors"),
    ]
}

fn kind_of(object: &Value) -> Kind {
    let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
    (text("apiVersion"), text("kind"))
}

/// Forbids fields that a schema does not name, as the apiserver does with strict validation.
fn close(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    let may_hold_more = schema.contains_key("additionalProperties")
        || schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    if schema.contains_key("properties") && !may_hold_more {
        schema.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    for (name, inner) in schema {
        match name.as_str() {
            "properties" => {
                inner.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(close);
            }
            "items" | "additionalProperties" => close(inner),
            _ => {}
        }
    }
}

/// The schema of a kind, with all its references, from the apiserver's document of one group and
/// version.
fn schema_of(document: &Value, (api_version, kind): &Kind) -> Option<Value> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let wanted = json!([{"group": group, "version": version, "kind": kind}]);
    let mut schemas = document["components"]["schemas"].as_object()?.clone();
    let is_wanted = |schema: &Value| schema["x-kubernetes-group-version-kind"] == wanted;
    let name = schemas.iter().find(|(_, schema)| is_wanted(schema))?.0.clone();
    schemas.values_mut().for_each(close);
    let reference = format!("#/components/schemas/{name}");
    Some(json!({"$ref": reference, "components": {"schemas": schemas}}))
}

// === impl Kubeconform ===

impl Kubeconform {
    /// `None` means that it cannot be built here; the reason was printed.
    fn get() -> Option<Self> {
        let built = built_with_go("kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform");
        match built.expect("a build that works") {
            Built::Here(binary) => {
                Some(Self { binary, schemas: TempDir::new().expect("a folder") })
            }
            Built::Impossible(reason) => {
                skipped("the chart's schemas", &reason);
                None
            }
        }
    }

    /// Writes the schema of a kind once the apiserver has it: for a new kind, a moment after it is
    /// served.
    async fn learn(&self, client: &Client, kind: &Kind) -> Result<()> {
        let (api_version, name) = kind;
        let prefix = if api_version.contains('/') { "apis" } else { "api" };
        let deadline = Instant::now() + SETTLE_LIMIT;
        let schema = loop {
            let answer = client.get(&format!("/openapi/v3/{prefix}/{api_version}")).await?;
            if answer.status.is_success()
                && let Some(schema) = schema_of(&answer.json()?, kind)
            {
                break schema;
            }
            ensure!(Instant::now() < deadline, "no schema of {kind:?} after {SETTLE_LIMIT:?}");
            tokio::time::sleep(POLL).await;
        };
        let file = format!("{}-{}.json", api_version.replace('/', "-"), name.to_lowercase());
        Ok(fs::write(self.schemas.path().join(file), schema.to_string())?)
    }

    /// Returns the findings in these documents, as JSON.
    fn check(&self, documents: &str) -> Result<Value> {
        // kubeconform uses the name of the version for the core group.
        let file = "{{ if ne .Group .ResourceAPIVersion }}{{ .Group }}-{{ end }}\
                    {{ .ResourceAPIVersion }}-{{ .ResourceKind }}.json";
        let location = format!("{}/{file}", self.schemas.path().display());
        let mut child = Command::new(&self.binary)
            .args(["-strict", "-summary", "-verbose", "-output", "json"])
            .args(["-schema-location", &location, "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("its input")?.write_all(documents.as_bytes())?;
        let output = child.wait_with_output()?;
        let Ok(found) = serde_json::from_slice(&output.stdout) else {
            bail!("kubeconform: {}", String::from_utf8_lossy(&output.stderr));
        };
        Ok(found)
    }
}
