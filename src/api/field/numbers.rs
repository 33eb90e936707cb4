//! The numbers of selectable fields in protobuf, from Kubernetes' own definitions.

use super::{
    GroupVersionResource, Values,
    kinds::{Kind, find, kind_of},
    rendered,
};
use crate::api::protobuf::wire::{Fields, Malformed, Value};

/// A path, and the numbers of the fields from an object to its value.
type NumberedPath = (&'static str, &'static [u64]);

/// The numbered paths of a resource, in all versions that the table of kinds lists.
struct KindPaths {
    group: &'static str,
    resource: &'static str,
    paths: &'static [NumberedPath],
}

/// A value in a message.
enum Found {
    Text(String),
    Number(u64),
}

/// Returns the values of the modelled fields in one object in protobuf, as the server renders them,
/// without empty ones.
pub fn protobuf_field_values(
    resource: &GroupVersionResource,
    object: &[u8],
) -> Result<Vec<(&'static str, String)>, Malformed> {
    let Some(kind) = kind_of(resource) else { return Ok(Vec::new()) };
    let paths = paths_of(kind);
    let mut values: Values = vec![None; kind.paths.len()];
    for (path, numbers) in paths {
        let Some(index) = kind.index(path) else { continue };
        // A path that is "false" when absent is a boolean, which protobuf has as a number.
        let is_boolean = find(kind.defaults, path) == Some("false");
        values[index] = value_at(object, numbers)?.map(|found| match found {
            Found::Text(text) => text,
            Found::Number(number) if is_boolean => (number != 0).to_string(),
            // Negative numbers are encoded as if they had 64 bits.
            Found::Number(number) => number.cast_signed().to_string(),
        });
    }
    Ok(rendered(kind, values))
}

fn paths_of(kind: &Kind) -> &'static [NumberedPath] {
    let found = KIND_PATHS.iter().find(|it| it.group == kind.group && it.resource == kind.resource);
    found.map_or(&[], |found| found.paths)
}

/// Returns the last value at these numbers: protobuf's own rule for repeated fields.
fn value_at(message: &[u8], numbers: &[u64]) -> Result<Option<Found>, Malformed> {
    let Some((first, rest)) = numbers.split_first() else { return Ok(None) };
    let mut found = None;
    for field in Fields::of(message) {
        let field = field?;
        if field.number != *first {
            continue;
        }
        found = match (rest, field.value) {
            ([], Value::Number(number)) => Some(Found::Number(number)),
            ([], _) => Some(Found::Text(field.text()?.to_owned())),
            _ => value_at(field.bytes()?, rest)?,
        };
    }
    Ok(found)
}

const SPEC: u64 = 2;
const STATUS: u64 = 3;

static KIND_PATHS: [KindPaths; 12] = [
    KindPaths {
        group: "",
        resource: "pods",
        paths: &[
            ("spec.nodeName", &[SPEC, 10]),
            ("spec.restartPolicy", &[SPEC, 3]),
            ("spec.schedulerName", &[SPEC, 19]),
            ("spec.serviceAccountName", &[SPEC, 8]),
            ("spec.hostNetwork", &[SPEC, 11]),
            ("status.phase", &[STATUS, 1]),
            ("status.podIP", &[STATUS, 6]),
            // The server never fills this field.
            ("status.podIPs", &[]),
            ("status.nominatedNodeName", &[STATUS, 11]),
        ],
    },
    KindPaths { group: "", resource: "nodes", paths: &[("spec.unschedulable", &[SPEC, 4])] },
    KindPaths { group: "", resource: "namespaces", paths: &[("status.phase", &[STATUS, 1])] },
    KindPaths { group: "", resource: "secrets", paths: &[("type", &[3])] },
    KindPaths {
        group: "",
        resource: "replicationcontrollers",
        paths: &[("status.replicas", &[STATUS, 1])],
    },
    KindPaths {
        group: "",
        resource: "events",
        paths: &[
            ("involvedObject.kind", &[2, 1]),
            ("involvedObject.namespace", &[2, 2]),
            ("involvedObject.name", &[2, 3]),
            ("involvedObject.uid", &[2, 4]),
            ("involvedObject.apiVersion", &[2, 5]),
            ("involvedObject.resourceVersion", &[2, 6]),
            ("involvedObject.fieldPath", &[2, 7]),
            ("reason", &[3]),
            ("reportingComponent", &[14]),
            ("source", &[5, 1]),
            ("type", &[9]),
        ],
    },
    KindPaths {
        group: "events.k8s.io",
        resource: "events",
        paths: &[
            ("regarding.kind", &[8, 1]),
            ("regarding.namespace", &[8, 2]),
            ("regarding.name", &[8, 3]),
            ("regarding.uid", &[8, 4]),
            ("regarding.apiVersion", &[8, 5]),
            ("regarding.resourceVersion", &[8, 6]),
            ("regarding.fieldPath", &[8, 7]),
            ("reason", &[7]),
            ("reportingController", &[4]),
            ("type", &[11]),
        ],
    },
    KindPaths { group: "batch", resource: "jobs", paths: &[("status.successful", &[STATUS, 5])] },
    KindPaths {
        group: "certificates.k8s.io",
        resource: "certificatesigningrequests",
        paths: &[("spec.signerName", &[SPEC, 7])],
    },
    KindPaths {
        group: "certificates.k8s.io",
        resource: "clustertrustbundles",
        paths: &[("spec.signerName", &[SPEC, 1])],
    },
    KindPaths {
        group: "certificates.k8s.io",
        resource: "podcertificaterequests",
        paths: &[
            ("spec.signerName", &[SPEC, 1]),
            ("spec.podName", &[SPEC, 2]),
            ("spec.nodeName", &[SPEC, 6]),
        ],
    },
    KindPaths {
        group: "resource.k8s.io",
        resource: "resourceslices",
        paths: &[("spec.nodeName", &[SPEC, 3]), ("spec.driver", &[SPEC, 1])],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{
        field::kinds::KINDS,
        protobuf::wire::{field, put_number},
    };

    fn number(field: u8, value: u64) -> Vec<u8> {
        let mut out = vec![field << 3];
        put_number(&mut out, value);
        out
    }

    #[test]
    fn every_modelled_field_has_a_path() {
        for kind in &KINDS {
            let paths: Vec<_> = paths_of(kind).iter().map(|(path, _)| *path).collect();
            assert_eq!(paths, kind.paths, "{} {}", kind.group, kind.resource);
        }
    }

    #[test]
    fn values_are_rendered_as_the_server_does() {
        let of = |group: &str, resource: &str, object: &[u8]| {
            let resource = GroupVersionResource::new(group, "v1", resource);
            protobuf_field_values(&resource, object).expect("an object")
        };
        let owned = |pairs: &[(&'static str, &str)]| -> Vec<_> {
            pairs.iter().map(|(path, value)| (*path, (*value).to_owned())).collect()
        };
        let spec = [field(10, b"n1"), number(11, 1), field(3, b"Always"), field(8, b"")].concat();
        let status = [field(1, b"Running"), field(6, b"10.0.0.1")].concat();
        let pod = [field(1, b""), field(2, &spec), field(3, &status)].concat();
        let found = of("", "pods", &pod);
        assert_eq!(
            found,
            owned(&[
                ("spec.nodeName", "n1"),
                ("spec.restartPolicy", "Always"),
                ("spec.hostNetwork", "true"),
                ("status.phase", "Running"),
                ("status.podIP", "10.0.0.1"),
            ])
        );
        assert_eq!(of("", "nodes", &field(1, b"")), owned(&[("spec.unschedulable", "false")]));
        let cordoned = [field(1, b""), field(2, &number(4, 1))].concat();
        assert_eq!(of("", "nodes", &cordoned), owned(&[("spec.unschedulable", "true")]));
        let job = [field(1, b""), field(3, &number(5, 12))].concat();
        assert_eq!(of("batch", "jobs", &job), owned(&[("status.successful", "12")]));
        assert_eq!(of("batch", "jobs", b""), owned(&[("status.successful", "0")]));
        let event = [field(14, b"kubelet"), field(5, &field(1, b""))].concat();
        let expected = owned(&[("reportingComponent", "kubelet"), ("source", "kubelet")]);
        assert_eq!(of("", "events", &event), expected);
    }
}
