//! `listless explain`: what would happen to a request, and why. Asks nobody: not the apiserver, and not a
//! running Listless.
//!
//! The words are the data path's own: it is `decide` that is asked, once as if nothing were held.

use std::{fmt::Write, path::PathBuf};

use clap::Args;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use tokio::time::{Duration, Instant};

use super::{UsageError, configuration, print};
use crate::{
    api::{
        Scope, Verb,
        media::Negotiated,
        request::{Read, RequestInfo, ResourceRequest, Start},
        version::VersionMatch,
    },
    cache::{Absence, Demand, Lookup},
    config::Config,
    policy::{Mode, Origin, RepeatAction, RepeatPolls, ResourcePolicy},
    proxy::{
        decide::{self, Candidate, Forward, Plan, Rewriting, Step},
        identify::Caller,
        session::Session,
    },
    websocket::Asked,
};

/// What to explain.
#[derive(Clone, Debug, Args)]
pub(super) struct Arguments {
    /// The HTTP method, such as GET.
    method: String,
    /// The URL, or its path and query: /api/v1/namespaces/shop/pods?labelSelector=app%3Dweb
    url: String,
    /// A request header, such as "Accept: application/json"; may be repeated.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The configuration file [default: every setting at its default].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// What would happen to a request, as pairs of a topic and what is said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation(pub Vec<(&'static str, String)>);

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let method = arguments.method.to_uppercase();
    let method = Method::from_bytes(method.as_bytes())
        .map_err(|error| UsageError(format!("{:?}: {error}", arguments.method)))?;
    let uri: Uri = arguments
        .url
        .parse()
        .map_err(|error| UsageError(format!("{:?}: {error}", arguments.url)))?;
    let headers = headers(&arguments.headers)?;
    let config = configuration::load(arguments.config.as_deref())?;
    print(&explain(&method, &uri, &headers, &config).to_string())?;
    Ok(())
}

fn headers(texts: &[String]) -> Result<HeaderMap, UsageError> {
    let mut headers = HeaderMap::new();
    for text in texts {
        let refused = || UsageError(format!("--header {text:?}: expected NAME: VALUE"));
        let (name, value) = text.split_once(':').ok_or_else(refused)?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| refused())?;
        let value = HeaderValue::from_str(value.trim()).map_err(|_| refused())?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// Explains a request of the user that Listless stands for, in a session that has done nothing yet.
pub fn explain(method: &Method, uri: &Uri, headers: &HeaderMap, config: &Config) -> Explanation {
    let info = RequestInfo::parse(method, uri, headers);
    let mut explanation = Explanation(Vec::new());
    let Some(request) = info.resource_request() else {
        explanation.say("request", format!("{method} of no resource"));
        explanation.say("outcome", "forwarded unchanged: non-resource".to_owned());
        return explanation;
    };
    explanation.say("request", describe(request));
    if let Ok(read) = &request.read {
        explanation.say("asks for", asked(read));
    }
    let user_agent = headers.get(http::header::USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes);
    let rules = decide::rules(&info, &config.policy, user_agent);
    explanation.say("policy", rule(&rules, config));
    if let Some(poll) = decide::poll(&info, Caller::Own, &rules) {
        explanation.say("too often", too_often(&poll.terms));
    }
    if config.policy.mode() == Mode::Observe {
        explanation.say(
            "mode",
            "observe: everything is forwarded unchanged; what follows is what would be".to_owned(),
        );
    }
    let session = Session::default();
    if request.verb == Verb::Watch {
        explanation.watch(&info, headers, &rules, &session);
        return explanation;
    }
    let negotiated = negotiate(&info, headers);
    match decide::candidate(&info, Caller::Own, negotiated, &rules, &session) {
        Err(plan) => explanation.say("outcome", outcome(&plan)),
        Ok(candidate) => explanation.outcomes(&candidate, &session),
    }
    explanation
}

// === impl Explanation ===

impl Explanation {
    fn say(&mut self, topic: &'static str, text: String) {
        self.0.push((topic, text));
    }

    /// The same for a watch.
    fn watch(
        &mut self,
        info: &RequestInfo,
        headers: &HeaderMap,
        rules: &ResourcePolicy,
        session: &Session,
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
    }

    /// What happens with and without a replica.
    fn outcomes(&mut self, candidate: &Candidate<'_>, session: &Session) {
        let level = candidate.level.as_str();
        // With resourceVersion=0 the apiserver ignores the limit too (S-LIST-23).
        let page = match (candidate.read.limit, &candidate.read.version) {
            (Some(limit), version) if *version != VersionMatch::Any => {
                format!(", if no more than {limit} objects match")
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
        if candidate.demand == Demand::Count {
            self.say("repeated", "starts a replica, as far as the policy allows".to_owned());
        }
    }
}

impl std::fmt::Display for Explanation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|(topic, text)| writeln!(f, "{topic:<15} {text}"))
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

fn asked(read: &Read) -> String {
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
    let often = format!("one each {interval}, after {burst} at once");
    match polls.action {
        RepeatAction::Pace => {
            let delay = span(polls.max_delay);
            format!("held back together with identical ones, {delay} at most: {often}")
        }
        RepeatAction::Reject => format!("refused with 429: {often}"),
        RepeatAction::Off => "answered".to_owned(),
    }
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
        Plan::Share(forward) => {
            format!("{}; identical concurrent reads share the answer", sent(forward))
        }
        Plan::Forward(forward) => sent(forward),
        Plan::Pace(_) => "held back a while".to_owned(),
        Plan::Reject(_) => "refused with 429".to_owned(),
    }
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
        explain(&method, &Uri::from_static(url), &HeaderMap::new(), config)
    }

    impl Explanation {
        fn about(&self, topic: &str) -> &str {
            self.0.iter().find(|(name, _)| *name == topic).map_or("", |(_, text)| text)
        }
    }

    #[test]
    fn a_poll_is_told_what_it_asks_which_rule_applies_and_both_outcomes() {
        let url = "/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb&limit=5";
        let told = explained(Method::GET, url, &Config::default());
        assert_eq!(told.about("request"), "list pods.v1 in namespace shop");
        let asked =
            "the most recent state (resourceVersion is unset), labels app=web, at most 5 objects";
        assert_eq!(told.about("asks for"), asked);
        assert!(told.about("policy").starts_with("cache.rules[1] (*): start onDemand"));
        assert!(told.about("with a replica").ends_with("if no more than 5 objects match"));
        assert_eq!(told.about("without one"), "forwarded unchanged: not-demanded");
        let told = explained(Method::GET, "/api/v1/pods", &Config::default());
        assert_eq!(told.about("without one"), "forwarded with resourceVersion=0: not-demanded");
    }

    #[test]
    fn what_memory_never_answers_has_one_outcome_and_its_reason() {
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
    fn a_watch_is_told_where_it_could_start() {
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
    fn the_configuration_decides() {
        let text = "apiVersion: listless.dev/v1alpha1\nkind: ProxyConfiguration\n\
                    cache: {rules: [{resources: [pods], freshness: mostRecent}]}\n";
        let config = Config::from_bytes("c.yaml".as_ref(), text.as_bytes()).unwrap();
        let told = explained(Method::GET, "/api/v1/pods", &config);
        let shared =
            "forwarded unchanged: most-recent; identical concurrent reads share the answer";
        assert_eq!(told.about("outcome"), shared);
        let text = "apiVersion: listless.dev/v1alpha1\nkind: ProxyConfiguration\n\
                    cache: {rules: [{resources: [pods], userAgents: ['curl/*'], start: never}]}\n\
                    repeatPolls: {action: reject, perSecond: 0.5}\n";
        let of_curl = Config::from_bytes("c.yaml".as_ref(), text.as_bytes()).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("user-agent", HeaderValue::from_static("curl/8"));
        let told = explain(&Method::GET, &Uri::from_static("/api/v1/pods"), &headers, &of_curl);
        assert!(told.about("policy").starts_with("cache.rules[0] (pods)"), "{told}");
        let told = explained(Method::GET, "/api/v1/pods", &of_curl);
        assert!(told.about("policy").starts_with("no rule matches"), "{told}");
        let refused = "refused with 429: one each 2s, after 20 at once";
        assert_eq!(told.about("too often"), refused);
        let told = explained(Method::GET, "/api/v1/nodes", &config);
        assert!(told.about("policy").starts_with("no rule matches"), "{told}");
    }
}
