//! Clients that repeat a LIST with a selector, and record the responses.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::history::{Items, items, version};
use super::{DATA, POLLERS};
use crate::differential::judge::Served;
use crate::rig::client::{Answer, Client};

/// One response, as a poller saw it.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The poller.
    pub poller: u32,
    /// The time of the request.
    pub sent: Instant,
    /// The time when the response was complete.
    pub received: Instant,
    /// The content of the response.
    pub outcome: Outcome,
}

/// The content of a response.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A list.
    List {
        /// Its source.
        served: Served,
        /// The version it is at.
        version: u64,
        /// Its items.
        items: Items,
    },
    /// Another status, with its relevant parts.
    Refused(Refusal),
    /// No response, or an invalid one.
    Failed(String),
}

/// A response that is not a success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The `Retry-After` header.
    pub retry_after: Option<String>,
    /// The reason in the Status in its body, if that is one, in JSON, with the same code.
    pub reason: Option<String>,
    /// `true` if it states its source.
    pub cache_status: bool,
}

/// Running pollers; dropping them ends them.
#[derive(Debug)]
pub struct Pollers {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
    seen: Arc<Mutex<Vec<Observation>>>,
}

// === impl Pollers ===

impl Pollers {
    /// Starts them, spread over the period.
    pub fn start(client: &Client, period: Duration) -> Self {
        let seen = Arc::<Mutex<Vec<Observation>>>::default();
        let mut tasks = JoinSet::new();
        let (stop, stopped) = watch::channel(false);
        for poller in 0..POLLERS {
            let (client, seen, stopped) = (client.clone(), Arc::clone(&seen), stopped.clone());
            let first = tokio::time::Instant::now() + period * poller / POLLERS;
            tasks.spawn(async move {
                let mut ticks = tokio::time::interval_at(first, period);
                while !*stopped.borrow() {
                    ticks.tick().await;
                    let observation = observe(&client, poller).await;
                    seen.lock().unwrap_or_else(PoisonError::into_inner).push(observation);
                }
            });
        }
        Self { tasks, stop, seen }
    }

    /// All responses so far.
    pub fn seen(&self) -> Vec<Observation> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until every poller received this version or a later one from memory; reports whether
    /// that happened in time.
    pub async fn know(&self, wanted: u64, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut period = tokio::time::interval(Duration::from_millis(100));
        while Instant::now() < end {
            period.tick().await;
            let seen = self.seen();
            let told = |poller: u32| {
                seen.iter().any(|it| it.poller == poller && it.outcome.is_hit_since(wanted))
            };
            if (0..POLLERS).all(told) {
                return true;
            }
        }
        false
    }

    /// Lets each finish its request, and returns the records.
    pub async fn stop(mut self) -> Vec<Observation> {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
        self.seen()
    }
}

// === impl Outcome ===

impl Outcome {
    fn is_hit_since(&self, wanted: u64) -> bool {
        matches!(self, Self::List { served: Served::Hit, version, .. } if *version >= wanted)
    }
}

// === impl Refusal ===

impl Refusal {
    /// Reads a response that is not a success.
    pub fn of(answer: &Answer) -> Self {
        let status = answer.status.as_u16();
        let body = answer.json().ok().filter(|body| {
            body["kind"] == "Status" && body["apiVersion"] == "v1" && body["code"] == status
        });
        let is_json = answer.header("content-type") == Some("application/json");
        let reason = body.filter(|_| is_json);
        Self {
            status,
            retry_after: answer.header("retry-after").map(str::to_owned),
            reason: reason.and_then(|body| body["reason"].as_str().map(str::to_owned)),
            cache_status: Served::of(answer) != Served::Unsaid,
        }
    }
}

async fn observe(client: &Client, poller: u32) -> Observation {
    let target = format!("{}?labelSelector=poller%3D{poller}", DATA.collection());
    let sent = Instant::now();
    let answer = client.get(&target).await;
    let received = Instant::now();
    let outcome = match answer {
        Ok(answer) if answer.status.as_u16() == 200 => listed(&answer),
        Ok(answer) => Outcome::Refused(Refusal::of(&answer)),
        Err(error) => Outcome::Failed(format!("{error:#}")),
    };
    Observation { poller, sent, received, outcome }
}

fn listed(answer: &Answer) -> Outcome {
    let read = || {
        let list = answer.json().ok()?;
        Some((version(&list)?, items(&list).ok()?))
    };
    match read() {
        Some((version, items)) => Outcome::List { served: Served::of(answer), version, items },
        None => Outcome::Failed(format!("no list: {}", answer.excerpt())),
    }
}
