//! Patterns for user agents: `*` matches any text, every other character itself. Pure.

use std::str::FromStr;

/// A pattern such as `*fabric8*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(Box<str>);

/// The reason why a text is not a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAGlob {
    /// The text is empty.
    #[error("is empty; \"*\" stands for every user agent")]
    Empty,
    /// The text is longer than any user agent.
    #[error("is longer than 256 characters")]
    TooLong,
    /// The text has a character that no header contains.
    #[error("has a character that no header has")]
    BadCharacter,
}

/// The longest pattern; no useful user agent is longer.
const BYTES_MAX: usize = 256;

// === impl Glob ===

impl Glob {
    /// Reports whether the pattern matches the whole text. The time is at worst proportional to the
    /// product of both lengths.
    pub fn matches(&self, text: &[u8]) -> bool {
        let mut parts = self.0.as_bytes().split(|byte| *byte == b'*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = text.strip_prefix(first) else { return false };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        for part in parts {
            let Some(at) = find(rest, part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }

    /// Returns the written form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, part)
}

impl FromStr for Glob {
    type Err = NotAGlob;

    fn from_str(text: &str) -> Result<Self, NotAGlob> {
        match text {
            "" => Err(NotAGlob::Empty),
            _ if text.len() > BYTES_MAX => Err(NotAGlob::TooLong),
            _ if !text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) => {
                Err(NotAGlob::BadCharacter)
            }
            _ => Ok(Self(text.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        pattern.parse::<Glob>().expect("a pattern").matches(text.as_bytes())
    }

    #[test]
    fn a_star_matches_any_text_and_other_characters_themselves() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "curl/8", true),
            ("curl/8", "curl/8", true),
            ("curl/8", "curl/8.1", false),
            ("curl/*", "curl/8.1", true),
            ("curl/*", "libcurl/8.1", false),
            ("*fabric8*", "fabric8-kubernetes-client/6.7.2", true),
            ("*fabric8*", "app (fabric8)", true),
            ("*fabric8*", "Fabric8", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("**", "x", true),
            ("?", "x", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text:?}");
        }
    }

    #[test]
    fn an_invalid_pattern_is_rejected() {
        let long = "x".repeat(BYTES_MAX + 1);
        for (text, reason) in [
            ("", NotAGlob::Empty),
            (long.as_str(), NotAGlob::TooLong),
            ("a\nb", NotAGlob::BadCharacter),
            ("é", NotAGlob::BadCharacter),
        ] {
            assert_eq!(text.parse::<Glob>(), Err(reason), "{text:?}");
        }
    }

    /// Matches by the plain definition: a star matches nothing, or one more character.
    fn plainly(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => {
                plainly(rest, text) || !text.is_empty() && plainly(pattern, &text[1..])
            }
            Some((letter, rest)) => text.first() == Some(letter) && plainly(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn every_pattern_matches_as_its_plain_definition(
            pattern in "[ab*]{1,8}",
            text in "[ab]{0,10}",
        ) {
            let expected = plainly(pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(&pattern, &text), expected);
        }
    }
}
