//! The parameters of a question on the admin address.

use http::Uri;

use crate::api::request::decoded;

/// Names and values, decoded; what does not decode is left out.
pub(super) struct Parameters(Vec<(String, String)>);

/// Parameters of one question; more are not read.
const PARAMETERS_MAX: usize = 64;

// === impl Parameters ===

impl Parameters {
    /// Those of a URL.
    pub(super) fn of(uri: &Uri) -> Self {
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let read = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decoded(name)?.into_owned(), decoded(value)?.into_owned()))
        };
        Self(pairs.take(PARAMETERS_MAX).filter_map(read).collect())
    }

    /// The first value of a name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Every value of a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}
