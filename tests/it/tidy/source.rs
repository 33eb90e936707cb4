//! A source file as the checks see it: its text, its code without comments and strings, its
//! product part without tests. A small lexer, not a parser: rustfmt's form is taken for granted.

use std::{fs, path::Path};

/// One file of the repository.
pub(crate) struct Source {
    /// Relative to the repository's root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    /// The text with comments and the insides of literals blanked; lines and columns are kept.
    pub(crate) code: String,
    /// The code with `#[cfg(test)]` modules blanked too.
    pub(crate) product: String,
    /// Every string literal outside tests, with its line.
    pub(crate) strings: Vec<(usize, String)>,
    /// The offset where each line starts; the same in `text`, `code` and `product`.
    starts: Vec<usize>,
}

/// A function found in a source.
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) lines: usize,
}

/// Reads the files under these folders whose name ends in the extension; no extension means all
/// text files. Build output and version control are left out.
pub(crate) fn read_tree(folders: &[&str], extension: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    for folder in folders {
        walk(root, &root.join(folder), extension, &mut sources);
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    sources
}

// === impl Source ===

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (code, literals) = blank(text);
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts: Vec<usize> = std::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect();
        let product = if is_test_file(path) { blank_all(&code) } else { without_tests(&code) };
        let lines: Vec<&str> = product.lines().collect();
        let in_product =
            |line: usize| lines.get(line - 1).is_some_and(|found| !found.trim().is_empty());
        let strings = literals
            .into_iter()
            .map(|(at, string)| (starts.partition_point(|start| *start <= at), string))
            .filter(|(line, _)| in_product(*line))
            .collect();
        Self { path: path.to_owned(), text: text.to_owned(), code, product, strings, starts }
    }

    /// The one-based line of a byte offset.
    pub(crate) fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset)
    }

    /// The module's path below the crate root: `proxy::decide`; the crate root itself is empty.
    pub(crate) fn module(&self) -> String {
        let inner = self.path.strip_prefix("src/").unwrap_or(&self.path);
        let inner = inner.strip_suffix(".rs").unwrap_or(inner);
        if inner == "lib" { String::new() } else { inner.replace('/', "::") }
    }

    /// Lines that are neither test code nor the blank lines around it.
    pub(crate) fn product_lines(&self) -> usize {
        if is_test_file(&self.path) { 0 } else { self.product.trim_end().lines().count() }
    }

    /// `true` if the function that starts on this line has a test attribute.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        let above: Vec<&str> = self.code.lines().take(line - 1).collect();
        let mut attributes = above.iter().rev().take_while(|line| line.trim().starts_with("#["));
        attributes.any(|line| line.contains("test]") || line.contains("test("))
    }

    /// Every function with a body, tests included.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut found = Vec::new();
        for (start, _) in self.code.match_indices("fn ") {
            let boundary = self.code[..start].chars().next_back();
            if boundary.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let name: String = self.code[start + 3..]
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            let Some(end) = body_end(&self.code, start).filter(|_| !name.is_empty()) else {
                continue;
            };
            let line = self.line(start);
            found.push(Function { name, line, lines: self.line(end) + 1 - line });
        }
        found
    }
}

/// Reports whether the whole file is test code.
pub(crate) fn is_test_file(path: &str) -> bool {
    !path.starts_with("src/") || path.ends_with("/tests.rs") || path.contains("/tests/")
}

fn walk(root: &Path, folder: &Path, extension: &str, sources: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        // In a second work tree `.git` is a file.
        if matches!(name.as_str(), ".git" | "target" | "out") {
            continue;
        }
        if path.is_dir() {
            walk(root, &path, extension, sources);
        } else if extension.is_empty() || path.extension().is_some_and(|e| e == extension) {
            let relative = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            if let Ok(text) = fs::read_to_string(&path) {
                sources.push(Source::new(relative.trim_start_matches("./"), &text));
            }
        }
    }
}

/// Blanks comments and the insides of literals; also returns the strings and where they start.
fn blank(text: &str) -> (String, Vec<(usize, String)>) {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut strings = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = match literal_end(bytes, at) {
            Some((end, literal)) => {
                if let Some((from, to)) = literal {
                    strings.push((at, text[from..to].to_owned()));
                }
                end
            }
            None => {
                at += 1;
                continue;
            }
        };
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    (String::from_utf8(code).expect("whole literals and comments are blanked"), strings)
}

type Span = (usize, usize);

/// The end of the comment or literal that starts here, and the inside of a string.
fn literal_end(bytes: &[u8], at: usize) -> Option<(usize, Option<Span>)> {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        let length = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
        return Some((at + length, None));
    }
    if rest.starts_with(b"/*") {
        return Some((block_comment_end(bytes, at), None));
    }
    let joined = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if !joined && (rest[0] == b'r' || rest.starts_with(b"br")) {
        let hashes_from = at + 1 + usize::from(rest[0] == b'b');
        let hashes = bytes[hashes_from..].iter().take_while(|b| **b == b'#').count();
        if bytes.get(hashes_from + hashes) == Some(&b'"') {
            let from = hashes_from + hashes + 1;
            let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
            let length = bytes[from..].windows(close.len()).position(|w| w == close)?;
            return Some((from + length + close.len(), Some((from, from + length))));
        }
    }
    match rest[0] {
        b'"' => {
            let end = quoted_end(bytes, at, b'"');
            Some((end, Some((at + 1, end.saturating_sub(1).max(at + 1)))))
        }
        b'\'' => char_end(rest).map(|length| (at + length, None)),
        _ => None,
    }
}

/// The length of a character literal, or nothing for a lifetime.
fn char_end(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        return Some(quoted_end(rest, 0, b'\''));
    }
    let text = std::str::from_utf8(&rest[1..rest.len().min(6)]);
    let text = text.or_else(|e| std::str::from_utf8(&rest[1..=e.valid_up_to()])).ok()?;
    let width = text.chars().next()?.len_utf8();
    (rest.get(1 + width) == Some(&b'\'')).then_some(2 + width)
}

fn quoted_end(bytes: &[u8], at: usize, quote: u8) -> usize {
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != quote {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    (end + 1).min(bytes.len())
}

fn block_comment_end(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut end) = (0, at);
    while end < bytes.len() {
        if bytes[end..].starts_with(b"/*") {
            depth += 1;
            end += 2;
        } else if bytes[end..].starts_with(b"*/") {
            depth -= 1;
            end += 2;
            if depth == 0 {
                break;
            }
        } else {
            end += 1;
        }
    }
    end
}

/// The end of the body of the function that starts here; none for a declaration.
fn body_end(code: &str, start: usize) -> Option<usize> {
    let bytes = code.as_bytes();
    let mut round = 0i32;
    let mut at = start;
    loop {
        match bytes.get(at)? {
            b'(' | b'[' => round += 1,
            b')' | b']' => round -= 1,
            b';' if round == 0 => return None,
            b'{' if round == 0 => break,
            _ => {}
        }
        at += 1;
    }
    block_end(bytes, at)
}

/// The offset of the brace that closes the one at `open`.
fn block_end(bytes: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0;
    for (offset, byte) in bytes[open..].iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(open + offset);
        }
    }
    None
}

/// The code with every item under `#[cfg(test)]` blanked.
fn without_tests(code: &str) -> String {
    let mut kept = code.to_owned();
    while let Some(start) = kept.find("#[cfg(test)]") {
        let bytes = kept.as_bytes();
        let open = kept[start..].find(['{', ';']).map_or(kept.len() - 1, |found| start + found);
        let end = if bytes[open] == b'{' { block_end(bytes, open) } else { Some(open) };
        let end = end.unwrap_or(kept.len() - 1);
        let blanked = blank_all(&kept[start..=end]);
        kept.replace_range(start..=end, &blanked);
    }
    kept
}

fn blank_all(code: &str) -> String {
    // Blanks byte by byte, so that offsets stay the same.
    code.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_not_code() {
        let text =
            "let a = \"fn x() {\"; // fn y() {\nlet b = '{'; /* { /* { */ */ let c = r#\"}\"#;\n";
        let source = Source::new("src/a.rs", text);
        assert!(!source.code.contains('{') && !source.code.contains('}'), "{}", source.code);
        assert_eq!(source.strings, [(1, "fn x() {".to_owned()), (2, "}".to_owned())]);
        assert_eq!(source.code.lines().count(), text.lines().count());
    }

    #[test]
    fn a_lifetime_is_not_a_character() {
        let source = Source::new("src/a.rs", "fn a<'a>(b: &'a str) -> char { '\\'' }\n");
        assert_eq!(source.functions().len(), 1);
        assert!(source.code.contains("<'a>(b: &'a str)"));
    }

    #[test]
    fn functions_are_measured_from_their_first_line_to_their_brace() {
        let text = "fn declared();\n\nfn one() {}\n\nfn three(a: [u8; 3]) {\n    a;\n}\n";
        let functions = Source::new("src/a.rs", text).functions();
        let found: Vec<_> = functions.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(found, [("one", 3, 1), ("three", 5, 3)]);
    }

    #[test]
    fn modules_of_tests_do_not_count_as_product() {
        let text = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() { \"s\"; }\n}\n";
        let source = Source::new("src/a.rs", text);
        assert_eq!(source.product_lines(), 1);
        assert!(source.strings.is_empty());
        assert_eq!(Source::new("src/a/tests.rs", text).product_lines(), 0);
    }

    #[test]
    fn modules_are_named_by_their_files() {
        assert_eq!(Source::new("src/proxy/decide.rs", "").module(), "proxy::decide");
        assert_eq!(Source::new("src/lib.rs", "").module(), "");
    }
}
