//! What a session knows of one object, and whether a snapshot shows it. Pure.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::{
    super::{Expectation, Imminence, KnownLabels, Source, Verdict},
    by_version,
};
use crate::{
    api::{ObjectKey, query::Query, selector::Labels, version::ResourceVersion},
    cache::{
        object::{Object, Uid},
        store::Snapshot,
    },
    mutants::{Mutant, is_on},
};

/// An object, and what a snapshot that shows it must live up to.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) expectation: Expectation,
    pub(super) at: Instant,
    pub(super) proven: Option<ResourceVersion>,
    /// What was known before of an object whose version is not known any more.
    pub(super) before: Option<(ResourceVersion, KnownLabels)>,
}

// === impl Expected ===

impl Expected {
    /// The version from which a snapshot is sure to hold what is expected.
    pub(super) fn version(&self) -> Option<&ResourceVersion> {
        match &self.expectation {
            Expectation::AtLeast(version, _) | Expectation::Gone { version: Some(version), .. } => {
                Some(version)
            }
            _ => self.proven.as_ref(),
        }
    }

    /// The object's version as it was told, and the labels it had, if they were.
    pub(super) fn known(&self) -> Option<(ResourceVersion, KnownLabels)> {
        match &self.expectation {
            Expectation::AtLeast(version, labels) => Some((version.clone(), labels.clone())),
            Expectation::Gone { version: Some(version), .. } => Some((version.clone(), None)),
            _ => self.before.clone(),
        }
    }

    /// The same as a floor. An object has a version only because an event has it, too.
    pub(super) fn floor(&self) -> Option<(&ResourceVersion, Source)> {
        let source = match &self.expectation {
            Expectation::AtLeast(..) | Expectation::Gone { version: Some(_), .. } => Source::Cache,
            _ => Source::Storage,
        };
        self.version().map(|version| (version, source))
    }

    pub(super) fn judge(&self, key: &ObjectKey, query: &Query, snapshot: &Snapshot) -> Verdict {
        let held = snapshot.object(key);
        if let Some((version, labels)) = &self.before
            && !holds(held, version, labels, query, snapshot)
        {
            return Verdict::Behind(version.clone(), Imminence::Likely);
        }
        match &self.expectation {
            Expectation::AtLeast(version, labels)
                if holds(held, version, labels, query, snapshot) =>
            {
                Verdict::Satisfied
            }
            Expectation::AtLeast(version, _) => Verdict::Behind(version.clone(), Imminence::Likely),
            Expectation::Gone { .. } if is_on(Mutant::DeletionForgotten) => Verdict::Satisfied,
            // What has it no more may be from before it came.
            Expectation::Gone { version: version @ Some(_), .. } => {
                by_version(version, snapshot, || Verdict::Leaving)
            }
            Expectation::Gone { uid, version: None } => {
                let Some(object) = held else { return Verdict::Satisfied };
                if uid.as_ref().is_some_and(|uid| Uid::new(uid) != *object.uid()) {
                    return Verdict::Satisfied;
                }
                by_version(&self.proven, snapshot, || Verdict::Leaving)
            }
            // Which labels it carries is unknown: only a read without label requirements can miss it.
            Expectation::Exists if held.is_some() || !query.labels.is_everything() => {
                Verdict::Satisfied
            }
            Expectation::Exists | Expectation::Uncertain => {
                by_version(&self.proven, snapshot, || Verdict::Barred)
            }
        }
    }
}

/// Whether a snapshot shows an object at this version or later, unless the query cannot select it.
fn holds(
    held: Option<&Object>,
    version: &ResourceVersion,
    labels: &KnownLabels,
    query: &Query,
    snapshot: &Snapshot,
) -> bool {
    snapshot.version() >= version
        || match held {
            Some(object) => object.version() >= version,
            None => !could_match(query, labels),
        }
}

fn could_match(query: &Query, labels: &KnownLabels) -> bool {
    labels.as_ref().is_none_or(|labels| query.labels.matches(&KnownSet(labels)))
}

struct KnownSet<'a>(&'a BTreeMap<String, String>);

impl Labels for KnownSet<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }
}
