//! The session of each request: the one of Listless's own user, or the one of a token's bearer.
//!
//! Bounded: unused sessions are dropped, the least recently used first. The demands of a dropped
//! session are kept, coarser and stricter, in one shared session. Every new session inherits it,
//! because any new caller may be one whose session was dropped. A returning caller is at worst sent
//! to the apiserver once more, and never sees older state than before.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::time::Instant;

use crate::{
    hash::HashMap,
    metrics::Metrics,
    proxy::{
        authorize::Asker,
        forward::Sender,
        identify::{BearerId, Caller},
        session::Session,
    },
};

/// A session that requests and their streaming responses share.
#[derive(Clone, Debug, Default)]
pub struct SharedSession(Arc<Mutex<Session>>);

/// A request's caller and its session.
pub(super) struct RequestContext {
    pub(super) asker: Asker,
    pub(super) peer: IpAddr,
    pub(super) session: SharedSession,
}

/// The responses that clients may have seen before this process served any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// None that create a demand.
    None,
    /// Responses of another process that ended without a handover, such as a crashed worker.
    Unknown,
}

/// The sessions of one process.
pub struct Sessions {
    own: SharedSession,
    /// The session of unauthenticated callers, whose responses teach nothing: always empty.
    nobodys: SharedSession,
    bearers: Mutex<Bearers>,
    sessions_max: usize,
    metrics: Metrics,
}

#[derive(Default)]
struct Bearers {
    held: HashMap<BearerId, Held>,
    /// The demands of dropped sessions; every new session shares them.
    past: Arc<Session>,
    /// The count of uses, which orders them.
    clock: u64,
}

struct Held {
    session: SharedSession,
    /// The time of its last use, in uses of all.
    used: u64,
    /// Its own uses.
    uses: u64,
}

/// The limit of bearers' sessions that are not in use. A session in use is never dropped, because
/// the facts of its responses would be lost. There are never more of them than requests in flight.
pub const SESSIONS_MAX: usize = 4096;

/// The limit of expectations and barriers in one bearer's session; it keeps many tokens from
/// filling the memory. Above it, they become floors and barriers of whole resources, and then of
/// all resources.
const BARRIERS_MAX: usize = 256;

/// The limit of its bytes, likewise.
const SESSION_BYTES_MAX: usize = 256 * 1024;

/// The number of uses of a session between two checks of these limits.
const USES_PER_LOOK: u64 = 16;

/// The part of the sessions that is dropped at once when there is no room.
const PART_DROPPED: usize = 8;

// === impl SharedSession ===

impl SharedSession {
    /// Shares a session.
    pub fn new(session: Session) -> Self {
        Self(Arc::new(Mutex::new(session)))
    }

    /// Reports whether there is another reference to it.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Locks the session; held for a few instructions, never across an await.
    pub fn lock(&self) -> MutexGuard<'_, Session> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl RequestContext ===

impl RequestContext {
    pub(super) fn caller(&self) -> Caller {
        self.asker.caller()
    }

    pub(super) fn sender(&self) -> Sender {
        Sender { caller: self.caller(), peer: self.peer }
    }
}

// === impl Sessions ===

impl Sessions {
    /// Creates an empty set that keeps at most `sessions_max` unused sessions of bearers.
    pub fn new(past: Past, sessions_max: usize, metrics: Metrics) -> Self {
        let past = Arc::new(match past {
            Past::None => Session::default(),
            Past::Unknown => Session::of_unknown_past(),
        });
        let own = SharedSession::new(past.heir());
        let bearers = Mutex::new(Bearers { past, ..Bearers::default() });
        Self { own, nobodys: SharedSession::default(), bearers, sessions_max, metrics }
    }

    /// Returns the session of this caller's requests.
    pub fn of(&self, caller: Caller, now: Instant) -> SharedSession {
        match caller {
            Caller::Own => self.own.clone(),
            Caller::Bearer(id) => self.of_bearer(id, now),
            Caller::Other(_) => self.nobodys.clone(),
        }
    }

    fn of_bearer(&self, id: BearerId, now: Instant) -> SharedSession {
        let mut bearers = self.lock();
        bearers.clock += 1;
        let used = bearers.clock;
        if let Some(held) = bearers.held.get_mut(&id) {
            (held.used, held.uses) = (used, held.uses + 1);
            let (session, uses) = (held.session.clone(), held.uses);
            drop(bearers);
            if uses.is_multiple_of(USES_PER_LOOK) {
                bound(&session, now);
            }
            return session;
        }
        if bearers.held.len() >= self.sessions_max {
            bearers.make_room(self.sessions_max.div_ceil(PART_DROPPED), now);
        }
        let session = SharedSession::new(bearers.past.heir());
        bearers.held.insert(id, Held { session: session.clone(), used, uses: 0 });
        self.metrics.sessions(bearers.held.len());
        session
    }

    fn lock(&self) -> MutexGuard<'_, Bearers> {
        self.bearers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Bearers ===

impl Bearers {
    /// Drops `count` sessions that are not in use. Sessions without facts go first, such as those
    /// of refused tokens, then the least recently used.
    fn make_room(&mut self, count: usize, now: Instant) {
        let idle = self.held.iter().filter(|(_, held)| !held.session.is_shared());
        let mut idle: Vec<_> =
            idle.map(|(id, held)| (held.session.lock().has_lived(), held.used, *id)).collect();
        idle.sort_unstable_by_key(|(has_lived, used, _)| (*has_lived, *used));
        for (has_lived, _, id) in idle.into_iter().take(count) {
            let dropped = self.held.remove(&id);
            if let (true, Some(dropped)) = (has_lived, dropped) {
                dropped.session.lock().bequeath(Arc::make_mut(&mut self.past), now);
            }
        }
    }
}

fn bound(session: &SharedSession, now: Instant) {
    let mut session = session.lock();
    if session.barriers() > BARRIERS_MAX || session.bytes() > SESSION_BYTES_MAX {
        session.coarsen(SESSION_BYTES_MAX, now);
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};

    use super::*;
    use crate::{
        api::{
            GroupResource, GroupVersionResource, ObjectKey, Scope, query::Query,
            version::ResourceVersion,
        },
        cache::testing::pods,
        proxy::{
            identify::{Identify, TokenHasher, Unauthenticated},
            session::{Expectation, Floor, Held, Source, Verdict},
        },
    };

    fn bearer(number: usize) -> Caller {
        let value = HeaderValue::from_str(&format!("Bearer t{number}")).expect("a header");
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        Identify::Bearers(TokenHasher::new(&[1; 32])).caller(&headers)
    }

    fn resource() -> GroupResource {
        GroupResource::new("", "pods")
    }

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::parse(&number.to_string()).expect("a version")
    }

    /// Returns the verdict of a session about pods at version 10.
    fn verdict(session: &SharedSession) -> Verdict {
        let query = Query::all(GroupVersionResource::new("", "v1", "pods"), Scope::All);
        judge(&session.lock(), &query)
    }

    fn judge(session: &Session, query: &Query) -> Verdict {
        let held = Held { query, snapshot: &pods(10, &[]) };
        session.judge(query, held, Instant::now())
    }

    fn show(session: &SharedSession, number: u64) {
        session.lock().shown(&resource(), &version(number), Source::Cache, Instant::now());
    }

    fn sessions(max: usize) -> Sessions {
        Sessions::new(Past::None, max, Metrics::new())
    }

    #[test]
    fn every_bearer_keeps_its_own_session() {
        let sessions = sessions(8);
        let now = Instant::now();
        show(&sessions.of(bearer(1), now), 20);
        assert!(matches!(verdict(&sessions.of(bearer(1), now)), Verdict::Behind(..)));
        let other_caller = Caller::Other(Unauthenticated::OtherCredential);
        for other in [bearer(2), Caller::Own, other_caller] {
            assert_eq!(verdict(&sessions.of(other, now)), Verdict::Satisfied, "{other:?}");
        }
    }

    #[test]
    fn the_caller_of_a_dropped_session_never_sees_older_state() {
        let sessions = sessions(8);
        let now = Instant::now();
        show(&sessions.of(bearer(0), now), 20);
        for number in 1..=8 {
            let other = sessions.of(bearer(number), now);
            show(&other, 5);
        }
        assert!(!sessions.lock().held.keys().any(|id| Caller::Bearer(*id) == bearer(0)));
        let back = sessions.of(bearer(0), now);
        assert!(matches!(verdict(&back), Verdict::Behind(floor, _) if floor == version(20)));
    }

    #[test]
    fn a_dropped_write_without_a_version_bars_until_a_consistent_read() {
        let sessions = sessions(1);
        let now = Instant::now();
        let key = ObjectKey::new(Some("shop"), "a");
        let writer = sessions.of(bearer(0), now);
        writer.lock().expect(&resource(), key, Expectation::Uncertain, now);
        drop(writer);
        drop(sessions.of(bearer(1), now));
        let back = sessions.of(bearer(0), now);
        assert_eq!(verdict(&back), Verdict::Barred);
        back.lock().proven(&resource(), Instant::now(), &version(10));
        assert_eq!(verdict(&back), Verdict::Satisfied);
    }

    #[test]
    fn sessions_in_use_are_kept_and_unused_ones_are_bounded() {
        let sessions = sessions(16);
        let now = Instant::now();
        let watching = sessions.of(bearer(0), now);
        for number in 1..200 {
            show(&sessions.of(bearer(number), now), 5);
            assert!(sessions.lock().held.len() <= 16);
        }
        show(&watching, 20);
        assert!(matches!(verdict(&sessions.of(bearer(0), now)), Verdict::Behind(..)));
    }

    #[test]
    fn refused_tokens_do_not_evict_the_sessions_of_callers() {
        let sessions = sessions(8);
        let now = Instant::now();
        show(&sessions.of(bearer(0), now), 20);
        for number in 1..1000 {
            drop(sessions.of(bearer(number), now));
        }
        assert!(matches!(verdict(&sessions.of(bearer(0), now)), Verdict::Behind(..)));
        assert_eq!(verdict(&sessions.of(bearer(2000), now)), Verdict::Satisfied);
    }

    #[test]
    fn aborted_writes_of_refused_tokens_neither_evict_nor_bar_nor_fill() {
        let sessions = sessions(8);
        let now = Instant::now();
        show(&sessions.of(bearer(0), now), 20);
        let long = "x".repeat(400);
        for number in 1..3000 {
            let session = sessions.of(bearer(number), now);
            for resource in 0..20 {
                let resource = GroupResource::new(&long, &format!("r{number}-{resource}"));
                let name = "y".repeat(60_000);
                let key = (number % 2 == 0).then(|| ObjectKey::new(Some(&name), &name));
                let of = (key, Scope::Namespace(name.into()));
                session.lock().lost_write(&resource, of, now);
            }
            assert!(session.lock().bytes() < 1_000, "{} bytes", session.lock().bytes());
        }
        assert!(matches!(verdict(&sessions.of(bearer(0), now)), Verdict::Behind(..)));
        assert_eq!(verdict(&sessions.of(bearer(5000), now)), Verdict::Satisfied);
    }

    #[test]
    fn a_first_write_that_is_aborted_bars_until_a_consistent_read() {
        let sessions = sessions(8);
        let now = Instant::now();
        let session = sessions.of(bearer(0), now);
        let of = || (Some(ObjectKey::new(Some("shop"), "a")), Scope::Namespace("shop".into()));
        session.lock().lost_write(&GroupResource::new("", "secrets"), of(), now);
        assert_eq!(verdict(&session), Verdict::Barred, "no name is kept");
        let pods = Query::all(GroupVersionResource::new("", "v1", "pods"), Scope::All);
        assert_eq!(session.lock().floor(&pods), Floor::Consistent);
        session.lock().shown(&resource(), &version(5), Source::Cache, now);
        assert_eq!(verdict(&session), Verdict::Barred, "a read that is not consistent");
        session.lock().proven(&resource(), Instant::now(), &version(10));
        assert_eq!(verdict(&session), Verdict::Satisfied);
        session.lock().lost_write(&resource(), of(), Instant::now());
        assert_eq!(verdict(&session), Verdict::Barred, "it is accepted by now");
    }

    #[test]
    fn no_session_grows_unseen_beside_the_uses_of_others() {
        let sessions = sessions(8);
        let now = Instant::now();
        for number in 0..2000_u64 {
            let session = sessions.of(bearer(0), now);
            let key = ObjectKey::new(Some("shop"), &format!("o{number}"));
            let resource = GroupResource::new("", &format!("r{}", number % 20));
            let seen = Expectation::AtLeast(version(number + 20), None);
            session.lock().expect(&resource, key, seen, now);
            assert!(session.lock().barriers() <= BARRIERS_MAX + USES_PER_LOOK as usize);
            // Whatever others do, its own uses count.
            (0..number % 16).for_each(|_| drop(sessions.of(bearer(1), now)));
        }
    }

    #[test]
    fn one_caller_cannot_fill_the_memory_and_still_sees_what_it_wrote() {
        let sessions = sessions(8);
        let now = Instant::now();
        for number in 0..2000_u64 {
            let session = sessions.of(bearer(0), now);
            let resource = GroupResource::new("", &format!("r{}", number % 20));
            let key = ObjectKey::new(Some("shop"), &format!("o{number}"));
            let seen = Expectation::AtLeast(version(number + 20), None);
            session.lock().expect(&resource, key, seen, now);
            assert!(session.lock().barriers() <= BARRIERS_MAX + USES_PER_LOOK as usize);
        }
        let query = Query::all(GroupVersionResource::new("", "v1", "r7"), Scope::All);
        let session = sessions.of(bearer(0), now);
        let verdict = judge(&session.lock(), &query);
        assert!(matches!(verdict, Verdict::Behind(floor, _) if floor >= version(1000)));
    }

    #[test]
    fn new_sessions_share_what_they_inherit() {
        let sessions = sessions(8);
        let now = Instant::now();
        let query = |number| {
            let resource = GroupVersionResource::new("", "v1", &format!("r{number}"));
            Query::all(resource, Scope::All)
        };
        for number in 0..100 {
            let session = sessions.of(bearer(number), now);
            let resource = query(number).resource.group_resource();
            session.lock().shown(&resource, &version(20), Source::Cache, now);
        }
        let heir = sessions.of(bearer(1000), now);
        assert!(matches!(judge(&heir.lock(), &query(0)), Verdict::Behind(..)));
        assert_eq!(heir.lock().bytes(), 0);
        let aborted = (None, Scope::All);
        heir.lock().lost_write(&query(0).resource.group_resource(), aborted, now);
        assert_eq!(judge(&heir.lock(), &query(0)), Verdict::Barred);
        assert_eq!(heir.lock().bytes(), 0);
        // It copies only what it learns about.
        heir.lock().shown(&query(1).resource.group_resource(), &version(20), Source::Cache, now);
        assert!((1..2_000).contains(&heir.lock().bytes()), "{} bytes", heir.lock().bytes());
    }

    #[test]
    fn aborted_writes_to_any_resources_do_not_fill_a_session() {
        let sessions = sessions(8);
        let now = Instant::now();
        show(&sessions.of(bearer(0), now), 20);
        for number in 0..4000 {
            let session = sessions.of(bearer(0), now);
            let resource = GroupResource::new(&"x".repeat(500), &format!("r{number}"));
            let of = (Some(ObjectKey::new(Some("shop"), "a")), Scope::Namespace("shop".into()));
            session.lock().lost_write(&resource, of, now);
            let bytes = session.lock().bytes();
            assert!(bytes < SESSION_BYTES_MAX + 32 * 1024, "{bytes} bytes after {number}");
        }
        let verdict = verdict(&sessions.of(bearer(0), now));
        assert!(matches!(verdict, Verdict::Behind(floor, _) if floor == version(20)));
    }
}
