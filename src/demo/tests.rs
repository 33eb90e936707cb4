//! Tests of the demo in which the apiserver, or a broken server, replaces Listless.

use super::*;
use crate::simulator::{Effect, Fault};

fn small() -> Scale {
    Scale {
        apps: 4,
        pods_per_app: 3,
        writes_per_second: 100,
        pollers: 4,
        period: Duration::from_millis(100),
    }
}

fn plan(warm_up_max: Duration) -> Plan {
    Plan { straight: Duration::from_secs(1), warm_up_max, total: Duration::from_secs(4) }
}

fn args(seconds: u64) -> Args {
    Args { seconds, output: Output::Json, admin: None }
}

/// Returns no Listless: the second phase goes directly to the apiserver too.
fn nothing() -> StartProxy {
    Box::new(|cluster| {
        Box::pin(async { Ok(Proxy { server: cluster, page: None, _guard: Box::new(()) }) })
    })
}

async fn measured(start_proxy: StartProxy, interrupt: impl Future<Output = ()>) -> Report {
    let mut table = Table::new(Vec::new(), false, Screen::PLAIN);
    let (args, scale, plan) = (args(2), small(), plan(Duration::from_millis(300)));
    let measured = measure(&args, &scale, &plan, start_proxy, &mut table, interrupt);
    measured.await.expect("the demo runs")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_proxy_every_poll_reaches_the_apiserver_and_is_right() {
    let report = measured(nothing(), std::future::pending()).await;
    assert!(report.is_clean(), "{report:?}");
    for phase in [&report.direct, &report.listless] {
        assert!(phase.polls >= 20, "{phase:?}");
        assert_eq!(phase.apiserver_requests, phase.polls, "{phase:?}");
        assert!(phase.apiserver_writes > 0 && phase.bytes > 100_000, "{phase:?}");
        assert!(0.0 < phase.p50_ms && phase.p50_ms <= phase.p99_ms, "{phase:?}");
    }
    assert_eq!(report.saved_percent, 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listless_answers_correctly_and_saves_requests() {
    let mut table = Table::new(Vec::new(), false, Screen::PLAIN);
    let (args, scale, plan) = (args(2), small(), plan(Duration::from_secs(15)));
    let measured = measure(
        &args,
        &scale,
        &plan,
        listless::in_process(None),
        &mut table,
        std::future::pending(),
    );
    let report = measured.await.expect("the demo runs");
    assert!(report.is_clean(), "{report:?}");
    assert!(report.saved_percent > 90.0, "{report:?}");
    assert!(report.listless.from_memory > report.listless.polls / 2, "{report:?}");
    assert!(report.verdict().contains("every response was right"), "{}", report.verdict());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_forgets_writes_is_detected() {
    // A second cluster answers the reads of the second phase, and its writes have no effect.
    let start: StartProxy = Box::new(|_| {
        Box::pin(async {
            let other = SimulatedCluster::start(&small()).await?;
            let written = |asked: &crate::simulator::Asked| asked.verb.is_write();
            let lie = Effect::Answer { code: 200, retry_after_secs: None };
            other.simulator().inject(Fault::always(lie, written));
            Ok(Proxy { server: other.endpoint(), page: None, _guard: Box::new(other) })
        })
    });
    let report = measured(start, std::future::pending()).await;
    assert_eq!(report.direct.wrong_answers, 0);
    assert!(report.listless.wrong_answers > 0, "{report:?}");
    assert!(report.verdict().contains("was written"), "{}", report.verdict());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interruption_keeps_the_measurements() {
    // The timer starts on the first wait, when the pollers run. The demo measures real time, so the
    // interruption is in real time too.
    let interrupt = async { tokio::time::sleep(Duration::from_millis(600)).await };
    let report = measured(nothing(), interrupt).await;
    assert!(report.interrupted && report.direct.polls > 0 && report.listless.polls == 0);
    assert_eq!(report.verdict(), "Interrupted before Listless was measured.");
}

#[test]
fn short_demos_poll_faster_and_say_so() {
    let scale = |seconds| Scale::new(&Plan::of(Duration::from_secs(seconds)));
    let long = scale(20);
    assert_eq!(long.period, PERIOD);
    assert!(!long.introduction().contains("faster"));
    let short = scale(8);
    assert_eq!(short.period, Duration::from_millis(1200));
    assert!(short.introduction().contains("every 1.2 s (faster than every 3 s"));
}

#[test]
fn the_json_has_the_documented_members() {
    let json = serde_json::to_value(Report::default()).expect("serializable");
    for phase in ["direct", "listless"] {
        for member in ["polls", "apiserverRequests", "bytes", "p50Ms", "p99Ms"] {
            assert!(json[phase][member].is_number(), "{phase}.{member}");
        }
    }
    assert!(json["savedPercent"].is_number());
}
