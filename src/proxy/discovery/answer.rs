//! The way of a request for a document: planned, answered from memory, or asked for and kept.
//!
//! Branches over what the apiserver says, never over what it might: what is no 200 and no 304 is given
//! to the client as it came.

use std::sync::Arc;

use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::{Condition, Discovery, Document, Held, Wanted, collect::Collecting};
use crate::{
    api::request::{RequestInfo, ResourceRequest},
    body::Body,
    error::Error,
    metrics::DocumentResult,
    proxy::{
        Proxy,
        coalesce::{CoalesceKey, Departure, Landed},
        decide::{self, DocumentPlan, DocumentSource, ForwardReason, Keeping, Plan, Rewriting},
        forward::Pupils,
        identify::Caller,
        observe::RequestLog,
        sessions::Visit,
    },
    upstream,
};

/// A write under way of something that documents are made from.
pub(in crate::proxy) struct Noticed(Discovery);

/// What is held of a document that is asked for.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct Known<'a> {
    pub(in crate::proxy) document: Option<&'a Arc<Document>>,
    pub(in crate::proxy) offered: Offer,
}

/// Whether the apiserver is told of it, so that it need not send it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) enum Offer {
    /// By its tag.
    Tag,
    /// It is not: the request stays as it came.
    Nothing,
}

/// What the documents are made from.
const DEFINING: [(&str, &str); 2] = [
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
];

// === impl Proxy ===

impl Proxy {
    /// What becomes of a request that addresses no resource.
    pub(in crate::proxy) async fn plan_document<B>(
        &self,
        caller: Caller,
        request: &Request<B>,
    ) -> Plan {
        let candidate = {
            let config = self.config.borrow();
            let keeping = Keeping::of(config.discovery_cache);
            decide::document_candidate(request, caller, keeping)
        };
        let wanted = match candidate {
            Ok(wanted) => wanted,
            Err(plan) => return plan,
        };
        let held = self.discovery.held(caller, &wanted.key).await;
        let now = Instant::now();
        // A document that nobody has asked for before is asked for whatever the watches prove.
        let standing = match &held {
            Held::Nothing => self.discovery.proven(),
            Held::Known(_) | Held::Confirmed(_) => self.discovery.standing(now),
        };
        decide::decide_document(wanted, held, &standing, now)
    }

    pub(in crate::proxy) async fn document(
        &self,
        visit: &Visit,
        info: &RequestInfo,
        plan: DocumentPlan,
        request: Request<Incoming>,
        log: &mut RequestLog,
    ) -> Result<Response<Body>, Error> {
        let DocumentPlan { wanted, source } = plan;
        let known = match source {
            DocumentSource::Memory(document, form) => {
                let response = document.answer(form, request.headers(), Instant::now());
                return Ok(log.document(DocumentResult::Memory, response));
            }
            DocumentSource::Ask(known) => known,
        };
        let key = CoalesceKey::new(visit.caller(), &request, &Rewriting::Keep);
        let mut result = DocumentResult::NotKept;
        let send = || async {
            let known = Known { document: known.as_ref(), offered: Offer::Tag };
            let asked = self.ask_for(visit, info, &wanted, known, request).await?;
            result = asked.1;
            Ok(asked.0)
        };
        match self.coalesce.fly(key, Departure::AtOnce, send).await {
            Ok(Landed::Sent(response)) => Ok(log.document(result, response)),
            Ok(Landed::Shared(response)) => Ok(log.coalesced(ForwardReason::Discovery, response)),
            Err(error) => Err(Error::upstream(error, info)),
        }
    }

    /// Asks the apiserver, which need not send what is known; keeps what it says.
    pub(in crate::proxy) async fn ask_for(
        &self,
        visit: &Visit,
        info: &RequestInfo,
        wanted: &Wanted,
        known: Known<'_>,
        mut request: Request<Incoming>,
    ) -> Result<(Response<Body>, DocumentResult), upstream::Error> {
        let (caller, at) = (visit.caller(), Instant::now());
        let credentials = request.headers().clone();
        let Known { document: known, offered } = known;
        let offer = offered == Offer::Tag && wanted.condition == Condition::Absent;
        let offered = known.filter(|_| offer);
        if let Some(tag) = offered.and_then(|document| document.tag()) {
            request.headers_mut().insert(header::IF_NONE_MATCH, tag.clone());
        }
        let (forwarder, pupils) = (&self.forwarder, Pupils::one(&visit.session));
        let sent = forwarder.forward(caller, info, &Rewriting::Keep, request, pupils).await?;
        let discovery = &self.discovery;
        match (sent.status(), known) {
            (StatusCode::NOT_MODIFIED, Some(document)) => {
                if offered.is_some() {
                    discovery.confirm(caller, &credentials, &wanted.key, document, at).await;
                    return Ok((document.renewed(sent.headers()), DocumentResult::Revalidated));
                }
                if matches!(&wanted.condition, Condition::Tag(tag) if document.tag() == Some(tag)) {
                    document.learn_not_modified(sent.headers());
                    discovery.confirm(caller, &credentials, &wanted.key, document, at).await;
                }
                Ok((sent, DocumentResult::Revalidated))
            }
            (StatusCode::OK, _) => {
                let (discovery, key) = (discovery.clone(), wanted.key.clone());
                let headers = sent.headers().clone();
                let keep = move |chunks| {
                    let Some(kept) = Document::of(&headers, &chunks, at).map(Arc::new) else {
                        return;
                    };
                    tokio::spawn(async move {
                        discovery.keep(caller, &credentials, &key, kept, at).await;
                    });
                };
                let sent = sent.map(|body| Collecting::wrap(body, keep));
                Ok((sent, DocumentResult::Fetched))
            }
            _ => {
                discovery.forget(caller, &wanted.key).await;
                Ok((sent, DocumentResult::NotKept))
            }
        }
    }
}

// === impl Discovery ===

impl Discovery {
    /// A request is about to be forwarded: if it changes what documents are made from, they count as
    /// changed from now on, and once more when its answer is there or given up.
    pub(in crate::proxy) fn notice(&self, info: &RequestInfo) -> Option<Noticed> {
        info.resource_request().is_some_and(defines).then(|| {
            self.disturbed(Instant::now());
            Noticed(self.clone())
        })
    }
}

// === impl Noticed ===

impl Drop for Noticed {
    fn drop(&mut self) {
        self.0.disturbed(Instant::now());
    }
}

fn defines(request: &ResourceRequest) -> bool {
    let (group, resource) = (&*request.resource.group, &*request.resource.resource);
    request.verb.is_write() && DEFINING.contains(&(group, resource))
}
