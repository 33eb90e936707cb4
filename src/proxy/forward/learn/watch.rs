//! The events that a forwarded watch shows the session: a later read must not be older
//! (S-PROMISE-01).
//!
//! The session learns an event before the client can have it. A watch that cannot be parsed keeps
//! the cache from answering about its resource. This lasts until the watch ends and a consistent
//! read follows. A watch that breaks off between two events ends cleanly: after a reset, its client
//! would list again.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

use super::{SessionExchange, Subject};
use crate::{
    api::{
        ObjectKey,
        version::ResourceVersion,
        watch::{Opaque, Shown, ShownObject, WatchReader},
    },
    body::{Body, BoxError},
    metrics::Limit,
    proxy::{
        session::{Expectation, List, Source},
        watching::SILENT_MIN,
    },
    stream::{Observed, Observer},
};

/// A watch that streams to the session's owner.
pub(in crate::proxy::forward) struct WatchLearning {
    exchange: Option<SessionExchange>,
    /// The parser; `None` once the watch turned out to be unreadable.
    reader: Option<WatchReader>,
    /// `true` until the state that the watch begins with was shown completely.
    lists: bool,
}

/// A body whose events are parsed.
struct WatchedBody {
    inner: Body,
    learning: WatchLearning,
    place: StreamPosition,
}

/// The position in a watch stream.
struct StreamPosition {
    opened: Instant,
    /// `true` if each event is a line.
    lines: bool,
    /// The last byte.
    last: Option<u8>,
}

// === impl WatchLearning ===

impl WatchLearning {
    pub(super) fn new(
        exchange: Option<SessionExchange>,
        reader: Result<WatchReader, Opaque>,
    ) -> Self {
        let subject = exchange.as_ref().map(|exchange| exchange.subject);
        let lists = matches!(subject, Some(Subject::Watch { lists: true, .. }));
        let mut learning = Self { exchange, reader: None, lists };
        match reader {
            Ok(reader) => learning.reader = Some(reader),
            Err(why) => learning.blind(why),
        }
        learning
    }

    pub(super) fn read_along(self, inner: Body) -> Body {
        let lines = self.reader.as_ref().is_some_and(WatchReader::is_lines);
        let place = StreamPosition { opened: Instant::now(), lines, last: None };
        Body::wrap(WatchedBody { inner, learning: self, place })
    }

    pub(in crate::proxy::forward) fn read_along_io<T>(self, inner: T) -> Observed<T, Self> {
        Observed::new(inner, self)
    }

    fn learn(&mut self, bytes: &[u8]) {
        let (Some(exchange), Some(reader)) = (&self.exchange, &mut self.reader) else { return };
        let lists = &mut self.lists;
        let read = reader.push(bytes, |shown| match shown {
            Shown::Bookmark(version) if std::mem::take(lists) => exchange.streamed(version),
            Shown::Bookmark(_) => {}
            Shown::Object(object) => exchange.was_shown(object),
            Shown::Expired => exchange.expired(&mut exchange.session.lock()),
        });
        if let Err(why) = read {
            self.blind(why);
        }
    }

    fn blind(&mut self, why: Opaque) {
        self.reader = None;
        if let Some(exchange) = &self.exchange {
            if let (Opaque::TooLarge, Some(metrics)) = (why, &exchange.metrics) {
                metrics.limit_reached(Limit::WatchEvents);
            }
            exchange.session.lock().blinded(&exchange.resource, exchange.scope.clone());
        }
    }
}

impl Observer for WatchLearning {
    fn received(&mut self, bytes: &[u8]) {
        self.learn(bytes);
    }
}

impl Drop for WatchLearning {
    fn drop(&mut self) {
        if let (Some(exchange), None) = (&self.exchange, &self.reader) {
            exchange.session.lock().sighted(&exchange.resource, &exchange.scope, Instant::now());
        }
    }
}

// === impl SessionExchange ===

impl SessionExchange {
    /// Notes the end of a state that was streamed as a list: objects that it did not have are gone. The apiserver may
    /// have taken it from its cache (S-WATCH-01).
    fn streamed(&self, version: ResourceVersion) {
        let (mut session, now) = (self.session.lock(), Instant::now());
        match &self.query {
            Some(query) => {
                session.listed(List::unread(query.clone(), version, Source::Cache), now);
            }
            None => session.shown(&self.resource, &version, Source::Cache, now),
        }
        self.tidy(&mut session);
    }

    fn was_shown(&self, object: ShownObject) {
        let mut session = self.session.lock();
        let key = ObjectKey::new(Some(&object.namespace), &object.name);
        let version = object.version;
        let expectation = match &self.query {
            _ if !object.deleted => Expectation::AtLeast(version, Some(object.labels.into())),
            // The object may have left no more than the selection (S-WATCH-22).
            Some(query) if !query.selects_all() => Expectation::Left {
                selection: Arc::new(query.clone()),
                than: version.clone(),
                version,
            },
            Some(_) => Expectation::Gone { uid: Some(object.uid.into()), version: Some(version) },
            // The selection is unknown.
            None => Expectation::AtLeast(version, None),
        };
        session.raise(&self.resource, key, expectation, Instant::now());
        self.tidy(&mut session);
    }
}

// === impl StreamPosition ===

impl StreamPosition {
    /// Reports whether the watch can end cleanly here, to let its client continue from the last
    /// event. A client of another format than lines takes half an event for an end, too.
    fn may_end(&self, now: Instant) -> bool {
        match self.last {
            // S-WATCH-28.
            None => now.duration_since(self.opened) >= SILENT_MIN,
            Some(last) => last == b'\n' || !self.lines,
        }
    }
}

// === impl WatchedBody ===

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(&[][..], |bytes| bytes);
                self.learning.learn(bytes);
                self.place.last = bytes.last().copied().or(self.place.last);
            }
            Some(Err(error)) if self.place.may_end(Instant::now()) => {
                tracing::debug!(%error, "a watch broke off between two events");
                return Poll::Ready(None);
            }
            Some(Err(_)) | None => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
