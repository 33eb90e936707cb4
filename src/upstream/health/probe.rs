//! Requests of `/version`, sent only to learn whether the apiserver serves Listless.
//!
//! None is sent while the state is certain and good. During an outage they follow each other with a
//! growing delay, so that its end is noticed without clients and the apiserver is not flooded.

use std::{sync::Arc, time::Duration};

use http::Request;
use tokio::time::{Instant, sleep_until, timeout};

use super::Health;
use crate::{
    body::Body,
    upstream::{Client, Lane},
};

/// Time to wait for the response, connecting included.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Delay between the first two probes; it doubles.
const DELAY_MIN: Duration = Duration::from_secs(1);

/// Largest delay between two probes.
const DELAY_MAX: Duration = Duration::from_secs(30);

/// Bytes that the response may have.
const BYTES_MAX: usize = 64 << 10;

/// Asks the apiserver for its version; `client` reports the response to `health`.
pub async fn probe(client: &dyn Client, health: &Health) {
    let request = Request::get("/version").body(Body::empty()).expect("a path is a URI");
    let exchange = async {
        if let Ok(response) = client.send(request, Lane::Short).await {
            // The head has told everything; the body only frees the connection.
            let _body = response.into_body().collect(BYTES_MAX).await;
        }
    };
    if timeout(PROBE_TIMEOUT, exchange).await.is_err() {
        health.unanswered();
    }
}

/// Probes while the state is in doubt or bad; `random` draws from 0 to 1.
pub async fn keep_probing(
    client: Arc<dyn Client>,
    health: Health,
    random: Arc<dyn Fn() -> f64 + Send + Sync>,
) {
    let mut delay = DELAY_MIN;
    let mut earliest = Instant::now();
    loop {
        if health.state().outage().is_none() {
            health.doubted().await;
        }
        sleep_until(earliest).await;
        probe(&*client, &health).await;
        delay = match health.state().outage() {
            Some(_) => (delay * 2).min(DELAY_MAX),
            None => DELAY_MIN,
        };
        earliest = Instant::now() + delay.mul_f64(0.5 + random() / 2.0);
    }
}
