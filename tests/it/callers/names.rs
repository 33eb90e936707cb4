//! The report names callers only if the configuration wants it, and asks the apiserver for each name once.

use std::time::Duration;

use futures_util::future::join_all;
use listless::simulator::User;

use super::{ANN, IN_A, PODS, admitted, on_pods};
use crate::harness::{Setup, TestProxy, pass, settle};

const ACCOUNT: &str = "a-service-accounts-token";

/// A gateway that names callers, or does not.
fn gateway(callers: bool) -> TestProxy {
    let setup = Setup::default().config(&format!("report: {{callers: {callers}}}\n"));
    let rules = vec![on_pods(&["get", "list", "watch"]).within("a")];
    setup.simulator().admit(ACCOUNT, User::with_rules("system:serviceaccount:shop:web", rules));
    admitted(setup).in_memory()
}

/// Reads as several callers, some of them unknown, and returns the callers in the report.
async fn callers(proxy: &TestProxy) -> Vec<String> {
    for _ in 0..3 {
        for (token, path, status) in [
            (ANN, PODS, 200),
            (ACCOUNT, IN_A, 200),
            ("unknown", IN_A, 401),
            ("also-unknown", "/version", 401),
        ] {
            assert_eq!(proxy.bearer(token).get(path).await.status, status, "{token} {path}");
        }
        settle().await;
    }
    let mut callers: Vec<_> = proxy
        .report()
        .polls
        .into_iter()
        .map(|poll| poll.caller)
        .filter(|name| !name.is_empty())
        .collect();
    callers.sort();
    callers.dedup();
    callers
}

fn questions(proxy: &TestProxy) -> usize {
    proxy.upstream.all().iter().filter(|seen| seen.asked.resource == "selfsubjectreviews").count()
}

#[tokio::test(start_paused = true)]
async fn callers_with_an_accepted_token_are_named_by_one_question_in_ten_minutes() {
    let proxy = gateway(true);
    assert_eq!(callers(&proxy).await, ["ann", "shop/web"]);
    assert_eq!(questions(&proxy), 2);
    pass(Duration::from_secs(601)).await;
    assert_eq!(callers(&proxy).await, ["ann", "shop/web"]);
    assert_eq!(questions(&proxy), 4);
    assert!(!proxy.metrics().render().contains("shop/web"));
}

#[tokio::test(start_paused = true)]
async fn the_first_requests_of_a_caller_ask_once() {
    let proxy = gateway(true);
    let clients: Vec<_> = (0..10).map(|_| proxy.bearer(ANN)).collect();
    let answers = join_all(clients.iter().map(|client| client.get(PODS))).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    settle().await;
    assert_eq!(questions(&proxy), 1);
}

#[tokio::test(start_paused = true)]
async fn without_the_setting_nobody_is_named_and_nothing_is_asked() {
    let proxy = gateway(false);
    assert_eq!(callers(&proxy).await, [""; 0]);
    assert_eq!(questions(&proxy), 0);
}
