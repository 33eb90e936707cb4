//! Watches of the sources of discovery documents: CustomResourceDefinitions and APIServices.
//!
//! Three things are kept of them: the time of the last change, the generations of the definitions,
//! and the names of APIServices with their own servers. No watch shows changes of those servers'
//! documents. Each watch runs while it is used: both for documents, the one of definitions also for
//! replicas of custom resources. Invariant: up to [`WatchProof::proven_at`], no change is missing from
//! [`WatchProof::changed_at`].

use std::{
    collections::BTreeSet,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{HeaderValue, Request, StatusCode, header};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{
    events::{Event, Lines, Unreadable, read_list},
    generations::Generations,
    kinds::{DEFINITIONS, FOLLOWED, Role},
    remote::Remote,
};
use crate::{
    api::{
        GroupResource,
        pushback::{RETRY_AFTER_MAX, retry_after},
    },
    body::Body,
    cache::{Cache, reflector::Random},
    upstream::{self, AGENT, Client, Lane},
};

/// The state that the watches prove for all sources of documents.
#[derive(Clone, Debug)]
pub struct WatchProof {
    /// The time at which both watches last proved to be complete; `None` if one is not open.
    pub proven_at: Option<Instant>,
    /// The time of the last actual or possible change.
    pub changed_at: Instant,
    /// The names of APIServices with their own servers.
    pub remote: Arc<BTreeSet<Box<str>>>,
}

/// Both watches.
pub(super) struct Watches {
    client: Arc<dyn Client>,
    random: Random,
    stop: CancellationToken,
    cache: Cache,
    state: Mutex<WatchesState>,
}

struct WatchesState {
    disturbed_at: Instant,
    followed: [Followed; FOLLOWED.len()],
    remote: Remote,
    generations: Generations,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Following,
    Resting,
}

#[derive(Clone, Copy)]
struct Followed {
    used_at: Instant,
    activity: Activity,
    /// The time of the last proof; `None` while the watch is not open.
    proven_at: Option<Instant>,
    changed_at: Instant,
}

/// The end of a watch.
enum End {
    /// The planned end: nothing is missing if the next watch starts at this version.
    Planned(Box<str>),
    /// An early end: its server may have changed.
    Early,
}

/// The reason why a list or a watch failed.
#[derive(Debug, thiserror::Error)]
enum WatchFailure {
    #[error("the apiserver refused it with status {0}")]
    Refused(StatusCode),
    #[error("the apiserver returned status {0}")]
    Status(StatusCode, Duration),
    #[error("no response within {ANSWER_MAX:?}")]
    Silence,
    #[error("its resourceVersion is invalid")]
    Version,
    #[error(transparent)]
    Upstream(#[from] upstream::Error),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// The shortest planned length of a watch; the longest is twice as much.
const WATCH_LENGTH: Duration = Duration::from_secs(300);

/// The time by which a watch may end early and still count as planned.
const WATCH_EARLY: Duration = Duration::from_secs(5);

/// The longest silence of a watch. Bookmarks come each minute while anything happens in the
/// cluster. A watch that is silent for longer is reopened, which shows that the apiserver is
/// reachable.
const QUIET_MAX: Duration = Duration::from_secs(75);

/// The time for which a new watch proves nothing: earlier changes arrive at once when it opens.
const CATCHING_UP: Duration = Duration::from_secs(1);

/// The timeout of a list and of the head of a watch.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The shortest and longest backoff; it doubles after each failure.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The shortest wait after a refusal.
const REFUSED_REST: Duration = Duration::from_secs(600);

/// The time without requests for documents after which the watches end.
const IDLE_MAX: Duration = Duration::from_secs(600);

// === impl Watches ===

impl Watches {
    /// Creates watches that are not open yet and that end with `stop`. Replicas in `cache` are
    /// notified of changed definitions.
    pub(super) fn new(
        client: Arc<dyn Client>,
        random: Random,
        stop: CancellationToken,
        cache: Cache,
    ) -> Self {
        let now = Instant::now();
        let (activity, proven_at) = (Activity::Resting, None);
        let followed = Followed { used_at: now, activity, proven_at, changed_at: now };
        let state = WatchesState {
            disturbed_at: now,
            followed: [followed; FOLLOWED.len()],
            remote: Remote::default(),
            generations: Generations::default(),
        };
        Self { client, random, stop, cache, state: Mutex::new(state) }
    }

    /// Opens both watches if they are not open.
    pub(super) fn used_for_documents(self: &Arc<Self>, now: Instant) {
        let mut state = self.state();
        for which in 0..FOLLOWED.len() {
            self.used(&mut state, which, now);
        }
    }

    /// Returns the state that they prove.
    pub(super) fn watch_proof(&self) -> WatchProof {
        let state = self.state();
        let proven = state.followed.iter().map(|followed| followed.proven_at);
        let changed = state.followed.iter().map(|followed| followed.changed_at);
        WatchProof {
            // `None` is less than any time.
            proven_at: proven.min().flatten(),
            changed_at: changed.fold(state.disturbed_at, Instant::max),
            remote: state.remote.names(),
        }
    }

    /// Follows definitions while there are replicas of custom resources.
    pub(super) fn tend(self: &Arc<Self>, now: Instant) {
        if self.cache.holds_custom() {
            self.used(&mut self.state(), DEFINITIONS, now);
        }
    }

    fn used(self: &Arc<Self>, state: &mut WatchesState, which: usize, now: Instant) {
        let followed = &mut state.followed[which];
        followed.used_at = now;
        if mem::replace(&mut followed.activity, Activity::Following) == Activity::Resting {
            tokio::spawn(self.clone().run(which));
        }
    }

    /// Notes that something was changed, or is about to be.
    pub(super) fn disturbed(&self, now: Instant) {
        self.state().disturbed_at = now;
    }

    fn state(&self) -> MutexGuard<'_, WatchesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>, which: usize) {
        tokio::select! {
            () = self.follow(which) => {}
            () = self.stop.cancelled() => {}
            () = self.rested(which) => {}
        }
    }

    /// Waits until the watch is unused for long enough; then stops it under the lock that each use
    /// takes.
    async fn rested(&self, which: usize) {
        loop {
            let ends_at = {
                let followed = &mut self.state().followed[which];
                let ends_at = followed.used_at + IDLE_MAX;
                if Instant::now() >= ends_at {
                    followed.activity = Activity::Resting;
                    followed.proven_at = None;
                    return;
                }
                ends_at
            };
            sleep_until(ends_at).await;
        }
    }

    /// Follows one resource without end.
    async fn follow(&self, which: usize) {
        let mut rest = BACKOFF.0;
        loop {
            let failure = self.follow_once(which, &mut rest).await;
            self.state().followed[which].proven_at = None;
            let (pause, delay) = match &failure {
                Ok(()) => (Duration::ZERO, Duration::ZERO),
                Err(WatchFailure::Refused(_)) => (REFUSED_REST, Duration::ZERO),
                Err(failure) => {
                    let longer = (rest * 2).min(BACKOFF.1);
                    (mem::replace(&mut rest, longer), failure.retry_after())
                }
            };
            if let Err(error) = failure {
                tracing::debug!(path = FOLLOWED[which].path, %error, "the watch of a discovery source failed");
            }
            // After a watch that ended early, the backoff alone would be zero.
            sleep(pause.max(BACKOFF.0).mul_f64(0.5 + (self.random)()).max(delay)).await;
        }
    }

    /// Lists, then watches until something unplanned happens.
    async fn follow_once(&self, which: usize, rest: &mut Duration) -> Result<(), WatchFailure> {
        let kind = &FOLLOWED[which];
        let target = format!("{}{}", kind.path, kind.list);
        let listed = self.ask(&target, kind.accept_list, Lane::Short);
        let read = timeout(ANSWER_MAX, async { Ok(read_list(listed.await?).await?) });
        let (mut version, listed) = read.await.unwrap_or(Err(WatchFailure::Silence))?;
        let changed = {
            let mut state = self.state();
            state.followed[which].changed_at = Instant::now();
            match kind.role {
                Role::Definitions => state.generations.list(listed),
                Role::Services => {
                    let remote = listed.into_iter().filter(|definition| definition.is_remote);
                    state.remote.list(remote.map(|definition| definition.name).collect())
                }
            }
        };
        changed.iter().for_each(|name| self.changed(kind.role, name));
        loop {
            let end = self.watch(which, version, rest).await;
            self.state().followed[which].proven_at = None;
            match end? {
                End::Planned(seen) => version = seen,
                End::Early => return Ok(()),
            }
        }
    }

    async fn watch(
        &self,
        which: usize,
        mut version: Box<str>,
        rest: &mut Duration,
    ) -> Result<End, WatchFailure> {
        let kind = &FOLLOWED[which];
        let length = WATCH_LENGTH.mul_f64(1.0 + (self.random)());
        let target = format!(
            "{}?watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={}",
            kind.path,
            length.as_secs()
        );
        let answered = timeout(ANSWER_MAX, self.ask(&target, kind.accept_watch, Lane::Long)).await;
        let mut lines = Lines::of(answered.unwrap_or(Err(WatchFailure::Silence))?);
        let opened_at = Instant::now();
        let mut heard_at = None;
        *rest = BACKOFF.0;
        loop {
            self.state().followed[which].proven_at = heard_at;
            let deadline = heard_at.map_or(opened_at + CATCHING_UP, |at| at + QUIET_MAX);
            let next = match timeout_at(deadline, lines.next()).await {
                Ok(next) => next?,
                Err(_) if heard_at.is_some() => return Ok(End::Planned(version)),
                Err(_) => {
                    heard_at = Some(opened_at);
                    continue;
                }
            };
            let Some(event) = next else {
                let early = opened_at.elapsed() + WATCH_EARLY < length;
                return Ok(if early { End::Early } else { End::Planned(version) });
            };
            let now = Instant::now();
            match self.heard(which, event, now) {
                Some(seen) => version = seen,
                None => return Ok(End::Early),
            }
            heard_at = Some(now);
        }
    }

    /// Applies an event. Returns its version, or `None` if the watch cannot continue.
    fn heard(&self, which: usize, event: Event, now: Instant) -> Option<Box<str>> {
        let (is_deleted, definition) = match event {
            Event::Error => return None,
            Event::Bookmark(definition) => return Some(definition.version),
            Event::Changed(definition) => (false, definition),
            Event::Deleted(definition) => (true, definition),
        };
        let role = FOLLOWED[which].role;
        let is_changed = {
            let mut state = self.state();
            state.followed[which].changed_at = now;
            match role {
                Role::Definitions => state.generations.is_new(&definition) || is_deleted,
                Role::Services => {
                    state.remote.is_moved(&definition.name, definition.is_remote && !is_deleted)
                }
            }
        };
        if is_changed {
            self.changed(role, &definition.name);
        }
        Some(definition.version)
    }

    /// Notifies the replicas. The name of a definition holds its resource and group, that of an
    /// APIService its version and group.
    fn changed(&self, role: Role, name: &str) {
        let Some((first, group)) = name.split_once('.') else { return };
        match role {
            Role::Definitions => self.cache.redefine(&GroupResource::new(group, first)),
            Role::Services => self.cache.redirect(group, first),
        }
    }

    async fn ask(
        &self,
        target: &str,
        accept: &'static str,
        lane: Lane,
    ) -> Result<Body, WatchFailure> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = target.parse().map_err(|_| WatchFailure::Version)?;
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(AGENT));
        let response = self.client.send(request, lane).await?;
        match response.status() {
            StatusCode::OK => Ok(response.into_body()),
            code @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND) => {
                Err(WatchFailure::Refused(code))
            }
            code => {
                let delay = retry_after(response.headers()).unwrap_or_default();
                Err(WatchFailure::Status(code, delay.min(RETRY_AFTER_MAX)))
            }
        }
    }
}

// === impl WatchFailure ===

impl WatchFailure {
    /// Returns the retry delay that the apiserver asked for.
    fn retry_after(&self) -> Duration {
        match self {
            Self::Status(_, delay) => *delay,
            _ => Duration::ZERO,
        }
    }
}
