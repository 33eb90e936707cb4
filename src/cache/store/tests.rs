use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::cache::{
    batch::Batch,
    fixture::{self, Pod, query, snapshot, text, version},
    object::Object,
};

/// The expected content: each pod with the object it is parsed as.
type Model = BTreeMap<String, (Pod, Object)>;

/// A step of the test.
#[derive(Clone, Debug)]
enum Step {
    /// Insertions and deletions that are published together.
    Batch(Vec<(Pod, bool)>),
    /// A relist after these changes; the flag reverses the order of the list.
    Relist(Vec<(Pod, bool)>, bool),
}

const SELECTORS: [(Option<&str>, &str, &str); 13] = [
    (None, "", ""),
    (Some("a"), "", ""),
    (Some("a-b"), "", ""),
    (Some("absent"), "", ""),
    (None, "app=web", ""),
    (Some("b"), "app in (web),tier", ""),
    (None, "app!=web", ""),
    (None, "app=none", ""),
    (None, "", "spec.nodeName=one"),
    (None, "", "spec.nodeName="),
    (None, "", "metadata.name=n7"),
    (Some("a"), "app=web", "metadata.name=n7"),
    (None, "", "metadata.namespace=a,spec.nodeName!=one"),
];

fn pod() -> impl Strategy<Value = Pod> {
    (
        prop::sample::select(vec!["a", "a-b", "a0", "b"]),
        0..60_u8,
        prop::sample::subsequence(vec![("app", "web"), ("tier", "x"), ("empty", "")], 0..=3),
        prop::sample::select(vec!["", "one", "two"]),
        prop_oneof![9 => 0..3_000_usize, 1 => 15_000..80_000_usize],
    )
        .prop_map(|(namespace, name, labels, node, padding)| Pod {
            labels,
            node,
            padding,
            ..Pod::new(namespace, &format!("n{name}"), 1)
        })
}

fn step() -> impl Strategy<Value = Step> {
    let changes = || prop::collection::vec((pod(), prop::bool::weighted(0.7)), 0..60);
    prop_oneof![
        4 => changes().prop_map(Step::Batch),
        1 => (changes(), any::<bool>()).prop_map(|(changes, turned)| Step::Relist(changes, turned)),
    ]
}

/// Returns the apiserver's response, computed naively.
fn expected(model: &Model, at: u64, query: &Query) -> String {
    let selected: Vec<_> = model
        .values()
        .filter(|(pod, _)| query.scope.namespace().is_none_or(|scope| scope == pod.namespace))
        .filter(|(_, object)| query.labels.matches(&**object) && query.fields.matches(&**object))
        .map(|(pod, _)| pod.clone())
        .collect();
    fixture::list(at, &selected)
}

/// Applies one change to the model; the version makes each insertion different.
fn change(model: &mut Model, pod: &Pod, put: bool, at: u64) -> Option<Pod> {
    let pod = Pod { version: at, ..pod.clone() };
    let object = pod.object();
    let before =
        if put { model.insert(pod.key(), (pod, object)) } else { model.remove(&pod.key()) };
    before.map(|(pod, _)| pod)
}

fn check(snapshot: &Snapshot, model: &Model, at: u64) {
    assert_eq!((snapshot.len(), snapshot.is_empty()), (model.len(), model.is_empty()));
    let objects = snapshot.pages().iter().flat_map(|page| page.iter());
    let keys: Vec<_> = objects.map(|object| object.key().as_str().to_owned()).collect();
    assert!(keys.iter().eq(model.keys()));
    let texts: usize = snapshot.pages().iter().map(|page| page.text_bytes()).sum();
    assert_eq!(snapshot.pages().text_bytes(), texts as u64);
    for page in snapshot.pages().iter() {
        assert!(page.len() == 1 || page.bytes() < 300_000, "{}", page.bytes());
    }
    for (namespace, labels, fields) in SELECTORS {
        let query = query(namespace, labels, fields);
        let body = snapshot.list_body(&query);
        assert_eq!(body.bytes, body.chunks.iter().map(bytes::Bytes::len).sum::<usize>());
        assert_eq!(
            (body.count, &body.version),
            (snapshot.select(&query).iter().count(), &version(at))
        );
        assert_eq!(text(body.chunks), expected(model, at, &query), "{query:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_changes_renders_like_a_sorted_map(steps in prop::collection::vec(step(), 1..8)) {
        let mut model = Model::new();
        let mut at = 10;
        let mut held = snapshot(None, at, &[]);
        for step in steps {
            let earlier = (held.clone(), model.clone(), at);
            match step {
                Step::Batch(changes) => {
                    let mut batch = Batch::of(held);
                    for (pod, put) in changes {
                        at += 1;
                        let before = change(&mut model, &pod, put, at);
                        let pod = Pod { version: at, ..pod };
                        let taken =
                            if put { batch.apply(pod.object()) } else { batch.delete(pod.object().key()) };
                        prop_assert_eq!(
                            taken.map(|object| object.raw().clone()),
                            before.map(|pod| pod.item().into())
                        );
                    }
                    held = Arc::new(batch.finish(version(at)));
                }
                Step::Relist(changes, turned) => {
                    for (pod, put) in changes {
                        at += 1;
                        change(&mut model, &pod, put, at);
                    }
                    let mut pods: Vec<_> = model.values().map(|(pod, _)| pod.clone()).collect();
                    if turned {
                        pods.reverse();
                    }
                    held = snapshot(Some(held), at, &pods);
                }
            }
            check(&held, &model, at);
            // Snapshots that readers still hold have not changed.
            check(&earlier.0, &earlier.1, earlier.2);
        }
    }
}

fn many(count: usize) -> Vec<Pod> {
    let mut pods: Vec<_> = (0..count)
        .map(|number| Pod { padding: 8_500, ..Pod::new("a", &format!("p{number:05}"), 5) })
        .collect();
    pods.sort_by_key(Pod::key);
    pods
}

#[test]
fn a_relist_shares_every_page_without_a_difference() {
    let mut pods = many(200);
    let first = snapshot(None, 5, &pods);
    let same = snapshot(Some(first.clone()), 6, &pods);
    assert!(first.pages().iter().zip(same.pages().iter()).all(|(old, new)| Arc::ptr_eq(old, new)));
    assert_eq!(same.version(), &version(6));

    pods[100].version = 7;
    pods.remove(3);
    let changed = snapshot(Some(first.clone()), 7, &pods);
    let is_shared = |page: &&Arc<Page>| first.pages().iter().any(|old| Arc::ptr_eq(old, page));
    let shared = changed.pages().iter().filter(is_shared).count();
    assert!(
        shared >= first.pages().iter().count() - 2,
        "{shared} of {}",
        first.pages().iter().count()
    );
}

#[test]
fn a_relist_does_not_reuse_another_uid_or_version() {
    let pod = Pod::new("a", "p", 5);
    let first = snapshot(None, 5, std::slice::from_ref(&pod));
    let recreated = Pod { uid: "other".to_owned(), padding: 3, ..pod };
    let second = snapshot(Some(first), 6, std::slice::from_ref(&recreated));
    let body = second.list_body(&query(None, "", ""));
    assert_eq!(text(body.chunks), fixture::list(6, &[recreated]));
}

#[test]
fn a_list_with_a_repeated_key_is_rejected() {
    let pod = Pod::new("a", "p", 5);
    for pods in [vec![&pod, &pod], vec![&pod, &Pod::new("a", "q", 5), &pod]] {
        let mut rebuild = super::super::rebuild::Rebuild::of(None, Form::Json, Default::default());
        let pushed = pods.iter().try_for_each(|pod| rebuild.push(pod.object()));
        assert!(pushed.and_then(|()| rebuild.finish(version(5), fixture::envelope())).is_err());
    }
}

#[test]
fn one_change_leaves_all_other_pages_and_chapters_shared() {
    let pods = many(200);
    let first = snapshot(None, 5, &pods);
    let mut batch = Batch::of(first.clone());
    batch.apply(Pod { version: 9, ..pods[50].clone() }.object());
    let second = batch.finish(version(9));
    let pairs = first.pages().iter().zip(second.pages().iter());
    assert_eq!(pairs.filter(|(old, new)| !Arc::ptr_eq(old, new)).count(), 1);
    let (old, new) = (first.pages().chapters(), second.pages().chapters());
    assert!(old.len() > 3 && old.len() == new.len(), "{}", old.len());
    assert_eq!(old.iter().zip(new).filter(|(old, new)| !Arc::ptr_eq(old, new)).count(), 1);
}

#[test]
fn whole_lists_are_not_copied() {
    let (held, all) = (snapshot(None, 5, &many(200)), query(None, "", ""));
    for _ in 0..2 {
        // Then the pages stay decompressed.
        held.list_body(&all);
    }
    let body = held.list_body(&all);
    assert!(body.chunks.len() <= held.pages().iter().count() + 2);
    for (page, chunk) in held.pages().iter().zip(body.chunks.iter().skip(1)) {
        assert_eq!(page.get(0).expect("an object").raw().as_ptr(), chunk.as_ptr());
    }
}

#[test]
fn an_object_is_rendered_as_in_a_get() {
    for padding in [0, 100_000] {
        let pod = Pod { padding, ..Pod::new("a", "p", 5) };
        let held = snapshot(None, 5, std::slice::from_ref(&pod));
        let object = held.object(&ObjectKey::new(Some("a"), "p")).expect("the pod");
        assert_eq!(text(held.object_body(object)), format!("{}\n", pod.whole()));
        assert!(held.object(&ObjectKey::new(Some("a"), "q")).is_none());
        assert!(held.object(&ObjectKey::new(None, "p")).is_none());
    }
}

#[test]
fn memory_of_typical_pods_stays_near_their_bytes() {
    let pods = many(1_000);
    let raw: usize = pods.iter().map(|pod| pod.item().len()).sum();
    let held = snapshot(None, 5, &pods);
    assert!(held.bytes() < raw / 4, "compressed: {} for {raw}", held.bytes());
    for _ in 0..2 {
        held.list_body(&query(None, "", ""));
    }
    held.pages().measure();
    let bytes = held.bytes();
    assert!((raw..raw * 11 / 10).contains(&bytes), "{bytes} for {raw}");
}

#[test]
fn a_bookmark_changes_only_the_version() {
    let first = snapshot(None, 5, &many(20));
    let second = Batch::of(first.clone()).finish(version(8));
    assert_eq!((second.version(), second.len()), (&version(8), 20));
    assert!(
        first.pages().iter().zip(second.pages().iter()).all(|(old, new)| Arc::ptr_eq(old, new))
    );
}
