//! The watch half of a reflector: from events to snapshots.
//!
//! Events that have arrived together are published together; no event waits for others.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::FutureExt;
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use super::{
    Reflector,
    event::{Frames, WatchEvent},
    failure::{ReflectorFailure, Step},
    progress::Progress,
    proof::Proof,
};
use crate::{
    api::version::ResourceVersion,
    body::{Body, BoxError},
    cache::{form::Envelope, replica::Link},
    metrics::ReplicaWatchEnd,
};

/// An open watch.
struct Stream {
    body: Body,
    frames: Frames,
    envelope: Arc<Envelope>,
    /// The time of the next check of a silent watch.
    quiet_until: Instant,
    /// The number of consecutive checks.
    probes: u32,
    proof: Proof,
}

/// The reason why a watch ended without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The apiserver closed it after the requested length.
    Planned,
    /// The apiserver closed it earlier.
    Closed,
    /// Readers need its bookmark sooner than it comes.
    Lagging,
    /// The apiserver may return the objects with other bytes.
    Redefined,
    /// Events that have arrived may be old.
    Doubted,
}

/// Events that arrived together, and the state of the stream after them.
struct Arrived {
    events: Vec<WatchEvent>,
    bytes: usize,
    end: Result<ControlFlow<()>, ReflectorFailure>,
}

type NextFrame = Option<Result<Frame<Bytes>, BoxError>>;

/// The shortest requested length of a watch; the longest is twice as much.
const WATCH_LENGTH: Duration = Duration::from_secs(300);

/// The length below which a watch that ends without an item has failed.
const SHORT_WATCH: Duration = Duration::from_secs(2);

/// The age of the last proof from which a short watch is used. The first bookmark of a long one
/// takes a minute, and the cache stops answering half a minute later.
const GAP: Duration = Duration::from_secs(20);

/// The time without reads after which a replica needs no proof soon.
const READ_LATELY: Duration = Duration::from_secs(90);

/// The longest silence that a new watch is always allowed: the events it missed are on their way.
const QUIET_AFTER_OPENING: Duration = Duration::from_secs(5);

/// The number of checks of a silent watch after which it is reopened: it should have had events.
const PROBES_MAX: u32 = 2;

/// The limit of event bytes that are published together.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// The limit of the text around the object of an event.
const EVENT_FRAME_BYTES_MAX: usize = 1024;

// === impl Reflector ===

impl Reflector {
    /// Follows events from the published version; a clean end is normal.
    pub(super) async fn watch(&mut self) -> Result<Step, ReflectorFailure> {
        // The snapshot is released here: a watch is long, and a snapshot pins all of its pages.
        let held = self.snapshot().map(|held| (held.version().clone(), held.envelope().clone()));
        let Some((from, envelope)) = held else {
            return Ok(Step::List(None));
        };
        self.counters.watches.increment();
        let again = std::mem::replace(&mut self.replica.usage().watched, true);
        if again {
            self.counters.watch_restarts.increment();
            self.replica.usage().watch_restarts += 1;
        }
        let now = Instant::now();
        let proven_at = self.replica.published().proven_at;
        let since = |at| now.saturating_duration_since(at);
        let is_read = since(self.replica.used_at(now)) < READ_LATELY;
        if is_read && proven_at.is_none_or(|at| since(at) > GAP) {
            // Its bookmark comes soon; the one of a long watch may come after the cache had to stop
            // answering.
            self.catch_up.is_due(now);
        }
        let length = match self.catch_up.begin() {
            Some(length) => {
                self.counters.catch_ups.increment();
                length
            }
            None => WATCH_LENGTH.mul_f64(1.0 + (self.random)()),
        };
        let end = self.follow_from(&from, envelope, length).await;
        self.counters.watches_ended.increment(match &end {
            Ok(End::Lagging) => ReplicaWatchEnd::Lagging,
            Ok(End::Redefined) => ReplicaWatchEnd::Redefined,
            Ok(End::Doubted) => ReplicaWatchEnd::Suspended,
            Ok(End::Planned) => ReplicaWatchEnd::Timeout,
            Ok(End::Closed) => ReplicaWatchEnd::Closed,
            Err(failure) => failure.watch_end(),
        });
        Ok(match end? {
            End::Closed => self.after_interruption(),
            End::Planned | End::Lagging => Step::Watch,
            End::Redefined => self.await_redefinition().await,
            End::Doubted => self.after_doubt(),
        })
    }

    /// Follows one watch to its end; `from` is the published version.
    async fn follow_from(
        &mut self,
        from: &ResourceVersion,
        envelope: Arc<Envelope>,
        length: Duration,
    ) -> Result<End, ReflectorFailure> {
        let asked_at = Instant::now();
        let body = self.exchange.watch(from, length).await?;
        let opened_at = Instant::now();
        let mut stream = self.open(body, envelope);
        let current = self.current.take();
        let proven_at = current.and_then(|(version, at)| stream.proof.probed(from, version, at));
        self.replica.publish(|published| {
            published.link = Link::Up;
            if let Some(proven_at) = proven_at {
                published.prove(proven_at);
            }
        });
        let end = self.read_events(stream).await;
        let now = Instant::now();
        self.replica.publish(|published| published.link = Link::Lost { since: now });
        let unchanged = self.shown().as_ref() == Some(from);
        self.catch_up.ended(!unchanged, now);
        let mut end = end?;
        let since = |at| now.saturating_duration_since(at);
        // A short watch whose response came late may end soon after it, as planned.
        if end == End::Closed && since(asked_at).as_secs() >= length.as_secs() {
            end = End::Planned;
        }
        if end == End::Closed && unchanged && since(opened_at) < SHORT_WATCH {
            return Err(ReflectorFailure::ShortWatch);
        }
        if matches!(end, End::Planned | End::Closed) {
            self.backoff.reset();
        }
        Ok(end)
    }

    fn open(&self, body: Body, envelope: Arc<Envelope>) -> Stream {
        let settings = self.settings.borrow();
        let bytes_max = settings.item_bytes_max + EVENT_FRAME_BYTES_MAX;
        let frames = Frames::new(envelope.form(), bytes_max);
        let now = Instant::now();
        // A new watch proves nothing: the time of the last event counts.
        let last_proof = self.replica.published().proven_at.unwrap_or(now);
        let quiet_until = (last_proof + settings.quiet_after).max(now + QUIET_AFTER_OPENING);
        Stream { body, frames, envelope, quiet_until, probes: 0, proof: Proof::opened() }
    }

    async fn read_events(&mut self, mut stream: Stream) -> Result<End, ReflectorFailure> {
        loop {
            let frame = tokio::select! {
                biased;
                () = self.replica.doubted() => return Ok(End::Doubted),
                frame = timeout_at(stream.quiet_until, stream.body.frame()) => frame,
                () = self.replica.lagging() => {
                    if self.catch_up.is_due(Instant::now()) {
                        return Ok(End::Lagging);
                    }
                    continue;
                }
                () = self.replica.redefined() => return Ok(End::Redefined),
            };
            let Ok(frame) = frame else {
                self.probe(&mut stream).await?;
                continue;
            };
            let arrived = self.arrived(&mut stream, frame);
            if !arrived.events.is_empty() {
                stream.probes = 0;
                self.apply(&mut stream, arrived.events)?;
                self.backoff.reset();
            }
            if arrived.end?.is_break() {
                return Ok(End::Closed);
            }
        }
    }

    /// Decodes a frame and all further frames that have arrived.
    fn arrived(&mut self, stream: &mut Stream, frame: NextFrame) -> Arrived {
        let mut arrived =
            Arrived { events: Vec::new(), bytes: 0, end: Ok(ControlFlow::Continue(())) };
        let mut next = Some(frame);
        while let Some(frame) = next {
            arrived.end = self.decode(stream, frame, &mut arrived.events, &mut arrived.bytes);
            if arrived.bytes >= BATCH_BYTES_MAX
                || !matches!(arrived.end, Ok(flow) if flow.is_continue())
            {
                break;
            }
            next = stream.body.frame().now_or_never();
        }
        arrived
    }

    fn decode(
        &mut self,
        stream: &mut Stream,
        frame: NextFrame,
        events: &mut Vec<WatchEvent>,
        bytes: &mut usize,
    ) -> Result<ControlFlow<()>, ReflectorFailure> {
        let Some(frame) = frame.transpose().map_err(ReflectorFailure::Body)? else {
            // An unfinished event is not an event.
            return Ok(ControlFlow::Break(()));
        };
        if let Ok(data) = frame.into_data() {
            *bytes += data.len();
            let Stream { frames, envelope, .. } = stream;
            self.reader.arrives(self.replica.clock().of_event());
            frames.feed(&data, |frame| {
                events.push(WatchEvent::read(frame, &mut self.reader, envelope)?);
                Ok(())
            })?;
            let envelope = envelope.clone();
            self.count_unproven(&envelope);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Checks whether a silent watch has a quiet collection or a dead connection (S-CONS-20,
    /// S-WATCH-31).
    async fn probe(&mut self, stream: &mut Stream) -> Result<(), ReflectorFailure> {
        let quiet_after = self.settings.borrow().quiet_after;
        stream.probes += 1;
        if stream.probes > PROBES_MAX {
            return Err(ReflectorFailure::Silence(quiet_after * stream.probes));
        }
        let Some(shown) = self.shown() else {
            return Err(ReflectorFailure::Silence(quiet_after));
        };
        let asked_at = Instant::now();
        let current = match self.current_version().await {
            Ok(current) => current,
            // The apiserver is reachable and asks for a delay: a new watch would cost it more than
            // this one.
            Err(failure) if failure.is_pushback() => {
                stream.quiet_until = Instant::now() + failure.retry_after().max(quiet_after);
                return Ok(());
            }
            Err(_) => return Err(ReflectorFailure::Silence(quiet_after)),
        };
        if current < shown {
            return Err(ReflectorFailure::Restored { current, shown });
        }
        if let Some(proven_at) = stream.proof.probed(&shown, current, asked_at) {
            stream.probes = 0;
            self.replica.publish(|published| published.prove(proven_at));
        }
        stream.quiet_until = Instant::now() + quiet_after;
        Ok(())
    }

    /// Applies events in order up to the first invalid one, and publishes the result.
    fn apply(
        &mut self,
        stream: &mut Stream,
        events: Vec<WatchEvent>,
    ) -> Result<(), ReflectorFailure> {
        let Some(base) = self.snapshot() else {
            return Ok(());
        };
        let now = Instant::now();
        // The lock is held until everything is published: its other holders see events and state
        // agree.
        let mut history = self.replica.history();
        let mut progress = Progress::new(base, &mut history);
        let result = events.into_iter().try_for_each(|event| progress.add(event, now));
        let Progress { version, batch, events, bookmarks, bookmark_form, .. } = progress;
        self.replica.usage().extra_bytes = self.reader.bytes() + history.bytes();
        self.counters.events.add(events);
        self.counters.bookmarks.add(bookmarks);
        if bookmark_form.is_some() {
            self.replica.learn_bookmark(bookmark_form);
        }
        if (events, bookmarks) != (0, 0) {
            let proven_at = stream.proof.reached(&version, bookmarks > 0, now);
            if proven_at.is_some() {
                stream.quiet_until = now + self.settings.borrow().quiet_after;
            }
            let snapshot = batch.finish(version);
            self.replica.publish(|published| {
                published.snapshot = Some(Arc::new(snapshot));
                published.oldest = history.oldest().cloned();
                if let Some(proven_at) = proven_at {
                    published.prove(proven_at);
                }
            });
        }
        result
    }
}
