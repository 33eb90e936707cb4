//! `config/service`: the files that start `listless local` in the background, on Linux and on
//! macOS.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

const LISTLESS: &str = env!("CARGO_BIN_EXE_listless");

fn text_of(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/service").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A home with a program in it at `.local/bin/listless`.
fn home(program: impl FnOnce(&Path)) -> tempfile::TempDir {
    let home = tempfile::tempdir().expect("a home");
    let folder = home.path().join(".local/bin");
    fs::create_dir_all(&folder).expect("a folder");
    program(&folder.join("listless"));
    home
}

/// Wrong arguments would end with 2, before the kubeconfig is looked for.
fn are_taken(arguments: &[String]) {
    let mut command = Command::new(LISTLESS);
    command.args(arguments).args(["--kubeconfig", "no-such-file"]);
    for flag in ["--listen", "--admin", "--health"] {
        command.args([flag, "127.0.0.1:0"]);
    }
    let output = command.output().expect("the binary runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {told}");
    assert!(told.contains("no-such-file"), "{told}");
}

#[test]
fn the_systemd_unit_starts_the_program_with_valid_arguments() {
    let unit = text_of("listless.service");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    let mut words = line.split(' ');
    assert_eq!(words.next(), Some("%h/.local/bin/listless"));
    let place = tempfile::tempdir().expect("a folder");
    let place = place.path().to_str().expect("text");
    let arguments: Vec<_> =
        words.map(|word| word.replace("%h", place).replace("%S", place)).collect();
    are_taken(&arguments);
    for part in ["--state %S/listless", "StateDirectory=listless", "RestartPreventExitStatus=2"] {
        assert!(unit.contains(part), "{part}");
    }
}

#[test]
fn systemd_accepts_the_unit() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("skipped: there is no systemd-analyze here to verify the unit");
        return;
    }
    let home = home(|program| symlink(LISTLESS, program).expect("a link"));
    let unit = home.path().join("listless.service");
    fs::write(&unit, text_of("listless.service")).expect("written");
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--user"]).arg(&unit);
    command.env("HOME", home.path()).env("XDG_RUNTIME_DIR", home.path());
    let output = command.output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    // systemd also checks the machine's own units. Only its findings about this unit count.
    assert!(!told.contains("listless.service"), "{told}");
}

#[test]
fn the_launchd_agent_is_well_formed_and_has_valid_arguments() {
    let text = text_of("dev.listless.local.plist");
    let elements = elements(&text);
    let after = |key: &str| -> &str {
        let at = elements.iter().position(|(name, text)| name == "key" && text == key);
        &elements[at.expect(key) + 1].1
    };
    assert_eq!(after("Label"), "dev.listless.local");
    // launchd's own PATH does not lead to exec plugins.
    assert!(after("PATH").starts_with("/opt/homebrew/bin:/usr/local/bin:"));
    let strings: Vec<&str> = elements
        .iter()
        .skip_while(|(_, text)| text != "ProgramArguments")
        .filter(|(name, _)| name == "string")
        .map(|(_, text)| text.as_str())
        .collect();
    assert_eq!(strings[..2], ["/bin/sh", "-c"]);
    assert_eq!(strings.len(), 3);

    // A program in its place writes its arguments, one a line.
    let home = home(|program| {
        fs::write(program, "#!/bin/sh\nprintf '%s\\n' \"$@\"\n").expect("written");
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).expect("executable");
    });
    fs::create_dir_all(home.path().join("Library/Logs")).expect("a folder");
    let mut command = Command::new("/bin/sh");
    let output = command.args(["-c", strings[2]]).env("HOME", home.path()).output();
    let output = output.expect("a shell");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).expect("text");
    let arguments: Vec<String> = printed.lines().map(str::to_owned).collect();
    assert!(
        arguments
            .contains(&format!("{}/Library/Application Support/listless", home.path().display()))
    );
    are_taken(&arguments);
    assert!(PathBuf::from(home.path()).join("Library/Logs/listless.log").exists());
}

/// The elements with their own text, in order; fails where the XML is not well-formed.
fn elements(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut open: Vec<(String, usize)> = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        if let Some((_, at)) = open.last() {
            found[*at].1 += before.trim();
        }
        let end = if after.starts_with("!--") { "-->" } else { ">" };
        let (tag, left) = after.split_once(end).expect("a tag that ends");
        rest = left;
        if tag.starts_with(['?', '!']) {
            continue;
        }
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop().expect("something open").0, name),
            None => {
                let name = tag.trim_end_matches('/').split(' ').next().expect("a name").to_owned();
                found.push((name.clone(), String::new()));
                if !tag.ends_with('/') {
                    open.push((name, found.len() - 1));
                }
            }
        }
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} is still open");
    found
}
