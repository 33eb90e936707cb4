//! The syntax as a table, and properties of random selectors and objects.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug)]
struct Object<'a>(BTreeMap<&'a str, &'a str>);

impl Fields for Object<'_> {
    fn field(&self, path: &str) -> Option<&str> {
        self.0.get(path).copied()
    }
}

fn selector(text: &str) -> FieldSelector {
    FieldSelector::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

#[test]
fn a_name_is_added_to_the_other_terms() {
    assert_eq!(selector("").and_name("x").to_string(), "metadata.name=x");
    let both = selector("spec.nodeName=n1").and_name("x").to_string();
    assert_eq!(both, "spec.nodeName=n1,metadata.name=x");
}

#[test]
fn every_form_is_printed_in_its_canonical_text() {
    let table = [
        ("", ""),
        (",", ""),
        (",,a=1,,", "a=1"),
        ("a=1", "a=1"),
        ("a==1", "a=1"),
        ("a!=1", "a!=1"),
        ("a=", "a="),
        ("a==", "a="),
        ("a!=", "a!="),
        ("=", "="),
        ("!=x", "!=x"),
        (" a = 1 ", " a = 1 "),
        ("b=2,a=1,b==2", "a=1,b=2"),
        (r"a=x\,y\=z\\", r"a=x\,y\=z\\"),
        (r"a=x\\,b=2", r"a=x\\,b=2"),
        (r"a\=b", r"a\=b"),
        ("a!b=c", "a!b=c"),
        ("metadata.name=ä", "metadata.name=ä"),
    ];
    for (text, canonical) in table {
        assert_eq!(selector(text).to_string(), canonical, "{text:?}");
    }
}

#[test]
fn selectors_that_the_apiserver_refuses_do_not_parse() {
    let many = vec!["a=1"; REQUIREMENTS_MAX + 1].join(",");
    let table = ["a", "a,b=1", "a in (b)", "a=b=c", "a===b", "a!==b", r"a=\", r"a=\x", &many];
    for text in table {
        assert!(FieldSelector::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn an_escaped_comma_does_not_split() {
    assert_eq!(selector(r"a=b\, ").pinned("a"), Some("b, "));
}

#[test]
fn missing_fields_read_as_empty() {
    let object = Object(BTreeMap::from([("spec.nodeName", "node-1"), ("status.phase", "")]));
    let table = [
        ("", true),
        ("spec.nodeName=node-1", true),
        ("spec.nodeName!=node-1", false),
        ("spec.nodeName=", false),
        ("status.phase=", true),
        ("status.phase!=Running", true),
        ("type=", true),
        ("type!=", false),
        ("type=x", false),
        ("spec.nodeName=node-1,type!=x", true),
        ("spec.nodeName=node-1,type=x", false),
    ];
    for (text, expected) in table {
        assert_eq!(selector(text).matches(&object), expected, "{text:?}");
    }
}

#[test]
fn a_selector_is_a_subset_when_each_requirement_follows() {
    let table = [
        ("", "a=1", true),
        ("a=1", "", false),
        ("a=1", "a=1,b=2", true),
        ("a=1,b=2", "a=1", false),
        ("a!=1", "a=2", true),
        ("a!=1", "a=1", false),
        ("a!=1", "a!=1", true),
        ("a!=1", "a!=2", false),
        ("a=1", "b=1", false),
    ];
    for (weaker, stronger, expected) in table {
        let actual = selector(weaker).is_subset_of(&selector(stronger));
        assert_eq!(actual, expected, "{weaker:?} of {stronger:?}");
    }
}

#[test]
fn pins_are_the_required_values() {
    let selector = selector("metadata.name=x,spec.nodeName!=y,a=");
    assert_eq!(selector.pinned("metadata.name"), Some("x"));
    assert_eq!(selector.pinned("spec.nodeName"), None);
    assert_eq!(selector.pinned_pairs().collect::<Vec<_>>(), [("a", ""), ("metadata.name", "x")]);
    assert_eq!(selector.paths().collect::<Vec<_>>(), ["a", "metadata.name", "spec.nodeName"]);
    assert_eq!(FieldSelector::name("x,y").to_string(), r"metadata.name=x\,y");
}

proptest! {
    #[test]
    fn any_text_is_rejected_or_parses_to_its_printed_form(text in r"[ab!=,\\ ]{0,16}|\PC{0,30}") {
        if let Ok(selector) = FieldSelector::parse(&text) {
            prop_assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
        }
    }

    #[test]
    fn a_subset_selects_everything_that_the_other_selects(
        weaker in "([ab]!?=[01]?,){0,2}",
        stronger in "([ab]!?=[01]?,){0,3}",
        a in "[01]?",
        b in "[01]?",
    ) {
        let object = Object(BTreeMap::from([("a", &*a), ("b", &*b)]));
        let (weaker, stronger) = (selector(&weaker), selector(&stronger));
        if weaker.is_subset_of(&stronger) && stronger.matches(&object) {
            prop_assert!(weaker.matches(&object), "{} of {}: {:?}", weaker, stronger, object);
        }
    }
}
