//! The form of files: size, names, opening comment, and whether they are compiled.

use std::collections::BTreeSet;

use super::source::{Source, is_test_file};

const PRODUCT_LINES_MAX: usize = 400;
const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

/// The ratchet: files over the limit, and their maximum size. It only ever shrinks.
pub(crate) const LARGER_FILES: &[(&str, usize)] = &[];

/// The ratchet of functions: path, name, lines.
pub(crate) const LARGER_FUNCTIONS: &[(&str, &str, usize)] = &[];

/// Files over 400 product lines or 500 lines in all.
pub(crate) fn file_sizes(sources: &[Source], ratchet: &[(&str, usize)]) -> Vec<String> {
    let mut findings = Vec::new();
    for source in sources {
        let lines = source.text.lines().count();
        let product = source.product_lines();
        let larger = product > PRODUCT_LINES_MAX || lines > FILE_LINES_MAX;
        let allowed = ratchet.iter().find(|(path, _)| *path == source.path).map(|(_, max)| *max);
        match (larger, allowed) {
            (true, None) => findings.push(format!(
                "{}: {product} lines of product, {lines} in all; at most {PRODUCT_LINES_MAX} and \
                 {FILE_LINES_MAX}: split it by noun",
                source.path
            )),
            (true, Some(max)) if lines > max => {
                findings.push(format!("{}: grew from {max} to {lines} lines", source.path));
            }
            (false, Some(_)) => {
                findings.push(format!("{}: small now, take it off the ratchet", source.path));
            }
            _ => {}
        }
    }
    let known = |path: &str| sources.iter().any(|source| source.path == path);
    findings.extend(
        ratchet.iter().filter(|(path, _)| !known(path)).map(|(path, _)| format!("{path}: gone")),
    );
    findings
}

/// Functions over 70 lines.
pub(crate) fn function_sizes(sources: &[Source], ratchet: &[(&str, &str, usize)]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut used = BTreeSet::new();
    for source in sources {
        for function in source.functions().iter().filter(|f| f.lines > FUNCTION_LINES_MAX) {
            let allowed = ratchet
                .iter()
                .position(|(path, name, _)| *path == source.path && *name == function.name);
            used.extend(allowed);
            if allowed.is_none_or(|index| function.lines > ratchet[index].2) {
                findings.push(format!(
                    "{}:{}: fn {} has {} lines; at most {FUNCTION_LINES_MAX}",
                    source.path, function.line, function.name, function.lines
                ));
            }
        }
    }
    let unused = ratchet.iter().enumerate().filter(|(index, _)| !used.contains(index));
    findings.extend(
        unused.map(|(_, (path, name, _))| format!("{path}: fn {name} is small now or gone")),
    );
    findings
}

/// A file that does not open with its purpose.
pub(crate) fn module_doc(source: &Source) -> Vec<String> {
    let opening = source.text.lines().find(|line| !line.trim().is_empty());
    let documented = opening.is_some_and(|line| line.starts_with("//! "));
    let below_src = source.path.starts_with("src/") && is_test_file(&source.path);
    let is_test_module = below_src || source.path.ends_with("/tests.rs");
    if documented || is_test_module {
        Vec::new()
    } else {
        vec![format!("{}: says nothing of its job (`//!` on the first line)", source.path)]
    }
}

/// Tests whose name begins with `test_` instead of stating a behaviour.
pub(crate) fn test_names(source: &Source) -> Vec<String> {
    let functions = source.functions().into_iter();
    let badly_named = functions.filter(|f| f.name.starts_with("test_") && source.is_test(f.line));
    badly_named
        .map(|f| format!("{}:{}: name fn {} by the behaviour", source.path, f.line, f.name))
        .collect()
}

/// Notes of unfinished work, and code that was commented out.
pub(crate) fn left_overs(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        let Some(at) = line.find("//") else { continue };
        // The slashes of a string are code or blanks in `code`, never the start of a comment.
        let before = source.code.lines().nth(index).unwrap_or("");
        let comment = line[at..].trim_start_matches(['/', '!']).trim();
        if before.get(at..).is_some_and(|rest| !rest.trim().is_empty()) {
            continue;
        }
        let unfinished = ["TODO", "FIXME", "XXX"].iter().any(|word| comment.starts_with(word));
        let is_doc = line[at..].starts_with("///") || line[at..].starts_with("//!");
        let disabled = !is_doc && comment.ends_with(';') && comment.contains(['=', '(']);
        if unfinished || disabled {
            findings.push(format!("{}:{}: left over: {comment}", source.path, index + 1));
        }
    }
    findings
}

/// Rust files that no `mod` declares, so that they are never compiled.
pub(crate) fn dead_files(sources: &[Source]) -> Vec<String> {
    let is_root = |path: &str| {
        matches!(path, "src/lib.rs" | "src/main.rs")
            || (is_test_file(path) && path.ends_with("/main.rs"))
            // `.ci/mutants` compiles them in a copy.
            || path.starts_with("tests/mutants/")
    };
    let mut alive: BTreeSet<String> =
        sources.iter().map(|s| s.path.clone()).filter(|path| is_root(path)).collect();
    loop {
        let reached: BTreeSet<String> =
            sources.iter().filter(|s| alive.contains(&s.path)).flat_map(declared).collect();
        let before = alive.len();
        alive.extend(reached);
        if alive.len() == before {
            break;
        }
    }
    let dead = sources.iter().filter(|source| !alive.contains(&source.path));
    dead.map(|source| format!("{}: no module declares it", source.path)).collect()
}

/// The files a source declares by `mod name;`, by `#[path]` too.
fn declared(source: &Source) -> Vec<String> {
    let folder = match source.path.rsplit_once('/') {
        Some((folder, "lib.rs" | "main.rs")) => folder.to_owned(),
        _ => source.path.trim_end_matches(".rs").to_owned(),
    };
    let parent = source.path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let mut found = Vec::new();
    for (start, _) in source.code.match_indices("mod ") {
        let rest = &source.code[start + 4..];
        let Some(name) = rest.split(';').next().filter(|name| {
            !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')
        }) else {
            continue;
        };
        let line = source.line(start);
        match path_attribute(&source.text, line) {
            Some(path) => found.push(normalized(&format!("{parent}/{path}"))),
            None => found.push(format!("{folder}/{name}.rs")),
        }
    }
    found
}

/// The value of `#[path = ".."]` on the lines just above a declaration.
fn path_attribute(text: &str, line: usize) -> Option<&str> {
    let lines: Vec<&str> = text.lines().take(line - 1).collect();
    let attributes = lines.iter().rev().take_while(|line| line.trim().starts_with("#["));
    attributes
        .filter_map(|line| line.trim().strip_prefix("#[path = \""))
        .find_map(|rest| rest.split('"').next())
}

fn normalized(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: usize) -> String {
        "const A: u8 = 1;\n".repeat(count)
    }

    #[test]
    fn a_large_file_is_found_and_the_ratchet_holds_it() {
        let source = [Source::new("src/a.rs", &lines(401))];
        assert_eq!(file_sizes(&source, &[]).len(), 1);
        assert_eq!(file_sizes(&source, &[("src/a.rs", 401)]).len(), 0);
        assert_eq!(file_sizes(&source, &[("src/a.rs", 400)]).len(), 1, "it grew");
        let small = [Source::new("src/a.rs", &lines(400))];
        assert_eq!(file_sizes(&small, &[]).len(), 0);
        assert_eq!(file_sizes(&small, &[("src/a.rs", 401)]).len(), 1, "no longer needed");
        assert_eq!(file_sizes(&small, &[("src/b.rs", 401)]).len(), 1, "no such file");
    }

    #[test]
    fn tests_count_towards_the_whole_but_not_the_product() {
        let text = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", lines(300), lines(150));
        assert_eq!(file_sizes(&[Source::new("src/a.rs", &text)], &[]).len(), 0);
        assert_eq!(file_sizes(&[Source::new("tests/it/a.rs", &lines(501))], &[]).len(), 1);
    }

    #[test]
    fn a_large_function_is_found_wherever_it_is() {
        let text = format!("impl A {{\n    fn a() {{\n{}    }}\n}}\n", lines(69));
        let source = [Source::new("src/a.rs", &text)];
        assert_eq!(function_sizes(&source, &[]).len(), 1);
        assert_eq!(function_sizes(&source, &[("src/a.rs", "a", 71)]).len(), 0);
        assert_eq!(function_sizes(&source, &[("src/a.rs", "b", 71)]).len(), 2);
        let small = format!("fn a() {{\n{}}}\n", lines(68));
        assert_eq!(function_sizes(&[Source::new("src/a.rs", &small)], &[]).len(), 0);
    }

    #[test]
    fn a_module_without_a_purpose_is_found() {
        assert_eq!(module_doc(&Source::new("src/a.rs", "use b;\n")).len(), 1);
        assert_eq!(module_doc(&Source::new("src/a.rs", "//! Does a.\nuse b;\n")).len(), 0);
    }

    #[test]
    fn a_test_name_without_a_behaviour_is_found() {
        let found = |text: &str| test_names(&Source::new("tests/it/a.rs", text)).len();
        assert_eq!(found("#[test]\nfn test_a() {}\n"), 1);
        assert_eq!(found("#[tokio::test(start_paused = true)]\nasync fn test_a() {}\n"), 1);
        assert_eq!(found("#[test]\nfn a_is_b() {}\n\nfn test_binaries() {}\n"), 0);
    }

    #[test]
    fn unfinished_and_disabled_code_is_found() {
        let found = |text: &str| left_overs(&Source::new("src/a.rs", text)).len();
        assert_eq!(found("// TODO: later\n"), 1);
        assert_eq!(found("    // let a = b();\n"), 1);
        assert_eq!(found("let a = \"// let a = b();\";\n"), 0);
        assert_eq!(found("// Why: a write's answer may be lost.\n"), 0);
        assert_eq!(found("/// let a = b();\n"), 0);
    }

    #[test]
    fn an_undeclared_file_is_found() {
        let sources = [
            Source::new("src/lib.rs", "mod a;\n"),
            Source::new("src/a.rs", "mod b;\n#[cfg(test)]\nmod tests;\n"),
            Source::new("src/a/b.rs", ""),
            Source::new("src/a/tests.rs", ""),
            Source::new("src/a/lost.rs", ""),
            Source::new("benches/p/main.rs", "#[path = \"../../tests/c/d.rs\"]\nmod d;\n"),
            Source::new("tests/c/d.rs", ""),
        ];
        assert_eq!(dead_files(&sources), ["src/a/lost.rs: no module declares it"]);
    }
}
