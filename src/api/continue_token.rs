//! Continue tokens in the apiserver's format (S-LIST-50).
//!
//! A token names a version and the last returned key, relative to the list's prefix. It is unpadded
//! base64url of compact JSON as Go prints it. A text that would not be printed again byte for byte
//! is not a token here.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;

use super::version::ResourceVersion;

/// The position at which a list in pages continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The version of all pages.
    pub version: ResourceVersion,
    /// The last returned key: `namespace/name`, or `name` alone below a namespace's prefix.
    pub after: Box<str>,
    /// The printed form.
    pub form: TokenForm,
}

/// The printed form of a token. The apiserver accepts both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenForm {
    /// The form of a page from the watch cache: a slash precedes the key.
    Cached,
    /// The form of a page from etcd.
    Stored,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Encoded {
    v: String,
    rv: i64,
    start: String,
}

/// The longest text that is parsed: two names of 253 bytes, escaped and encoded.
const TEXT_BYTES_MAX: usize = 2048;

/// The version of the format.
const FORMAT: &str = "meta.k8s.io/v1";

// === impl ContinueToken ===

impl ContinueToken {
    /// Parses a token that continues at an exact version.
    pub fn decode(text: &str) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let json = URL_SAFE_NO_PAD.decode(text).ok()?;
        let Encoded { v, rv, start } = serde_json::from_slice(&json).ok()?;
        if v != FORMAT || rv <= 0 {
            return None;
        }
        let (form, start) = match start.strip_prefix('/') {
            Some(start) => (TokenForm::Cached, start),
            None => (TokenForm::Stored, &*start),
        };
        let version = ResourceVersion::parse(&rv.to_string()).ok()?;
        let token = Self { version, after: start.strip_suffix('\0')?.into(), form };
        (token.encode()? == text).then_some(token)
    }

    /// Returns the text; `None` if the apiserver might print it in another way.
    pub fn encode(&self) -> Option<String> {
        let mut segments = self.after.split('/');
        let is_clean = segments.all(|segment| !matches!(segment, "" | "." | ".."));
        if !is_clean || self.after.chars().any(char::is_control) {
            return None;
        }
        let version: i64 = self.version.as_str().parse().ok()?;
        let slash = match self.form {
            TokenForm::Cached => "/",
            TokenForm::Stored => "",
        };
        let key = escaped(&self.after);
        let json = format!(r#"{{"v":"{FORMAT}","rv":{version},"start":"{slash}{key}\u0000"}}"#);
        Some(URL_SAFE_NO_PAD.encode(json))
    }
}

/// Escapes a text without control characters as Go's JSON encoder does.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\\' => escaped.extend(['\\', character]),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(version: &str, after: &str, form: TokenForm) -> ContinueToken {
        let version = ResourceVersion::parse(version).expect("a version");
        ContinueToken { version, after: after.into(), form }
    }

    #[test]
    fn tokens_are_those_of_the_apiserver() {
        for (token, text) in [
            (
                token("123", "default/foo", TokenForm::Stored),
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTIzLCJzdGFydCI6ImRlZmF1bHQvZm9vXHUwMDAwIn0",
            ),
            (
                token("7", "a&b", TokenForm::Cached),
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Nywic3RhcnQiOiIvYVx1MDAyNmJcdTAwMDAifQ",
            ),
        ] {
            assert_eq!(token.encode().as_deref(), Some(text));
            assert_eq!(ContinueToken::decode(text), Some(token));
        }
    }

    #[test]
    fn every_valid_name_returns_from_its_token() {
        for after in ["a", "ns/a.b-c", "system:x", "q\"\\<>&", "ü\u{2028}", "a b"] {
            for form in [TokenForm::Cached, TokenForm::Stored] {
                let token = token("18446744", after, form);
                let text = token.encode().expect("a text");
                assert_eq!(ContinueToken::decode(&text), Some(token), "{after:?}");
            }
        }
    }

    #[test]
    fn unusual_tokens_are_not_understood() {
        let encode = |json: &str| URL_SAFE_NO_PAD.encode(json);
        for text in [
            String::new(),
            "abc".to_owned(),
            "%%%".to_owned(),
            encode(r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"a\u0000"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a\u0000"}"#),
            encode(r#"{"v":"meta.k8s.io/v2","rv":1,"start":"a\u0000"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"\u0000"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../a\u0000"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a//b\u0000"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a\n\u0000"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":1, "start":"a\u0000"}"#),
            encode(r#"{"rv":1,"v":"meta.k8s.io/v1","start":"a\u0000"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a\u0000","more":1}"#),
            "A".repeat(TEXT_BYTES_MAX + 1),
        ] {
            assert_eq!(ContinueToken::decode(&text), None, "{text}");
        }
        for after in ["", ".", "a/..", "a/", "\u{7f}"] {
            assert_eq!(token("1", after, TokenForm::Stored).encode(), None, "{after:?}");
        }
        assert_eq!(token("9223372036854775808", "a", TokenForm::Stored).encode(), None);
    }
}
