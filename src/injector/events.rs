//! Events that tell the owners of pods what became of them.
//!
//! Sent by a task of their own, never by an answer: whoever reaches the port could otherwise make
//! requests with our rights. The same event of the same owner is sent once an hour, and only so
//! many a minute; more are dropped, and counted.

use std::{collections::HashMap, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};

use super::{
    api,
    review::{Owner, Verdict},
};
use crate::{
    lifecycle::Draining,
    metrics::{Limit, Metrics},
    upstream::Client,
};

/// Where verdicts are left for the task.
#[derive(Clone)]
pub struct Events {
    queue: mpsc::Sender<Event>,
    metrics: Metrics,
}

/// Sends what it is given.
pub struct Sender {
    client: Arc<dyn Client>,
    queue: mpsc::Receiver<Event>,
    metrics: Metrics,
    recent: HashMap<(Owner, &'static str), Instant>,
    minute: (Instant, usize),
}

struct Event {
    namespace: String,
    owner: Owner,
    reason: &'static str,
    kind: &'static str,
    message: String,
}

/// Events that wait to be sent.
const QUEUE_MAX: usize = 128;
/// Events sent in a minute.
const PER_MINUTE_MAX: usize = 60;
const MINUTE: Duration = Duration::from_secs(60);
/// How long the same event is not sent again.
const RECENT: Duration = Duration::from_secs(3600);
/// How many are remembered for that.
const RECENT_MAX: usize = 2048;

/// A place to leave verdicts, and who takes them from there.
pub fn channel(client: Arc<dyn Client>, metrics: Metrics) -> (Events, Sender) {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    let events = Events { queue: sender, metrics: metrics.clone() };
    let minute = (Instant::now(), 0);
    let sender = Sender { client, queue: receiver, metrics, recent: HashMap::new(), minute };
    (events, sender)
}

// === impl Events ===

impl Events {
    /// Leaves a verdict to be told to the pod's owner, if there is one that could be told.
    pub fn tell(&self, verdict: &Verdict) {
        if verdict.dry_run || verdict.owner.uid.is_empty() || verdict.namespace.is_empty() {
            return;
        }
        let (reason, kind, message) = match &verdict.outcome {
            Ok(notes) => {
                let notes: Vec<_> = notes.iter().map(ToString::to_string).collect();
                let message = match notes.is_empty() {
                    true => "a sidecar was put into the pod".to_owned(),
                    false => format!("a sidecar was put into the pod; {}", notes.join("; ")),
                };
                ("Injected", "Normal", message)
            }
            Err(skip) => {
                let message = format!("{}: {skip}", skip.reason.as_str());
                ("InjectionSkipped", "Warning", message)
            }
        };
        let (namespace, owner) = (verdict.namespace.clone(), verdict.owner.clone());
        let event = Event { namespace, owner, reason, kind, message };
        if self.queue.try_send(event).is_err() {
            self.metrics.limit_reached(Limit::InjectorEvents);
        }
    }
}

// === impl Sender ===

impl Sender {
    /// Sends until the end begins, or until it turns out that it may not.
    pub async fn run(mut self, mut draining: Draining) {
        loop {
            let event = tokio::select! {
                () = draining.begun() => return,
                event = self.queue.recv() => event,
            };
            let Some(event) = event else { return };
            if !self.is_due(&event, Instant::now()) {
                continue;
            }
            let path = format!("/api/v1/namespaces/{}/events", event.namespace);
            match api::post(self.client.as_ref(), &path, &event.to_json()).await {
                Ok(_) => {}
                Err(error) if error.is_forbidden() => {
                    tracing::warn!(%error, "events may not be sent, and are not any more");
                    return;
                }
                Err(error) => tracing::warn!(%error, "an event was not sent"),
            }
        }
    }

    fn is_due(&mut self, event: &Event, now: Instant) -> bool {
        self.recent.retain(|_, sent| now.duration_since(*sent) < RECENT);
        let key = (event.owner.clone(), event.reason);
        if self.recent.contains_key(&key) {
            return false;
        }
        if now.duration_since(self.minute.0) >= MINUTE {
            self.minute = (now, 0);
        }
        if self.minute.1 >= PER_MINUTE_MAX || self.recent.len() >= RECENT_MAX {
            self.metrics.limit_reached(Limit::InjectorEvents);
            return false;
        }
        self.minute.1 += 1;
        self.recent.insert(key, now);
        true
    }
}

// === impl Event ===

impl Event {
    fn to_json(&self) -> Value {
        let now = jiff::Timestamp::now();
        let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let Owner { api_version, kind, name, uid } = &self.owner;
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": "listless-", "namespace": self.namespace},
            "involvedObject": {
                "apiVersion": api_version,
                "kind": kind,
                "name": name,
                "uid": uid,
                "namespace": self.namespace,
            },
            "type": self.kind,
            "reason": self.reason,
            "message": self.message,
            "source": {"component": "listless-injector"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        })
    }
}
