//! The generator of `docs/metrics.md`.

use std::fmt::Write;

use super::{
    labels::join,
    metric::{Kind, Label, Metric, Values},
    table::{Section, TABLE},
};

const INTRODUCTION: &str = "\
# Metrics

<!-- Generated from the table in `src/metrics/table.rs`; change it there, then run
     `LISTLESS_UPDATE=1 cargo test --test it metrics`. -->

`GET /metrics` on the admin or the health address returns all metrics in the Prometheus text format.
A counter with labels is absent until it first counts. No label contains a namespace, an object's name
or a user. Label sets are bounded: at most 256 resources have labels of their own.
";

/// A label of at least this many metrics is described once.
const COMMON: usize = 2;

/// Returns the whole document.
pub fn document() -> String {
    let mut out = String::from(INTRODUCTION);
    let common = common_labels();
    push(&mut out, format_args!("\n## Common labels\n\n"));
    for line in &common {
        push(&mut out, format_args!("{line}"));
    }
    for section in TABLE {
        write_section(&mut out, section, &common);
    }
    out
}

/// The lines of the labels that several metrics have with the same values, in order of appearance.
fn common_labels() -> Vec<String> {
    let metrics = TABLE.iter().flat_map(|section| section.metrics);
    let lines: Vec<String> = metrics.flat_map(|metric| metric.labels).map(label_line).collect();
    let count = |line: &String| lines.iter().filter(|other| *other == line).count();
    let mut common: Vec<String> = Vec::new();
    for line in lines.iter().filter(|line| count(line) >= COMMON) {
        // A name stands for one set of values.
        let name = |line: &str| line.split(": ").next().map(str::to_owned);
        if common.iter().all(|known| name(known) != name(line)) {
            common.push(line.clone());
        }
    }
    common
}

fn write_section(out: &mut String, section: &Section, common: &[String]) {
    push(out, format_args!("\n## {}\n", section.title));
    for metric in section.metrics {
        write_metric(out, metric, common);
    }
}

fn write_metric(out: &mut String, metric: &Metric, common: &[String]) {
    let kind = match metric.kind {
        Kind::Counter => "Counter",
        Kind::Gauge => "Gauge",
        Kind::Histogram(_) => "Histogram",
    };
    let unit = match metric.unit.as_str() {
        "count" => String::new(),
        unit => format!(" of {unit}"),
    };
    push(out, format_args!("\n### `{}`\n\n{kind}{unit}. {}\n", metric.name, metric.help));
    if let Kind::Histogram(bounds) = metric.kind {
        let bounds: Vec<_> = bounds.iter().map(f64::to_string).collect();
        push(out, format_args!("\nBuckets: {}.\n", bounds.join(", ")));
    }
    let is_common = |label: &&Label| common.contains(&label_line(label));
    let (shared, own): (Vec<&Label>, Vec<&Label>) = metric.labels.iter().partition(is_common);
    if !shared.is_empty() {
        let names: Vec<_> = shared.iter().map(|label| label.name).collect();
        push(out, format_args!("\nLabels: {}.\n", join(&names)));
    }
    if !own.is_empty() {
        out.push('\n');
    }
    for label in own {
        push(out, format_args!("{}", label_line(label)));
    }
}

fn label_line(Label { name, values }: &Label) -> String {
    let values = match values {
        Values::Of(values) => join(&values()),
        Values::Described(words) => (*words).to_owned(),
    };
    format!("- `{name}`: {values}.\n")
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a string cannot fail");
}
