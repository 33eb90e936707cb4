//! Clients that each LIST their own pods every three seconds, as fabric8 programs do.
//!
//! Other tests check the content of the responses. This one counts them.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::load::DATA;
use crate::rig::client::Client;

/// More than the old apiserver can serve: for each it reads all pods and selects afterwards, which
/// takes a processor about 0.4 s.
const CLIENTS_PER_PROCESSOR: usize = 20;
const PERIOD: Duration = Duration::from_secs(3);
const BYSTANDERS_PERIOD: Duration = Duration::from_millis(500);

/// Running clients.
#[derive(Debug)]
pub struct Storm {
    clients: JoinSet<()>,
    shared: Arc<Shared>,
}

/// The results of the clients.
#[derive(Clone, Copy, Debug)]
pub struct Polls {
    /// Answers that were lists.
    pub answered: u64,
    /// Other responses, and missing ones.
    pub failed: u64,
    /// Their average duration.
    pub mean: Duration,
}

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    answered: AtomicU64,
    failed: AtomicU64,
    waited_millis: AtomicU64,
}

// === impl Storm ===

impl Storm {
    /// Starts them, spread over the period.
    pub fn start(client: &Client) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let count = (processors * CLIENTS_PER_PROCESSOR) as u32;
        let target = |number: u32| {
            format!("{}?labelSelector=poller%3D{}", DATA.collection(), number % DATA.pollers)
        };
        Self::asking((0..count).map(target).collect(), client, PERIOD)
    }

    /// One client with a small load, which would be served at once if it were alone.
    pub fn bystander(client: &Client) -> Self {
        let target = format!("{}/{}", DATA.collection(), DATA.name(0));
        Self::asking(vec![target], client, BYSTANDERS_PERIOD)
    }

    fn asking(targets: Vec<String>, client: &Client, period: Duration) -> Self {
        let shared = Arc::new(Shared::default());
        let mut clients = JoinSet::new();
        let (began, count) = (Instant::now(), targets.len() as u32);
        for (number, target) in (0..count).zip(targets) {
            let (client, shared) = (client.clone(), Arc::clone(&shared));
            let mut ticks = tokio::time::interval_at(began + period * number / count, period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            clients.spawn(async move {
                while !shared.over.load(Ordering::Relaxed) {
                    ticks.tick().await;
                    let asked = Instant::now();
                    let answer = client.get(&target).await;
                    let good = answer.is_ok_and(|answer| answer.status.is_success());
                    let count = if good { &shared.answered } else { &shared.failed };
                    count.fetch_add(1, Ordering::Relaxed);
                    let waited = asked.elapsed().as_millis() as u64;
                    shared.waited_millis.fetch_add(waited, Ordering::Relaxed);
                }
            });
        }
        Self { clients, shared }
    }

    /// Lets each finish its request, and returns their results.
    pub async fn stop(mut self) -> Polls {
        self.shared.over.store(true, Ordering::Relaxed);
        while self.clients.join_next().await.is_some() {}
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (answered, failed) = (read(&self.shared.answered), read(&self.shared.failed));
        let waited = Duration::from_millis(read(&self.shared.waited_millis));
        Polls { answered, failed, mean: waited.div_f64((answered + failed).max(1) as f64) }
    }
}
