//! A pod, or a pod template, as the injector reads it.
//!
//! Invariant: nothing is assumed of the shape beyond what [`Pod::read`] checked; what is of another
//! shape reads as absent, and the apiserver will say what it thinks of it.

use serde_json::Value;

use super::{
    edit::Pointer,
    quantity,
    reason::{Skip, SkipReason},
};

/// A pod whose lists are lists.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pod<'a>(&'a Value);

/// Which list of a pod a container is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Init,
    Main,
}

/// One container, and where it is.
#[derive(Clone, Debug)]
pub(super) struct Place<'a> {
    pub(super) list: List,
    pub(super) index: usize,
    pub(super) container: &'a Value,
}

/// What the sidecar's container is called.
pub const SIDECAR: &str = "listless-proxy";

/// Sidecars of meshes and secret stores, and their helpers: they need the apiserver itself, some of
/// them before any sidecar runs.
const BYSTANDERS: &[&str] = &[
    "istio-proxy",
    "istio-init",
    "istio-validation",
    "linkerd-proxy",
    "linkerd-init",
    "linkerd-network-validator",
    "daprd",
    "vault-agent",
    "vault-agent-init",
];

// === impl Pod ===

impl<'a> Pod<'a> {
    pub(super) fn read(pod: &'a Value) -> Result<Self, Skip> {
        let malformed = |what: &str| Err(Skip::because(SkipReason::Malformed, what));
        if !pod["spec"].is_object() {
            return malformed("it has no spec");
        }
        for name in ["annotations", "labels"] {
            if !matches!(&pod["metadata"][name], Value::Object(_) | Value::Null) {
                return malformed(&format!("metadata.{name} is no map"));
            }
        }
        for name in ["containers", "initContainers", "volumes", "imagePullSecrets"] {
            check_list(&pod["spec"][name], &format!("spec.{name}"))?;
        }
        let pod = Self(pod);
        if pod.containers(List::Main).is_empty() {
            return malformed("spec.containers is empty");
        }
        for place in pod.places() {
            if name(place.container).is_empty() {
                return malformed("a container has no name");
            }
            for list in ["env", "volumeMounts", "ports"] {
                let field = format!("{} of container {}", list, name(place.container));
                check_list(&place.container[list], &field)?;
            }
        }
        Ok(pod)
    }

    pub(super) fn spec(&self) -> &'a Value {
        &self.0["spec"]
    }

    pub(super) fn value(&self) -> &'a Value {
        self.0
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&'a str> {
        self.0["metadata"]["annotations"].get(name)?.as_str()
    }

    pub(super) fn label(&self, name: &str) -> Option<&'a str> {
        self.0["metadata"]["labels"].get(name)?.as_str()
    }

    pub(super) fn containers(&self, which: List) -> &'a [Value] {
        list(self.spec(), which.field())
    }

    pub(super) fn volumes(&self) -> &'a [Value] {
        list(self.spec(), "volumes")
    }

    pub(super) fn volume(&self, wanted: &str) -> Option<&'a Value> {
        self.volumes().iter().find(|volume| name(volume) == wanted)
    }

    /// All containers, in the order in which they start.
    pub(super) fn places(&self) -> Vec<Place<'a>> {
        let of = |which: List| {
            let containers = self.containers(which).iter().enumerate();
            containers.map(move |(index, container)| Place { list: which, index, container })
        };
        of(List::Init).chain(of(List::Main)).collect()
    }

    /// Where the sidecar is among the init containers.
    pub(super) fn sidecar(&self) -> Option<usize> {
        self.containers(List::Init).iter().position(|container| name(container) == SIDECAR)
    }

    /// The containers that find the sidecar running, apart from itself and from those that are
    /// never led to it. A sidecar that is not there yet will run before all others.
    pub(super) fn served(&self) -> Vec<Place<'a>> {
        let sidecar = self.sidecar();
        let mut places = self.places();
        places.retain(|place| {
            let runs_before =
                place.list == List::Init && sidecar.is_some_and(|at| place.index < at);
            let name = name(place.container);
            !runs_before && name != SIDECAR && !BYSTANDERS.contains(&name)
        });
        places
    }

    /// Whether every container asks for exactly what it may use, so that none is evicted for
    /// others.
    pub(super) fn is_guaranteed(&self) -> bool {
        self.places().iter().all(|place| {
            let resources = &place.container["resources"];
            ["cpu", "memory"].into_iter().all(|name| {
                let number = |value: &Value| match value {
                    Value::String(text) => quantity::parse(text),
                    number => number.as_f64(),
                };
                let limit = number(&resources["limits"][name]);
                let request = &resources["requests"][name];
                limit.is_some() && (request.is_null() || number(request) == limit)
            })
        })
    }

    /// The user of all containers, if they all declare the same one and it is not root.
    ///
    /// As long as they do, tokens are readable by that user alone; another user beside them, and
    /// the kubelet makes them readable by everybody.
    pub(super) fn common_user(&self) -> Option<i64> {
        let of = |context: &Value| context["runAsUser"].as_i64();
        let of_pod = of(&self.spec()["securityContext"]);
        let users = self.places().into_iter();
        let mut users = users.map(|place| of(&place.container["securityContext"]).or(of_pod));
        let first = users.next()??;
        (first != 0 && users.all(|user| user == Some(first))).then_some(first)
    }
}

fn check_list(value: &Value, field: &str) -> Result<(), Skip> {
    let malformed = |what: &str| Err(Skip::because(SkipReason::Malformed, what));
    match value {
        Value::Null => Ok(()),
        Value::Array(elements) if elements.iter().all(Value::is_object) => Ok(()),
        Value::Array(_) => malformed(&format!("{field} has elements that are no maps")),
        _ => malformed(&format!("{field} is no list")),
    }
}

// === impl List ===

impl List {
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::Init => "initContainers",
            Self::Main => "containers",
        }
    }

    pub(super) fn pointer(self) -> Pointer {
        ["spec", self.field()].into_iter().collect()
    }
}

// === impl Place ===

impl Place<'_> {
    pub(super) fn pointer(&self) -> Pointer {
        self.list.pointer().child(self.index)
    }
}

/// A list's elements; none if it is absent.
pub(super) fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

/// The name of a container, volume, variable or mount.
pub(super) fn name(value: &Value) -> &str {
    value["name"].as_str().unwrap_or("")
}
