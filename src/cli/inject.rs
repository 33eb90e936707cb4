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

use super::{UsageError, options::whole, print};
use crate::injector::{
    manifest::{self, Change, Report, Rewritten},
    patch::{Origin, Resources, Settings, freshness_named, mode_named},
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

/// The sidecar's settings. Annotations of a pod override them.
#[derive(Clone, Debug, Args)]
pub struct InjectionOptions {
    /// The sidecar's image [default: that of this version].
    #[arg(long, value_name = "IMAGE", help_heading = SIDECAR)]
    pub image: Option<String>,
    /// An image pull secret in the pod's namespace; may be repeated.
    #[arg(long = "image-pull-secret", value_name = "NAME", help_heading = SIDECAR)]
    pub image_pull_secrets: Vec<String>,
    /// The sidecar's port, on loopback.
    #[arg(long, value_name = "PORT", help_heading = SIDECAR, default_value_t = 16443)]
    #[arg(value_parser = whole::<u16>(1024..=65535))]
    pub port: u16,
    /// The mode: enforce, or observe to only report the savings.
    #[arg(long, help_heading = SIDECAR, value_parser = ["enforce", "observe"])]
    #[arg(default_value = "enforce")]
    pub mode: String,
    /// The freshness of responses to reads without a resourceVersion.
    #[arg(long, help_heading = SIDECAR, default_value = "session")]
    #[arg(value_parser = ["mostRecent", "session", "bounded", "any"])]
    pub freshness: String,
    /// The CPU request.
    #[arg(long, value_name = "QUANTITY", help_heading = SIDECAR, default_value = "10m")]
    pub cpu_request: String,
    /// The CPU limit.
    #[arg(long, value_name = "QUANTITY", help_heading = SIDECAR, default_value = "1")]
    pub cpu_limit: String,
    /// The memory request.
    #[arg(long, value_name = "QUANTITY", help_heading = SIDECAR, default_value = "64Mi")]
    pub memory_request: String,
    /// The memory limit; half of it is for objects.
    #[arg(long, value_name = "QUANTITY", help_heading = SIDECAR, default_value = "256Mi")]
    pub memory_limit: String,
    /// A name for these settings, which is recorded in the pods.
    #[arg(long, value_name = "NAME", help_heading = SIDECAR, default_value = "default")]
    pub revision: String,
}

const SIDECAR: &str = "Sidecar";

/// The file name that stands for standard input.
const STANDARD_INPUT: &str = "-";

// === impl InjectionOptions ===

impl InjectionOptions {
    /// Returns the settings, or the error in the options.
    pub fn settings(&self, origin: Origin) -> Result<Settings, UsageError> {
        let defaults = Settings::default();
        let resources = Resources {
            cpu_request: self.cpu_request.clone(),
            cpu_limit: self.cpu_limit.clone(),
            memory_request: self.memory_request.clone(),
            memory_limit: self.memory_limit.clone(),
        };
        let settings = Settings {
            image: self.image.clone().unwrap_or(defaults.image),
            image_pull_secrets: self.image_pull_secrets.clone(),
            revision: self.revision.clone(),
            port: self.port,
            mode: mode_named(&self.mode).unwrap_or_default(),
            freshness: freshness_named(&self.freshness).unwrap_or_default(),
            resources,
            origin,
            ..Settings::default()
        };
        settings.check().map_err(|skip| UsageError(skip.detail.unwrap_or_default()))?;
        Ok(settings)
    }
}

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
