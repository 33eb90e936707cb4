//! An etcd restored from a backup: no state is mixed, and only what is lost expires.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::BoxFuture;
use http::{Request, Response};
use listless::{
    body::Body,
    simulator::Simulator,
    upstream::{Client, Error, Lane},
};

use super::{PODS, put};
use crate::harness::{
    Answer, Setup, TABLE, TestProxy, group_resource, pass, pod, populated, settle,
};

/// An apiserver whose data can be replaced, as when etcd is restored from a backup.
#[derive(Clone)]
struct Restorable(Arc<Mutex<Simulator>>);

impl Restorable {
    /// Replaces the data by an older state; returns the new apiserver.
    fn restore(&self) -> Simulator {
        let after = populated();
        let before =
            std::mem::replace(&mut *self.0.lock().expect("no panic holds it"), after.clone());
        before.stop();
        after
    }

    fn current(&self) -> Simulator {
        self.0.lock().expect("no panic holds it").clone()
    }
}

impl Client for Restorable {
    fn send(
        &self,
        request: Request<Body>,
        lane: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.current().send(request, lane)
    }

    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.current().upgrade(request)
    }
}

/// A replica of pods whose version and last object a restore will lose.
async fn far_ahead() -> (Restorable, TestProxy) {
    let before = populated();
    let restorable = Restorable(Arc::new(Mutex::new(before.clone())));
    let proxy = Setup::of(before.clone()).upstream(restorable.clone()).in_memory();
    proxy.warm(PODS).await;
    before.skip_revisions(5000);
    put(&proxy, "lost");
    settle().await;
    (restorable, proxy)
}

/// Any version may be of the lost state, until a bookmark shows that the collection reached it.
#[tokio::test(start_paused = true)]
async fn a_watch_of_a_quiet_collection_does_not_expire_after_a_restore() {
    let (restorable, proxy) = far_ahead().await;
    let after = restorable.restore();
    pass(Duration::from_secs(100)).await;
    proxy.warm(PODS).await;
    after.skip_revisions(10);
    let client = proxy.client();
    let shown = client.clone().with("accept", TABLE).get(PODS).await;
    let memory = client.get(PODS).await;
    assert!(memory.is_hit() && memory.version() == shown.version(), "{}", memory.summary());
    let path = format!("{PODS}?watch=true&resourceVersion={}", memory.version());
    let mut watch = client.watch(&path).await;
    let new = pod("a", "new", &[("app", "web")], "n1");
    after.put(&group_resource("pods"), new).expect("a served resource");
    let told = watch.next_line().await.expect("an event");
    assert!(String::from_utf8_lossy(&told).contains(r#""type":"ADDED""#), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_restored_etcd_backup_resets_replicas_and_sessions() {
    let (restorable, proxy) = far_ahead().await;
    let client = proxy.client();
    let high = client.get(PODS).await;
    assert!(high.is_hit() && high.version() > 5000, "{}", high.summary());
    let path = format!("{PODS}?watch=true&resourceVersion={}", high.version());
    let mut watch = client.watch(&path).await;
    restorable.restore();
    let mut seen = Vec::new();
    for _ in 0..100 {
        pass(Duration::from_secs(3)).await;
        seen.push(client.get(PODS).await);
    }
    let last = seen.pop().expect("an answer");
    assert!(last.is_hit() && last.version() < 5000, "{}", last.summary());
    assert!(!last.names().contains(&"a/lost".to_owned()));
    // After the older state was shown, the newer one never appears again.
    let shown = [&high].into_iter().chain(&seen).filter(|answer| answer.status == 200);
    let versions: Vec<_> = shown.map(Answer::version).collect();
    let turns = versions.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert_eq!(turns, 1, "{versions:?}");
    let told = watch.next_line().await.expect("an error");
    assert!(String::from_utf8_lossy(&told).contains(r#""code":410"#), "{told:?}");
    assert!(watch.next_line().await.is_none(), "the error is the last event");
    let errors = seen.iter().filter(|answer| answer.status != 200).count();
    assert!(errors <= 2, "{errors} errors");
}
