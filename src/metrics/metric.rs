//! What is known about one metric, apart from its values.

use metrics::Unit;

/// One metric, as exported and documented.
#[derive(Debug)]
pub(super) struct Metric {
    /// The full name.
    pub(super) name: &'static str,
    /// What Prometheus makes of it.
    pub(super) kind: Kind,
    /// The unit of its values.
    pub(super) unit: Unit,
    /// One sentence.
    pub(super) help: &'static str,
    /// Its labels, in order.
    pub(super) labels: &'static [Label],
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// Only grows.
    Counter,
    /// Goes both ways.
    Gauge,
    /// Counts values in buckets with these upper bounds.
    Histogram(&'static [f64]),
}

/// One label of a metric.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    /// Its name.
    pub(super) name: &'static str,
    /// The values it can take.
    pub(super) values: Values,
}

/// The values a label can take.
#[derive(Clone, Copy, Debug)]
pub(super) enum Values {
    /// One of these.
    Of(fn() -> Vec<&'static str>),
    /// Described in words, without a full stop.
    Described(&'static str),
}

// === impl Metric and Label ===

/// Upper bounds for times from a tenth of a millisecond, what memory answers in, to a minute.
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
