//! A changed file takes effect while everything runs. A bad file does not.

use std::{fs, path::PathBuf, sync::Arc};

use listless::{
    config::{Change, Config, Reloader},
    metrics::Metrics,
    policy::Mode,
};
use tempfile::TempDir;
use tokio::sync::watch;

use super::HEAD;

struct Setup {
    directory: TempDir,
    file: PathBuf,
    metrics: Metrics,
    reloader: Reloader,
    config: watch::Receiver<Arc<Config>>,
}

fn start() -> Setup {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("config.yaml");
    fs::write(&file, HEAD).expect("written");
    let metrics = Metrics::new();
    let (reloader, config) = Reloader::start(file.clone(), metrics.clone()).expect("a good file");
    Setup { directory, file, metrics, reloader, config }
}

impl Setup {
    fn mode(&self) -> Mode {
        self.config.borrow().policy.mode()
    }

    fn reloads(&self, result: &str) -> String {
        let name = format!("listless_config_reloads_total{{result=\"{result}\"}} ");
        let text = self.metrics.render();
        text.lines().find_map(|line| line.strip_prefix(&name)).expect("a counter").to_owned()
    }
}

#[test]
fn a_changed_file_is_applied_once() {
    let mut setup = start();
    assert_eq!(setup.reloader.look(), Change::None);
    fs::write(&setup.file, format!("{HEAD}mode: observe\n")).expect("written");
    assert_eq!(setup.reloader.look(), Change::Taken);
    assert_eq!(setup.mode(), Mode::Observe);
    assert!(setup.config.has_changed().expect("a sender"));
    assert_eq!(setup.reloader.look(), Change::None);
    assert_eq!((setup.reloads("success"), setup.reloads("failure")), ("1".into(), "0".into()));
}

#[test]
fn a_bad_file_changes_nothing_and_is_reported_once() {
    let mut setup = start();
    fs::write(&setup.file, format!("{HEAD}mode: observed\n")).expect("written");
    assert_eq!(setup.reloader.look(), Change::Refused);
    assert_eq!(setup.reloader.look(), Change::None);
    assert_eq!(setup.mode(), Mode::Enforce);
    assert_eq!((setup.reloads("success"), setup.reloads("failure")), ("0".into(), "1".into()));
    fs::write(&setup.file, format!("{HEAD}mode: observe\n")).expect("written");
    assert_eq!(setup.reloader.look(), Change::Taken);
}

#[test]
fn a_deleted_file_keeps_the_configuration_and_may_return() {
    let mut setup = start();
    fs::remove_file(&setup.file).expect("removed");
    assert_eq!(setup.reloader.look(), Change::Refused);
    assert_eq!(setup.reloader.look(), Change::None);
    fs::write(&setup.file, format!("{HEAD}mode: observe\n")).expect("written");
    assert_eq!(setup.reloader.look(), Change::Taken);
}

#[test]
fn touching_a_file_without_changing_it_is_no_change() {
    let mut setup = start();
    let replacement = setup.directory.path().join("replacement");
    fs::write(&replacement, HEAD).expect("written");
    fs::rename(&replacement, &setup.file).expect("replaced");
    assert_eq!(setup.reloader.look(), Change::None);
    assert_eq!(setup.reloads("success"), "0");
}

/// A kubelet mounts `config.yaml -> ..data/config.yaml`, and swaps the target of `..data`.
#[test]
#[cfg(unix)]
fn a_file_swapped_through_a_symbolic_link_is_applied() {
    use std::os::unix::fs::symlink;

    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    for (version, text) in [("..1", HEAD.to_owned()), ("..2", format!("{HEAD}mode: observe\n"))] {
        fs::create_dir(path(version)).expect("created");
        fs::write(path(version).join("config.yaml"), text).expect("written");
    }
    symlink("..1", path("..data")).expect("linked");
    symlink("..data/config.yaml", path("config.yaml")).expect("linked");
    let (mut reloader, config) =
        Reloader::start(path("config.yaml"), Metrics::new()).expect("a good file");
    assert_eq!(reloader.look(), Change::None);
    symlink("..2", path("..data_tmp")).expect("linked");
    fs::rename(path("..data_tmp"), path("..data")).expect("swapped");
    assert_eq!(reloader.look(), Change::Taken);
    assert_eq!(config.borrow().policy.mode(), Mode::Observe);
}

#[test]
fn the_first_file_must_be_valid() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("config.yaml");
    fs::write(&file, "mode: enforce\n").expect("written");
    let error = Reloader::start(file, Metrics::new()).err().expect("a wrong file");
    assert!(error.to_string().contains("config.yaml:1:1: apiVersion: is required\n"), "{error}");
}
