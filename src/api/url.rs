//! URLs as people write them, and errors that say what to change.

use std::fmt;

use http::Uri;

/// A text that is not a URL.
#[derive(Debug)]
pub struct NotAUrl {
    text: String,
    /// The library's error; none for a wrong port.
    source: Option<http::uri::InvalidUri>,
}

/// Reads a URL, or its path and query.
pub fn parse(text: &str) -> Result<Uri, NotAUrl> {
    let uri: Uri = match text.parse() {
        Ok(uri) => uri,
        Err(source) => return Err(NotAUrl { text: text.to_owned(), source: Some(source) }),
    };
    // The library takes any number for a port, and gives none then.
    let is_wrong = uri.authority().is_some_and(|authority| {
        let port = authority.as_str().rsplit(']').next().unwrap_or_default().rsplit_once(':');
        port.is_some_and(|(_, port)| !port.parse::<u16>().is_ok_and(|port| port > 0))
    });
    if is_wrong {
        return Err(NotAUrl { text: text.to_owned(), source: None });
    }
    Ok(uri)
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
            return match source {
                Some(_) if !text.starts_with('/') && !text.contains("://") => {
                    write!(f, "{text:?} is not a URL: begin it with / or https://")
                }
                Some(source) => write!(f, "{text:?} is not a URL: {source}"),
                None => write!(f, "{text:?} is not a URL: its port must be from 1 to 65535"),
            };
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
            ("api/v1/pods", "\"api/v1/pods\" is not a URL: begin it with / or https://"),
            ("https://a:0", "\"https://a:0\" is not a URL: its port must be from 1 to 65535"),
            (
                "https://[::1]:70000/x",
                "\"https://[::1]:70000/x\" is not a URL: its port must be from 1 to 65535",
            ),
        ] {
            assert_eq!(parse(text).expect_err(text).to_string(), expected);
        }
        for text in [
            "/api/v1/pods?labelSelector=a%3Db",
            "https://[::1]",
            "https://a:443/x",
            "http://[::1]:6443",
        ] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }
}
