//! The configuration file: its shape, its checks and its reload.
//!
//! Only [`RawConfig::check`] creates a [`Config`], so a `Config` is always valid. It is published
//! as a whole and never changed. Only this module and `tls` read files.

mod check;
mod check_rule;
mod document;
mod locations;
mod problem;
mod quantity;
mod raw;
mod reload;
mod repair;

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::policy::Policy;

pub use document::{
    choices, default_document, effective_document, schema, schema_document, schema_of,
};
pub use locations::ConfigLocation;
use locations::{DEPTH_MAX, FieldLocations};
pub use problem::Problem;
pub use quantity::{NotAnAmount, Quantity, Span};
pub use raw::{
    AccessLevel, AccessLogSection, ApiVersion, AuditSection, CacheSection, DiscoverySection, Kind,
    ObserveSection, RawConfig, RepeatPollsSection, ReportSection, RuleRepeatPollsSection,
    RuleSection, UncachedReadsSection,
};
pub use reload::{Change, Reloader};

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The rules for replicas and for the freshness of responses.
    pub policy: Arc<Policy>,
    /// The memory limit of all replicas together, in bytes.
    pub memory_limit_bytes: usize,
    /// The limit of objects that are held uncompressed because they are read often, in bytes.
    pub uncompressed_limit_bytes: usize,
    /// The limit of kept responses, in bytes, within the memory limit.
    pub response_limit_bytes: usize,
    /// The time after which an unread replica is evicted.
    pub idle_timeout: Duration,
    /// In mode `observe`: the fraction of possible responses from memory that is compared with the
    /// apiserver's.
    pub check_share: f64,
    /// `true` if discovery documents are cached.
    pub discovery_cache: bool,
    /// `true` if the report names callers.
    pub report_callers: bool,
    /// The selection of requests that are logged.
    pub access_log: AccessLog,
    /// The audit file for responses from memory, if any.
    pub audit: Option<AuditFile>,
    warnings: Vec<Problem>,
    raw: RawConfig,
}

/// The selection of requests that are logged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AccessLog {
    /// The kinds of requests.
    pub level: AccessLevel,
    /// The fraction of successful requests that is logged.
    pub sample: f64,
}

/// The audit file for responses from memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditFile {
    /// The file.
    pub file: PathBuf,
    /// The size at which the file is rotated.
    pub bytes_max: u64,
}

/// The reason why a file has no valid configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("cannot read configuration {}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file is too large.
    #[error("{}: is larger than {BYTES_MAX} bytes; remove what is not configuration", .file.display())]
    TooLarge {
        /// The file.
        file: PathBuf,
    },
    /// The content is invalid.
    #[error("{}", lines(.file, .problems))]
    Invalid {
        /// The file.
        file: PathBuf,
        /// The problems in the order of the file, at least one.
        problems: Vec<Problem>,
    },
}

/// The maximum size of a configuration file.
const BYTES_MAX: u64 = 1 << 20;

// === impl Config ===

impl Config {
    /// Reads and checks a file.
    pub fn load(file: &Path) -> Result<Self, Error> {
        Self::from_bytes(file, &read(file)?)
    }

    /// Checks the content of a file. The path appears in error messages.
    pub fn from_bytes(file: &Path, bytes: &[u8]) -> Result<Self, Error> {
        parse(bytes).map_err(|mut problems| {
            problems.sort_by_key(|problem| problem.location);
            Error::Invalid { file: file.to_owned(), problems }
        })
    }

    /// Returns the file with every default filled in.
    pub fn raw(&self) -> &RawConfig {
        &self.raw
    }

    /// Returns settings that are valid, but probably mistakes.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }
}

impl Default for Config {
    fn default() -> Self {
        RawConfig::default().check().expect("a test checks the defaults")
    }
}

/// Reads a file up to the maximum size.
fn read(file: &Path) -> Result<Vec<u8>, Error> {
    let unreadable = |source| Error::Unreadable { file: file.to_owned(), source };
    let mut bytes = Vec::new();
    let opened = File::open(file).map_err(unreadable)?;
    opened.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(Error::TooLarge { file: file.to_owned() });
    }
    Ok(bytes)
}

fn parse(bytes: &[u8]) -> Result<Config, Vec<Problem>> {
    let text =
        std::str::from_utf8(bytes).map_err(|_| vec![Problem::new("", "is not UTF-8 text")])?;
    let locations = FieldLocations::read(text);
    let empty: Vec<_> = locations
        .without_value()
        .map(|(field, location)| Problem {
            location: Some(location),
            ..Problem::new(field, "has no value; set one, or remove the key for its default")
        })
        .collect();
    let options = serde_saphyr::options! { budget: serde_saphyr::budget! { max_depth: DEPTH_MAX } };
    let raw = match serde_saphyr::from_str_with_options::<RawConfig>(text, options) {
        Ok(raw) if empty.is_empty() => raw,
        read => {
            let error = || read.err().map(|error| Problem::from_yaml(&error, &locations));
            let mut problems = if empty.is_empty() { error().into_iter().collect() } else { empty };
            repair::find_others(text, &locations, &mut problems);
            return Err(problems);
        }
    };
    let located = |problem: Problem| problem.located(&locations);
    let mut config =
        raw.check().map_err(|problems| problems.into_iter().map(located).collect::<Vec<_>>())?;
    config.warnings = config.warnings.into_iter().map(located).collect();
    Ok(config)
}

/// Formats one line per problem, each starting with the file.
fn lines(file: &Path, problems: &[Problem]) -> String {
    let separator = |problem: &Problem| if problem.location.is_some() { ":" } else { ": " };
    let line = |problem: &Problem| format!("{}{}{problem}", file.display(), separator(problem));
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}
