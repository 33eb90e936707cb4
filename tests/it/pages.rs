//! Lists in pages: the apiserver's own pages and tokens, from memory.

mod held;
mod walks;

use crate::harness::{Answer, Setup, TestClient, TestProxy};

/// A proxy with replicas of these collections, which has seen the apiserver's tokens.
async fn paging(paths: &[&str]) -> TestProxy {
    let proxy = Setup::default().in_memory();
    for path in paths {
        proxy.warm(path).await;
        let taught = proxy.client().get(&format!("{path}?limit=1")).await;
        assert_eq!(taught.detail(), "limit", "{path}");
    }
    proxy.upstream.forget();
    proxy
}

/// The token of the next page.
fn token(answer: &Answer) -> Option<String> {
    let json = answer.json();
    let token = json["metadata"]["continue"].as_str().filter(|token| !token.is_empty());
    token.map(str::to_owned)
}

/// The target of the next page.
fn following(target: &str, token: &str) -> String {
    format!("{target}&continue={token}")
}

/// Reads all pages.
async fn walk(client: &TestClient, target: &str) -> Vec<Answer> {
    let mut pages = vec![client.get(target).await];
    while let Some(token) = token(&pages[pages.len() - 1]) {
        pages.push(client.get(&following(target, &token)).await);
    }
    pages
}
