//! A pod, or a pod template, as the injector reads it.
//!
//! Invariant: only the shape that [`Pod::read`] checks is assumed. Values of another shape count as
//! absent, and the apiserver will reject them.

use serde_json::Value;

use super::{
    edit::Pointer,
    quantity,
    reason::{Skip, SkipReason},
};

/// A pod whose lists have the right type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pod<'a>(&'a Value);

/// The list of a pod that a container is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Init,
    Main,
}

/// One container and its position.
#[derive(Clone, Debug)]
pub(super) struct ContainerPlace<'a> {
    pub(super) list: List,
    pub(super) index: usize,
    pub(super) container: &'a Value,
}

/// The name of the sidecar's container.
pub const SIDECAR: &str = "listless-proxy";

/// The containers of meshes and secret stores, which need the apiserver itself, in part before any
/// sidecar runs.
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
            return malformed("there is no spec");
        }
        for name in ["annotations", "labels"] {
            if !matches!(&pod["metadata"][name], Value::Object(_) | Value::Null) {
                return malformed(&format!("metadata.{name} is not a map"));
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

    /// Returns all containers, in their start order.
    pub(super) fn places(&self) -> Vec<ContainerPlace<'a>> {
        let of = |which: List| {
            let containers = self.containers(which).iter().enumerate();
            containers.map(move |(index, container)| ContainerPlace {
                list: which,
                index,
                container,
            })
        };
        of(List::Init).chain(of(List::Main)).collect()
    }

    /// Returns the index of the sidecar among the init containers.
    pub(super) fn sidecar(&self) -> Option<usize> {
        self.containers(List::Init).iter().position(|container| name(container) == SIDECAR)
    }

    /// Returns the containers that start after the sidecar, except itself and those that are never
    /// redirected. A sidecar that is still missing will start first.
    pub(super) fn served(&self) -> Vec<ContainerPlace<'a>> {
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

    /// Reports whether the pod's quality of service class is Guaranteed.
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

    /// Returns the common user of all containers, if all declare the same one and it is not root.
    ///
    /// A common user lets the kubelet make tokens readable by that user only. With several users it
    /// makes them readable by everybody.
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
        Value::Array(_) => malformed(&format!("{field} has elements that are not maps")),
        _ => malformed(&format!("{field} is not a list")),
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

// === impl ContainerPlace ===

impl ContainerPlace<'_> {
    pub(super) fn pointer(&self) -> Pointer {
        self.list.pointer().child(self.index)
    }
}

/// Returns a list's elements. Empty if it is absent.
pub(super) fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

/// Returns the name of a container, volume, variable or mount.
pub(super) fn name(value: &Value) -> &str {
    value["name"].as_str().unwrap_or("")
}
