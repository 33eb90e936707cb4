//! Helpers for the tests of several modules.

use std::time::Duration;

use tokio::time;

/// Advances virtual time after everything due until then has run. It takes no real time, and panics
/// in a test with a real clock.
pub(crate) async fn pass(duration: Duration) {
    time::advance(Duration::ZERO).await;
    time::sleep(duration).await;
}
