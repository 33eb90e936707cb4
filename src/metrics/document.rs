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

/// Returns the whole document.
pub fn document() -> String {
    let mut out = String::from(INTRODUCTION);
    for section in TABLE {
        write_section(&mut out, section);
    }
    out
}

fn write_section(out: &mut String, section: &Section) {
    push(out, format_args!("\n## {}\n", section.title));
    for metric in section.metrics {
        write_metric(out, metric);
    }
}

fn write_metric(out: &mut String, metric: &Metric) {
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
    if !metric.labels.is_empty() {
        out.push('\n');
    }
    for Label { name, values } in metric.labels {
        let values = match values {
            Values::Of(values) => join(&values()),
            Values::Described(words) => (*words).to_owned(),
        };
        push(out, format_args!("- `{name}`: {values}.\n"));
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a string cannot fail");
}
