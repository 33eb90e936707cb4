//! Evidence from other replicas that an older replica shows as much as a session has seen.
//!
//! A session returns the marks that keep a replica from answering. The events and objects of
//! replicas that reached those versions show whether a relevant change happened. No request is sent
//! upstream.

use crate::{
    api::{GroupResource, query::Query, version::ResourceVersion},
    cache::{Cache, Lookup, View, object::Object, selection::selects, store::Snapshot},
    mutants::{Mutant, is_on},
    proxy::{
        SharedSession,
        session::{Doubt, Held, Session},
    },
};

/// Clears the session's doubts about the found replica, as far as other replicas can.
pub(super) fn weigh(cache: &Cache, session: &SharedSession, query: &Query, lookup: &Lookup) {
    let Lookup::Found(view) = lookup else { return };
    let Some(held) = held(view) else { return };
    let resource = query.resource.group_resource();
    let (doubts, unseen, crowded) = {
        let session = session.lock();
        (session.doubts(query, held), session.unseen(query, held), session.is_crowded(&resource))
    };
    if doubts.is_empty() && unseen.is_empty() && !crowded {
        return;
    }
    let views = cache.views(&resource);
    let cleared: Vec<_> = doubts
        .into_iter()
        .filter_map(|doubt| Some((last_change(&doubt, held, &views)?, doubt)))
        .collect();
    let mut session = session.lock();
    for (from, doubt) in cleared {
        session.clear(&doubt, held.query, from);
    }
    for key in unseen {
        let objects = views.iter().filter_map(|view| view.snapshot.as_ref()?.object(&key));
        if let Some(object) = objects.max_by_key(|object| object.version().clone())
            && !selects(query, object)
        {
            session.exclude(query, &key, object.version());
        }
    }
    if crowded {
        prune(&mut session, &resource, &views);
    }
}

/// Removes from the session everything that all replicas of the resource, passed as `views`, have
/// reached.
pub(super) fn prune(session: &mut Session, resource: &GroupResource, views: &[View]) {
    let held: Vec<_> = views.iter().map(held).collect();
    session.prune(resource, &held);
}

/// Returns the query and the objects of a replica that has some.
pub(super) fn held(view: &View) -> Option<Held<'_>> {
    let snapshot = view.snapshot.as_deref()?;
    Some(Held { query: view.replica.query(), snapshot })
}

/// Returns the version at which a replica shows everything that a wider replica has shown of its
/// query. The second version is the one up to which this is known. Returns `None` if no other
/// replica is ahead and has the events.
pub(super) fn caught_up(
    view: &View,
    snapshot: &Snapshot,
    views: &[View],
) -> Option<(ResourceVersion, ResourceVersion)> {
    let (query, after) = (view.replica.query(), snapshot.version());
    let wider = views
        .iter()
        .filter(|other| other.replica.query() != query && other.replica.query().covers(query));
    let known = wider.filter_map(|other| {
        let history = other.replica.history();
        let until = history.latest().filter(|latest| *latest > after)?;
        let last = history.last_concerning(query, after, until).ok()?;
        Some((last.unwrap_or(after).clone(), until.clone()))
    });
    known.max_by(|(_, one), (_, other)| one.cmp(other))
}

/// Returns the version of the last change that concerns the replica among those that a doubt is
/// about, if there was one. Returns `None` if no other replica has the evidence.
fn last_change(doubt: &Doubt, held: Held<'_>, views: &[View]) -> Option<Option<ResourceVersion>> {
    if is_on(Mutant::DoubtsWavedThrough) {
        return Some(None);
    }
    let covers = |view: &&View| {
        let query = view.replica.query();
        query != held.query
            && (query.covers(held.query) || doubt.of.as_ref().is_some_and(|of| query.covers(of)))
    };
    let mut witnesses = views.iter().filter(covers);
    let by_events = |view: &View| {
        let history = view.replica.history();
        let last = history.last_concerning(held.query, &doubt.after, &doubt.until).ok()?;
        Some(last.cloned())
    };
    witnesses.clone().find_map(by_events).or_else(|| {
        witnesses.find_map(|view| {
            let (query, snapshot) = (view.replica.query(), view.snapshot.as_deref()?);
            let reached = *snapshot.version() >= doubt.until;
            reached.then(|| newest_difference(Held { query, snapshot }, held))?
        })
    })
}

/// Returns the version of the replica's newest object that another replica shows in a later state,
/// if there is one. Returns `None` if an object is missing there.
fn newest_difference(later: Held<'_>, held: Held<'_>) -> Option<Option<ResourceVersion>> {
    let shared = held.snapshot.select(later.query);
    if shared.iter().any(|object| later.snapshot.object(object.key()).is_none()) {
        return None;
    }
    let selected = later.snapshot.select(held.query);
    let versions = selected.iter().map(Object::version);
    Some(versions.filter(|version| *version > held.snapshot.version()).max().cloned())
}
