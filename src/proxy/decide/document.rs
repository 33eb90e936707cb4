//! The decision whether a document of discovery or OpenAPI may be returned from the cache. Pure.
//!
//! It may if both watches prove that none of its sources has changed recently. The apiserver must
//! have confirmed it to this caller after the last change. Every other request is forwarded.

use std::{sync::Arc, time::Duration};

use http::Request;
use tokio::time::Instant;

use super::{ForwardReason, Plan, proof::PROGRESS_MAX};
use crate::proxy::{
    discovery::{Condition, Confirmed, Document, Form, Held, Subject, Wanted, WatchProof},
    identify::Caller,
};

/// The plan for a document.
#[derive(Debug)]
pub struct DocumentPlan {
    /// The requested document.
    pub wanted: Box<Wanted>,
    /// The source of the response.
    pub source: DocumentSource,
}

/// The source of a document.
#[derive(Debug)]
pub enum DocumentSource {
    /// The cache.
    Memory(Arc<Document>, Form),
    /// The apiserver. It need not send the document again if this one is still valid.
    Ask(Option<Arc<Document>>),
}

/// The documents that may be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// All that are proven to be valid.
    Documents,
    /// None, by configuration.
    Nothing,
}

/// The time for which documents are forwarded after a change. The apiserver rebuilds them
/// independently of its watches, OpenAPI every second, and may return the old ones for a moment.
pub const SETTLING: Duration = Duration::from_secs(10);

// === impl Keeping ===

impl Keeping {
    /// Returns the configured value.
    pub fn of(discovery_cache: bool) -> Self {
        if discovery_cache { Self::Documents } else { Self::Nothing }
    }
}

/// Returns the requested document if the cache could answer, or else how the request is forwarded.
pub fn document_candidate<B>(
    request: &Request<B>,
    caller: Caller,
    keeping: Keeping,
) -> Result<Wanted, Plan> {
    let candidate = match (Wanted::of(request), caller, keeping) {
        (None, ..) => Err(ForwardReason::NonResource),
        (_, Caller::Other(unauthenticated), _) => Err(unauthenticated.into()),
        (_, _, Keeping::Nothing) => Err(ForwardReason::NeverCached),
        (Some(wanted), Caller::Own | Caller::Bearer(_), Keeping::Documents) => Ok(wanted),
    };
    candidate.map_err(Plan::keep)
}

/// Selects the source of the document by its cached state and by the state of the watches.
pub fn decide_document(wanted: Wanted, held: Held, watch_proof: &WatchProof, now: Instant) -> Plan {
    let source = match held {
        Held::Confirmed(confirmed) => match form(&wanted.condition, &confirmed.document) {
            Some(form) if holds(&confirmed, &wanted.subject, watch_proof, now) => {
                DocumentSource::Memory(confirmed.document, form)
            }
            _ => DocumentSource::Ask(Some(confirmed.document)),
        },
        Held::Known(document) => DocumentSource::Ask(Some(document)),
        Held::Nothing => DocumentSource::Ask(None),
    };
    Plan::Document(DocumentPlan { wanted: Box::new(wanted), source })
}

/// Reports whether the apiserver would still return this document to this caller.
fn holds(confirmed: &Confirmed, subject: &Subject, watch_proof: &WatchProof, now: Instant) -> bool {
    let Some(proven_at) = watch_proof.proven_at else { return false };
    now.saturating_duration_since(proven_at) <= PROGRESS_MAX
        && confirmed.at >= watch_proof.changed_at + SETTLING
        && now.saturating_duration_since(confirmed.at) < confirmed.believed
        && !subject.is_described_by(&watch_proof.remote)
}

/// Returns the form of the response, if it is known: a document without an entity tag has no
/// conditional form.
fn form(condition: &Condition, document: &Document) -> Option<Form> {
    match (condition, document.tag()) {
        (Condition::Tag(asked), Some(tag)) if asked == tag => {
            document.knows_not_modified().then_some(Form::NotModified)
        }
        _ => Some(Form::Whole),
    }
}

#[cfg(test)]
mod tests;
