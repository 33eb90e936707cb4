//! State of the apiserver, shared by all who send to it and all who show it.
//!
//! Every exchange reports its end here. The log has one line when an outage begins, when its cause
//! changes and when it ends. Clients are shown the cause's kind only; the log has the whole error.

mod cause;
mod probe;
mod state;

use std::{
    fmt::Display,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use http::StatusCode;
use tokio::{sync::Notify, time::Instant};

use super::Error;
use crate::{error::Chain, metrics::UpstreamCause};

pub(super) use cause::ConnectFailure;
pub(super) use cause::{ProxyRefused, Unresolved};
pub use cause::{cause_of, connect_cause};
pub use probe::{keep_probing, probe};
pub use state::{Change, ExchangeKind, HealthState, Outage, OutageSums};

/// State of the apiserver; cheap to clone.
#[derive(Clone, Default)]
pub struct Health(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<HealthState>,
    /// `true` while a response that succeeded changes nothing: then the lock is not taken.
    is_well: AtomicBool,
    doubt: Notify,
}

// === impl Health ===

impl Health {
    /// Reports a response.
    pub fn answered(&self, kind: ExchangeKind, status: StatusCode) {
        let is_refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if self.0.is_well.load(Ordering::Acquire) && !is_refused {
            return;
        }
        self.take_in(&status, |state, now| state.answered(kind, status, now));
    }

    /// Reports that no response came, and why.
    pub fn failed(&self, kind: ExchangeKind, error: &Error) {
        let Some(cause) = cause_of(error) else { return };
        self.take_in(&Chain(error), |state, now| state.failed(kind, cause, now));
    }

    /// Reports that a probe waited in vain.
    fn unanswered(&self) {
        let cause = UpstreamCause::ResponseTimeout;
        self.take_in(&cause.text(), |state, now| state.failed(ExchangeKind::Probe, cause, now));
    }

    /// Reports that a caller gave up before a response came.
    pub fn abandoned(&self) {
        self.0.doubt.notify_one();
    }

    /// Returns the state now.
    pub fn state(&self) -> HealthState {
        *self.lock()
    }

    /// Waits until only a probe can tell the state.
    async fn doubted(&self) {
        self.0.doubt.notified().await;
    }

    fn take_in(
        &self,
        seen: &dyn Display,
        take_in: impl FnOnce(&mut HealthState, Instant) -> Option<Change>,
    ) {
        let now = Instant::now();
        let change = {
            let mut state = self.lock();
            let change = take_in(&mut state, now);
            self.0.is_well.store(state.is_known() && state.outage().is_none(), Ordering::Release);
            change
        };
        match change {
            None => {}
            Some(Change::Doubt) => self.0.doubt.notify_one(),
            Some(Change::Failing(outage)) => {
                tracing::warn!(error = %seen, "{}", outage.cause.headline());
                self.0.doubt.notify_one();
            }
            Some(Change::Recovered(outage)) => {
                let seconds = now.saturating_duration_since(outage.since).as_secs();
                let failures = outage.failures;
                tracing::info!(seconds, failures, "apiserver reachable again");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HealthState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
