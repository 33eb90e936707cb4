//! One YAML document as values with their positions in the text.
//!
//! It is parsed as kubectl does: YAML 1.1 words and numbers, merge keys, no duplicate keys. The
//! text's form is recorded, so that parts can be edited.

use std::ops::Range;

use granit_parser::{Event, Marker, Parser, ScalarStyle, Span, StructureStyle};
use serde_json::{Map, Number, Value};

use super::super::patch::Pointer;

/// A value and its position.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// The bytes of the value, without trailing comments and spaces.
    pub(super) span: Range<usize>,
    /// The line of its start, from 1.
    pub(super) line: usize,
    /// The column of its start, from 1.
    pub(super) column: usize,
    pub(super) kind: Kind,
}

/// The kind of a node.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Scalar(Value),
    Sequence(Style, Vec<Node>),
    Mapping(Style, Vec<(Node, Node)>),
}

/// The notation of a list or map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// By indentation.
    Block,
    /// Between brackets.
    Flow,
}

/// The reason why a text is not a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) text: String,
}

/// The maximum depth, beyond that of any object the apiserver accepts.
const DEPTH_MAX: usize = 128;
/// The maximum number of values after aliases are expanded.
const NODES_MAX: usize = 1_000_000;

/// Builds nodes from a parser's events.
struct Builder<'a> {
    events: Parser<'a, granit_parser::StrInput<'a>>,
    anchors: Vec<(usize, Node)>,
    nodes: usize,
}

// === impl Node ===

impl Node {
    /// Parses the only document of a text. `None` if the text is empty.
    pub(super) fn read(text: &str) -> Result<Option<Self>, Problem> {
        let events = Parser::new_from_str(text);
        let mut builder = Builder { events, anchors: Vec::new(), nodes: 0 };
        loop {
            let (event, span) = builder.next()?;
            match event {
                Event::StreamEnd => return Ok(None),
                event if event.is_node() => {
                    let root = builder.node(event, span, 0)?;
                    builder.end()?;
                    return Ok(Some(root));
                }
                _ => {}
            }
        }
    }

    /// Returns the value.
    pub(super) fn value(&self) -> Value {
        match &self.kind {
            Kind::Scalar(value) => value.clone(),
            Kind::Sequence(_, items) => items.iter().map(Self::value).collect(),
            Kind::Mapping(_, entries) => {
                let mut fields = Map::new();
                for (key, value) in entries {
                    match key.key() {
                        key if key == MERGE => merge(&mut fields, &value.value()),
                        key => drop(fields.insert(key, value.value())),
                    }
                }
                Value::Object(fields)
            }
        }
    }

    /// Returns the node at a pointer.
    pub(super) fn at(&self, pointer: &Pointer) -> Option<&Self> {
        pointer.tokens().iter().try_fold(self, |node, token| node.child(token))
    }

    /// Returns the nearest node to a pointer.
    pub(super) fn nearest(&self, pointer: &Pointer) -> &Self {
        let mut node = self;
        for token in pointer.tokens() {
            match node.child(token) {
                Some(child) => node = child,
                None => return node,
            }
        }
        node
    }

    pub(super) fn child(&self, token: &str) -> Option<&Self> {
        match &self.kind {
            Kind::Scalar(_) => None,
            Kind::Sequence(_, items) => items.get(token.parse::<usize>().ok()?),
            Kind::Mapping(_, entries) => {
                entries.iter().find(|(key, _)| key.key() == token).map(|(_, value)| value)
            }
        }
    }

    /// Returns the node as a field name.
    pub(super) fn key(&self) -> String {
        match &self.kind {
            Kind::Scalar(Value::String(text)) => text.clone(),
            Kind::Scalar(value) => value.to_string(),
            _ => String::new(),
        }
    }

    fn problem(&self, text: impl Into<String>) -> Problem {
        Problem { line: self.line, column: self.column, text: text.into() }
    }
}

const MERGE: &str = "<<";

/// Merges fields into a map. Existing fields stay.
fn merge(fields: &mut Map<String, Value>, from: &Value) {
    match from {
        Value::Object(more) => {
            for (key, value) in more {
                fields.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        Value::Array(maps) => maps.iter().for_each(|map| merge(fields, map)),
        _ => {}
    }
}

// === impl Builder ===

impl<'a> Builder<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Problem> {
        loop {
            match self.events.next_event() {
                Some(Ok((Event::Comment(..), _))) => {}
                Some(Ok(event)) => return Ok(event),
                Some(Err(error)) => {
                    let mark = error.marker();
                    let (line, column) = (mark.line(), mark.col() + 1);
                    let text = error.kind().to_string();
                    return Err(Problem { line, column, text });
                }
                None => return Ok((Event::StreamEnd, Span::default())),
            }
        }
    }

    /// Requires that nothing follows: it would be lost.
    fn end(&mut self) -> Result<(), Problem> {
        loop {
            let (event, Span { start, .. }) = self.next()?;
            if matches!(event, Event::StreamEnd) {
                return Ok(());
            }
            if event.is_node() {
                let text = "another object follows; write a line --- before it".to_owned();
                return Err(Problem { line: start.line(), column: start.col() + 1, text });
            }
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, Problem> {
        let start = span.start;
        let anchor = event.anchor_id();
        let mut node = Node {
            span: offset(start)..offset(span.end),
            line: start.line(),
            column: start.col() + 1,
            kind: Kind::Scalar(Value::Null),
        };
        self.nodes += 1;
        if depth > DEPTH_MAX || self.nodes > NODES_MAX {
            return Err(node.problem("the document is too deep or too large"));
        }
        match event {
            Event::Alias(id) => {
                let known = self.anchors.iter().rev().find(|(known, _)| *known == id);
                let Some((_, meant)) = known else {
                    return Err(node.problem("an alias has no anchor"));
                };
                node.kind = meant.kind.clone();
                self.nodes += size(&node);
            }
            Event::Scalar(text, style, _, tag) => {
                let is_text = tag.is_some_and(|tag| tag.core_suffix() == Some("str"));
                let plain = style == ScalarStyle::Plain && !is_text;
                node.kind = Kind::Scalar(if plain { resolve(&text) } else { text.into() });
            }
            Event::SequenceStart(style, ..) => self.sequence(&mut node, style, depth)?,
            Event::MappingStart(style, ..) => self.mapping(&mut node, style, depth)?,
            _ => return Err(node.problem("the document ends too early")),
        }
        if let Some(id) = anchor.filter(|id| *id > 0) {
            self.anchors.push((id, node.clone()));
        }
        Ok(node)
    }

    fn sequence(
        &mut self,
        node: &mut Node,
        style: StructureStyle,
        depth: usize,
    ) -> Result<(), Problem> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                let last = items.last().map(|item: &Node| item.span.end);
                node.span.end = end(style, span, last, node.span.end);
                node.kind = Kind::Sequence(style.into(), items);
                return Ok(());
            }
            items.push(self.node(event, span, depth + 1)?);
        }
    }

    fn mapping(
        &mut self,
        node: &mut Node,
        style: StructureStyle,
        depth: usize,
    ) -> Result<(), Problem> {
        let mut entries: Vec<(Node, Node)> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                let last = entries.last().map(|(key, value)| value.span.end.max(key.span.end));
                node.span.end = end(style, span, last, node.span.end);
                node.kind = Kind::Mapping(style.into(), entries);
                return Ok(());
            }
            let key = self.node(event, span, depth + 1)?;
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            if entries.iter().any(|(other, _)| other.key() == key.key()) {
                return Err(key.problem(format!("{} is set twice; remove one", key.key())));
            }
            entries.push((key, value));
        }
    }
}

fn offset(mark: Marker) -> usize {
    mark.byte_offset().unwrap_or(0)
}

/// Returns the end of a list or map: its bracket, or its last item.
fn end(style: StructureStyle, span: Span, last: Option<usize>, start: usize) -> usize {
    match style {
        StructureStyle::Flow => offset(span.end),
        StructureStyle::Block => last.unwrap_or(start),
    }
}

fn size(node: &Node) -> usize {
    match &node.kind {
        Kind::Scalar(_) => 1,
        Kind::Sequence(_, items) => 1 + items.iter().map(size).sum::<usize>(),
        Kind::Mapping(_, entries) => {
            1 + entries.iter().map(|(_, value)| size(value)).sum::<usize>()
        }
    }
}

impl From<StructureStyle> for Style {
    fn from(style: StructureStyle) -> Self {
        match style {
            StructureStyle::Block => Self::Block,
            StructureStyle::Flow => Self::Flow,
        }
    }
}

/// Interprets an unquoted word.
fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => {
            return true.into();
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            return false.into();
        }
        _ => {}
    }
    number(text).map_or_else(|| text.into(), Value::Number)
}

fn number(text: &str) -> Option<Number> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let whole = text.strip_prefix('+').unwrap_or(text);
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = whole.strip_prefix(prefix) {
            return u64::from_str_radix(digits, radix).ok().map(Number::from);
        }
    }
    if whole.len() > 1 && whole.starts_with('0') && whole.bytes().all(|b| b.is_ascii_digit()) {
        return u64::from_str_radix(whole, 8).ok().map(Number::from);
    }
    if let Ok(number) = whole.parse::<i64>() {
        return Some(number.into());
    }
    if let Ok(number) = whole.parse::<u64>() {
        return Some(number.into());
    }
    let is_float = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    let number = whole.parse::<f64>().ok().filter(|_| whole.chars().all(is_float))?;
    Number::from_f64(number)
}
