//! Cells that tell a time: made anew for each answer, or not answered.

use std::time::Duration;

use serde_json::{Value, json};

use super::{tables, warm};
use crate::harness::{Setup, TestProxy, group_resource, pass, pod, settle};

const GADGETS: &str = "/apis/x.io/v1/gadgets";

fn put(proxy: &TestProxy, resource: &str, object: Value) {
    proxy.simulator.put(&group_resource(resource), object).expect("a served resource");
}

/// Passes time, in which the path is read often enough to keep its replica.
async fn pass_reading(proxy: &TestProxy, path: &str, mut seconds: u64) {
    while seconds > 0 {
        let part = seconds.min(300);
        pass(Duration::from_secs(part)).await;
        tables(&proxy.client()).get(path).await;
        seconds -= part;
    }
}

/// The cells of a path's rows, from memory; they must be the apiserver's at the same time.
async fn cells(proxy: &TestProxy, path: &str) -> Vec<Value> {
    let answer = tables(&proxy.client()).get(path).await;
    assert!(answer.is_hit(), "{path}: {}", answer.cache_status());
    assert_eq!(answer.text(), tables(&proxy.straight()).get(path).await.text());
    let table = answer.json();
    let rows = table["rows"].as_array().expect("rows");
    rows.iter().map(|row| row["cells"].clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn an_age_is_that_of_the_moment_of_the_answer() {
    let proxy = Setup::default().in_memory();
    let mut old = pod("old", "p", &[], "n1");
    old["metadata"]["creationTimestamp"] = json!("2023-06-01T00:00:00Z");
    put(&proxy, "pods", old);
    let mut restarted = pod("old", "q", &[], "n1");
    restarted["metadata"]["creationTimestamp"] = json!("2025-12-31T22:00:00Z");
    restarted["status"]["containerStatuses"] = json!([{
        "name": "c", "restartCount": 2,
        "lastState": {"terminated": {"finishedAt": "2025-12-31T23:58:10Z"}},
    }]);
    put(&proxy, "pods", restarted);
    let path = "/api/v1/namespaces/old/pods";
    warm(&proxy, path).await;
    for (seconds, restarts, age) in [
        (0, "2 (110s ago)", "120m"),
        (9, "2 (119s ago)", "120m"),
        (1, "2 (2m ago)", "120m"),
        (50, "2 (2m50s ago)", "121m"),
        (3540, "2 (61m ago)", "3h"),
        (3600 * 6, "2 (7h1m ago)", "9h"),
    ] {
        pass_reading(&proxy, path, seconds).await;
        let cells = cells(&proxy, path).await;
        assert_eq!(cells[1], json!(["q", "0/1", "Running", restarts, age, "n1"]), "{seconds}");
        assert_eq!(cells[0][4], json!("2y215d"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_age_changes_at_the_same_instant_as_the_apiservers() {
    let proxy = Setup::default().in_memory();
    put(&proxy, "pods", pod("new", "p", &[], "n1"));
    let path = "/api/v1/namespaces/new/pods";
    warm(&proxy, path).await;
    let mut seen = Vec::new();
    for _ in 0..40 {
        pass(Duration::from_millis(137)).await;
        seen.push(cells(&proxy, path).await[0][4].clone());
    }
    seen.dedup();
    assert!(seen.len() >= 5, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_timestamp_in_the_future_is_told_as_the_apiserver_does() {
    let proxy = Setup::default().in_memory();
    let mut early = pod("early", "p", &[], "n1");
    early["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:20Z");
    put(&proxy, "pods", early);
    let path = "/api/v1/namespaces/early/pods";
    warm(&proxy, path).await;
    for (seconds, age) in [(0, "<invalid>"), (19, "0s"), (3, "2s")] {
        pass(Duration::from_secs(seconds)).await;
        assert_eq!(cells(&proxy, path).await[0][4], json!(age));
    }
}

#[tokio::test(start_paused = true)]
async fn a_custom_date_is_made_anew() {
    let proxy = Setup::default().in_memory();
    let due =
        json!({"metadata": {"name": "g"}, "spec": {"due": "2025-12-31T12:00:00Z", "color": "5m"}});
    put(&proxy, "gadgets.x.io", due);
    warm(&proxy, GADGETS).await;
    assert_eq!(cells(&proxy, GADGETS).await[0], json!(["g", "5m", "12h", "0s"]));
    pass_reading(&proxy, GADGETS, 3600).await;
    assert_eq!(cells(&proxy, GADGETS).await[0], json!(["g", "5m", "13h", "60m"]));
}

#[tokio::test(start_paused = true)]
async fn a_row_with_an_unproven_cell_is_forwarded_and_counted() {
    let proxy = Setup::default().in_memory();
    warm(&proxy, GADGETS).await;
    // Both timestamps read alike: the cell may tell either.
    let spec = json!({"due": "2025-12-31T12:00:00Z", "begun": "2025-12-31T11:59:50Z"});
    put(&proxy, "gadgets.x.io", json!({"metadata": {"name": "vague"}, "spec": spec}));
    settle().await;
    for path in [GADGETS, "/apis/x.io/v1/gadgets/vague"] {
        let answer = tables(&proxy.client()).get(path).await;
        assert_eq!(answer.detail(), "table", "{path}");
        assert_eq!(answer.text(), tables(&proxy.straight()).get(path).await.text());
    }
    let other = cells(&proxy, "/apis/x.io/v1/gadgets/g").await;
    assert_eq!(other.len(), 1);
    pass(Duration::from_secs(2)).await;
    let labels = r#"group="x.io",resource="gadgets",column="Due""#;
    assert_eq!(proxy.counted("listless_table_cells_unproven_total", labels), 1.0);
    // An hour later, one of them would be enough, but the cell came with the row.
    pass(Duration::from_secs(50)).await;
    assert_eq!(tables(&proxy.client()).get(GADGETS).await.detail(), "table");
}
