//! The credentials of a request, and their sources.

use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as BASE64_URL_SAFE_NO_PAD},
};
use http::{Request, Response, StatusCode};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tempfile::TempDir;
use tokio::io::DuplexStream;
use tokio_rustls::server::TlsStream;

use super::harness::{Network, Server, network, text};
use crate::{
    body::Body,
    metrics::Metrics,
    upstream::{
        Client, Lane, Own, Pool, Settings,
        identity::{self, Access},
    },
};

/// Returns the credentials of the request; 401 if the token begins with `bad`.
async fn apiserver(stream: TlsStream<DuplexStream>) {
    let certificate = stream.get_ref().1.peer_certificates().is_some();
    let service = service_fn(move |request: Request<Incoming>| async move {
        let mut headers: Vec<_> = request
            .headers()
            .iter()
            .filter(|(name, _)| *name != http::header::CONTENT_LENGTH)
            .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
            .collect();
        headers.sort();
        let refused = headers.iter().any(|header| header.contains("Bearer bad"));
        let certificate = if certificate { "certificate " } else { "" };
        let mut response = Response::new(Body::full(format!("{certificate}{}", headers.join(" "))));
        if refused {
            *response.status_mut() = StatusCode::UNAUTHORIZED;
        }
        Ok::<_, Infallible>(response)
    });
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

/// A kubeconfig with one context, `here`, and the given lines for its user.
pub(super) struct Kubeconfig {
    pub(super) directory: TempDir,
    network: Network,
}

impl Kubeconfig {
    pub(super) fn new(user: impl FnOnce(&Path, &Server) -> String) -> Self {
        let (network, server, _) = network(&["h2", "http/1.1"]);
        let directory = tempfile::tempdir().unwrap();
        let user = user(directory.path(), &server);
        let authority = STANDARD.encode(&server.authority);
        let cluster =
            format!("server: https://apiserver/base, certificate-authority-data: {authority}");
        write(&directory, &cluster, &user);
        server.serve(apiserver);
        Self { directory, network }
    }

    async fn access(&self) -> Access {
        let path = self.directory.path().join("config");
        identity::from_kubeconfig(Some(&path), None).await.unwrap()
    }

    pub(super) async fn clients(&self) -> (Pool, Own) {
        self.access().await.clients(Arc::new(self.network.clone()), Settings::default())
    }
}

pub(super) fn write(directory: &TempDir, cluster: &str, user: &str) {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
         clusters:\n- {{name: c, cluster: {{{cluster}}}}}\n\
         users:\n- {{name: u, user: {{{user}}}}}\n\
         contexts:\n- {{name: here, context: {{cluster: c, user: u, namespace: shop}}}}\n\
         - {{name: elsewhere, context: {{cluster: missing, user: u}}}}\n\
         - {{name: nobody, context: {{cluster: c, user: missing}}}}\n"
    );
    std::fs::write(directory.path().join("config"), text).unwrap();
}

pub(super) async fn ask(client: &impl Client, headers: &[(&'static str, &str)]) -> (u16, String) {
    let mut request = Request::get("/").body(Body::empty()).unwrap();
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    let response = client.send(request, Lane::Short).await.unwrap();
    (response.status().as_u16(), text(response).await)
}

#[tokio::test]
async fn the_own_client_replaces_the_identity_of_a_request() {
    let kubeconfig = Kubeconfig::new(|_, _| "token: mine".to_owned());
    let (plain, own) = kubeconfig.clients().await;
    let claims = [
        ("authorization", "Bearer other"),
        ("x-remote-user", "root"),
        ("x-remote-extra-a", "b"),
        ("impersonate-user", "root"),
        ("impersonate-group", "system:masters"),
        ("accept", "a/b"),
    ];
    assert_eq!(ask(&own, &claims).await.1, "accept=a/b authorization=Bearer mine");
    let acting = own.allowing_impersonation();
    assert_eq!(
        ask(&acting, &claims).await.1,
        "accept=a/b authorization=Bearer mine impersonate-group=system:masters \
         impersonate-user=root"
    );
    let asked = ask(&plain, &claims[..1]).await.1;
    assert_eq!(asked, "authorization=Bearer other", "the plain pool passes credentials on");
    assert_eq!(ask(&plain, &[]).await.1, "", "and adds none");
    assert_eq!(
        kubeconfig.network.dialled(),
        2,
        "shared, but not with whom the server has not accepted"
    );
}

#[tokio::test]
async fn a_configured_impersonation_applies_unless_a_request_has_its_own() {
    let user = "token: mine, as: deputy, as-groups: [g1, g2], as-user-extra: {k: [v]}";
    let kubeconfig = Kubeconfig::new(|_, _| user.to_owned());
    let (_, own) = kubeconfig.clients().await;
    let deputy = "authorization=Bearer mine impersonate-extra-k=v impersonate-group=g1 \
                  impersonate-group=g2 impersonate-user=deputy";
    assert_eq!(ask(&own, &[("impersonate-user", "x")]).await.1, deputy);
    let acting = own.allowing_impersonation();
    assert_eq!(ask(&acting, &[]).await.1, deputy);
    let other = "authorization=Bearer mine impersonate-user=x";
    assert_eq!(ask(&acting, &[("impersonate-user", "x")]).await.1, other);
    // The apiserver would act as the owner of the token.
    for ignored in [
        &[("impersonate-user", "")][..],
        &[("impersonate-x", "1")],
        &[("impersonate-group", "system:masters")],
        &[("impersonate-user", "x"), ("impersonate-user", "y")],
    ] {
        assert_eq!(ask(&acting, ignored).await.1, deputy, "{ignored:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rotated_token_file_is_read_again() {
    let kubeconfig = Kubeconfig::new(|directory, _| {
        std::fs::write(directory.join("token"), "one\n").unwrap();
        "tokenFile: token".to_owned()
    });
    let (_, own) = kubeconfig.clients().await;
    assert_eq!(ask(&own, &[]).await.1, "authorization=Bearer one");
    std::fs::write(kubeconfig.directory.path().join("token"), "two").unwrap();
    assert_eq!(ask(&own, &[]).await.1, "authorization=Bearer one");
    crate::testing::pass(Duration::from_secs(61)).await;
    assert_eq!(ask(&own, &[]).await.1, "authorization=Bearer two");
    // A script that writes it anew empties it first.
    std::fs::write(kubeconfig.directory.path().join("token"), "\n").unwrap();
    crate::testing::pass(Duration::from_secs(61)).await;
    assert_eq!(ask(&own, &[]).await.1, "authorization=Bearer two");
    std::fs::remove_file(kubeconfig.directory.path().join("token")).unwrap();
    crate::testing::pass(Duration::from_secs(61)).await;
    assert_eq!(ask(&own, &[]).await.1, "authorization=Bearer two", "the last one goes on");
}

#[tokio::test]
async fn the_authority_may_be_in_a_file_beside_the_kubeconfig() {
    let (network, server, _) = network(&["h2", "http/1.1"]);
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ca.crt"), &server.authority).unwrap();
    let cluster = "server: https://apiserver/base, certificate-authority: ca.crt";
    write(&directory, cluster, "token: mine");
    server.serve(apiserver);
    let (_, own) = Kubeconfig { directory, network }.clients().await;
    assert_eq!(ask(&own, &[]).await.1, "authorization=Bearer mine");
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_is_read_again_at_a_limited_rate() {
    let kubeconfig = Kubeconfig::new(|directory, _| {
        std::fs::write(directory.join("token"), "bad1").unwrap();
        "tokenFile: token".to_owned()
    });
    let (_, own) = kubeconfig.clients().await;
    let token = kubeconfig.directory.path().join("token");
    std::fs::write(&token, "good").unwrap();
    assert_eq!(ask(&own, &[]).await.0, 401, "read just now");
    crate::testing::pass(Duration::from_secs(11)).await;
    assert_eq!(ask(&own, &[]).await, (200, "authorization=Bearer good".to_owned()));
    // A request with a body is not sent again.
    std::fs::write(&token, "bad2").unwrap();
    crate::testing::pass(Duration::from_secs(61)).await;
    let request = || Request::post("/").body(Body::full("{}")).unwrap();
    assert_eq!(own.send(request(), Lane::Short).await.unwrap().status(), 401);
    std::fs::write(&token, "good").unwrap();
    crate::testing::pass(Duration::from_secs(11)).await;
    assert_eq!(own.send(request(), Lane::Short).await.unwrap().status(), 401);
    assert_eq!(own.send(request(), Lane::Short).await.unwrap().status(), 200, "the next one is");
}

#[tokio::test]
async fn a_client_certificate_is_used_for_own_requests_only() {
    let kubeconfig = Kubeconfig::new(|directory, server| {
        std::fs::write(directory.join("user.crt"), &server.user.certificate).unwrap();
        let key = STANDARD.encode(&server.user.key);
        format!("client-certificate: user.crt, client-key-data: {key}")
    });
    let (plain, own) = kubeconfig.clients().await;
    assert_eq!(ask(&own, &[]).await.1, "certificate ");
    assert_eq!(ask(&plain, &[]).await.1, "");
    assert_eq!(kubeconfig.network.dialled(), 2);
}

#[tokio::test]
async fn basic_authentication_is_passed_on() {
    let kubeconfig = Kubeconfig::new(|_, _| "username: a, password: b".to_owned());
    let (_, own) = kubeconfig.clients().await;
    assert_eq!(ask(&own, &[]).await.1, "authorization=Basic YTpi");
}

#[tokio::test]
async fn an_unverified_server_is_accepted_only_if_configured() {
    for (line, taken) in [("insecure-skip-tls-verify: true", true), ("tls-server-name: x", false)] {
        let (network, server, _) = network(&["h2"]);
        server.serve(apiserver);
        let directory = tempfile::tempdir().unwrap();
        write(&directory, &format!("server: https://other, {line}"), "token: t");
        let path = directory.path().join("config");
        let access = identity::from_kubeconfig(Some(&path), None).await.unwrap();
        let (plain, _) = access.clients(Arc::new(network), Settings::default());
        let request = Request::get("/").body(Body::empty()).unwrap();
        assert_eq!(plain.send(request, Lane::Short).await.is_ok(), taken, "{line}");
    }
}

#[tokio::test]
async fn a_service_account_is_read_from_its_directory() {
    let (network, server, _) = network(&["h2"]);
    let directory = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    let missing = chain(identity::in_cluster(directory.path(), "apiserver", 443).await);
    assert!(missing.contains("ca.crt"), "{missing}");
    put("ca.crt", &server.authority);
    let missing = chain(identity::in_cluster(directory.path(), "apiserver", 443).await);
    assert!(missing.contains("token") || missing.contains("No such file"), "{missing}");
    put("token", "pod-token");
    put("namespace", "shop");
    server.serve(apiserver);
    let access = identity::in_cluster(directory.path(), "apiserver", 443).await.unwrap();
    assert_eq!(access.endpoint().authority().as_str(), "apiserver:443");
    assert_eq!(access.source().namespace(), "shop");
    let (_, own) = access.clients(Arc::new(network), Settings::default());
    assert_eq!(ask(&own, &[]).await.1, "authorization=Bearer pod-token");
    let address = identity::in_cluster(directory.path(), "fd00::1", 6443).await.unwrap();
    assert_eq!(address.endpoint().authority().as_str(), "[fd00::1]:6443");
}

/// Returns a token of a pod that expires at this Unix time.
fn ending(at: u32) -> String {
    let claims = BASE64_URL_SAFE_NO_PAD.encode(format!("{{\"exp\":{at}}}"));
    format!("e30.{claims}.c2ln")
}

#[tokio::test(start_paused = true)]
async fn metrics_show_the_expiry_and_changes_of_a_service_accounts_token() {
    const EXPIRY: &str = "listless_service_account_token_expiry_timestamp_seconds";
    const RELOADS: &str = "listless_service_account_token_reloads_total";
    let (network, server, _) = network(&["h2"]);
    let directory = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    put("ca.crt", &server.authority);
    put("token", "opaque");
    server.serve(apiserver);
    let metrics = Metrics::new();
    let access = identity::in_cluster(directory.path(), "apiserver", 443).await.unwrap();
    let access = access.metered(&metrics);
    let (_, own) = access.clients(Arc::new(network), Settings::default());
    let told = || {
        let text = metrics.render();
        [
            EXPIRY.to_owned(),
            format!("{RELOADS}{{result=\"success\"}}"),
            format!("{RELOADS}{{result=\"failure\"}}"),
        ]
        .map(|name| {
            text.lines().find_map(|line| line.strip_prefix(&name)?.trim().parse::<f64>().ok())
        })
    };
    assert_eq!(told(), [None, Some(0.0), Some(0.0)]);
    put("token", &ending(5000));
    crate::testing::pass(Duration::from_secs(61)).await;
    for _ in 0..2 {
        ask(&own, &[]).await;
        assert_eq!(told(), [Some(5000.0), Some(1.0), Some(0.0)]);
        crate::testing::pass(Duration::from_secs(61)).await;
    }
    std::fs::remove_file(directory.path().join("token")).unwrap();
    ask(&own, &[]).await;
    assert_eq!(told(), [Some(5000.0), Some(1.0), Some(1.0)]);
    let text = metrics.render();
    assert!(!text.contains("e30") && !text.contains("opaque"), "no token in {text}");
}

pub(super) fn chain<T>(outcome: Result<T, identity::Error>) -> String {
    let error = outcome.err().expect("it fails");
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[tokio::test]
async fn errors_name_the_file_the_context_and_the_existing_ones() {
    let kubeconfig = Kubeconfig::new(|_, _| "token: t".to_owned());
    let path = kubeconfig.directory.path().join("config");
    let file = path.display().to_string();
    let access = kubeconfig.access().await;
    assert_eq!(access.source().namespace(), "shop");
    assert_eq!(access.source().to_string(), format!("context \"here\" of kubeconfig {file}"));
    for (context, words) in [
        ("nowhere", "no context \"nowhere\"; it has the contexts here, elsewhere, nobody"),
        ("elsewhere", "names cluster \"missing\""),
        ("nobody", "names user \"missing\""),
    ] {
        let error = chain(identity::from_kubeconfig(Some(&path), Some(context)).await);
        assert!(error.contains(&file) && error.contains(words), "{error}");
    }
    let absent = kubeconfig.directory.path().join("absent");
    let error = chain(identity::from_kubeconfig(Some(&absent), None).await);
    assert!(error.contains("absent") && error.contains("No such file"), "{error}");
    for (cluster, words) in [
        ("server: \"ftp://x\"", "neither http:// nor https://"),
        ("server: \"https://x\", proxy-url: \"socks5://p\"", "socks5"),
        ("server: \"https://x\", certificate-authority: gone.crt", "gone.crt"),
    ] {
        write(&kubeconfig.directory, cluster, "token: t");
        let error = chain(identity::from_kubeconfig(Some(&path), None).await);
        assert!(error.contains(words) && error.contains(&file), "{error}");
    }
}
