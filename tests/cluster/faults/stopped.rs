//! A process that is stopped for a while, as a frozen container is: it answers nothing from before.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use super::{COLLECTION, CONFIGURATION, FEW, from_memory, names, write};
use crate::clusters::{Machine, available};
use crate::rig::client::{Answer, Client, Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::process::Signal;
use crate::rig::proxy_process::ProxyProcess;
use crate::rig::wait::until_hit_at_last;

/// Longer than the time after which the process counts as stopped.
const STOPPED: Duration = Duration::from_secs(8);
/// What is sent just before the process goes on arrives before it does.
const SENT: Duration = Duration::from_millis(300);
/// The time in which memory answers again: a stop soon after another waits for the bookmark that comes
/// each minute.
const PROVEN: Duration = Duration::from_secs(90);
const ROUNDS: usize = 3;
const CLIENTS: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_stopped_answers_nothing_from_before_on_1_36() {
    if !available(Version::V1_36) {
        return;
    }
    let _machine = Machine::beside().await;
    let plane = ControlPlane::start(Version::V1_36).await.expect("a control plane");
    let straight = plane.client(User::Admin, Protocol::Http1).expect("a client");
    write(&straight, "kept", FEW).await.expect("writes");
    let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, Some(CONFIGURATION)).await.expect("a proxy");
    // Each has a connection, as a pod's clients have.
    let clients: Vec<Client> = (0..CLIENTS).map(|_| proxy.client(Protocol::Http1)).collect();
    from_memory(&clients[0], FEW).await.expect("a list");
    let read = Request::get(COLLECTION);
    for round in 0..ROUNDS {
        let reads = clients.iter().map(|client| client.send(read.clone()));
        let before = try_join_all(reads).await.expect("answers");
        assert!(before.iter().all(Answer::is_hit), "{}", proxy.log());
        proxy.signal(Signal::Pause).expect("a signal");
        let prefix = format!("meanwhile-{round}");
        write(&straight, &prefix, 1).await.expect("a write");
        tokio::time::sleep(STOPPED).await;
        let reads = clients.iter().map(|client| client.send(read.clone()));
        let go_on = async {
            tokio::time::sleep(SENT).await;
            proxy.signal(Signal::Continue)
        };
        let (answers, went_on) = tokio::join!(try_join_all(reads), go_on);
        went_on.expect("a signal");
        for answer in answers.expect("answers") {
            let list = answer.json().expect("a list");
            let is_new = names(&list).iter().any(|name| name.starts_with(&prefix));
            assert!(is_new, "round {round}: {:?}\n{}", answer.headers, proxy.log());
        }
        let since = Instant::now();
        until_hit_at_last(&clients[0], &read, PROVEN).await.expect("a hit");
        eprintln!("proof: memory answers {:.1?} after a stop of {STOPPED:?}", since.elapsed());
    }
}
