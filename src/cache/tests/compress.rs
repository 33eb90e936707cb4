//! Compression of objects that are not read.

use super::*;

#[tokio::test(start_paused = true)]
async fn objects_are_compressed_unless_they_are_read_again_and_again() {
    let mut scene = Scene::new(Settings::default());
    let large = [Pod { padding: 100_000, ..Pod::new("a", "p", 5) }];
    let _watch = scene.synced(&everything(), 10, &large).await;
    let snapshot = scene.read(&everything()).expect("synced").snapshot.clone().expect("synced");
    let read = || fixture::text(snapshot.list_body(&everything()).chunks);
    assert_eq!(scene.cache.uncompressed_bytes(), 0);
    let first = read();
    assert_eq!((scene.cache.uncompressed_bytes(), read()), (0, first.clone()));
    assert!(scene.cache.uncompressed_bytes() > 100_000);
    for _ in 0..3 {
        pass(10).await;
        read();
    }
    assert!(scene.cache.uncompressed_bytes() > 100_000, "read in each round");
    pass(20).await;
    assert_eq!((scene.cache.uncompressed_bytes(), read()), (0, first.clone()));
    scene.settings.send_modify(|settings| settings.uncompressed_limit_bytes = 50_000);
    pass(10).await;
    for _ in 0..3 {
        assert_eq!(read(), first);
    }
    assert_eq!(scene.cache.uncompressed_bytes(), 0, "above the limit");
}
