//! The cost of recording a request in its account: measured in this process, with the shipped code.

use std::{hint::black_box, time::Duration};

use http::{HeaderMap, HeaderValue, Method, Uri, header};
use listless::{
    api::request::RequestInfo,
    insight::{
        AccountRequest, Insight, Remembered,
        account::{Answer, Otherwise, Pace, Record},
        cost::{Collection, Encoding},
    },
    metrics::Metrics,
};
use tokio::time::Instant;

use crate::cell::median;

/// The requests of one round.
const REQUESTS: u32 = 500_000;
const ROUNDS: usize = 9;
/// The number of connections.
const CONNECTIONS: u32 = 8;

/// Returns the nanoseconds to look up and record one poll: the median of several rounds.
pub(crate) fn nanoseconds() -> f64 {
    let start = Instant::now();
    let insight = Insight::new(Metrics::new(), start);
    let text = "/api/v1/namespaces/load/pods?labelSelector=app%3Dnone";
    let mut headers = HeaderMap::new();
    let agent = HeaderValue::from_static("fabric8-kubernetes-client/7.6.1");
    headers.insert(header::USER_AGENT, agent);
    let info = RequestInfo::parse(&Method::GET, &Uri::from_static(text), &headers);
    let remembered = Remembered::default();
    let question = AccountRequest { info: &info, text, headers: &headers, caller: "" };
    let rounds: Vec<f64> = (0..ROUNDS)
        .map(|round| {
            let began = Instant::now();
            for number in 0..REQUESTS {
                let asker = remembered.of(&headers, None, || insight.asker(&question, start));
                asker.begins();
                let at = Duration::from_micros(u64::from(number)) + began.duration_since(start);
                let record = Record {
                    started: start + at,
                    took: Duration::from_micros(5),
                    answer: Answer::Memory,
                    code: 200,
                    bytes: 120,
                    content: Some(round as u32),
                    encoding: Encoding::default(),
                    collection: Some(Collection { objects: 5_000, bytes: 45_000_000 }),
                    retry_after: None,
                    pace: Pace::Free,
                    otherwise: Otherwise::Same,
                };
                insight.record(&asker, u64::from(number % CONNECTIONS), black_box(&record));
            }
            began.elapsed().as_nanos() as f64 / f64::from(REQUESTS)
        })
        .collect();
    median(&rounds)
}
