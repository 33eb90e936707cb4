//! The releases of apiserver and kubelets, and their known bugs. Pure.

use std::collections::BTreeMap;

use super::{Found, Row};
use crate::api::release::{CONSISTENT_READS_FROM_CACHE, Release};

/// The kubelet versions, with their number of nodes.
pub type Kubelets = BTreeMap<String, usize>;

/// A kubelet bug that affects pods with a sidecar.
struct Bug {
    /// The number of the issue, or of the fix, in kubernetes/kubernetes.
    number: u32,
    what: &'static str,
    /// The first minor release with the bug, and the first without it.
    minors: std::ops::Range<u32>,
    /// The patch releases that fixed the bug. Other minor releases of the range keep it.
    mended: &'static [Release],
}

/// The first release that starts sidecars before other containers by default.
pub const NATIVE_SIDECARS: Release = Release { minor: 29, patch: 0 };

/// The list was checked against the release notes of each patch release.
const BUGS: &[Bug] = &[
    Bug {
        number: 125_935,
        what: "a pod that is deleted before it has started may not stop its sidecar in time",
        minors: 29..31,
        mended: &[Release { minor: 29, patch: 8 }, Release { minor: 30, patch: 4 }],
    },
    Bug {
        number: 126_543,
        what: "after a temporary failure of the container runtime a sidecar may never start",
        minors: 29..32,
        mended: &[
            Release { minor: 29, patch: 9 },
            Release { minor: 30, patch: 5 },
            Release { minor: 31, patch: 1 },
        ],
    },
];

// === impl Bug ===

impl Bug {
    fn is_in(&self, release: Release) -> bool {
        let mended = self.mended.iter().find(|mended| mended.minor == release.minor);
        self.minors.contains(&release.minor) && mended.is_none_or(|mended| release < *mended)
    }
}

/// Checks the apiserver's version. `injects` tells whether sidecars are used.
pub fn version(found: &Found<String>, apiserver: &str, injects: bool) -> Row {
    let name = "version";
    let text = match found {
        Ok(text) => text,
        Err(missing) => {
            let hint = "no other check is possible; check the kubeconfig and the network";
            return Row::fail(name, format!("{apiserver}: {missing}"), hint);
        }
    };
    let Some(release) = Release::parse(text) else {
        let hint = "use 1.29 or later, which are known to work";
        return Row::warn(
            name,
            format!("{apiserver} reports {text:?}, which is not a release"),
            hint,
        );
    };
    if release < NATIVE_SIDECARS {
        let detail =
            format!("{text} at {apiserver} does not start sidecars before other containers");
        let hint = "sidecars need 1.29; use listless local or listless gateway with older releases";
        return if injects { Row::fail(name, detail, hint) } else { Row::warn(name, detail, hint) };
    }
    let reads = if release < CONSISTENT_READS_FROM_CACHE {
        "reads without a resourceVersion come from etcd"
    } else {
        "reads without a resourceVersion are confirmed by etcd"
    };
    Row::pass(name, format!("{text} at {apiserver}; {reads}"))
}

/// Checks the nodes' kubelets.
pub fn kubelets(found: &Found<Kubelets>, injects: bool) -> Row {
    let name = "kubelets";
    let kubelets = match found {
        Ok(kubelets) if kubelets.is_empty() => return Row::skipped(name, "there are no nodes", ""),
        Ok(kubelets) => kubelets,
        Err(missing) => return missing.skip(name, "listing nodes needs permission to list nodes"),
    };
    let released: Vec<_> = kubelets
        .iter()
        .filter_map(|(version, nodes)| Some((version, *nodes, Release::parse(version)?)))
        .collect();
    let old: Vec<_> = released.iter().filter(|(.., release)| *release < NATIVE_SIDECARS).collect();
    if !old.is_empty() && injects {
        let hint = "keep injected pods off these nodes, or update them to 1.29 or later";
        let detail = format!("{} never start containers beside a sidecar", counted(&old));
        return Row::fail(name, detail, hint);
    }
    let mut problems = Vec::new();
    for bug in BUGS {
        let hit: Vec<_> = released.iter().filter(|(.., release)| bug.is_in(*release)).collect();
        if !hit.is_empty() {
            let (what, number) = (bug.what, bug.number);
            problems.push(format!("{}: {what} (kubernetes/kubernetes#{number})", counted(&hit)));
        }
    }
    if problems.is_empty() {
        let nodes: usize = kubelets.values().sum();
        let versions: Vec<_> = kubelets.keys().map(String::as_str).collect();
        return Row::pass(name, format!("{}: {}", nodes_of(nodes), versions.join(", ")));
    }
    Row::warn(name, problems.join("; "), "update these kubelets to the newest patch release")
}

fn counted(kubelets: &[&(&String, usize, Release)]) -> String {
    let nodes = kubelets.iter().map(|(_, nodes, _)| nodes).sum();
    let versions: Vec<_> = kubelets.iter().map(|(version, ..)| version.as_str()).collect();
    format!("{} with kubelet {}", nodes_of(nodes), versions.join(", "))
}

fn nodes_of(count: usize) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}

#[cfg(test)]
mod tests {
    use super::{super::Outcome, *};

    fn release(text: &str) -> Release {
        Release::parse(text).expect(text)
    }

    #[test]
    fn releases_are_parsed_with_any_distributors_suffix() {
        for (text, minor, patch) in [
            ("v1.36.3", 36, 3),
            ("v1.30.14-eks-1234", 30, 14),
            ("1.29", 29, 0),
            ("v1.31.0+k3s1", 31, 0),
            ("v1.27+", 27, 0),
        ] {
            assert_eq!(Release::parse(text), Some(Release { minor, patch }), "{text}");
        }
        for text in ["", "v", "v2.1.0", "latest", "v1", "v1.x.2"] {
            assert_eq!(Release::parse(text), None, "{text}");
        }
    }

    #[test]
    fn bugs_end_with_the_patch_release_that_fixed_them() {
        let bugs = |text: &str| -> Vec<u32> {
            let release = release(text);
            BUGS.iter().filter(|bug| bug.is_in(release)).map(|bug| bug.number).collect()
        };
        for (version, expected) in [
            ("v1.28.9", &[][..]),
            ("v1.29.7", &[125_935, 126_543]),
            ("v1.29.8", &[126_543]),
            ("v1.29.9", &[]),
            ("v1.30.4", &[126_543]),
            ("v1.30.5", &[]),
            ("v1.31.0", &[126_543]),
            ("v1.31.1", &[]),
            ("v1.36.3", &[]),
        ] {
            assert_eq!(bugs(version), expected, "{version}");
        }
    }

    #[test]
    fn an_old_apiserver_fails_only_if_sidecars_are_used() {
        let at =
            |version: &str, injects| super::version(&Ok(version.to_owned()), "a:1", injects).result;
        assert_eq!(at("v1.28.4", true), Outcome::Fail);
        assert_eq!(at("v1.28.4", false), Outcome::Warn);
        assert_eq!(at("v1.29.0", true), Outcome::Pass);
        assert_eq!(at("nonsense", true), Outcome::Warn);
    }

    #[test]
    fn kubelets_with_bugs_are_named_with_the_issue() {
        let found = |versions: &[(&str, usize)]| {
            let kubelets = versions.iter().map(|(version, nodes)| ((*version).to_owned(), *nodes));
            super::kubelets(&Ok(kubelets.collect()), true)
        };
        let row = found(&[("v1.29.8", 2), ("v1.31.0", 1), ("v1.36.0", 4)]);
        assert_eq!(row.result, Outcome::Warn);
        assert!(row.detail.starts_with("3 nodes with kubelet v1.29.8, v1.31.0: "), "{row:?}");
        assert!(row.detail.contains("kubernetes/kubernetes#126543"), "{row:?}");
        assert_eq!(found(&[("v1.36.0", 1)]).detail, "1 node: v1.36.0");
        assert_eq!(found(&[("v1.28.2", 1), ("v1.36.0", 1)]).result, Outcome::Fail);
        assert_eq!(found(&[]).result, Outcome::Skipped);
        assert_eq!(found(&[("built-here", 1)]).result, Outcome::Pass);
    }
}
