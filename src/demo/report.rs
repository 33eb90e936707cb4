//! The demo's output: a table of two columns and a verdict, or one JSON object.

use std::io::{self, Write};

use serde::Serialize;

use super::phase::{Kind, Measured};
use crate::terminal::{Screen, Style, cut};

/// Both phases side by side.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// Directly to the apiserver.
    pub direct: Measured,
    /// Through Listless during its warm-up.
    pub warm_up: Measured,
    /// Through Listless after its warm-up.
    pub listless: Measured,
    /// The saved reads of the apiserver per poll, in per cent.
    pub saved_percent: f64,
    /// The period of each poller.
    pub poll_period_ms: u64,
    /// `true` if the demo was interrupted.
    pub interrupted: bool,
}

/// A table that is redrawn in place on a terminal.
pub(super) struct Table<W> {
    out: W,
    terminal: bool,
    screen: Screen,
    lines_drawn: usize,
}

// === impl Report ===

impl Report {
    /// Stores the measurements of a phase and updates the comparison per poll.
    pub(super) fn note(&mut self, kind: Kind, measured: Measured) {
        match kind {
            Kind::Straight => self.direct = measured,
            Kind::WarmUp => self.warm_up = measured,
            Kind::Listless => self.listless = measured,
            Kind::Shown => return,
        }
        self.saved_percent = saved(
            (self.direct.apiserver_requests, self.direct.polls),
            (self.listless.apiserver_requests, self.listless.polls),
        );
    }

    /// Reports whether both phases were measured without faults.
    pub(super) fn is_clean(&self) -> bool {
        [&self.direct, &self.listless].iter().all(|phase| phase.polls > 0) && self.faults() == 0
    }

    /// Returns the result in one sentence.
    pub(super) fn verdict(&self) -> String {
        let (direct, listless) = (&self.direct, &self.listless);
        if self.interrupted && listless.polls == 0 {
            return "Interrupted before Listless was measured.".to_owned();
        }
        let faults = self.faults();
        if faults > 0 {
            let first = self.phases().iter().find_map(|phase| phase.first_fault.clone());
            return format!(
                "{faults} responses were wrong or missing (first: {}); please report this bug.",
                first.unwrap_or_default()
            );
        }
        let bytes = saved((direct.bytes, direct.polls), (listless.bytes, listless.polls));
        let early = if self.interrupted { "Interrupted; until then " } else { "" };
        format!(
            "{early}Listless answered {} polls with {} of the {} reads that the apiserver would \
             have had: {:.1} % fewer reads, {bytes:.1} % fewer bytes{}, and every response was \
             right. Before that it warmed up with {} reads, {}.",
            listless.polls,
            listless.apiserver_requests,
            per_poll(direct, listless.polls),
            self.saved_percent,
            self.processor_saved(),
            self.warm_up.apiserver_requests,
            show_bytes(self.warm_up.bytes),
        )
    }

    fn phases(&self) -> [&Measured; 3] {
        [&self.listless, &self.warm_up, &self.direct]
    }

    fn faults(&self) -> u64 {
        self.phases().iter().map(|phase| phase.wrong_answers + phase.failed).sum()
    }

    fn processor_saved(&self) -> String {
        let (Some(direct), Some(listless)) = (self.direct.processor_ms, self.listless.processor_ms)
        else {
            return String::new();
        };
        let saved = saved((direct, self.direct.polls), (listless, self.listless.polls));
        format!(", {saved:.0} % less apiserver CPU")
    }

    fn rows(&self) -> Vec<[String; 4]> {
        let row = |label: &str, show: fn(&Measured) -> String| {
            let cell = |phase: &Measured| {
                if phase.polls == 0 { "-".to_owned() } else { show(phase) }
            };
            [label.to_owned(), cell(&self.direct), cell(&self.warm_up), cell(&self.listless)]
        };
        vec![
            row("polls answered", |phase| phase.polls.to_string()),
            row("  of them from memory", |phase| phase.from_memory.to_string()),
            row("reads reaching the apiserver", |phase| phase.apiserver_requests.to_string()),
            row("writes reaching the apiserver", |phase| phase.apiserver_writes.to_string()),
            row("bytes from the apiserver", |phase| show_bytes(phase.bytes)),
            row("CPU of the apiserver", |phase| {
                phase.processor_ms.map_or_else(|| "n/a".to_owned(), |ms| format!("{ms} ms"))
            }),
            row("latency p50", |phase| format!("{:.2} ms", phase.p50_ms)),
            row("latency p99", |phase| format!("{:.2} ms", phase.p99_ms)),
            row("wrong or missing responses", |phase| {
                (phase.wrong_answers + phase.failed).to_string()
            }),
        ]
    }
}

// === impl Table ===

impl<W: Write> Table<W> {
    /// Returns a table on this output.
    pub(super) fn new(out: W, terminal: bool, screen: Screen) -> Self {
        Self { out, terminal, screen, lines_drawn: 0 }
    }

    /// Writes permanent text.
    pub(super) fn say(&mut self, line: &str) -> io::Result<()> {
        self.lines_drawn = 0;
        write!(self.out, "{}", self.screen.wrap(&format!("{line}\n"), 0))?;
        self.out.flush()
    }

    /// Redraws the table. Without a terminal only the final drawing appears.
    pub(super) fn draw(&mut self, report: &Report) -> io::Result<()> {
        if !self.terminal {
            return Ok(());
        }
        if self.lines_drawn > 0 {
            write!(self.out, "\x1b[{}A\x1b[J", self.lines_drawn)?;
        }
        self.lines_drawn = self.write(report)?;
        self.out.flush()
    }

    /// Draws the table for the last time.
    pub(super) fn finish(&mut self, report: &Report) -> io::Result<()> {
        if self.terminal {
            self.draw(report)?;
        } else {
            self.write(report)?;
        }
        let style = if report.faults() > 0 { Style::Red } else { Style::Green };
        let verdict = match report.listless.polls {
            0 => report.verdict(),
            _ => self.screen.paint(style, &report.verdict()),
        };
        self.say(&format!("\n{verdict}"))
    }

    fn write(&mut self, report: &Report) -> io::Result<usize> {
        let header = ["", "straight", "warm-up", "Listless"].map(str::to_owned);
        let rows = report.rows();
        for (number, row) in std::iter::once(&header).chain(&rows).enumerate() {
            let [label, direct, warm_up, listless] = row;
            let line = format!("{label:<32}{direct:>14}{warm_up:>14}{listless:>14}");
            // A wrapped line would be redrawn at the wrong place.
            let line = cut(&line, self.screen.width);
            let line = if number == 0 { self.screen.paint(Style::Bold, &line) } else { line };
            writeln!(self.out, "{line}")?;
        }
        Ok(rows.len() + 1)
    }
}

/// Returns the savings per poll in per cent, rounded to a tenth.
fn saved((before, polls_before): (u64, u64), (after, polls_after): (u64, u64)) -> f64 {
    if before == 0 || polls_before == 0 || polls_after == 0 {
        return 0.0;
    }
    let per_poll = |count: u64, polls: u64| count as f64 / polls as f64;
    let ratio = per_poll(after, polls_after) / per_poll(before, polls_before);
    // Adding zero turns a negative zero into a positive one.
    ((1.0 - ratio) * 1000.0).round() / 10.0 + 0.0
}

/// Returns the direct reads for this many polls.
fn per_poll(direct: &Measured, polls: u64) -> u64 {
    (direct.apiserver_requests * polls).checked_div(direct.polls).unwrap_or(0)
}

fn show_bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(polls: u64, reads: u64, bytes: u64) -> Measured {
        Measured {
            polls,
            apiserver_requests: reads,
            bytes,
            processor_ms: Some(reads),
            ..Measured::default()
        }
    }

    fn compared(direct: Measured, listless: Measured) -> Report {
        let mut report = Report::default();
        report.note(Kind::Straight, direct);
        report.note(Kind::WarmUp, measured(8, 4, 1234));
        report.note(Kind::Listless, listless);
        report
    }

    #[test]
    fn savings_are_counted_per_poll() {
        let report = compared(measured(100, 100, 5_000), measured(50, 1, 100));
        assert_eq!(report.saved_percent, 98.0);
        assert_eq!(
            report.verdict(),
            "Listless answered 50 polls with 1 of the 50 reads that the apiserver would have had: \
             98.0 % fewer reads, 96.0 % fewer bytes, 98 % less apiserver CPU, and every response \
             was right. Before that it warmed up with 4 reads, 1.2 kB."
        );
        assert!(report.is_clean());
        assert_eq!(compared(measured(0, 0, 0), measured(0, 0, 0)).saved_percent, 0.0);
    }

    #[test]
    fn a_wrong_response_is_the_verdict() {
        let wrong = Measured {
            wrong_answers: 2,
            first_fault: Some("3 pods instead of 4".to_owned()),
            ..measured(5, 1, 1)
        };
        let report = compared(measured(5, 5, 5), wrong);
        assert!(!report.is_clean());
        assert!(report.verdict().starts_with("2 responses were wrong or missing (first: 3 pods"));
    }

    #[test]
    fn a_terminal_is_redrawn_and_a_pipe_gets_one_table() {
        let report = compared(measured(1, 1, 20_000_000), measured(0, 0, 0));
        for (terminal, tables) in [(true, 2), (false, 1)] {
            let mut out = Vec::new();
            let mut table = Table::new(&mut out, terminal, Screen::PLAIN);
            table.draw(&report).expect("memory takes all");
            table.finish(&report).expect("memory takes all");
            let text = String::from_utf8(out).expect("UTF-8");
            assert_eq!(text.matches("polls answered").count(), tables);
            assert_eq!(text.contains('\x1b'), terminal);
            assert!(text.contains("20.0 MB"), "{text}");
        }
    }
}
