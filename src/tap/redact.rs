//! The part of a request that may be shown: readable, bounded, and without secrets.

use crate::api::request::decoded;

/// The API's own options. Values of other parameters are not shown.
const OPTIONS: &[&str] = &[
    "allowWatchBookmarks",
    "dryRun",
    "fieldManager",
    "fieldSelector",
    "fieldValidation",
    "follow",
    "force",
    "gracePeriodSeconds",
    "includeObject",
    "labelSelector",
    "limit",
    "limitBytes",
    "orphanDependents",
    "pretty",
    "previous",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "sinceSeconds",
    "sinceTime",
    "tailLines",
    "timeout",
    "timeoutSeconds",
    "timestamps",
    "watch",
];

/// An option whose value is meaningless to a reader.
const OPAQUE: &str = "continue";

/// The maximum length of one shown text, in characters.
const CHARACTERS_MAX: usize = 256;

/// The maximum length of a shown query, in characters.
const QUERY_MAX: usize = 1024;

/// Returns the known options of a raw query, decoded, and the number of others.
pub(super) fn query(raw: &str) -> String {
    let mut redacted = String::new();
    let mut others = 0_usize;
    for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = match decoded(value) {
            Some(_) if name == OPAQUE => "…".to_owned(),
            Some(value) if OPTIONS.contains(&name) && redacted.len() < QUERY_MAX => shown(&value),
            _ => {
                others += 1;
                continue;
            }
        };
        let space = if redacted.is_empty() { "" } else { " " };
        redacted += &format!("{space}{name}={value}");
    }
    if others > 0 {
        let space = if redacted.is_empty() { "" } else { " " };
        redacted += &format!("{space}(+{others} not shown)");
    }
    redacted
}

/// Removes terminal control characters from outside text, and cuts it if it is long.
pub fn shown(text: &str) -> String {
    let mut characters = text.chars();
    let plain = |c: char| if c.is_control() || is_format(c) { '\u{fffd}' } else { c };
    let mut redacted: String = characters.by_ref().take(CHARACTERS_MAX).map(plain).collect();
    if characters.next().is_some() {
        redacted.push('…');
    }
    redacted
}

/// Reports whether a character changes the layout of others.
fn is_format(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_shown_readably_and_nothing_else_is() {
        let redacted =
            query("labelSelector=app%3Dweb%2Ctier%21%3Ddb&limit=5&token=s3cr3t&command=id");
        assert_eq!(redacted, "labelSelector=app=web,tier!=db limit=5 (+2 not shown)");
        assert_eq!(query("access_token=abc"), "(+1 not shown)");
        assert_eq!(query("continue=eyJ2IjoibWV0YSJ9"), "continue=…");
        assert_eq!(query("labelSelector=%zz"), "(+1 not shown)");
        assert_eq!(query(""), "");
    }

    #[test]
    fn no_text_can_control_a_terminal_or_be_endless() {
        assert_eq!(shown("a\u{1b}[2Jb\u{9b}\u{202e}c"), "a\u{fffd}[2Jb\u{fffd}\u{fffd}c");
        let long = shown(&"x".repeat(10_000));
        assert_eq!(long.chars().count(), CHARACTERS_MAX + 1);
        let many = query(&"limit=1&".repeat(10_000));
        assert!(many.len() < QUERY_MAX + 100 && many.ends_with(" not shown)"), "{}", many.len());
    }
}
