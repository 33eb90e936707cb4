//! The grammar as a table, and properties of random selectors and objects.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::api::selector::REQUIREMENTS_MAX;

#[derive(Debug)]
struct Object(BTreeMap<String, String>);

impl Labels for Object {
    fn label(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }
}

fn selector(text: &str) -> LabelSelector {
    LabelSelector::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn labels(pairs: &[(&str, &str)]) -> Object {
    Object(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
}

#[test]
fn every_form_is_printed_in_its_canonical_text() {
    let table = [
        ("", ""),
        (" \t\r\n", ""),
        ("a", "a"),
        ("!a", "!a"),
        (" ! a ", "!a"),
        ("a=1", "a=1"),
        ("a==1", "a=1"),
        (" a \t=\n 1 ", "a=1"),
        ("a=", "a="),
        ("a==,b", "a=,b"),
        ("a!=", "a!="),
        ("a!=1", "a!=1"),
        ("a in (1)", "a=1"),
        ("a in(2,1,2)", "a in (1,2)"),
        ("a notin (1)", "a!=1"),
        ("a notin ( 2 , 1 )", "a notin (1,2)"),
        ("a in ()", "a="),
        ("a in (,)", "a="),
        ("a in (,1)", "a in (,1)"),
        ("a in (1,)", "a in (,1)"),
        ("a>5", "a>5"),
        ("a > 007", "a>7"),
        ("a<0", "a<0"),
        ("a<9223372036854775807", "a<9223372036854775807"),
        ("in in (in,notin)", "in in (in,notin)"),
        ("in", "in"),
        ("notin=in", "notin=in"),
        ("notin notin (in)", "notin!=in"),
        ("b,a", "a,b"),
        ("a,a , a", "a"),
        ("app.kubernetes.io/name=x_Y.z-0", "app.kubernetes.io/name=x_Y.z-0"),
        ("x=a,y!=b,z in (h),!w", "!w,x=a,y!=b,z=h"),
    ];
    for (text, canonical) in table {
        assert_eq!(selector(text).to_string(), canonical, "{text:?}");
    }
}

#[test]
fn selectors_that_the_apiserver_refuses_do_not_parse() {
    let long_value = format!("a={}", "v".repeat(64));
    let long_name = "k".repeat(64);
    let long_prefix = format!("{}/k", "p".repeat(254));
    let many = vec!["a"; REQUIREMENTS_MAX + 1].join(",");
    let table = [
        ",",
        "a,",
        ",a",
        "a,,b",
        "!",
        "!a in (b)",
        "!a=1",
        "!!a",
        "a b",
        "a=b c",
        "a=(b)",
        "a in",
        "a in b",
        "a in (",
        "a in (b",
        "a in (b c)",
        "a in (b))",
        "a in (=)",
        "a in (!b)",
        "a in (1,,)",
        "a in (,,)",
        "a notin",
        "in in",
        "a=b=c",
        "a===b",
        "a=!b",
        "a!==b",
        "a>",
        "a>x",
        "a>-1",
        "a<+1",
        "a>1.5",
        "a>9223372036854775808",
        "a>=1",
        "=a",
        "()",
        "a()",
        "-a",
        "a-",
        ".a",
        "a_",
        "a/b/c",
        "/a",
        "a/",
        "A/b",
        "a..b/c",
        "-a/b",
        "ä",
        "a=ä",
        "a=-b",
        "a=b-",
        "a=b/c",
        "a in (b/c)",
        "a\u{0}",
        &long_value,
        &long_name,
        &long_prefix,
        &many,
    ];
    for text in table {
        assert!(LabelSelector::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn keys_and_values_at_their_limits_parse() {
    let (name, prefix) = ("k".repeat(63), "p".repeat(253));
    selector(&format!("{prefix}/{name}={name}"));
    selector(&vec!["a"; REQUIREMENTS_MAX].join(","));
}

#[test]
fn requirements_select_as_the_apiserver_selects() {
    let object = labels(&[("a", "1"), ("empty", ""), ("number", "10"), ("word", "ten")]);
    let table = [
        ("", true),
        ("a", true),
        ("!a", false),
        ("b", false),
        ("!b", true),
        ("a=1", true),
        ("a=2", false),
        ("b=", false),
        ("empty=", true),
        ("empty in ()", true),
        ("a!=1", false),
        ("a!=2", true),
        ("b!=1", true),
        ("b!=", true),
        ("empty!=", false),
        ("a in (0,1)", true),
        ("b in (0,1)", false),
        ("a notin (0,1)", false),
        ("b notin (0,1)", true),
        ("number>9", true),
        ("number>10", false),
        ("number<11", true),
        ("number<10", false),
        ("word>1", false),
        ("word<1", false),
        ("empty<1", false),
        ("b>1", false),
        ("a,number=10", true),
        ("a,b", false),
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
        ("a", "a=1", true),
        ("a", "a>1", true),
        ("a", "!a", false),
        ("a in (1,2)", "a=1", true),
        ("a in (1,2)", "a in (1,3)", false),
        ("a!=1", "!a", true),
        ("a!=1", "a=2", true),
        ("a!=1", "a=1", false),
        ("a!=1", "a notin (1,2)", true),
        ("a notin (1,2)", "a!=1", false),
        ("a!=5", "a>5", true),
        ("a!=6", "a>5", false),
        ("a!=x", "a>5", true),
        ("a>5", "a>5", true),
        ("a>5", "a>4", false),
        ("a<5", "a<4", true),
        ("a>5", "a in (6,7)", true),
        ("a>5", "a in (5,7)", false),
        ("!a", "a!=1", false),
        ("a=1", "b=1", false),
    ];
    for (weaker, stronger, expected) in table {
        let actual = selector(weaker).is_subset_of(&selector(stronger));
        assert_eq!(actual, expected, "{weaker:?} of {stronger:?}");
    }
}

#[test]
fn only_single_values_are_pinned() {
    let selector = selector("a=1,b in (2),c in (3,4),d!=5,e,!f,g>6,h=");
    let pinned: Vec<_> = selector.pinned_pairs().collect();
    assert_eq!(pinned, [("a", "1"), ("b", "2"), ("h", "")]);
}

/// Returns one requirement over two keys and a few values, which makes selectors often overlap.
fn requirement() -> impl Strategy<Value = String> {
    let value = prop::sample::select(vec!["", "1", "2", "10", "x"]);
    let key = prop::sample::select(vec!["a", "b"]);
    let set = prop::collection::vec(value.clone(), 1..4);
    let set = set.prop_map(|values| values.join(",").replace(",,", ","));
    (key, 0..8, value, set, 0..12).prop_map(|(key, form, value, set, bound)| match form {
        0 => key.to_owned(),
        1 => format!("!{key}"),
        2 => format!("{key}={value}"),
        3 => format!("{key}!={value}"),
        4 => format!("{key} in ({set})"),
        5 => format!("{key} notin ({set})"),
        6 => format!("{key}>{bound}"),
        _ => format!("{key}<{bound}"),
    })
}

fn any_selector() -> impl Strategy<Value = LabelSelector> {
    prop::collection::vec(requirement(), 0..4).prop_map(|parts| selector(&parts.join(",")))
}

fn any_object() -> impl Strategy<Value = Object> {
    let value = prop::sample::select(vec!["", "0", "1", "2", "5", "10", "11", "x", "y"]);
    let value = prop::option::of(value.prop_map(str::to_owned));
    (value.clone(), value).prop_map(|(a, b)| {
        let pairs = [("a", a), ("b", b)].into_iter();
        Object(pairs.filter_map(|(key, value)| Some((key.to_owned(), value?))).collect())
    })
}

proptest! {
    #[test]
    fn printing_then_parsing_gives_the_same_selector(selector in any_selector()) {
        prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
    }

    #[test]
    fn a_subset_selects_everything_that_the_other_selects(
        (weaker, stronger, object) in (any_selector(), any_selector(), any_object())
    ) {
        if weaker.is_subset_of(&stronger) && stronger.matches(&object) {
            prop_assert!(weaker.matches(&object), "{} of {}: {:?}", weaker, stronger, object);
        }
    }

    #[test]
    fn every_match_has_the_pinned_pairs(
        (selector, object) in (any_selector(), any_object())
    ) {
        if selector.matches(&object) {
            for (key, value) in selector.pinned_pairs() {
                prop_assert_eq!(object.label(key), Some(value));
            }
        }
    }

    #[test]
    fn any_text_parses_or_is_rejected_without_panic(text in "[ab!=<>(), inot/.-]{0,40}|\\PC{0,40}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
        }
    }
}
