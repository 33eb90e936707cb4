use serde_json::json;

use super::*;

fn at(second: u32) -> Moment {
    Moment::parse(&time(second)).expect("a timestamp")
}

fn time(second: u32) -> String {
    format!("2026-01-01T00:00:{second:02}Z")
}

fn counted(seconds: &[u32]) -> Expected {
    Expected { fixed: None, since: seconds.iter().map(|second| at(*second)).collect() }
}

fn of(source: &Source, object: &Value) -> Expected {
    source.of(&object.to_string()).expect("understood")
}

#[test]
fn ages_count_from_the_creation() {
    let object = json!({"metadata": {"creationTimestamp": time(3)}});
    assert_eq!(of(&Source::Created, &object), counted(&[3]));
    for object in [json!({"metadata": {}}), json!({"metadata": {"creationTimestamp": null}})] {
        assert_eq!(of(&Source::Created, &object), Expected::fixed(UNKNOWN));
    }
    assert_eq!(Source::Created.of(r#"{"metadata":{"creationTimestamp":"soon"}}"#), None);
}

#[test]
fn restarts_count_from_the_last_end_of_a_container() {
    let ended = |name: &str, second| json!({"name": name, "lastState": {"terminated": {"finishedAt": time(second)}}});
    let pod = |init: Value, containers: Value| {
        json!({
            "spec": {"initContainers": [{"name": "once"}, {"name": "beside", "restartPolicy": "Always"}]},
            "status": {"initContainerStatuses": init, "containerStatuses": containers},
        })
    };
    for (init, containers, expected) in [
        (json!([]), json!([ended("a", 5), ended("b", 7), ended("c", 6)]), counted(&[7])),
        (json!([ended("once", 9)]), json!([ended("a", 5)]), counted(&[9, 5])),
        (json!([ended("beside", 9)]), json!([ended("a", 5)]), counted(&[9])),
        (json!([ended("once", 9)]), json!([{"name": "a", "lastState": {}}]), counted(&[9])),
        (json!([]), json!([{"name": "a"}]), counted(&[])),
    ] {
        assert_eq!(of(&Source::Restarts, &pod(init, containers)), expected);
    }
    assert_eq!(of(&Source::Restarts, &json!({})), counted(&[]));
    let mut started = pod(json!([ended("once", 9)]), json!([ended("a", 5)]));
    started["status"]["conditions"] = json!([{"type": "Initialized", "status": "True"}]);
    assert_eq!(of(&Source::Restarts, &started), counted(&[5]));
}

#[test]
fn a_job_counts_until_its_end() {
    let job = |status: Value| of(&Source::JobStart, &json!({"status": status}));
    assert_eq!(job(json!({})), Expected::fixed(""));
    assert_eq!(job(json!({"startTime": time(1)})), counted(&[1]));
    let ended = job(json!({"startTime": time(1), "completionTime": time(9)}));
    assert_eq!(ended, Expected::fixed("8s"));
}

#[test]
fn events_count_from_their_occurrences() {
    let (first, last, exact, series) = (time(1), time(2), time(3), time(4));
    let old = json!({"firstTimestamp": first, "lastTimestamp": last, "eventTime": null});
    let new = json!({"firstTimestamp": null, "lastTimestamp": null, "eventTime": exact});
    let long = json!({"deprecatedFirstTimestamp": first, "deprecatedLastTimestamp": last,
        "eventTime": exact, "series": {"count": 2, "lastObservedTime": series}});
    for (event, first, last) in [(old, 1, 2), (new, 3, 3), (long, 1, 4)] {
        assert_eq!(of(&Source::FirstSeen, &event), counted(&[first]));
        assert_eq!(of(&Source::LastSeen, &event), counted(&[last]));
    }
    assert_eq!(of(&Source::LastSeen, &json!({})), Expected::fixed(UNKNOWN));
}

#[test]
fn other_kinds_count_from_their_own_timestamps() {
    let cron = json!({"status": {"lastScheduleTime": time(5)}});
    assert_eq!(of(&Source::LastSchedule, &cron), counted(&[5]));
    assert_eq!(of(&Source::LastSchedule, &json!({"status": {}})), Expected::fixed(NONE));
    let rule = json!({"spec": {"taint": {"timeAdded": time(6)}}});
    assert_eq!(of(&Source::TaintAdded, &rule), counted(&[6]));
    assert_eq!(of(&Source::TaintAdded, &json!({"spec": {"taint": {}}})), Expected::fixed(""));
    let pools = |kind: &str, status: &str| {
        let condition = json!({"type": kind, "status": status, "lastTransitionTime": time(7)});
        of(&Source::PoolsCompleted, &json!({"status": {"conditions": [condition]}}))
    };
    assert_eq!(pools("Complete", "True"), counted(&[7]));
    assert_eq!(pools("Complete", "False"), Expected::fixed(NONE));
    assert_eq!(pools("Failed", "True"), Expected::fixed(NONE));
}

#[test]
fn a_date_is_at_its_path_or_anywhere() {
    let object = json!({"metadata": {"creationTimestamp": time(1)}, "spec": {"empty": ""},
        "status": {"times": [time(4), time(2), time(4)], "words": ["5m", null, 3]}});
    let path = |keys: &[&str]| Source::Date(Some(keys.iter().map(|key| (*key).into()).collect()));
    assert_eq!(of(&path(&["metadata", "creationTimestamp"]), &object), counted(&[1]));
    assert_eq!(of(&path(&["status", "none"]), &object), counted(&[]));
    assert_eq!(of(&path(&["spec", "empty"]), &object), Expected::fixed(UNKNOWN));
    assert_eq!(of(&Source::Date(None), &object), counted(&[1, 2, 4]));
}

#[test]
fn a_text_of_the_object_is_found() {
    let object = json!({"spec": {"interval": "5m", "list": ["7h"]}}).to_string();
    assert!(contains_text(&object, "5m") && contains_text(&object, "7h"));
    assert!(!contains_text(&object, "interval") && !contains_text(&object, "5"));
}
