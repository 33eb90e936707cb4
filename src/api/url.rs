//! URLs as people write them, and errors that say what to change.

use std::fmt;

use http::Uri;

/// A text that is not a URL.
#[derive(Debug)]
pub struct NotAUrl {
    text: String,
    source: http::uri::InvalidUri,
}

/// Reads a URL, or its path and query.
pub fn parse(text: &str) -> Result<Uri, NotAUrl> {
    text.parse().map_err(|source| NotAUrl { text: text.to_owned(), source })
}

// === impl NotAUrl ===

impl NotAUrl {
    /// Returns the first character that no URL has.
    fn misfit(&self) -> Option<char> {
        let is_allowed =
            |c: char| !c.is_control() && !c.is_whitespace() && !"\"<>\\^`{|}".contains(c);
        self.text.chars().find(|c| !is_allowed(*c))
    }
}

impl fmt::Display for NotAUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, source } = self;
        let Some(misfit) = self.misfit() else {
            return write!(f, "{text:?} is not a URL: {source}");
        };
        write!(f, "{text:?} is not a URL: {misfit:?} is not allowed; write it as ")?;
        let mut buffer = [0; 4];
        misfit.encode_utf8(&mut buffer).bytes().try_for_each(|byte| write!(f, "%{byte:02X}"))
    }
}

// The cause is part of the text.
impl std::error::Error for NotAUrl {}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn an_error_names_the_character_that_is_wrong_and_what_to_write() {
        for (text, expected) in [
            ("/pods?a=b c", "\"/pods?a=b c\" is not a URL: ' ' is not allowed; write it as %20"),
            ("/pods?a=<b>", "\"/pods?a=<b>\" is not a URL: '<' is not allowed; write it as %3C"),
            ("http://[bad", "\"http://[bad\" is not a URL: invalid authority"),
        ] {
            assert_eq!(parse(text).expect_err(text).to_string(), expected);
        }
        assert!(parse("/api/v1/pods?labelSelector=a%3Db").is_ok());
    }
}
