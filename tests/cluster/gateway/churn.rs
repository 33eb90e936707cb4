//! Pods that are created, changed and deleted, while the apiserver is up or down.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{COLLECTION, PODS};
use crate::rig::client::{Client, Request};

const PERIOD: Duration = Duration::from_millis(30);

/// A writer at work.
pub struct Churn {
    writer: JoinHandle<u64>,
    stop: CancellationToken,
}

// === impl Churn ===

impl Churn {
    /// Writes until stopped; a write that the apiserver does not accept is not repeated.
    pub fn start(client: Client) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let writer = tokio::spawn(async move {
            let (mut ticks, mut taken) = (tokio::time::interval(PERIOD), 0);
            for number in 0.. {
                ticks.tick().await;
                if stopped.is_cancelled() {
                    break;
                }
                let answer = client.send(write(number)).await;
                taken += u64::from(answer.is_ok_and(|answer| answer.status.is_success()));
            }
            taken
        });
        Self { writer, stop }
    }

    /// The number of accepted writes.
    pub async fn stop(self) -> u64 {
        self.stop.cancel();
        self.writer.await.expect("no panic")
    }
}

/// A minimal pod.
pub fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"churn": "no"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/app:1"}]},
    })
}

/// Creates or deletes one of a few pods, or changes the labels of others.
fn write(number: u32) -> Request {
    let passing = format!("passing-{}", number / 8 % 20);
    match number % 8 {
        0 => Request::new(Method::POST, COLLECTION).json(&pod(&passing)),
        5 if (number / 8).is_multiple_of(2) => {
            Request::new(Method::DELETE, &format!("{COLLECTION}/{passing}"))
        }
        _ => {
            let patch = json!({"metadata": {"labels": {"churn": number.to_string()}}});
            let path = format!("{COLLECTION}/pod-{}", number.wrapping_mul(7919) % PODS);
            Request::new(Method::PATCH, &path)
                .body("application/merge-patch+json", patch.to_string())
        }
    }
}
