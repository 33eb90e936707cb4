//! The explanation of a request's outcome, for the command line, the admin address and the page.
//!
//! The explanation uses the data path's own `decide`. It decides once without replicas, and once
//! with their content if there are any. It has no side effects: no replica is started, marked as
//! used, or waited for.

mod words;

use std::{borrow::Cow, fmt::Write};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use serde::{Deserialize, Serialize};
use tokio::time::{Duration, Instant};

use crate::{
    api::{
        Scope, Verb,
        media::Negotiated,
        request::{Read, RequestInfo, ResourceRequest, Start},
        version::VersionMatch,
    },
    cache::{Absence, Cache, Demand, Link, Lookup, Reach, SyncState, View},
    config::Config,
    policy::{Mode, Origin, RepeatAction, RepeatPolls, ResourcePolicy},
    proxy::{
        decide::{self, Candidate, Forward, Keeping, Plan, Rewriting, Step},
        identify::Caller,
        session::Session,
    },
    websocket::Asked,
};

pub use self::words::{BadHeader, BadMethod, headers, method};

/// The outcome of a request, topic by topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The statements in reading order.
    pub told: Vec<Statement>,
}

/// The statement on one topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// The topic, in a few words.
    pub topic: Cow<'static, str>,
    /// The statement.
    pub text: String,
}

/// The described request.
#[derive(Clone, Copy)]
pub struct ExplainedRequest<'a> {
    /// The method.
    pub method: &'a Method,
    /// The URL, or its path and query.
    pub uri: &'a Uri,
    /// The headers.
    pub headers: &'a HeaderMap,
}

/// Explains a request of Listless's own user in a new session. It gives the general outcome, and if
/// there are replicas the outcome with their current content.
pub fn explain(
    asked: ExplainedRequest<'_>,
    config: &Config,
    replicas: Option<&Cache>,
) -> Explanation {
    let ExplainedRequest { method, uri, headers } = asked;
    let info = RequestInfo::parse(method, uri, headers);
    let mut explanation = Explanation { told: Vec::new() };
    let Some(request) = info.resource_request() else {
        explanation.say("request", format!("{method}, which names no resource"));
        explanation.document(asked, config);
        return explanation;
    };
    explanation.say("request", describe(request));
    if let Ok(read) = &request.read {
        explanation.say("asks for", wanted(read));
    }
    let user_agent = headers.get(http::header::USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes);
    let rules = decide::rules(&info, &config.policy, user_agent);
    explanation.say("policy", rule(&rules, config));
    if let Some(poll) = decide::poll(&info, Caller::Own, &rules) {
        if poll.upstream_limit().is_some() {
            explanation.say("if forwarded", too_often(&poll.terms));
        }
        if poll.terms.action != RepeatAction::Off {
            explanation.say("if from memory", too_often_from_memory(&poll.terms));
        }
    }
    if config.policy.mode() == Mode::Observe {
        explanation.say(
            "mode",
            "observe: everything is forwarded unchanged; below is the outcome in mode enforce"
                .to_owned(),
        );
    }
    let session = Session::default();
    if request.verb == Verb::Watch {
        explanation.watch(&info, headers, &rules, &session, replicas);
        return explanation;
    }
    let negotiated = negotiate(&info, headers);
    match decide::candidate(&info, Caller::Own, negotiated, &rules, &session) {
        Err(plan) => explanation.say("outcome", outcome(&plan)),
        Ok(candidate) => explanation.outcomes(&candidate, &session, replicas),
    }
    explanation
}

// === impl Explanation ===

impl Explanation {
    fn say(&mut self, topic: &'static str, text: String) {
        self.told.push(Statement { topic: topic.into(), text });
    }

    /// Explains a request without a resource.
    fn document(&mut self, asked: ExplainedRequest<'_>, config: &Config) {
        let mut request = Request::new(());
        (*request.method_mut(), *request.uri_mut()) = (asked.method.clone(), asked.uri.clone());
        *request.headers_mut() = asked.headers.clone();
        let keeping = Keeping::of(config.discovery_cache);
        match decide::document_candidate(&request, Caller::Own, keeping) {
            Err(plan) => self.say("outcome", outcome(&plan)),
            Ok(_) => {
                let text = "answered from memory while its watches prove it current, for ten seconds at a \
                     time";
                self.say("after the first request", text.to_owned());
                self.say("otherwise", "revalidated with the apiserver".to_owned());
            }
        }
    }

    /// Explains a watch.
    fn watch(
        &mut self,
        info: &RequestInfo,
        headers: &HeaderMap,
        rules: &ResourcePolicy,
        session: &Session,
        replicas: Option<&Cache>,
    ) {
        let (media, asked) = (Negotiated::of_watch(headers), Asked::of(headers));
        let candidate = decide::watch_candidate(info, Caller::Own, media, &asked, rules, session);
        let candidate = match candidate {
            Err(plan) => return self.say("outcome", outcome(&plan)),
            Ok(candidate) => candidate,
        };
        let level = candidate.level.as_str();
        let start = match candidate.watch.start {
            Start::State => "as soon as it is fresh enough",
            Start::Events => "if its recent events reach back far enough",
        };
        self.say("with a replica", format!("answered from memory {start} ({level})"));
        let absent = Lookup::Absent(Absence::NotDemanded);
        let now = Instant::now();
        let step = decide::decide_watch(&candidate, &absent, session, now, Duration::ZERO);
        if let Step::Act(plan) = step {
            self.say("without one", outcome(&plan));
        }
        if let Some(cache) = replicas {
            let (held, now) =
                (cache.held(&candidate.watch.query, candidate.form()), Instant::now());
            self.say("replica", held_now(&held, now));
            let step = decide::decide_watch(&candidate, &held, session, now, Duration::ZERO);
            self.say("now", next(&step));
        }
    }

    /// Explains the outcomes with and without a replica, and with the present replicas.
    fn outcomes(&mut self, candidate: &Candidate<'_>, session: &Session, replicas: Option<&Cache>) {
        let level = candidate.level.as_str();
        // The apiserver ignores the limit with resourceVersion=0 (S-LIST-23).
        let page = match (candidate.read.limit, &candidate.read.version) {
            (Some(limit), version) if *version != VersionMatch::Any => {
                format!(", {limit} objects at a time")
            }
            _ => String::new(),
        };
        let text = format!("answered from memory as soon as it is fresh enough ({level}){page}");
        self.say("with a replica", text);
        let absent = Lookup::Absent(Absence::NotDemanded);
        let now = Instant::now();
        if let Step::Act(plan) = decide::decide(candidate, &absent, session, now, Duration::ZERO) {
            self.say("without one", outcome(&plan));
        }
        if candidate.demand != Demand::Ignore {
            self.say("repeated", "starts a replica, as far as the policy allows".to_owned());
        }
        if let Some(cache) = replicas {
            let (held, now) = (cache.held(&candidate.read.query, candidate.form()), Instant::now());
            self.say("replica", held_now(&held, now));
            let step = decide::decide(candidate, &held, session, now, Duration::ZERO);
            self.say("now", next(&step));
        }
    }
}

impl std::fmt::Display for Explanation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.told.iter().try_for_each(|Statement { topic, text }| writeln!(f, "{topic:<15} {text}"))
    }
}

fn describe(request: &ResourceRequest) -> String {
    let mut text = format!("{} {}", request.verb.as_str(), request.resource);
    if let Some(subresource) = &request.subresource {
        write!(text, "/{subresource}").expect("writing to a string cannot fail");
    }
    if let Some(name) = &request.name {
        write!(text, " {name}").expect("writing to a string cannot fail");
    }
    match &request.scope {
        Scope::Namespace(namespace) => text + " in namespace " + namespace,
        Scope::All => text + " in the whole cluster",
    }
}

fn wanted(read: &Read) -> String {
    let version = match &read.version {
        VersionMatch::MostRecent => "the most recent state (resourceVersion is unset)".to_owned(),
        VersionMatch::Any => "any state (resourceVersion=0)".to_owned(),
        VersionMatch::NotOlderThan(version) => format!("a state not older than {version}"),
        VersionMatch::Exact(version) => format!("exactly the state at {version}"),
    };
    let mut parts = vec![version];
    if !read.query.labels.is_everything() {
        parts.push(format!("labels {}", read.query.labels));
    }
    if !read.query.fields.is_everything() && read.name.is_none() {
        parts.push(format!("fields {}", read.query.fields));
    }
    if let Some(limit) = read.limit {
        parts.push(format!("at most {limit} objects"));
    }
    parts.join(", ")
}

fn rule(policy: &ResourcePolicy, config: &Config) -> String {
    let what = match policy.origin {
        Origin::Rule(index) => {
            let resources =
                config.raw().cache.rules.get(index).map(|rule| rule.resources.join(", "));
            format!("cache.rules[{index}] ({})", resources.unwrap_or_default())
        }
        Origin::Reserved => "left alone unless a rule names it".to_owned(),
        Origin::Unmatched => "no rule matches".to_owned(),
    };
    let staleness = crate::config::Span(policy.max_staleness);
    format!(
        "{what}: start {}, freshness {}, maxStaleness {staleness}, rewrite {}",
        policy.start.as_str(),
        policy.freshness.as_str(),
        policy.rewrite.as_str(),
    )
}

fn too_often(polls: &RepeatPolls) -> String {
    let span = |duration| crate::config::Span(duration).to_string();
    let (interval, burst) = (span(polls.rate.interval()), polls.rate.burst());
    let often = format!("limited to one per {interval} after a burst of {burst}");
    match polls.action {
        RepeatAction::Pace => {
            let delay = span(polls.max_delay);
            format!("{often}; further ones are delayed by at most {delay} and share one response")
        }
        RepeatAction::Reject => format!("{often}; further ones are refused with 429"),
        RepeatAction::Off => "not limited".to_owned(),
    }
}

fn too_often_from_memory(polls: &RepeatPolls) -> String {
    let per_second = polls.from_memory.burst();
    let delay = crate::config::Span(decide::MEMORY_DELAY_MAX);
    format!(
        "limited to {per_second} identical, unchanged responses a second; further ones are delayed \
         by at most {delay}, never refused"
    )
}

fn negotiate(info: &RequestInfo, headers: &HeaderMap) -> Negotiated {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let read = info.resource_request().and_then(|request| request.read.as_ref().ok());
    let pretty = read.and_then(|read| read.pretty.as_deref());
    Negotiated::negotiate(
        text(http::header::ACCEPT),
        pretty,
        text(http::header::USER_AGENT).map(str::as_bytes),
    )
}

fn outcome(plan: &Plan) -> String {
    match plan {
        Plan::Read(_) | Plan::Watch(_) => "answered from memory".to_owned(),
        Plan::Document(_) => "a discovery document".to_owned(),
        Plan::Share(forward) => {
            format!("{}; identical concurrent reads share one response", sent(forward))
        }
        Plan::Forward(forward) => sent(forward),
        Plan::Pace(_) => "throttled".to_owned(),
        Plan::Reject(_) => "refused with 429".to_owned(),
    }
}

/// Names the step that comes before a decision.
fn next(step: &Step) -> String {
    let wait = match step {
        Step::Act(plan) => return outcome(plan),
        Step::Await(wait) => wait,
    };
    let reach = match &wait.reach {
        Reach::Synced => "has its first list".to_owned(),
        Reach::Version(version) => format!("reaches version {version}"),
        Reach::Newer(version) => format!("is newer than version {version}"),
    };
    let patience = wait.patience.as_millis();
    format!("waits until the replica {reach}, at most {patience} ms, and decides again")
}

/// Describes the replica that would answer.
fn held_now(held: &Lookup, now: Instant) -> String {
    let view = match held {
        Lookup::Found(view) => view,
        Lookup::Absent(Absence::NotDemanded) => return "none covers it".to_owned(),
        Lookup::Absent(absence) => {
            let reason = decide::ForwardReason::from(absence);
            return format!("none covers it: {}", reason.as_str());
        }
    };
    let query = view.replica.query();
    let mut text = query.resource.to_string();
    text += &match &query.scope {
        Scope::Namespace(namespace) => format!(" in namespace {namespace}"),
        Scope::All => "in the whole cluster".to_owned(),
    };
    if !query.labels.is_everything() {
        text += &format!(", labels {}", query.labels);
    }
    if !query.fields.is_everything() {
        text += &format!(", fields {}", query.fields);
    }
    text + &fares(view, now)
}

fn fares(view: &View, now: Instant) -> String {
    let state = match (view.state, view.link) {
        (SyncState::Starting, _) => ": its first list is in progress",
        (SyncState::Failing, _) => ": its list failed",
        (SyncState::Synced, Link::Up) => ": it follows the apiserver",
        (SyncState::Synced, Link::Lost { .. }) => ": its watch is disconnected",
    };
    let mut text = state.to_owned();
    if let Some(snapshot) = &view.snapshot {
        text += &format!(", {} objects at version {}", snapshot.len(), snapshot.version());
    }
    if let Some(at) = view.proven_at {
        let age = now.saturating_duration_since(at).as_secs_f64();
        text += &format!(", last update {age:.1} s ago");
    }
    text
}

fn sent(Forward { reason, rewriting }: &Forward) -> String {
    let changed = match rewriting {
        Rewriting::Keep => "unchanged".to_owned(),
        Rewriting::Any => "with resourceVersion=0".to_owned(),
        Rewriting::NotOlderThan(version) => format!("with resourceVersion={version}"),
        Rewriting::Brief(length) => format!("with timeoutSeconds={}", length.as_secs()),
    };
    format!("forwarded {changed}: {}", reason.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(method: Method, url: &'static str, config: &Config) -> Explanation {
        let (uri, headers) = (Uri::from_static(url), HeaderMap::new());
        explain(ExplainedRequest { method: &method, uri: &uri, headers: &headers }, config, None)
    }

    impl Explanation {
        fn about(&self, topic: &str) -> &str {
            self.told.iter().find(|told| told.topic == topic).map_or("", |told| &told.text)
        }
    }

    #[test]
    fn a_poll_is_explained_with_its_rule_and_both_outcomes() {
        let url = "/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb&limit=5";
        let told = explained(Method::GET, url, &Config::default());
        assert_eq!(told.about("request"), "list pods.v1 in namespace shop");
        let asked =
            "the most recent state (resourceVersion is unset), labels app=web, at most 5 objects";
        assert_eq!(told.about("asks for"), asked);
        assert!(told.about("policy").starts_with("cache.rules[1] (*): start onDemand"));
        assert!(told.about("with a replica").ends_with("5 objects at a time"));
        assert_eq!(told.about("without one"), "forwarded unchanged: not-demanded");
        let told = explained(Method::GET, "/api/v1/pods", &Config::default());
        assert_eq!(told.about("without one"), "forwarded with resourceVersion=0: not-demanded");
    }

    #[test]
    fn a_request_that_memory_never_answers_has_one_outcome_and_a_reason() {
        for (method, url, outcome) in [
            (Method::POST, "/api/v1/namespaces/shop/pods", "forwarded unchanged: write"),
            (Method::GET, "/api/v1/secrets", "forwarded unchanged: never-cached"),
            (Method::GET, "/version", "forwarded unchanged: non-resource"),
        ] {
            let told = explained(method, url, &Config::default());
            assert_eq!(told.about("outcome"), outcome, "{url}");
            assert_eq!(told.about("with a replica"), "");
        }
    }

    #[test]
    fn a_watch_is_explained_with_its_start() {
        for (url, start) in [
            ("/api/v1/pods?watch=1", "as soon as it is fresh enough (session)"),
            (
                "/api/v1/pods?watch=1&resourceVersion=7",
                "if its recent events reach back far enough (notOlderThan)",
            ),
        ] {
            let told = explained(Method::GET, url, &Config::default());
            assert_eq!(told.about("with a replica"), format!("answered from memory {start}"));
            assert_eq!(told.about("without one"), "forwarded unchanged: not-demanded");
        }
        let url = "/api/v1/pods?watch=1&resourceVersion=x";
        let told = explained(Method::GET, url, &Config::default());
        assert_eq!(told.about("outcome"), "forwarded unchanged: bad-version");
    }

    #[test]
    fn the_configuration_decides_the_outcome() {
        let text = "apiVersion: listless.dev/v1alpha1\nkind: ProxyConfiguration\n\
                    cache: {rules: [{resources: [pods], freshness: mostRecent}]}\n";
        let config = Config::from_bytes("c.yaml".as_ref(), text.as_bytes()).unwrap();
        let told = explained(Method::GET, "/api/v1/pods", &config);
        let shared =
            "forwarded unchanged: most-recent; identical concurrent reads share one response";
        assert_eq!(told.about("outcome"), shared);
        let told = explained(Method::GET, "/api/v1/nodes", &config);
        assert!(told.about("policy").starts_with("no rule matches"), "{told}");
    }

    #[test]
    fn a_rule_for_one_client_and_the_poll_limit_are_named() {
        let text = "apiVersion: listless.dev/v1alpha1\nkind: ProxyConfiguration\n\
                    cache: {rules: [{resources: [pods], userAgents: ['curl/*'], start: never}]}\n\
                    repeatPolls: {action: reject, perSecond: 0.5}\n";
        let config = Config::from_bytes("c.yaml".as_ref(), text.as_bytes()).unwrap();
        let (method, uri) = (Method::GET, Uri::from_static("/api/v1/pods"));
        let mut headers = HeaderMap::new();
        headers.insert("user-agent", HeaderValue::from_static("curl/8"));
        let question = ExplainedRequest { method: &method, uri: &uri, headers: &headers };
        let told = explain(question, &config, None);
        assert!(told.about("policy").starts_with("cache.rules[0] (pods)"), "{told}");
        let told = explained(Method::GET, "/api/v1/pods", &config);
        assert!(told.about("policy").starts_with("no rule matches"), "{told}");
        let limited =
            "limited to one per 2s after a burst of 20; further ones are refused with 429";
        assert_eq!(told.about("if forwarded"), limited);
        let guarded = "limited to 200 identical, unchanged responses a second; further ones are \
                       delayed by at most 50ms, never refused";
        assert_eq!(told.about("if from memory"), guarded);
        let off = text.replace("action: reject, perSecond: 0.5", "action: off");
        let config = Config::from_bytes("c.yaml".as_ref(), off.as_bytes()).unwrap();
        let told = explained(Method::GET, "/api/v1/pods", &config);
        assert_eq!((told.about("if forwarded"), told.about("if from memory")), ("", ""));
    }
}
