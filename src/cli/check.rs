//! `listless check`: checks that a cluster and the installation meet Listless's needs.
//!
//! The exit code is 0 if nothing failed, 1 if a check failed, 2 for wrong usage.

use std::process::ExitCode;

use clap::Args;

use super::{FAILED, Output, print, progress::waiting_for};
use crate::{
    app::{self, options::CheckOptions},
    check::{Outcome, Report},
    terminal::{Screen, Style},
};

/// The options of `listless check`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    checked: CheckOptions,
    /// The output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// The indent of the details.
const INDENT: usize = 27;

/// Runs the checks and prints the result.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let report = waiting_for("the apiserver", || app::check(&arguments.checked))?;
    let text = match arguments.output {
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
}
