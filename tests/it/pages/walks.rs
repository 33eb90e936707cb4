//! Walks over all pages, beside the apiserver's.

use super::{following, paging, token, walk};
use crate::harness::{PROTOBUF, group_resource, pod, settle, widget};

const PODS: &str = "/api/v1/pods";

const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Lists without a limit, of every scope, style and kind of selector.
const LISTS: &[&str] = &[
    "/api/v1/pods",
    "/api/v1/pods?labelSelector=app",
    "/api/v1/pods?labelSelector=app%3Dweb",
    "/api/v1/pods?labelSelector=app%3Dnone",
    "/api/v1/pods?fieldSelector=status.phase%3DRunning",
    "/api/v1/namespaces/a/pods",
    "/api/v1/namespaces/b/pods",
    "/api/v1/namespaces/none/pods",
    "/api/v1/namespaces/a/pods?labelSelector=app%3Dweb",
    "/api/v1/nodes",
    "/api/v1/nodes?labelSelector=zone%3Dz1",
    "/apis/x.io/v1/widgets",
    "/apis/x.io/v1/namespaces/a/widgets",
    "/apis/x.io/v1/widgets?labelSelector=colour%3Dred",
];

#[tokio::test(start_paused = true)]
async fn every_page_and_token_is_the_apiservers() {
    let proxy = paging(&[PODS, "/api/v1/nodes", "/apis/x.io/v1/widgets"]).await;
    for accept in ["application/json", METADATA] {
        let (client, straight) =
            (proxy.client().with("accept", accept), proxy.straight().with("accept", accept));
        for list in LISTS {
            for limit in 1..=7 {
                let joint = if list.contains('?') { '&' } else { '?' };
                let target = format!("{list}{joint}limit={limit}");
                let (ours, theirs) = (walk(&client, &target).await, walk(&straight, &target).await);
                for (ours, theirs) in ours.iter().zip(&theirs) {
                    assert_eq!(ours.text(), theirs.text(), "{target}");
                    assert!(ours.is_hit(), "{target}: {}", ours.summary());
                    assert_eq!(ours.header("content-type"), theirs.header("content-type"));
                }
                assert_eq!(ours.len(), theirs.len(), "{target}");
            }
        }
    }
    assert_eq!(proxy.upstream.all().len(), proxy.upstream.reviews(), "nothing was forwarded");
}

#[tokio::test(start_paused = true)]
async fn pages_in_protobuf_are_the_apiservers() {
    let proxy = paging(&[PODS]).await;
    for accept in [PROTOBUF.to_owned(), METADATA.replace("application/json", PROTOBUF)] {
        let (client, straight) =
            (proxy.client().with("accept", &accept), proxy.straight().with("accept", &accept));
        client.get(PODS).await;
        client.get(PODS).await;
        for list in LISTS.iter().filter(|list| list.contains("pods")) {
            for limit in 1..=7 {
                let joint = if list.contains('?') { '&' } else { '?' };
                let mut target = format!("{list}{joint}limit={limit}");
                // The tokens are those of the same pages in JSON.
                loop {
                    let (ours, theirs) = (client.get(&target).await, straight.get(&target).await);
                    assert!(ours.is_hit(), "{target}: {}", ours.summary());
                    assert!(ours.body == theirs.body, "{target}: {}", ours.body.escape_ascii());
                    let page = proxy.straight().get(&target).await;
                    let Some(token) = token(&page) else { break };
                    target = following(&format!("{list}{joint}limit={limit}"), &token);
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn later_pages_show_the_version_of_the_first_while_objects_change() {
    let proxy = paging(&[PODS, "/apis/x.io/v1/widgets"]).await;
    let (client, straight) = (proxy.client(), proxy.straight());
    let all = client.get(PODS).await;
    let target = format!("{PODS}?limit=2");
    let first = client.get(&target).await;
    assert_eq!(first.json()["metadata"]["remainingItemCount"], 4);
    let widgets = "/apis/x.io/v1/widgets?limit=1";
    let widget_page = client.get(widgets).await;
    for round in 0..3 {
        let name = format!("new-{round}");
        let pods = group_resource("pods");
        proxy.simulator.put(&pods, pod("a", &name, &[("app", "web")], "n1"));
        proxy.simulator.put(&pods, pod("b", "lone", &[("round", &name)], "n2"));
        proxy.simulator.put(&group_resource("widgets.x.io"), widget("b", &name, "red"));
        settle().await;
        assert!(client.get(&target).await.is_hit(), "a list of the newer state is also in pages");
    }
    let mut names = first.names();
    let mut next = token(&first);
    while let Some(token) = next {
        let target = following(&target, &token);
        let (page, theirs) = (client.get(&target).await, straight.get(&target).await);
        assert!(page.is_hit(), "{}", page.summary());
        assert_eq!(page.detail(), "exact");
        assert_eq!(page.version(), first.version());
        assert_eq!(page.text(), theirs.text());
        names.extend(page.names());
        next = super::token(&page);
    }
    assert_eq!(names, all.names());
    let target = following(widgets, &token(&widget_page).expect("a token"));
    let (page, theirs) = (client.get(&target).await, straight.get(&target).await);
    assert!(page.is_hit(), "{}", page.summary());
    assert_eq!(page.text(), theirs.text());
}

#[tokio::test(start_paused = true)]
async fn selectors_and_limits_may_change_between_pages() {
    let proxy = paging(&[PODS]).await;
    let first = proxy.client().get(&format!("{PODS}?limit=2")).await;
    let token = token(&first).expect("a token");
    proxy.simulator.put(&group_resource("pods"), pod("b", "late", &[("app", "web")], "n1"));
    settle().await;
    for target in [
        format!("{PODS}?continue={token}"),
        format!("{PODS}?continue={token}&limit=0"),
        format!("{PODS}?continue={token}&limit=-1"),
        format!("{PODS}?continue={token}&limit=1"),
        format!("{PODS}?continue={token}&limit=3"),
        format!("{PODS}?continue={token}&limit=500"),
        format!("{PODS}?limit=1&labelSelector=app%3Dweb&continue={token}"),
        format!("{PODS}?limit=1&fieldSelector=spec.nodeName%3Dn1&continue={token}"),
        format!("{PODS}?labelSelector=app%3Dnone&continue={token}"),
    ] {
        let (ours, theirs) =
            (proxy.client().get(&target).await, proxy.straight().get(&target).await);
        assert_eq!(ours.text(), theirs.text(), "{target}");
        assert!(ours.is_hit(), "{target}: {}", ours.summary());
    }
}

#[tokio::test(start_paused = true)]
async fn pages_of_memory_and_of_the_apiserver_may_alternate() {
    let proxy = paging(&[PODS]).await;
    let (client, straight) = (proxy.client(), proxy.straight());
    let target = format!("{PODS}?limit=1");
    let (mut page, mut names) = (straight.get(&target).await, Vec::new());
    for number in 0.. {
        names.extend(page.names());
        let Some(token) = token(&page) else { break };
        let target = following(&target, &token);
        page =
            if number % 2 == 0 { client.get(&target).await } else { straight.get(&target).await };
        assert!(number % 2 == 1 || page.is_hit(), "{}", page.summary());
    }
    assert_eq!(names, client.get(PODS).await.names());
}
