//! The configuration file: its shape, its checks, its reload.
//!
//! A [`Config`] is made only by [`RawConfig::check`], so whoever holds one need not check again. It is
//! published whole and never changed. Only this module and `tls` read files.

mod check;
mod check_rule;
mod document;
mod places;
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
pub use places::Place;
use places::{DEPTH_MAX, Places};
pub use problem::Problem;
pub use quantity::{NotAnAmount, Quantity, Span};
pub use raw::{
    AccessLevel, AccessLogSection, ApiVersion, AuditSection, CacheSection, DiscoverySection, Kind,
    ObserveSection, RawConfig, RepeatPollsSection, RuleRepeatPollsSection, RuleSection,
    UncachedReadsSection,
};
pub use reload::{Change, Reloader};

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// What may be kept in memory, and how fresh it must be.
    pub policy: Arc<Policy>,
    /// How many bytes all replicas together may hold.
    pub memory_limit_bytes: usize,
    /// How long a replica that nobody reads is kept.
    pub idle_timeout: Duration,
    /// In mode `observe`: which share of the answers that memory could have given is checked.
    pub check_share: f64,
    /// Whether discovery documents are kept.
    pub discovery_cache: bool,
    /// Which requests have a line in the log.
    pub access_log: AccessLog,
    /// Where answers from memory are told of, if anywhere.
    pub audit: Option<AuditFile>,
    warnings: Vec<Problem>,
    raw: RawConfig,
}

/// Which requests have a line in the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AccessLog {
    /// Which kinds.
    pub level: AccessLevel,
    /// Of those that did not fail, this share.
    pub sample: f64,
}

/// The file that tells of answers from memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditFile {
    /// The file.
    pub file: PathBuf,
    /// A larger one is begun anew.
    pub bytes_max: u64,
}

/// Why a file gives no configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be read.
    #[error("cannot read configuration {}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is larger than any configuration.
    #[error("{}: is larger than {BYTES_MAX} bytes", .file.display())]
    TooLarge {
        /// The file.
        file: PathBuf,
    },
    /// It is wrong.
    #[error("{}", lines(.file, .problems))]
    Invalid {
        /// The file.
        file: PathBuf,
        /// In the order of the file; never empty.
        problems: Vec<Problem>,
    },
}

/// How many bytes a configuration file may have.
const BYTES_MAX: u64 = 1 << 20;

// === impl Config ===

impl Config {
    /// Reads and checks a file.
    pub fn load(file: &Path) -> Result<Self, Error> {
        Self::from_bytes(file, &read(file)?)
    }

    /// Checks the content of a file, which is named in what is found wrong.
    pub fn from_bytes(file: &Path, bytes: &[u8]) -> Result<Self, Error> {
        parse(bytes).map_err(|mut problems| {
            problems.sort_by_key(|problem| problem.place);
            Error::Invalid { file: file.to_owned(), problems }
        })
    }

    /// The file with every default filled in.
    pub fn raw(&self) -> &RawConfig {
        &self.raw
    }

    /// What is allowed but hardly meant.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }
}

impl Default for Config {
    fn default() -> Self {
        RawConfig::default().check().expect("the defaults are checked by a test")
    }
}

/// Reads a file, but not more than a configuration may have.
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
        std::str::from_utf8(bytes).map_err(|_| vec![Problem::new("", "is not a text in UTF-8")])?;
    let places = Places::read(text);
    let empty: Vec<_> = places
        .without_value()
        .map(|(field, place)| Problem {
            place: Some(place),
            ..Problem::new(field, "has no value; leave the key out for its default")
        })
        .collect();
    let options = serde_saphyr::options! { budget: serde_saphyr::budget! { max_depth: DEPTH_MAX } };
    let raw = match serde_saphyr::from_str_with_options::<RawConfig>(text, options) {
        Ok(raw) if empty.is_empty() => raw,
        read => {
            let error = || read.err().map(|error| Problem::from_yaml(&error, &places));
            let mut problems = if empty.is_empty() { error().into_iter().collect() } else { empty };
            repair::find_others(text, &places, &mut problems);
            return Err(problems);
        }
    };
    let placed = |problem: Problem| problem.placed(&places);
    let mut config =
        raw.check().map_err(|problems| problems.into_iter().map(placed).collect::<Vec<_>>())?;
    config.warnings = config.warnings.into_iter().map(placed).collect();
    Ok(config)
}

/// One line per problem, each beginning with the file.
fn lines(file: &Path, problems: &[Problem]) -> String {
    let separator = |problem: &Problem| if problem.place.is_some() { ":" } else { ": " };
    let line = |problem: &Problem| format!("{}{}{problem}", file.display(), separator(problem));
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}
