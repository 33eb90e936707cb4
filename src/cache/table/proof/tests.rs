use super::*;
use crate::{
    api::GroupVersionResource,
    cache::table::{columns::Column, human::SECOND},
};

const CREATED: &str = "2026-01-01T00:00:00Z";

fn now(seconds: i64) -> Window {
    let at = Moment::parse(CREATED).expect("a timestamp").plus(seconds * SECOND);
    Window { from: at, to: at.plus(SECOND) }
}

fn columns(rules: Vec<Rule>) -> Columns {
    let columns = rules.into_iter().map(|rule| Column { name: "".into(), rule });
    Columns { columns: columns.collect(), prints_null: false }
}

fn row(cells: &str, object: &str) -> String {
    format!(r#"{{"cells":[{cells}],"object":{object}}}"#)
}

/// Returns the changing parts of a row that arrives within a second, as texts and timestamps.
fn proven(
    rules: Vec<Rule>,
    cells: &str,
    object: &str,
    seconds: i64,
) -> Result<Vec<(String, Moment)>, Unproven> {
    let row = row(cells, object);
    let parts = Parts::of(&row).expect("a row");
    let ages = prove(&row, &parts, &columns(rules), now(seconds))?;
    let text = |age: &Age| row[age.start as usize..age.end as usize].to_owned();
    Ok(ages.iter().map(|age| (text(age), age.since)).collect())
}

fn pod(finished: &str) -> String {
    format!(
        r#"{{"metadata":{{"creationTimestamp":"{CREATED}"}},"status":{{"containerStatuses":[{{"name":"a","lastState":{{"terminated":{{"finishedAt":"{finished}"}}}}}}]}}}}"#
    )
}

/// The time since then is longer than can be counted.
#[test]
fn a_timestamp_of_long_ago_proves_nothing_and_ends_the_search() {
    let object = format!(
        r#"{{"metadata":{{"annotations":{{"x":"1700-01-01T00:00:00Z"}},"creationTimestamp":"{CREATED}"}}}}"#
    );
    let of = |text: &str| proven(vec![Rule::Since(Source::Date(None))], text, &object, 300);
    let created = Moment::parse(CREATED).expect("a timestamp");
    assert_eq!(of(r#""5m""#), Ok(vec![("5m".to_owned(), created)]));
    assert!(of(r#""7m""#).is_err());
    let old = Moment::parse("1700-01-01T00:00:00Z").expect("a timestamp");
    assert_eq!(of(r#""292y""#), Ok(vec![("292y".to_owned(), old)]));
    assert_eq!(Age { start: 0, end: 4, since: old }.alike_until(created), Moment(i64::MAX));
}

#[test]
fn a_cell_that_reads_as_it_came_is_proven() {
    let rules = || vec![Rule::Fixed, Rule::Since(Source::Restarts), Rule::Since(Source::Created)];
    let finished = "2026-01-01T00:55:00Z";
    let (created, finished_at) = (Moment::parse(CREATED), Moment::parse(finished));
    let of = |cells: &str| proven(rules(), cells, &pod(finished), 3600);
    let restarted = ("5m".to_owned(), finished_at.expect("a timestamp"));
    let age = ("60m".to_owned(), created.expect("a timestamp"));
    assert_eq!(of(r#""5m","2 (5m ago)","60m""#), Ok(vec![restarted.clone(), age.clone()]));
    assert_eq!(of(r#""p","2","60m""#), Ok(vec![age.clone()]));
    // The next second may have begun.
    assert_eq!(of(r#""p","2 (5m1s ago)","60m""#).expect("proven")[1], age);
    for (cells, column) in [
        (r#""p","2 (5m2s ago)","60m""#, 1),
        (r#""p","2 (4m59s ago)","60m""#, 1),
        (r#""p","2 (5m)","60m""#, 1),
        (r#""p","many (5m ago)","60m""#, 1),
        (r#""p","2 (5m ago)","61m""#, 2),
        (r#""p","2 (5m ago)","\u003cunknown\u003e""#, 2),
        (r#""p","2 (5m ago)""#, 2),
        (r#""p","2","60m","more""#, 3),
    ] {
        assert_eq!(of(cells), Err(Unproven { column }), "{cells}");
    }
}

#[test]
fn a_timestamp_in_the_future_is_proven_as_such() {
    let object = format!(r#"{{"metadata":{{"creationTimestamp":"{CREATED}"}}}}"#);
    let of = |cell: &str, seconds| {
        let told = proven(vec![Rule::Since(Source::Created)], cell, &object, seconds)?;
        Ok::<_, Unproven>(told[0].0.clone())
    };
    assert_eq!(of(r#""\u003cinvalid\u003e""#, -60), Ok(INVALID_QUOTED.to_owned()));
    assert_eq!(of(r#""0s""#, -1), Ok("0s".to_owned()));
    assert_eq!(of(r#""0s""#, -60), Err(Unproven { column: 0 }));
    let mut text = Vec::new();
    let age = Age { start: 0, end: 0, since: now(60).from };
    age.write(&mut text, now(0).from);
    assert_eq!(text, INVALID_QUOTED.as_bytes());
    // It reads so until two seconds before the timestamp.
    assert_eq!(age.alike_until(now(0).from), now(58).from.plus(1));
}

#[test]
fn a_cell_that_looks_like_a_time_needs_a_rule() {
    for cell in ["5m", "3d4h", "1.5h", "1y", "300ms", "5m ago", "2 (5m ago)", INVALID] {
        let cell = serde_json::to_string(cell).expect("JSON");
        assert_eq!(proven(vec![Rule::Watched], &cell, "{}", 0), Err(Unproven { column: 0 }));
    }
    for cell in ["", "5", "m", "5Gi", "1/2", "v1", "5mb", "10.0.0.1", "<none>", "a 5m", "5m,"] {
        let cell = serde_json::to_string(cell).expect("JSON");
        assert_eq!(proven(vec![Rule::Watched], &cell, "{}", 0), Ok(vec![]), "{cell}");
    }
    assert_eq!(proven(vec![Rule::Watched], "300", "{}", 0), Ok(vec![]));
    let object = r#"{"spec":{"interval":"5m"}}"#;
    assert_eq!(proven(vec![Rule::Copied], r#""5m""#, object, 0), Ok(vec![]));
    assert_eq!(proven(vec![Rule::Copied], r#""6m""#, object, 0), Err(Unproven { column: 0 }));
}

#[test]
fn a_date_is_proven_by_exactly_one_timestamp() {
    let rule = || vec![Rule::Since(Source::Date(None))];
    let object =
        |other: &str| format!(r#"{{"spec":{{"a":"{CREATED}","b":"{CREATED}","c":"{other}"}}}}"#);
    let of = |other: &str| proven(rule(), r#""60m""#, &object(other), 3600);
    assert_eq!(of("2025-01-01T00:00:00Z").expect("proven").len(), 1);
    assert_eq!(of("2026-01-01T00:00:30Z").expect("proven").len(), 1);
    // Both read as an hour.
    assert_eq!(of("2025-12-31T23:59:30Z"), Err(Unproven { column: 0 }));
    assert_eq!(proven(rule(), r#""61m""#, &object("5m"), 3600), Err(Unproven { column: 0 }));
    assert_eq!(proven(rule(), "null", &object("5m"), 3600), Ok(vec![]));
}

#[test]
fn the_rules_fit_the_columns_that_the_apiserver_sends() {
    let definitions = r#"[{"name":"Name","type":"string","format":"name","description":"","priority":0},{"name":"Age","type":"string","format":"","description":"","priority":0}]"#;
    let pods = GroupVersionResource::new("", "v1", "configmaps");
    let columns = Columns::parse(definitions, &pods).expect("columns");
    let row = row(r#""5m","60m""#, &pod(CREATED));
    let parts = Parts::of(&row).expect("a row");
    assert_eq!(prove(&row, &parts, &columns, now(3600)).expect("proven").len(), 1);
}
