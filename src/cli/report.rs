//! `listless report`: shows clients, their cost, the savings, and the clients to fix.

use std::fmt::Write;

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::{
    ask::AdminOptions,
    print,
    table::{self, Column},
};
use crate::{
    app::options::whole,
    insight::{
        detect::spoken,
        report::{Finding, Poll, ReasonTotal, Report, Totals},
    },
    terminal::{Screen, Style},
};

/// The options of `listless report`.
#[derive(Clone, Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    admin: AdminOptions,
    /// The output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// The maximum number of polls; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 20, allow_negative_numbers = true)]
    #[arg(value_parser = whole::<usize>(0..=1_000_000))]
    limit: usize,
}

/// The output format of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Text for people.
    #[default]
    Table,
    /// JSON, as the admin address returns it.
    Json,
    /// Markdown, for a ticket.
    Markdown,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let all = fetch(&arguments.admin, "/api/v1/report")?;
    let limit = if arguments.limit == 0 { usize::MAX } else { arguments.limit };
    let text = match arguments.output {
        Output::Table => terminal(&all, limit, Screen::stdout()),
        Output::Markdown => markdown(&all, limit),
        Output::Json => {
            let mut shown = all;
            shown.polls.truncate(limit);
            shown.to_json()
        }
    };
    Ok(print(&text)?)
}

/// Fetches the report of a running Listless.
pub(super) fn fetch(admin: &AdminOptions, path: &str) -> anyhow::Result<Report> {
    let json = admin.get(path)?;
    serde_json::from_slice(&json).with_context(|| {
        format!(
            "{}: this is not a report of Listless; pass its admin address \
                                  with --admin",
            admin.admin
        )
    })
}

/// The columns of polls. A narrow terminal leaves out SAME first, then SCOPE, BYTES, FOUND, PERIOD,
/// QUERY, PER S, and further ones by their ranks.
pub(super) const COLUMNS: &[Column] = &[
    Column::words("USER AGENT", 14, 44, 14),
    Column::words("VERB", 6, 8, 10),
    Column::words("RESOURCE", 12, 28, 13),
    Column::words("SCOPE", 9, 9, 2),
    Column::words("QUERY", 12, 36, 6),
    Column::number("REQUESTS", 15, 12),
    Column::number("PER S", 8, 7),
    Column::number("PERIOD", 8, 5),
    Column::number("BYTES", 8, 3),
    Column::number("SAME", 4, 1),
    Column::number("SAVED", 5, 9).styled(saved),
    Column::words("NOT FROM MEMORY", 17, 28, 11),
    Column::words("RISK", 6, 6, 8).styled(risk),
    Column::words("FOUND", 14, 60, 4),
];

fn saved(text: &str) -> Option<Style> {
    (text != "0%").then_some(Style::Green)
}

fn risk(text: &str) -> Option<Style> {
    matches!(text, "medium" | "high").then_some(Style::Red)
}

/// The columns of reasons in Markdown.
const REASON_COLUMNS: &[Column] = &[
    Column::words("REASON", 32, 32, 5),
    Column::number("REQUESTS", 15, 4),
    Column::words("MEANING", 40, 200, 3),
    Column::words("REMEDY", 40, 200, 2),
    Column::words("CONFIGURATION", 40, 60, 1),
];

/// Returns the cells of one poll.
pub(super) fn row(poll: &Poll) -> Vec<String> {
    let saved = poll.saved.requests.max(poll.would_save.requests) as f64;
    vec![
        or_dash(&poll.client()),
        poll.verb.clone(),
        poll.resource.clone(),
        or_dash(&poll.scope),
        or_dash(&poll.query),
        table::count(poll.requests),
        format!("{:.2}", poll.rate_per_second),
        poll.period_seconds.map_or_else(|| "-".to_owned(), spoken),
        table::bytes(poll.bytes as f64),
        poll.unchanged_share.map_or_else(|| "-".to_owned(), table::share),
        table::share(saved / poll.requests.max(1) as f64),
        poll.main_reason().map_or_else(String::new, main_reason),
        poll.risk.clone(),
        poll.findings.join(","),
    ]
}

fn main_reason((word, count): (&str, u64)) -> String {
    format!("{word} {}", table::count(count))
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// Formats the totals for a screen.
pub(super) fn summary(report: &Report, screen: Screen) -> String {
    screen.wrap(&facts(report, screen), 2)
}

/// Formats the totals, one fact per line.
fn facts(report: &Report, screen: Screen) -> String {
    let totals = &report.totals;
    let count = table::count;
    let left = match totals.client_closed {
        0 => String::new(),
        left => format!(", {} cancelled by their clients", count(left)),
    };
    let held_in_loops = match totals.paced_from_memory {
        0 => String::new(),
        loops => format!(", {} of them as loops on responses from memory", count(loops)),
    };
    let mut lines = report
        .apiserver
        .outage()
        .map_or_else(String::new, |text| screen.paint(Style::Red, &text) + "\n");
    let mut failed = format!("{} failed", count(totals.failed));
    if totals.failed > 0 {
        failed = screen.paint(Style::Red, &failed);
    }
    lines += &format!(
        "Listless {}, mode {}, up {}\n{} requests: {} answered from memory, {} shared, {} \
         forwarded, {} refused, {failed}{left}; {} were throttled{held_in_loops}\n",
        report.version,
        report.mode,
        spoken(report.up_seconds),
        count(totals.requests),
        count(totals.from_memory),
        count(totals.coalesced),
        count(totals.forwarded),
        count(totals.refused),
        count(totals.paced),
    );
    for line in savings(totals).lines() {
        let painted = if totals.saved_requests > 0 {
            screen.paint(Style::Green, line)
        } else {
            line.to_owned()
        };
        lines += &format!("{painted}\n");
    }
    if totals.would_save_requests > 0 {
        let would = count(totals.would_save_requests);
        lines += &format!("mode enforce would have saved {would} requests\n");
    }
    lines
}

/// Formats the savings, the most important first. No figure is below zero: what Listless itself sends
/// first is stated instead.
fn savings(totals: &Totals) -> String {
    // The sum turns a negative zero into a positive one.
    let seconds = |seconds: f64| format!("{:.1} s", seconds.max(0.0) + 0.0);
    let requests = match totals.saved_requests {
        own @ ..0 => {
            format!("no requests ({} of Listless's own)", table::count(own.unsigned_abs()))
        }
        saved => format!("{} requests", table::count(saved.unsigned_abs())),
    };
    let estimate = &totals.estimate;
    format!(
        "saved, estimated: {} of kube-apiserver's CPU time and {} of etcd's\nsaved: {} of responses, \
         {requests}",
        seconds(estimate.apiserver_cpu_seconds),
        seconds(estimate.etcd_cpu_seconds),
        table::bytes(totals.saved_bytes.max(0) as f64),
    )
}

/// Formats the number of omitted rows, if any.
pub(super) fn rest(report: &Report, shown: usize) -> String {
    let mut out = String::new();
    if let Some(more) = report.polls.len().checked_sub(shown).filter(|more| *more > 0) {
        let more = table::count(more as u64);
        out += &format!("… and {more} more: --limit 0 shows all, -o json too\n");
    }
    if report.others.requests > 0 {
        let (accounts, requests) = (report.others.accounts, report.others.requests);
        let (accounts, requests) = (table::count(accounts), table::count(requests));
        out += &format!(
            "grouped without detail: {requests} requests of about {accounts} other \
                         kinds\n"
        );
    }
    out
}

/// Formats the meaning and remedy of reasons, each from its own line, below a heading.
pub(super) fn reasons<'a>(
    reasons: impl IntoIterator<Item = &'a ReasonTotal>,
    screen: Screen,
) -> String {
    let mut out = String::new();
    for total in reasons {
        let ReasonTotal { reason, requests, meaning, remedy, configuration } = total;
        let unit = if *requests == 1 { "request" } else { "requests" };
        let heading = format!("{reason}, {} {unit}: {meaning}", table::count(*requests));
        out += &screen.wrap(&heading, 3);
        out += &screen.labelled("   remedy: ", remedy);
        if !configuration.is_empty() {
            out += &screen.labelled("   configuration: ", configuration);
        }
    }
    if out.is_empty() {
        return out;
    }
    format!("\n{}\n{out}", screen.paint(Style::Bold, "Not answered from memory"))
}

fn terminal(report: &Report, limit: usize, screen: Screen) -> String {
    let mut out = summary(report, screen);
    out.push('\n');
    if report.polls.is_empty() {
        return out + "No requests yet.\n";
    }
    if report.findings.is_empty() {
        out += "No clients to fix were found.\n";
    }
    for (number, finding) in (1..).zip(&report.findings) {
        let Finding { library, evidence, fix, .. } = finding;
        let heading = screen.paint(Style::Bold, &heading(finding));
        out += &screen.labelled(&format!("{number}. "), &heading);
        out += &screen.labelled("   seen: ", evidence);
        out += &screen.labelled(&format!("   fix ({library}): "), fix);
    }
    let rows: Vec<Vec<String>> = report.polls.iter().take(limit).map(row).collect();
    out.push('\n');
    out += &table::table(COLUMNS, &rows, screen);
    out += &screen.wrap(&rest(report, rows.len()), 2);
    out + &reasons(&report.reasons, screen)
}

/// Formats a finding's client and behaviour on one line.
fn heading(finding: &Finding) -> String {
    let client = match finding.client() {
        client if client.is_empty() => "no user agent".to_owned(),
        client => client,
    };
    let mut out = format!("{client} {}: {} {}", finding.title, finding.verb, finding.resource);
    let parts = [&finding.scope, &finding.query].map(String::as_str);
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    if !parts.is_empty() {
        out += &format!(" ({})", parts.join(", "));
    }
    if let Some(period) = finding.period_seconds {
        out += &format!(", every {}", spoken(period));
    }
    out + &format!(" [{}]", finding.id)
}

fn markdown(report: &Report, limit: usize) -> String {
    let mut out = String::from("# Listless: clients and requests\n\n");
    for line in facts(report, Screen::PLAIN).lines() {
        out += &format!("* {}\n", table::escaped(line));
    }
    out += "\n## Clients to fix\n\n";
    if report.findings.is_empty() {
        out += "None were found.\n";
    }
    for (number, finding) in (1..).zip(&report.findings) {
        let [heading, evidence, fix] =
            [&heading(finding), &finding.evidence, &finding.fix].map(|text| table::escaped(text));
        out += &format!("{number}. **{heading}**\n   * Seen: {evidence}\n   * Fix: {fix}\n");
    }
    out += "\n## Clients and requests\n\n";
    if report.polls.is_empty() {
        return out + "No requests yet.\n";
    }
    let rows: Vec<Vec<String>> = report.polls.iter().take(limit).map(row).collect();
    out += &table::markdown(COLUMNS, &rows);
    let rest = rest(report, rows.len());
    if !rest.is_empty() {
        let _infallible = write!(out, "\n{rest}");
    }
    out += &markdown_reasons(&report.reasons);
    out + &format!("\nCPU time is an {}.\n", table::escaped(&report.totals.estimate.formula))
}

fn markdown_reasons(reasons: &[ReasonTotal]) -> String {
    if reasons.is_empty() {
        return String::new();
    }
    let cells = |total: &ReasonTotal| {
        let ReasonTotal { reason, requests, meaning, remedy, configuration } = total.clone();
        vec![reason, table::count(requests), meaning, remedy, configuration]
    };
    let rows: Vec<_> = reasons.iter().map(cells).collect();
    format!("\n## Not answered from memory\n\n{}", table::markdown(REASON_COLUMNS, &rows))
}

#[cfg(test)]
mod tests;
