//! Injection into manifests: files of objects with pods.
//!
//! Only the needed parts of the text are changed; comments and order stay. After each change the
//! text is parsed again. If the result differs from the intended object, the document is serialized
//! as a whole, which loses its comments only.

mod emit;
mod text;
mod tree;

use std::{fmt, ops::Range};

use serde_json::Value;

use self::tree::{Kind, Node, Problem, Style};
use super::{
    patch::{self, Note, Operation, Pointer, Settings, Skip, SkipReason},
    workload::{self, Template},
};

/// The result for a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Rewritten {
    /// The new text.
    pub text: String,
    /// The outcome of each pod and template.
    pub reports: Vec<Report>,
}

/// The outcome of one pod or template.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The number of its document, from 1.
    pub document: usize,
    /// The pod or template.
    pub template: Template,
    /// The outcome.
    pub change: Change,
}

/// The outcome of a pod or template.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A sidecar was injected.
    Injected(Vec<Note>),
    /// It is unchanged.
    Skipped(Skip),
    /// Its sidecar was removed.
    Removed,
    /// It had no sidecar.
    NothingToRemove,
}

/// The reason why a file cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// The number of the document, from 1.
    pub document: usize,
    /// The field, if known.
    pub field: Option<String>,
    /// The problem.
    pub problem: String,
}

/// The change for all pods of a file.
enum Wish<'a> {
    Inject(&'a Settings),
    Remove,
}

/// The text of one document in a file.
struct Document<'a> {
    text: &'a str,
    /// The number, from 1.
    number: usize,
    /// The number of lines above it.
    lines_above: usize,
}

/// Injects a sidecar into every suitable pod of a file. A sidecar with other settings is replaced.
pub fn inject(text: &str, settings: &Settings) -> Result<Rewritten, Error> {
    rewrite(text, &Wish::Inject(settings))
}

/// Removes the sidecar from every pod of a file.
pub fn uninject(text: &str) -> Result<Rewritten, Error> {
    rewrite(text, &Wish::Remove)
}

fn rewrite(text: &str, wish: &Wish<'_>) -> Result<Rewritten, Error> {
    let mut rewritten = Rewritten { text: String::with_capacity(text.len()), reports: Vec::new() };
    let mut number = 0;
    for range in documents(text) {
        let lines_above = text[..range.start].bytes().filter(|byte| *byte == b'\n').count();
        let mut document = Document { text: &text[range], number: number + 1, lines_above };
        if document.read()?.is_none() {
            rewritten.text.push_str(document.text);
            continue;
        }
        number += 1;
        document.number = number;
        let (new, reports) = document.rewrite(wish)?;
        rewritten.text.push_str(&new);
        rewritten.reports.extend(reports);
    }
    Ok(rewritten)
}

/// Returns the documents of a file. Each starts with its separator line.
fn documents(text: &str) -> Vec<Range<usize>> {
    let (mut found, mut start, mut at) = (Vec::new(), 0, 0);
    for line in text.split_inclusive('\n') {
        let is_separator = line
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']));
        // Directives belong to the document below them.
        let is_preamble = || {
            let lines = text[start..at].lines();
            lines.into_iter().all(|line| line.is_empty() || line.starts_with(['%', '#']))
        };
        if is_separator && !is_preamble() {
            found.push(start..at);
            start = at;
        }
        at += line.len();
    }
    found.push(start..text.len());
    found
}

// === impl Document ===

impl Document<'_> {
    fn rewrite(&self, wish: &Wish<'_>) -> Result<(String, Vec<Report>), Error> {
        let mut text = self.text.to_owned();
        let mut reports = Vec::new();
        let Some(root) = self.read()? else { return Ok((text, reports)) };
        for template in workload::templates(&root.value()) {
            let value = self.parse(&text)?.map(|root| root.value()).unwrap_or_default();
            let Some(pod) = template.pointer.of(&value) else {
                return Err(self.missing(&root, &template.pointer));
            };
            let (operations, change) = wish.of(pod, &template.namespace);
            if let Change::Skipped(skip) = &change
                && skip.reason == SkipReason::Malformed
            {
                return Err(self.malformed(&root, &template.pointer, skip));
            }
            for operation in operations {
                text = self.change(&text, &operation.below(&template.pointer))?;
            }
            reports.push(Report { document: self.number, template, change });
        }
        Ok((text, reports))
    }

    /// Returns the text after one change. It is edited in place if that has exactly the intended
    /// effect.
    fn change(&self, text: &str, operation: &Operation) -> Result<String, Error> {
        let Some(root) = self.parse(text)? else { return Ok(text.to_owned()) };
        let mut wished = root.value();
        operation.apply(&mut wished);
        let says = |text: &str| Node::read(text).ok().flatten().map(|root| root.value());
        let edited = text::edit(text, &root, operation);
        if let Some(edited) = edited.filter(|edited| says(edited).as_ref() == Some(&wished)) {
            return Ok(edited);
        }
        let separator = if text.starts_with("---") { "---\n" } else { "" };
        let is_json = matches!(root.kind, Kind::Mapping(Style::Flow, _));
        let anew = match is_json {
            true => emit::json(&wished, 0) + "\n",
            false => emit::document(&wished, &root),
        };
        Ok(format!("{separator}{anew}"))
    }

    fn read(&self) -> Result<Option<Node>, Error> {
        self.parse(self.text)
    }

    fn parse(&self, text: &str) -> Result<Option<Node>, Error> {
        Node::read(text).map_err(|Problem { line, column, text }| Error {
            line: line + self.lines_above,
            column,
            document: self.number,
            field: None,
            problem: text,
        })
    }

    fn missing(&self, root: &Node, pointer: &Pointer) -> Error {
        let node = root.nearest(pointer);
        self.error(node, dotted(pointer), "there is no pod template".to_owned())
    }

    fn malformed(&self, root: &Node, pointer: &Pointer, skip: &Skip) -> Error {
        let problem = skip.detail.clone().unwrap_or_else(|| skip.to_string());
        self.error(root.nearest(&pointer.child("spec")), dotted(pointer), problem)
    }

    fn error(&self, node: &Node, field: String, problem: String) -> Error {
        let (line, column) = (node.line + self.lines_above, node.column);
        let field = (!field.is_empty()).then_some(field);
        Error { line, column, document: self.number, field, problem }
    }
}

fn dotted(pointer: &Pointer) -> String {
    pointer.tokens().join(".")
}

// === impl Wish ===

impl Wish<'_> {
    /// Returns the changes of one pod, and its outcome.
    fn of(&self, pod: &Value, namespace: &str) -> (Vec<Operation>, Change) {
        let undo = match patch::undo(pod) {
            Ok(undo) => undo,
            Err(skip) => return (Vec::new(), Change::Skipped(skip)),
        };
        match self {
            Self::Remove if undo.is_empty() => (undo, Change::NothingToRemove),
            Self::Remove => (undo, Change::Removed),
            Self::Inject(settings) => again(pod, undo, namespace, settings),
        }
    }
}

/// Injects into the pod as it was before its injection, unless nothing would change.
fn again(
    pod: &Value,
    undo: Vec<Operation>,
    namespace: &str,
    settings: &Settings,
) -> (Vec<Operation>, Change) {
    let mut clean = pod.clone();
    undo.iter().for_each(|operation| operation.apply(&mut clean));
    let patch = match patch::patch(&clean, namespace, settings) {
        Ok(patch) => patch,
        Err(skip) => return (Vec::new(), Change::Skipped(skip)),
    };
    let mut wished = clean;
    patch.operations.iter().for_each(|operation| operation.apply(&mut wished));
    if wished == *pod {
        return (Vec::new(), Change::Skipped(SkipReason::AlreadyInjected.into()));
    }
    let operations = undo.into_iter().chain(patch.operations).collect();
    (operations, Change::Injected(patch.notes))
}

// === impl Report ===

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Template { kind, name, namespace, .. } = &self.template;
        let name = if name.is_empty() { "(unnamed)" } else { name };
        let slash = if namespace.is_empty() { "" } else { "/" };
        write!(f, "document {}: {kind} {namespace}{slash}{name}: ", self.document)?;
        match &self.change {
            Change::Injected(_) => f.write_str("injected"),
            Change::Skipped(skip) => write!(f, "not injected: {}: {skip}", skip.reason.as_str()),
            Change::Removed => f.write_str("removed"),
            Change::NothingToRemove => f.write_str("nothing to remove"),
        }
    }
}

// === impl Error ===

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: document {}: ", self.line, self.column, self.document)?;
        self.field.iter().try_for_each(|field| write!(f, "{field}: "))?;
        f.write_str(&self.problem)
    }
}
