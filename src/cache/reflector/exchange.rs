//! The requests of a reflector and the first check of their responses.
//!
//! Every wait has a timeout. The client adds the credentials.

use std::{fmt::Write, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    Request, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
};
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::failure::{ReflectorFailure, Status, StatusDetails};
use crate::{
    api::{
        Scope, form::Form, protobuf, pushback::retry_after, query::Query, selector::FieldSelector,
        version::ResourceVersion,
    },
    body::Body,
    cache::{clock::Clock, form::Envelope, replica::Replica, split::Splitter},
    upstream::{AGENT, Client, Lane},
};

/// The requests about one query.
pub(in crate::cache) struct ReflectorExchange {
    client: Arc<dyn Client>,
    form: Form,
    clock: Clock,
    /// The collection with the query's selectors.
    all: String,
    /// The collection with a selector that matches almost nothing.
    nothing: String,
    /// The same in one namespace, for a collection of all.
    nothing_within: Option<String>,
}

/// The timeout of a response's headers.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// The longest time between two chunks of a list.
const PIECE_WAIT: Duration = Duration::from_secs(60);

/// The timeout of a probe.
const PROBE_WAIT: Duration = Duration::from_secs(10);

/// The longest error response that is read.
const STATUS_BYTES_MAX: usize = 64 * 1024;

/// A name that no object has; a list of it in one namespace costs the apiserver almost nothing
/// (S-CONS-05).
const NOBODY: &str = "listless-probe";

/// A namespace for such a list; it need not exist.
const NAMESPACE: &str = "default";

const JSON: &str = "application/json";

const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// The rows of a Table with their objects, for lists and watches.
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

// === impl ReflectorExchange ===

impl ReflectorExchange {
    /// Creates the requests about a query, sent through a client.
    pub(in crate::cache) fn new(client: Arc<dyn Client>, replica: &Replica) -> Self {
        let (query, form, clock) = (replica.query(), replica.form(), replica.clock().clone());
        let list = |scope: &Scope, fields: &FieldSelector| {
            let mut uri = format!("{}?", query.resource.collection_path(scope));
            add_selectors(&mut uri, query, fields);
            uri
        };
        let nobody = match query.fields.pinned("metadata.name") {
            Some(_) => query.fields.clone(),
            // An authorizer may allow the query's own terms only.
            None => query.fields.and_name(NOBODY),
        };
        let (all, nothing) = (list(&query.scope, &query.fields), list(&query.scope, &nobody));
        let within = || list(&Scope::Namespace(NAMESPACE.into()), &nobody);
        let nothing_within = (query.scope == Scope::All).then(within);
        Self { client, form, clock, all, nothing, nothing_within }
    }

    /// Lists the collection: not older than a version, or consistently.
    pub(super) async fn list(
        &self,
        from: Option<&ResourceVersion>,
    ) -> Result<Body, ReflectorFailure> {
        let mut uri = format!("{}{}", self.all, options(self.form));
        if let Some(from) = from {
            // A write to a String cannot fail, here and below.
            let _ = write!(uri, "resourceVersion={from}&resourceVersionMatch=NotOlderThan");
        }
        self.ask(&uri, Lane::Short, accept(self.form)).await
    }

    /// Lists nothing but metadata, at exactly a version (S-LIST-63).
    pub(in crate::cache) async fn metadata_at(
        &self,
        version: &ResourceVersion,
    ) -> Result<Body, ReflectorFailure> {
        self.exactly(version, METADATA).await
    }

    /// Lists the complete objects in JSON, at exactly a version.
    pub(in crate::cache) async fn objects_at(
        &self,
        version: &ResourceVersion,
    ) -> Result<Body, ReflectorFailure> {
        self.exactly(version, JSON).await
    }

    async fn exactly(
        &self,
        version: &ResourceVersion,
        accept: &'static str,
    ) -> Result<Body, ReflectorFailure> {
        let uri = format!("{}resourceVersion={version}&resourceVersionMatch=Exact", self.all);
        self.ask(&uri, Lane::Short, accept).await
    }

    /// Watches from a version on; the apiserver ends the watch after `length`.
    pub(super) async fn watch(
        &self,
        from: &ResourceVersion,
        length: Duration,
    ) -> Result<Body, ReflectorFailure> {
        let uri = format!(
            "{}{}watch=true&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds={}",
            self.all,
            options(self.form),
            length.as_secs()
        );
        self.ask(&uri, Lane::Long, accept(self.form)).await
    }

    /// Returns a version that the apiserver's storage has reached by now.
    ///
    /// Releases before 1.31 read a collection of all namespaces from etcd, even for a single name.
    pub(super) async fn probe(
        &self,
        is_namespaced: bool,
    ) -> Result<ResourceVersion, ReflectorFailure> {
        let probe = async {
            if let Some(within) = self.nothing_within.as_ref().filter(|_| is_namespaced) {
                match self.version_of(within).await {
                    // An authorizer other than RBAC may allow a list of all namespaces alone.
                    Err(ReflectorFailure::Status(Status { code: 403, .. })) => {}
                    probed => return probed,
                }
            }
            self.version_of(&self.nothing).await
        };
        timeout(PROBE_WAIT, probe).await.unwrap_or(Err(ReflectorFailure::Silence(PROBE_WAIT)))
    }

    async fn version_of(&self, uri: &str) -> Result<ResourceVersion, ReflectorFailure> {
        let mut body = self.ask(uri, Lane::Short, JSON).await?;
        let mut splitter = Splitter::new(usize::MAX);
        while let Some(piece) = next_piece(&mut body).await? {
            splitter.feed::<ReflectorFailure>(&piece, |_| Ok(()))?;
        }
        let (header, trailer) = splitter.finish()?;
        Ok(Envelope::learn(&header, &trailer)?.1)
    }

    async fn ask(
        &self,
        uri: &str,
        lane: Lane,
        accept: &'static str,
    ) -> Result<Body, ReflectorFailure> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = uri.trim_end_matches(['?', '&']).parse()?;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, http::HeaderValue::from_static(accept));
        headers.insert(USER_AGENT, const { http::HeaderValue::from_static(AGENT) });
        let sent = self.clock.own();
        let answer = timeout(ANSWER_WAIT, self.client.send(request, lane)).await;
        let answer = answer.map_err(|_| ReflectorFailure::Silence(ANSWER_WAIT))?;
        let answer = answer.map_err(ReflectorFailure::Upstream)?;
        self.clock.learn(answer.headers(), sent);
        check(answer, accept).await
    }
}

/// Returns the parameters of lists and watches in a form.
fn options(form: Form) -> &'static str {
    match form {
        Form::Json | Form::Protobuf => "",
        Form::Table => "includeObject=Object&",
    }
}

/// Returns the type that a replica of a form accepts.
fn accept(form: Form) -> &'static str {
    match form {
        Form::Json => JSON,
        Form::Protobuf => protobuf::MEDIA_TYPE,
        Form::Table => TABLE,
    }
}

/// Returns the next chunk of a list; `None` at its end.
pub(in crate::cache) async fn next_piece(
    body: &mut Body,
) -> Result<Option<Bytes>, ReflectorFailure> {
    loop {
        let frame = timeout(PIECE_WAIT, body.frame()).await;
        let frame = frame.map_err(|_| ReflectorFailure::Silence(PIECE_WAIT))?;
        match frame.transpose().map_err(ReflectorFailure::Body)? {
            Some(frame) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
            None => return Ok(None),
        }
    }
}

async fn check(answer: Response<Body>, accept: &str) -> Result<Body, ReflectorFailure> {
    if answer.status() != StatusCode::OK {
        return Err(ReflectorFailure::Status(status(answer).await));
    }
    let content_type = answer.headers().get(CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = |text: &str| text.split(';').next().map(|media| media.trim().to_owned());
    if media_type(content_type) == media_type(accept) {
        return Ok(answer.into_body());
    }
    if media_type(accept).as_deref() == Some(protobuf::MEDIA_TYPE) {
        // The type has no protobuf (S-CT-04).
        return Err(ReflectorFailure::NotUnderstood);
    }
    Err(ReflectorFailure::ContentType(content_type.to_owned()))
}

/// Parses an error's Status as far as possible; the HTTP code takes precedence.
async fn status(answer: Response<Body>) -> Status {
    let code = answer.status().as_u16();
    let retry_after = retry_after(answer.headers());
    let body = timeout(PIECE_WAIT, answer.into_body().collect(STATUS_BYTES_MAX)).await;
    let body = body.ok().and_then(Result::ok).unwrap_or_default();
    let in_json = || serde_json::from_slice(&body).ok();
    let mut status = Status::in_protobuf(&body).or_else(in_json).unwrap_or_default();
    status.code = code;
    if let Some(retry_after) = retry_after {
        let retry_after_seconds = u32::try_from(retry_after.as_secs()).unwrap_or(u32::MAX);
        status.details = Some(StatusDetails { retry_after_seconds });
    }
    status
}

fn add_selectors(uri: &mut String, query: &Query, fields: &FieldSelector) {
    for (parameter, selector) in
        [("labelSelector", query.labels.to_string()), ("fieldSelector", fields.to_string())]
    {
        if !selector.is_empty() {
            let _ = write!(uri, "{parameter}={}&", escaped(&selector));
        }
    }
}

/// Percent-encodes all characters except the unreserved ones.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() * 3);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}
