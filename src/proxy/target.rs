//! Parsed requests, remembered for repetition: a poll is parsed once.
//!
//! Invariant: a remembered target is used only for the same caller, method and target text; that of a
//! GET also without a body or an `Origin`. [`RequestInfo::parse`] depends on nothing else.

use std::{
    hash::BuildHasher,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwapOption;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use tokio::time::Instant;

use super::{authorize, decide, identify::Caller, local, pacing};
use crate::{
    api::{
        media::Negotiated,
        query::Query,
        request::{Read, RequestInfo, ResourceRequest, Rest},
        version::VersionMatch,
    },
    hash::RandomState,
    insight::{self, Insight},
    policy::{Policy, ResourcePolicy},
};

/// The recent targets, each in the slot that its text and caller select.
pub struct Targets {
    reads: Places,
    /// The targets of other methods: writes to many objects must not displace reads.
    others: Places,
    hasher: RandomState,
}

type Places = Box<[Mutex<Option<Arc<Target>>>]>;

/// The parsed request of one caller for one target.
pub struct Target {
    caller: Caller,
    method: Method,
    text: Box<str>,
    /// The target, parsed as the apiserver would.
    pub info: RequestInfo,
    /// The last access review of the caller for this read.
    pub review: authorize::Remembered,
    /// The body that the caller last received.
    pub body: local::Remembered,
    /// The account of its last request.
    pub asker: insight::Remembered,
    /// The counters of its repetitions.
    pub(super) polls: pacing::Remembered,
    rules: ArcSwapOption<Ruled>,
}

/// The rules of the last lookup.
struct Ruled {
    policy: Arc<Policy>,
    /// The user agent, if the rules depend on it.
    user_agent: Option<HeaderValue>,
    rules: ResourcePolicy,
}

/// The limits of targets; of two in the same slot, the later one stays.
const READS_MAX: usize = 256;
const OTHERS_MAX: usize = 64;

/// The longest target remembered, with its method.
const TEXT_BYTES_MAX: usize = 1024;

// === impl Targets ===

impl Targets {
    /// Returns the parsed request.
    pub fn read<B>(&self, caller: Caller, request: &Request<B>) -> Arc<Target> {
        let text = request.uri().path_and_query().map_or("", |target| target.as_str());
        let is_read = request.method() == Method::GET;
        if is_large(request.method(), text) || is_read && !is_bare(request.headers()) {
            return Arc::new(Target::new(caller, text, request));
        }
        let places = if is_read { &self.reads } else { &self.others };
        let place = self.hasher.hash_one((caller, text)) as usize % places.len();
        let mut place = places[place].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(target) = &*place
            && *target.text == *text
            && target.caller == caller
            && target.method == request.method()
        {
            return target.clone();
        }
        let target = Arc::new(Target::new(caller, text, request));
        *place = Some(target.clone());
        target
    }
}

impl Default for Targets {
    fn default() -> Self {
        let places = |count| (0..count).map(|_| Mutex::default()).collect();
        let (reads, others) = (places(READS_MAX), places(OTHERS_MAX));
        Self { reads, others, hasher: RandomState::default() }
    }
}

// === impl Target ===

impl Target {
    /// Returns the caller.
    pub fn caller(&self) -> Caller {
        self.caller
    }

    /// Reports whether it is larger than targets that are kept.
    pub(super) fn is_large(&self) -> bool {
        is_large(&self.method, &self.text)
    }

    /// Returns the query of its URL, as sent.
    pub(super) fn query(&self) -> &str {
        self.text.split_once('?').map_or("", |(_, query)| query)
    }

    /// Returns the account that the request belongs to.
    pub fn asker(
        &self,
        insight: &Insight,
        headers: &HeaderMap,
        caller: Option<&Arc<str>>,
    ) -> insight::Asker {
        self.asker.of(headers, caller, || {
            let (info, text) = (&self.info, &*self.text);
            let caller = caller.map_or("", |caller| caller);
            let question = insight::AccountRequest { info, text, headers, caller };
            insight.asker(&question, Instant::now())
        })
    }

    fn new<B>(caller: Caller, text: &str, request: &Request<B>) -> Self {
        Self {
            caller,
            method: request.method().clone(),
            text: text.into(),
            info: RequestInfo::parse(request.method(), request.uri(), request.headers()),
            review: authorize::Remembered::default(),
            body: local::Remembered::default(),
            asker: insight::Remembered::default(),
            polls: pacing::Remembered::default(),
            rules: ArcSwapOption::default(),
        }
    }

    /// Returns the rules of a policy for a request with these headers.
    pub(super) fn rules(&self, policy: &Arc<Policy>, headers: &HeaderMap) -> ResourcePolicy {
        let user_agent = headers.get(header::USER_AGENT).filter(|_| policy.heeds_user_agents());
        if let Some(ruled) = &*self.rules.load()
            && Arc::ptr_eq(&ruled.policy, policy)
            && ruled.user_agent.as_ref() == user_agent
        {
            return ruled.rules;
        }
        let words = user_agent.map_or(&b""[..], HeaderValue::as_bytes);
        let rules = decide::rules(&self.info, policy, words);
        let (policy, user_agent) = (policy.clone(), user_agent.cloned());
        self.rules.store(Some(Arc::new(Ruled { policy, user_agent, rules })));
        rules
    }
}

/// Reports whether a target is too large to remember. A method may be any word.
fn is_large(method: &Method, text: &str) -> bool {
    method.as_str().len() + text.len() > TEXT_BYTES_MAX
}

/// Reports whether the target alone defines a GET with these headers.
fn is_bare(headers: &HeaderMap) -> bool {
    !headers.contains_key(header::CONTENT_LENGTH)
        && !headers.contains_key(header::TRANSFER_ENCODING)
        && !headers.contains_key(header::ORIGIN)
}

/// Returns the read of a request, if it is one: a whole read, or the rest of an earlier list.
pub(super) fn readable(info: &RequestInfo) -> Option<(&ResourceRequest, &Read)> {
    let request = info.resource_request()?;
    let of_rest = || rest(info).map(|rest| &rest.read);
    Some((request, request.read.as_ref().ok().or_else(of_rest)?))
}

/// Returns the rest of an earlier list, if the request asks for one.
pub(super) fn rest(info: &RequestInfo) -> Option<&Rest> {
    info.resource_request()?.page.as_ref()?.rest.as_ref()
}

/// Returns the representation of the response to a request other than a watch.
pub(super) fn negotiate(info: &RequestInfo, headers: &HeaderMap) -> Negotiated {
    let pretty = readable(info).and_then(|(_, read)| read.pretty.as_deref());
    Negotiated::of(headers, pretty)
}

/// Returns the query and version of a read or a watch.
pub(super) fn sought(info: &RequestInfo) -> Option<(&Query, &VersionMatch)> {
    let request = info.resource_request()?;
    match (&request.read, &request.watch) {
        (Ok(read), _) => Some((&read.query, &read.version)),
        (Err(_), Some(watch)) => Some((&watch.query, &watch.version)),
        (Err(_), None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limit::Rate,
        policy::{General, Mode, Reads, RepeatAction, RepeatPolls, Rewrite, Rule, Start},
        proxy::identify::Unauthenticated,
    };

    const POLL: &str = "/api/v1/pods?labelSelector=app%3Dweb";

    fn request(method: Method, target: &str) -> Request<()> {
        Request::builder().method(method).uri(target).body(()).expect("a request")
    }

    #[test]
    fn a_repeated_target_is_read_once_for_each_caller() {
        let targets = Targets::default();
        let poll = request(Method::GET, POLL);
        let first = targets.read(Caller::Own, &poll);
        let read = RequestInfo::parse(poll.method(), poll.uri(), poll.headers());
        assert_eq!(first.info, read);
        assert!(Arc::ptr_eq(&first, &targets.read(Caller::Own, &poll)));
        let other_caller = Caller::Other(Unauthenticated::NoCredential);
        let other = targets.read(other_caller, &poll);
        assert!(!Arc::ptr_eq(&first, &other));
    }

    #[test]
    fn the_rules_are_those_of_the_policy_and_of_the_client_that_asks() {
        let policy = |start| {
            let agents = Some(vec!["curl/*".parse().expect("a pattern")]);
            let name = || vec!["pods".parse().expect("a name")];
            let of_curl = Rule {
                reads: Reads { user_agents: agents, ..Reads::default() },
                ..Rule::of(name())
            };
            let rate = Rate::new(1.0, 1);
            let (action, max_delay) = (RepeatAction::Off, std::time::Duration::ZERO);
            let repeat_polls = RepeatPolls { rate, action, max_delay, from_memory: rate };
            let general = General { mode: Mode::Enforce, rewrite: Rewrite::Keep, repeat_polls };
            Arc::new(Policy::new(&general, &[of_curl, Rule { start, ..Rule::of(name()) }]))
        };
        let targets = Targets::default();
        let target = targets.read(Caller::Own, &request(Method::GET, POLL));
        let mut headers = HeaderMap::new();
        let (never, eager) = (policy(Start::Never), policy(Start::Eager));
        for _ in 0..2 {
            for (policy, start) in [(&never, Start::Never), (&eager, Start::Eager)] {
                headers.remove(header::USER_AGENT);
                assert_eq!(target.rules(policy, &headers).start, start);
                headers.insert(header::USER_AGENT, HeaderValue::from_static("curl/8"));
                assert_eq!(target.rules(policy, &headers).start, Start::OnDemand);
                headers.insert(header::USER_AGENT, HeaderValue::from_static("other"));
                assert_eq!(target.rules(policy, &headers).start, start);
            }
        }
    }

    #[test]
    fn requests_that_parse_differently_are_kept_apart() {
        let targets = Targets::default();
        let with = |name, value| {
            Request::get(POLL).header(name, value).body(()).expect("a request with a header")
        };
        let mut upgrade = with("origin", "https://example.test");
        upgrade.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        let requests = [
            request(Method::GET, POLL),
            request(Method::HEAD, POLL),
            request(Method::DELETE, POLL),
            with("content-length", "3"),
            with("transfer-encoding", "chunked"),
            with("origin", "https://example.test"),
            upgrade,
            request(Method::GET, "/api/v1/pods?labelSelector=app%3Ddb"),
            request(Method::GET, "/api/v1/pods?labelSelector=app%3Dweb&watch=1"),
        ];
        for request in requests.iter().chain(requests.iter().rev()) {
            let read = RequestInfo::parse(request.method(), request.uri(), request.headers());
            assert_eq!(targets.read(Caller::Own, request).info, read, "{request:?}");
        }
    }

    #[test]
    fn repeated_writes_are_parsed_once_and_leave_reads_in_place() {
        let targets = Targets::default();
        let poll = request(Method::GET, POLL);
        let read = targets.read(Caller::Own, &poll);
        let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let write =
            |method: Method, target: &str| targets.read(Caller::Own, &request(method, target));
        let first = write(Method::POST, reviews);
        assert!(Arc::ptr_eq(&first, &write(Method::POST, reviews)));
        assert!(!Arc::ptr_eq(&first, &write(Method::PUT, reviews)), "another method");
        for number in 0..10 * OTHERS_MAX {
            write(Method::PATCH, &format!("/api/v1/namespaces/a/pods/p{number}"));
        }
        assert!(Arc::ptr_eq(&read, &targets.read(Caller::Own, &poll)));
        assert_eq!(targets.others.len(), OTHERS_MAX);
    }

    #[test]
    fn the_number_and_length_of_targets_are_bounded() {
        let targets = Targets::default();
        let long = "x".repeat(2000);
        let text = format!("/api/v1/pods?fieldSelector={long}");
        let method = Method::from_bytes(long.as_bytes()).expect("a method");
        for long in [request(Method::GET, &text), request(method, POLL)] {
            let first = targets.read(Caller::Own, &long);
            assert!(!Arc::ptr_eq(&first, &targets.read(Caller::Own, &long)));
        }
        for number in 0..10 * READS_MAX {
            targets
                .read(Caller::Own, &request(Method::GET, &format!("/api/v1/pods?limit={number}")));
        }
        assert_eq!(targets.reads.len(), READS_MAX);
        let text = "the newest is there, whatever it took the place of";
        let poll = request(Method::GET, POLL);
        let newest = targets.read(Caller::Own, &poll);
        assert!(Arc::ptr_eq(&newest, &targets.read(Caller::Own, &poll)), "{text}");
    }
}
