//! The service account mounts of containers, and their replacement by a copy.

use serde_json::Value;

use super::{
    pod::{ContainerPlace, Pod, list, name},
    reason::{Skip, SkipReason},
    sidecar,
};

/// The mount at the usual path of the service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mount<'a> {
    /// None.
    Absent,
    /// This volume, by the mount at this index.
    Volume { volume: &'a str, index: usize },
    /// A mount that the sidecar cannot use.
    Unusable(String),
}

/// The usual path of the service account, where the apiserver mounts it.
pub(super) const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The bit of a file's mode that lets everybody read it.
const READABLE_BY_ALL: i64 = 0o004;

/// Returns a container's mount at that path. An error if a copy that changes cannot replace it.
pub(super) fn of<'a>(pod: &Pod<'a>, place: &ContainerPlace<'a>) -> Result<Mount<'a>, Skip> {
    let mut found = Mount::Absent;
    for (index, mount) in list(place.container, "volumeMounts").iter().enumerate() {
        let path = mount["mountPath"].as_str().unwrap_or("").trim_end_matches('/');
        let Some(rest) = path.strip_prefix(SERVICE_ACCOUNT) else { continue };
        let is_single = ["subPath", "subPathExpr"]
            .into_iter()
            .any(|field| mount[field].as_str().is_some_and(|path| !path.is_empty()));
        if rest.starts_with('/') || rest.is_empty() && is_single {
            let detail = format!("container {}, {path}", name(place.container));
            return Err(Skip::because(SkipReason::SubpathMount, detail));
        }
        if rest.is_empty() {
            found = Mount::Volume { volume: name(mount), index };
        }
    }
    let Mount::Volume { volume, .. } = found else { return Ok(found) };
    if sidecar::is_ours(volume) {
        return Ok(found);
    }
    let lacks = |volume| lacks(volume).or_else(|| is_private(volume, pod));
    Ok(match pod.volume(volume).map(lacks) {
        Some(None) => found,
        Some(Some(lack)) => Mount::Unusable(lack),
        None => Mount::Unusable(format!("there is no volume {volume}")),
    })
}

/// Returns the reason why a volume is no service account. A sidecar that waits for it would block
/// the pod's start.
fn lacks(volume: &Value) -> Option<String> {
    let lack = |what: &str| Some(format!("volume {} {what}", name(volume)));
    if let Some(secret) = volume.get("secret") {
        // Without a list of items it has all keys of a token's secret.
        return match secret["items"].as_array() {
            Some(items) if !has_path(items, "token") => lack("has no token"),
            Some(items) if !has_path(items, "ca.crt") => lack("has no ca.crt"),
            _ => None,
        };
    }
    let Some(projected) = volume.get("projected") else {
        return lack("is neither projected nor a secret");
    };
    let sources = list(projected, "sources");
    let tokens = sources.iter().filter_map(|source| source.get("serviceAccountToken"));
    let mut tokens = tokens.filter(|token| token["path"].as_str() == Some("token"));
    match tokens.next().map(|token| token["audience"].as_str().unwrap_or("")) {
        None => return lack("has no token"),
        Some("") => {}
        Some(audience) if is_apiserver(audience) => {}
        Some(audience) => return lack(&format!("has a token for {audience}")),
    }
    let has_authority = sources.iter().any(|source| {
        let kept = ["configMap", "secret"].into_iter().filter_map(|kind| source.get(kind));
        kept.into_iter().any(|kept| match kept["items"].as_array() {
            Some(items) => has_path(items, "ca.crt"),
            None => true,
        }) || source["clusterTrustBundle"]["path"].as_str() == Some("ca.crt")
    });
    if has_authority { None } else { lack("has no ca.crt") }
}

/// Returns the reason why the sidecar may not read a volume: its user is not root.
fn is_private(volume: &Value, pod: &Pod<'_>) -> Option<String> {
    let has_group = pod.spec()["securityContext"]["fsGroup"].is_number();
    if has_group || pod.common_user().is_some() {
        return None;
    }
    let files = volume.get("secret").or_else(|| volume.get("projected"))?;
    let sources = list(files, "sources").iter();
    let kept = sources.flat_map(|source| [&source["configMap"], &source["secret"]]);
    let items = std::iter::once(files).chain(kept).flat_map(|files| list(files, "items"));
    let modes = items.map(|item| &item["mode"]).chain([&files["defaultMode"]]);
    let mut modes = modes.filter_map(Value::as_i64);
    modes
        .any(|mode| mode & READABLE_BY_ALL == 0)
        .then(|| format!("volume {} has files that only root may read", name(volume)))
}

/// Reports whether this is the apiserver's default audience.
fn is_apiserver(audience: &str) -> bool {
    audience.contains("kubernetes.default.svc") || audience == "api"
}

fn has_path(items: &[Value], path: &str) -> bool {
    items.iter().any(|item| item["path"].as_str() == Some(path))
}
