//! What tests of several modules need.

use std::time::Duration;

use tokio::time;

/// Lets virtual time pass: everything due until then happens first. Takes no real time, and panics
/// in a test whose clock runs.
pub(crate) async fn pass(duration: Duration) {
    time::advance(Duration::ZERO).await;
    time::sleep(duration).await;
}
