//! The injector's settings, and the pod's annotations that override them.
//!
//! An invalid annotation is never guessed: the pod is skipped, which is better than a sidecar that
//! does not start.

use std::path::Path;

use serde_json::{Value, json};

use super::{
    pod::Pod,
    quantity,
    reason::{Skip, SkipReason},
};
use crate::{api::version::Freshness, config::Config, policy::Mode};

/// The settings for all pods, which annotations can override.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The sidecar's image.
    pub image: String,
    /// The image pull secrets, which must be in the pod's namespace.
    pub image_pull_secrets: Vec<String>,
    /// The version that is recorded in the pod.
    pub version: String,
    /// The revision: the name of this injector among several.
    pub revision: String,
    /// The sidecar's port on loopback. It uses two more for probes and operators.
    pub port: u16,
    /// The address of the sidecar's health and metrics, without a port, as in a URL.
    pub health_address: String,
    /// The sidecar's mode.
    pub mode: Mode,
    /// The freshness of its responses.
    pub freshness: Freshness,
    /// The sidecar's resources.
    pub resources: Resources,
    /// Namespaces whose pods are never injected.
    pub excluded_namespaces: Vec<String>,
    /// The origin of the pods.
    pub origin: Origin,
}

/// The origin of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Admission: the service account is already mounted.
    Admission,
    /// A manifest: the apiserver will mount the service account later.
    Manifest,
}

/// Requests and limits, in Kubernetes notation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resources {
    /// The CPU request.
    pub cpu_request: String,
    /// The CPU limit.
    pub cpu_limit: String,
    /// The memory request.
    pub memory_request: String,
    /// The memory limit. Half of it is for objects.
    pub memory_limit: String,
}

/// The settings of one pod.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) image: String,
    pub(super) port: u16,
    pub(super) health_address: String,
    pub(super) mode: Mode,
    pub(super) resources: Resources,
    /// The generated configuration. `None` if the pod has its own.
    pub(super) generated_config: Option<String>,
}

pub(super) const INJECT: &str = "listless.dev/inject";
const MODE: &str = "listless.dev/mode";
const FRESHNESS: &str = "listless.dev/freshness";
const PORT: &str = "listless.dev/port";
const IMAGE: &str = "listless.dev/image";
pub(super) const CONFIG: &str = "listless.dev/config";
const SHARE_PROCESSES: &str = "listless.dev/share-process-namespace";
const CPU_REQUEST: &str = "listless.dev/cpu-request";
const CPU_LIMIT: &str = "listless.dev/cpu-limit";
const MEMORY_REQUEST: &str = "listless.dev/memory-request";
const MEMORY_LIMIT: &str = "listless.dev/memory-limit";

/// The minimum memory limit. Below it there is no room for objects.
const MEMORY_LIMIT_MIN: f64 = 48.0 * 1024.0 * 1024.0;
/// The CPU of a sidecar in a Guaranteed pod.
const GUARANTEED_CPU: &str = "100m";
/// The sidecar's port for probes.
pub(super) const HEALTH_PORT: u16 = 16020;
/// The sidecar's port for operators, on loopback.
pub(super) const ADMIN_PORT: u16 = 16021;
/// The maximum length of an image reference.
const IMAGE_LENGTH_MAX: usize = 512;
/// The maximum size of a pod's own configuration.
const OWN_CONFIG_BYTES_MAX: usize = 64 * 1024;

/// The injection wish of an annotation or label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Yes,
    No,
    Silent,
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        let version = env!("CARGO_PKG_VERSION");
        Self {
            image: format!("ghcr.io/listless-dev/listless:{version}"),
            image_pull_secrets: Vec::new(),
            version: version.to_owned(),
            revision: "default".to_owned(),
            port: 16443,
            health_address: "0.0.0.0".to_owned(),
            mode: Mode::default(),
            freshness: Freshness::default(),
            resources: Resources::default(),
            excluded_namespaces: vec!["kube-system".to_owned()],
            origin: Origin::Admission,
        }
    }
}

impl Settings {
    /// Checks that sidecars with these settings would start.
    pub fn check(&self) -> Result<(), Skip> {
        let invalid = |detail: &str| Err(Skip::because(SkipReason::InvalidAnnotation, detail));
        if !is_image(&self.image) {
            return invalid("this is not an image reference");
        }
        if !is_free(self.port) {
            return invalid(&format!("ports {HEALTH_PORT} and {ADMIN_PORT} are reserved"));
        }
        self.resources.check()
    }
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            cpu_request: "10m".to_owned(),
            cpu_limit: "1".to_owned(),
            memory_request: "64Mi".to_owned(),
            memory_limit: "256Mi".to_owned(),
        }
    }
}

// === impl Choice ===

impl Choice {
    /// Returns the settings with the pod's annotations applied.
    pub(super) fn of(pod: &Pod<'_>, settings: &Settings) -> Result<Self, Skip> {
        let mut resources = settings.resources.clone();
        for (name, value) in [
            (CPU_REQUEST, &mut resources.cpu_request),
            (CPU_LIMIT, &mut resources.cpu_limit),
            (MEMORY_REQUEST, &mut resources.memory_request),
            (MEMORY_LIMIT, &mut resources.memory_limit),
        ] {
            if let Some(wished) = text(pod, name)? {
                wished.clone_into(value);
            }
        }
        resources.check()?;
        if pod.is_guaranteed() {
            resources = resources.guaranteed(text(pod, CPU_LIMIT)?.or(text(pod, CPU_REQUEST)?));
        }
        let mode = one_of(pod, MODE, &MODES)?;
        let freshness = one_of(pod, FRESHNESS, &FRESHNESSES)?;
        let mut mode_of_own = None;
        let generated_config = match text(pod, CONFIG)? {
            None => Some(configuration(
                mode.unwrap_or(settings.mode),
                freshness.unwrap_or(settings.freshness),
                &resources,
            )),
            Some(own) => {
                mode_of_own = Some(own_mode(own)?);
                if mode.is_some() || freshness.is_some() {
                    let detail = format!(
                        "{CONFIG} is set, so set the mode and freshness there and \
                                          remove {MODE} and {FRESHNESS}"
                    );
                    return Err(Skip::because(SkipReason::InvalidAnnotation, detail));
                }
                None
            }
        };
        Ok(Self {
            image: image(pod)?.unwrap_or(&settings.image).to_owned(),
            port: port(pod)?.unwrap_or(settings.port),
            health_address: settings.health_address.clone(),
            mode: mode_of_own.or(mode).unwrap_or(settings.mode),
            resources,
            generated_config,
        })
    }
}

/// Reports whether the pod's owner allowed a shared process namespace.
pub(super) fn may_share_processes(pod: &Pod<'_>) -> Result<bool, Skip> {
    Ok(one_of(pod, SHARE_PROCESSES, &[("allow", ())])?.is_some())
}

/// Returns the wish of the pod's label and annotation. A refusal takes precedence.
pub(super) fn wish(pod: &Pod<'_>) -> Result<Wish, Skip> {
    let wishes = [pod.label(INJECT), pod.annotation(INJECT)];
    let mut said = Wish::Silent;
    for wish in wishes.into_iter().flatten() {
        match wish {
            "false" | "disabled" => return Ok(Wish::No),
            "true" | "enabled" => said = Wish::Yes,
            other => {
                let detail = format!("{INJECT} is {other:?}; set \"true\" or \"false\"");
                return Err(Skip::because(SkipReason::InvalidAnnotation, detail));
            }
        }
    }
    Ok(said)
}

const MODES: [(&str, Mode); 2] = [("enforce", Mode::Enforce), ("observe", Mode::Observe)];
const FRESHNESSES: [(&str, Freshness); 4] = [
    ("mostRecent", Freshness::MostRecent),
    ("session", Freshness::Session),
    ("bounded", Freshness::Bounded),
    ("any", Freshness::Any),
];

/// Returns the mode of a name.
pub fn mode_named(wanted: &str) -> Option<Mode> {
    MODES.iter().find(|(name, _)| *name == wanted).map(|(_, mode)| *mode)
}

/// Returns the freshness of a name.
pub fn freshness_named(wanted: &str) -> Option<Freshness> {
    FRESHNESSES.iter().find(|(name, _)| *name == wanted).map(|(_, freshness)| *freshness)
}

/// Returns the mode's name in annotations and the configuration.
pub(super) fn mode_name(mode: Mode) -> &'static str {
    MODES.iter().find(|(_, value)| *value == mode).map_or("", |(name, _)| name)
}

fn text<'a>(pod: &Pod<'a>, name: &str) -> Result<Option<&'a str>, Skip> {
    match pod.annotation(name) {
        Some(value) if value.trim().is_empty() => {
            Err(Skip::because(SkipReason::InvalidAnnotation, format!("{name} is empty")))
        }
        value => Ok(value),
    }
}

fn one_of<T: Copy>(pod: &Pod<'_>, name: &str, values: &[(&str, T)]) -> Result<Option<T>, Skip> {
    let Some(wished) = text(pod, name)? else { return Ok(None) };
    if let Some((_, value)) = values.iter().find(|(word, _)| *word == wished) {
        return Ok(Some(*value));
    }
    let words: Vec<_> = values.iter().map(|(word, _)| *word).collect();
    let detail = format!("{name} is {wished:?}; set one of {}", words.join(", "));
    Err(Skip::because(SkipReason::InvalidAnnotation, detail))
}

fn port(pod: &Pod<'_>) -> Result<Option<u16>, Skip> {
    let Some(wished) = text(pod, PORT)? else { return Ok(None) };
    match wished.parse::<u16>().ok().filter(|port| is_free(*port)) {
        Some(port) => Ok(Some(port)),
        None => {
            let detail = format!(
                "{PORT} is {wished:?}; set a number from 1024 to 65535 other than {HEALTH_PORT} \
                 and {ADMIN_PORT}"
            );
            Err(Skip::because(SkipReason::InvalidAnnotation, detail))
        }
    }
}

fn image<'a>(pod: &Pod<'a>) -> Result<Option<&'a str>, Skip> {
    let Some(wished) = text(pod, IMAGE)? else { return Ok(None) };
    if !is_image(wished) {
        let detail = format!("{IMAGE} is not an image reference");
        return Err(Skip::because(SkipReason::InvalidAnnotation, detail));
    }
    Ok(Some(wished))
}

/// Ports below 1024 need a capability that the sidecar does not have.
fn is_free(port: u16) -> bool {
    port > 1023 && ![HEALTH_PORT, ADMIN_PORT].contains(&port)
}

fn is_image(name: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_graphic();
    !name.is_empty() && name.len() <= IMAGE_LENGTH_MAX && name.chars().all(is_fine)
}

/// Returns the mode of a pod's own configuration.
fn own_mode(text: &str) -> Result<Mode, Skip> {
    if text.len() > OWN_CONFIG_BYTES_MAX {
        let detail = format!("{CONFIG} is larger than {OWN_CONFIG_BYTES_MAX} bytes");
        return Err(Skip::because(SkipReason::InvalidAnnotation, detail));
    }
    match Config::from_bytes(Path::new(CONFIG), text.as_bytes()) {
        Ok(config) => Ok(config.raw().mode),
        Err(error) => Err(Skip::because(SkipReason::InvalidAnnotation, error.to_string())),
    }
}

/// Returns the sidecar's configuration: only the differences from the defaults.
fn configuration(mode: Mode, freshness: Freshness, resources: &Resources) -> String {
    let bytes = quantity::parse(&resources.memory_limit).unwrap_or(MEMORY_LIMIT_MIN);
    let objects = (bytes / 2.0 / 1024.0 / 1024.0) as u64;
    let mut text = format!(
        "apiVersion: listless.dev/v1alpha1\nkind: ProxyConfiguration\nmode: {}\ncache:\n  \
         memoryLimit: {objects}Mi\n",
        mode_name(mode)
    );
    if freshness != Freshness::default() {
        let name = FRESHNESSES.iter().find(|(_, value)| *value == freshness);
        let name = name.map_or("", |(name, _)| name);
        text.push_str(
            "  rules:\n  - resources: [secrets, leases.coordination.k8s.io, events, \
             events.events.k8s.io]\n    start: never\n  - resources: [\"*\"]\n    freshness: ",
        );
        text.push_str(name);
        text.push('\n');
    }
    text
}

// === impl Resources ===

impl Resources {
    /// Checks that the apiserver would accept them.
    fn check(&self) -> Result<(), Skip> {
        fn invalid<T>(detail: String) -> Result<T, Skip> {
            Err(Skip::because(SkipReason::InvalidAnnotation, detail))
        }
        for (request, limit, what, example) in [
            (&self.cpu_request, &self.cpu_limit, "cpu", "100m or 1"),
            (&self.memory_request, &self.memory_limit, "memory", "256Mi"),
        ] {
            let read = |text: &str, which: &str| {
                let wrong =
                    format!("{what} {which} {text:?} is not a quantity; write it like {example}");
                quantity::parse(text).map_or_else(|| invalid(wrong), Ok)
            };
            let (asked, most) = (read(request, "request")?, read(limit, "limit")?);
            if asked > most {
                return invalid(format!("{what} request {request} is above its limit {limit}"));
            }
        }
        if quantity::parse(&self.memory_limit).is_some_and(|most| most < MEMORY_LIMIT_MIN) {
            return invalid(format!("a memory limit of {} is below 48Mi", self.memory_limit));
        }
        Ok(())
    }

    /// Returns limits equal to requests, so that the pod stays Guaranteed.
    fn guaranteed(self, cpu: Option<&str>) -> Self {
        let cpu = cpu.unwrap_or(GUARANTEED_CPU).to_owned();
        Self {
            cpu_request: cpu.clone(),
            cpu_limit: cpu,
            memory_request: self.memory_limit.clone(),
            memory_limit: self.memory_limit,
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "requests": {"cpu": self.cpu_request, "memory": self.memory_request},
            "limits": {"cpu": self.cpu_limit, "memory": self.memory_limit},
        })
    }
}
