//! The chart, with the real Helm of both major versions: rendered, refused, and installed on a real
//! apiserver. No kubelet runs what is installed.

mod conform;
pub(crate) mod helm;
pub(crate) mod install;
mod inventory;
mod objects;
mod render;

use std::path::{Path, PathBuf};

/// The release the tests install, and its namespace.
const RELEASE: &str = "demo";
pub(crate) const NAMESPACE: &str = "listless-system";
/// The values of `ci`, by their names there.
const EXAMPLES: [&str; 4] = ["default", "full", "gateway", "outside"];

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub(crate) fn chart() -> String {
    repository("charts/listless").display().to_string()
}

fn example(name: &str) -> String {
    repository("charts/listless/ci").join(format!("{name}-values.yaml")).display().to_string()
}

#[test]
fn every_values_file_of_ci_is_tested() {
    let files = std::fs::read_dir(repository("charts/listless/ci")).expect("the folder");
    let mut found: Vec<_> = files
        .map(|file| file.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    found.sort();
    assert_eq!(found, EXAMPLES.map(|name| format!("{name}-values.yaml")));
}
