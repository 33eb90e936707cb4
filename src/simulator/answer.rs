//! The way of one request through the simulated apiserver, and what every answer carries.

use std::{
    io::Write as _,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

use super::{
    Core,
    call::Call,
    discovery,
    fault::{Effect, tamper},
    journal::{Asked, Entry},
    kind::Style,
    read,
    review::Review,
    route::{Parameters, Route, Target},
    status::{Failure, response, unknown_path},
    upgrade::{self, Messages, Switch},
    watch, write,
};
use crate::{
    api::{GroupResource, Verb},
    body::{Body, BoxError},
};

/// Why a request got no answer at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Interrupted {
    /// The simulated apiserver is down.
    #[error("the simulated apiserver refuses connections")]
    Refused,
    /// The connection closed before an answer.
    #[error("the simulated apiserver closed the connection")]
    Closed,
}

/// Answers above this are compressed for clients that ask (S-HDR-01).
const COMPRESSED_ABOVE_BYTES: u64 = 128 << 10;

/// What `/` and every other path without a resource needs to be one of.
const MEDIA_TYPES: &str = "406: Not Acceptable\n\nAvailable representations: application/json, \
                           application/json;stream=watch";

// === impl Core ===

impl Core {
    /// Answers one request, or says why there is no answer.
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
        let gzip = accepts_gzip(request.headers()) && entry.asked.verb != Verb::Watch;
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
                self.dispatch(request, route, parameters).await
            }
            _ => self.dispatch(request, route, parameters).await,
        };
        if self.stopped.load(Ordering::SeqCst) {
            return Err(Interrupted::Closed);
        }
        entry.answered(answered.status().as_u16());
        let mut answered = if gzip { compress(answered).await } else { answered };
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

    async fn dispatch(
        self: &Arc<Self>,
        request: Request<Body>,
        route: Route,
        parameters: Parameters,
    ) -> Response<Body> {
        let answered = match route {
            Route::Resource(target) => self.resource(request, target, parameters).await,
            Route::Other(path) => self.access.caller(request.headers()).map(|_| {
                let base = discovery::answer(self, &path);
                if *request.method() == Method::GET { base } else { method_not_allowed() }
            }),
        };
        answered.unwrap_or_else(Failure::into_response)
    }

    async fn resource(
        self: &Arc<Self>,
        mut request: Request<Body>,
        target: Target,
        parameters: Parameters,
    ) -> Result<Response<Body>, Failure> {
        let caller = self.access.caller(request.headers())?;
        if let Some(review) = Review::of(&target, request.method()) {
            return review.answer(&caller, request).await;
        }
        let name = GroupResource::new(&target.group, &target.resource);
        let kind = self.store().collection(&name).map(|collection| collection.kind.clone());
        let Some(kind) = kind.filter(|kind| kind.versions.contains(&target.version)) else {
            return Ok(self.unknown(&target));
        };
        let verb = target.verb(request.method(), &parameters);
        let pinned = pinned_name(&parameters);
        caller.check(&kind, &target, verb, pinned.as_deref())?;
        let misplaced =
            target.namespace.is_some() != kind.namespaced && kind.plural != "namespaces";
        if misplaced && (target.name.is_some() || target.namespace.is_some()) {
            return Ok(match kind.style {
                Style::Typed => Failure::unknown_resource().into_response(),
                Style::Custom => unknown_path(),
            });
        }
        if *request.method() == Method::HEAD {
            return Ok(head(kind.style));
        }
        let switch = Switch::asked(&mut request);
        if upgrade::is_stream(&target) {
            let switch = switch.ok_or_else(upgrade::required)?;
            return Ok(switch.echo(self.interruptions.subscribe()));
        }
        let switch = switch.filter(|switch| verb == Verb::Watch && switch.is_websocket());
        if !accepts_json(request.headers()) {
            return Ok(response(406, "text/plain; charset=utf-8", MEDIA_TYPES));
        }
        let (parts, body) = request.into_parts();
        let body = read_body(body, verb).await?;
        let content_type = content_type(&parts.headers);
        let call = Call { verb, kind, target, parameters, content_type, body };
        let answered = self.call(&call).await?;
        Ok(match switch {
            Some(switch) => switch.send_messages(answered),
            None => answered,
        })
    }

    async fn call(self: &Arc<Self>, call: &Call) -> Result<Response<Body>, Failure> {
        let named = call.target.name.is_some();
        match (call.verb, call.target.subresource.as_deref()) {
            (Verb::Watch, None) => watch::watch(self, call).await,
            (Verb::List, None) => read::list(self, call).await,
            (Verb::Get, None) => read::get(self, call).await,
            (Verb::Get, Some(_)) => {
                write::check_subresource(call)?;
                read::get(self, call).await
            }
            // Only one namespace at a time can be written to.
            (Verb::Create | Verb::DeleteCollection, None)
                if call.kind.namespaced && call.target.namespace.is_none() =>
            {
                Err(Failure::method_not_allowed())
            }
            (Verb::Create, None) if !named => write::create(self, call),
            (Verb::Create, Some(subresource)) => write::create_subresource(self, call, subresource),
            (Verb::Update, _) if named => write::update(self, call),
            (Verb::Patch, _) if named => write::patch(self, call),
            (Verb::Delete, None) => write::delete(self, call),
            (Verb::DeleteCollection, None) => write::delete_collection(self, call),
            _ => Err(Failure::method_not_allowed()),
        }
    }

    /// An unknown resource of a known built-in group is a Status; all else is plain text (§16).
    fn unknown(&self, target: &Target) -> Response<Body> {
        let store = self.store();
        let known = store.collections().map(|collection| &collection.kind).any(|kind| {
            kind.style == Style::Typed
                && kind.group == target.group
                && kind.versions.contains(&target.version)
        });
        if known { Failure::unknown_resource().into_response() } else { unknown_path() }
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

/// A body whose bytes are counted as they leave.
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

fn scripted(code: u16, retry_after_secs: Option<u64>) -> Failure {
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
        Some(seconds) => Failure::retry_later(code, reason, message, seconds),
        None => Failure::new(code, reason, message),
    }
}

fn expired(verb: Verb) -> Response<Body> {
    if verb != Verb::Watch {
        return Failure::expired("The resourceVersion for the provided list is too old.")
            .into_response();
    }
    let mut event = br#"{"type":"ERROR","object":"#.to_vec();
    Failure::expired("too old resource version: 1 (2)").to_json().write(&mut event);
    event.extend_from_slice(b"}\n");
    response(200, "application/json", event)
}

fn method_not_allowed() -> Response<Body> {
    Failure::method_not_allowed().into_response()
}

/// HEAD is routed for custom resources only (§16, S-URL-13).
fn head(style: Style) -> Response<Body> {
    match style {
        Style::Typed => method_not_allowed(),
        Style::Custom => response(200, "application/json", Bytes::new()),
    }
}

/// The name a field selector pins, which counts for authorization (S-URL-07).
fn pinned_name(parameters: &Parameters) -> Option<String> {
    let selector = parameters.value("fieldSelector")?;
    selector.split(',').find_map(|term| {
        let value = term.strip_prefix("metadata.name=")?;
        Some(value.strip_prefix('=').unwrap_or(value).to_owned())
    })
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING);
    values
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|token| token.trim() == "gzip")
}

/// Whether plain JSON is among the representations asked for; nothing asks for anything (S-CT-01).
fn accepts_json(headers: &HeaderMap) -> bool {
    let values: Vec<_> =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let joined = values.join(",");
    joined.trim().is_empty()
        || joined.split(',').any(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default();
            matches!(media_type, "application/json" | "application/*" | "*/*")
                && !parts.any(|parameter| parameter.starts_with("as="))
        })
}

fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let bare = value.unwrap_or_default().split(';').next().unwrap_or_default();
    bare.trim().to_ascii_lowercase()
}

async fn read_body(body: Body, verb: Verb) -> Result<Bytes, Failure> {
    if !verb.is_write() {
        return Ok(Bytes::new());
    }
    body.collect(write::BODY_BYTES_MAX).await.map_err(|error| {
        let too_large = error.is::<http_body_util::LengthLimitError>();
        if too_large {
            let message = format!("limit is {}", write::BODY_BYTES_MAX);
            Failure::new(413, "RequestEntityTooLarge", message)
        } else {
            Failure::bad_request("the body could not be read")
        }
    })
}

/// Compresses an answer of known length above the limit.
async fn compress(answered: Response<Body>) -> Response<Body> {
    if answered.body().size_hint().exact().is_none_or(|bytes| bytes <= COMPRESSED_ABOVE_BYTES) {
        return answered;
    }
    let (mut parts, mut body) = answered.into_parts();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(1));
    while let Some(Ok(frame)) = body.frame().await {
        // A Vec takes every write.
        let _ = encoder.write_all(frame.data_ref().map_or(&[], |data| data));
    }
    let compressed = encoder.finish().unwrap_or_default();
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    Response::from_parts(parts, Body::full(compressed))
}
