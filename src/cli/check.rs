//! `listless check`: checks that a cluster and the installation meet Listless's needs.
//!
//! The exit code is 0 if nothing failed, 1 if a check failed, 2 for wrong usage.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::{FAILED, KubeconfigOptions, Output, print, progress::waiting_for};
use crate::{
    api::GroupResource,
    app,
    check::{Outcome, Report},
    terminal::{Screen, Style},
};

/// The options of `listless check`.
#[derive(Clone, Debug, Args)]
pub struct CheckOptions {
    /// The apiserver to check, and the user to connect as [default: in a pod its own].
    #[command(flatten)]
    pub upstream: KubeconfigOptions,
    /// In a pod: the directory of the service account to connect as.
    #[arg(long, value_name = "DIRECTORY", default_value = super::options::SERVICE_ACCOUNT)]
    pub service_account: PathBuf,
    /// The MutatingWebhookConfiguration to check [default: the first one of Listless].
    #[arg(long, value_name = "NAME")]
    pub webhook_configuration: Option<String>,
    /// The namespace of the test pod, which is never stored [default: the first namespace labelled
    /// listless.dev/injection=enabled, else default].
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
    /// A resource that the user wants to list and watch, such as deployments.apps; may be repeated
    /// [default: pods; nothing in a pod].
    #[arg(long = "resource", value_name = "RESOURCE", value_parser = resource)]
    pub resources: Vec<GroupResource>,
    /// The output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// The indent of the details.
const INDENT: usize = 27;

/// Runs the checks and prints the result.
pub(super) fn run(options: &CheckOptions) -> anyhow::Result<ExitCode> {
    let report = waiting_for("the apiserver", || app::check(options))?;
    let text = match options.output {
        Output::Table => table(&report, Screen::stdout()),
        Output::Json => report.to_json(),
    };
    print(&text)?;
    Ok(match report.result {
        Outcome::Fail => ExitCode::from(FAILED),
        Outcome::Skipped | Outcome::Pass | Outcome::Warn => ExitCode::SUCCESS,
    })
}

/// Formats one line per check, and one for its hint.
fn table(report: &Report, screen: Screen) -> String {
    let failed = |text: String, failed| {
        if failed { screen.paint(Style::Red, &text) } else { text }
    };
    let mut out = String::new();
    for row in &report.checks {
        let result = failed(format!("{:<8}", row.result.as_str()), row.result == Outcome::Fail);
        out += &screen.labelled(&format!("{result} {:<17} ", row.name), &row.detail);
        if !row.hint.is_empty() {
            out += &screen.labelled(&format!("{:INDENT$}→ ", ""), row.hint);
        }
    }
    let count = |wanted| report.checks.iter().filter(|row| row.result == wanted).count();
    let [passed, warned, failures, skipped] =
        [Outcome::Pass, Outcome::Warn, Outcome::Fail, Outcome::Skipped].map(count);
    let failures = failed(format!("{failures} failed"), failures > 0);
    let sums = format!("{passed} passed, {warned} warnings, {failures}, {skipped} skipped");
    out + "\n" + &screen.wrap(&sums, 0)
}

/// Parses a resource with its group behind a dot.
fn resource(text: &str) -> Result<GroupResource, String> {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    let is_fine = |part: &str| {
        part.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte))
    };
    if resource.is_empty() || !is_fine(resource) || !is_fine(group) {
        return Err("write a plural name, such as pods or deployments.apps".to_owned());
    }
    Ok(GroupResource::new(group, resource))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Row;

    #[test]
    fn every_check_has_a_line_and_its_hint_another() {
        let checks =
            vec![Row::pass("version", "v1.36.3"), Row::fail("injector", "0 of 2 ready", "look")];
        let apiserver = String::new();
        let report = Report { version: "", apiserver, result: Outcome::Fail, checks };
        let expected = "pass     version           v1.36.3\n\
                        fail     injector          0 of 2 ready\n                           → look\n\
                        \n1 passed, 0 warnings, 1 failed, 0 skipped\n";
        assert_eq!(table(&report, Screen::PLAIN), expected);
        let narrow = table(&report, Screen { width: 40, colours: false });
        let expected =
            "fail     injector          0 of 2 ready\n                           → look\n";
        assert!(narrow.contains(expected), "{narrow}");
        assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
    }

    #[test]
    fn resources_are_named_as_in_kubectl() {
        assert_eq!(resource("pods"), Ok(GroupResource::new("", "pods")));
        let expected = GroupResource::new("example.com", "widgets");
        assert_eq!(resource("widgets.example.com"), Ok(expected));
        for text in ["", ".apps", "Pods", "pods/log", "a b"] {
            assert!(resource(text).is_err(), "{text}");
        }
    }
}
