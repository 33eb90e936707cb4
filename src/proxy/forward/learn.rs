//! The facts that a session learns from a forwarded request's response (S-WRITE-01..24, S-CONS-20).
//!
//! Invariants: the session learns before the client can have read the response's last byte. A write
//! without a complete response leaves a barrier. Responses pass through unchanged.

mod body;
mod content;
mod guard;
mod listing;
mod refusal;
mod watch;

use std::sync::Arc;

use http::{Response, StatusCode, header};
use tokio::time::Instant;

use crate::{
    api::{
        GroupResource, ObjectKey, Scope, Verb,
        learn::{Learned, Learner, Lifecycle},
        query::Query,
        request::{ResourceRequest, Start, Watch},
        version::VersionMatch,
        watch::WatchReader,
    },
    body::Body,
    cache::Cache,
    insight::WriteObserver,
    metrics::Metrics,
    proxy::{
        SharedSession,
        decide::Rewriting,
        session::{Expectation, KnownLabels, Session, Source},
    },
    upstream,
};

use body::LearningBody;
pub(in crate::proxy) use content::ListContent;
pub(super) use guard::Armed;
pub(super) use watch::WatchLearning;

/// The facts to learn from one request and its response, if any.
pub(super) struct Learning(Option<Box<SessionExchange>>);

/// The learning of the session itself, and of the session as mode `enforce` would have it.
pub(super) struct LearningPair {
    pub(super) session: Learning,
    pub(super) predicted: Learning,
}

/// A request of the session's owner about one resource, and its response.
struct SessionExchange {
    session: SharedSession,
    resource: GroupResource,
    scope: Scope,
    key: Option<ObjectKey>,
    /// The query of a list or watch, if it was parsed.
    query: Option<Query>,
    /// The token of the requested page.
    token: Option<Arc<str>>,
    subresource: Option<Arc<str>>,
    subject: Subject,
    /// `true` for a write whose response does not show what it wrote.
    untold: bool,
    sent_at: Instant,
    write_observer: Option<WriteObserver>,
    metrics: Option<Metrics>,
    /// The replicas that the response is compared with.
    cache: Option<Cache>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Read {
        consistent: bool,
        source: Source,
    },
    Watch {
        /// `true` if it begins with the newest state.
        consistent: bool,
        /// `true` if it begins with a state, new or old.
        lists: bool,
    },
    Write(Verb),
}

// === impl LearningPair ===

impl LearningPair {
    /// Returns the same response, which is parsed as it streams to the client.
    pub(super) fn learn(self, response: Response<Body>) -> Response<Body> {
        self.predicted.learn(self.session.learn(response))
    }

    /// Notes that no response came.
    pub(super) fn failed(self, error: &upstream::Error) {
        self.session.failed(error);
        self.predicted.failed(error);
    }

    /// Learns from a watch through a WebSocket; the session of mode `enforce` learns from other
    /// watches only.
    pub(super) fn watch_tunnel(self) -> WatchLearning {
        self.session.watch_tunnel()
    }
}

// === impl Learning ===

impl Learning {
    /// Creates one that learns nothing.
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Returns the learning from this request's response.
    pub(super) fn of(
        request: &ResourceRequest,
        rewriting: &Rewriting,
        session: &SharedSession,
        now: Instant,
    ) -> Self {
        let subject = match request.verb {
            // The apiserver reads the options of a deletion from its body, if there is one
            // (S-WRITE-25).
            verb if request.dry_run && !verb.is_deletion() => return Self::none(),
            Verb::Watch => Subject::Watch {
                consistent: request.watch.as_ref().is_some_and(Watch::begins_with_newest),
                lists: request.watch.as_ref().is_some_and(|watch| watch.start == Start::State),
            },
            Verb::Get | Verb::List if request.subresource.is_none() => {
                let version = request.read.as_ref().ok().map(|read| &read.version);
                let kept = *rewriting == Rewriting::Keep;
                let source = match version {
                    Some(VersionMatch::Any | VersionMatch::NotOlderThan(_)) => Source::Cache,
                    _ if kept => Source::Storage,
                    _ => Source::Cache,
                };
                let consistent = kept && version == Some(&VersionMatch::MostRecent);
                Subject::Read { consistent, source }
            }
            Verb::Get if shows(request.subresource.as_deref()) => {
                Subject::Read { consistent: false, source: Source::Storage }
            }
            verb if verb.is_write() && teaches(request.subresource.as_deref()) => {
                Subject::Write(verb)
            }
            _ => return Self::none(),
        };
        let resource = request.resource.group_resource();
        // The old way to bind a pod (S-WRITE-26).
        let binds = request.verb == Verb::Create && resource == GroupResource::new("", "bindings");
        let resource = if binds { GroupResource::new("", "pods") } else { resource };
        let (query, token) = match (&request.read, &request.page) {
            (Ok(read), _) => (Some(read.query.clone()), None),
            (Err(_), Some(page)) => (Some(page.query.clone()), Some(page.token.clone())),
            (Err(_), None) => (request.watch.as_ref().map(|watch| watch.query.clone()), None),
        };
        Self(Some(Box::new(SessionExchange {
            session: session.clone(),
            resource,
            scope: request.scope.clone(),
            key: request.object_key(),
            query,
            token,
            subresource: request.subresource.clone(),
            subject,
            untold: binds || request.dry_run,
            sent_at: now,
            write_observer: None,
            metrics: None,
            cache: None,
        })))
    }

    /// Compares lists with these replicas.
    pub(super) fn beside(mut self, cache: &Cache) -> Self {
        if let Some(exchange) = &mut self.0 {
            exchange.cache = Some(cache.clone());
        }
        self
    }

    /// Tells `write_observer` the object's version after a write.
    pub(super) fn seen_by(mut self, write_observer: Option<WriteObserver>) -> Self {
        if let Some(exchange) = &mut self.0 {
            exchange.write_observer = write_observer;
        }
        self
    }

    /// Counts in `metrics` when a limit is reached.
    pub(super) fn counted_in(mut self, metrics: &Metrics) -> Self {
        if let Some(exchange) = &mut self.0 {
            exchange.metrics = Some(metrics.clone());
        }
        self
    }

    /// Notes that no response came.
    pub(super) fn failed(self, error: &upstream::Error) {
        use upstream::Error::{Broken, RequestBody};
        if let (Some(exchange), Broken(_) | RequestBody(_)) = (self.0, error) {
            exchange.lost();
        }
    }

    /// Learns from a watch through a WebSocket.
    pub(super) fn watch_tunnel(self) -> WatchLearning {
        let watch = self.0.filter(|exchange| matches!(exchange.subject, Subject::Watch { .. }));
        let watch = watch.map(|watch| *watch);
        WatchLearning::new(watch, Ok(WatchReader::websocket()))
    }

    /// Returns the same response, which is parsed as it streams to the client.
    pub(super) fn learn(self, response: Response<Body>) -> Response<Body> {
        let Some(exchange) = self.0 else { return response };
        let code = response.status();
        let field = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let interesting = match exchange.subject {
            Subject::Write(_) => {
                code.is_success() || code == StatusCode::CONFLICT || code == StatusCode::NOT_FOUND
            }
            Subject::Read { .. } => code.is_success(),
            Subject::Watch { .. } if code.is_success() => {
                exchange.went_upstream(&mut exchange.session.lock());
                let reader =
                    WatchReader::http(field(header::CONTENT_TYPE), field(header::CONTENT_ENCODING));
                let learning = WatchLearning::new(Some(*exchange), reader);
                return response.map(|body| learning.read_along(body));
            }
            Subject::Watch { .. } => false,
        };
        if !interesting {
            exchange.refused(code);
            return response;
        }
        if exchange.untold && matches!(exchange.subject, Subject::Write(_)) {
            exchange.lost();
            return response;
        }
        let learner = Learner::new(field(header::CONTENT_TYPE), field(header::CONTENT_ENCODING));
        let content = ListContent::default();
        let mut response = response.map(|body| {
            Body::wrap(LearningBody::new(body, learner, *exchange, code, content.clone()))
        });
        response.extensions_mut().insert(content);
        response
    }
}

// === impl SessionExchange ===

impl SessionExchange {
    /// Notes that the outcome of a write is unknown.
    fn lost(&self) {
        if !matches!(self.subject, Subject::Write(_)) {
            return;
        }
        let of = (self.key.clone(), self.scope.clone());
        self.session.lock().lost_write(&self.resource, of, Instant::now());
    }

    /// Learns from a response whose body was read as far as needed.
    fn learned(&self, code: StatusCode, learned: Learned) {
        let now = Instant::now();
        match self.subject {
            Subject::Read { consistent, .. } => self.saw(consistent, learned, now),
            Subject::Write(verb) => {
                let mut session = self.session.lock();
                match code {
                    StatusCode::CONFLICT => self.conflicted(&mut session, verb, learned, now),
                    StatusCode::NOT_FOUND => {
                        if let Some(key) = self.key.clone() {
                            // Without its subresource the object may exist.
                            let missed = match self.subresource {
                                None => Expectation::Gone { uid: None, version: None },
                                Some(_) => Expectation::Uncertain,
                            };
                            session.written(&self.resource, key, missed, (self.sent_at, now));
                        }
                    }
                    _ => self.wrote(&mut session, verb, learned, now),
                }
            }
            Subject::Watch { .. } => {}
        }
    }

    fn saw(&self, consistent: bool, learned: Learned, now: Instant) {
        if self.key.is_none() {
            let version = match learned {
                Learned::List { version, .. } => Some(version),
                _ => None,
            };
            return self.unread(version);
        }
        let mut session = self.session.lock();
        match (learned, self.key.clone()) {
            // A Table of one object has that object's version.
            (Learned::List { version, .. }, Some(key)) => {
                session.raise(&self.resource, key, Expectation::AtLeast(version, None), now);
            }
            (Learned::Object(object), Some(key)) => {
                if let Some(write_observer) = &self.write_observer {
                    write_observer.showed(&self.resource, &key, &object.version);
                }
                let labels = self.known(object.labels);
                let expectation = Expectation::AtLeast(object.version, labels);
                if consistent {
                    session.observe(&self.resource, key, expectation, (self.sent_at, now));
                } else {
                    session.raise(&self.resource, key, expectation, now);
                }
            }
            // The response cannot be parsed, such as YAML: only a consistent read is surely newer.
            (_, Some(key)) => {
                session.expect(&self.resource, key, Expectation::Uncertain, now);
            }
            (_, None) => {}
        }
        self.went_upstream(&mut session);
        self.tidy(&mut session);
    }

    fn wrote(&self, session: &mut Session, verb: Verb, learned: Learned, now: Instant) {
        match (verb, learned) {
            (Verb::DeleteCollection, _) => {
                session.swept(&self.resource, self.scope.clone(), now);
            }
            // A subresource may answer with an object that it made.
            (_, Learned::Object(object))
                if self.key.as_ref().is_none_or(|key| key.name() == object.name) =>
            {
                let key = self.key.clone().unwrap_or_else(|| object.key());
                if let Some(write_observer) = &self.write_observer {
                    write_observer.answered(&self.resource, &key, &object.version);
                }
                let uid = || Some(object.uid.as_str().into());
                let expectation = match (verb, object.lifecycle) {
                    // S-WRITE-05: the response carries the version of the deletion.
                    (Verb::Delete, Lifecycle::Live | Lifecycle::Removed) => {
                        Expectation::Gone { uid: uid(), version: Some(object.version) }
                    }
                    // S-WRITE-04: the response carries the version before the deletion.
                    (_, Lifecycle::Removed) => Expectation::Gone { uid: uid(), version: None },
                    (_, Lifecycle::Live | Lifecycle::Terminating) => {
                        Expectation::AtLeast(object.version, self.known(object.labels))
                    }
                };
                session.written(&self.resource, key, expectation, (self.sent_at, now));
            }
            (Verb::Delete, Learned::Status { details_uid, .. }) => match self.key.clone() {
                Some(key) => {
                    let uid = details_uid.map(Into::into);
                    let gone = Expectation::Gone { uid, version: None };
                    session.written(&self.resource, key, gone, (self.sent_at, now));
                }
                None => session.swept(&self.resource, self.scope.clone(), now),
            },
            _ => match self.key.clone() {
                Some(key) => session.expect(&self.resource, key, Expectation::Uncertain, now),
                None => session.swept(&self.resource, self.scope.clone(), now),
            },
        }
    }

    /// Returns the object's labels; a Scale does not contain them (S-WRITE-11).
    fn known(&self, labels: Vec<(String, String)>) -> KnownLabels {
        let whole = self.subresource.as_deref() != Some("scale");
        whole.then(|| Arc::new(labels.into_iter().collect()))
    }

    /// Notes a conflict, which proves that the client's view was stale (S-WRITE-13).
    fn conflicted(&self, session: &mut Session, verb: Verb, learned: Learned, now: Instant) {
        match (verb, learned, self.key.clone()) {
            (Verb::Create, Learned::Status { name: Some(name), .. }, None) => {
                let key = ObjectKey::new(self.scope.namespace(), &name);
                session.expect(&self.resource, key, Expectation::Exists, now);
            }
            (_, _, Some(key)) => session.expect(&self.resource, key, Expectation::Uncertain, now),
            (_, _, None) => session.swept(&self.resource, self.scope.clone(), now),
        }
    }
}

/// Reports whether a write to this subresource can change its object (S-WRITE-12).
fn teaches(subresource: Option<&str>) -> bool {
    !matches!(subresource, Some("exec" | "attach" | "portforward" | "proxy" | "log" | "token"))
}

/// Reports whether a GET of this subresource shows its object's version (S-GET-10).
fn shows(subresource: Option<&str>) -> bool {
    matches!(subresource, Some("status" | "scale"))
}
