//! One change to a document's text. All other text stays.
//!
//! Places that cannot be edited are refused, and the caller checks the result: YAML has more cases
//! than are handled here.

use std::ops::Range;

use serde_json::Value;

use super::{
    emit,
    tree::{Kind, Node, Style},
};
use crate::injector::patch::{Action, Operation};

/// Returns the text after one change. `None` if the place cannot be edited.
pub(super) fn edit(text: &str, root: &Node, operation: &Operation) -> Option<String> {
    let (parent, last) = operation.path.split_last()?;
    let parent = root.at(&parent)?;
    let page = Page { text };
    match (&operation.action, &parent.kind) {
        (Action::Add(value) | Action::Replace(value), Kind::Mapping(style, entries)) => {
            match entries.iter().find(|(key, _)| key.key() == last) {
                Some((key, old)) => Some(page.replace(Some(key), *style, old, value)),
                None => page.add_field(parent, *style, entries, last, value),
            }
        }
        (Action::Add(value), Kind::Sequence(style, items)) => {
            page.add_element(parent, *style, items, last.parse().ok()?, value)
        }
        (Action::Replace(value), Kind::Sequence(style, items)) => {
            Some(page.replace(None, *style, items.get(last.parse::<usize>().ok()?)?, value))
        }
        (Action::Remove, Kind::Mapping(style, entries)) => {
            let index = entries.iter().position(|(key, _)| key.key() == last)?;
            page.remove_field(parent, *style, entries, index)
        }
        (Action::Remove, Kind::Sequence(style, items)) => {
            page.remove_element(parent, *style, items, last.parse().ok()?)
        }
        (_, Kind::Scalar(_)) => None,
    }
}

/// The text of a document.
struct Page<'a> {
    text: &'a str,
}

// === impl Page ===

impl Page<'_> {
    fn with(&self, range: Range<usize>, new: &str) -> String {
        format!("{}{new}{}", &self.text[..range.start], &self.text[range.end..])
    }

    fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |newline| newline + 1)
    }

    /// Returns the position behind the newline of the line in which something ends.
    fn line_end(&self, at: usize) -> usize {
        // A block of text ends behind its newline.
        let at = self.text[..at].trim_end().len();
        self.text[at..].find('\n').map_or(self.text.len(), |newline| at + newline + 1)
    }

    /// Inserts whole lines.
    fn insert_lines(&self, at: usize, lines: &str) -> String {
        if at > 0 && !self.text[..at].ends_with('\n') {
            // If the last line has no newline, it has none afterwards.
            return self.with(at..at, &format!("\n{}", lines.trim_end_matches('\n')));
        }
        self.with(at..at, lines)
    }

    /// Returns the indent of a value, if only spaces precede it.
    fn indent(&self, at: usize) -> Option<usize> {
        let before = &self.text[self.line_start(at)..at];
        before.bytes().all(|byte| byte == b' ').then_some(before.len())
    }

    fn column(&self, at: usize) -> usize {
        at - self.line_start(at)
    }

    /// Returns the position of the dash before an element.
    fn dash(&self, item: &Node) -> Option<usize> {
        let before = self.text[..item.span.start].trim_end();
        before.ends_with('-').then(|| before.len() - 1)
    }

    /// Returns the end of a field's value, or the position behind the colon if it is empty.
    fn value_end(&self, key: &Node, value: &Node) -> usize {
        let is_written = value.span.start >= key.span.end && !value.span.is_empty();
        if is_written {
            return value.span.end;
        }
        let colon = self.text[key.span.end..].find(':');
        colon.map_or(key.span.end, |colon| key.span.end + colon + 1)
    }

    fn replace(&self, key: Option<&Node>, style: Style, old: &Node, value: &Value) -> String {
        // Text between brackets is quoted, because it may be JSON.
        let is_quoted = self.text[old.span.clone()].starts_with(['{', '[', '"']);
        let is_json = style == Style::Flow && is_quoted;
        let new = if is_json { value.to_string() } else { emit::inline(value) };
        match key {
            Some(key) if old.span.is_empty() => {
                let end = self.value_end(key, old);
                self.with(end..end, &format!(" {new}"))
            }
            _ => self.with(old.span.clone(), &new),
        }
    }

    fn add_field(
        &self,
        parent: &Node,
        style: Style,
        entries: &[(Node, Node)],
        name: &str,
        value: &Value,
    ) -> Option<String> {
        let name_text = Value::from(name).to_string();
        let Some((key, last)) = entries.last() else {
            let new = format!("{{{name_text}: {}}}", value_in(value, 0, false));
            return Some(self.with(parent.span.clone(), &new));
        };
        let end = self.value_end(key, last);
        if style == Style::Flow {
            let lines = self.indent(key.span.start);
            let value = value_in(value, lines.unwrap_or(0), lines.is_some());
            let new = format!("{}{name_text}: {value}", separator(lines));
            return Some(self.with(end..end, &new));
        }
        let indent = self.column(entries.first()?.0.span.start);
        Some(self.insert_lines(self.line_end(end), &emit::field(name, value, indent)))
    }

    fn add_element(
        &self,
        parent: &Node,
        style: Style,
        items: &[Node],
        index: usize,
        value: &Value,
    ) -> Option<String> {
        let Some(first) = items.first() else {
            let new = format!("[{}]", value_in(value, 0, false));
            return Some(self.with(parent.span.clone(), &new));
        };
        if style == Style::Flow {
            let lines = self.indent(first.span.start);
            let new = value_in(value, lines.unwrap_or(0), lines.is_some());
            if index == 0 {
                let at = first.span.start;
                let behind =
                    lines.map_or_else(|| ", ".to_owned(), |n| format!(",\n{}", " ".repeat(n)));
                return Some(self.with(at..at, &format!("{new}{behind}")));
            }
            let at = items.get(index - 1)?.span.end;
            return Some(self.with(at..at, &format!("{}{new}", separator(lines))));
        }
        let dash = self.dash(first)?;
        let indent = self.indent(dash)?;
        let at = match index {
            0 => self.above_comments(self.line_start(dash)),
            _ => self.line_end(items.get(index - 1)?.span.end),
        };
        Some(self.insert_lines(at, &emit::element(value, indent)))
    }

    /// Returns the start of the comments directly above a line. They belong to the line below.
    fn above_comments(&self, mut at: usize) -> usize {
        while at > 0 {
            let above = self.line_start(at - 1);
            if !self.text[above..at].trim_start().starts_with('#') {
                break;
            }
            at = above;
        }
        at
    }

    fn remove_field(
        &self,
        parent: &Node,
        style: Style,
        entries: &[(Node, Node)],
        index: usize,
    ) -> Option<String> {
        let (key, value) = &entries[index];
        let (start, end) = (key.span.start, self.value_end(key, value));
        let next = entries.get(index + 1).map(|(key, _)| key.span.start);
        if entries.len() == 1 {
            return Some(self.empty(parent, style, end, "{}"));
        }
        if style == Style::Flow {
            let before = index.checked_sub(1).map(|before| &entries[before]);
            let before = before.map(|(key, value)| self.value_end(key, value));
            return self.remove_between(start..end, before, next);
        }
        match (self.indent(start), next) {
            (Some(_), _) => Some(self.with(self.line_start(start)..self.line_end(end), "")),
            // The next field takes its place behind the dash.
            (None, Some(next)) => Some(self.with(start..next, "")),
            (None, None) => None,
        }
    }

    fn remove_element(
        &self,
        parent: &Node,
        style: Style,
        items: &[Node],
        index: usize,
    ) -> Option<String> {
        let item = items.get(index)?;
        if items.len() == 1 {
            return Some(self.empty(parent, style, item.span.end, "[]"));
        }
        if style == Style::Flow {
            let before = index.checked_sub(1).map(|before| items[before].span.end);
            let next = items.get(index + 1).map(|next| next.span.start);
            return self.remove_between(item.span.clone(), before, next);
        }
        let dash = self.dash(item)?;
        self.indent(dash)?;
        Some(self.with(self.line_start(dash)..self.line_end(item.span.end), ""))
    }

    /// Removes an item between brackets, with one of the commas around it.
    fn remove_between(
        &self,
        what: Range<usize>,
        before: Option<usize>,
        next: Option<usize>,
    ) -> Option<String> {
        match (before, next) {
            (_, Some(next)) => Some(self.with(what.start..next, "")),
            (Some(before), None) => Some(self.with(before..what.end, "")),
            (None, None) => None,
        }
    }

    /// Replaces a list or map by an empty one after its last item is removed.
    fn empty(&self, parent: &Node, style: Style, end: usize, brackets: &str) -> String {
        if style == Style::Flow {
            return self.with(parent.span.clone(), brackets);
        }
        let start = match &parent.kind {
            Kind::Sequence(_, items) => items.first().and_then(|item| self.dash(item)),
            _ => None,
        };
        let start = start.unwrap_or(parent.span.start);
        let before = self.text[..start].trim_end();
        let end = self.text[..end].trim_end().len();
        match before.ends_with(':') {
            true => self.with(before.len()..end, &format!(" {brackets}")),
            false => self.with(start..end, &format!("  {brackets}")),
        }
    }
}

fn separator(lines: Option<usize>) -> String {
    lines.map_or_else(|| ", ".to_owned(), |indent| format!(",\n{}", " ".repeat(indent)))
}

/// Formats a value between brackets, on several lines if its neighbours are.
fn value_in(value: &Value, indent: usize, in_lines: bool) -> String {
    if in_lines { emit::json(value, indent) } else { value.to_string() }
}
