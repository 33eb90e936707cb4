//! All rules of Listless's own user in a namespace, from one review.
//!
//! A complete SelfSubjectRulesReview decides every read of its namespace. If the apiserver reports
//! it as incomplete, as with a webhook authorizer, each question needs its own review.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use serde::Deserialize;
use tokio::time::Instant;

use super::{Attributes, Authorize, Decided, NoReview, ReviewKey, message};
use crate::metrics::Review;

/// The rules of Listless's own user in one namespace.
pub(super) struct Rules {
    /// The rules; `None` if the apiserver does not know all of them.
    complete: Option<Vec<Rule>>,
    at: Instant,
}

#[derive(Deserialize)]
struct RulesAnswer {
    status: RulesStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RulesStatus {
    resource_rules: Option<Vec<Rule>>,
    #[serde(default)]
    incomplete: bool,
    #[serde(default)]
    evaluation_error: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// The age from which rules are read again before they decide another question.
const FRESH: Duration = Duration::from_secs(30);

/// The time before an apiserver that does not know all rules is asked again.
const INCOMPLETE_TTL: Duration = Duration::from_secs(600);

/// The namespace to ask about for all namespaces. No namespace can have this name: the rules in it
/// are those that hold everywhere.
const EVERYWHERE: &str = "listless:everywhere";

// === impl Authorize ===

impl Authorize {
    /// Decides a question about Listless's own user, if its rules are enough for that.
    pub(super) async fn by_rules(
        &self,
        review_key: &ReviewKey,
    ) -> Result<Option<Arc<Decided>>, NoReview> {
        let namespace: Arc<str> =
            review_key.attributes.namespace.clone().unwrap_or_else(|| EVERYWHERE.into());
        if let Some(rules) = self.rules.get(&namespace).await {
            if rules.are_fresh() {
                return Ok(rules.decide(&review_key.attributes).map(Arc::new));
            }
            self.rules.invalidate(&namespace).await;
        }
        let asked = self.ask_rules(&namespace, review_key);
        let rules = self.rules.try_get_with_by_ref(&namespace, asked).await;
        let rules = rules.map_err(|_| NoReview)?;
        Ok(rules.decide(&review_key.attributes).map(Arc::new))
    }

    async fn ask_rules(
        &self,
        namespace: &str,
        review_key: &ReviewKey,
    ) -> Result<Arc<Rules>, NoReview> {
        self.quotas.of(None).may_ask(&self.metrics)?;
        let at = Instant::now();
        let request = message::rules_request(namespace).ok_or(NoReview)?;
        let exchanged = self.exchange(&*self.own, request, review_key).await;
        self.metrics.reviewed(exchanged.as_ref().map_or(Review::Failed, |_| Review::Rules));
        let (code, body) = exchanged?;
        let complete = match code {
            code if code.is_success() => complete_rules(&body)?,
            // The apiserver does not serve rules, or not to this user.
            StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => None,
            _ => return Err(NoReview),
        };
        Ok(Arc::new(Rules { complete, at }))
    }
}

/// Returns the rules in a response, if they are complete.
fn complete_rules(body: &[u8]) -> Result<Option<Vec<Rule>>, NoReview> {
    let answer: RulesAnswer = serde_json::from_slice(body).map_err(|_| NoReview)?;
    let status = answer.status;
    let is_complete = !status.incomplete && status.evaluation_error.is_empty();
    Ok(status.resource_rules.filter(|_| is_complete))
}

// === impl Rules ===

impl Rules {
    fn are_fresh(&self) -> bool {
        let ttl = if self.complete.is_some() { FRESH } else { INCOMPLETE_TTL };
        self.at.elapsed() < ttl
    }

    fn decide(&self, attributes: &Attributes) -> Option<Decided> {
        let rules = self.complete.as_ref()?;
        let allowed = rules.iter().any(|rule| rule.allows(attributes));
        Some(Decided::of_own(allowed, self.at))
    }
}

// === impl Rule ===

impl Rule {
    /// Reports whether the rule allows a request; a rule about named objects does not allow a read
    /// of all objects.
    fn allows(&self, asked: &Attributes) -> bool {
        let has = |entries: &[String], value: &str| {
            entries.iter().any(|entry| entry == "*" || entry == value)
        };
        let named = || asked.name.as_ref().is_some_and(|name| has(&self.resource_names, name));
        has(&self.verbs, asked.verb)
            && has(&self.api_groups, &asked.group)
            && has(&self.resources, &asked.resource)
            && (self.resource_names.is_empty() || named())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{GroupVersionResource, Scope, Verb};

    fn allows(rule: &str, group: &str, verb: Verb) -> bool {
        let text = format!(r#"{{"status":{{"resourceRules":[{rule}]}}}}"#);
        let rules = complete_rules(text.as_bytes()).expect("readable").expect("complete");
        let things = GroupVersionResource::new(group, "v1", "things");
        let asked = Attributes::new(verb, &things, &Scope::All, None);
        rules.iter().any(|rule| rule.allows(&asked))
    }

    #[test]
    fn a_rule_allows_what_it_names_and_no_more() {
        let rule = |verbs: &str, groups: &str, resources: &str| {
            format!(r#"{{"verbs":[{verbs}],"apiGroups":[{groups}],"resources":[{resources}]}}"#)
        };
        let exact = rule(r#""list""#, r#""x.io""#, r#""things""#);
        assert!(allows(&exact, "x.io", Verb::List));
        assert!(allows(&rule(r#""*""#, r#""*""#, r#""*""#), "x.io", Verb::Watch));
        assert!(!allows(&exact, "x.io", Verb::Watch) && !allows(&exact, "", Verb::List));
        for resources in [r#""thing""#, r#""things/status""#, r#""*/status""#, ""] {
            assert!(!allows(&rule(r#""*""#, r#""*""#, resources), "x.io", Verb::List));
        }
        let named = r#"{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"resourceNames":["a"]}"#;
        assert!(!allows(named, "x.io", Verb::List), "only one object");
    }

    #[test]
    fn incomplete_rules_decide_nothing() {
        for (status, complete) in [
            (r#"{"resourceRules":[],"incomplete":false}"#, true),
            (r#"{"resourceRules":[],"incomplete":true}"#, false),
            (r#"{"resourceRules":[],"evaluationError":"webhook"}"#, false),
            (r#"{"resourceRules":null}"#, false),
            (r#"{"allowed":true}"#, false),
        ] {
            let body = format!(r#"{{"status":{status}}}"#);
            let rules = complete_rules(body.as_bytes()).expect("readable");
            assert_eq!(rules.is_some(), complete, "{status}");
        }
        assert!(complete_rules(b"{}").is_err());
    }
}
