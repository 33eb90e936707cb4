//! `listless config`: prints or checks configuration files.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use clap::Subcommand;

use super::print;
use crate::config::{Config, default_document, effective_document, schema_document};

/// The action on configuration files.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Command {
    /// Print a file with every default and its description.
    Default,
    /// Print the JSON Schema of the file, for editors.
    Schema,
    /// Check a file; print only errors and warnings.
    #[command(alias = "check")]
    Validate {
        /// The configuration file.
        file: PathBuf,
    },
    /// Print the effective configuration: the file with every default filled in.
    Effective {
        /// The configuration file [default: every setting at its default].
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

/// Runs one action.
pub(super) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Default => print(&default_document())?,
        Command::Schema => print(&schema_document())?,
        Command::Validate { file } => warn(file, &Config::load(file)?)?,
        Command::Effective { config } => {
            print(&effective_document(load(config.as_deref())?.raw()))?;
        }
    }
    Ok(())
}

/// Loads the configuration of a file, or the default one.
pub(super) fn load(file: Option<&Path>) -> anyhow::Result<Config> {
    Ok(file.map(Config::load).transpose()?.unwrap_or_default())
}

fn warn(file: &Path, config: &Config) -> io::Result<()> {
    for warning in config.warnings() {
        let separator = if warning.location.is_some() { ":" } else { ": " };
        writeln!(io::stderr(), "{}{separator}{warning} (a warning)", file.display())?;
    }
    Ok(())
}
