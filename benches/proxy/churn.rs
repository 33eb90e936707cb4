//! Pods that change at a steady rate while a cell is measured.
//!
//! They are written directly to the apiserver, one after the other through the whole collection, by
//! a thread of its own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use http::Method;
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    rig::client::{Client, Request},
    setup::{IdleLoad, Setup},
};

/// The changes in progress, until they are ended.
pub(crate) struct Churn {
    writer: Option<JoinHandle<Result<()>>>,
    progress: Arc<Progress>,
    started: Instant,
}

#[derive(Default)]
struct Progress {
    ends: AtomicBool,
    written: AtomicU64,
}

/// The step from one changed pod to the next, which shares no factor with their number.
const STRIDE: u64 = 7919;

/// The writes at a time.
const UNDER_WAY_MAX: usize = 16;

/// The time in which the rate of changes becomes steady.
const SETTLE: Duration = Duration::from_secs(1);

// === impl Churn ===

impl Churn {
    /// Begins to change so many pods each second.
    pub(crate) fn start(setup: &Setup, per_second: u32) -> Result<Self> {
        let progress = Arc::<Progress>::default();
        let mut churn = Self { writer: None, progress: progress.clone(), started: Instant::now() };
        if per_second > 0 {
            let (client, data) = (setup.writing_client()?, setup.data);
            let target = move |at: u64| {
                let number = (at * STRIDE % u64::from(data.pods)) as u32;
                format!("{}/{}", data.collection(), data.name(number))
            };
            churn.writer = Some(thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(write(&client, target, per_second, &progress))
            }));
        }
        Ok(churn)
    }

    /// Measures the load that the changes alone put on the apiserver and etcd. That on Listless
    /// counts as the cost of its responses.
    pub(crate) fn load(&self, setup: &Setup, idle: IdleLoad) -> Result<IdleLoad> {
        if self.writer.is_none() {
            return Ok(idle);
        }
        #[expect(clippy::disallowed_methods, reason = "measurements are over real time")]
        thread::sleep(SETTLE);
        Ok(IdleLoad { listless: idle.listless, ..setup.idle_load()? })
    }

    /// Ends the changes; returns their number per second.
    pub(crate) fn end(mut self) -> Result<f64> {
        self.progress.ends.store(true, Ordering::Relaxed);
        let Some(writer) = self.writer.take() else { return Ok(0.0) };
        writer.join().map_err(|_| anyhow!("the writer of changes failed"))??;
        let written = self.progress.written.load(Ordering::Relaxed);
        Ok(written as f64 / self.started.elapsed().as_secs_f64())
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        self.progress.ends.store(true, Ordering::Relaxed);
    }
}

async fn write(
    client: &Client,
    target: impl Fn(u64) -> String,
    per_second: u32,
    progress: &Progress,
) -> Result<()> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / per_second);
    let mut under_way: JoinSet<Result<()>> = JoinSet::new();
    for at in 0.. {
        ticks.tick().await;
        if progress.ends.load(Ordering::Relaxed) {
            break;
        }
        if under_way.len() >= UNDER_WAY_MAX
            && let Some(written) = under_way.join_next().await
        {
            written??;
        }
        let stamp = format!("{at}-{:?}", std::time::SystemTime::now());
        let patch = json!({"metadata": {"annotations": {"example.com/changed": stamp}}});
        let request = Request::new(Method::PATCH, &target(at))
            .body("application/merge-patch+json", patch.to_string());
        let client = client.clone();
        under_way.spawn(async move { client.send(request).await?.successful().map(drop) });
        progress.written.fetch_add(1, Ordering::Relaxed);
    }
    while let Some(written) = under_way.join_next().await {
        written??;
    }
    Ok(())
}
