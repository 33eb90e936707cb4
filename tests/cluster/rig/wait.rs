//! Waiting for a state, within a limit.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::client::{Answer, Client, Request};

const POLL: Duration = Duration::from_millis(50);

/// Waits until a condition holds; the error names it.
pub async fn until(
    what: &str,
    limit: Duration,
    mut holds: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    let (begun, mut poll) = (Instant::now(), tokio::time::interval(POLL));
    loop {
        poll.tick().await;
        if holds().await? {
            return Ok(());
        }
        ensure!(begun.elapsed() < limit, "not within {limit:?}: {what}");
    }
}

/// Repeats a read until memory answers it; returns that answer.
pub async fn until_hit(client: &Client, request: &Request, limit: Duration) -> Result<Answer> {
    let mut hit = None;
    until(&format!("{} from memory", request.target), limit, async || {
        let answer = client.send(request.clone()).await?;
        hit = answer.is_hit().then_some(answer);
        Ok(hit.is_some())
    })
    .await?;
    hit.context("an answer from memory")
}
