//! A redirected kubeconfig: another server and authority, the same user.

use std::path::Path;

use base64::{Engine, prelude::BASE64_STANDARD};
use kube::config::{AuthInfo, Cluster, Kubeconfig, NamedCluster};

use super::{
    Error,
    kubeconfig::{checked_context, files, read},
};

/// Returns one context of a kubeconfig with its user unchanged, and with `server` as its cluster.
///
/// Its paths are absolute, which lets the result be in another directory.
pub fn redirected(
    path: Option<&Path>,
    context: Option<&str>,
    server: &str,
    authority_pem: &str,
) -> Result<Kubeconfig, Error> {
    redirect(path, context, |_| Cluster {
        server: Some(server.to_owned()),
        certificate_authority_data: Some(BASE64_STANDARD.encode(authority_pem)),
        ..Cluster::default()
    })
}

/// Returns one context of a kubeconfig with the same server, reached through a proxy. The authority
/// in `authority_data` signs the proxy's certificates.
pub fn proxied(
    path: Option<&Path>,
    context: Option<&str>,
    proxy_url: &str,
    authority_data: &str,
) -> Result<Kubeconfig, Error> {
    redirect(path, context, |cluster| Cluster {
        server: cluster.server,
        proxy_url: Some(proxy_url.to_owned()),
        certificate_authority_data: Some(authority_data.to_owned()),
        ..Cluster::default()
    })
}

fn redirect(
    path: Option<&Path>,
    context: Option<&str>,
    lead: impl FnOnce(Cluster) -> Cluster,
) -> Result<Kubeconfig, Error> {
    let files = files(path);
    let mut kubeconfig = read(path, &files)?;
    let (name, ..) = checked_context(&kubeconfig, context, &files)?;
    kubeconfig.contexts.retain(|context| context.name == name);
    let context = kubeconfig.contexts.first().and_then(|named| named.context.clone());
    let context = context.unwrap_or_default();
    kubeconfig.auth_infos.retain(|user| Some(&user.name) == context.user.as_ref());
    kubeconfig.clusters.retain(|cluster| cluster.name == context.cluster);
    let cluster = kubeconfig.clusters.pop().and_then(|named| named.cluster).unwrap_or_default();
    let cluster = Some(lead(cluster));
    kubeconfig.clusters =
        vec![NamedCluster { name: context.cluster, cluster, ..Default::default() }];
    kubeconfig.current_context = Some(name);
    Ok(kubeconfig)
}

/// Reports whether its users have only client certificates, which a proxy cannot forward.
pub fn has_only_certificate(kubeconfig: &Kubeconfig) -> bool {
    let users = kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref());
    let mut users = users.peekable();
    users.peek().is_some() && users.all(is_certificate_only)
}

fn is_certificate_only(user: &AuthInfo) -> bool {
    let certificate = user.client_certificate.is_some() || user.client_certificate_data.is_some();
    let other = user.token.is_some()
        || user.token_file.is_some()
        || user.exec.is_some()
        || user.auth_provider.is_some()
        || user.username.is_some();
    certificate && !other
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
clusters:
- name: c
  cluster: {server: "https://10.0.0.1:6443", certificate-authority: ca.crt, proxy-url: "http://p:1",
    tls-server-name: x}
- {name: d, cluster: {server: "https://10.0.0.2:6443", insecure-skip-tls-verify: true}}
users:
- {name: u, user: {tokenFile: token, as: bob, something-new: 1}}
- {name: v, user: {client-certificate: v.crt, client-key: v.key}}
contexts:
- {name: prod, context: {cluster: c, user: u, namespace: shop}}
- {name: test, context: {cluster: d, user: v}}
current-context: prod
"#;

    fn written(context: Option<&str>) -> (serde_json::Value, bool) {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("config");
        std::fs::write(&file, KUBECONFIG).expect("written");
        let kubeconfig = redirected(Some(&file), context, "https://127.0.0.1:1", "PEM");
        let kubeconfig = kubeconfig.expect("a context");
        let certificate = has_only_certificate(&kubeconfig);
        let text = serde_json::to_string(&kubeconfig).expect("JSON");
        let text = text.replace(&format!("{}/", directory.path().display()), "DIRECTORY/");
        (serde_json::from_str(&text).expect("JSON"), certificate)
    }

    #[test]
    fn the_user_stays_and_the_cluster_has_only_the_new_server() {
        let (written, certificate_only) = written(None);
        let cluster = serde_json::json!({
            "server": "https://127.0.0.1:1", "certificate-authority-data": "UEVN",
        });
        assert_eq!(written["clusters"], serde_json::json!([{"name": "c", "cluster": cluster}]));
        let user = serde_json::json!({
            "tokenFile": "DIRECTORY/token", "as": "bob", "something-new": 1,
        });
        assert_eq!(written["users"], serde_json::json!([{"name": "u", "user": user}]));
        let context = serde_json::json!({"cluster": "c", "user": "u", "namespace": "shop"});
        assert_eq!(written["contexts"], serde_json::json!([{"name": "prod", "context": context}]));
        assert_eq!(written["current-context"], "prod");
        assert!(!certificate_only);
    }

    #[test]
    fn a_proxied_server_stays_with_the_authority_of_the_proxy() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("config");
        std::fs::write(&file, KUBECONFIG).expect("written");
        let kubeconfig = proxied(Some(&file), None, "http://127.0.0.1:1", "UEVN");
        let kubeconfig = serde_json::to_value(kubeconfig.expect("a context")).expect("JSON");
        let cluster = serde_json::json!({
            "server": "https://10.0.0.1:6443", "proxy-url": "http://127.0.0.1:1",
            "certificate-authority-data": "UEVN",
        });
        assert_eq!(kubeconfig["clusters"], serde_json::json!([{"name": "c", "cluster": cluster}]));
    }

    #[test]
    fn a_user_with_only_a_certificate_is_detected() {
        let (written, certificate_only) = written(Some("test"));
        assert_eq!(written["current-context"], "test");
        assert!(certificate_only);
    }
}
