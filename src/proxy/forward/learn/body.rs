//! A body that is parsed while it streams: its last chunk is passed on only after the session has
//! learned.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body as _, Frame, SizeHint};

use super::{ListContent, SessionExchange, Subject, listing::Listing};
use crate::{
    api::learn::{Learned, Learner},
    body::{Body, BoxError},
};

/// The response's body on its way to the client.
pub(super) struct LearningBody {
    inner: Body,
    held: Option<Frame<Bytes>>,
    ended: bool,
    learning: Option<Pending>,
}

/// The learning that is not finished yet.
struct Pending {
    learner: Learner,
    /// `true` once a part of the body came.
    begun: bool,
    exchange: SessionExchange,
    code: StatusCode,
    /// The items of a list so far, if the list can be compared.
    listing: Option<Listing>,
    content: ListContent,
}

// === impl LearningBody ===

impl LearningBody {
    pub(super) fn new(
        inner: Body,
        learner: Learner,
        exchange: SessionExchange,
        code: StatusCode,
        content: ListContent,
    ) -> Self {
        let listing = exchange.listing();
        let learner = if listing.is_some() { learner.with_items() } else { learner };
        let learning = Some(Pending { learner, begun: false, exchange, code, listing, content });
        let mut body = Self { inner, held: None, ended: false, learning };
        if body.inner.is_end_stream() {
            body.conclude();
        }
        body
    }

    /// Parses a chunk; the session learns from a read of one object as soon as enough was parsed.
    fn read_along(&mut self, frame: &Frame<Bytes>) {
        let Some(pending) = &mut self.learning else { return };
        let Some(bytes) = frame.data_ref() else { return };
        pending.begun = true;
        pending.learner.push(bytes);
        if let Some(listing) = &mut pending.listing {
            let items = pending.learner.take_items().into_iter();
            items.for_each(|item| listing.add(item, &pending.exchange));
            if pending.learner.is_complete() {
                self.conclude();
            }
        } else if matches!(pending.exchange.subject, Subject::Read { .. })
            && let Some(version) = pending.learner.list_version()
        {
            let learned = Learned::List { version, next: None, whole: false };
            pending.exchange.learned(pending.code, learned);
            self.learning = None;
        }
    }

    /// Reports whether the session learns when the last chunk has been parsed, whatever follows: no
    /// chunk is held back before.
    fn tells_its_end(&self) -> bool {
        self.learning.as_ref().is_some_and(|pending| pending.listing.is_some())
    }

    fn conclude(&mut self) {
        let Some(pending) = self.learning.take() else { return };
        let Pending { learner, exchange, code, listing, content, .. } = pending;
        match listing {
            Some(listing) => {
                let learned = learner.finish();
                if let Learned::List { whole: true, .. } = learned {
                    content.know(listing.content());
                }
                exchange.listed(listing, learned);
            }
            None => exchange.learned(code, learner.finish()),
        }
    }
}

impl http_body::Body for LearningBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if self.learning.is_none() {
                if let Some(frame) = self.held.take() {
                    return Poll::Ready(Some(Ok(frame)));
                }
                if self.ended {
                    return Poll::Ready(None);
                }
                return Pin::new(&mut self.inner).poll_frame(cx);
            }
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    let tells_its_end = self.tells_its_end();
                    self.read_along(&frame);
                    if self.inner.is_end_stream() {
                        self.conclude();
                    }
                    if tells_its_end {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    if let Some(earlier) = self.held.replace(frame) {
                        return Poll::Ready(Some(Ok(earlier)));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    self.conclude();
                    self.ended = true;
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.learning.is_none() && self.held.is_none() && (self.ended || self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let inner = self.inner.size_hint();
        let held = self.held.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len) as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + held);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + held);
        }
        hint
    }
}

impl Drop for LearningBody {
    /// Leaves a barrier for a write whose response was not read to its end, and a mark for a list.
    fn drop(&mut self) {
        let Some(pending) = self.learning.take() else { return };
        let Pending { exchange, learner, begun, .. } = pending;
        match (exchange.subject, &exchange.key) {
            // Nothing was shown.
            (Subject::Read { .. }, _) if !begun => {}
            (Subject::Read { .. }, None) => exchange.unread(learner.list_version()),
            _ => exchange.lost(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method, Response, Uri, header::CONTENT_TYPE};
    use http_body_util::{BodyExt, StreamBody};
    use tokio::time::Instant;

    use super::*;
    use crate::{
        api::request::RequestInfo,
        cache::testing::pods,
        proxy::{
            SharedSession,
            decide::Rewriting,
            forward::learn::Learning,
            session::{Held, Session, Verdict},
        },
    };

    /// Returns the verdict about a replica at version 10 after a list at 20 was read up to a number of
    /// its chunks.
    async fn verdict_after(chunks: usize) -> Verdict {
        let uri = Uri::from_static("/api/v1/namespaces/shop/pods");
        let info = RequestInfo::parse(&Method::GET, &uri, &HeaderMap::new());
        let request = info.resource_request().expect("a list");
        let session = SharedSession::new(Session::default());
        let learning = Learning::of(request, &Rewriting::Keep, &session, Instant::now());
        let parts = [
            r#"{"kind":"PodList","apiVersion":"v1","metadata":"#,
            r#"{"resourceVersion":"20"},"items":["#,
            r#"{"metadata":{"name":"a","namespace":"shop","resourceVersion":"15"}}]}"#,
        ];
        let frames =
            parts.map(|part| Ok::<_, BoxError>(Frame::data(Bytes::from_static(part.as_bytes()))));
        let body = Body::wrap(StreamBody::new(futures_util::stream::iter(frames)));
        let response = Response::builder().header(CONTENT_TYPE, "application/json").body(body);
        let mut body = learning.learn(response.expect("a response")).into_body();
        for _ in 0..chunks {
            body.frame().await.expect("a chunk").expect("a chunk");
        }
        drop(body);
        let query = &request.read.as_ref().expect("a read").query;
        let snapshot = pods(10, &[]);
        session.lock().judge(query, Held { query, snapshot: &snapshot }, Instant::now())
    }

    #[tokio::test]
    async fn a_list_of_which_nothing_was_shown_binds_nothing() {
        assert_eq!(verdict_after(0).await, Verdict::Satisfied);
        for chunks in 1..=3 {
            assert_ne!(verdict_after(chunks).await, Verdict::Satisfied, "{chunks}");
        }
    }
}
