use tokio::{sync::watch, time::Instant};

use super::*;
use crate::{
    api::{
        GroupVersionResource, Scope,
        form::Form,
        media::{MetadataVersion, Partial},
        selector::LabelSelector,
    },
    cache::{
        Settings,
        stitch::Stitcher,
        testing::{cache, pods, replica},
    },
    gzip::Deflaters,
    proxy::local::MadeBytes,
};

/// The bodies under test, the limits that they follow, and the metrics.
struct Scene {
    bodies: Bodies,
    settings: watch::Sender<Settings>,
    metrics: Metrics,
}

impl Scene {
    fn new() -> Self {
        let (settings, receiver) = watch::channel(Settings::default());
        let metrics = Metrics::default();
        let cache = cache(receiver);
        let made = MadeBytes::new(cache.clone(), metrics.clone());
        let bodies = Bodies::new(cache, metrics.clone(), Arc::new(Gzip::new(made)));
        Self { bodies, settings, metrics }
    }

    async fn keep(&self, wanted: &Wanted<'_>, encoding: Encoding, made: Made) -> Chunks {
        self.bodies.keep(wanted, encoding, async { made }).await.chunks.expect("a body")
    }

    async fn plain(&self, wanted: &Wanted<'_>, text: &'static str) -> Chunks {
        self.keep(wanted, Encoding::Identity, made(text)).await
    }

    async fn held(&self, wanted: &Wanted<'_>, encoding: Encoding) -> Option<Chunks> {
        self.bodies.get(wanted, encoding).await
    }

    fn count(&self) -> usize {
        let bodies = &self.bodies.kept.bodies.load().bodies;
        bodies.iter().filter(|(_, entry)| entry.made.chunks.is_some()).count()
    }

    fn metric(&self, line: &str) -> bool {
        self.metrics.render().contains(line)
    }
}

fn made(text: &'static str) -> Made {
    Made { chunks: Some(body(text)), ..Made::default() }
}

/// Returns a compressed list with the parts for its next state.
fn compressed(wanted: &Wanted<'_>) -> Made {
    let mut deflaters = Deflaters::default();
    let mut stitcher = Stitcher::new(wanted.listing(), None);
    assert_eq!(stitcher.step(&mut deflaters, usize::MAX), Some(true));
    let joined = stitcher.finish(&mut deflaters).expect("printable");
    let stitched = Some(Arc::new(joined.stitched));
    let (chunks, until) = (Some(Arc::new(joined.chunks)), joined.alike_until);
    Made { chunks, until, stitched, ..Made::default() }
}

fn body(text: &'static str) -> Chunks {
    Arc::new(VecDeque::from([Bytes::from(text)]))
}

fn all() -> Query {
    Query::all(GroupVersionResource::new("", "v1", "pods"), Scope::All)
}

/// Returns a list of no pods; each has its own snapshot.
fn wanted(query: &Query) -> Wanted<'_> {
    let (snapshot, portion) = (pods(7, &[]), Portion::default());
    let (representation, now) = (Representation::Object, Moment(0));
    let replica = replica(query.clone(), Instant::now());
    Wanted { replica, snapshot, query, portion, representation, now }
}

/// Returns the same list, metadata only.
fn metadata<'a>(wanted: &Wanted<'a>) -> Wanted<'a> {
    let representation =
        Representation::Metadata(Partial { version: MetadataVersion::V1, form: Form::Json });
    let (replica, snapshot) = (wanted.replica.clone(), wanted.snapshot.clone());
    let portion = wanted.portion.clone();
    Wanted { replica, snapshot, portion, representation, ..*wanted }
}

#[tokio::test]
async fn a_body_is_given_only_for_the_snapshot_it_was_made_from() {
    let (scene, all) = (Scene::new(), all());
    // These are the same version of the same query, but different states.
    let (old, new) = (wanted(&all), wanted(&all));
    assert_eq!(scene.held(&old, Encoding::Identity).await, None);
    let made = scene.plain(&old, "old").await;
    assert_eq!(made, body("old"));
    assert_eq!(scene.held(&old, Encoding::Identity).await, Some(body("old")));
    assert_eq!(scene.held(&old, Encoding::Gzip).await, None);
    assert_eq!(scene.held(&metadata(&old), Encoding::Identity).await, None);
    assert_eq!(scene.held(&new, Encoding::Identity).await, None);
    let made = scene.plain(&new, "new").await;
    assert_eq!(made, body("new"));
    assert_eq!(scene.held(&old, Encoding::Identity).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_plain_body_is_dropped_soon_after_its_snapshot_and_parts_are_not() {
    let (scene, all) = (Scene::new(), all());
    let (old, new) = (wanted(&all), wanted(&all));
    scene.plain(&old, "old").await;
    scene.keep(&old, Encoding::Gzip, compressed(&old)).await;
    tokio::time::sleep(2 * TIDY_EVERY).await;
    assert_eq!(scene.count(), 2);
    drop(old);
    tokio::time::sleep(2 * TIDY_EVERY).await;
    assert_eq!(scene.count(), 1);
    assert_eq!(scene.held(&new, Encoding::Gzip).await, None);
    assert!(scene.bodies.earlier(&new).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_plain_body_is_dropped_when_it_is_not_used_for_half_a_minute() {
    let (scene, all) = (Scene::new(), all());
    let wanted = wanted(&all);
    scene.plain(&wanted, "kept").await;
    for _ in 0..2 {
        tokio::time::sleep(20 * TIDY_EVERY).await;
        assert!(scene.held(&wanted, Encoding::Identity).await.is_some());
    }
    tokio::time::sleep((PLAIN_IDLE_MAX + 3) * TIDY_EVERY).await;
    assert_eq!(scene.held(&wanted, Encoding::Identity).await, None);
}

#[tokio::test]
async fn small_bodies_count_with_the_memory_of_their_entries() {
    let (scene, all) = (Scene::new(), all());
    let labels: LabelSelector = LabelSelector::parse("app in (a,b,c)").expect("a selector");
    let selected = Query { labels: labels.clone(), ..all };
    let wanted = wanted(&selected);
    scene.plain(&wanted, "none").await;
    let limit = Settings::default().response_limit_bytes;
    scene.bodies.kept.tidy(limit, limit).await;
    let expected = ENTRY_BYTES + labels.bytes() + "none".len();
    assert!(scene.metric(&format!("listless_kept_response_bytes {expected}\n")));
}

/// The library forgets an update of the weight if its entry is removed before it was applied.
#[tokio::test(start_paused = true)]
async fn a_body_that_was_replaced_just_before_it_was_dropped_counts_no_longer() {
    let (scene, all) = (Scene::new(), all());
    let (old, new) = (wanted(&all), wanted(&all));
    scene.plain(&old, "longer than its successor").await;
    tokio::time::sleep(2 * TIDY_EVERY).await;
    scene.plain(&new, "shorter").await;
    drop((old, new));
    tokio::time::sleep(2 * TIDY_EVERY).await;
    assert_eq!(scene.count(), 0);
    assert!(scene.metric(&format!("listless_kept_response_bytes {ENTRY_BYTES}\n")));
}

#[tokio::test(start_paused = true)]
async fn responses_give_way_to_replicas_and_follow_their_limit() {
    let (scene, all) = (Scene::new(), all());
    let wanted = wanted(&all);
    scene.plain(&wanted, "kept").await;
    let reached =
        |count| format!("listless_limits_reached_total{{limit=\"kept_responses\"}} {count}");
    tokio::time::sleep(2 * TIDY_EVERY).await;
    assert!(scene.metric(&reached(0)) && scene.held(&wanted, Encoding::Identity).await.is_some());
    // The memory limit leaves no room beside the replicas.
    scene.settings.send_modify(|settings| settings.memory_limit_bytes = 0);
    tokio::time::sleep(2 * TIDY_EVERY).await;
    assert!(scene.metric(&reached(1)) && scene.held(&wanted, Encoding::Identity).await.is_none());
    assert!(scene.metric("listless_kept_response_bytes 0\n"));
    // A lower limit of their own holds from the next second on.
    scene.settings.send_modify(|settings| {
        settings.memory_limit_bytes = 1 << 20;
        settings.response_limit_bytes = 10;
    });
    tokio::time::sleep(2 * TIDY_EVERY).await;
    scene.plain(&wanted, "too large").await;
    tokio::time::sleep(2 * TIDY_EVERY).await;
    assert!(scene.metric(&reached(2)) && scene.held(&wanted, Encoding::Identity).await.is_none());
}

#[tokio::test]
async fn pages_with_new_tokens_go_on_from_the_parts_of_the_earlier_state() {
    let (scene, all) = (Scene::new(), all());
    let page = |token: &str| {
        let next = Some(Next { limit: 500, token: token.into(), remaining: Some(1) });
        Wanted { portion: Portion { after: None, next }, ..wanted(&all) }
    };
    let (old, new) = (page("at 7"), page("at 8"));
    scene.keep(&old, Encoding::Gzip, compressed(&old)).await;
    assert!(scene.held(&old, Encoding::Gzip).await.is_some());
    assert_eq!(scene.held(&new, Encoding::Gzip).await, None);
    assert!(scene.bodies.earlier(&new).await.is_some());
    let snapshot = old.snapshot.clone();
    let other_token = Wanted { snapshot, ..page("at 9") };
    assert_eq!(scene.held(&other_token, Encoding::Gzip).await, None);
}

#[tokio::test]
async fn a_body_is_given_only_until_it_changes_with_time() {
    let (scene, all) = (Scene::new(), all());
    let early = wanted(&all);
    let (replica, snapshot) = (early.replica.clone(), early.snapshot.clone());
    let portion = early.portion.clone();
    let late = Wanted { replica, snapshot, portion, now: Moment(5), ..early };
    let until = Some(Moment(5));
    scene.keep(&early, Encoding::Identity, Made { until, ..made("4s") }).await;
    assert_eq!(scene.held(&early, Encoding::Identity).await, Some(body("4s")));
    assert_eq!(scene.held(&late, Encoding::Identity).await, None);
    let made = scene.plain(&late, "5s").await;
    assert_eq!(made, body("5s"));
}

#[test]
fn a_remembered_body_is_given_only_for_its_snapshot_and_while_it_is_kept() {
    let (remembered, all) = (Remembered::default(), all());
    let (old, new) = (wanted(&all), wanted(&all));
    assert_eq!(remembered.of(&old), None);
    let kept = body("old");
    remembered.set(&old, Encoding::Gzip, &kept);
    assert_eq!(remembered.of(&old), Some((Encoding::Gzip, kept.clone())));
    assert_eq!(remembered.of(&new), None);
    assert_eq!(remembered.of(&metadata(&old)), None);
    drop(kept);
    assert_eq!(remembered.of(&old), None);
}

#[tokio::test]
async fn an_unfinished_body_is_not_returned_for_a_newer_snapshot() {
    let (scene, all) = (Scene::new(), all());
    let (old, new) = (wanted(&all), wanted(&all));
    let (release, released) = tokio::sync::oneshot::channel::<()>();
    let slow = async {
        let _ = released.await;
        made("old")
    };
    let first = scene.bodies.keep(&old, Encoding::Gzip, slow);
    let second = scene.bodies.keep(&new, Encoding::Gzip, async { made("new") });
    let release = async { release.send(()) };
    let (first, second, released) = tokio::join!(first, second, release);
    assert_eq!((first.chunks, second.chunks), (Some(body("old")), Some(body("new"))));
    assert_eq!(released, Ok(()));
}
