use std::time::Duration;

use tempfile::TempDir;

use super::*;

const OURS: &str = "-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----\n";

struct Scene {
    folder: TempDir,
    mirror: Mirror,
    clock: SystemTime,
}

impl Scene {
    /// Creates a source as the kubelet does.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let (source, target) = (folder.path().join("source"), folder.path().join("target"));
        fs::create_dir(&source).expect("a directory");
        fs::create_dir(&target).expect("a directory");
        let mirror = Mirror::new(source, target, OURS.to_owned());
        let scene = Self { folder, mirror, clock: SystemTime::UNIX_EPOCH };
        scene.publish(&[("token", "one"), ("ca.crt", "theirs\n"), ("namespace", "shop")]);
        scene
    }

    fn publish(&self, files: &[(&str, &str)]) {
        let source = self.folder.path().join("source");
        let name = format!("..gen{}", files.len() + files[0].1.len() * 100);
        let directory = source.join(&name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).expect("a directory");
        for (file, content) in files {
            write_file(&directory.join(file), content.as_bytes(), 0o640).expect("written");
            let (next, link) = (source.join("..next"), source.join(file));
            replace_link(&Path::new(DATA).join(file), &next, &link).expect("a link");
        }
        replace_link(Path::new(&name), &source.join(NEXT_DATA), &source.join(DATA))
            .expect("a link");
    }

    fn look(&mut self) -> Result<Look, Error> {
        self.clock += Duration::from_secs(10);
        self.mirror.look(self.clock)
    }

    fn shown(&self, file: &str) -> String {
        fs::read_to_string(self.folder.path().join("target").join(file)).expect("a file")
    }

    fn generations(&self) -> usize {
        let entries = fs::read_dir(self.folder.path().join("target")).expect("a directory");
        entries.filter(|entry| entry.as_ref().expect("an entry").path().is_dir()).count()
    }
}

#[test]
fn every_file_is_copied_and_the_bundle_trusts_listless_first() {
    let mut scene = Scene::new();
    assert_eq!(scene.look().expect("a copy"), Look::Written);
    assert_eq!((scene.shown("token").as_str(), scene.mirror.token()), ("one", Some("one")));
    assert_eq!(scene.shown("namespace"), "shop");
    assert_eq!(scene.shown("ca.crt"), format!("{OURS}theirs\n"));
    let target = scene.folder.path().join("target");
    assert_eq!(fs::read_link(target.join("token")).expect("a link"), Path::new("..data/token"));
    let mode = fs::metadata(target.join("token")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert_eq!(scene.look().expect("a look"), Look::Same);
}

#[test]
fn the_copy_keeps_the_group_that_the_volume_gives_its_files() {
    let mut scene = Scene::new();
    let target = scene.folder.path().join("target");
    fs::set_permissions(&target, Permissions::from_mode(0o2777)).expect("a mode");
    scene.look().expect("a copy");
    let live = fs::metadata(target.join(DATA)).expect("a directory");
    assert_eq!(live.permissions().mode() & 0o7777, 0o2755);
}

#[test]
fn a_change_is_applied_as_a_whole() {
    let mut scene = Scene::new();
    scene.look().expect("a copy");
    scene.publish(&[("token", "second"), ("ca.crt", "theirs\n"), ("service-ca.crt", "more")]);
    assert_eq!(scene.look().expect("a copy"), Look::Written);
    assert_eq!(
        (scene.shown("token"), scene.shown("service-ca.crt")),
        ("second".into(), "more".into())
    );
    assert!(fs::symlink_metadata(scene.folder.path().join("target/namespace")).is_err());
    assert_eq!(scene.mirror.token(), Some("second"));
    for token in ["third one", "the fourth"] {
        scene.publish(&[("token", token), ("ca.crt", "theirs\n")]);
        scene.look().expect("a copy");
        assert_eq!(scene.shown("token"), token);
    }
    // `..data` and the two generations.
    assert_eq!(scene.generations(), 3);
}

#[test]
fn a_broken_source_leaves_the_copy_unchanged() {
    let mut scene = Scene::new();
    scene.look().expect("a copy");
    for broken in [
        &[("token", ""), ("ca.crt", "theirs")][..],
        &[("token", " \n"), ("ca.crt", "theirs")],
        &[("token", "other")],
        &[("ca.crt", "theirs")],
    ] {
        scene.publish(broken);
        let error = scene.look().expect_err("broken");
        assert!(matches!(error, Error::Missing(_)), "{error}");
        assert_eq!((scene.shown("token"), scene.mirror.token()), ("one".into(), Some("one")));
    }
    fs::remove_dir_all(scene.folder.path().join("source")).expect("removed");
    assert!(matches!(scene.look(), Err(Error::File { .. })));
    assert_eq!(scene.shown("token"), "one");
}

#[test]
fn a_copy_that_cannot_be_written_is_retried() {
    let mut scene = Scene::new();
    let target = scene.folder.path().join("target");
    fs::remove_dir(&target).expect("removed");
    fs::write(&target, "in the way").expect("written");
    assert!(matches!(scene.look(), Err(Error::File { .. })));
    assert_eq!(scene.mirror.token(), None);
    fs::remove_file(&target).expect("removed");
    assert_eq!(scene.look().expect("a copy"), Look::Written);
}

#[test]
fn a_failed_link_leaves_the_live_generation() {
    let mut scene = Scene::new();
    scene.look().expect("a copy");
    let obstacle = scene.folder.path().join("target/extra");
    fs::create_dir_all(obstacle.join("in-the-way")).expect("a directory");
    scene.publish(&[("token", "two"), ("ca.crt", "theirs"), ("namespace", "n"), ("extra", "e")]);
    for _ in 0..3 {
        assert!(matches!(scene.look(), Err(Error::File { .. })));
        assert_eq!(scene.shown("token"), "two", "the files still link to the live generation");
    }
    fs::remove_dir_all(&obstacle).expect("removed");
    assert_eq!(scene.look().expect("a copy"), Look::Written);
    assert_eq!((scene.shown("token"), scene.shown("extra")), ("two".into(), "e".into()));
}

#[test]
fn a_plain_directory_is_copied_too() {
    let folder = tempfile::tempdir().expect("a directory");
    for (file, content) in [("token", "plain\n"), ("ca.crt", "theirs")] {
        fs::write(folder.path().join(file), content).expect("written");
    }
    let target = folder.path().join("target");
    let mut mirror = Mirror::new(folder.path().to_owned(), target.clone(), String::new());
    assert_eq!(mirror.look(SystemTime::UNIX_EPOCH).expect("a copy"), Look::Written);
    assert_eq!(fs::read_to_string(target.join("token")).expect("a file"), "plain\n");
    assert_eq!(mirror.token(), Some("plain"));
}
