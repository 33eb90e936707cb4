//! List-and-watch: the only writer of one replica.
//!
//! Invariants: readers see whole states at one version each, never an older one than before but
//! for a declared epoch (S-PROMISE-01); nothing of a malformed answer is ever seen; every failure
//! is followed by a wait with jitter (S-PROMISE-06). Starting, stopping and bounding replicas is
//! the cache's.

mod backoff;
mod catch_up;
mod event;
mod exchange;
mod failure;
mod listing;
mod proof;
mod watching;

pub use failure::{Ended, Failure};

use std::{error::Error, fmt::Write, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use self::{backoff::Backoff, catch_up::CatchUp, exchange::Exchange, failure::Step};
use super::{
    Settings,
    budget::Budget,
    counters::Counters,
    reader::Reader,
    replica::{Link, Published, Replica, State},
    store::Snapshot,
};
use crate::{
    api::{field, version::ResourceVersion},
    mutants::{Mutant, is_on},
    upstream::Client,
};

/// Keeps one replica in step with the apiserver.
pub struct Reflector {
    replica: Arc<Replica>,
    exchange: Exchange,
    settings: watch::Receiver<Settings>,
    random: Random,
    counters: Arc<Counters>,
    budget: Arc<Budget>,
    reader: Reader,
    backoff: Backoff,
    catch_up: CatchUp,
    /// How many lists in a row had unusable content.
    bad_lists: u32,
}

/// Numbers in 0..1.
pub type Random = Arc<dyn Fn() -> f64 + Send + Sync>;

/// After so many lists with unusable content in a row there is no point in asking again.
const BAD_LISTS_MAX: u32 = 5;

/// At least this long a failed reflector rests, even if the apiserver answers others.
const NUDGED_REST: Duration = Duration::from_secs(1);

/// An apiserver uses a changed definition so soon. A list before that may show the old one.
const REDEFINITION_SETTLES: Duration = Duration::from_secs(10);

/// Error texts kept for status pages are cut to this length.
const ERROR_CHARACTERS_MAX: usize = 300;

// === impl Reflector ===

impl Reflector {
    /// Will feed a replica.
    pub fn new(
        replica: Arc<Replica>,
        client: Arc<dyn Client>,
        settings: watch::Receiver<Settings>,
        random: Random,
        counters: Arc<Counters>,
        budget: Arc<Budget>,
    ) -> Self {
        let query = replica.query();
        let exchange = Exchange::new(client, query);
        let reader = Reader::new(query.resource.clone(), query.scope.clone());
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
        }
    }

    /// Lists and watches until told to stop or until it is of no use.
    pub async fn run(mut self, stop: CancellationToken) -> Ended {
        stop.run_until_cancelled(self.follow()).await.unwrap_or(Ended::Stopped)
    }

    async fn follow(&mut self) -> Ended {
        let mut step = Step::List(None);
        loop {
            let result = match &step {
                Step::List(from) => self.list(from.clone()).await,
                Step::Watch => self.watch().await,
            };
            step = match result {
                Ok(next) => next,
                Err(failure) => {
                    let next = failure.next(&step, self.shown().as_ref());
                    let next = next.map(|next| match next {
                        Step::Watch if step == Step::Watch => self.after_interruption(),
                        next => next,
                    });
                    self.note(&failure);
                    self.bad_lists += u32::from(failure.is_bad_list());
                    match next {
                        // Asking for it again and again would cost both sides too much.
                        Ok(_) if self.bad_lists >= BAD_LISTS_MAX => return Ended::NotReplicable,
                        Ok(next) => {
                            let wait = self.backoff.next((self.random)());
                            self.rest(failure.retry_after(), wait).await;
                            next
                        }
                        Err(ended) => return ended,
                    }
                }
            };
        }
    }

    /// The next step after a watch that did not end as planned.
    ///
    /// A changed schema shows custom resources in other bytes at the versions they have. The apiserver
    /// ends their watches then, and no event tells of it.
    fn after_interruption(&self) -> Step {
        let is_custom = !field::is_built_in_group(&self.replica.query().resource.group);
        if is_custom { Step::List(self.shown()) } else { Step::Watch }
    }

    /// Waits before the next attempt: as long as the apiserver asked for, and then some time, which
    /// ends early if word comes that it answers others again.
    async fn rest(&self, asked_for: Duration, mut wait: Duration) {
        if is_on(Mutant::PushbackIgnored) {
            wait += asked_for;
        } else {
            sleep(asked_for).await;
        }
        let nudged = async {
            sleep(wait.min(NUDGED_REST)).await;
            self.replica.nudged().await;
        };
        tokio::select! {
            biased;
            () = sleep(wait) => {}
            () = nudged => {}
        }
    }

    /// What readers see now.
    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.replica.published().snapshot.clone()
    }

    /// The version that readers have seen.
    fn shown(&self) -> Option<ResourceVersion> {
        self.snapshot().map(|snapshot| snapshot.version().clone())
    }

    /// Tells readers, pages and the log of a failure.
    fn note(&self, failure: &Failure) {
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
        if let Failure::Restored { .. } = failure {
            self.begin_epoch();
        } else {
            self.replica.publish(|published| {
                if published.snapshot.is_none() {
                    published.state = State::Failing;
                }
            });
        }
    }

    /// Forgets everything: versions have begun anew, and equal ones may mean different content.
    fn begin_epoch(&self) {
        self.counters.epochs.increment();
        self.forget_state(|published| published.epoch += 1);
    }

    /// Stops answering, and lists again once every apiserver uses the new definition. Reads are
    /// forwarded meanwhile.
    async fn await_redefinition(&self) -> Step {
        self.forget_state(|published| published.state = State::Failing);
        sleep(REDEFINITION_SETTLES).await;
        Step::List(None)
    }

    fn forget_state(&self, change: impl FnOnce(&mut Published)) {
        let mut history = self.replica.history();
        history.close();
        self.replica.publish(|published| {
            let link = Link::Lost { since: Instant::now() };
            *published = Published::nothing(link, published.epoch);
            change(published);
        });
    }
}

/// An error with its causes, in one line.
fn described(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Writing to a String cannot fail.
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
