//! List-and-watch: the only writer of one replica.
//!
//! Invariants: readers see complete states at one version each. They never see an older one than
//! before unless a new epoch is declared (S-PROMISE-01). No part of a malformed response is ever
//! visible. Every failure is followed by a wait with jitter (S-PROMISE-06). The cache starts, stops
//! and bounds replicas.

mod backoff;
mod catch_up;
mod event;
pub(super) mod exchange;
mod failure;
mod listing;
mod progress;
mod proof;
mod watching;

pub use failure::{Ended, ReflectorFailure};

use std::{error::Error, fmt::Write, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use self::{backoff::Backoff, catch_up::CatchUp, exchange::ReflectorExchange, failure::Step};
use super::{
    Settings,
    budget::Budget,
    counters::Counters,
    history::History,
    reader::Reader,
    replica::{Link, Published, Replica, SyncState},
    store::Snapshot,
};
use crate::{
    api::{field, version::ResourceVersion},
    metrics::ReplicaWatchEnd,
    upstream::Client,
};

/// The task that keeps one replica in step with the apiserver.
pub struct Reflector {
    replica: Arc<Replica>,
    exchange: ReflectorExchange,
    settings: watch::Receiver<Settings>,
    random: Random,
    counters: Arc<Counters>,
    budget: Arc<Budget>,
    reader: Reader,
    backoff: Backoff,
    catch_up: CatchUp,
    /// The number of consecutive lists with invalid content.
    bad_lists: u32,
    /// `true` after a broken connection: the storage may have been restored meanwhile.
    after_break: bool,
    /// A version that the storage had reached after that, and the time of the question.
    current: Option<(ResourceVersion, Instant)>,
}

/// A source of random numbers in 0..1.
pub type Random = Arc<dyn Fn() -> f64 + Send + Sync>;

/// The number of consecutive lists with invalid content after which the reflector gives up.
const BAD_LISTS_MAX: u32 = 5;

/// The shortest wait of a failed reflector, even if the apiserver answers other requests.
const RETRY_NOW_REST: Duration = Duration::from_secs(1);

/// The time in which an apiserver adopts a changed definition. An earlier list may show the old
/// one.
const REDEFINITION_SETTLES: Duration = Duration::from_secs(10);

/// The longest error text for status pages.
const ERROR_CHARACTERS_MAX: usize = 300;

// === impl Reflector ===

impl Reflector {
    /// Creates the reflector of a replica.
    pub fn new(
        replica: Arc<Replica>,
        client: Arc<dyn Client>,
        settings: watch::Receiver<Settings>,
        random: Random,
        counters: Arc<Counters>,
        budget: Arc<Budget>,
    ) -> Self {
        let query = replica.query();
        let exchange = ReflectorExchange::new(client, &replica);
        let reader = Reader::new(query.resource.clone(), query.scope.clone(), replica.form());
        Self {
            replica,
            exchange,
            settings,
            random,
            counters,
            budget,
            reader,
            backoff: Backoff::default(),
            catch_up: CatchUp::new(Instant::now()),
            bad_lists: 0,
            after_break: false,
            current: None,
        }
    }

    /// Lists and watches until it is stopped or gives up.
    pub async fn run(mut self, stop: CancellationToken) -> Ended {
        stop.run_until_cancelled(self.follow()).await.unwrap_or(Ended::Stopped)
    }

    async fn follow(&mut self) -> Ended {
        let replica = self.replica.clone();
        let mut step = Step::List(None);
        loop {
            let next = tokio::select! {
                biased;
                () = replica.distrusted() => Ok(self.start_again(&step)),
                next = self.proceed(&step) => next,
            };
            step = match next {
                Ok(next) => next,
                Err(ended) => return ended,
            };
        }
    }

    /// Does one step, and waits if it fails. Returns the next step.
    async fn proceed(&mut self, step: &Step) -> Result<Step, Ended> {
        let result = match step {
            Step::List(from) => self.list(from.clone()).await,
            Step::Watch => match self.check_storage().await {
                Ok(()) => self.watch().await,
                Err(failure) => Err(failure),
            },
        };
        let failure = match result {
            Ok(next) => {
                // A list is a state of the storage as it is now.
                self.after_break &= *step == Step::Watch;
                return Ok(next);
            }
            Err(failure) => failure,
        };
        self.after_break |= failure.is_break();
        let next = failure.next(step, self.shown().as_ref());
        let next = next.map(|next| match next {
            Step::Watch if *step == Step::Watch => self.after_interruption(),
            next => next,
        });
        self.note(&failure);
        self.bad_lists += u32::from(failure.is_bad_list());
        let next = next?;
        // Further retries would cost both sides too much.
        if self.bad_lists >= BAD_LISTS_MAX {
            return Err(Ended::NotReplicable);
        }
        let wait = self.backoff.next((self.random)());
        self.rest(failure.retry_after(), wait).await;
        Ok(next)
    }

    /// Compares the published version with the apiserver's after a broken connection.
    ///
    /// A restored storage accepts a watch from a version that it does not have. Once its versions
    /// have passed that one, nothing shows that they were used twice (S-CONS-10).
    async fn check_storage(&mut self) -> Result<(), ReflectorFailure> {
        let Some(shown) = self.shown().filter(|_| self.after_break) else { return Ok(()) };
        let asked_at = Instant::now();
        let current = self.current_version().await?;
        self.after_break = false;
        if current < shown {
            return Err(ReflectorFailure::Restored { current, shown });
        }
        self.current = Some((current, asked_at));
        Ok(())
    }

    /// Asks for a version that the apiserver's storage has reached by now.
    async fn current_version(&self) -> Result<ResourceVersion, ReflectorFailure> {
        self.counters.probes.increment();
        let is_namespaced = self.snapshot().and_then(|snapshot| snapshot.is_namespaced());
        self.exchange.probe(is_namespaced == Some(true)).await
    }

    /// Drops the wrong state: no reader sees it any more, and no part of it is reused.
    fn start_again(&self, step: &Step) -> Step {
        if *step == Step::Watch && self.replica.published().link == Link::Up {
            self.counters.watches_ended.increment(ReplicaWatchEnd::Inconsistent);
        }
        self.end_epoch(|published| published.state = SyncState::Failing);
        Step::List(None)
    }

    /// Returns the next step after a doubt: a new connection shows the state as it is now.
    fn after_doubt(&mut self) -> Step {
        // An event may have proven the state between the notice and its arrival here.
        self.replica.publish(|published| published.proven_at = None);
        self.after_break = true;
        Step::Watch
    }

    /// Returns the next step after a watch that ended unexpectedly.
    ///
    /// After a schema change, the apiserver returns custom resources with other bytes at the same
    /// versions. It then ends their watches, without an event.
    fn after_interruption(&self) -> Step {
        let is_custom = !field::is_built_in_group(&self.replica.query().resource.group);
        if is_custom { Step::List(self.shown()) } else { Step::Watch }
    }

    /// Waits before the next attempt: first as long as the apiserver asked for, then for a backoff.
    /// The backoff ends early if the apiserver answers another request.
    async fn rest(&self, asked_for: Duration, wait: Duration) {
        sleep(asked_for).await;
        let retry_requested = async {
            sleep(wait.min(RETRY_NOW_REST)).await;
            self.replica.retry_requested().await;
        };
        tokio::select! {
            biased;
            () = sleep(wait) => {}
            () = retry_requested => {}
        }
    }

    /// Returns the published snapshot.
    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.replica.published().snapshot.clone()
    }

    /// Returns the published version.
    fn shown(&self) -> Option<ResourceVersion> {
        self.snapshot().map(|snapshot| snapshot.version().clone())
    }

    /// Records a failure for readers, status pages and the log.
    fn note(&self, failure: &ReflectorFailure) {
        self.counters.failures.increment();
        let text = described(failure);
        let query = self.replica.query();
        let (resource, scope) = (&query.resource, query.scope.as_str());
        if failure.is_outage() {
            // The log has one line for all replicas: see `upstream::health`.
            tracing::debug!(%resource, scope, "{text}");
        } else {
            tracing::warn!(%resource, scope, "{text}");
        }
        self.replica.usage().last_error = Some(text);
        if let ReflectorFailure::Restored { .. } = failure {
            self.begin_epoch();
        } else {
            self.replica.publish(|published| {
                if published.snapshot.is_none() {
                    published.state = SyncState::Failing;
                }
            });
        }
    }

    /// Drops everything: the versions have restarted, and equal ones may mean different content.
    fn begin_epoch(&self) {
        self.counters.epochs.increment();
        self.end_epoch(|published| published.restored = true);
    }

    /// Drops the state. Those who follow it must list again: what they received may be wrong.
    fn end_epoch(&self, change: impl FnOnce(&mut Published)) {
        self.forget_state(History::end_epoch, |published| {
            published.epoch += 1;
            change(published);
        });
    }

    /// Withdraws the snapshot, and lists again once every apiserver has adopted the new definition.
    /// Reads are forwarded meanwhile.
    async fn await_redefinition(&self) -> Step {
        self.forget_state(History::close, |published| published.state = SyncState::Failing);
        // Jitter, because every replica may list again at once.
        sleep(REDEFINITION_SETTLES.mul_f64(1.0 + (self.random)())).await;
        Step::List(None)
    }

    fn forget_state(&self, end: fn(&mut History), change: impl FnOnce(&mut Published)) {
        // The lock is held until everything is published, as when events are applied.
        let mut history = self.replica.history();
        end(&mut history);
        self.replica.publish(|published| {
            let link = Link::Lost { since: Instant::now() };
            let restored = published.restored;
            *published = Published { restored, ..Published::nothing(link, published.epoch) };
            change(published);
        });
    }
}

/// Returns an error with its causes, in one line.
fn described(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // A write to a String cannot fail.
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    match text.char_indices().nth(ERROR_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests;
