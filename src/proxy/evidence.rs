//! Evidence from other replicas that an older replica shows as much as a session has seen.
//!
//! A session returns the marks that keep a replica from answering. The events and objects of
//! replicas that reached those versions show whether a relevant change happened. No request is sent
//! upstream.
//!
//! A wider replica holds everything that the replica may hold. A sibling holds what the session was
//! shown. It does not know where an object was before it entered: the session then expects it. The
//! replica itself is evidence if it has exactly the objects of a list that was shown: it was listed
//! after the session's first reads, at an older version of an apiserver's cache.

use std::sync::Arc;

use tokio::time::Instant;

use crate::{
    api::{GroupResource, ObjectKey, query::Query, version::ResourceVersion},
    cache::{
        Cache, Lookup, View, digest::Digest, history::Change, object::Object, selection::selects,
        store::Snapshot,
    },
    proxy::{
        SharedSession,
        session::{Doubt, Doubts, Evidence, Expectation, Held, Session},
    },
};

/// The result of the examination of a doubt.
struct Finding {
    evidence: Evidence,
    /// The objects that entered the shown collection, and that the replica may hold in an older
    /// state.
    entered: Vec<Object>,
}

/// The limit of objects that one read compares with lists that were shown.
const COMPARED_MAX: usize = 20_000;

/// The limit of objects that a session expects from one doubt; above it the replica waits for the
/// version of the last.
const ENTERED_MAX: usize = 32;

/// Clears the session's doubts about the found replica, as far as other replicas can.
pub(super) fn weigh(cache: &Cache, session: &SharedSession, query: &Query, lookup: &Lookup) {
    let Lookup::Found(view) = lookup else { return };
    let Some(held) = held(view) else { return };
    let Some(doubts) = session.lock().doubts(query, held) else { return };
    let Doubts { marks, unseen, is_crowded } = doubts;
    if marks.is_empty() && unseen.is_empty() && !is_crowded {
        return;
    }
    let resource = query.resource.group_resource();
    let views = cache.views(&resource);
    let mut compared = 0;
    let cleared: Vec<_> = marks
        .into_iter()
        .filter_map(|doubt| {
            let finding = examine(&doubt, held, &views);
            let finding = finding.or_else(|| by_content(&doubt, held, &mut compared))?;
            Some((finding, doubt))
        })
        .collect();
    let mut session = session.lock();
    for (finding, doubt) in cleared {
        expect(&mut session, query, &doubt, &finding.entered);
        session.clear(&doubt, held.query, finding.evidence);
    }
    for key in unseen {
        if let Some(version) = unselected(query, &key, &views) {
            session.exclude(query, &key, &version);
        }
    }
    if is_crowded {
        prune(&mut session, &resource, &views);
    }
}

/// Returns the version of an object in the newest replica that holds it, if the query does not
/// select the object. Objects of the other API group of events have other fields.
fn unselected(query: &Query, key: &ObjectKey, views: &[View]) -> Option<ResourceVersion> {
    let alike = views.iter().filter(|view| view.replica.query().resource == query.resource);
    let objects = alike.filter_map(|view| view.snapshot.as_ref()?.object(key));
    let newest = objects.max_by_key(|object| object.version().clone())?;
    (!selects(query, &newest)).then(|| newest.version().clone())
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
        .filter(|other| !Arc::ptr_eq(&other.replica, &view.replica))
        .filter(|other| other.replica.query().covers(query));
    let known = wider.filter_map(|other| {
        let history = other.replica.history();
        let until = history.latest().filter(|latest| *latest > after)?;
        let last = history.last_concerning(query, after, until).ok()?;
        Some((last.unwrap_or(after).clone(), until.clone()))
    });
    known.max_by(|(_, one), (_, other)| one.cmp(other))
}

/// Expects objects that entered a shown collection, which the query does not select.
fn expect(session: &mut Session, query: &Query, doubt: &Doubt, entered: &[Object]) {
    let Some(of) = doubt.of.clone().filter(|_| !entered.is_empty()).map(Arc::new) else { return };
    let (resource, now) = (query.resource.group_resource(), Instant::now());
    for object in entered {
        let (key, version) = (object.key().clone(), object.version());
        let labels = object.labels().map(|(label, value)| (label.to_owned(), value.to_owned()));
        let labels = Some(Arc::new(labels.collect()));
        let item = Expectation::AtLeast(version.clone(), labels);
        session.list(&resource, key.clone(), item, &of, (None, now));
        session.exclude(query, &key, version);
    }
}

/// Examines a doubt. Returns `None` if no other replica has the evidence.
fn examine(doubt: &Doubt, held: Held<'_>, views: &[View]) -> Option<Finding> {
    let is_other = |view: &&View| {
        view.replica.query() != held.query || view.replica.form() != held.snapshot.form()
    };
    let others = || views.iter().filter(is_other);
    let mut wider = others().filter(|view| view.replica.query().covers(held.query));
    let by_events = wider.clone().find_map(|view| {
        let history = view.replica.history();
        let last = history.last_concerning(held.query, &doubt.after, &doubt.until).ok()?;
        Some(Finding { evidence: Evidence::From(last.cloned()), entered: Vec::new() })
    });
    by_events.or_else(|| others().find_map(|view| by_sibling(doubt, held, view))).or_else(|| {
        wider
            .any(|view| is_equal(doubt, held, view))
            .then_some(Finding { evidence: Evidence::Equal, entered: Vec::new() })
    })
}

/// Examines a doubt by the events of a replica that holds the shown collection.
fn by_sibling(doubt: &Doubt, held: Held<'_>, view: &View) -> Option<Finding> {
    let of = doubt.of.as_ref().filter(|of| view.replica.query().covers(of))?;
    if !held.query.can_select_among(&of.resource) {
        return None;
    }
    let history = view.replica.history();
    let (mut last, mut entered) = (None, Vec::new());
    for event in history.within(&doubt.after, &doubt.until).ok()? {
        if event.seen_through(held.query).is_some() {
            last = Some(event.version.clone());
        } else if event.seen_through(of) == Some(Change::Added)
            && held.query.scope.namespace().is_none_or(|own| event.key().namespace() == Some(own))
        {
            entered.push(event.object.clone());
        }
    }
    if entered.len() > ENTERED_MAX {
        last = last.max(entered.pop().map(|object| object.version().clone()));
        entered.clear();
    }
    Some(Finding { evidence: Evidence::From(last), entered })
}

/// Examines a doubt by the list that was shown, of which the replica may have every object at the same
/// version: nothing of it changed in between. `compared` counts the objects of all such comparisons.
fn by_content(doubt: &Doubt, held: Held<'_>, compared: &mut usize) -> Option<Finding> {
    let (of, digest) = (doubt.of.as_ref()?, doubt.digest?);
    if *compared > COMPARED_MAX || !held.query.covers(of) {
        return None;
    }
    let selection = held.snapshot.select(of);
    *compared += selection.len();
    let is_equal = Digest::of(selection.iter()) == digest;
    is_equal.then_some(Finding { evidence: Evidence::Equal, entered: Vec::new() })
}

/// Reports whether the replica's objects are those of the doubt's version, by the objects of a
/// wider replica. Objects may have come and gone in between.
fn is_equal(doubt: &Doubt, held: Held<'_>, view: &View) -> bool {
    let Some(later) = view.snapshot.as_deref() else { return false };
    let (query, reached) = (held.query, later.version());
    let is_of_its_version = *reached == doubt.until
        || (*reached > doubt.until && {
            let history = view.replica.history();
            history.last_concerning(query, &doubt.until, reached) == Ok(None)
        });
    let (held, later) = (held.snapshot.select(query), later.select(query));
    is_of_its_version
        && held.len() == later.len()
        && held
            .iter()
            .zip(later.iter())
            .all(|(held, later)| held.key() == later.key() && held.version() == later.version())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        api::{
            GroupVersionResource, Scope,
            form::Form,
            selector::{FieldSelector, LabelSelector},
        },
        cache::{
            history::{Bounds, Event, History},
            testing::{pods, view},
        },
        proxy::session::Origin,
    };

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::parse(&number.to_string()).expect("a version")
    }

    fn query(labels: &str) -> Query {
        let labels = LabelSelector::parse(labels).expect("a selector");
        let scope = Scope::Namespace("shop".into());
        Query { labels, ..Query::all(GroupVersionResource::new("", "v1", "pods"), scope) }
    }

    /// A replica that had an empty list at 45, and these events of one pod.
    fn served_view(labels: &str, events: &[(u64, Change, &'static str)]) -> View {
        served(query(labels), events)
    }

    fn served(query: Query, events: &[(u64, Change, &'static str)]) -> View {
        let now = Instant::now();
        let view = view(query, None, now);
        let (events_max, bytes_max, age_max) = (100, 100_000, Duration::from_secs(60));
        let mut history = History::new(Bounds { events_max, bytes_max, age_max });
        history.reset(version(45));
        for (at, change, app) in events {
            let state = pods(*at, &[("shop", "x", "1", *at, app)]);
            let pod = state.object(&ObjectKey::new(Some("shop"), "x")).expect("it").object();
            let before = (*change != Change::Added).then(|| pod.clone());
            history.push(Event::new(version(*at), *change, pod, before), now);
        }
        history.advance(version(50));
        *view.replica.history() = history;
        view
    }

    fn found(views: &[View]) -> Option<(Evidence, Vec<String>)> {
        let [web, db] = ["app=web", "app=db"].map(query);
        let (after, until) = (version(45), version(50));
        let (of, origin, at) = (Some(web), Origin::Replica(Form::Json), after.clone());
        let doubt = Doubt { of, origin, at, after, until, digest: None };
        let snapshot = pods(45, &[]);
        let finding = examine(&doubt, Held { query: &db, snapshot: &snapshot }, views)?;
        let entered = finding.entered.iter().map(|object| object.version().as_str().to_owned());
        Some((finding.evidence, entered.collect()))
    }

    #[test]
    fn an_object_that_entered_a_siblings_selection_is_expected() {
        let (added, deleted) = (Change::Added, Change::Deleted);
        let entered = |versions: &[&str]| {
            let versions = versions.iter().map(|version| (*version).to_owned());
            Some((Evidence::From(None), versions.collect::<Vec<_>>()))
        };
        let web = |events: &[_]| served_view("app=web", events);
        assert_eq!(found(&[web(&[])]), entered(&[]));
        assert_eq!(found(&[web(&[(50, added, "web")])]), entered(&["50"]));
        let returned = [(46, added, "web"), (47, deleted, "web"), (50, added, "web")];
        assert_eq!(found(&[web(&returned)]), entered(&["46", "50"]));
        // A wider replica knows it better, in any order.
        let wide = || served_view("", &[(48, added, "db")]);
        let last = Some((Evidence::From(Some(version(48))), Vec::new()));
        assert_eq!(found(&[web(&[(50, added, "web")]), wide()]), last);
        let many: Vec<_> = (0..=ENTERED_MAX).map(|_| (49, added, "web")).collect();
        assert_eq!(found(&[web(&many)]), Some((Evidence::From(Some(version(49))), Vec::new())));
        assert_eq!(found(&[served_view("app=cache", &[])]), None);
    }

    #[test]
    fn a_replica_with_the_objects_of_a_list_shows_as_much() {
        let content = |objects: &[_]| Digest::of(pods(1, objects).select(&query("app=web")).iter());
        let shown = [("shop", "a", "1", 30, "web"), ("shop", "b", "2", 40, "db")];
        let doubt = Doubt {
            of: Some(query("app=web")),
            origin: Origin::List,
            at: version(45),
            after: version(45),
            until: version(50),
            digest: Some(content(&shown)),
        };
        let by = |doubt: &Doubt, replica: &str, objects: &[_]| {
            let (query, snapshot) = (query(replica), pods(45, objects));
            let held = Held { query: &query, snapshot: &snapshot };
            by_content(doubt, held, &mut 0).map(|finding| finding.evidence)
        };
        assert_eq!(by(&doubt, "", &shown), Some(Evidence::Equal));
        let changed = [("shop", "a", "1", 31, "web"), ("shop", "b", "2", 40, "db")];
        let left = [("shop", "a", "1", 31, "db"), ("shop", "b", "2", 40, "db")];
        let entered = [("shop", "a", "1", 30, "web"), ("shop", "b", "2", 41, "web")];
        for other in [&changed[..], &left, &entered, &[]] {
            assert_eq!(by(&doubt, "", other), None, "{other:?}");
        }
        // A narrower replica does not hold everything that was shown.
        assert_eq!(by(&doubt, "app=web,tier=front", &shown[..1]), None);
        assert_eq!(by(&Doubt { digest: None, ..doubt.clone() }, "", &shown), None);
        let held = Held { query: &query(""), snapshot: &pods(45, &shown) };
        assert!(
            by_content(&doubt, held, &mut (COMPARED_MAX + 1)).is_none(),
            "too much for one read"
        );
    }

    /// Reads of one API group of events by a field that the objects of the other one lack.
    #[test]
    fn the_other_group_of_events_is_no_evidence_about_fields() {
        let of = |group: &str, fields: &str| {
            let fields = FieldSelector::parse(fields).expect("a selector");
            let resource = GroupVersionResource::new(group, "v1", "events");
            let scope = Scope::Namespace("shop".into());
            Query { fields, ..Query::all(resource, scope) }
        };
        let (new, all) = (of("events.k8s.io", ""), of("", ""));
        let core = of("", "involvedObject.name=p");
        let key = ObjectKey::new(Some("shop"), "x");
        let state = || Some(pods(50, &[("shop", "x", "1", 50, "web")]));
        let excluded = |replica: &Query| {
            unselected(&core, &key, &[view(replica.clone(), state(), Instant::now())])
        };
        assert_eq!(excluded(&new), None);
        assert_eq!(excluded(&all), Some(version(50)));

        let (after, until) = (version(45), version(50));
        let (of, origin, at) = (Some(new.clone()), Origin::Replica(Form::Json), after.clone());
        let doubt = Doubt { of, origin, at, after, until, digest: None };
        let snapshot = pods(45, &[]);
        let views = [served(new, &[(48, Change::Added, "web")])];
        let by = |query: &Query| {
            let finding = examine(&doubt, Held { query, snapshot: &snapshot }, &views);
            finding.map(|finding| finding.evidence)
        };
        assert_eq!(by(&core), None);
        assert_eq!(by(&all), Some(Evidence::From(Some(version(48)))));
    }
}
