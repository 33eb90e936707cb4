//! Objects from seconds to years old.
//!
//! An apiserver sets `creationTimestamp` itself. Each object is therefore made through the
//! apiserver and then written again into etcd, with its age and a status of the same age.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::kinds::{CLOCKS, KINDS, Kind, NAMESPACE, definition};
use crate::dataset::{Dataset, Item, create_all, current_version};
use crate::etcd::ask;
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User};
use crate::rig::wait::until;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// The ages in seconds; every rule of the printed form has some of them, and some lie just before
/// its bounds.
const LADDER: [i64; 16] = [
    3,
    40,
    118,
    5 * MINUTE + 7,
    10 * MINUTE - 9,
    3 * HOUR - 20,
    5 * HOUR + 59 * MINUTE,
    9 * HOUR,
    48 * HOUR - 30,
    50 * HOUR,
    7 * DAY + 23 * HOUR,
    30 * DAY,
    729 * DAY,
    3 * 365 * DAY + 40 * DAY,
    9 * 365 * DAY,
    // In the future.
    -DAY,
];
/// Kinds with more than one relative time have an object of every age, the others these.
const RICH: [&str; 5] = ["pods", "jobs", "cronjobs", "events", "clocks"];
const PER_KIND: usize = 4;

const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// Makes the objects; returns the data set as it is then.
pub async fn load(plane: &ControlPlane, dataset: Dataset) -> Result<Dataset> {
    let client = plane.client(User::Admin, Protocol::Http1)?;
    let namespace = json!({"metadata": {"name": NAMESPACE}});
    create_all(&client, vec![Item::new("/api/v1/namespaces", namespace), definition()]).await?;
    until_served(&client, CLOCKS).await?;
    let mut aged = BTreeMap::new();
    for (kind, number, age) in objects() {
        let post = Request::new(Method::POST, &kind.own()).json(&kind.object(number));
        let made = client.send(post).await?.successful().with_context(|| kind.path(number))?;
        aged.insert(kind.name(number), rewritten(kind, number, made.json()?, age));
    }
    let etcd = plane.etcd_address();
    for key in keys(etcd).await? {
        let name = key.rsplit('/').next().unwrap_or_default();
        if let Some(object) = aged.remove(name) {
            let put = json!({
                "key": STANDARD.encode(&key), "value": STANDARD.encode(object.to_string()),
            });
            ask(etcd, "/v3/kv/put", &put).await?.into_body().collect().await?;
        }
    }
    ensure!(aged.is_empty(), "not in etcd: {:?}", aged.keys());
    let version_after = current_version(&client).await?;
    for kind in KINDS {
        // Idle watch caches reach a version only with the store's next progress report.
        let target = format!(
            "{}?resourceVersion={version_after}&resourceVersionMatch=NotOlderThan&limit=1",
            kind.own()
        );
        until_served(&client, &target).await?;
    }
    Ok(Dataset { version_after, ..dataset })
}

/// Every object with its age; the kinds take turns on the ladder.
fn objects() -> impl Iterator<Item = (Kind, usize, i64)> {
    KINDS.iter().enumerate().flat_map(|(index, kind)| {
        let is_rich = RICH.contains(&kind.resource);
        let (count, step) = if is_rich { (LADDER.len(), 1) } else { (PER_KIND, 5) };
        (0..count).map(move |number| {
            let turn = if is_rich { number } else { index + number * step };
            (*kind, number, LADDER[turn % LADDER.len()])
        })
    })
}

/// The object as etcd shall hold it.
fn rewritten(kind: Kind, number: usize, mut object: Value, age: i64) -> Value {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let at = |seconds: i64| json!(utc(now.as_secs() as i64 - seconds));
    let other = LADDER[(number * 7 + 3) % LADDER.len()];
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
        metadata.insert("creationTimestamp".to_owned(), at(age));
    }
    match kind.resource {
        "pods" => {
            let ended = json!({"exitCode": 1, "reason": "Error", "finishedAt": at(other)});
            object["status"] = json!({
                "phase": "Running", "podIP": "192.0.2.9", "podIPs": [{"ip": "192.0.2.9"}],
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{
                    "name": "main", "ready": true, "restartCount": number, "image": "i",
                    "imageID": "", "state": {"running": {"startedAt": at(other)}},
                    "lastState": if number > 0 { json!({"terminated": ended}) } else { json!({}) },
                }],
            });
        }
        "jobs" => {
            object["status"] = json!({"startTime": at(age), "active": 1});
            if number.is_multiple_of(2) {
                let status = json!({
                    "startTime": at(age), "completionTime": at(age - 70 * number as i64 - 3),
                    "succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}],
                });
                object["status"] = status;
            }
        }
        "cronjobs" if number % 5 != 4 => {
            object["status"] = json!({"lastScheduleTime": at(other)});
        }
        "events" => {
            (object["firstTimestamp"], object["lastTimestamp"]) = (at(age), at(other));
            if number % 4 == 3 {
                // Such an age changes in the middle of a second.
                let micros = |at: Value| json!(at.as_str().unwrap_or("").replace('Z', ".500000Z"));
                object["series"] = json!({"count": 5, "lastObservedTime": micros(at(other))});
            }
        }
        "clocks" if number % 5 != 4 => object["status"] = json!({"seen": at(other)}),
        _ => {}
    }
    object
}

/// Seconds since 1970 as Kubernetes writes them.
fn utc(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    // Years begin in March here, so that the leap day is the last of a year.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (rest / HOUR, rest % HOUR / MINUTE, rest % MINUTE);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The keys of all objects.
async fn keys(etcd: SocketAddr) -> Result<Vec<String>> {
    let range = json!({
        "key": STANDARD.encode("/registry/"), "range_end": STANDARD.encode("/registry0"),
        "keys_only": true,
    });
    let answer = ask(etcd, "/v3/kv/range", &range).await?;
    let answer: Value = serde_json::from_slice(&answer.into_body().collect().await?.to_bytes())?;
    let keys = answer["kvs"].as_array().context("no keys")?.iter();
    keys.map(|kv| Ok(String::from_utf8(STANDARD.decode(kv["key"].as_str().context("a key")?)?)?))
        .collect()
}

/// Waits until the apiserver answers a GET with a success.
async fn until_served(client: &Client, target: &str) -> Result<()> {
    until(target, SETTLE_LIMIT, async || Ok(client.get(target).await?.status.is_success())).await
}

#[test]
fn times_are_written_as_kubernetes_writes_them() {
    assert_eq!(utc(0), "1970-01-01T00:00:00Z");
    assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
    assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
    assert_eq!(utc(1_735_689_599), "2024-12-31T23:59:59Z");
}

#[test]
fn the_objects_are_of_many_kinds_and_ages() {
    let kinds: std::collections::BTreeSet<_> = objects().map(|(kind, ..)| kind.resource).collect();
    assert!(kinds.len() >= 40, "{} kinds", kinds.len());
    let ages: std::collections::BTreeSet<_> = objects().map(|(.., age)| age).collect();
    assert_eq!(ages.len(), LADDER.len());
}
