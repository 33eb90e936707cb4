//! `listless report`: shows clients, their cost, the savings, and the clients to fix.

use std::fmt::Write;

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::{
    ask::AdminOptions,
    print,
    table::{self, Column, Side},
};
use crate::insight::{
    detect::spoken,
    report::{Finding, Poll, Report, Totals},
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
    #[arg(long, value_name = "N", default_value_t = 20)]
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
        Output::Table => terminal(&all, limit),
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

/// The columns of polls.
pub(super) const COLUMNS: &[Column] = &[
    ("USER AGENT", Side::Left, 44),
    ("VERB", Side::Left, 8),
    ("RESOURCE", Side::Left, 28),
    ("SCOPE", Side::Left, 9),
    ("QUERY", Side::Left, 36),
    ("REQUESTS", Side::Right, 15),
    ("PER S", Side::Right, 8),
    ("PERIOD", Side::Right, 8),
    ("BYTES", Side::Right, 8),
    ("SAME", Side::Right, 4),
    ("SAVED", Side::Right, 5),
    ("RISK", Side::Left, 6),
    ("FOUND", Side::Left, 60),
];

/// Returns the cells of one poll.
pub(super) fn row(poll: &Poll) -> Vec<String> {
    let saved = poll.saved.requests.max(poll.would_save.requests) as f64;
    vec![
        or_dash(&poll.user_agent),
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
        poll.risk.clone(),
        poll.findings.join(","),
    ]
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// Formats the totals, one fact per line.
pub(super) fn summary(report: &Report) -> String {
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
    let outage = report.apiserver.outage().map_or_else(String::new, |text| text + "\n");
    let mut lines = outage;
    lines += &format!(
        "Listless {}, mode {}, up {}\n{} requests: {} answered from memory, {} shared, {} \
         forwarded, {} refused, {} failed{left}; {} were throttled{held_in_loops}\n{}\n",
        report.version,
        report.mode,
        spoken(report.up_seconds),
        count(totals.requests),
        count(totals.from_memory),
        count(totals.coalesced),
        count(totals.forwarded),
        count(totals.refused),
        count(totals.failed),
        count(totals.paced),
        savings(totals),
    );
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

fn terminal(report: &Report, limit: usize) -> String {
    let mut out = summary(report);
    out.push('\n');
    if report.polls.is_empty() {
        return out + "No requests yet.\n";
    }
    if report.findings.is_empty() {
        out += "No clients to fix were found.\n";
    }
    for (number, finding) in (1..).zip(&report.findings) {
        let heading = heading(finding);
        let Finding { library, evidence, fix, .. } = finding;
        out += &format!("{number}. {heading}\n   seen: {evidence}\n   fix ({library}): {fix}\n");
    }
    let rows: Vec<Vec<String>> = report.polls.iter().take(limit).map(row).collect();
    out.push('\n');
    out += &table::table(COLUMNS, &rows);
    out + &rest(report, rows.len())
}

/// Formats a finding's client and behaviour on one line.
fn heading(finding: &Finding) -> String {
    let agent = if finding.user_agent.is_empty() { "no user agent" } else { &finding.user_agent };
    let mut out = format!("{agent} {}: {} {}", finding.title, finding.verb, finding.resource);
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
    for line in summary(report).lines() {
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
    out + &format!("\nCPU time is an {}.\n", table::escaped(&report.totals.estimate.formula))
}

#[cfg(test)]
mod tests;
