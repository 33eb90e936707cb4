//! The apiserver's own metrics, as sums over labels.
//!
//! The text form is read sample by sample; nothing is interpreted beyond names and labels.

use std::collections::BTreeMap;

/// Samples of one `/metrics` answer.
#[derive(Clone, Debug, Default)]
pub struct RequestCounts {
    samples: Vec<Sample>,
}

#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

// === impl RequestCounts ===

impl RequestCounts {
    /// Reads the Prometheus text form; lines that are not samples are skipped.
    pub fn parse(text: &str) -> Self {
        Self { samples: text.lines().filter_map(Sample::parse).collect() }
    }

    /// Requests ended so far for a verb (`LIST`, `WATCH`, …) and a resource.
    pub fn ended(&self, verb: &str, resource: &str) -> u64 {
        self.sum("apiserver_request_total", &[("verb", verb), ("resource", resource)]) as u64
    }

    /// Long-running requests open now for a verb and a resource.
    pub fn open(&self, verb: &str, resource: &str) -> u64 {
        self.sum("apiserver_longrunning_requests", &[("verb", verb), ("resource", resource)]) as u64
    }

    /// Requests that arrived so far, whether they have ended or not.
    pub fn arrived(&self, verb: &str, resource: &str) -> u64 {
        self.ended(verb, resource) + self.open(verb, resource)
    }

    /// The same for each value of one more label.
    pub fn sums(&self, name: &str, labels: &[(&str, &str)], by: &str) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        let matching = self.samples.iter().filter(|sample| sample.name == name);
        for sample in matching.filter(|sample| sample.carries(labels)) {
            for (_, value) in sample.labels.iter().filter(|(name, _)| name == by) {
                *sums.entry(value.clone()).or_default() += sample.value;
            }
        }
        sums
    }

    /// The sum of all samples of a metric that carry these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let matching = self.samples.iter().filter(|sample| sample.name == name);
        matching.filter(|sample| sample.carries(labels)).map(|sample| sample.value).sum()
    }
}

// === impl Sample ===

impl Sample {
    fn parse(line: &str) -> Option<Self> {
        if line.starts_with('#') {
            return None;
        }
        let (series, value) = line.rsplit_once(' ')?;
        let value = value.parse().ok()?;
        let (name, labels) = match series.split_once('{') {
            Some((name, rest)) => (name, parse_labels(rest.strip_suffix('}')?)),
            None => (series, Vec::new()),
        };
        Some(Self { name: name.to_owned(), labels, value })
    }

    fn carries(&self, wanted: &[(&str, &str)]) -> bool {
        let has = |(key, value): &(&str, &str)| {
            self.labels.iter().any(|(name, held)| name == key && held == value)
        };
        wanted.iter().all(has)
    }
}

/// Label values of the apiserver's request metrics hold no quotes, so `",` ends each of them.
fn parse_labels(text: &str) -> Vec<(String, String)> {
    let text = text.strip_suffix('"').unwrap_or(text);
    let pairs = text.split("\",").filter_map(|pair| pair.split_once("=\""));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
