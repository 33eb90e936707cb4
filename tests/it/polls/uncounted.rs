//! Reads that do not count as repeated polls, or count once.

use std::io::Read;

use flate2::read::GzDecoder;

use super::*;

fn unpacked(answer: &Answer) -> String {
    if answer.header("content-encoding") != "gzip" {
        return String::from_utf8_lossy(&answer.body).into_owned();
    }
    let mut text = String::new();
    GzDecoder::new(&answer.body[..]).read_to_string(&mut text).expect("a gzip member");
    text
}

#[tokio::test(start_paused = true)]
async fn a_read_whose_answer_changed_never_counts() {
    let plain = ("accept", "application/json");
    let protobuf = ("accept", "application/vnd.kubernetes.protobuf");
    let gzip = ("accept-encoding", "gzip");
    for (sections, hit, (header, value)) in
        [(NEVER, false, plain), (NEVER, false, protobuf), (NEVER, false, gzip), ("", true, plain)]
    {
        let polls = "repeatPolls: {perSecond: 0.1, burst: 3, fromMemoryPerSecond: 1}\n";
        let proxy = Setup::default().config(&format!("{polls}{sections}")).in_memory();
        // Large enough to be compressed.
        let mut large = pod("a", "large", &[], "n1");
        large["metadata"]["annotations"] = json!({"x": "x".repeat(200 << 10)});
        proxy.simulator.put(&group_resource("pods"), large);
        let client = proxy.client().with(header, value);
        for _ in 0..2 {
            client.get(NAMESPACE).await;
        }
        // Another client writes.
        for round in 0..50 {
            let name = format!("other-{round}");
            proxy.simulator.put(&group_resource("pods"), pod("a", &name, &[], "n1"));
            settle().await;
            let answer = client.get(NAMESPACE).await;
            assert!(unpacked(&answer).contains(&name), "{}", answer.summary());
            assert_eq!((answer.is_hit(), paced(&answer)), (hit, None), "{}", answer.summary());
        }
        // From here on nobody writes.
        for _ in 0..3 {
            client.get(NAMESPACE).await;
        }
        assert!(proxy.counted("listless_paced_seconds_count", "") > 0.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_after_a_write_of_the_same_session_to_that_type_never_counts() {
    for (sections, hit) in [(NEVER, false), ("", true)] {
        let polls = "repeatPolls: {perSecond: 0.1, burst: 1, fromMemoryPerSecond: 1}\n";
        let proxy = Setup::default().config(&format!("{polls}{sections}")).in_memory();
        let client = proxy.client();
        for _ in 0..2 {
            client.get(NAMESPACE).await;
        }
        // The writes change nothing in the namespace that is read.
        for round in 0..20 {
            let other = pod("b", &format!("other-{round}"), &[], "n1");
            assert_eq!(client.create("/api/v1/namespaces/b/pods", &other).await.status, 201);
            let answer = client.get(NAMESPACE).await;
            assert_eq!((answer.is_hit(), paced(&answer)), (hit, None), "{}", answer.summary());
        }
        for _ in 0..2 {
            client.get(NAMESPACE).await;
        }
        assert!(proxy.counted("listless_paced_seconds_count", "") > 0.0);
    }
}

#[tokio::test(start_paused = true)]
async fn reads_that_share_a_request_count_once() {
    let polls = "repeatPolls: {perSecond: 0.01, burst: 12}\n\
                 cache: {rules: [{resources: ['*'], freshness: mostRecent}]}\n";
    let proxy = Setup::default().config(polls).in_memory();
    let latency = Effect::Delay(Duration::from_millis(4));
    proxy.simulator.inject(Fault::always(latency, |asked| asked.verb == Verb::List));
    let client = proxy.client();
    // Each round costs the apiserver two requests: the first, and one of all that came meanwhile.
    for round in 0..4 {
        for (answer, _) in all((0..5).map(|_| poll(&client, PODS)).collect()).await {
            assert_eq!((answer.status, paced(&answer)), (200, None), "{round}");
        }
    }
    assert_eq!(proxy.upstream.count(Verb::List, "pods"), 8);
    for left in (0..=4).rev() {
        let is_held = paced(&client.get(PODS).await).is_some();
        assert_eq!(is_held, left == 0, "{left} tokens left");
    }
}
