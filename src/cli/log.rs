//! The log on standard error, with colours only in a terminal.
//!
//! Invariant: one record is one line of bounded length, whatever its content. Names and messages
//! come from outside.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal, Write},
};

use clap::{Args, ValueEnum};
use tracing_subscriber::{EnvFilter, filter::LevelFilter, fmt};

use crate::app::options::UsageError;

/// The log options.
#[derive(Clone, Debug, Args)]
pub(super) struct LogOptions {
    /// The log level (error, warn, info, debug, trace), or levels by module such as
    /// info,listless::access=debug [default: info; for the demo error]. Records of the module h2,
    /// which clients can cause, are logged only if it is named.
    #[arg(
        long = "log",
        value_name = "FILTER",
        help_heading = LOG,
        global = true,
        env = "LISTLESS_LOG",
        hide_env_values = true
    )]
    filter: Option<String>,
    /// The format of the log, which goes to standard error.
    #[arg(long = "log-format", help_heading = LOG, global = true, value_enum, default_value_t)]
    format: LogFormat,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// A writer that keeps each record on one line.
struct Lines<W> {
    inner: W,
    /// `true` if records have colours, which are control characters of Listless's own.
    colours: bool,
}

/// A writer that bounds each JSON record.
struct Records<W> {
    inner: W,
}

/// The heading of the log options in each command's help.
const LOG: &str = "Log";

/// The maximum size of a record. The rest is cut off.
const RECORD_BYTES_MAX: usize = 16 * 1024;

/// Starts the log of the whole process. `level` is the command's default level.
pub(super) fn start(options: &LogOptions, level: &str) -> Result<(), UsageError> {
    let filter = filter(options.filter.as_deref().filter(|text| !text.is_empty()), level)?;
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    // The library would report a failed write on the same closed stream, and panic.
    let builder = fmt().with_env_filter(filter).with_ansi(colours).log_internal_errors(false);
    let started = match options.format {
        LogFormat::Text => {
            builder.with_writer(move || Lines { inner: io::stderr(), colours }).try_init()
        }
        LogFormat::Json => {
            let records = || Records { inner: io::stderr() };
            builder.with_writer(records).json().flatten_event(true).try_init()
        }
    };
    // This fails only if a log was started before.
    started.or(Ok(()))
}

/// Parses a filter. A word alone must be a level: the library would take it for a module, and nothing
/// would be logged.
fn filter(given: Option<&str>, level: &str) -> Result<EnvFilter, UsageError> {
    let text = given.unwrap_or(level);
    let wrong = |part: &str| {
        let expected =
            "error, warn, info, debug, trace or off, or MODULE=LEVEL, separated by commas";
        UsageError(format!("--log or LISTLESS_LOG: {part:?} is no level; use {expected}"))
    };
    for part in text.split(',').map(str::trim) {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        level.parse::<LevelFilter>().map_err(|_| wrong(part))?;
    }
    // Each connection of a stranger could cause a warning of the HTTP/2 library.
    EnvFilter::try_new(format!("h2=off,{text}")).map_err(|_| wrong(text))
}

// === impl Lines ===

impl<W: Write> Write for Lines<W> {
    /// Writes one whole record of the subscriber.
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(record);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        self.inner.write_all(one_line(text, self.colours).as_bytes())?;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

// === impl Records ===

impl<W: Write> Write for Records<W> {
    /// Writes one whole record of the subscriber. A longer one becomes the text of a field.
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        if record.len() <= RECORD_BYTES_MAX {
            self.inner.write_all(record)?;
        } else {
            let cut = String::from_utf8_lossy(&record[..RECORD_BYTES_MAX]);
            self.inner.write_all(format!("{}\n", serde_json::json!({ "cut": cut })).as_bytes())?;
        }
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Escapes every control character and line separator, and appends a line feed.
fn one_line(text: &str, colours: bool) -> String {
    let mut line = String::with_capacity(text.len() + 1);
    for letter in text.chars() {
        if line.len() >= RECORD_BYTES_MAX {
            line.push('…');
            break;
        }
        let is_ours = letter == '\t' || colours && letter == '\u{1b}';
        let is_separator = matches!(letter, '\u{2028}' | '\u{2029}');
        if (letter.is_control() || is_separator) && !is_ours {
            // Writing to a string does not fail.
            let _ = write!(line, "{}", letter.escape_default());
        } else {
            line.push(letter);
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(record: impl FnOnce()) -> String {
        let log = Log::default();
        let written = log.clone();
        let lines = move || Lines { inner: log.clone(), colours: false };
        let subscriber = fmt().with_writer(lines).with_ansi(false).finish();
        tracing::subscriber::with_default(subscriber, record);
        String::from_utf8(written.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_word_that_is_no_level_is_refused_and_no_word_is_the_default() {
        for text in ["info", "WARN", "off", "info,listless::access=debug", "hyper=trace, warn"] {
            assert!(filter(Some(text), "info").is_ok(), "{text}");
        }
        assert!(filter(None, "info").is_ok());
        for text in ["verbose", "debg", "info;debug", "listless", "a=b=c"] {
            let UsageError(told) = filter(Some(text), "info").expect_err(text);
            assert!(told.contains("is no level; use error, warn"), "{told}");
        }
    }

    #[test]
    fn clients_cause_no_records_of_the_http2_library_unless_it_is_named() {
        for (given, expected) in [(None, "ours\n"), (Some("info,h2=warn"), "reset\nours\n")] {
            let log = Log::default();
            let written = log.clone();
            let plain = fmt().with_target(false).with_level(false).without_time();
            let subscriber = plain.with_env_filter(filter(given, "info").unwrap());
            let subscriber = subscriber.with_writer(move || log.clone()).finish();
            tracing::subscriber::with_default(subscriber, || {
                tracing::warn!(target: "h2::proto::streams::recv", "reset");
                tracing::info!("ours");
            });
            assert_eq!(*written.0.lock().unwrap(), *expected.as_bytes(), "{given:?}");
        }
    }

    #[test]
    fn a_json_record_is_a_bounded_line_of_json() {
        for (length, cut) in [(100, false), (3_000_000, true)] {
            let log = Log::default();
            let written = log.clone();
            let records = move || Records { inner: log.clone() };
            let subscriber = fmt().with_writer(records).json().flatten_event(true).finish();
            let name = "x\n".repeat(length / 2);
            tracing::subscriber::with_default(subscriber, || tracing::info!(name, "injected"));
            let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
            assert!(text.len() < 3 * RECORD_BYTES_MAX, "{}", text.len());
            assert_eq!(text.matches('\n').count(), 1);
            let record: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(record.get("cut").is_some(), cut, "{record}");
        }
    }

    #[test]
    fn what_comes_from_outside_forges_no_line_and_moves_no_cursor() {
        for forged in
            ["a\n2026 INFO forged", "a\r\nb", "a\u{1b}[2Jb", "a\u{85}b", "a\u{2028}b", "a\0b"]
        {
            let text = logged(|| {
                tracing::info!(displayed = %forged, debugged = ?forged, field = forged, "{forged}");
            });
            assert_eq!(text.matches('\n').count(), 1, "{text:?}");
            assert!(text.ends_with('\n'));
            let line = text.trim_end_matches('\n');
            assert!(!line.contains(|c: char| c.is_control() || c == '\u{2028}'), "{text:?}");
        }
    }

    #[test]
    fn a_record_has_a_bound() {
        let text = logged(|| tracing::info!("{}", "x".repeat(3 << 20)));
        assert!(text.len() <= RECORD_BYTES_MAX + 16, "{}", text.len());
    }
}
