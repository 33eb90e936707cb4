//! Clients that each LIST their own pods every three seconds, as fabric8 programs do.
//!
//! What they are told is the business of other tests; here only how many answers come.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::load::DATA;
use crate::rig::client::Client;

/// More than the old apiserver can bear: it reads all pods for each, and selects afterwards, which
/// takes a processor about 0.4 s.
const CLIENTS_PER_PROCESSOR: usize = 20;
const PERIOD: Duration = Duration::from_secs(3);

/// Running clients.
#[derive(Debug)]
pub struct Storm {
    clients: JoinSet<()>,
    shared: Arc<Shared>,
}

/// How they fared.
#[derive(Clone, Copy, Debug)]
pub struct Polls {
    /// Answers that were lists.
    pub answered: u64,
    /// Other answers, and none at all.
    pub failed: u64,
}

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    answered: AtomicU64,
    failed: AtomicU64,
}

// === impl Storm ===

impl Storm {
    /// Starts them, spread over the period.
    pub fn start(client: &Client) -> Self {
        let shared = Arc::new(Shared::default());
        let mut clients = JoinSet::new();
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let count = (processors * CLIENTS_PER_PROCESSOR) as u32;
        for number in 0..count {
            let (client, shared) = (client.clone(), Arc::clone(&shared));
            let target =
                format!("{}?labelSelector=poller%3D{}", DATA.collection(), number % DATA.pollers);
            let first = tokio::time::Instant::now() + PERIOD * number / count;
            clients.spawn(async move {
                let mut ticks = tokio::time::interval_at(first, PERIOD);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                while !shared.over.load(Ordering::Relaxed) {
                    ticks.tick().await;
                    let answer = client.get(&target).await;
                    let listed = answer.is_ok_and(|answer| answer.status.is_success());
                    let count = if listed { &shared.answered } else { &shared.failed };
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { clients, shared }
    }

    /// Lets each finish what it asked, and says how they fared.
    pub async fn stop(mut self) -> Polls {
        self.shared.over.store(true, Ordering::Relaxed);
        while self.clients.join_next().await.is_some() {}
        Polls {
            answered: self.shared.answered.load(Ordering::Relaxed),
            failed: self.shared.failed.load(Ordering::Relaxed),
        }
    }
}
