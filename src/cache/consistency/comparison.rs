//! Comparison of a snapshot with a list at the same version. Pure.
//!
//! The list is compared while it arrives; at most one item of it is held. Digests decide, so that the
//! order of the list does not matter. The first difference in key order is for the log.

use std::{borrow::Cow, sync::Arc};

use serde::Deserialize;

use crate::{
    api::{ObjectKey, version::ResourceVersion},
    cache::{
        digest::Digest,
        held::Held,
        split::{SplitError, Splitter},
        store::{Position, Snapshot},
    },
};

/// A comparison under way.
#[derive(Debug)]
pub(super) struct Comparison {
    splitter: Splitter,
    walk: Walk,
}

/// The objects of the snapshot, and those of the list so far.
#[derive(Debug)]
struct Walk {
    held: Arc<Snapshot>,
    extent: Extent,
    /// The position before the object that the next item should equal.
    position: Position,
    listed: Digest,
    difference: Option<Difference>,
    /// The first object with other bytes at the same version.
    reshaped: Option<ObjectKey>,
}

/// The part of each object that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// The version, which a list of metadata shows.
    Version,
    /// All bytes. A conversion webhook can change those of custom resources at the same version.
    Bytes,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    /// Both have the same content.
    Equal,
    /// They have other objects, or an object at another version.
    Different(Difference),
    /// This object has other bytes at the same version.
    Reshaped(ObjectKey),
}

/// An object that the snapshot and the list do not show alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// The object's key.
    pub key: ObjectKey,
    /// The object's version in the snapshot, if it is there.
    pub held: Option<ResourceVersion>,
    /// The object's version in the list, if it is there.
    pub listed: Option<ResourceVersion>,
}

/// A reason why a list cannot be compared.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    /// The list cannot be cut into items.
    #[error("the list is malformed")]
    Split(#[from] SplitError),
    /// The list or an item is not as every list is.
    #[error("the list or an item of it is malformed")]
    Malformed(#[from] serde_json::Error),
    /// An item has no usable version.
    #[error("an item has no usable resourceVersion")]
    ItemVersion,
    /// The list has other items than requested.
    #[error("the list is a {0:?}")]
    OtherKind(String),
    /// The list goes on elsewhere.
    #[error("the list is incomplete")]
    Incomplete,
    /// The list is at another version.
    #[error("the list is at {0:?} and not at the version in the request")]
    OtherVersion(String),
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    metadata: ListMeta<'a>,
}

#[derive(Deserialize)]
struct ListMeta<'a> {
    #[serde(borrow, rename = "resourceVersion")]
    resource_version: Cow<'a, str>,
    #[serde(borrow, default, rename = "continue")]
    next: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    metadata: ItemMeta<'a>,
}

#[derive(Deserialize)]
struct ItemMeta<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    /// Empty for objects of the cluster's scope.
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, rename = "resourceVersion")]
    resource_version: Cow<'a, str>,
}

const LIST_KIND: &str = "PartialObjectMetadataList";

// === impl Comparison ===

impl Comparison {
    /// Will compare a list with a snapshot; no item above `item_bytes_max` is believed.
    pub(super) fn new(held: Arc<Snapshot>, extent: Extent, item_bytes_max: usize) -> Self {
        let (listed, difference, reshaped) = (Digest::default(), None, None);
        let walk =
            Walk { held, extent, position: Position::default(), listed, difference, reshaped };
        Self { splitter: Splitter::new(item_bytes_max), walk }
    }

    /// Takes the next bytes of the list.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(), Unusable> {
        self.splitter.feed(bytes, |item| self.walk.add(item))
    }

    /// Returns the result, with the first difference.
    pub(super) fn finish(self) -> Result<Compared, Unusable> {
        let (header, trailer) = self.splitter.finish()?;
        let text = header + &trailer;
        let list: List<'_> = serde_json::from_str(&text)?;
        if (list.kind == LIST_KIND) != (self.walk.extent == Extent::Version) {
            return Err(Unusable::OtherKind(list.kind.into_owned()));
        }
        if !list.metadata.next.is_empty() {
            return Err(Unusable::Incomplete);
        }
        if list.metadata.resource_version != self.walk.held.version().as_str() {
            return Err(Unusable::OtherVersion(list.metadata.resource_version.into_owned()));
        }
        Ok(self.walk.finish())
    }
}

// === impl Walk ===

impl Walk {
    fn add(&mut self, item: &[u8]) -> Result<(), Unusable> {
        let Item { metadata } = serde_json::from_slice(item)?;
        let version = ResourceVersion::parse(&metadata.resource_version);
        let version = version.map_err(|_| Unusable::ItemVersion)?;
        let namespace = (!metadata.namespace.is_empty()).then_some(&*metadata.namespace);
        let key = ObjectKey::new(namespace, &metadata.name);
        self.listed.add(&key, &version);
        if self.difference.is_none() {
            self.meet(key, version, item);
        }
        Ok(())
    }

    /// Goes on to the next object, or keeps the difference.
    fn meet(&mut self, key: ObjectKey, version: ResourceVersion, item: &[u8]) {
        let Some(held) = self.current() else {
            self.difference = Some(Difference { key, held: None, listed: Some(version) });
            return;
        };
        if *held.key() == key && *held.version() == version {
            let differs = self.extent == Extent::Bytes && *held.raw() != *item;
            if differs && self.reshaped.is_none() {
                self.reshaped = Some(key);
            }
            self.position = self.held.position_after(self.position);
            return;
        }
        let here = || Some(held.version().clone());
        self.difference = Some(match held.key().cmp(&key) {
            std::cmp::Ordering::Less => {
                Difference { key: held.key().clone(), held: here(), listed: None }
            }
            std::cmp::Ordering::Equal => Difference { key, held: here(), listed: Some(version) },
            std::cmp::Ordering::Greater => Difference { key, held: None, listed: Some(version) },
        });
    }

    fn current(&self) -> Option<Held<'_>> {
        self.held.object_after(self.position)
    }

    fn finish(self) -> Compared {
        let unlisted = self.current().map(|held| Difference {
            key: held.key().clone(),
            held: Some(held.version().clone()),
            listed: None,
        });
        let is_listed = || {
            let objects = self.held.pages().iter().flat_map(|page| page.iter());
            Digest::of(objects) == self.listed
        };
        match (self.difference.or(unlisted), self.reshaped) {
            // The same objects in another order are the same content.
            (Some(difference), _) if !is_listed() => Compared::Different(difference),
            (_, Some(key)) => Compared::Reshaped(key),
            _ => Compared::Equal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::fixture::{Pod, snapshot, version};

    const AT: u64 = 20;

    fn listed(at: u64, pods: &[Pod]) -> String {
        let items: Vec<_> = pods.iter().map(Pod::item).collect();
        format!(
            r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"{at}"}},"items":[{}]}}"#,
            items.join(",")
        )
    }

    fn compared(held: &[Pod], list: &str, chunk: usize) -> Result<Compared, Unusable> {
        compared_as(Extent::Version, held, list, chunk)
    }

    fn compared_as(
        extent: Extent,
        held: &[Pod],
        list: &str,
        chunk: usize,
    ) -> Result<Compared, Unusable> {
        let mut comparison = Comparison::new(snapshot(None, AT, held), extent, 1024);
        for chunk in list.as_bytes().chunks(chunk) {
            comparison.feed(chunk)?;
        }
        comparison.finish()
    }

    /// Enough of them for several pages.
    fn pods() -> Vec<Pod> {
        let pod = |number: u64| Pod::new("a", &format!("p-{number:04}"), number + 1);
        (0..700).map(pod).collect()
    }

    fn difference(key: &str, held: Option<u64>, listed: Option<u64>) -> Compared {
        let (namespace, name) = key.split_once('/').expect("a namespace");
        let key = ObjectKey::new(Some(namespace), name);
        Compared::Different(Difference {
            key,
            held: held.map(version),
            listed: listed.map(version),
        })
    }

    #[test]
    fn equal_content_has_no_difference_whatever_the_chunks_and_the_order() {
        let held = pods();
        let list = listed(AT, &held);
        for chunk in [1, 7, 4096, list.len()] {
            assert_eq!(
                compared(&held, &list, chunk).expect("comparable"),
                Compared::Equal,
                "{chunk}"
            );
        }
        let reversed: Vec<_> = held.iter().rev().cloned().collect();
        assert_eq!(
            compared(&held, &listed(AT, &reversed), 4096).expect("comparable"),
            Compared::Equal
        );
        for list in [
            listed(AT, &[]),
            listed(AT, &[]).replace("[]", "null"),
            listed(AT, &[]).replace(r#","items":[]"#, ""),
        ] {
            assert_eq!(compared(&[], &list, 9).expect("comparable"), Compared::Equal, "{list}");
        }
    }

    #[test]
    fn the_first_difference_is_named_with_both_versions() {
        let held = pods();
        let difference_of = |change: &dyn Fn(&mut Vec<Pod>)| {
            let mut pods = held.clone();
            change(&mut pods);
            compared(&held, &listed(AT, &pods), 4096).expect("comparable")
        };
        let (newer, gone) = (Some(9000), None);
        for (name, change, expected) in [
            (
                "changed",
                &(|pods: &mut Vec<Pod>| pods[600].version = 9000) as &dyn Fn(&mut Vec<Pod>),
                difference("a/p-0600", Some(601), newer),
            ),
            ("missing in the list", &|pods| drop(pods.remove(3)), {
                difference("a/p-0003", Some(4), gone)
            }),
            ("the last is missing", &|pods| drop(pods.pop()), {
                difference("a/p-0699", Some(700), gone)
            }),
            ("not held", &|pods| pods.insert(5, Pod::new("a", "p-0004a", 9000)), {
                difference("a/p-0004a", gone, newer)
            }),
            ("not held at the end", &|pods| pods.push(Pod::new("b", "p", 9000)), {
                difference("b/p", gone, newer)
            }),
            (
                "the first of two",
                &|pods| {
                    pods[600].version = 9000;
                    pods[7].version = 9000;
                },
                difference("a/p-0007", Some(8), newer),
            ),
        ] {
            assert_eq!(difference_of(change), expected, "{name}");
        }
    }

    #[test]
    fn other_bytes_at_the_same_version_are_found_in_a_list_of_whole_objects() {
        let held = pods();
        let list = listed(AT, &held).replace("PartialObjectMetadataList", "WidgetList");
        let whole = |list: &str| compared_as(Extent::Bytes, &held, list, 4096).expect("comparable");
        assert_eq!(whole(&list), Compared::Equal);
        let (name, added) = (r#""name":"p-0600""#, r#""added":1,"name":"p-0600""#);
        let key = ObjectKey::new(Some("a"), "p-0600");
        assert_eq!(whole(&list.replace(name, added)), Compared::Reshaped(key));
        // Another version counts before other bytes.
        let mut pods = held.clone();
        pods[700 - 1].version = 9000;
        let newer = listed(AT, &pods).replace("PartialObjectMetadataList", "WidgetList");
        let expected = difference("a/p-0699", Some(700), Some(9000));
        assert_eq!(whole(&newer.replace(name, added)), expected);
        let metadata = listed(AT, &held);
        let refused = compared_as(Extent::Bytes, &held, &metadata, 4096).expect_err("metadata");
        assert!(matches!(refused, Unusable::OtherKind(_)), "{refused}");
    }

    #[test]
    fn a_list_that_is_not_an_exact_one_of_metadata_proves_nothing() {
        let held = [Pod::new("a", "p", 5)];
        let list = listed(AT, &held);
        type Fits = fn(&Unusable) -> bool;
        let cases: [(String, Fits); 7] = [
            (listed(AT + 1, &held), |error| matches!(error, Unusable::OtherVersion(_))),
            (list.replace("PartialObjectMetadataList", "PodList"), |error| {
                matches!(error, Unusable::OtherKind(_))
            }),
            (list.replace(r#""20"}"#, r#""20","continue":"x"}"#), |error| {
                matches!(error, Unusable::Incomplete)
            }),
            (list[..list.len() - 2].to_owned(), |error| matches!(error, Unusable::Split(_))),
            (list.replace(r#""resourceVersion":"5""#, r#""resourceVersion":"x""#), |error| {
                matches!(error, Unusable::ItemVersion)
            }),
            (list.replace(r#""name":"p","#, ""), |error| matches!(error, Unusable::Malformed(_))),
            ("<html>".to_owned(), |error| matches!(error, Unusable::Malformed(_))),
        ];
        for (list, fits) in cases {
            let error = compared(&held, &list, 16).expect_err(&list);
            assert!(fits(&error), "{list}: {error}");
        }
    }
}
