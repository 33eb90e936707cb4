//! The query parameters of an admin request.

use http::Uri;

use crate::api::request::decoded;

/// Decoded names and values. Parameters that do not decode are dropped.
pub(super) struct Parameters(Vec<(String, String)>);

/// The maximum number of parameters. Further ones are ignored.
const PARAMETERS_MAX: usize = 64;

// === impl Parameters ===

impl Parameters {
    /// Parses the query of a URL.
    pub(super) fn of(uri: &Uri) -> Self {
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let read = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decoded(name)?.into_owned(), decoded(value)?.into_owned()))
        };
        Self(pairs.take(PARAMETERS_MAX).filter_map(read).collect())
    }

    /// Returns the first value of a name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Returns every value of a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}
