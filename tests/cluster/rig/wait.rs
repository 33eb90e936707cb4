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

/// Repeats a read until memory answers it; returns that answer. Every answer must be a success.
pub async fn until_hit(client: &Client, request: &Request, limit: Duration) -> Result<Answer> {
    hit(client, request, limit, Answer::successful).await
}

/// The same where the first answers may be errors: after a fault, or before permissions count.
pub async fn until_hit_at_last(
    client: &Client,
    request: &Request,
    limit: Duration,
) -> Result<Answer> {
    hit(client, request, limit, Ok).await
}

async fn hit(
    client: &Client,
    request: &Request,
    limit: Duration,
    checked: fn(Answer) -> Result<Answer>,
) -> Result<Answer> {
    let (mut hit, mut said) = (None, String::new());
    let what = format!("{} from memory", request.target);
    let waited = until(&what, limit, async || {
        let answer = checked(client.send(request.clone()).await?)?;
        said = answer.header("cache-status").unwrap_or_default().to_owned();
        hit = answer.is_hit().then_some(answer);
        Ok(hit.is_some())
    });
    waited.await.with_context(|| said)?;
    hit.context("an answer from memory")
}
