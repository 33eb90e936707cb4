//! Cached handles per label set, so that recording is one look-up and one atomic operation.
//!
//! Invariant: no family exceeds [`LABEL_SETS_MAX`]; further recordings are dropped. Look-ups take
//! no lock and allocate nothing; only a new label set copies the map.

use std::{hash::Hash, sync::Arc};

use arc_swap::ArcSwap;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Level, Metadata, Recorder};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::metric::{Kind, Metric};
use crate::{api::GroupVersionResource, hash::HashMap};

/// The handles of one metric by label set.
pub(super) struct Family<K, H> {
    metric: &'static Metric,
    recorder: Arc<PrometheusRecorder>,
    handles: ArcSwap<HashMap<K, H>>,
}

/// A handle that a family can cache.
pub(super) trait Handle: Clone {
    /// Registers one label set with the recorder.
    fn register(recorder: &PrometheusRecorder, key: &Key) -> Self;
}

/// A resource as a small number, so that label sets compare without strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ResourceId(u16);

/// The resources with labels of their own.
pub(super) struct Resources(ArcSwap<Known>);

#[derive(Clone, Default)]
struct Known {
    ids: HashMap<GroupVersionResource, ResourceId>,
    resources: Vec<GroupVersionResource>,
}

/// The labels of a resource.
pub(super) enum Admission {
    /// It has labels of its own, now or before.
    Own(ResourceId),
    /// It has the label `other`.
    Other,
    /// It has the label `other` because there is no room.
    Full,
}

/// The maximum number of label sets per metric. Further recordings are dropped.
const LABEL_SETS_MAX: usize = 8192;
/// The maximum number of resources with labels of their own. The table's text repeats the number.
pub(super) const RESOURCES_MAX: usize = 256;

const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

// === impl Family ===

impl<K: Copy + Eq + Hash, H: Handle> Family<K, H> {
    pub(super) fn new(recorder: &Arc<PrometheusRecorder>, metric: &'static Metric) -> Self {
        describe(recorder, metric);
        Self { metric, recorder: recorder.clone(), handles: ArcSwap::default() }
    }

    /// Uses the handle of a label set. `values` returns the labels' values if the set is new.
    pub(super) fn with<T, const N: usize>(
        &self,
        set: K,
        values: impl FnOnce() -> [String; N],
        record: impl FnOnce(&H) -> T,
    ) -> Option<T> {
        if let Some(handle) = self.handles.load().get(&set) {
            return Some(record(handle));
        }
        self.add(set, &values()).as_ref().map(record)
    }

    /// Returns every label set with its handle.
    pub(super) fn all(&self) -> Arc<HashMap<K, H>> {
        self.handles.load_full()
    }

    fn add(&self, set: K, values: &[String]) -> Option<H> {
        if self.handles.load().len() >= LABEL_SETS_MAX {
            return None;
        }
        let handle = H::register(&self.recorder, &key(self.metric, values));
        self.handles.rcu(|handles| {
            let mut handles = HashMap::clone(handles);
            handles.insert(set, handle.clone());
            handles
        });
        Some(handle)
    }
}

/// Returns the only handle of a metric without labels.
pub(super) fn single<H: Handle>(recorder: &Arc<PrometheusRecorder>, metric: &'static Metric) -> H {
    describe(recorder, metric);
    H::register(recorder, &key(metric, &[]))
}

fn key(metric: &'static Metric, values: &[String]) -> Key {
    debug_assert_eq!(metric.labels.len(), values.len(), "{}", metric.name);
    let labels = metric.labels.iter().zip(values);
    let labels: Vec<_> =
        labels.map(|(label, value)| metrics::Label::new(label.name, value.clone())).collect();
    Key::from_parts(metric.name, labels)
}

fn describe(recorder: &PrometheusRecorder, metric: &Metric) {
    let (name, unit) = (KeyName::from_const_str(metric.name), Some(metric.unit));
    match metric.kind {
        Kind::Counter => recorder.describe_counter(name, unit, metric.help.into()),
        Kind::Gauge => recorder.describe_gauge(name, unit, metric.help.into()),
        Kind::Histogram(_) => recorder.describe_histogram(name, unit, metric.help.into()),
    }
}

impl Handle for Counter {
    fn register(recorder: &PrometheusRecorder, key: &Key) -> Self {
        recorder.register_counter(key, &METADATA)
    }
}

impl Handle for Gauge {
    fn register(recorder: &PrometheusRecorder, key: &Key) -> Self {
        recorder.register_gauge(key, &METADATA)
    }
}

impl Handle for Histogram {
    fn register(recorder: &PrometheusRecorder, key: &Key) -> Self {
        recorder.register_histogram(key, &METADATA)
    }
}

// === impl Resources ===

impl Resources {
    pub(super) fn new() -> Self {
        Self(ArcSwap::default())
    }

    /// Returns the id of a resource. An unknown one gets an id once it is proven to exist.
    pub(super) fn admit(&self, resource: &GroupVersionResource, proven: bool) -> Admission {
        if let Some(id) = self.0.load().ids.get(resource) {
            return Admission::Own(*id);
        }
        if !proven {
            return Admission::Other;
        }
        self.0.rcu(|known| known.with(resource));
        match self.0.load().ids.get(resource) {
            Some(id) => Admission::Own(*id),
            None => Admission::Full,
        }
    }

    /// Returns the group, version and resource labels of an id.
    pub(super) fn labels(&self, id: ResourceId) -> [String; 3] {
        let known = self.0.load();
        match known.resources.get(usize::from(id.0)) {
            Some(resource) => {
                [&resource.group, &resource.version, &resource.resource].map(ToString::to_string)
            }
            None if id == ResourceId::NONE => Default::default(),
            None => ["other", "other", "other"].map(String::from),
        }
    }
}

// === impl ResourceId ===

impl ResourceId {
    /// The id of all resources without labels of their own.
    pub(super) const OTHER: Self = Self(u16::MAX);
    /// The id for no resource.
    pub(super) const NONE: Self = Self(u16::MAX - 1);
}

// === impl Known ===

impl Known {
    fn with(&self, resource: &GroupVersionResource) -> Self {
        let mut known = self.clone();
        if known.resources.len() < RESOURCES_MAX && !known.ids.contains_key(resource) {
            let id = u16::try_from(known.resources.len()).expect("bounded by RESOURCES_MAX");
            known.ids.insert(resource.clone(), ResourceId(id));
            known.resources.push(resource.clone());
        }
        known
    }
}
