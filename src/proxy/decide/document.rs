//! Whether a document of discovery or OpenAPI may be given without asking. Pure.
//!
//! It may while both watches prove that nothing it is made from has changed since well before the
//! apiserver itself last said to this very caller that it holds. Everything else is asked.

use std::{sync::Arc, time::Duration};

use http::Request;
use tokio::time::Instant;

use super::{ForwardReason, Plan, proof::PROGRESS_MAX};
use crate::{
    mutants::{Mutant, is_on},
    proxy::{
        discovery::{Condition, Confirmed, Document, Form, Held, Standing, Subject, Wanted},
        identify::Caller,
    },
};

/// What is done about a document.
#[derive(Debug)]
pub struct DocumentPlan {
    /// What is asked for.
    pub wanted: Box<Wanted>,
    /// Where it comes from.
    pub source: DocumentSource,
}

/// Where a document comes from.
#[derive(Debug)]
pub enum DocumentSource {
    /// From memory.
    Memory(Arc<Document>, Form),
    /// From the apiserver, which need not send it again if it is still this one.
    Ask(Option<Arc<Document>>),
}

/// Whether documents may be kept at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// As far as they are proven.
    Documents,
    /// The configuration says no.
    Nothing,
}

/// After a change the apiserver may still show the old documents for a moment: it makes them anew
/// beside the watches that tell of it, OpenAPI's every second. So long they are asked for each time.
pub const SETTLING: Duration = Duration::from_secs(10);

// === impl Keeping ===

impl Keeping {
    /// As configured.
    pub fn of(discovery_cache: bool) -> Self {
        if discovery_cache { Self::Documents } else { Self::Nothing }
    }
}

/// The document asked for, if memory could answer; otherwise how the request is forwarded.
pub fn document_candidate<B>(
    request: &Request<B>,
    caller: Caller,
    keeping: Keeping,
) -> Result<Wanted, Plan> {
    let candidate = match (Wanted::of(request), caller, keeping) {
        (None, ..) => Err(ForwardReason::NonResource),
        (_, Caller::Other(stranger), _) => Err(stranger.into()),
        (_, _, Keeping::Nothing) => Err(ForwardReason::NeverCached),
        (Some(wanted), Caller::Own | Caller::Bearer(_), Keeping::Documents) => Ok(wanted),
    };
    candidate.map_err(Plan::keep)
}

/// Where the document comes from, by what is held of it and what the watches prove.
pub fn decide_document(wanted: Wanted, held: Held, standing: &Standing, now: Instant) -> Plan {
    let source = match held {
        Held::Confirmed(confirmed) => match form(&wanted.condition, &confirmed.document) {
            Some(form) if holds(&confirmed, &wanted.subject, standing, now) => {
                DocumentSource::Memory(confirmed.document, form)
            }
            _ => DocumentSource::Ask(Some(confirmed.document)),
        },
        Held::Known(document) => DocumentSource::Ask(Some(document)),
        Held::Nothing => DocumentSource::Ask(None),
    };
    Plan::Document(DocumentPlan { wanted: Box::new(wanted), source })
}

/// Whether the document is still what the apiserver would give this caller.
fn holds(confirmed: &Confirmed, subject: &Subject, standing: &Standing, now: Instant) -> bool {
    let Some(proven_at) = standing.proven_at else { return false };
    let settling = if is_on(Mutant::DocumentsSettleAtOnce) { Duration::ZERO } else { SETTLING };
    now.saturating_duration_since(proven_at) <= PROGRESS_MAX
        && confirmed.at >= standing.changed_at + settling
        && now.saturating_duration_since(confirmed.at) < confirmed.believed
        && !subject.is_told_by(&standing.remote)
}

/// The form of the answer, if it is known: a document without a tag knows no conditions.
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
