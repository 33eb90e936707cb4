//! A stream of events: requests as they are answered, each second of the timeline, how it stands.
//!
//! Bounded by what the tap allows; a reader that is too slow loses requests and is told how many. The
//! data path never waits for a stream.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use serde::Serialize;
use tokio::{sync::watch, time::Instant};

use super::{Sources, parameters::Parameters, status::Status};
use crate::{
    body::Body,
    tap::{Filter, Listening, Tapped, TooMany},
};

/// Which events a stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kinds {
    /// All of them.
    All,
    /// Requests.
    Requests,
    /// The timeline, and how it stands.
    Status,
}

/// One stream.
struct Events {
    sources: Arc<Sources>,
    kinds: Kinds,
    tapped: Listening,
    points: watch::Receiver<u64>,
    /// The second that was last told.
    told_until: u64,
    status_at: Instant,
    /// What is to be sent before anything else.
    first: VecDeque<String>,
}

#[derive(Serialize)]
struct Lost {
    lost: u64,
}

/// Requests that are sent in one piece.
const REQUESTS_MAX: usize = 64;

/// How often it is told how it stands.
const STATUS_PERIOD: Duration = Duration::from_secs(2);

/// A browser whose stream broke off comes back after so many milliseconds.
const RETRY: &str = "retry: 2000\n\n";

/// A stream of what the parameters ask for.
pub(super) fn open(sources: &Arc<Sources>, parameters: &Parameters) -> Result<Body, TooMany> {
    let text = |name| parameters.get(name).map(str::to_owned);
    let filter = Filter {
        verb: text("verb"),
        resource: text("resource"),
        user_agent: text("userAgent"),
        served_by: text("servedBy"),
    };
    let kinds = match parameters.get("only") {
        Some("requests") => Kinds::Requests,
        Some("status") => Kinds::Status,
        _ => Kinds::All,
    };
    let filter = (kinds != Kinds::Status).then_some(filter);
    let mut events = Events {
        sources: sources.clone(),
        kinds,
        tapped: sources.tap.listen(filter)?,
        points: sources.timeline.follow(),
        told_until: sources.timeline.since(0).points.last().map_or(0, |point| point.at),
        status_at: Instant::now() + STATUS_PERIOD,
        first: VecDeque::from([RETRY.to_owned()]),
    };
    if kinds != Kinds::Requests {
        events.first.push_back(events.status());
    }
    let pieces = stream::unfold(events, |mut events| async move {
        let piece = events.next().await;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(piece))), events))
    });
    Ok(Body::wrap(StreamBody::new(pieces)))
}

// === impl Events ===

impl Events {
    /// What is to be sent next; waits until there is something.
    async fn next(&mut self) -> String {
        if let Some(first) = self.first.pop_front() {
            return first;
        }
        let mut requests = Vec::new();
        tokio::select! {
            () = self.tapped.next(&mut requests, REQUESTS_MAX) => self.told(&requests),
            Ok(()) = self.points.changed() => self.second(),
            () = tokio::time::sleep_until(self.status_at) => {
                self.status_at = Instant::now() + STATUS_PERIOD;
                match self.kinds {
                    // A comment at least: it shows that the other side is still there.
                    Kinds::Requests => ":\n\n".to_owned(),
                    Kinds::All | Kinds::Status => self.status(),
                }
            }
        }
    }

    fn told(&self, requests: &[Arc<Tapped>]) -> String {
        let mut text = String::new();
        for request in requests {
            text += &event("request", request);
        }
        match self.tapped.lost() {
            0 => text,
            lost => text + &event("lost", &Lost { lost }),
        }
    }

    fn second(&mut self) -> String {
        let news = self.sources.timeline.since(self.told_until);
        self.told_until = news.points.last().map_or(self.told_until, |point| point.at);
        match self.kinds {
            Kinds::Requests => ":\n\n".to_owned(),
            Kinds::All | Kinds::Status => event("timeline", &news),
        }
    }

    fn status(&self) -> String {
        event("status", &Status::of(&self.sources))
    }
}

/// JSON has no line breaks of its own, so that one line is enough.
fn event(kind: &str, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).expect("texts and numbers are JSON");
    format!("event: {kind}\ndata: {data}\n\n")
}
