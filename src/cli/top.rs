//! `listless top`: shows clients and requests live. In a terminal it redraws until interrupted;
//! elsewhere it prints once.

use std::{
    collections::BTreeSet,
    io::{self, IsTerminal},
    time::Duration,
};

use clap::Args;
use tokio::runtime::Builder;

use super::{
    Output,
    ask::AdminOptions,
    print,
    report::{COLUMNS, fetch, reasons, rest, row, summary},
    table,
};
use crate::{
    app::options::whole,
    insight::{report::Report, sort::Sort},
    terminal::Screen,
};

/// The options of `listless top`.
#[derive(Clone, Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    admin: AdminOptions,
    /// The output format; json is printed once.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// The sort order of the rows, largest first.
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
    /// The maximum number of rows; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 30, allow_negative_numbers = true)]
    #[arg(value_parser = whole::<usize>(0..=1_000_000))]
    limit: usize,
    /// Print it once, in a terminal too.
    #[arg(long)]
    once: bool,
    /// The seconds between two updates.
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    #[arg(value_parser = whole::<u64>(1..=3600))]
    interval: u64,
}

/// Moves to the first line and clears the screen.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let live = io::stdout().is_terminal() && !arguments.once && arguments.output == Output::Table;
    if !live {
        return Ok(print(&shown(arguments)?)?);
    }
    let clock = Builder::new_current_thread().enable_time().build()?;
    loop {
        let text = shown(arguments)?;
        print(&format!("{CLEAR}{text}"))?;
        let interval = Duration::from_secs(arguments.interval);
        clock.block_on(async { tokio::time::sleep(interval).await });
    }
}

fn shown(arguments: &Arguments) -> anyhow::Result<String> {
    let mut report = fetch(&arguments.admin, "/api/v1/report")?;
    arguments.sort.sort(&mut report.polls);
    let limit = if arguments.limit == 0 { usize::MAX } else { arguments.limit };
    Ok(match arguments.output {
        Output::Table => terminal(&report, limit, Screen::stdout()),
        Output::Json => {
            report.polls.truncate(limit);
            report.to_json()
        }
    })
}

fn terminal(report: &Report, limit: usize, screen: Screen) -> String {
    let rows: Vec<Vec<String>> = report.polls.iter().take(limit).map(row).collect();
    let mut out = summary(report, screen) + "\n";
    if rows.is_empty() {
        return out + "No requests yet.\n";
    }
    out += &table::table(COLUMNS, &rows, screen);
    out += &screen.wrap(&rest(report, rows.len()), 2);
    let polls = report.polls.iter().take(limit);
    let in_sight: BTreeSet<&str> = polls.filter_map(|poll| Some(poll.main_reason()?.0)).collect();
    let shown = report.reasons.iter().filter(|total| in_sight.contains(total.reason.as_str()));
    out += &reasons(shown, screen);
    if !report.findings.is_empty() {
        let count = table::count(report.findings.len() as u64);
        out += &format!("\nfindings: {count}; run listless report\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insight::report::{Poll, ReasonTotal};

    #[test]
    fn only_reasons_in_sight_are_explained() {
        let poll = |reason: &str, count| Poll {
            user_agent: reason.into(),
            reasons: [(reason.to_owned(), count)].into(),
            ..Poll::default()
        };
        let reason = |word: &str, requests| ReasonTotal {
            reason: word.into(),
            requests,
            meaning: format!("It is {word}."),
            remedy: "Wait.".into(),
            ..ReasonTotal::default()
        };
        let report = Report {
            polls: vec![poll("behind", 12), poll("pretty", 3)],
            reasons: vec![reason("behind", 12), reason("pretty", 3)],
            ..Report::default()
        };
        let text = terminal(&report, 1, Screen::PLAIN);
        assert!(text.contains("  behind 12"), "{text}");
        let explained =
            "\nNot answered from memory\nbehind, 12 requests: It is behind.\n   remedy: Wait.\n";
        assert!(text.ends_with(explained), "{text}");
    }

    #[test]
    fn it_is_useful_with_no_row_and_with_thousands() {
        let mut report = Report { mode: "enforce".into(), ..Report::default() };
        let nobody = terminal(&report, 30, Screen::PLAIN);
        assert!(nobody.ends_with("\n\nNo requests yet.\n"), "{nobody}");
        let poll = |number| Poll { user_agent: format!("agent-{number}"), ..Poll::default() };
        report.polls = (0..3000).map(poll).collect();
        let many = terminal(&report, 30, Screen::PLAIN);
        assert_eq!(many.lines().count(), 4 + 1 + 1 + 30 + 1, "{many}");
        assert!(many.ends_with("… and 2 970 more: --limit 0 shows all, -o json too\n"), "{many}");
        assert_eq!(terminal(&report, usize::MAX, Screen::PLAIN).lines().count(), 4 + 1 + 1 + 3000);
    }
}
