//! WATCH: its start, its events and its end (S-WATCH-01..45).
//!
//! A watch has no queue: it reads the changes after its cursor from the history when it is polled,
//! and ends silently when the history has moved on (S-WATCH-24).

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::time::{Instant, sleep_until};

use super::{
    Core, Interruption,
    call::Call,
    kind::{ResourceType, WatchCache},
    object::{Object, ObjectContext, write_bookmark},
    options::{Filter, ListOptions, Purpose, WATCH_DURATION_MIN},
    read::{Moment, RevisionState, state},
    status::{StatusFailure, response},
    store::{Change, TooOld},
};
use crate::{
    body::{Body, BoxError},
    notify::{Follower, Publisher},
};

/// Answers a WATCH. Only option errors are HTTP errors (S-WATCH-13).
pub(super) async fn watch(core: &Arc<Core>, call: &Call) -> Result<Response<Body>, StatusFailure> {
    let options = call.list_options(core.settings.features, Purpose::Watch)?;
    let version = options.version(Purpose::Watch)?;
    let mut following = Following::new(core.clone(), call, &options);
    match following.start(&options, version).await {
        Ok(()) => {}
        Err(failure) => following.fail(&failure),
    }
    let mut answer = response(200, "application/json", Bytes::new());
    *answer.body_mut() = Body::wrap(StreamBody::new(stream::unfold(following, Following::next)));
    Ok(answer)
}

/// An open watch.
struct Following {
    core: Arc<Core>,
    kind: Arc<ResourceType>,
    version: String,
    filter: Filter,
    /// The version up to which every change was sent.
    cursor: u64,
    /// The version above which bookmarks are sent (S-WATCH-31).
    started_at: u64,
    bookmarks: Bookmarks,
    opened: Instant,
    deadline: Instant,
    pending: VecDeque<Bytes>,
    changed: Follower<()>,
    interruptions: Follower<Interruption>,
    /// The interruptions before the watch opened.
    seen: Interruption,
    ended: bool,
}

/// The time of the next bookmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bookmarks {
    Off,
    At(Instant),
}

type Item = Result<Frame<Bytes>, BoxError>;

// === impl Following ===

impl Following {
    fn new(core: Arc<Core>, call: &Call, options: &ListOptions) -> Self {
        let opened = Instant::now();
        let deadline = opened + core.watch_duration(options.timeout_seconds);
        let interruptions = core.interruptions.follow();
        let changed = {
            let store = core.store();
            let collection = store.collection(&call.kind.group_resource());
            collection.map_or_else(|| Publisher::new(()).follow(), super::store::Collection::follow)
        };
        let seen = interruptions.value();
        let mut following = Self {
            core,
            kind: call.kind.clone(),
            version: call.target.version.clone(),
            filter: options.filter.clone(),
            cursor: 0,
            started_at: 0,
            bookmarks: Bookmarks::Off,
            opened,
            deadline,
            pending: VecDeque::new(),
            changed,
            interruptions,
            seen,
            ended: false,
        };
        if options.bookmarks && following.kind.watch_cache == WatchCache::Cached {
            following.bookmarks = following.next_bookmark(opened);
        }
        following
    }

    /// Finds the start and queues the initial events (S-WATCH-01..07).
    async fn start(
        &mut self,
        options: &ListOptions,
        version: Option<u64>,
    ) -> Result<(), StatusFailure> {
        if options.timeout_seconds.is_some_and(|seconds| seconds < 0) {
            return Err(StatusFailure::internal("context deadline exceeded"));
        }
        let moment = match version {
            None => Moment::NotOlderThan(self.core.store().revision()),
            Some(0) => Moment::Any,
            Some(version) => Moment::NotOlderThan(version),
        };
        match (options.send_initial_events, version) {
            (Some(true), _) => {
                let state = state(&self.core, &self.kind, moment).await;
                // This also applies without a cache, although a list then has no delay.
                let state = state.map_err(StatusFailure::with_delay_of_too_large_version)?;
                self.send_initial(&state);
                if options.bookmarks {
                    self.push_bookmark(state.revision, Some(INITIAL_EVENTS_END));
                }
            }
            (None, None | Some(0)) => {
                let state = state(&self.core, &self.kind, Moment::Any).await?;
                self.send_initial(&state);
            }
            (_, Some(version)) if version > 0 => self.cursor = version,
            _ => self.cursor = state(&self.core, &self.kind, moment).await?.revision,
        }
        self.started_at = self.cursor;
        self.pull().map_err(|too_old| self.too_old(too_old))
    }

    fn send_initial(&mut self, state: &RevisionState) {
        for object in state.objects.values().filter(|object| self.filter.selects(object)) {
            let event = self.event("ADDED", object);
            self.pending.push_back(event);
        }
        self.cursor = state.revision;
    }

    fn fail(&mut self, failure: &StatusFailure) {
        let mut event = br#"{"type":"ERROR","object":"#.to_vec();
        failure.to_json().write(&mut event);
        event.extend_from_slice(b"}\n");
        self.pending.push_back(event.into());
        self.ended = true;
    }

    fn too_old(&self, too_old: TooOld) -> StatusFailure {
        StatusFailure::expired(match self.kind.watch_cache {
            WatchCache::Cached => {
                format!("too old resource version: {} ({})", self.cursor, too_old.kept_after)
            }
            WatchCache::Uncached => {
                "The resourceVersion for the provided watch is too old.".to_owned()
            }
        })
    }

    /// Returns the next chunk of the body.
    async fn next(mut self) -> Option<(Item, Self)> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some((Ok(Frame::data(event)), self));
            }
            if self.ended {
                return None;
            }
            match self.wait().await {
                Woken::Changed if self.pull().is_err() => return None,
                Woken::Changed => {}
                Woken::BookmarkDue => self.send_bookmark(),
                Woken::Ended => return None,
                Woken::Broken => {
                    self.ended = true;
                    let error: BoxError = "the simulated apiserver went away".into();
                    return Some((Err(error), self));
                }
            }
        }
    }

    async fn wait(&mut self) -> Woken {
        let bookmark_at = match self.bookmarks {
            Bookmarks::At(at) => at,
            Bookmarks::Off => self.deadline,
        };
        tokio::select! {
            biased;
            now = self.interruptions.until(|now| *now != self.seen) => match now.resets {
                resets if resets == self.seen.resets => Woken::Ended,
                _ => Woken::Broken,
            },
            () = self.changed.changed() => Woken::Changed,
            () = sleep_until(self.deadline) => Woken::Ended,
            () = sleep_until(bookmark_at) => Woken::BookmarkDue,
        }
    }

    /// Queues the events of every change after the cursor.
    fn pull(&mut self) -> Result<(), TooOld> {
        let changes: Vec<Arc<Change>> = {
            let store = self.core.store();
            let Some(collection) = store.collection(&self.kind.group_resource()) else {
                return Ok(());
            };
            let limit = match self.kind.watch_cache {
                WatchCache::Cached => store.cache_limit(),
                WatchCache::Uncached => u64::MAX,
            };
            let changes = collection.changes_after(self.cursor)?;
            changes.take_while(|change| change.revision <= limit).cloned().collect()
        };
        for change in changes {
            self.cursor = change.revision;
            if let Some(event) = self.transition(&change) {
                self.pending.push_back(event);
            }
        }
        Ok(())
    }

    /// Returns the event of a change as the selectors see it (S-WATCH-22).
    fn transition(&self, change: &Change) -> Option<Bytes> {
        let selected = |object: &Option<Arc<Object>>| {
            object.as_ref().filter(|object| self.filter.selects(object)).cloned()
        };
        match (selected(&change.before), selected(&change.after)) {
            (None, Some(after)) => Some(self.event("ADDED", &after)),
            (Some(_), Some(after)) => Some(self.event("MODIFIED", &after)),
            (Some(_), None) => {
                change.last_state(&self.kind).map(|last| self.event("DELETED", &last))
            }
            (None, None) => None,
        }
    }

    fn event(&self, event_type: &str, object: &Object) -> Bytes {
        let mut event = Vec::with_capacity(object.bytes() + FRAME_BYTES);
        event.extend_from_slice(format!(r#"{{"type":"{event_type}","object":"#).as_bytes());
        object.write(&self.kind, &self.version, ObjectContext::Alone, &mut event);
        event.extend_from_slice(b"}\n");
        event.into()
    }

    fn push_bookmark(&mut self, revision: u64, annotation: Option<&str>) {
        let mut event = br#"{"type":"BOOKMARK","object":"#.to_vec();
        write_bookmark(&self.kind, &self.version, revision, annotation, &mut event);
        event.extend_from_slice(b"}\n");
        self.pending.push_back(event.into());
    }

    /// Sends the cache's present version, unless the watch started there.
    fn send_bookmark(&mut self) {
        let now = Instant::now();
        if self.pull().is_err() {
            self.ended = true;
            return;
        }
        let resource = self.kind.group_resource();
        let known = self.core.store().cached_revision(&resource, now).max(self.cursor);
        if known > self.started_at {
            self.push_bookmark(known, None);
        }
        self.bookmarks = self.next_bookmark(now);
    }

    /// Returns the next time: about once a minute, and about two seconds before the end
    /// (S-WATCH-31).
    fn next_bookmark(&self, now: Instant) -> Bookmarks {
        let periodic = now + self.core.settings.bookmark_interval;
        let last = (self.opened + BOOKMARK_TICK)
            .max(self.deadline.checked_sub(BEFORE_THE_END).unwrap_or(self.opened));
        let due = if last > now { periodic.min(last) } else { periodic };
        if due < self.deadline { Bookmarks::At(due) } else { Bookmarks::Off }
    }
}

enum Woken {
    Changed,
    BookmarkDue,
    Ended,
    Broken,
}

const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
const FRAME_BYTES: usize = 40;
const BOOKMARK_TICK: Duration = Duration::from_secs(1);
const BEFORE_THE_END: Duration = Duration::from_secs(2);

// === impl Core ===

impl Core {
    /// Returns the duration of a watch (S-WATCH-12).
    fn watch_duration(&self, timeout_seconds: Option<i64>) -> Duration {
        match timeout_seconds {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()),
            _ => WATCH_DURATION_MIN.mul_f64(1.0 + self.random.fraction()),
        }
    }
}
