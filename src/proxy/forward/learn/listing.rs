//! A forwarded list, compared with the replicas.
//!
//! If a replica has the same content, the session expects nothing of it, whatever the versions.
//! Each different object becomes an expectation. A list that cannot be parsed leaves a mark of its
//! version, or a barrier if the version is unknown.

use std::{collections::HashSet, hash::BuildHasher, sync::Arc};

use tokio::time::Instant;

use super::{SessionExchange, Subject};
use crate::{
    api::{
        ObjectKey,
        continue_token::ContinueToken,
        learn::{Learned, ListedObject},
        query::Query,
        version::ResourceVersion,
    },
    cache::{View, digest::Digest, history::Change, store::Snapshot},
    hash::RandomState,
    metrics::Limit,
    proxy::{
        evidence,
        session::{Expectation, List, Paging, Session},
    },
};

/// A list that streams to the session's owner.
pub(super) struct Listing {
    replicas: Vec<Compared>,
    hasher: RandomState,
    /// The hashes of the keys.
    seen: HashSet<u64>,
    digest: Digest,
    /// The items that some replica does not show yet, or that have an expectation.
    differing: Vec<ListedObject>,
    /// The memory held, estimated.
    bytes: usize,
    first: Option<ObjectKey>,
    last: Option<ObjectKey>,
}

/// A replica in its state at the start of the list.
struct Compared {
    view: View,
    snapshot: Arc<Snapshot>,
    /// The version from which it shows everything that another replica has shown. The second
    /// version is the one up to which this is known.
    caught_up: Option<(ResourceVersion, ResourceVersion)>,
}

/// The memory limit of one list while it streams; a larger list counts as unread.
const LISTING_BYTES_MAX: usize = 8 * 1024 * 1024;

// === impl Listing ===

impl Listing {
    /// Creates an empty listing; `views` are all replicas of the resource.
    pub(super) fn new(views: Vec<View>) -> Self {
        let compared = |view: &View| {
            let snapshot = view.snapshot.clone()?;
            let caught_up = evidence::caught_up(view, &snapshot, &views);
            Some(Compared { view: view.clone(), snapshot, caught_up })
        };
        Self {
            replicas: views.iter().filter_map(compared).collect(),
            hasher: RandomState::default(),
            seen: HashSet::new(),
            digest: Digest::default(),
            differing: Vec::new(),
            bytes: 0,
            first: None,
            last: None,
        }
    }

    pub(super) fn add(&mut self, item: ListedObject, exchange: &SessionExchange) {
        if self.is_too_large() {
            return;
        }
        self.bytes += size_of::<u64>() * 2;
        self.seen.insert(self.hasher.hash_one(item.key.as_str()));
        self.digest.add(&item.key, &item.version);
        self.first.get_or_insert_with(|| item.key.clone());
        self.last = Some(item.key.clone());
        let lacks = self.replicas.iter().any(|replica| replica.lacks(&item));
        if lacks || exchange.session.lock().expects(&exchange.resource, &item.key) {
            let labels = item.labels.iter().map(|(key, value)| key.len() + value.len());
            self.bytes += size_of::<ListedObject>() + labels.sum::<usize>();
            self.differing.push(item);
        }
    }

    /// Returns a fingerprint of the objects and their versions, for comparison with the next list
    /// of the same query; `None` if the list was too large.
    pub(super) fn content(&self) -> Option<u32> {
        (!self.is_too_large()).then(|| self.digest.folded())
    }

    fn is_too_large(&self) -> bool {
        self.bytes > LISTING_BYTES_MAX
    }

    fn has(&self, key: &ObjectKey) -> bool {
        self.seen.contains(&self.hasher.hash_one(key.as_str()))
    }

    /// Returns objects that a replica shows and the newer list does not: they left its selection.
    fn left(&self, version: &ResourceVersion, page: &Range) -> Vec<(ObjectKey, ResourceVersion)> {
        let older = self.replicas.iter().filter(|replica| replica.snapshot.version() < version);
        let mut left = Vec::new();
        for replica in older {
            let selection = replica.snapshot.select(&page.query);
            let missing = selection.iter().filter(|object| page.contains(object.key()));
            let missing = missing.filter(|object| !self.has(object.key()));
            left.extend(missing.map(|object| (object.key().clone(), object.version().clone())));
        }
        left
    }

    /// Returns objects that a replica has shown since the list began, and that the newer list lacks:
    /// they came and left. `None` if the events of a replica are no longer held, or if its objects
    /// have other fields than those of the list: they are of the other API group of events.
    fn passed(
        &self,
        version: &ResourceVersion,
        query: &Query,
    ) -> Option<Vec<(ObjectKey, ResourceVersion)>> {
        let older = self.replicas.iter().filter(|replica| replica.snapshot.version() < version);
        let mut passed = Vec::new();
        for replica in older {
            if !query.can_select_among(&replica.view.replica.query().resource) {
                return None;
            }
            let history = replica.view.replica.history();
            let until = history.latest()?.min(version).clone();
            for event in history.within(replica.snapshot.version(), &until).ok()? {
                let seen = event.seen_through(query);
                let shown = seen.is_some_and(|change| change != Change::Deleted);
                if shown && !self.has(event.key()) {
                    passed.push((event.key().clone(), event.version.clone()));
                }
            }
        }
        Some(passed)
    }
}

// === impl Compared ===

impl Compared {
    /// Reports whether the replica may later show the item at an older version than the list did.
    fn lacks(&self, item: &ListedObject) -> bool {
        let is_known = self.caught_up.as_ref().is_some_and(|(_, until)| item.version <= *until);
        let scope = &self.view.replica.query().scope;
        let in_scope = scope.namespace().is_none_or(|name| Some(name) == item.key.namespace());
        let held = || self.snapshot.object(&item.key);
        !is_known
            && in_scope
            && *self.snapshot.version() < item.version
            && held().is_none_or(|held| *held.version() < item.version)
    }

    /// Returns the version from which the replica shows as much, apart from the expectations.
    fn shows_from(&self) -> ResourceVersion {
        let caught_up = self.caught_up.as_ref().map(|(from, _)| from);
        caught_up.unwrap_or_else(|| self.snapshot.version()).clone()
    }
}

/// The range of a list that one page covers: keys after the previous page's last, up to its own
/// last.
struct Range {
    query: Query,
    after: Option<ObjectKey>,
    until: Option<ObjectKey>,
}

// === impl Range ===

impl Range {
    fn contains(&self, key: &ObjectKey) -> bool {
        self.after.as_ref().is_none_or(|after| key > after)
            && self.until.as_ref().is_none_or(|until| key <= until)
    }
}

// === impl SessionExchange ===

impl SessionExchange {
    /// Returns the parser of a list, if the list's selection is known.
    pub(super) fn listing(&self) -> Option<Listing> {
        let reads_list = matches!(self.subject, Subject::Read { .. }) && self.key.is_none();
        let cache = self.cache.as_ref().filter(|_| reads_list && self.query.is_some())?;
        Some(Listing::new(cache.views(&self.resource)))
    }

    /// Learns from the complete list.
    pub(super) fn listed(&self, listing: Listing, learned: Learned) {
        let Learned::List { version, next, whole } = learned else { return self.unread(None) };
        self.learn_token(&version, next.as_deref());
        if !whole || listing.is_too_large() {
            return self.unread(Some(version));
        }
        let (Some(query), Subject::Read { consistent, source }) = (&self.query, self.subject)
        else {
            return self.unread(Some(version));
        };
        let Some(passed) = listing.passed(&version, query) else {
            return self.unread(Some(version));
        };
        let now = Instant::now();
        let whole = self.token.is_none() && next.is_none();
        let mut session = self.session.lock();
        let paging = Paging {
            token: self.token.clone(),
            next: next.map(Into::into),
            last: listing.last.clone(),
            digest: listing.digest,
        };
        let Some(page) = session.page(query, &version, paging) else {
            // The page continues a list whose earlier pages were not seen.
            drop(session);
            return self.unread(Some(version));
        };
        let range = Range { query: query.clone(), after: page.after, until: page.until };
        let since = consistent.then_some(self.sent_at);
        let mut left = listing.left(&version, &range);
        left.extend(passed.into_iter().filter(|(key, _)| range.contains(key)));
        self.settle(&mut session, &listing, left, &range, (&version, since));
        let compared = listing.replicas.iter();
        let compared = compared.map(|it| (it.view.replica.query().clone(), it.shows_from()));
        session.listed(
            List {
                query: query.clone(),
                version: version.clone(),
                source,
                whole,
                digest: page.digest,
                compared: compared.collect(),
                consistent_since: since.filter(|_| page.digest.is_some()),
            },
            now,
        );
        if consistent {
            session.proven(&self.resource, self.sent_at, &version);
            self.went_upstream(&mut session);
        }
        self.tidy(&mut session);
    }

    /// Learns the form of the apiserver's tokens from the first page of a consistent list.
    fn learn_token(&self, version: &ResourceVersion, next: Option<&str>) {
        if let (Some(cache), Some(next)) = (&self.cache, next)
            && matches!(self.subject, Subject::Read { consistent: true, .. })
            && let Some(token) = ContinueToken::decode(next)
            && token.version == *version
        {
            cache.learn_token_form(&self.resource, token.form);
        }
    }

    /// Adds an expectation for each object that some replica does not show as the list did.
    fn settle(
        &self,
        session: &mut Session,
        listing: &Listing,
        mut left: Vec<(ObjectKey, ResourceVersion)>,
        page: &Range,
        (version, since): (&ResourceVersion, Option<Instant>),
    ) {
        let (now, selection) = (Instant::now(), Arc::new(page.query.clone()));
        for item in &listing.differing {
            let labels = Some(Arc::new(item.labels.iter().cloned().collect()));
            let expectation = Expectation::AtLeast(item.version.clone(), labels);
            session.list(&self.resource, item.key.clone(), expectation, &selection, (since, now));
        }
        let expected = session.settled_by(&page.query, version, since).into_iter();
        left.extend(expected.filter(|(key, _)| page.contains(key) && !listing.has(key)));
        for (key, than) in left {
            let version = version.clone();
            let left = Expectation::Left { selection: selection.clone(), than, version };
            session.leave(&self.resource, key, left, (since, now));
        }
    }

    /// Notes a list that was shown at least in part and was not parsed; its version may be known.
    pub(super) fn unread(&self, version: Option<ResourceVersion>) {
        let Subject::Read { consistent, source } = self.subject else { return };
        let now = Instant::now();
        let mut session = self.session.lock();
        self.went_upstream(&mut session);
        let Some(version) = version else {
            return session.swept(&self.resource, self.scope.clone(), now);
        };
        match &self.query {
            Some(query) => {
                session.listed(List::unread(query.clone(), version.clone(), source), now);
            }
            None => session.shown(&self.resource, &version, source, now),
        }
        if consistent {
            session.proven(&self.resource, self.sent_at, &version);
        }
    }

    /// Drops what the replicas have reached, and counts a limit that was reached.
    pub(super) fn tidy(&self, session: &mut Session) {
        if let Some(cache) = self.cache.as_ref().filter(|_| session.is_crowded(&self.resource)) {
            evidence::prune(session, &self.resource, &cache.views(&self.resource));
        }
        if let (true, Some(metrics)) = (session.has_overflowed(&self.resource), &self.metrics) {
            metrics.limit_reached(Limit::SessionMarks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{GroupVersionResource, Scope, selector::FieldSelector},
        cache::{
            history::{Bounds, Event, History},
            testing::{pods, view},
        },
    };

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::parse(&number.to_string()).expect("a version")
    }

    fn of_shop() -> Query {
        Query::all(GroupVersionResource::new("", "v1", "pods"), Scope::Namespace("shop".into()))
    }

    /// A list beside a replica that was empty at 45 when the list began.
    fn begun(events_max: usize) -> (Listing, View) {
        let now = Instant::now();
        let view = view(of_shop(), Some(pods(45, &[])), now);
        let (bytes_max, age_max) = (100_000, std::time::Duration::from_secs(60));
        let mut history = History::new(Bounds { events_max, bytes_max, age_max });
        history.reset(version(45));
        *view.replica.history() = history;
        (Listing::new(vec![view.clone()]), view)
    }

    fn happens(view: &View, at: u64, change: Change, name: &'static str) {
        let state = pods(at, &[("shop", name, "1", at, "web")]);
        let pod = state.object(&ObjectKey::new(Some("shop"), name)).expect("it").object();
        let before = (change != Change::Added).then(|| pod.clone());
        view.replica.history().push(Event::new(version(at), change, pod, before), Instant::now());
    }

    fn passed(listing: &Listing, at: u64) -> Option<Vec<(String, String)>> {
        let passed = listing.passed(&version(at), &of_shop())?.into_iter();
        Some(passed.map(|(key, at)| (key.as_str().to_owned(), at.as_str().to_owned())).collect())
    }

    #[test]
    fn an_object_that_came_while_a_list_streamed_and_is_not_in_it_has_left() {
        let (listing, view) = begun(10);
        assert_eq!(passed(&listing, 50), Some(Vec::new()));
        happens(&view, 46, Change::Added, "y");
        let y = ("shop/y".to_owned(), "46".to_owned());
        assert_eq!(passed(&listing, 50), Some(vec![y.clone()]));
        // The list is from before the object.
        assert_eq!(passed(&listing, 45), Some(Vec::new()));
        happens(&view, 47, Change::Deleted, "y");
        happens(&view, 51, Change::Added, "z");
        assert_eq!(passed(&listing, 50), Some(vec![y]));
    }

    #[test]
    fn a_list_counts_as_unread_where_the_events_beside_it_are_lost() {
        let (listing, view) = begun(1);
        happens(&view, 46, Change::Added, "y");
        happens(&view, 47, Change::Added, "z");
        assert_eq!(passed(&listing, 50), None);
        view.replica.history().close();
        assert_eq!(passed(&listing, 50), None);
    }

    #[test]
    fn a_list_by_fields_counts_as_unread_beside_a_replica_of_the_other_group_of_events() {
        let of = |group: &str, fields: &str| {
            let fields = FieldSelector::parse(fields).expect("a selector");
            let resource = GroupVersionResource::new(group, "v1", "events");
            Query { fields, ..Query::all(resource, Scope::All) }
        };
        let is_read = |replica: Query, list: &Query| {
            let view = view(replica, Some(pods(45, &[])), Instant::now());
            let (bytes_max, age_max) = (100_000, std::time::Duration::from_secs(60));
            let mut history = History::new(Bounds { events_max: 10, bytes_max, age_max });
            history.reset(version(45));
            *view.replica.history() = history;
            Listing::new(vec![view]).passed(&version(50), list).is_some()
        };
        let by_field = of("", "involvedObject.name=p");
        assert!(!is_read(of("events.k8s.io", ""), &by_field));
        assert!(is_read(of("events.k8s.io", ""), &of("", "")));
        assert!(is_read(of("", ""), &by_field));
    }
}
