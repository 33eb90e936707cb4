//! One run of a task for all who wait for it.

use std::sync::{Mutex, PoisonError};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};

/// A task of which one run is in progress at most. It goes on if all who wait leave.
pub(super) struct Flight<T: Clone>(Mutex<Option<Shared<BoxFuture<'static, T>>>>);

// === impl Flight ===

impl<T: Clone + Send + Sync + 'static> Flight<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Joins the run in progress, or starts one.
    pub(super) fn join(
        &self,
        run: impl FnOnce() -> BoxFuture<'static, T>,
    ) -> Shared<BoxFuture<'static, T>> {
        let mut flight = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = flight.as_ref().filter(|running| running.peek().is_none()) {
            return running.clone();
        }
        let started = run().shared();
        tokio::spawn(started.clone());
        *flight = Some(started.clone());
        started
    }
}
