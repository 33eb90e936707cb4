//! The consistency check: a replica is compared with the apiserver's list at the same version.
//!
//! Invariants: one check runs at a time, a replica is checked at most once in a period, and the bytes
//! read are bounded in each check and over time. The list has only metadata, but for custom resources:
//! a conversion webhook may change their bytes without a new version or definition. The request goes
//! the way of the replica's own lists. A difference never passes: the replica stops answering and
//! lists again. An apiserver that cannot answer is asked more and more rarely.

mod comparison;
mod schedule;

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::{
    comparison::{Compared, Comparison, Difference, Extent, Unusable},
    schedule::Schedule,
};
use super::{
    Inner,
    reflector::{
        ReflectorFailure,
        exchange::{ReflectorExchange, next_piece},
    },
    replica::{Link, Replica},
    store::Snapshot,
};
use crate::{
    api::{ObjectKey, field::is_built_in_group, form::Form, query::Query},
    metrics::ReplicaCheck,
};

/// The bounds of the consistency check.
#[derive(Clone, Debug, PartialEq)]
pub struct Consistency {
    /// The time from one check of a replica to the next, at least; none, and there are no checks.
    pub period: Option<Duration>,
    /// The bytes of a list that are read at most.
    pub bytes_max: u64,
    /// The reaction to a difference.
    pub on_difference: OnDifference,
}

/// The reaction to a replica that differs from the apiserver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDifference {
    /// The replica stops answering and lists again.
    Restart,
    /// The same, and the checking task panics; for tests.
    Panic,
    /// The process aborts, so that no test run overlooks it.
    Abort,
}

/// The checks of all replicas of a cache.
pub(super) struct Checker {
    cache: Weak<Inner>,
    period: Duration,
    /// By address.
    plans: HashMap<usize, Plan>,
}

/// The checks of one replica; its address is not used again while this is here.
struct Plan {
    replica: Weak<Replica>,
    schedule: Schedule,
}

/// The next thing to do.
enum Next {
    Check(Check),
    WaitUntil(Instant),
}

/// One check.
struct Check {
    replica: Arc<Replica>,
    held: Arc<Snapshot>,
    epoch: u32,
}

/// A reason why a replica could not be compared.
#[derive(Debug, thiserror::Error)]
enum Unanswered {
    /// The apiserver did not answer with a list.
    #[error("no list at exactly this version")]
    Failed(#[from] ReflectorFailure),
    /// The list cannot be compared.
    #[error("no list to compare with")]
    Unusable(#[from] Unusable),
    /// The list is longer than is read.
    #[error("the list is too long to be read")]
    TooLong,
    /// The list took too long.
    #[error("the list took too long")]
    TooSlow,
    /// The replica has started again meanwhile.
    #[error("the replica has listed again in the meantime")]
    Superseded,
}

/// The time from one check of a replica to the next, at least.
const PERIOD: Duration = Duration::from_secs(5 * 60);

/// Metadata of about 50 000 objects.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The bytes that checks read in a second, on average over the rest that follows each of them.
const BYTES_PER_SECOND: u64 = 64 * 1024;

/// The rest between two checks, at least.
const REST_MIN: Duration = Duration::from_secs(1);

/// A replica is wrong after so many checks in a row that found a difference.
const DIFFERENCES_MIN: u32 = 2;

/// A check is over by then.
const CHECK_WAIT: Duration = Duration::from_secs(60);

// === impl Consistency ===

impl Default for Consistency {
    fn default() -> Self {
        let on_difference =
            if cfg!(debug_assertions) { OnDifference::Abort } else { OnDifference::Restart };
        Self { period: Some(PERIOD), bytes_max: BYTES_MAX, on_difference }
    }
}

// === impl Checker ===

impl Checker {
    /// Will check the replicas of a cache.
    pub(super) fn new(cache: Weak<Inner>, period: Duration) -> Self {
        Self { cache, period, plans: HashMap::new() }
    }

    /// Checks replicas as they become due, until the cache is gone.
    pub(super) async fn run(mut self) {
        while let Some(cache) = self.cache.upgrade() {
            match self.next(&cache, Instant::now()) {
                Next::Check(check) => {
                    let rest = self.check(&cache, check).await;
                    drop(cache);
                    sleep(rest).await;
                }
                Next::WaitUntil(at) => {
                    drop(cache);
                    sleep_until(at).await;
                }
            }
        }
    }

    fn next(&mut self, cache: &Inner, now: Instant) -> Next {
        self.plans.retain(|_, plan| plan.replica.strong_count() > 0);
        let mut replicas: Vec<_> =
            cache.set().members().map(|member| member.replica.clone()).collect();
        // Always in the same order, so that a run can be repeated.
        replicas.sort_by_cached_key(|replica| {
            let Query { resource, scope, labels, fields } = replica.query();
            let selectors = (labels.to_string(), fields.to_string());
            (resource.clone(), scope.clone(), selectors, replica.form())
        });
        // A replica that starts meanwhile is due after a period at the earliest.
        let mut wake_at = now + self.period;
        for replica in &replicas {
            self.plans.entry(Arc::as_ptr(replica).addr()).or_insert_with(|| {
                let (age, random) = (replica.age(now), (cache.random)());
                let schedule = Schedule::new(self.period, age, now, random);
                Plan { replica: Arc::downgrade(replica), schedule }
            });
        }
        // The one that has been due for longest comes first, so that each gets its turn.
        let due_at = |replica: &Arc<Replica>| {
            self.plans.get(&Arc::as_ptr(replica).addr()).map(|plan| plan.schedule.at())
        };
        replicas.sort_by_key(due_at);
        for replica in replicas {
            let Some(plan) = self.plans.get_mut(&Arc::as_ptr(&replica).addr()) else { continue };
            if plan.schedule.at() <= now {
                match Check::of(replica, &plan.schedule) {
                    Some(check) => return Next::Check(check),
                    None => plan.schedule.postpone(now, (cache.random)()),
                }
            }
            wake_at = wake_at.min(plan.schedule.at());
        }
        Next::WaitUntil(wake_at)
    }

    /// Makes one check; returns the rest that is due after it.
    async fn check(&mut self, cache: &Inner, check: Check) -> Duration {
        let mut bytes = 0;
        let (mut check, mut result) = (check, Ok(Compared::Equal));
        // Events of one version may arrive apart (S-WATCH-27), and be published so for a moment. Only
        // two differences in a row prove that the replica is wrong.
        for _ in 0..DIFFERENCES_MIN {
            result = check.run(cache, &mut bytes).await;
            if matches!(result, Ok(Compared::Equal) | Err(_)) {
                break;
            }
            sleep(REST_MIN).await;
            match Check::now(check.replica.clone()) {
                Some(next) => check = next,
                None => {
                    result = Err(Unanswered::Superseded);
                    break;
                }
            }
        }
        let (now, random) = (Instant::now(), (cache.random)());
        let rest = REST_MIN + Duration::from_secs(bytes / BYTES_PER_SECOND);
        let Some(plan) = self.plans.get_mut(&Arc::as_ptr(&check.replica).addr()) else {
            return rest;
        };
        match result {
            Ok(Compared::Equal) => {
                cache.counters.checks.increment(ReplicaCheck::Equal);
                plan.schedule.equal(check.held.version().clone(), now, random);
            }
            Ok(Compared::Reshaped(key)) => {
                cache.counters.checks.increment(ReplicaCheck::Reshaped);
                plan.schedule.postpone(now, random);
                check.reshaped(cache, &key);
            }
            Ok(Compared::Different(difference)) => {
                cache.counters.checks.increment(ReplicaCheck::Different);
                plan.schedule.postpone(now, random);
                let reaction = cache.settings.borrow().consistency.on_difference;
                check.found(&difference, reaction);
            }
            Err(error) => {
                cache.counters.checks.increment(ReplicaCheck::Unanswered);
                plan.schedule.unanswered(error.retry_after(), now, random);
                let query = check.replica.query();
                tracing::debug!(
                    resource = %query.resource, scope = query.scope.as_str(),
                    error = &error as &dyn std::error::Error, "could not check the replica"
                );
            }
        }
        rest
    }
}

// === impl Check ===

impl Check {
    /// The check of a replica that answers from memory now, if it could find anything new.
    fn of(replica: Arc<Replica>, schedule: &Schedule) -> Option<Self> {
        Self::now(replica).filter(|check| {
            check.extent() == Extent::Bytes || schedule.is_worthwhile(check.held.version())
        })
    }

    /// The check of a replica that answers from memory now.
    fn now(replica: Arc<Replica>) -> Option<Self> {
        let published = replica.published();
        let held = published.snapshot.clone().filter(|_| published.link == Link::Up)?;
        let epoch = published.epoch;
        drop(published);
        Some(Self { replica, held, epoch })
    }

    /// The part of each object to compare. Rows of Tables are not in a list of objects.
    fn extent(&self) -> Extent {
        let is_custom = !is_built_in_group(&self.replica.query().resource.group);
        if is_custom && self.replica.form() == Form::Json { Extent::Bytes } else { Extent::Version }
    }

    async fn run(&self, cache: &Inner, bytes: &mut u64) -> Result<Compared, Unanswered> {
        let compared = timeout(CHECK_WAIT, self.compare(cache, bytes)).await;
        let compared = compared.unwrap_or(Err(Unanswered::TooSlow))?;
        let published = self.replica.published();
        if published.snapshot.is_none() || published.epoch != self.epoch {
            return Err(Unanswered::Superseded);
        }
        Ok(compared)
    }

    async fn compare(&self, cache: &Inner, bytes: &mut u64) -> Result<Compared, Unanswered> {
        let (bytes_max, item_bytes_max) = {
            let settings = cache.settings.borrow();
            (settings.consistency.bytes_max, settings.item_bytes_max)
        };
        let exchange = ReflectorExchange::new(cache.client.clone(), &self.replica);
        let (version, extent) = (self.held.version(), self.extent());
        let mut body = match extent {
            Extent::Version => exchange.metadata_at(version).await?,
            Extent::Bytes => exchange.objects_at(version).await?,
        };
        let mut comparison = Comparison::new(self.held.clone(), extent, item_bytes_max);
        let mut read = 0;
        while let Some(piece) = next_piece(&mut body).await? {
            read += piece.len() as u64;
            *bytes += piece.len() as u64;
            if read > bytes_max {
                return Err(Unanswered::TooLong);
            }
            comparison.feed(&piece)?;
        }
        Ok(comparison.finish()?)
    }

    /// The apiserver shows objects in other bytes: all replicas of the resource list again.
    fn reshaped(&self, cache: &Inner, key: &ObjectKey) {
        let query = self.replica.query();
        tracing::info!(
            resource = %query.resource, object = key.as_str(),
            "the apiserver shows an object in other bytes at the same version; its replicas list again"
        );
        cache.redefine(&query.resource.group_resource());
    }

    /// The replica is wrong: it must not answer any more.
    fn found(&self, difference: &Difference, reaction: OnDifference) {
        let query = self.replica.query();
        let Difference { key, held, listed } = difference;
        let shown = |version: &Option<_>| {
            version.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string)
        };
        let (held, listed) = (shown(held), shown(listed));
        tracing::error!(
            resource = %query.resource, scope = query.scope.as_str(), version = %self.held.version(),
            object = key.as_str(), held, listed,
            "a replica differs from the apiserver; it stops answering and lists again"
        );
        let at = self.held.version();
        let words = format!(
            "the replica differed from the apiserver at {at}: {} was held at {held} and listed at {listed}",
            key.as_str()
        );
        self.replica.usage().last_error = Some(words.clone());
        self.replica.distrust();
        match reaction {
            OnDifference::Restart => {}
            OnDifference::Panic => panic!("{}: {words}", query.resource),
            OnDifference::Abort => std::process::abort(),
        }
    }
}

// === impl Unanswered ===

impl Unanswered {
    fn retry_after(&self) -> Duration {
        match self {
            Self::Failed(failure) => failure.retry_after(),
            _ => Duration::ZERO,
        }
    }
}
