use super::*;
use crate::cache::fixture::{Pod, version};

const BOUNDS: Bounds =
    Bounds { events_max: 4, bytes_max: 100_000, age_max: Duration::from_secs(60) };

fn event(at: u64, change: Change, name: &str, padding: usize) -> Event {
    let pod = Pod { padding, ..Pod::new("a", name, at) };
    let before = (change != Change::Added).then(|| Pod { version: 1, ..pod.clone() }.object());
    Event::new(version(at), change, pod.object(), before)
}

fn started(history: &History, at: u64) -> Result<Vec<u64>, TooOld> {
    let cursor = history.start_at(&version(at))?;
    let events = history.after(cursor).expect("just made");
    Ok(events.map(|event| event.version.as_str().parse().expect("a number")).collect())
}

fn filled(versions: &[u64]) -> History {
    let mut history = History::new(BOUNDS);
    history.reset(version(10));
    for at in versions {
        history.push(event(*at, Change::Modified, "p", 0), Instant::now());
    }
    history
}

#[test]
fn a_watch_starts_after_its_version() {
    let history = filled(&[12, 15, 20]);
    assert_eq!(started(&history, 10), Ok(vec![12, 15, 20]));
    assert_eq!(started(&history, 11), Ok(vec![12, 15, 20]));
    assert_eq!(started(&history, 12), Ok(vec![15, 20]));
    assert_eq!(started(&history, 20), Ok(vec![]));
    assert_eq!(started(&history, 9), Err(TooOld));
    assert_eq!(started(&history, 21), Ok(vec![]));
}

#[test]
fn nothing_starts_before_the_first_list() {
    let history = History::new(BOUNDS);
    assert_eq!(started(&history, 1), Err(TooOld));
}

#[test]
fn a_bookmark_moves_the_end_and_a_list_restarts_the_window() {
    let mut history = filled(&[12]);
    history.advance(version(30));
    assert_eq!(started(&history, 30), Ok(vec![]));
    assert_eq!(started(&history, 10), Ok(vec![12]));
    history.reset(version(40));
    assert_eq!(started(&history, 30), Err(TooOld));
    assert_eq!(started(&history, 40), Ok(vec![]));
    assert_eq!(history.bytes(), 0);
}

#[test]
fn the_oldest_events_are_evicted_by_count() {
    let history = filled(&[11, 12, 13, 14, 15]);
    assert_eq!(started(&history, 10), Err(TooOld));
    assert_eq!(started(&history, 11), Ok(vec![12, 13, 14, 15]));
}

#[test]
fn the_oldest_events_are_evicted_by_size() {
    let mut history = filled(&[11]);
    history.push(event(12, Change::Modified, "q", 60_000), Instant::now());
    // The event and its printed forms together are larger than the limit of the window.
    assert!(history.bytes() > 100_000);
    assert_eq!(started(&history, 10), Err(TooOld));
    assert_eq!(started(&history, 11), Ok(vec![12]));
    history.push(event(13, Change::Added, "q", 10_000), Instant::now());
    assert_eq!(started(&history, 11), Err(TooOld));
    assert_eq!(started(&history, 12), Ok(vec![13]));
    assert!((20_000..30_000).contains(&history.bytes()));
}

#[tokio::test(start_paused = true)]
async fn the_oldest_events_are_evicted_by_age() {
    let mut history = filled(&[11]);
    tokio::time::advance(Duration::from_secs(40)).await;
    history.push(event(12, Change::Added, "q", 0), Instant::now());
    tokio::time::advance(Duration::from_secs(40)).await;
    history.evict(Instant::now());
    assert_eq!(started(&history, 10), Err(TooOld));
    assert_eq!(started(&history, 11), Ok(vec![12]));
}

#[test]
fn events_of_one_version_stay_together() {
    let mut history = filled(&[11, 12, 12, 12]);
    assert_eq!(started(&history, 11), Ok(vec![12, 12, 12]));
    history.push(event(13, Change::Added, "r", 0), Instant::now());
    history.push(event(14, Change::Added, "s", 0), Instant::now());
    // One of the three is gone: no watch may start before them.
    assert_eq!(started(&history, 11), Err(TooOld));
    assert_eq!(started(&history, 12), Ok(vec![13, 14]));
}

#[test]
fn a_deletion_has_its_own_version() {
    let mut history = History::new(BOUNDS);
    history.reset(version(10));
    history.push(event(12, Change::Deleted, "p", 0), Instant::now());
    let cursor = history.start_at(&version(10)).expect("held");
    let deletion = history.after(cursor).expect("held").next().expect("an event");
    assert_eq!((deletion.change, deletion.key().as_str()), (Change::Deleted, "a/p"));
    assert_eq!((&deletion.version, deletion.object.version()), (&version(12), &version(12)));
}

#[test]
fn a_cursor_continues_between_events_of_one_version() {
    let mut history = filled(&[12, 15]);
    let followed = |history: &History, cursor| {
        let events = history.after(cursor)?;
        Ok(events.map(|event| event.version.as_str().to_owned()).collect::<Vec<_>>())
    };
    let cursor = history.start_at(&version(12)).expect("within").forward(1);
    assert_eq!(cursor, history.end());
    assert_eq!(followed(&history, cursor), Ok(vec![]));
    // Leases that expire together delete several objects at one version.
    history.push(event(15, Change::Deleted, "q", 0), Instant::now());
    assert_eq!(followed(&history, cursor), Ok(vec!["15".to_owned()]));
    for at in [16, 17, 18, 19] {
        history.push(event(at, Change::Modified, "p", 0), Instant::now());
    }
    assert_eq!(followed(&history, cursor), Err(Lost::Behind));
    let end = history.end();
    history.advance(version(30));
    assert_eq!(followed(&history, end), Ok(vec![]));
    history.reset(version(40));
    assert_eq!(followed(&history, end), Err(Lost::Reset));
    let end = history.end();
    history.close();
    assert_eq!(followed(&history, end), Err(Lost::Reset));
    assert_eq!((history.oldest(), history.latest()), (None, None));
    history.end_epoch();
    assert_eq!(followed(&history, end), Err(Lost::Invalid));
    history.reset(version(5));
    let end = history.end();
    history.reset(version(6));
    assert_eq!(followed(&history, end), Err(Lost::Reset), "of the new epoch");
}
