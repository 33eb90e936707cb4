//! Tables from memory: the apiserver's own bytes, with ages of the moment of the answer.

mod ages;
mod reads;
mod watches;

use crate::harness::{TestClient, TestProxy, settle};

/// The Accept header of kubectl.
const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,\
    application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

/// The values of `includeObject`, as parameters.
const INCLUDED: [&str; 4] =
    ["", "includeObject=None", "includeObject=Metadata", "includeObject=Object"];

/// A client of Tables.
fn tables(client: &TestClient) -> TestClient {
    client.with("accept", KUBECTL)
}

/// Makes memory answer Tables of this path.
async fn warm(proxy: &TestProxy, path: &str) {
    let client = tables(&proxy.client());
    client.get(path).await;
    let second = client.get(path).await;
    assert!(second.is_hit(), "{path}: {} {}", second.status, second.cache_status());
    settle().await;
    proxy.upstream.forget();
}

fn with(path: &str, parameter: &str) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{path}{separator}{parameter}").trim_end_matches(['?', '&']).to_owned()
}
