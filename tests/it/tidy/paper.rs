//! Documents: links that resolve, commands that exist, and no paths of a machine.

use std::{collections::BTreeSet, path::Path, process::Command};

use super::source::{Source, read_tree};

/// The commands a document may tell a reader to type.
pub(crate) struct Known {
    pub(crate) subcommands: BTreeSet<String>,
    pub(crate) make_targets: BTreeSet<String>,
    pub(crate) ci_steps: BTreeSet<String>,
    pub(crate) test_binaries: BTreeSet<String>,
    /// `binary module::function` of everything below `tests`.
    pub(crate) tests: Vec<String>,
}

// === impl Known ===

impl Known {
    /// From the binary's own help, the Makefile, the CI script and the test folders.
    pub(crate) fn read() -> Self {
        let makefile = text_of("Makefile");
        let targets = makefile.lines().filter(|line| !line.starts_with(['\t', '.', '#']));
        Self {
            subcommands: subcommands(&help()),
            make_targets: targets
                .filter_map(|line| line.split_once(':'))
                .flat_map(|(names, _)| names.split_whitespace().map(str::to_owned))
                .collect(),
            ci_steps: ci_steps(&text_of(".ci/run")),
            test_binaries: test_binaries(),
            tests: read_tree(&["tests"], "rs").iter().flat_map(test_paths).collect(),
        }
    }
}

/// Relative links to files or headings that are not there.
pub(crate) fn links(documents: &[Source]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut findings = Vec::new();
    for document in documents {
        let folder = document.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for target in link_targets(&document.text) {
            let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
            let path = root.join(folder).join(file);
            let text = if file.is_empty() {
                Some(document.text.clone())
            } else if path.is_file() {
                std::fs::read_to_string(&path).ok()
            } else {
                None
            };
            if !(path.exists() && (heading.is_empty() || has_heading(text.as_deref(), heading))) {
                findings.push(format!("{}: broken link to {target}", document.path));
            }
        }
    }
    findings
}

/// Commands in code spans and code blocks that do not exist.
pub(crate) fn commands(documents: &[Source], known: &Known) -> Vec<String> {
    let mut findings = Vec::new();
    for document in documents {
        for (line, snippet) in code_snippets(&document.text) {
            findings.extend(
                unknown_commands(&snippet, known)
                    .into_iter()
                    .map(|what| format!("{}:{line}: no such command: {what}", document.path)),
            );
        }
    }
    findings
}

/// Top-level modules that the map leaves out, and files or folders on the map that do not exist.
///
/// A module is named as its folder (`src/cache/`), or as its file if it has no folder.
pub(crate) fn code_map(map: &str, paths: &[&str]) -> Vec<String> {
    let named: BTreeSet<&str> = map.split('`').filter(|span| span.starts_with("src/")).collect();
    let exists = |name: &str| {
        paths.iter().any(|path| *path == name || (name.ends_with('/') && path.starts_with(name)))
    };
    let top = paths.iter().filter(|path| path.matches('/').count() == 1);
    let missing = top.filter(|path| {
        let folder = path.replace(".rs", "/");
        !named.contains(if exists(&folder) { folder.as_str() } else { **path })
    });
    let mut findings: Vec<String> = missing.map(|path| format!("{path}: not on the map")).collect();
    let gone = named.iter().filter(|name| !exists(name));
    findings.extend(gone.map(|name| format!("{name}: on the map, but not there")));
    findings
}

/// Names that a document gives as "`file`: `name`" and that the file does not have.
pub(crate) fn pointers(document: &str, sources: &[Source]) -> Vec<String> {
    let spans: Vec<&str> = document.split('`').collect();
    let pairs = spans.windows(3).filter(|spans| spans[1] == ": " && spans[0].ends_with(".rs"));
    let lacks = |file: &str, name: &str| {
        let source = sources.iter().find(|source| source.path == file);
        !source.is_some_and(|source| source.product.contains(name))
    };
    let wrong = pairs.filter(|pair| lacks(pair[0], pair[2]));
    wrong.map(|pair| format!("{}: has no {}", pair[0], pair[2])).collect()
}

/// Test binaries that the CI script does not run. Plain `cargo test` runs those without `test = false`.
pub(crate) fn test_binaries_in_ci() -> Vec<String> {
    let (script, manifest) = (text_of(".ci/run"), text_of("Cargo.toml"));
    let is_run = |name: &String| {
        let section = manifest.split("[[").find(|section| {
            section.starts_with("test]]") && section.contains(&format!("name = \"{name}\""))
        });
        let by_name = section.is_some_and(|section| section.contains("test = false"));
        let command =
            if by_name { format!("--test {name}") } else { "cargo test --locked;".to_owned() };
        script.contains(&command)
    };
    let missing = test_binaries().into_iter().filter(|name| !is_run(name));
    missing.map(|name| format!("{name}: not in CI")).collect()
}

/// Modules of the cluster suite that have tests and are not in the table of suites.
pub(crate) fn unlisted_suites(document: &str, sources: &[Source]) -> Vec<String> {
    let rows = document.lines().filter(|line| line.starts_with('|'));
    let spans: BTreeSet<&str> = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect();
    let suites: BTreeSet<&str> = sources
        .iter()
        .filter(|source| source.functions().iter().any(|function| source.is_test(function.line)))
        .filter_map(|source| source.path.strip_prefix("tests/cluster/"))
        .filter_map(|path| path.split('/').next()?.split('.').next())
        .collect();
    let missing = suites.into_iter().filter(|suite| !spans.contains(suite));
    missing.map(|suite| format!("tests/cluster/{suite}: not in the table of suites")).collect()
}

/// Absolute paths of a developer's machine.
pub(crate) fn machine_paths(source: &Source) -> Vec<String> {
    // In two pieces, so that this line is not a finding.
    let needles = [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/")];
    let found = needles.iter().filter(|needle| source.text.contains(**needle));
    found.map(|needle| format!("{}: names {needle}", source.path)).collect()
}

pub(crate) fn text_of(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn help() -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_listless")).arg("--help").output();
    String::from_utf8_lossy(&output.expect("the binary under test runs").stdout).into_owned()
}

/// The words under `Commands:` of a help text.
fn subcommands(help: &str) -> BTreeSet<String> {
    let listed = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let listed = listed.take_while(|line| line.starts_with("  "));
    // Wrapped descriptions are indented further.
    let named = listed.filter(|line| line.chars().nth(2).is_some_and(|c| c != ' '));
    named.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

fn ci_steps(script: &str) -> BTreeSet<String> {
    let names = script.lines().filter_map(|line| line.strip_prefix("step_"));
    names.filter_map(|rest| rest.split_once("()")).map(|(name, _)| name.to_owned()).collect()
}

fn test_paths(source: &Source) -> Vec<String> {
    let Some(inner) = source.path.strip_prefix("tests/") else { return Vec::new() };
    let path = inner.trim_end_matches(".rs").replacen('/', " ", 1).replace('/', "::");
    source.functions().iter().map(|function| format!("{path}::{}", function.name)).collect()
}

fn test_binaries() -> BTreeSet<String> {
    let mains = read_tree(&["tests"], "rs").into_iter().filter_map(|source| {
        let name = source.path.strip_prefix("tests/")?.strip_suffix("/main.rs")?;
        (!name.contains('/')).then(|| name.to_owned())
    });
    mains.collect()
}

fn link_targets(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("](") {
        let target = text[at + 2..].split([')', ' ', '\n']).next().unwrap_or("");
        if !target.contains("://") && !target.starts_with("mailto:") {
            found.push(target.to_owned());
        }
    }
    found
}

fn has_heading(text: Option<&str>, wanted: &str) -> bool {
    let headings = text.unwrap_or("").lines().filter(|line| line.starts_with('#'));
    headings.map(slug).any(|slug| slug == wanted)
}

fn slug(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Lines of fenced blocks and inline code spans, with their lines.
fn code_snippets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fence: Option<String> = None;
    for (index, line) in text.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = fence.is_none().then(|| language.trim().to_owned());
        } else if let Some(language) = &fence {
            if matches!(language.as_str(), "sh" | "console" | "bash") {
                found.push((index + 1, line.to_owned()));
            }
        } else {
            let spans = line.split('`').skip(1).step_by(2);
            found.extend(spans.map(|span| (index + 1, span.to_owned())));
        }
    }
    found
}

fn unknown_commands(snippet: &str, known: &Known) -> Vec<String> {
    let command = snippet.split(" # ").next().unwrap_or("");
    let words: Vec<&str> = command.split_whitespace().collect();
    let after = |prefix: &[&str]| {
        let at = words.windows(prefix.len()).position(|window| window == prefix)?;
        words.get(at + prefix.len()).copied()
    };
    let is_name = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let is_command = |word: &&str| is_name(word) && !word.starts_with('-');
    let mut unknown = Vec::new();
    let mut check = |word: Option<&str>, names: &BTreeSet<String>| {
        unknown.extend(
            word.filter(is_command)
                .filter(|word| !names.contains(*word))
                .map(|_| command.to_owned()),
        );
    };
    check(
        words.strip_prefix(&["listless"]).and_then(|rest| rest.first().copied()),
        &known.subcommands,
    );
    check(after(&["./target/dist/listless"]), &known.subcommands);
    if after(&["cargo", "run"]).is_some() {
        check(after(&["--"]), &known.subcommands);
    }
    check(
        words.strip_prefix(&["make"]).and_then(|rest| rest.first().copied()),
        &known.make_targets,
    );
    check(after(&[".ci/run"]), &known.ci_steps);
    check(after(&["--test"]), &known.test_binaries);
    if let Some(binary) = after(&["--test"])
        && let Some(filter) = after(&["--test", binary])
    {
        let runs = |test: &String| {
            test.split_once(' ').is_some_and(|(of, name)| of == binary && name.contains(filter))
        };
        if !filter.starts_with('-') && !known.tests.iter().any(runs) {
            unknown.push(command.to_owned());
        }
    }
    unknown
}

#[cfg(test)]
mod tests;
