//! An HTTP request read as an API request: the classify step (S-URL-*).
#![expect(unused_variables, missing_docs, reason = "stub")]
use super::{GroupVersionResource, Scope, Verb, query::Query, version::VersionMatch};
use std::{sync::Arc, time::Duration};

/// An HTTP request as the apiserver's RequestInfo reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestInfo {
    Resource(ResourceRequest),
    NonResource(NonResourceRequest),
}
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRequest {
    pub verb: Verb,
    pub resource: GroupVersionResource,
    pub scope: Scope,
    /// From the path only.
    pub name: Option<Arc<str>>,
    pub subresource: Option<Arc<str>>,
    /// What a plain GET or LIST asks; `Err` says why it must be forwarded as it is.
    pub read: Result<Read, NotModelled>,
    /// Whether adding resourceVersion to the query would only relax its freshness: a plain GET/LIST with
    /// resourceVersion, resourceVersionMatch, continue, limit, watch, sendInitialEvents and every unknown parameter absent.
    pub rewritable: bool,
    /// `?timeout=`, which bounds our own waiting (S-URL-11).
    pub timeout: Option<Duration>,
    /// `dryRun` present: the write teaches nothing (S-WRITE-09).
    pub dry_run: bool,
}
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonResourceRequest {
    pub path: Arc<str>,
}
/// A GET or LIST whose every parameter is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// What it selects; a GET is a query with `metadata.name` pinned.
    pub query: Query,
    /// The object named by the path: a GET. None: a LIST.
    pub name: Option<Arc<str>>,
    pub version: VersionMatch,
    /// LIST `limit`, when given and above zero.
    pub limit: Option<u64>,
    /// Raw `pretty` value, for media negotiation.
    pub pretty: Option<String>,
}
/// Why a read cannot be answered from memory, whatever the cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotModelled {
    NotARead,
    Watch,
    Subresource,
    UnusualPath,
    MalformedQuery,
    UnknownParameter,
    RepeatedParameter,
    Continue,
    IllegalCombination,
    BadVersion,
    BadSelector,
    UnmodelledField,
    BadValue,
}
impl RequestInfo {
    /// Never fails: what is not understood is said in the result.
    pub fn parse(method: &http::Method, uri: &http::Uri, headers: &http::HeaderMap) -> Self {
        todo!()
    }
}
