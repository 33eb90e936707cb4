//! The path of one request through the simulated apiserver, and the common headers of responses.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

use super::{
    Core,
    fault::{Effect, tamper},
    journal::{Asked, Entry},
    media::Media,
    status::{StatusFailure, response},
    upgrade::Messages,
};
use crate::{
    api::Verb,
    body::{Body, BoxError},
};

/// The reason why a request has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Interrupted {
    /// The simulated apiserver is down.
    #[error("the simulated apiserver refuses connections")]
    Refused,
    /// The connection closed before a response.
    #[error("the simulated apiserver closed the connection")]
    Closed,
}

// === impl Core ===

impl Core {
    /// Answers one request, or returns the reason why there is no response.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Body>,
    ) -> Result<Response<Body>, Interrupted> {
        if self.stopped.load(Ordering::SeqCst) {
            return Err(Interrupted::Refused);
        }
        let (asked, route, parameters) = Asked::read(&request);
        let entry = self.journal.open(asked);
        let fault = self.faults.strike(&entry.asked);
        let bodiless = *request.method() == Method::HEAD;
        let media = Media::of(request.headers(), &parameters);
        let audit_id = request.headers().get(AUDIT_ID).cloned();
        let answered = match fault {
            Some(Effect::Close) => return Err(Interrupted::Closed),
            Some(Effect::Answer { code, retry_after_secs }) => {
                scripted(code, retry_after_secs).into_response()
            }
            Some(Effect::Expired) => expired(entry.asked.verb),
            Some(Effect::Garbage) => response(200, "application/json", "\u{0}{not json"),
            Some(Effect::Delay(delay)) => {
                tokio::time::sleep(delay).await;
                self.dispatch(request, route, parameters, media).await
            }
            _ => self.dispatch(request, route, parameters, media).await,
        };
        if self.stopped.load(Ordering::SeqCst) {
            return Err(Interrupted::Closed);
        }
        entry.answered(answered.status().as_u16());
        let mut answered = match entry.asked.verb {
            Verb::Watch if answered.status().as_u16() < 400 => {
                let core = self.clone();
                media.stream(&entry.asked, answered, move || core.wall_clock(Instant::now()))
            }
            _ => media.apply(&entry.asked, answered, self.wall_clock(Instant::now())).await,
        };
        if bodiless {
            *answered.body_mut() = Body::empty();
        }
        self.add_headers(answered.headers_mut(), audit_id);
        let messages = answered.extensions_mut().remove::<Messages>();
        Ok(answered.map(|body| {
            let body = match fault {
                Some(effect) => tamper(body, effect),
                None => body,
            };
            let body = Body::wrap(Counted { body, entry });
            match messages {
                Some(messages) => {
                    messages.send(body);
                    Body::empty()
                }
                None => body,
            }
        }))
    }

    fn add_headers(&self, headers: &mut HeaderMap, audit_id: Option<HeaderValue>) {
        let audit_id = audit_id.or_else(|| HeaderValue::from_str(&self.random.uid()).ok());
        if let Some(audit_id) = audit_id {
            headers.insert(AUDIT_ID, audit_id);
        }
        let private = HeaderValue::from_static("no-cache, private");
        headers.entry(header::CACHE_CONTROL).or_insert(private);
        for name in [FLOW_SCHEMA, PRIORITY_LEVEL] {
            headers.insert(name, HeaderValue::from_static(FLOW_UID));
        }
    }
}

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const FLOW_SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
const FLOW_UID: &str = "5f0f6a52-0d30-4b1c-9a43-2f3f0d1d0a11";

/// A body whose bytes are counted as they are sent.
struct Counted {
    body: Body,
    entry: Arc<Entry>,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            self.entry.sent(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn scripted(code: u16, retry_after_secs: Option<u64>) -> StatusFailure {
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let message = "a scripted fault of the simulated apiserver";
    match retry_after_secs {
        Some(seconds) => StatusFailure::retry_later(code, reason, message, seconds),
        None => StatusFailure::new(code, reason, message),
    }
}

fn expired(verb: Verb) -> Response<Body> {
    if verb != Verb::Watch {
        return StatusFailure::expired("The resourceVersion for the provided list is too old.")
            .into_response();
    }
    let mut event = br#"{"type":"ERROR","object":"#.to_vec();
    StatusFailure::expired("too old resource version: 1 (2)").to_json().write(&mut event);
    event.extend_from_slice(b"}\n");
    response(200, "application/json", event)
}
