use super::*;
use crate::{
    api::{GroupVersionResource, Verb},
    limit::Rate,
};

fn rule(resources: &[&str], start: Start) -> Rule {
    let names = resources.iter().map(|name| name.parse().expect("a resource name")).collect();
    Rule { start, ..Rule::of(names) }
}

fn globs(patterns: &[&str]) -> Option<Vec<Glob>> {
    Some(patterns.iter().map(|pattern| pattern.parse().expect("a pattern")).collect())
}

fn polls(action: RepeatAction) -> RepeatPolls {
    let (rate, max_delay) = (Rate::new(5.0, 20), Duration::from_secs(2));
    RepeatPolls { rate, action, max_delay, from_memory: Rate::new(200.0, 200) }
}

fn general(mode: Mode, rewrite: Rewrite) -> General {
    General { mode, rewrite, repeat_polls: polls(RepeatAction::Pace) }
}

impl Policy {
    fn resource(&self, resource: &GroupResource, namespace: Option<&str>) -> &ResourcePolicy {
        self.rules(&Subject::any(resource, namespace))
    }
}

fn in_namespaces(mut rule: Rule, namespaces: &[&str]) -> Rule {
    let namespaces = namespaces.iter().map(|&namespace| namespace.into()).collect();
    rule.reads.namespaces = Some(namespaces);
    rule
}

fn policy(rules: &[Rule]) -> Policy {
    Policy::new(&general(Mode::Enforce, Rewrite::NotOlderThan), rules)
}

fn pods() -> GroupResource {
    GroupResource::new("", "pods")
}

fn collections(policy: &Policy) -> Vec<String> {
    policy
        .eager
        .iter()
        .map(|(query, form)| {
            let form = if *form == Form::Json { "" } else { form.as_str() };
            let scope = query.scope.namespace().unwrap_or("*");
            format!("{} in {scope} {form}", query.resource).trim_end().to_owned()
        })
        .collect()
}

#[test]
fn the_first_matching_rule_wins() {
    let policy = policy(&[
        rule(&["pods"], Start::Never),
        rule(&["*"], Start::OnDemand),
        rule(&["services"], Start::Eager),
    ]);
    assert_eq!(policy.resource(&pods(), Some("shop")).origin, Origin::Rule(0));
    let services = policy.resource(&GroupResource::new("", "services"), None);
    assert_eq!((services.origin, services.start), (Origin::Rule(1), Start::OnDemand));
    assert!(!services.named, "the rule that decided says \"*\"");
}

#[test]
fn a_rule_with_namespaces_matches_only_reads_of_those_namespaces() {
    let rules = [
        in_namespaces(rule(&["pods"], Start::Eager), &["shop", "till"]),
        rule(&["*"], Start::OnDemand),
    ];
    let policy = policy(&rules);
    let origin = |namespace| policy.resource(&pods(), namespace).origin;
    assert_eq!(origin(Some("till")), Origin::Rule(0));
    assert_eq!(origin(Some("shopping")), Origin::Rule(1));
    assert_eq!(origin(None), Origin::Rule(1), "all namespaces hold more than the rule's");
}

#[test]
fn a_namespaced_rule_for_everything_reaches_resources_no_rule_names() {
    let policy = policy(&[in_namespaces(rule(&["*"], Start::OnDemand), &["shop"])]);
    assert_eq!(policy.resource(&pods(), Some("shop")).start, Start::OnDemand);
    assert_eq!(policy.resource(&pods(), Some("other")).origin, Origin::Unmatched);
    assert_eq!(policy.resource(&pods(), None).start, Start::Never);
}

#[test]
fn a_rule_for_everything_excludes_reserved_resources() {
    let policy = policy(&[rule(&["*"], Start::Eager)]);
    for (group, resource) in [
        ("", "secrets"),
        ("", "events"),
        ("events.k8s.io", "events"),
        ("coordination.k8s.io", "leases"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("metrics.k8s.io", "pods"),
        ("project.openshift.io", "projects"),
    ] {
        let found = policy.resource(&GroupResource::new(group, resource), Some("shop"));
        assert_eq!(found.origin, Origin::Reserved, "{resource}.{group}");
        assert_eq!((found.start, found.rewrite), (Start::Never, Rewrite::Keep));
    }
    let machines = GroupResource::new("machine.openshift.io", "machines");
    assert_eq!(policy.resource(&machines, None).start, Start::Eager, "a plain CRD");
}

#[test]
fn a_rule_that_names_a_reserved_resource_includes_it() {
    let rules = [
        in_namespaces(rule(&["secrets", "events.events.k8s.io"], Start::OnDemand), &["shop"]),
        rule(&["*"], Start::OnDemand),
    ];
    let policy = policy(&rules);
    let secrets = GroupResource::new("", "secrets");
    let opened = policy.resource(&secrets, Some("shop"));
    assert_eq!((opened.start, opened.named), (Start::OnDemand, true));
    assert_eq!(policy.resource(&secrets, Some("other")).origin, Origin::Reserved);
    assert_eq!(policy.resource(&secrets, None).origin, Origin::Reserved);
    let events = GroupVersionResource::new("events.k8s.io", "v1", "events").group_resource();
    assert_eq!(policy.resource(&events, Some("shop")).start, Start::OnDemand);
}

#[test]
fn an_empty_policy_caches_nothing_and_still_rewrites_reads() {
    let policy = policy(&[]);
    let found = policy.resource(&pods(), Some("shop"));
    assert_eq!((found.start, found.rewrite), (Start::Never, Rewrite::NotOlderThan));
}

#[test]
fn a_resource_that_is_never_cached_is_not_rewritten() {
    let policy = policy(&[rule(&["pods"], Start::Never), rule(&["*"], Start::Never)]);
    assert_eq!(policy.resource(&pods(), None).rewrite, Rewrite::Keep);
    let others = policy.resource(&GroupResource::new("", "services"), None);
    assert_eq!(others.rewrite, Rewrite::NotOlderThan);
}

#[test]
fn a_level_of_most_recent_is_not_weakened_by_rewriting() {
    let strict = Rule { freshness: Freshness::MostRecent, ..rule(&["pods"], Start::OnDemand) };
    assert_eq!(policy(&[strict]).resource(&pods(), None).rewrite, Rewrite::Keep);
}

#[test]
fn eager_rules_name_the_queries_to_follow() {
    let policy = policy(&[
        in_namespaces(rule(&["pods"], Start::Eager), &["shop", "till"]),
        rule(&["deployments.apps", "widgets.v1beta1.example.com", "*"], Start::Eager),
        rule(&["services"], Start::OnDemand),
    ]);
    assert_eq!(
        collections(&policy),
        [
            "pods.v1 in shop",
            "pods.v1 in till",
            "deployments.v1.apps in *",
            "widgets.v1beta1.example.com in *"
        ]
    );
}

#[test]
fn the_first_rule_of_a_collection_decides_about_its_forms() {
    let of = |forms: &[Form], rule: Rule| Rule { forms: forms.to_vec(), ..rule };
    let (pods, services) = (rule(&["pods"], Start::Eager), rule(&["services"], Start::Eager));
    let policy = policy(&[
        of(&[Form::Protobuf, Form::Table], in_namespaces(pods.clone(), &["shop"])),
        in_namespaces(pods, &["shop", "till"]),
        of(&[Form::Json, Form::Protobuf], services),
    ]);
    let expected = [
        "pods.v1 in shop protobuf",
        "pods.v1 in shop table",
        "pods.v1 in till",
        "services.v1 in *",
        "services.v1 in * protobuf",
    ];
    assert_eq!(collections(&policy), expected);
}

#[test]
fn an_eager_rule_after_a_matching_one_follows_nothing() {
    let policy = policy(&[
        rule(&["pods"], Start::Never),
        in_namespaces(rule(&["pods", "services"], Start::Eager), &["shop"]),
    ]);
    assert_eq!(collections(&policy), ["services.v1 in shop"]);
}

#[test]
fn resource_names_are_read_in_three_forms() {
    for (text, group, version, resource) in [
        ("pods", "", "v1", "pods"),
        ("pods.v1", "", "v1", "pods"),
        ("deployments.apps", "apps", "v1", "deployments"),
        ("deployments.v1.apps", "apps", "v1", "deployments"),
        ("widgets.v2alpha11.example.com", "example.com", "v2alpha11", "widgets"),
        ("widgets.vendor.example.com", "vendor.example.com", "v1", "widgets"),
        ("widgets.v1gamma1.example.com", "v1gamma1.example.com", "v1", "widgets"),
    ] {
        let expected = GroupVersionResource::new(group, version, resource);
        assert_eq!(text.parse(), Ok(ResourceName::Named(expected)), "{text}");
    }
    assert_eq!("*".parse(), Ok(ResourceName::Any));
}

#[test]
fn an_invalid_resource_name_is_rejected_with_its_reason() {
    for (text, reason) in [
        ("", NotAResource::EmptyPart),
        ("pods.", NotAResource::EmptyPart),
        ("deployments..apps", NotAResource::EmptyPart),
        ("pods/log", NotAResource::Subresource),
        ("*.apps", NotAResource::Pattern),
        ("Pods", NotAResource::UpperCase),
        ("pods apps", NotAResource::BadCharacter),
        ("deployments", NotAResource::DidYouMean("deployments.apps")),
        ("deployments.v1", NotAResource::DidYouMean("deployments.apps")),
        ("po", NotAResource::DidYouMean("pods")),
        ("pod", NotAResource::DidYouMean("pods")),
        ("widgets", NotAResource::NotInCore),
    ] {
        assert_eq!(text.parse::<ResourceName>(), Err(reason), "{text:?}");
    }
}

#[test]
fn mode_observe_follows_the_same_queries() {
    let rules = [rule(&["pods"], Start::Eager)];
    let observed = Policy::new(&general(Mode::Observe, Rewrite::Keep), &rules);
    assert_eq!(observed.eager(), policy(&rules).eager());
    assert_eq!(observed.eager().len(), 1);
}

#[test]
fn a_rule_may_match_by_verb_client_and_selector() {
    let of = |reads| Rule { reads, ..rule(&["pods"], Start::Never) };
    let rules = [
        of(Reads { verbs: Some(vec![ReadVerb::Get, ReadVerb::Watch]), ..Reads::default() }),
        of(Reads { user_agents: globs(&["*fabric8*", "curl/*"]), ..Reads::default() }),
        of(Reads { selectors: Selectors::Present, ..Reads::default() }),
        of(Reads {
            namespaces: Some(vec!["shop".into()]),
            selectors: Selectors::Absent,
            ..Reads::default()
        }),
        rule(&["*"], Start::OnDemand),
    ];
    let policy = policy(&rules);
    assert!(policy.heeds_user_agents());
    let pods = pods();
    let plain = Subject::any(&pods, Some("till"));
    let rows = [
        (Subject { verb: Verb::Get, ..plain }, 0),
        (Subject { verb: Verb::Watch, ..plain }, 0),
        (Subject { user_agent: b"fabric8-kubernetes-client/6.7.2", ..plain }, 1),
        (Subject { user_agent: b"curl/8", selects: true, ..plain }, 1),
        (Subject { selects: true, ..plain }, 2),
        (Subject { namespace: Some("shop"), ..plain }, 3),
        (Subject { namespace: Some("shop"), selects: true, ..plain }, 2),
        (Subject { user_agent: b"libcurl/8", ..plain }, 4),
        (Subject { namespace: None, ..plain }, 4),
    ];
    for (subject, index) in rows {
        assert_eq!(policy.rules(&subject).origin, Origin::Rule(index), "{subject:?}");
    }
}

#[test]
fn a_rule_for_some_reads_does_not_prevent_an_eager_replica() {
    let some = Reads { user_agents: globs(&["curl/*"]), ..Reads::default() };
    let rules =
        [Rule { reads: some, ..rule(&["pods"], Start::Never) }, rule(&["pods"], Start::Eager)];
    assert_eq!(collections(&policy(&rules)), ["pods.v1 in *"]);
}

#[test]
fn a_rule_overrides_the_rewriting_and_the_poll_limits() {
    let strict = RepeatPolls { action: RepeatAction::Reject, ..polls(RepeatAction::Pace) };
    let rules = [
        Rule {
            rewrite: Some(Rewrite::Any),
            repeat_polls: Some(strict),
            ..rule(&["secrets"], Start::Never)
        },
        Rule { repeat_polls: Some(polls(RepeatAction::Off)), ..rule(&["pods"], Start::OnDemand) },
        rule(&["events"], Start::Never),
        rule(&["*"], Start::Never),
    ];
    let policy = policy(&rules);
    let of = |resource| {
        let found = policy.resource(&GroupResource::new("", resource), None);
        (found.rewrite, found.repeat_polls.map(|polls| polls.action))
    };
    assert_eq!(of("secrets"), (Rewrite::Any, Some(RepeatAction::Reject)));
    assert_eq!(of("pods"), (Rewrite::NotOlderThan, None));
    assert_eq!(of("events"), (Rewrite::Keep, None), "named, and left alone");
    assert_eq!(of("services"), (Rewrite::NotOlderThan, Some(RepeatAction::Pace)));
    assert_eq!(of("bindings"), (Rewrite::Keep, None), "reserved");
}

#[test]
fn objects_of_leader_election_are_detected() {
    for (group, resource, name, elects) in [
        ("coordination.k8s.io", "leases", Some("x"), true),
        ("coordination.k8s.io", "leases", None, true),
        ("coordination.k8s.io", "leasecandidates", None, true),
        ("", "configmaps", Some("leader"), true),
        ("", "configmaps", None, false),
        ("", "endpoints", Some("leader"), true),
        ("", "pods", Some("leader-0"), false),
        ("x.io", "leases", Some("x"), false),
    ] {
        let resource = GroupVersionResource::new(group, "v1", resource);
        assert_eq!(elects_leaders(&resource, name), elects, "{resource:?} {name:?}");
    }
}
