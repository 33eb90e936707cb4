use super::*;

fn known() -> Known {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Known {
        subcommands: set(&["demo", "local"]),
        make_targets: set(&["ci"]),
        ci_steps: set(&["lint"]),
        test_binaries: set(&["it"]),
        tests: vec!["it reads::memory_answers".to_owned()],
    }
}

fn unknown(text: &str) -> usize {
    commands(&[Source::new("README.md", text)], &known()).len()
}

#[test]
fn a_command_that_does_not_exist_is_found() {
    assert_eq!(unknown("Run `listless gateway --listen A` now.\n"), 1);
    assert_eq!(unknown("```sh\ncargo run --release -- dance # a comment\n```\n"), 1);
    assert_eq!(unknown("Run `make tea`, or `.ci/run tea`.\n"), 2);
    assert_eq!(unknown("`cargo test --test node`\n"), 1);
    assert_eq!(unknown("`cargo test --test it writes`\n"), 1);
}

#[test]
fn commands_that_exist_and_prose_pass() {
    assert_eq!(unknown("Run `listless demo`, `listless --help`, `make ci`.\n"), 0);
    assert_eq!(unknown("```sh\ncargo run --release -- demo --seconds 6\n.ci/run lint\n```\n"), 0);
    assert_eq!(unknown("`cargo test --test it reads`, `cargo test --test it -- --list`\n"), 0);
    assert_eq!(unknown("listless dance is prose; ```text\nlistless dance\n```\n"), 0);
    assert_eq!(unknown("`Cache-Status: listless; hit` and `listless METHOD`\n"), 0);
}

#[test]
fn a_link_to_nowhere_is_found() {
    let broken = |text: &str| links(&[Source::new("README.md", text)]).len();
    assert_eq!(broken("[a](docs/no-such-file.md)\n"), 1);
    assert_eq!(broken("# One two\n[a](#one-three)\n"), 1);
    assert_eq!(broken("# One, two\n[a](#one-two) [b](https://example.org/x) [c](LICENSE)\n"), 0);
}

#[test]
fn subcommands_are_read_from_help() {
    let help = "Usage\n\nCommands:\n  demo   Shows it\n         and more\n  local  Runs\n\nOptions:\n  -h\n";
    assert_eq!(subcommands(help), BTreeSet::from(["demo".to_owned(), "local".to_owned()]));
}

#[test]
fn the_path_of_a_machine_is_found() {
    let text = format!("see {}x", concat!("/wo", "rk/"));
    assert_eq!(machine_paths(&Source::new("README.md", &text)).len(), 1);
    assert_eq!(machine_paths(&Source::new("README.md", "see docs/x")).len(), 0);
}

#[test]
fn a_map_that_is_wrong_is_found() {
    let map = "| `src/a.rs` | does a |\n| `src/d/` | does d |\n| `src/gone.rs` | did b |\n";
    let paths = ["src/a.rs", "src/b.rs", "src/b/c.rs", "src/d.rs", "src/d/e.rs", "src/f.rs"];
    let expected = [
        "src/b.rs: not on the map",
        "src/f.rs: not on the map",
        "src/gone.rs: on the map, but not there",
    ];
    assert_eq!(code_map(map, &paths), expected);
}

#[test]
fn a_name_that_its_file_does_not_have_is_found() {
    let sources = [Source::new("src/a.rs", "const A: u8 = 1;\n")];
    let wrong = |text: &str| pointers(text, &sources).len();
    assert_eq!(wrong("| a? | `src/a.rs`: `A`; `src/a.rs` |\n"), 0);
    assert_eq!(wrong("| a? | `src/a.rs`: `B` |\n"), 1);
    assert_eq!(wrong("| a? | `src/b.rs`: `A` |\n"), 1);
}

#[test]
fn a_suite_without_a_row_is_found() {
    let source = |path: &str| Source::new(path, "#[test]\nfn a_is_b() {}\n");
    let sources = [source("tests/cluster/gzip.rs"), source("tests/cluster/faults/etcd.rs")];
    assert_eq!(unlisted_suites("| `gzip`, `faults` | \u{2013} |\n", &sources).len(), 0);
    assert_eq!(unlisted_suites("| `gzip` |\n`faults`\n", &sources).len(), 1);
    assert_eq!(unlisted_suites("", &[Source::new("tests/cluster/rig.rs", "fn a() {}")]).len(), 0);
}
