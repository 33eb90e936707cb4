//! The log: to standard error, without colours unless someone looks at it.

use std::io::{self, IsTerminal};

use tracing_subscriber::{EnvFilter, fmt};

use super::{
    UsageError,
    options::{LogFormat, LogOptions},
};

/// Starts to log as the options say, for the whole process; `level` is what a command logs unasked.
pub(super) fn start(options: &LogOptions, level: &str) -> Result<(), UsageError> {
    let filter = options.filter.as_deref().unwrap_or(level);
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| UsageError(format!("--log {filter:?}: {error}")))?;
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let builder = fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(colours);
    let started = match options.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    // Only a second start in one process fails, and then there is a log already.
    started.or(Ok(()))
}
