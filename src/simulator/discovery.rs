//! Discovery, version and health, made from the registered resources (S-DISC-01..05).

mod aggregated;
mod openapi;

use std::sync::atomic::Ordering;

use aws_lc_rs::digest;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};

use super::{
    Core, Simulator,
    dispatch::nowhere,
    json::Json,
    kind::{ResourceType, StatusSubresource, Style},
    review::AUDIENCE,
    status::{json_response, response, unknown_path},
};
use crate::body::Body;

/// The release that the simulator imitates, without its patch number.
const MINOR_RELEASE: &str = "v1.36";

/// The patch number before the first upgrade.
const PATCH_RELEASE: u64 = 3;

// === impl Simulator ===

impl Simulator {
    /// Becomes another patch release in `/version`.
    pub fn become_next_release(&self) {
        self.0.upgrades.fetch_add(1, Ordering::Relaxed);
    }
}

/// Answers a GET of a path without a resource.
pub(super) fn answer(core: &Core, request: &Request<Body>, path: &str) -> Response<Body> {
    let kinds = kinds(core);
    let headers = request.headers();
    let parts: Vec<_> = path.split('/').collect();
    match parts.as_slice() {
        ["api"] if aggregated::is_wanted(headers) => aggregated::answer(&kinds, "api", headers),
        ["apis"] if aggregated::is_wanted(headers) => aggregated::answer(&kinds, "apis", headers),
        ["openapi", "v2"] => openapi::v2(&kinds, headers),
        ["openapi", "v3"] => openapi::index(&kinds, headers),
        ["openapi", "v3", group_version @ ..] => {
            openapi::v3(&kinds, &group_version.join("/"), request)
        }
        ["livez" | "readyz" | "healthz", ..] => healthy(),
        [".well-known", "openid-configuration"] => {
            json_response(200, &Json::object([("issuer", AUDIENCE.into())]))
        }
        ["version"] => response(200, "application/json", version(core)),
        ["api"] => json_response(200, &core_versions()),
        ["apis"] => json_response(200, &groups(&kinds)),
        ["apis", group] => match group_entry(&kinds, group) {
            Some(mut entry) => {
                let mut answer =
                    Json::object([("kind", "APIGroup".into()), ("apiVersion", "v1".into())]);
                answer.members_mut().append(entry.members_mut());
                json_response(200, &answer)
            }
            None => unknown_path(),
        },
        ["api", version] => resources(&kinds, "", version),
        ["apis", group, version] => resources(&kinds, group, version),
        _ => unknown_path(),
    }
}

fn healthy() -> Response<Body> {
    let mut healthy = response(200, "text/plain; charset=utf-8", "ok");
    let nosniff = HeaderValue::from_static("nosniff");
    healthy.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    healthy
}

/// Returns a tag in the apiserver's form: quoted SHA-512 in capital letters.
fn tag(bytes: &[u8]) -> HeaderValue {
    let hash = digest::digest(&digest::SHA512, bytes);
    let text: String = hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    HeaderValue::from_str(&format!("\"{text}\"")).expect("made of letters and digits")
}

/// Reports whether the client has this version already, and names it in the plainest form.
fn has(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    headers.get(header::IF_NONE_MATCH) == Some(tag)
}

fn not_modified(mut whole: Response<Body>) -> Response<Body> {
    *whole.status_mut() = StatusCode::NOT_MODIFIED;
    *whole.body_mut() = Body::empty();
    for name in [header::CONTENT_TYPE, header::LAST_MODIFIED] {
        whole.headers_mut().remove(name);
    }
    whole
}

fn kinds(core: &Core) -> Vec<ResourceType> {
    let store = core.store();
    let mut kinds: Vec<_> =
        store.collections().map(|collection| (*collection.kind).clone()).collect();
    kinds.sort_by(|left, right| (&left.group, &left.plural).cmp(&(&right.group, &right.plural)));
    kinds
}

fn version(core: &Core) -> String {
    let patch = PATCH_RELEASE + core.upgrades.load(Ordering::Relaxed);
    let git_version = format!("{MINOR_RELEASE}.{patch}");
    let members = [
        ("major", "1"),
        ("minor", "36"),
        ("emulationMajor", "1"),
        ("emulationMinor", "36"),
        ("minCompatibilityMajor", "1"),
        ("minCompatibilityMinor", "35"),
        ("gitVersion", &git_version),
        ("gitCommit", "0000000000000000000000000000000000000000"),
        ("gitTreeState", "clean"),
        ("buildDate", "2026-01-01T00:00:00Z"),
        ("goVersion", "go1.26"),
        ("compiler", "gc"),
        ("platform", "linux/amd64"),
    ];
    let lines: Vec<_> =
        members.iter().map(|(key, value)| format!("  \"{key}\": \"{value}\"")).collect();
    format!("{{\n{}\n}}", lines.join(",\n"))
}

fn core_versions() -> Json {
    let address = Json::object([
        ("clientCIDR", "0.0.0.0/0".into()),
        ("serverAddress", "127.0.0.1:6443".into()),
    ]);
    Json::object([
        ("kind", "APIVersions".into()),
        ("versions", Json::Array(vec!["v1".into()])),
        ("serverAddressByClientCIDRs", Json::Array(vec![address])),
    ])
}

fn groups(kinds: &[ResourceType]) -> Json {
    let mut names: Vec<&str> = kinds.iter().map(|kind| kind.group.as_str()).collect();
    names.dedup();
    let entries = names.iter().filter(|name| !name.is_empty());
    Json::object([
        ("kind", "APIGroupList".into()),
        ("apiVersion", "v1".into()),
        ("groups", Json::Array(entries.filter_map(|name| group_entry(kinds, name)).collect())),
    ])
}

fn group_entry(kinds: &[ResourceType], group: &str) -> Option<Json> {
    let mut versions: Vec<&str> = Vec::new();
    for kind in kinds.iter().filter(|kind| kind.group == group && !group.is_empty()) {
        for version in &kind.versions {
            if !versions.contains(&version.as_str()) {
                versions.push(version);
            }
        }
    }
    let entry = |version: &&str| {
        Json::object([
            ("groupVersion", format!("{group}/{version}").into()),
            ("version", (*version).into()),
        ])
    };
    Some(Json::object([
        ("name", group.into()),
        ("versions", Json::Array(versions.iter().map(entry).collect())),
        ("preferredVersion", entry(versions.first()?)),
    ]))
}

fn resources(kinds: &[ResourceType], group: &str, version: &str) -> Response<Body> {
    let served: Vec<&ResourceType> = kinds
        .iter()
        .filter(|kind| kind.group == group && kind.versions.iter().any(|known| known == version))
        .collect();
    let Some(first) = served.first() else {
        let built_in = group.is_empty()
            || kinds.iter().any(|kind| kind.group == group && kind.style == Style::Typed);
        return nowhere(if built_in { Style::Typed } else { Style::Custom });
    };
    let entries = served.iter().flat_map(|kind| resource_entries(kind)).collect();
    json_response(
        200,
        &Json::object([
            ("kind", "APIResourceList".into()),
            ("apiVersion", "v1".into()),
            ("groupVersion", first.api_version(version).into()),
            ("resources", Json::Array(entries)),
        ]),
    )
}

fn resource_entries(kind: &ResourceType) -> Vec<Json> {
    let verbs = |verbs: &[&str]| Json::Array(verbs.iter().map(|&verb| verb.into()).collect());
    let entry = |name: String, singular: &str, verbs: Json| {
        Json::object([
            ("name", name.into()),
            ("singularName", singular.into()),
            ("namespaced", kind.namespaced.into()),
            ("kind", kind.kind.as_str().into()),
            ("verbs", verbs),
        ])
    };
    let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let mut main = entry(kind.plural.clone(), &kind.singular, verbs(&all));
    if !kind.short_names.is_empty() {
        let names = kind.short_names.iter().map(|name| name.as_str().into()).collect();
        main.set("shortNames", Json::Array(names));
    }
    let mut entries = vec![main];
    if kind.status == StatusSubresource::Present {
        let name = format!("{}/status", kind.plural);
        entries.push(entry(name, "", verbs(&["get", "patch", "update"])));
    }
    entries
}
