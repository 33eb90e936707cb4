//! Dispatches a routed request: authorization, existence, and the handler.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response};

use super::{
    Core,
    call::Call,
    discovery,
    kind::{ResourceType, Style},
    media::{Media, content_type},
    read,
    review::Review,
    route::{Parameters, Route, Target},
    status::{StatusFailure, response, unknown_path},
    upgrade::{self, Switch},
    watch, write,
};
use crate::{
    api::{GroupResource, Verb},
    body::Body,
};

// === impl Core ===

impl Core {
    /// Answers a request that no fault affects.
    pub(super) async fn dispatch(
        self: &Arc<Self>,
        request: Request<Body>,
        route: Route,
        parameters: Parameters,
        media: Media,
    ) -> Response<Body> {
        let answered = match route {
            Route::Resource(target) => self.resource(request, target, parameters, media).await,
            Route::Other(path) => self.other(&request, &path),
        };
        answered.unwrap_or_else(StatusFailure::into_response)
    }

    /// Answers discovery, health and unknown paths.
    fn other(&self, request: &Request<Body>, path: &str) -> Result<Response<Body>, StatusFailure> {
        let caller = self.access.caller(request.headers())?;
        caller.check_path(request.uri().path())?;
        match *request.method() {
            Method::GET | Method::HEAD | Method::OPTIONS => {
                Ok(discovery::answer(self, request, path))
            }
            _ => Err(StatusFailure::method_not_allowed()),
        }
    }

    async fn resource(
        self: &Arc<Self>,
        mut request: Request<Body>,
        target: Target,
        parameters: Parameters,
        media: Media,
    ) -> Result<Response<Body>, StatusFailure> {
        let caller = self.access.caller(request.headers())?;
        if let Some(review) = Review::of(&target, request.method()) {
            return review.answer(self, &caller, &target, request).await;
        }
        let verb = target.verb(request.method(), &parameters);
        let pinned = pinned_name(&parameters);
        caller.check(&target, verb, pinned.as_deref())?;
        let Some(kind) = self.kind(&target) else { return Ok(self.unknown(&target)) };
        if is_misplaced(&kind, &target) {
            return Ok(nowhere(kind.style));
        }
        match (request.method(), kind.style) {
            (&Method::HEAD, Style::Custom) => {
                return Ok(response(200, "application/json", Bytes::new()));
            }
            (_, Style::Custom) if verb == Verb::Other => return Ok(unknown_path()),
            (&Method::HEAD, Style::Typed) => return Err(StatusFailure::method_not_allowed()),
            _ => {}
        }
        let switch = Switch::asked(&mut request);
        if upgrade::is_stream(&target) {
            let switch = switch.ok_or_else(upgrade::required)?;
            return Ok(switch.echo(self.interruptions.follow()));
        }
        let switch = switch.filter(|switch| verb == Verb::Watch && switch.is_websocket());
        if let Some(refusal) = media.refusal(kind.style, verb) {
            return Ok(refusal);
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

    async fn call(self: &Arc<Self>, call: &Call) -> Result<Response<Body>, StatusFailure> {
        check_common(call)?;
        let named = call.target.name.is_some();
        match (call.verb, call.target.subresource.as_deref()) {
            (Verb::Watch, None) => watch::watch(self, call).await,
            (Verb::List, None) => read::list(self, call).await,
            (Verb::Get, None) => read::get(self, call).await,
            (Verb::Get, Some(_)) => {
                write::check_subresource(call)?;
                read::get(self, call).await
            }
            // A write needs one namespace.
            (Verb::Create | Verb::DeleteCollection, None)
                if call.kind.namespaced && call.target.namespace.is_none() =>
            {
                Err(StatusFailure::method_not_allowed())
            }
            (Verb::Create, None) if !named => write::create(self, call),
            (Verb::Create, Some(subresource)) => write::create_subresource(self, call, subresource),
            (Verb::Update, _) if named => write::update(self, call),
            (Verb::Patch, _) if named => write::patch(self, call),
            (Verb::Delete, None) => write::delete(self, call),
            (Verb::DeleteCollection, None) => write::delete_collection(self, call),
            _ => Err(StatusFailure::method_not_allowed()),
        }
    }

    /// Returns the resource of a target, if it is served at that version.
    fn kind(&self, target: &Target) -> Option<Arc<ResourceType>> {
        let name = GroupResource::new(&target.group, &target.resource);
        let kind = self.store().collection(&name).map(|collection| collection.kind.clone());
        kind.filter(|kind| kind.versions.contains(&target.version))
    }

    /// Answers a request for an unknown resource: a Status in a built-in group, else plain text
    /// (S-URL-12).
    fn unknown(&self, target: &Target) -> Response<Body> {
        let store = self.store();
        let mut kinds = store.collections().map(|collection| &collection.kind);
        let built_in = target.group.is_empty()
            || kinds.any(|kind| kind.style == Style::Typed && kind.group == target.group);
        nowhere(if built_in { Style::Typed } else { Style::Custom })
    }
}

/// Returns one of the two forms of a 404.
pub(super) fn nowhere(style: Style) -> Response<Body> {
    match style {
        Style::Typed => StatusFailure::unknown_resource().into_response(),
        Style::Custom => unknown_path(),
    }
}

/// Reports whether a path has a namespace too many or too few.
fn is_misplaced(kind: &ResourceType, target: &Target) -> bool {
    let other_scope = target.namespace.is_some() != kind.namespaced;
    other_scope
        && kind.plural != "namespaces"
        && (target.name.is_some() || target.namespace.is_some())
}

/// Returns the name that a field selector pins, which counts for authorization (S-URL-07).
fn pinned_name(parameters: &Parameters) -> Option<String> {
    let selector = parameters.value("fieldSelector")?;
    selector.split(',').find_map(|term| {
        let value = term.strip_prefix("metadata.name=")?;
        Some(value.strip_prefix('=').unwrap_or(value).to_owned())
    })
}

/// Checks the parameters of every verb: `timeout`, `export`, the name's form.
fn check_common(call: &Call) -> Result<(), StatusFailure> {
    if let Some(timeout) = call.parameters.value("timeout").filter(|_| call.verb != Verb::Watch) {
        parse_duration(timeout).map_err(|why| {
            let message = format!("invalid timeout specified in the request URL - time: {why}");
            StatusFailure::bad_request(message)
        })?;
    }
    if call.verb == Verb::Get && call.parameters.flag("export") == Some(true) {
        let message = "the export parameter, deprecated since v1.14, is no longer supported";
        return Err(StatusFailure::bad_request(message));
    }
    match call.target.name.as_deref().filter(|_| call.target.subresource.is_none()) {
        Some(name @ ("." | "..")) => {
            let message = format!("Name parameter invalid: {name:?}: may not be '{name}'");
            Err(StatusFailure::bad_request(message))
        }
        _ => Ok(()),
    }
}

/// Parses a Go duration such as `1m30s`. An error has Go's words (S-URL-11).
fn parse_duration(text: &str) -> Result<Duration, String> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut seconds = 0.0;
    if rest.is_empty() {
        return Err(format!("invalid duration {text:?}"));
    }
    while !rest.is_empty() && text != "0" {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number = rest[..digits].parse::<f64>();
        let number = number.map_err(|_| format!("invalid duration {text:?}"))?;
        let end = rest[digits..].find(|c: char| c.is_ascii_digit() || c == '.');
        let unit = &rest[digits..end.map_or(rest.len(), |end| digits + end)];
        let scale = units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| scale);
        seconds += number
            * scale.ok_or_else(|| match unit {
                "" => format!("missing unit in duration {text:?}"),
                unit => format!("unknown unit {unit:?} in duration {text:?}"),
            })?;
        rest = &rest[digits + unit.len()..];
    }
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

async fn read_body(body: Body, verb: Verb) -> Result<Bytes, StatusFailure> {
    if !verb.is_write() {
        return Ok(Bytes::new());
    }
    body.collect(write::BODY_BYTES_MAX).await.map_err(|error| {
        let too_large = error.is::<http_body_util::LengthLimitError>();
        if too_large {
            let message = format!("limit is {}", write::BODY_BYTES_MAX);
            StatusFailure::new(413, "RequestEntityTooLarge", message)
        } else {
            StatusFailure::bad_request("the body could not be read")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_in_go() {
        for (text, expected) in [
            ("10s", Ok(Duration::from_secs(10))),
            ("1m30s", Ok(Duration::from_secs(90))),
            ("1.5h", Ok(Duration::from_secs(5400))),
            ("0", Ok(Duration::ZERO)),
            ("abc", Err("invalid duration \"abc\"")),
            ("10", Err("missing unit in duration \"10\"")),
            ("10x", Err("unknown unit \"x\" in duration \"10x\"")),
            ("", Err("invalid duration \"\"")),
        ] {
            assert_eq!(parse_duration(text), expected.map_err(str::to_owned), "{text:?}");
        }
    }
}
