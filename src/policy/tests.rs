use super::*;

fn rule(resources: &[&str], start: Start) -> Rule {
    Rule {
        resources: resources.iter().map(|name| name.parse().expect("a resource name")).collect(),
        namespaces: None,
        start,
        freshness: Freshness::Session,
        max_staleness: MAX_STALENESS,
    }
}

fn in_namespaces(mut rule: Rule, namespaces: &[&str]) -> Rule {
    rule.namespaces = Some(namespaces.iter().map(|&namespace| namespace.into()).collect());
    rule
}

fn policy(rules: &[Rule]) -> Policy {
    Policy::new(Mode::Enforce, Rewrite::NotOlderThan, rules)
}

fn pods() -> GroupResource {
    GroupResource::new("", "pods")
}

fn collections(policy: &Policy) -> Vec<String> {
    policy
        .eager
        .iter()
        .map(|(resource, scope)| format!("{resource} in {}", scope.namespace().unwrap_or("*")))
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
fn reserved_resources_are_left_alone_by_a_rule_for_everything() {
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
fn naming_a_reserved_resource_opens_it_where_it_is_named() {
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
fn without_rules_nothing_is_kept_but_reads_are_still_rewritten() {
    let policy = policy(&[]);
    let found = policy.resource(&pods(), Some("shop"));
    assert_eq!((found.start, found.rewrite), (Start::Never, Rewrite::NotOlderThan));
}

#[test]
fn what_is_named_and_never_kept_is_not_rewritten_either() {
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
fn an_eager_rule_behind_another_that_decides_follows_nothing() {
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
fn what_names_no_resource_is_refused_with_its_reason() {
    for (text, reason) in [
        ("", NotAResource::EmptyPart),
        ("pods.", NotAResource::EmptyPart),
        ("deployments..apps", NotAResource::EmptyPart),
        ("pods/log", NotAResource::Subresource),
        ("*.apps", NotAResource::Pattern),
        ("Pods", NotAResource::UpperCase),
        ("pods apps", NotAResource::BadCharacter),
    ] {
        assert_eq!(text.parse::<ResourceName>(), Err(reason), "{text:?}");
    }
}

#[test]
fn nothing_is_followed_while_observing() {
    let rules = [rule(&["pods"], Start::Eager)];
    assert_eq!(policy(&rules).eager().len(), 1);
    assert!(Policy::new(Mode::Observe, Rewrite::Keep, &rules).eager().is_empty());
}
