//! The end of a replica, and a state of unknown age.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_wider_replica_continues_where_one_ends_except_after_a_refusal() {
    for (ended, continues) in [
        (Ended::Stopped, true),
        (Ended::OutOfMemory, true),
        (Ended::Panicked, true),
        (Ended::Refused { code: 403 }, false),
    ] {
        let mut scene = Scene::new(Settings::default());
        let pods = [Pod::new("a", "p", 5)];
        scene.cache.start(everything(), Form::Json);
        let _wide = scene.serve(10, &[Pod::new("a", "p", 5), Pod::new("a", "q", 6)]).await;
        scene.cache.start(job("1"), Form::Json);
        let _narrow = scene.serve(10, &pods).await;
        let narrow = scene.read(&job("1")).expect("a replica").replica;
        assert_eq!(*narrow.query(), job("1"));
        let _watcher = narrow.attach();
        let successor = scene.cache.0.forget(&narrow, ended);
        assert_eq!(successor.is_some(), continues, "{ended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restored_replica_continues_only_what_it_has_reached() {
    let replica = testing::replica(everything(), Instant::now());
    replica.history().reset(fixture::version(10));
    for (restored, from, continues) in [(false, 100, true), (true, 100, false), (true, 10, true)] {
        replica.publish(|published| {
            published.snapshot = Some(testing::pods(10, &[]));
            published.restored = restored;
        });
        let goes_on = replica.goes_on_from(&fixture::version(from));
        assert_eq!(goes_on, continues, "{restored} from {from}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_read_after_a_suspension_of_the_machine_finds_no_proof() {
    let missed = Arc::new(AtomicU64::default());
    let source = missed.clone();
    let suspension =
        Suspension::of(Arc::new(move || Duration::from_secs(source.load(Ordering::Relaxed))));
    let mut scene = Scene::suspended(Settings::default(), suspension);
    let _watch = scene.synced(&everything(), 10, &[Pod::new("a", "p", 5)]).await;
    assert!(scene.read(&everything()).expect("a replica").proven_at.is_some());
    missed.store(8 * 3600, Ordering::Relaxed);
    assert_eq!(scene.read(&everything()).expect("a replica").proven_at, None);
}
