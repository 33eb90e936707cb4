//! Watches from replicas: the order of their events, and their end.
//!
//! Invariants: the session has learned an event before its bytes can be read. A watch without any
//! event does not end within two seconds (S-WATCH-28) unless its client asked for that. Nothing is
//! sent that is not proven, or after the caller's review has expired, however slowly it reads.
//! There is no queue: a client that reads too slowly is disconnected cleanly (S-WATCH-24).

mod streamed;
mod wake_timer;
mod websocket;

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use self::{streamed::StreamedWatches, wake_timer::WakeTimer};
use crate::{
    api::{
        media::{Representation, UnmodelledMedia},
        request::Watch,
        version::ResourceVersion,
    },
    body::Body,
    cache::{
        Replica,
        history::{Change, Event, Lost, TooOld},
        subscription::{Begin, Mark, Next, OpenError, Subscription},
    },
    metrics::{Limit, Metrics, Presence, Transport, WatchEnd, WatchEventType},
    proxy::{
        SharedSession,
        authorize::{Authorized, Permit},
        decide::{ForwardReason, LocalWatch, proven_until},
        session::Source,
    },
};

/// The open watches, bounded in number.
pub struct Watches {
    places: Arc<Semaphore>,
    closing: CancellationToken,
    streamed: Arc<StreamedWatches>,
    metrics: Metrics,
}

/// An open watch.
pub struct Watching {
    subscription: Subscription,
    session: SharedSession,
    replica: Arc<Replica>,
    metrics: Metrics,
    bookmarks: bool,
    opened: Instant,
    /// The latest end.
    deadline: Instant,
    /// The time of the next bookmark.
    bookmark_at: Option<Instant>,
    max_staleness: Duration,
    permit: Permit,
    /// The time of the next access review. The apiserver itself never repeats its own check.
    review_at: Instant,
    /// The time after which nothing is sent without another review.
    believed_until: Instant,
    /// The review in progress; its result is its expiry, or `None` if the caller may no longer
    /// watch.
    review: Option<BoxFuture<'static, Option<Instant>>>,
    /// `true` until the first event.
    silent: bool,
    /// The shutdown signal. It waits since the watch opened, like the wake timer, because a new
    /// wait for each event is expensive.
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    wake_timer: WakeTimer,
    ending: Option<WatchEnd>,
    /// `true` if its client read nothing for too long.
    is_stalled: Arc<AtomicBool>,
    _place: OwnedSemaphorePermit,
    _present: Presence,
}

/// The parameters of a watch.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The transport of its events.
    pub transport: Transport,
    /// A number in 0..1 that selects its length, if the client sets none (S-WATCH-12).
    pub fraction: f64,
    /// The time at which it opens.
    pub now: Instant,
}

/// The limit of watches from the cache; further ones are forwarded. It leaves a quarter of the
/// concurrent requests of all connections to other requests.
const WATCHES_MAX: usize = 12_288;

/// The shortest length of a watch without `timeoutSeconds`; the longest is twice as much
/// (S-WATCH-12).
const LENGTH_MIN: Duration = Duration::from_secs(1800);

/// The longest watch, whatever its client asks for.
const LENGTH_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The interval of bookmarks (S-WATCH-31).
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// The time of the last bookmark before the end; it is not sent in the first second of the watch.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
const BOOKMARK_FIRST: Duration = Duration::from_secs(1);

/// The shortest interval between two reviews of a watch.
const REVIEW_GAP: Duration = Duration::from_secs(1);

/// The shortest watch without an event: clients treat a shorter one as broken (S-WATCH-28).
pub(super) const SILENT_MIN: Duration = Duration::from_secs(2);

// === impl Watches ===

impl Watches {
    /// Creates a set without watches.
    pub fn new(metrics: Metrics) -> Self {
        let (places, closing) = (Semaphore::new(WATCHES_MAX), CancellationToken::new());
        Self { places: Arc::new(places), closing, streamed: Arc::default(), metrics }
    }

    /// Ends all of them, as an apiserver does before its own end.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// Returns an open watch as a response body, with one event in each frame.
    pub fn stream(&self, watching: Watching) -> Body {
        self.streamed.body(watching)
    }

    /// Opens a watch of the allowed replica, or returns the reason to forward it; `session` learns
    /// its events.
    pub fn open(
        &self,
        watch: &Watch,
        allowed: Authorized<(LocalWatch, Permit)>,
        session: SharedSession,
        terms: Terms,
    ) -> Result<Watching, ForwardReason> {
        let (answer, permit) = allowed.into_inner();
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            self.metrics.limit_reached(Limit::Watches);
            return Err(ForwardReason::TooManyWatches);
        };
        let LocalWatch { replica, snapshot, epoch, begin, max_staleness, .. } = answer;
        let (query, shown) = (watch.query.clone(), answer.representation);
        let subscription = Subscription::open(&replica, &snapshot, epoch, query, shown, &begin)
            .map_err(|error| refusal(error, shown))?;
        let Terms { transport, fraction, now } = terms;
        if begin == Begin::State {
            let version = subscription.started_at();
            session.lock().shown_by(replica.shape(), version, Source::Storage, now);
        }
        let length = watch.timeout.unwrap_or_else(|| LENGTH_MIN.mul_f64(1.0 + fraction));
        let mut watching = Watching {
            subscription,
            session,
            replica,
            metrics: self.metrics.clone(),
            bookmarks: watch.bookmarks,
            opened: now,
            deadline: now + length.min(LENGTH_MAX),
            bookmark_at: None,
            max_staleness,
            review_at: review_at(now + permit.review_every(), permit.believed_until(), now),
            believed_until: permit.believed_until(),
            permit,
            review: None,
            silent: true,
            closing: Box::pin(self.closing.clone().cancelled_owned()),
            wake_timer: WakeTimer::at(now + BOOKMARK_EVERY),
            ending: None,
            is_stalled: Arc::default(),
            _place: place,
            _present: self.metrics.watcher(transport, &watch.query.resource),
        };
        watching.schedule_bookmark(now);
        Ok(watching)
    }
}

fn refusal(error: OpenError, shown: Representation) -> ForwardReason {
    match error {
        OpenError::Start(TooOld) => ForwardReason::BeforeWindow,
        OpenError::Gone => ForwardReason::NotSynced,
        OpenError::Unprintable => ForwardReason::MediaType(UnmodelledMedia::unprintable(shown)),
    }
}

// === impl Watching ===

impl Watching {
    /// Returns the next line, once there is one; `None` at the end. Cancel-safe.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(end) = self.ending {
                self.linger(end).await;
                return None;
            }
            let now = Instant::now();
            if now >= self.deadline {
                self.ending = Some(WatchEnd::Timeout);
                continue;
            }
            self.ending = self.checked(now).await;
            // A replica that begins anew is not proven either; that must not hide its reason.
            if self.ending == Some(WatchEnd::Unproven) && self.subscription.is_invalid() {
                return Some(self.expire());
            }
            if self.ending.is_some() {
                continue;
            }
            match self.subscription.take() {
                Next::Object(line) => return Some(self.sent(WatchEventType::Added, line)),
                Next::InitialEnd(version) => {
                    if let Some(line) = self.mark_initial_end(&version) {
                        return Some(line);
                    }
                }
                Next::Event { event, seen, line } => {
                    self.learn(&event, now);
                    return Some(self.sent(event_type(seen), line));
                }
                Next::Lost(Lost::Invalid) => return Some(self.expire()),
                Next::Lost(lost) => self.ending = Some(end_of(lost)),
                Next::CaughtUp(version) => {
                    if let Some(line) = self.due_bookmark(&version, now) {
                        return Some(line);
                    }
                    self.wait(now).await;
                }
            }
        }
    }

    /// Ends the watch with an error that makes its client list again (S-CONS-11).
    fn expire(&mut self) -> Bytes {
        self.ending = Some(WatchEnd::Replica);
        self.silent = false;
        self.subscription.expired_error()
    }

    fn sent(&mut self, event_type: WatchEventType, line: Bytes) -> Bytes {
        self.silent = false;
        self.metrics.watch_event_sent(event_type);
        line
    }

    /// Makes the session learn this event: its next read must not be older (S-PROMISE-01).
    fn learn(&self, event: &Event, now: Instant) {
        let mut session = self.session.lock();
        session.shown_by(self.replica.shape(), &event.version, Source::Cache, now);
    }

    /// Returns the marker at the end of the initial events, for clients that asked for bookmarks
    /// (S-WATCH-33).
    fn mark_initial_end(&mut self, version: &ResourceVersion) -> Option<Bytes> {
        if !self.bookmarks {
            return None;
        }
        let line = self.subscription.bookmark(version, Mark::InitialEventsEnd)?;
        Some(self.sent(WatchEventType::Bookmark, line))
    }

    /// Returns a bookmark, if one is due and the client does not have its version yet (S-WATCH-31).
    fn due_bookmark(&mut self, version: &ResourceVersion, now: Instant) -> Option<Bytes> {
        if self.bookmark_at.is_none_or(|at| now < at) {
            return None;
        }
        self.schedule_bookmark(now);
        if version <= self.subscription.started_at() {
            return None;
        }
        let line = self.subscription.bookmark(version, Mark::None)?;
        Some(self.sent(WatchEventType::Bookmark, line))
    }

    fn schedule_bookmark(&mut self, now: Instant) {
        if !self.bookmarks {
            return;
        }
        let last = self.deadline.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(self.opened);
        let last = last.max(self.opened + BOOKMARK_FIRST);
        let periodic = now + BOOKMARK_EVERY;
        let due = if last > now { periodic.min(last) } else { periodic };
        self.bookmark_at = (due < self.deadline).then_some(due);
    }

    /// Returns the reason why nothing more may be sent. It is checked before each event: a slow
    /// reader may never catch up.
    async fn checked(&mut self, now: Instant) -> Option<WatchEnd> {
        if self.review.is_none() && now >= self.review_at {
            self.review_at = now + self.permit.review_every();
            self.review = Some(self.permit.clone().renewed().boxed());
        }
        let reviewed = match &mut self.review {
            Some(review) if now >= self.believed_until => Some(review.await),
            Some(review) => review.now_or_never(),
            None => None,
        };
        let ended = reviewed.and_then(|reviewed| self.reviewed(reviewed));
        ended.or_else(|| self.proven_until(now).is_none().then_some(WatchEnd::Unproven))
    }

    fn reviewed(&mut self, believed_until: Option<Instant>) -> Option<WatchEnd> {
        self.review = None;
        match believed_until {
            Some(until) => {
                self.believed_until = until;
                self.review_at = review_at(self.review_at, until, Instant::now());
                None
            }
            None => Some(WatchEnd::Forbidden),
        }
    }

    fn proven_until(&self, now: Instant) -> Option<Instant> {
        let proven = proven_until(&self.subscription.published(), self.max_staleness);
        proven.filter(|until| *until >= now)
    }

    /// Waits until something may have changed: the replica, the time, or the caller's permissions.
    async fn wait(&mut self, now: Instant) {
        let proven = self.proven_until(now).map(|until| until + JUST_AFTER);
        let times = [self.bookmark_at, Some(self.review_at), proven];
        let until = times.into_iter().flatten().fold(self.deadline, Instant::min);
        tokio::select! {
            // The end is polled first: a stream of events cannot delay it.
            biased;
            reviewed = maybe(&mut self.review) => self.ending = self.reviewed(reviewed),
            () = self.closing.as_mut() => self.ending = Some(WatchEnd::Shutdown),
            () = self.subscription.changed() => {}
            () = self.wake_timer.until(until) => {}
        }
    }

    async fn linger(&mut self, end: WatchEnd) {
        if self.silent && end != WatchEnd::Timeout {
            sleep_until(self.opened + SILENT_MIN).await;
        }
    }
}

/// Returns the time of the next review: the planned one, or the expiry of the last one, as for a
/// token that ends soon.
fn review_at(planned: Instant, believed_until: Instant, now: Instant) -> Instant {
    planned.min(believed_until.max(now + REVIEW_GAP))
}

/// A margin: a proof that ends at an instant is no longer valid after it.
const JUST_AFTER: Duration = Duration::from_millis(1);

impl Drop for Watching {
    fn drop(&mut self) {
        let unread = self.is_stalled.load(Ordering::Relaxed).then_some(WatchEnd::Slow);
        self.metrics.watch_ended(self.ending.or(unread).unwrap_or(WatchEnd::Client));
    }
}

/// Returns the result of a future, if there is one; waits for ever otherwise.
async fn maybe<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(future) => Pin::new(future).await,
        None => std::future::pending().await,
    }
}

fn event_type(seen: Change) -> WatchEventType {
    match seen {
        Change::Added => WatchEventType::Added,
        Change::Modified => WatchEventType::Modified,
        Change::Deleted => WatchEventType::Deleted,
    }
}

fn end_of(lost: Lost) -> WatchEnd {
    match lost {
        Lost::Behind => WatchEnd::Slow,
        Lost::Reset | Lost::Invalid => WatchEnd::Replica,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_costs_less_than_the_connection_it_is_on() {
        assert!(size_of::<Watching>() < 1024, "{}", size_of::<Watching>());
    }
}
