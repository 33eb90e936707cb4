//! Requests for documents that may be cached, and everything that their responses depend on. Pure.
//!
//! Only plain forms are accepted. A request that could get another response (another method, a
//! range, an unknown parameter, a browser) is forwarded.

use std::{collections::BTreeSet, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, header};

use crate::{
    api::{media, request::timeout},
    proxy::listen::edge::named_by_connection,
};

/// A request for a document that may be cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The sources of the document.
    pub subject: Subject,
    /// Everything that its response depends on, without the caller.
    pub key: Key,
    /// The version that the client has already.
    pub condition: Condition,
}

/// The sources of a document, beside the apiserver's own types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// CustomResourceDefinitions and APIServices only.
    Cluster,
    /// The same, for one group and version: the name of its APIService.
    Version(Box<str>),
    /// The same, and every aggregated server's own description.
    Everything,
}

/// Everything that a response depends on, without the caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    target: Box<str>,
    accept: Option<HeaderValue>,
    accept_encoding: Option<HeaderValue>,
}

/// The version of a document that a client has already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// None, or unknown.
    Absent,
    /// The version with this entity tag.
    Tag(HeaderValue),
}

/// Headers that could change a response in ways that are not modelled here.
const ODD: [HeaderName; 14] = [
    header::RANGE,
    header::IF_RANGE,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    header::CACHE_CONTROL,
    header::PRAGMA,
    header::ORIGIN,
    header::UPGRADE,
    header::EXPECT,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    // The addresses in `/api` depend on the client's own address.
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-real-ip"),
];

/// The Accept parameter that asks for all groups in one document (S-DISC-02).
const AGGREGATED: &str = "APIGroupDiscoveryList";

/// The longest target that is accepted.
const TARGET_BYTES_MAX: usize = 1024;

/// The longest Accept header: it is stored with each document.
const ACCEPT_BYTES_MAX: usize = 512;

/// The shortest client timeout that is accepted; shorter ones are forwarded.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);

// === impl Wanted ===

impl Wanted {
    /// Returns the requested document, if it may be cached and the request has a plain form.
    pub fn of<B>(request: &Request<B>) -> Option<Self> {
        let (uri, headers) = (request.uri(), request.headers());
        let is_plain = request.method() == Method::GET
            && uri.path().len() + uri.query().map_or(0, str::len) <= TARGET_BYTES_MAX
            && !ODD.iter().any(|name| headers.contains_key(name))
            && !nominates(headers)
            && !media::is_for_people(headers);
        if !is_plain {
            return None;
        }
        let accept = only(headers, &header::ACCEPT)?;
        let accept_encoding = only(headers, &header::ACCEPT_ENCODING)?;
        if [accept, accept_encoding].iter().flatten().any(|it| it.len() > ACCEPT_BYTES_MAX) {
            return None;
        }
        let subject = subject(uri.path(), accept)?;
        let target = target(uri.path(), uri.query().unwrap_or_default())?;
        let condition = match only(headers, &header::IF_NONE_MATCH)? {
            None => Condition::Absent,
            Some(value) if is_tag(value) => Condition::Tag(value.clone()),
            Some(_) => return None,
        };
        let (accept, accept_encoding) = (accept.cloned(), accept_encoding.cloned());
        Some(Self { subject, key: Key { target, accept, accept_encoding }, condition })
    }
}

/// Reports whether `Connection` names a header, which the apiserver then does not get: the response
/// does not depend on it.
fn nominates(headers: &HeaderMap) -> bool {
    named_by_connection(headers).any(|name| {
        !["", "close", "keep-alive"].iter().any(|it| name.eq_ignore_ascii_case(it.as_bytes()))
    })
}

// === impl Subject ===

impl Subject {
    /// Reports whether the document contains a description by the server of one of these
    /// APIServices.
    pub fn is_described_by(&self, remote: &BTreeSet<Box<str>>) -> bool {
        match self {
            Self::Cluster => false,
            Self::Version(name) => remote.contains(name),
            Self::Everything => !remote.is_empty(),
        }
    }
}

// === impl Key ===

impl Key {
    /// Returns the memory taken, estimated.
    pub(super) fn bytes(&self) -> usize {
        let length = |value: &Option<HeaderValue>| value.as_ref().map_or(0, HeaderValue::len);
        self.target.len() + length(&self.accept) + length(&self.accept_encoding)
    }
}

/// Reports whether this is one strong entity tag. Every handler of these documents parses it alike;
/// only OpenAPI's handlers accept lists, weak tags and `*`.
pub(super) fn is_tag(value: &HeaderValue) -> bool {
    let inner = value.as_bytes().strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    inner.is_some_and(|inner| !inner.is_empty() && inner.iter().all(u8::is_ascii_alphanumeric))
}

/// Returns the only value of a header, if it has one; `None` if it has several.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Option<&'a HeaderValue>> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Some(value),
        (_, Some(_)) => None,
    }
}

/// Returns the sources of the document at a path; `None` for `/version` and health.
fn subject(path: &str, accept: Option<&HeaderValue>) -> Option<Subject> {
    let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    if !parts.iter().all(|part| is_plain(part)) {
        return None;
    }
    // The apiserver allows spaces around the sign before it.
    let is_aggregated = || {
        let clauses = accept.map_or(&[][..], HeaderValue::as_bytes);
        clauses.windows(AGGREGATED.len()).any(|window| window == AGGREGATED.as_bytes())
    };
    Some(match parts[..] {
        ["apis"] if is_aggregated() => Subject::Everything,
        ["api"] | ["apis"] | ["apis", _] => Subject::Cluster,
        ["api", version] => Subject::Version(format!("{version}.").into()),
        ["apis", group, version] => Subject::Version(format!("{version}.{group}").into()),
        ["openapi", "v2"] | ["openapi", "v3", ..] => Subject::Everything,
        _ => return None,
    })
}

/// Reports whether a path segment has only one reading.
fn is_plain(part: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !part.is_empty() && !matches!(part, "." | "..") && part.bytes().all(plain)
}

/// Returns path and query without parameters that do not change the response; `None` if a parameter
/// is unknown.
fn target(path: &str, query: &str) -> Option<Box<str>> {
    let (mut hash, mut limit) = (None, None);
    for pair in query.split('&').filter(|_| !query.is_empty()) {
        let (name, value) = pair.split_once('=')?;
        let slot = match name {
            "timeout" if timeout(value).is_some_and(|limit| limit >= TIMEOUT_MIN) => &mut limit,
            "hash" if path.starts_with("/openapi/v3/") && is_plain(value) => &mut hash,
            _ => return None,
        };
        if slot.replace(value).is_some() {
            return None;
        }
    }
    Some(match hash {
        Some(hash) => format!("{path}?hash={hash}").into(),
        None => path.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(target: &str, headers: &[(&'static str, &str)]) -> Option<Wanted> {
        let mut request = Request::get(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Wanted::of(&request.body(()).expect("a request"))
    }

    fn subject_of(target: &str) -> Option<Subject> {
        asked(target, &[]).map(|wanted| wanted.subject)
    }

    #[test]
    fn path_and_accept_header_select_the_subject_of_a_document() {
        let version = |name: &str| Some(Subject::Version(name.into()));
        let rows = [
            ("/api", Some(Subject::Cluster)),
            ("/apis", Some(Subject::Cluster)),
            ("/apis?timeout=32s", Some(Subject::Cluster)),
            ("/apis/apps", Some(Subject::Cluster)),
            ("/api/v1", version("v1.")),
            ("/apis/shop.example.com/v1beta1", version("v1beta1.shop.example.com")),
            ("/openapi/v2", Some(Subject::Everything)),
            ("/openapi/v3", Some(Subject::Everything)),
            ("/openapi/v3/apis/apps/v1?hash=0A", Some(Subject::Everything)),
        ];
        for (target, expected) in rows {
            assert_eq!(subject_of(target), expected, "{target}");
        }
        for sign in ["=", "= ", " ="] {
            let aggregated = format!(
                "application/json;g=apidiscovery.k8s.io;v=v2;as{sign}APIGroupDiscoveryList"
            );
            let wanted = asked("/apis", &[("accept", &aggregated)]).expect("a document");
            assert_eq!(wanted.subject, Subject::Everything);
        }
    }

    #[test]
    fn requests_in_other_forms_are_not_accepted() {
        for target in [
            "/",
            "/version",
            "/healthz",
            "/api/",
            "/apis//v1",
            "/apis/a/v1/things",
            "/api/v1/pods",
            "/openapi",
            "/openapi/v3/",
            "/openapi/v2?hash=0A",
            "/apis?pretty=true",
            "/apis?timeout=abc",
            "/apis?timeout=0",
            "/apis?timeout=1ms",
            "/apis?timeout=1s&timeout=2s",
            "/apis?hash=0A",
            "/apis?",
            "/apis/%61pps",
            "/apis/..",
        ] {
            let understood = subject_of(target).is_some();
            assert_eq!(understood, target == "/apis?", "{target}");
        }
        for header in [
            ("range", "bytes=0-1"),
            ("cache-control", "no-cache"),
            ("x-forwarded-for", "10.0.0.1"),
            ("user-agent", "curl/8.1"),
            ("content-length", "3"),
            ("if-none-match", "*"),
            ("if-none-match", "W/\"A\""),
            ("if-none-match", "\"A\", \"B\""),
            ("if-none-match", "A"),
            ("if-modified-since", "Mon, 22 Nov 2027 07:20:00 GMT"),
        ] {
            assert_eq!(asked("/openapi/v2", &[header]), None, "{header:?}");
        }
        assert_eq!(asked("/apis", &[("accept", &"a".repeat(513))]), None);
        let twice = [("accept", "application/json"), ("accept", "application/yaml")];
        assert_eq!(asked("/apis", &twice), None);
        let head = Request::head("/apis").body(()).expect("a request");
        assert_eq!(Wanted::of(&head), None);
    }

    #[test]
    fn a_request_whose_headers_end_here_is_not_accepted() {
        for (value, accepted) in [
            ("close", true),
            ("keep-alive, Close", true),
            ("accept", false),
            ("Keep-Alive, If-None-Match", false),
            ("accept-encoding", false),
        ] {
            let wanted = asked("/openapi/v2", &[("connection", value)]);
            assert_eq!(wanted.is_some(), accepted, "{value}");
        }
    }

    #[test]
    fn the_key_holds_exactly_what_the_response_depends_on() {
        let key = |target, headers: &[_]| asked(target, headers).expect("a document").key;
        let plain = key("/apis", &[]);
        assert_eq!(plain, key("/apis?timeout=32s", &[("user-agent", "kubectl/v1.36")]));
        assert_eq!(plain, key("/apis", &[("if-none-match", "\"A\"")]));
        assert_ne!(plain, key("/apis", &[("accept", "application/yaml")]));
        assert_ne!(plain, key("/apis", &[("accept-encoding", "gzip")]));
        assert_ne!(plain, key("/api", &[]));
        let hashed = |hash: &str| {
            let target = format!("/openapi/v3/api/v1?hash={hash}");
            asked(&target, &[]).expect("a document").key
        };
        assert_ne!(hashed("0A"), hashed("0B"));
    }

    #[test]
    fn documents_of_aggregated_servers_are_recognised() {
        let remote = BTreeSet::from(["v1beta1.metrics.k8s.io".into()]);
        let is_described =
            |target| subject_of(target).is_some_and(|it| it.is_described_by(&remote));
        assert!(is_described("/openapi/v2"));
        assert!(is_described("/apis/metrics.k8s.io/v1beta1"));
        for target in ["/api", "/apis", "/apis/metrics.k8s.io", "/api/v1", "/apis/apps/v1"] {
            assert!(!is_described(target), "{target}");
        }
        let local = Subject::Everything;
        assert!(!local.is_described_by(&BTreeSet::new()));
    }
}
