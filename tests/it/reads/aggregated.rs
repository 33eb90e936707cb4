//! Groups that a server behind the apiserver serves, read by Listless's own user.

use std::time::Duration;

use listless::{
    api::Verb,
    simulator::{Asked, Effect, Fault},
};
use serde_json::{Value, json};

use crate::harness::{Setup, TestProxy, group_resource, pass};

const WIDGETS: &str = "/apis/x.io/v1/widgets";

const NAMED: &str = "cache: {rules: [{resources: [widgets.x.io]}]}\n";

fn serve(proxy: &TestProxy, server: &Value) {
    let service =
        json!({"metadata": {"name": "v1.x.io"}, "spec": {"group": "x.io", "service": server}});
    let services = group_resource("apiservices.apiregistration.k8s.io");
    proxy.simulator.put(&services, service).expect("a served resource");
}

#[tokio::test(start_paused = true)]
async fn an_aggregated_group_is_held_only_if_a_rule_names_it() {
    for (config, held) in [("", false), (NAMED, true)] {
        let proxy = Setup::default().config(config).in_memory();
        serve(&proxy, &json!({"name": "s", "namespace": "a"}));
        let client = proxy.client();
        for _ in 0..3 {
            let answer = client.get(WIDGETS).await;
            assert_eq!(answer.status, 200, "{}", answer.summary());
            assert!(held || answer.detail() == "may-be-aggregated", "{}", answer.summary());
        }
        assert_eq!(client.get(WIDGETS).await.is_hit(), held);
        assert_eq!(proxy.replicas().len(), usize::from(held));
        let asked = proxy.upstream.count(Verb::Get, "apiservices");
        assert_eq!(asked, usize::from(!held), "nobody needs to know the server of what is named");
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_of_unknown_server_is_held_until_its_server_is_known() {
    let proxy = TestProxy::warmed(WIDGETS).await;
    let client = proxy.client();
    serve(&proxy, &json!({"name": "s", "namespace": "a"}));
    assert!(client.get(WIDGETS).await.is_hit());
    // Looked up again after ten minutes, and by no read that waits for it.
    for _ in 0..11 {
        pass(Duration::from_secs(60)).await;
        let lookups = |asked: &Asked| asked.resource == "apiservices";
        proxy.simulator.inject(Fault::next(1, Effect::Delay(Duration::from_secs(1)), lookups));
        let before = tokio::time::Instant::now();
        client.get(WIDGETS).await;
        assert!(before.elapsed() < Duration::from_millis(100));
    }
    pass(Duration::from_secs(2)).await;
    let answer = client.get(WIDGETS).await;
    assert_eq!(answer.detail(), "may-be-aggregated", "{}", answer.summary());
}
