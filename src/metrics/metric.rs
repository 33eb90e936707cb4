//! The description of one metric, without its values.

use metrics::Unit;

/// One metric, as exported and documented.
#[derive(Debug)]
pub(super) struct Metric {
    /// The full name.
    pub(super) name: &'static str,
    /// The type in Prometheus.
    pub(super) kind: Kind,
    /// The unit of its values.
    pub(super) unit: Unit,
    /// The help text: one sentence.
    pub(super) help: &'static str,
    /// Its labels, in order.
    pub(super) labels: &'static [Label],
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// A value that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Counts in buckets with these upper bounds.
    Histogram(&'static [f64]),
}

/// One label of a metric.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    /// Its name.
    pub(super) name: &'static str,
    /// Its possible values.
    pub(super) values: Values,
}

/// The possible values of a label.
#[derive(Clone, Copy, Debug)]
pub(super) enum Values {
    /// A fixed list.
    Of(fn() -> Vec<&'static str>),
    /// A description in words, without a full stop.
    Described(&'static str),
}

// === impl Metric and Label ===

/// Upper bounds for times from 0.1 ms, a usual response from memory, to a minute.
const SECONDS: &[f64] = &[
    0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];

pub(super) const fn described(name: &'static str, values: &'static str) -> Label {
    Label { name, values: Values::Described(values) }
}

pub(super) const fn counter(
    name: &'static str,
    unit: Unit,
    labels: &'static [Label],
    help: &'static str,
) -> Metric {
    Metric { name, kind: Kind::Counter, unit, help, labels }
}

pub(super) const fn gauge(
    name: &'static str,
    unit: Unit,
    labels: &'static [Label],
    help: &'static str,
) -> Metric {
    Metric { name, kind: Kind::Gauge, unit, help, labels }
}

pub(super) const fn seconds(
    name: &'static str,
    labels: &'static [Label],
    help: &'static str,
) -> Metric {
    Metric { name, kind: Kind::Histogram(SECONDS), unit: Unit::Seconds, help, labels }
}
