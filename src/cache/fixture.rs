//! Objects, lists and queries for the tests of the cache.

use std::sync::Arc;

use super::{form::Envelope, object::Object, reader::Reader, rebuild::Rebuild, store::Snapshot};
use crate::api::{
    GroupVersionResource, Scope,
    form::Form,
    query::Query,
    selector::{FieldSelector, LabelSelector},
    version::ResourceVersion,
};

/// A pod with the properties that tests use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pod {
    pub namespace: &'static str,
    pub name: String,
    pub uid: String,
    pub version: u64,
    pub labels: Vec<(&'static str, &'static str)>,
    pub node: &'static str,
    /// The number of bytes that are added to the pod.
    pub padding: usize,
}

impl Pod {
    pub(super) fn new(namespace: &'static str, name: &str, version: u64) -> Self {
        let (name, uid) = (name.to_owned(), format!("uid-{name}"));
        Self { namespace, name, uid, version, labels: vec![], node: "", padding: 0 }
    }

    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns the pod as an item of a LIST.
    pub(super) fn item(&self) -> String {
        let Self { namespace, name, uid, version, node, .. } = self;
        let labels: Vec<_> =
            self.labels.iter().map(|(key, value)| format!(r#""{key}":"{value}""#)).collect();
        let (labels, padding) = (labels.join(","), "x".repeat(self.padding));
        format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{version}","labels":{{{labels}}},"annotations":{{"p":"{padding}"}}}},"spec":{{"nodeName":"{node}"}}}}"#
        )
    }

    /// Returns the pod as in a GET's body and a watch event, without the newline.
    pub(super) fn whole(&self) -> String {
        format!(r#"{{"kind":"Pod","apiVersion":"v1",{}"#, &self.item()[1..])
    }

    /// Returns the pod as a line of a watch.
    pub(super) fn event(&self, kind: &str) -> String {
        format!("{{\"type\":\"{kind}\",\"object\":{}}}\n", self.whole())
    }

    pub(super) fn object(&self) -> Object {
        let mut reader = reader();
        reader.item(self.item().as_bytes()).expect("a pod").0
    }
}

pub(super) fn pods() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "pods")
}

pub(super) fn reader() -> Reader {
    Reader::new(pods(), Scope::All, Form::Json)
}

pub(super) fn version(number: u64) -> ResourceVersion {
    ResourceVersion::parse(&number.to_string()).expect("a version")
}

pub(super) fn query(namespace: Option<&str>, labels: &str, fields: &str) -> Query {
    Query {
        resource: pods(),
        scope: namespace.map_or(Scope::All, |namespace| Scope::Namespace(namespace.into())),
        labels: LabelSelector::parse(labels).expect("a label selector"),
        fields: FieldSelector::parse(fields).expect("a field selector"),
    }
}

pub(super) fn list_header(version: u64) -> String {
    format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":["#
    )
}

/// Returns a LIST's body.
pub(super) fn list(version: u64, pods: &[Pod]) -> String {
    let items: Vec<_> = pods.iter().map(Pod::item).collect();
    format!("{}{}]}}\n", list_header(version), items.join(","))
}

pub(super) fn envelope() -> Envelope {
    Envelope::learn(&list_header(1), "]}\n").expect("an envelope").0
}

/// Returns a snapshot of pods in any order, based on a previous one.
pub(super) fn snapshot(base: Option<Arc<Snapshot>>, at: u64, pods: &[Pod]) -> Arc<Snapshot> {
    let mut rebuild = Rebuild::of(base, Form::Json, Default::default());
    for pod in pods {
        rebuild.push(pod.object()).expect("no duplicate");
    }
    Arc::new(rebuild.finish(version(at), envelope()).expect("no duplicate"))
}

/// Returns all bytes of a body.
pub(super) fn text(chunks: impl IntoIterator<Item = bytes::Bytes>) -> String {
    let bytes: Vec<u8> = chunks.into_iter().flatten().collect();
    String::from_utf8(bytes).expect("UTF-8")
}
