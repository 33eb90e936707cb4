//! A request for a document: planned, then answered from the cache or forwarded and stored.
//!
//! A response other than 200 and 304 is passed to the client unchanged.

use std::sync::Arc;

use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::{
    Condition, Discovery, Document, Held, Wanted, collect::Collecting, document::is_for_one_caller,
};
use crate::{
    api::request::{RequestInfo, ResourceRequest},
    body::Body,
    error::Error,
    metrics::DocumentResult,
    proxy::{
        Proxy,
        coalesce::{Coalesced, SendTime},
        decide::{self, DocumentPlan, DocumentSource, ForwardReason, Keeping, Plan, Rewriting},
        forward::Learners,
        identify::Caller,
        request_log::RequestLog,
        sessions::RequestContext,
    },
    upstream,
};

/// A write to a source of documents, in progress.
pub(in crate::proxy) struct Noticed {
    discovery: Discovery,
    /// `true` if its end changes documents.
    changes: bool,
}

/// The cached state of a requested document.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct Known<'a> {
    pub(in crate::proxy) document: Option<&'a Arc<Document>>,
    pub(in crate::proxy) offered: Offer,
}

/// The condition of a request to the apiserver, which lets it omit a document that is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) enum Offer {
    /// The entity tag of the cached document.
    Tag,
    /// None: the request stays unchanged.
    Nothing,
}

/// The resources that documents are made from.
const DEFINING: [(&str, &str); 2] = [
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
];

// === impl Proxy ===

impl Proxy {
    /// Returns the plan for a request that addresses no resource.
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
        // A document that was never requested before is forwarded, whatever the watches prove.
        let watch_proof = match &held {
            Held::Nothing => self.discovery.proven(),
            Held::Known(_) | Held::Confirmed(_) => self.discovery.watch_proof(now),
        };
        decide::decide_document(wanted, held, &watch_proof, now)
    }

    pub(in crate::proxy) async fn document(
        &self,
        context: &RequestContext,
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
        let key = self.coalesce_key(context, &request, &Rewriting::Keep);
        let mut result = DocumentResult::NotKept;
        let send = || async {
            let known = Known { document: known.as_ref(), offered: Offer::Tag };
            let asked = self.ask_for(context, info, &wanted, known, request).await?;
            result = asked.1;
            Ok(asked.0)
        };
        match self.coalesce.run(key, SendTime::AtOnce, send).await {
            Ok(Coalesced::Sent(response)) => Ok(log.document(result, response)),
            Ok(Coalesced::Shared(response)) => {
                Ok(log.coalesced(ForwardReason::Discovery, response))
            }
            Err(error) => Err(Error::upstream(error, info)),
        }
    }

    /// Asks the apiserver, which need not send a known document; stores its response.
    pub(in crate::proxy) async fn ask_for(
        &self,
        context: &RequestContext,
        info: &RequestInfo,
        wanted: &Wanted,
        known: Known<'_>,
        mut request: Request<Incoming>,
    ) -> Result<(Response<Body>, DocumentResult), upstream::Error> {
        let (caller, at) = (context.caller(), Instant::now());
        let credentials = request.headers().clone();
        let Known { document: known, offered } = known;
        let offer = offered == Offer::Tag && wanted.condition == Condition::Absent;
        let offered = known.filter(|_| offer);
        if let Some(tag) = offered.and_then(|document| document.tag()) {
            request.headers_mut().insert(header::IF_NONE_MATCH, tag.clone());
        }
        let learners = Learners::one(&context.session);
        let sent = self.send(context, info, &Rewriting::Keep, request, learners).await?;
        let discovery = &self.discovery;
        match (sent.status(), known) {
            (StatusCode::NOT_MODIFIED, Some(document)) if is_for_one_caller(sent.headers()) => {
                discovery.forget(caller, &wanted.key).await;
                let answer = match offered {
                    Some(_) => document.renewed(sent.headers()),
                    None => sent,
                };
                Ok((answer, DocumentResult::Revalidated))
            }
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
                let copied = &self.discovery.0.copied;
                let sent = sent.map(|body| Collecting::wrap(body, copied, keep));
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
    /// Notes a request that is about to be forwarded. If it changes a source of documents, they
    /// count as changed when its response arrives, or when a known caller abandons it.
    pub(in crate::proxy) fn notice(&self, info: &RequestInfo, is_known: bool) -> Option<Noticed> {
        let defines = info.resource_request().is_some_and(defines);
        defines.then(|| Noticed { discovery: self.clone(), changes: is_known })
    }
}

// === impl Noticed ===

impl Noticed {
    /// Learns from the apiserver's response: what it refused has changed nothing.
    pub(in crate::proxy) fn answered(&mut self, status: StatusCode) {
        self.changes = !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    }
}

impl Drop for Noticed {
    fn drop(&mut self) {
        if self.changes {
            self.discovery.disturbed(Instant::now());
        }
    }
}

fn defines(request: &ResourceRequest) -> bool {
    let (group, resource) = (&*request.resource.group, &*request.resource.resource);
    request.verb.is_write() && DEFINING.contains(&(group, resource))
}
