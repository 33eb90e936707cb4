//! Values as text: indented YAML, or JSON between brackets.

use serde_json::{Map, Value};

use super::tree::{Kind, Node};

/// Words that YAML does not read as text without quotes.
const WORDS: [&str; 11] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "~", "nan"];

/// Formats a field and its value as lines with this indent.
pub(super) fn field(name: &str, value: &Value, indent: usize) -> String {
    let mut out = String::new();
    write_field(&mut out, name, value, indent, None);
    out
}

/// Formats an element of a list. The dash has this indent.
pub(super) fn element(value: &Value, indent: usize) -> String {
    let mut out = String::new();
    write_element(&mut out, value, indent, None);
    out
}

/// Formats a whole document with its fields in the order of `like`.
pub(super) fn document(value: &Value, like: &Node) -> String {
    let mut out = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            write_fields(&mut out, fields, 0, Some(like));
        }
        other => {
            out.push_str(&inline(other));
            out.push('\n');
        }
    }
    out
}

/// Formats a value on one line.
pub(super) fn inline(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Formats a value as JSON lines. All but the first have this indent.
pub(super) fn json(value: &Value, indent: usize) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.replace('\n', &format!("\n{}", " ".repeat(indent)))
}

fn write_fields(out: &mut String, fields: &Map<String, Value>, indent: usize, like: Option<&Node>) {
    for (name, value) in ordered(fields, like) {
        write_field(out, name, value, indent, like.and_then(|node| node.child(name)));
    }
}

fn write_field(out: &mut String, name: &str, value: &Value, indent: usize, like: Option<&Node>) {
    out.push_str(&" ".repeat(indent));
    out.push_str(&inline(&Value::from(name)));
    out.push(':');
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            out.push('\n');
            write_fields(out, fields, indent + 2, like);
        }
        Value::Array(elements) if !elements.is_empty() => {
            out.push('\n');
            for element in elements {
                write_element(out, element, indent, like.and_then(|node| alike(node, element)));
            }
        }
        Value::String(text) if is_literal(text) => {
            out.push_str(" |\n");
            for line in text.lines() {
                let blanks = if line.is_empty() { 0 } else { indent + 2 };
                out.push_str(&" ".repeat(blanks));
                out.push_str(line);
                out.push('\n');
            }
        }
        scalar => {
            out.push(' ');
            out.push_str(&scalar_text(scalar));
            out.push('\n');
        }
    }
}

fn write_element(out: &mut String, value: &Value, indent: usize, like: Option<&Node>) {
    let at = out.len();
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            write_fields(out, fields, indent + 2, like);
            // The dash takes the place of the first field's spaces.
            out.replace_range(at + indent..at + indent + 1, "-");
        }
        other => {
            out.push_str(&format!("{}- {}\n", " ".repeat(indent), scalar_text(other)));
        }
    }
}

fn scalar_text(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        Value::String(text) if is_quotable(text) => format!("'{text}'"),
        other => other.to_string(),
    }
}

/// Returns the fields in the order of a text that has most of them. In new ones names come first.
fn ordered<'a>(
    fields: &'a Map<String, Value>,
    like: Option<&Node>,
) -> Vec<(&'a String, &'a Value)> {
    let known: Vec<String> = match like.map(|node| &node.kind) {
        Some(Kind::Mapping(_, entries)) => entries.iter().map(|(key, _)| key.key()).collect(),
        _ => vec!["name".to_owned()],
    };
    let mut ordered: Vec<_> =
        known.iter().filter_map(|name| fields.get_key_value(name.as_str())).collect();
    ordered.extend(fields.iter().filter(|(name, _)| !known.contains(name)));
    ordered
}

/// Returns the element of a list with the same name.
fn alike<'a>(list: &'a Node, element: &Value) -> Option<&'a Node> {
    let Kind::Sequence(_, items) = &list.kind else { return None };
    let name = element.get("name")?;
    items.iter().find(|item| item.child("name").is_some_and(|node| node.value() == *name))
}

/// Reports whether a text needs no quotes.
fn is_plain(text: &str) -> bool {
    if is_amount(text) {
        return true;
    }
    let is_letter = |c: char| c.is_ascii_alphabetic();
    let begins = |with: &str| text.strip_prefix(with).is_some_and(|r| r.starts_with(is_letter));
    let is_number = [".inf", ".nan"].contains(&text.to_ascii_lowercase().as_str());
    let starts = text.starts_with('/') || ["", ".", "--"].into_iter().any(begins) && !is_number;
    let is_safe =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '=' | ':' | '@');
    let is_word = WORDS.contains(&text.to_ascii_lowercase().as_str());
    starts && text.chars().all(is_safe) && !text.ends_with(':') && !is_word
}

/// Reports whether a text is a number with a unit, which YAML reads as text.
fn is_amount(text: &str) -> bool {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    unit.len() < text.len() && ["m", "k", "M", "G", "Ki", "Mi", "Gi", "Ti"].contains(&unit)
}

/// Reports whether a text can be single-quoted.
fn is_quotable(text: &str) -> bool {
    text.contains('"') && !text.contains('\'') && text.chars().all(|c| (' '..='~').contains(&c))
}

/// Reports whether a text can be a block literal.
fn is_literal(text: &str) -> bool {
    let is_fine = |line: &str| !line.ends_with(' ') && line.chars().all(|c| c >= ' ');
    text.len() > 1
        && text.ends_with('\n')
        && !text.ends_with("\n\n")
        && !text.starts_with([' ', '\n'])
        && text.lines().all(is_fine)
}
