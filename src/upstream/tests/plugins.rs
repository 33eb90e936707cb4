//! Credentials that a plugin returns.

use std::{path::Path, time::Duration};

use super::{
    harness::{Server, network},
    identity::{Kubeconfig, ask, chain, write},
};
use crate::upstream::identity;

/// Writes a plugin that counts its runs in its output: `token` or `certificate`.
fn plugin(directory: &Path, status: &str) -> String {
    let script = directory.join("plugin.sh");
    let text = format!(
        "echo run >> {runs}\nn=$(wc -l < {runs} | tr -d ' ')\ncat <<END\n\
         {{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", \
         \"status\": {{{status}}}}}\nEND\n",
        runs = directory.join("runs").display(),
    );
    std::fs::write(&script, text).unwrap();
    format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, \
         args: [{}], interactiveMode: Never}}",
        script.display()
    )
}

fn runs(kubeconfig: &Kubeconfig) -> usize {
    let runs = std::fs::read_to_string(kubeconfig.directory.path().join("runs"));
    runs.unwrap_or_default().lines().count()
}

#[tokio::test(start_paused = true)]
async fn a_plugin_runs_once_and_again_after_a_refusal() {
    let status = r#""expirationTimestamp": "2999-01-01T00:00:00Z", "token": "$(
        if [ $n = 1 ]; then echo bad; else echo good; fi)$n""#;
    let kubeconfig = Kubeconfig::new(|directory, _| plugin(directory, status));
    let (_, own) = kubeconfig.clients().await;
    for _ in 0..3 {
        assert_eq!(ask(&own, &[]).await, (401, "authorization=Bearer bad1".to_owned()));
    }
    assert_eq!(runs(&kubeconfig), 1);
    crate::testing::pass(Duration::from_secs(11)).await;
    for _ in 0..3 {
        assert_eq!(ask(&own, &[]).await, (200, "authorization=Bearer good2".to_owned()));
    }
    assert_eq!(runs(&kubeconfig), 2);
}

#[tokio::test]
async fn a_plugins_token_is_renewed_before_its_expiry() {
    let status = r#""expirationTimestamp": "2001-01-01T00:00:00Z", "token": "t$n""#;
    let kubeconfig = Kubeconfig::new(|directory, _| plugin(directory, status));
    let (_, own) = kubeconfig.clients().await;
    assert_eq!(ask(&own, &[]).await.1, "authorization=Bearer t2");
    assert_eq!(ask(&own, &[]).await.1, "authorization=Bearer t3");
}

/// A plugin that says `first` at its first run, and what is in a file at each later one.
fn changing(directory: &Path, first: &str, later: &str) -> String {
    let file = directory.join("later");
    std::fs::write(&file, later).unwrap();
    let file = file.display();
    plugin(directory, &format!("$(if [ $n = 1 ]; then echo '{first}'; else cat {file}; fi)"))
}

/// The status of a plugin that returns the certificate of the user.
fn certificate_of(server: &Server) -> String {
    let field = |text: &str| serde_json::to_string(text).unwrap();
    let (certificate, key) = (field(&server.user.certificate), field(&server.user.key));
    format!("\"clientCertificateData\": {certificate}, \"clientKeyData\": {key}")
}

/// Callers with other credentials would act as Listless's user.
#[tokio::test(start_paused = true)]
async fn a_certificate_that_a_plugin_returns_later_is_on_own_connections_only() {
    for expiry in ["", "\"expirationTimestamp\": \"2999-01-01T00:00:00Z\", "] {
        let kubeconfig = Kubeconfig::new(|directory, server| {
            let first = format!("{expiry}\"token\": \"bad\"");
            changing(directory, &first, &certificate_of(server))
        });
        let (plain, own) = kubeconfig.clients().await;
        assert_eq!(ask(&own, &[]).await.0, 401);
        crate::testing::pass(Duration::from_secs(11)).await;
        assert_eq!(ask(&own, &[]).await.1, "certificate ");
        assert_eq!(ask(&plain, &[]).await.1, "");
        let other = ask(&plain, &[("authorization", "Bearer other")]).await.1;
        assert_eq!(other, "authorization=Bearer other");
    }
}

#[tokio::test(start_paused = true)]
async fn a_plugin_may_return_another_kind_of_credential_than_before() {
    let first = r#""expirationTimestamp": "2001-01-01T00:00:00Z", "token": "t1""#;
    let kubeconfig = Kubeconfig::new(|directory, _| changing(directory, first, r#""token": "t2""#));
    let (_, own) = kubeconfig.clients().await;
    crate::testing::pass(Duration::from_secs(11)).await;
    assert_eq!(ask(&own, &[]).await.1, "authorization=Bearer t2");
}

#[tokio::test]
async fn a_plugin_without_any_credential_is_an_error() {
    let kubeconfig = Kubeconfig::new(|directory, _| plugin(directory, ""));
    let path = kubeconfig.directory.path().join("config");
    let error = chain(identity::from_kubeconfig(Some(&path), None).await);
    assert!(error.contains("neither a token nor a certificate"), "{error}");
}

#[tokio::test]
async fn a_slow_plugin_runs_once_for_all_who_wait_and_for_those_who_leave() {
    let status = r#""expirationTimestamp": "2001-01-01T00:00:00Z", "token": "t$n""#;
    let kubeconfig = Kubeconfig::new(|directory, _| plugin(directory, status));
    let (_, own) = kubeconfig.clients().await;
    let script = kubeconfig.directory.path().join("plugin.sh");
    let text = std::fs::read_to_string(&script).unwrap();
    std::fs::write(&script, format!("sleep 1\n{text}")).unwrap();
    for _ in 0..5 {
        let left = tokio::time::timeout(Duration::from_millis(20), ask(&own, &[])).await;
        assert!(left.is_err());
    }
    assert_eq!(ask(&own, &[]).await.1, "authorization=Bearer t2");
    assert_eq!(runs(&kubeconfig), 2);
}

#[tokio::test]
async fn no_error_repeats_a_secret() {
    let token = "c2VjcmV0LXRva2VuLWluLWEtdmVyeS1sb25nLXdvcmQ";
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, \
                args: [SCRIPT, --secret=hush], env: [{name: SECRET, value: hush}], \
                interactiveMode: Never}";
    let fails = format!("echo hush; echo log in {token} >&2; exit 3");
    let prints = format!("echo {token}");
    let provider = "auth-provider: {name: gcp, config: {access-token: hush}}";
    for (script, user, expected) in [
        (&*fails, exec, "exit status: 3: log in …"),
        (&*prints, exec, "printed no ExecCredential"),
        ("", "token: hush, token: hush", "duplicate mapping key"),
        ("", "token: {hush: hush}", "line 7, column 27"),
        ("", "token: \"hush\\nhush\"", "no header allows"),
        ("", provider, "auth-provider \"gcp\""),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let plugin = directory.path().join("plugin.sh");
        std::fs::write(&plugin, script).unwrap();
        let user = user.replace("SCRIPT", &plugin.display().to_string());
        write(&directory, "server: https://apiserver, insecure-skip-tls-verify: true", &user);
        let path = directory.path().join("config");
        let error = chain(identity::from_kubeconfig(Some(&path), None).await);
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("hush") && !error.contains(token), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[tokio::test]
async fn the_error_of_a_plugin_is_reported() {
    let (_, server, _) = network(&["h2"]);
    let directory = tempfile::tempdir().unwrap();
    let cluster = "server: https://apiserver, insecure-skip-tls-verify: true";
    write(&directory, cluster, "exec: {apiVersion: v1, command: /does/not/exist}");
    let path = directory.path().join("config");
    let error = chain(identity::from_kubeconfig(Some(&path), None).await);
    assert!(
        error.contains("here") && error.contains("\"/does/not/exist\" was not found"),
        "{error}"
    );
    drop(server);
}

#[tokio::test]
async fn a_plugin_may_return_a_certificate() {
    let kubeconfig = Kubeconfig::new(|directory, server| {
        let file = directory.join("status");
        std::fs::write(&file, certificate_of(server)).unwrap();
        plugin(directory, &format!("$(cat {})", file.display()))
    });
    let (plain, own) = kubeconfig.clients().await;
    assert_eq!(ask(&own, &[]).await.1, "certificate ");
    assert_eq!(ask(&plain, &[]).await.1, "");
}
