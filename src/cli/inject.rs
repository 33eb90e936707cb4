//! `listless inject` and `listless uninject`: change manifests.
//!
//! Manifests go to standard output. The outcome for each pod goes to standard error.

use std::{
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::Args;

use super::print;
use crate::{
    app::options::{InjectionOptions, UsageError},
    injector::{
        manifest::{self, Change, Report, Rewritten},
        patch::Origin,
    },
};

/// The options of `listless inject`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    sidecar: InjectionOptions,
}

/// The manifests.
#[derive(Debug, Args)]
pub(super) struct Files {
    /// A file with one or more manifests, as YAML or JSON; - is standard input.
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// The file name that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// Injects a sidecar into the pods of manifests.
pub(super) fn inject(arguments: &Arguments) -> anyhow::Result<()> {
    let settings = arguments.sidecar.settings(Origin::Manifest)?;
    rewrite(&arguments.files, |text| manifest::inject(text, &settings))
}

/// Removes the sidecar from the pods of manifests.
pub(super) fn uninject(files: &Files) -> anyhow::Result<()> {
    rewrite(files, manifest::uninject)
}

fn rewrite(
    files: &Files,
    change: impl Fn(&str) -> Result<Rewritten, manifest::Error>,
) -> anyhow::Result<()> {
    let mut out = String::new();
    for file in &files.files {
        let shown = file.display();
        let text = read(file).with_context(|| format!("cannot read -f {shown}"))?;
        let rewritten = change(&text).map_err(|error| UsageError(format!("{shown}:{error}")))?;
        for report in &rewritten.reports {
            tell(file, report)?;
        }
        if !out.is_empty() {
            let newline = if out.ends_with('\n') { "" } else { "\n" };
            let separator = if rewritten.text.starts_with("---") { "" } else { "---\n" };
            out.push_str(newline);
            out.push_str(separator);
        }
        out.push_str(&rewritten.text);
    }
    print(&out)?;
    Ok(())
}

fn read(file: &Path) -> io::Result<String> {
    if file.as_os_str() == STANDARD_INPUT {
        let mut text = String::new();
        io::stdin().lock().read_to_string(&mut text)?;
        return Ok(text);
    }
    fs::read_to_string(file)
}

fn tell(file: &Path, report: &Report) -> io::Result<()> {
    let mut err = io::stderr().lock();
    writeln!(err, "{}: {report}", file.display())?;
    if let Change::Injected(notes) = &report.change {
        for note in notes {
            writeln!(err, "  note: {}: {note}", note.as_str())?;
        }
    }
    Ok(())
}
