//! The event stream: requests as they are answered, each second of the timeline, and the status.
//!
//! The tap bounds the number of streams. A slow reader loses requests and receives their count. The
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

/// The kinds of events in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kinds {
    /// All events.
    All,
    /// Requests only.
    Requests,
    /// The timeline and the status only.
    Status,
}

/// One open stream.
struct Events {
    sources: Arc<Sources>,
    kinds: Kinds,
    tapped: Listening,
    points: watch::Receiver<u64>,
    /// The last second of the timeline that was sent.
    sent_until: u64,
    status_at: Instant,
    /// The events to send before all others.
    first: VecDeque<String>,
}

#[derive(Serialize)]
struct Lost {
    lost: u64,
}

/// The maximum number of requests in one chunk.
const REQUESTS_MAX: usize = 64;

/// The period of status events.
const STATUS_PERIOD: Duration = Duration::from_secs(2);

/// The time after which a browser reconnects a broken stream.
const RETRY: &str = "retry: 2000\n\n";

/// Opens a stream of the events that the parameters select.
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
        sent_until: sources.timeline.since(0).points.last().map_or(0, |point| point.at),
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
    /// Waits for the next chunk and returns it.
    async fn next(&mut self) -> String {
        if let Some(first) = self.first.pop_front() {
            return first;
        }
        let mut requests = Vec::new();
        tokio::select! {
            () = self.tapped.next(&mut requests, REQUESTS_MAX) => self.request_events(&requests),
            Ok(()) = self.points.changed() => self.second(),
            () = tokio::time::sleep_until(self.status_at) => {
                self.status_at = Instant::now() + STATUS_PERIOD;
                match self.kinds {
                    // An empty comment at least: a write detects a closed connection.
                    Kinds::Requests => ":\n\n".to_owned(),
                    Kinds::All | Kinds::Status => self.status(),
                }
            }
        }
    }

    fn request_events(&self, requests: &[Arc<Tapped>]) -> String {
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
        let recent = self.sources.timeline.since(self.sent_until);
        self.sent_until = recent.points.last().map_or(self.sent_until, |point| point.at);
        match self.kinds {
            Kinds::Requests => ":\n\n".to_owned(),
            Kinds::All | Kinds::Status => event("timeline", &recent),
        }
    }

    fn status(&self) -> String {
        event("status", &Status::of(&self.sources))
    }
}

/// Formats one event. JSON has no raw line breaks, so one `data` line is enough.
fn event(kind: &str, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).expect("texts and numbers are JSON");
    format!("event: {kind}\ndata: {data}\n\n")
}
