//! Sidecar injection into pods: the corpus, the invariants of every pod, manifests, and the
//! webhook.

mod certificates;
mod corpus;
mod manifests;
mod round_trips;
mod shown;
mod webhook;

use std::path::{Path, PathBuf};

use listless::injector::patch::{Operation, Settings};
use serde_json::Value;

/// The settings of injected pods in the tests, without a particular version.
fn settings() -> Settings {
    Settings {
        image: "example.com/listless:1.2.3".to_owned(),
        version: "1.2.3".to_owned(),
        ..Settings::default()
    }
}

fn applied(pod: &Value, operations: &[Operation]) -> Value {
    let mut pod = pod.clone();
    operations.iter().for_each(|operation| operation.apply(&mut pod));
    pod
}

fn golden(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder)
}

/// The files of a folder with that extension, in order.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    files
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("YAML")
}

/// Reports whether the files are to be written again.
fn is_update() -> bool {
    std::env::var_os("LISTLESS_UPDATE").is_some()
}
