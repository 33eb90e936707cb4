//! `listless sidecar` beside a real apiserver, as a service account whose rights and tokens change.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::clusters::{Cluster, Machine, available};
use crate::faults::added;
use crate::rig::client::{Answer, Client, Protocol, Request, Server};
use crate::rig::control_plane::{Component, ControlPlane, User, Version};
use crate::rig::process::Signal;
use crate::rig::proxy_process::ProxyProcess;
use crate::rig::wait::{until, until_hit_at_last};

const ACCOUNT: &str = "/api/v1/namespaces/shop/serviceaccounts/beside";
const BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings";
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles";
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/shop/configmaps";

/// The documented time after which withdrawn rights end answers from memory.
const REVOKED_LIMIT: Duration = Duration::from_secs(65);
/// The time after which a replaced token is copied and known.
const ROTATED_LIMIT: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_sidecar_answers_its_service_account_and_forwards_all_others_on_1_36() {
    answers_its_service_account(Version::V1_36).await;
}

#[tokio::test]
async fn a_sidecar_answers_its_service_account_and_forwards_all_others_on_1_30() {
    answers_its_service_account(Version::V1_30).await;
}

async fn answers_its_service_account(version: Version) {
    let Some(cluster) = Cluster::take(version).await else { return };
    let pod = Pod::start(cluster.plane()).await.expect("a sidecar");
    let first = pod.mirrored("token");
    let own = pod.client(Some(&first));
    let warm =
        until_hit_at_last(&own, &Request::get(CONFIG_MAPS), ROTATED_LIMIT).await.expect("a hit");
    assert_eq!(said(&warm), said(&pod.straight(Some(&first)).await));
    pod.forwards_unauthenticated(&first).await;
    let impersonating = Request::get(CONFIG_MAPS).header("Impersonate-User", "reader");
    let impersonating = own.send(impersonating).await.expect("an answer");
    assert_eq!((impersonating.status.as_u16(), impersonating.is_hit()), (403, false));

    let rotated = Instant::now();
    let second = pod.replace_token().await;
    assert_ne!(first, second);
    let renewed = pod.client(Some(&second));
    until("the new token is used", ROTATED_LIMIT, async || {
        Ok(pod.mirrored("token") == second && get(&renewed, CONFIG_MAPS).await.is_hit())
    })
    .await
    .expect("a rotation");
    let rotated = rotated.elapsed();
    assert!(get(&own, CONFIG_MAPS).await.is_hit(), "the token before is still good");

    let watch = format!("{CONFIG_MAPS}?watch=1&resourceVersion=0");
    let watch = renewed.open(Request::get(&watch)).await.expect("an answer");
    assert!(watch.headers()["cache-status"].to_str().is_ok_and(|said| said.contains("hit")));
    let revoked = Instant::now();
    send(&pod.admin, Method::DELETE, &format!("{BINDING}/beside")).await;
    until("the withdrawn permission counts", REVOKED_LIMIT, async || {
        let answer = get(&renewed, CONFIG_MAPS).await;
        assert!(answer.status == 403 || answer.is_hit(), "{}", answer.status);
        Ok(answer.status == 403)
    })
    .await
    .expect("a refusal");
    let polls = revoked.elapsed();
    let direct = pod.straight(Some(&second)).await;
    assert_eq!(said(&get(&renewed, CONFIG_MAPS).await), said(&direct));
    let ended = tokio::time::timeout(REVOKED_LIMIT, watch.into_body().collect()).await;
    ended.expect("an end of the watch").expect("a clean one");
    eprintln!(
        "proof: sidecar on {}: a new token is known after {rotated:.1?}; without rights 403 after \
         {polls:.1?}, and the watch ended after {:.1?}",
        version.name(),
        revoked.elapsed()
    );
    for left in [format!("{ROLE}/beside"), ACCOUNT.to_owned()] {
        send(&pod.admin, Method::DELETE, &left).await;
    }
}

#[tokio::test]
async fn a_deleted_service_account_is_refused_within_a_minute_on_1_36() {
    is_refused_once_deleted(Version::V1_36).await;
}

#[tokio::test]
async fn a_deleted_service_account_is_refused_within_a_minute_on_1_30() {
    is_refused_once_deleted(Version::V1_30).await;
}

async fn is_refused_once_deleted(version: Version) {
    let Some(cluster) = Cluster::take(version).await else { return };
    let pod = Pod::start(cluster.plane()).await.expect("a sidecar");
    let token = pod.mirrored("token");
    let own = pod.client(Some(&token));
    let list =
        until_hit_at_last(&own, &Request::get(CONFIG_MAPS), ROTATED_LIMIT).await.expect("a hit");
    let list = list.json().expect("JSON");
    let version_shown = list["metadata"]["resourceVersion"].as_str().expect("a version");
    let watch = format!("{CONFIG_MAPS}?watch=1&resourceVersion={version_shown}");
    let direct = Client::new(&pod.apiserver, Some(&token), Protocol::Http2);
    let mut watches = Vec::new();
    for client in [&direct, &own] {
        watches.push(client.open(Request::get(&watch)).await.expect("a watch").into_body());
    }
    let deleted = Instant::now();
    send(&pod.admin, Method::DELETE, ACCOUNT).await;
    let mut straight = None;
    until("the deleted account counts", REVOKED_LIMIT, async || {
        if straight.is_none() && pod.straight(Some(&token)).await.status == 401 {
            straight = Some(deleted.elapsed());
        }
        let answer = get(&own, CONFIG_MAPS).await;
        assert!(answer.status == 401 || answer.is_hit(), "{} {}", answer.status, answer.excerpt());
        Ok(answer.status == 401)
    })
    .await
    .expect("a refusal");
    let refused = deleted.elapsed();
    create(&pod.admin, CONFIG_MAPS, "late").await;
    let mut told = Vec::new();
    for watch in watches {
        told.push(tokio::time::timeout(ROTATED_LIMIT, added(watch, 1)).await.unwrap_or_default());
    }
    send(&pod.admin, Method::DELETE, &format!("{CONFIG_MAPS}/late")).await;
    eprintln!(
        "proof: a deleted service account on {}: 401 after {:.1?} straight and {refused:.1?} through Listless; \
         afterwards open watches tell {told:?}",
        version.name(),
        straight.unwrap_or_default(),
    );
    assert_eq!(told[0], told[1], "{}", pod.proxy.log());
    for left in [format!("{ROLE}/beside"), format!("{BINDING}/beside")] {
        send(&pod.admin, Method::DELETE, &left).await;
    }
}

#[tokio::test]
async fn a_rotated_authority_of_the_apiserver_is_followed_on_1_36() {
    follows_another_authority(Version::V1_36).await;
}

#[tokio::test]
async fn a_rotated_authority_of_the_apiserver_is_followed_on_1_30() {
    follows_another_authority(Version::V1_30).await;
}

async fn follows_another_authority(version: Version) {
    if !available(version) {
        return;
    }
    let _machine = Machine::beside().await;
    let (plane, mut pod) = Pod::beside_a_config_map(version, "before").await;
    let token = pod.mirrored("token");
    let own = pod.client(Some(&token));
    until_hit_at_last(&own, &Request::get(CONFIG_MAPS), ROTATED_LIMIT).await.expect("a hit");

    plane.stop(Component::Apiserver).expect("an end");
    plane.replace_authority().expect("no certificate");
    plane.start_again(Component::Apiserver).expect("a start");
    plane.ready().await.expect("a ready apiserver");
    let rotated = Instant::now();
    // For some time only the apiserver has the new one.
    tokio::time::sleep(ROTATED_LIMIT).await;
    let untrusted = get(&own, CONFIG_MAPS).await;
    assert!(!untrusted.is_hit() && untrusted.status == 503, "{}", untrusted.excerpt());
    pod.apiserver = plane.server().expect("a server");
    let published = Instant::now();
    publish(&pod.folder.path().join("account"), &pod.apiserver, &token);
    let admin = plane.client(User::Admin, Protocol::Http1).expect("a client");
    create(&admin, CONFIG_MAPS, "after").await;
    until("the published certificate is used", REVOKED_LIMIT, async || {
        let answer = get(&own, CONFIG_MAPS).await;
        assert!(answer.status == 200 || answer.status == 503, "{}", answer.excerpt());
        Ok(answer.is_hit())
    })
    .await
    .expect("a recovery");
    let recovered = published.elapsed();
    let shown = get(&own, CONFIG_MAPS).await;
    assert_eq!(said(&shown), said(&pod.straight(Some(&token)).await));
    eprintln!(
        "proof: another authority of the apiserver on {}: from memory again {recovered:.1?} after the file \
         was replaced, {:.1?} after the rotation",
        version.name(),
        rotated.elapsed()
    );
}

pub(crate) async fn create(admin: &Client, collection: &str, name: &str) {
    let object = json!({"metadata": {"name": name}});
    let answer = admin.send(Request::new(Method::POST, collection).json(&object)).await;
    answer.expect("an answer").successful().expect("created");
}

/// A pod's directories, its service account, and Listless.
pub(crate) struct Pod {
    admin: Client,
    apiserver: Server,
    pub(crate) proxy: ProxyProcess,
    folder: TempDir,
}

// === impl Pod ===

impl Pod {
    /// Starts a control plane with one config map of this name, and a pod there.
    pub(crate) async fn beside_a_config_map(version: Version, name: &str) -> (ControlPlane, Self) {
        let plane = ControlPlane::start(version).await.expect("a control plane");
        let admin = plane.client(User::Admin, Protocol::Http1).expect("a client");
        create(&admin, "/api/v1/namespaces", "shop").await;
        create(&admin, CONFIG_MAPS, name).await;
        let pod = Self::start(&plane).await.expect("a sidecar");
        (plane, pod)
    }

    pub(crate) async fn start(plane: &ControlPlane) -> Result<Self> {
        let admin = plane.client(User::Admin, Protocol::Http1)?;
        make_account(&admin).await?;
        let (folder, apiserver) = (TempDir::new()?, plane.server()?);
        let source = folder.path().join("account");
        fs::create_dir(&source)?;
        publish(&source, &apiserver, &token(&admin).await);
        let proxy = ProxyProcess::sidecar(&apiserver, &source, folder.path()).await?;
        Ok(Self { admin, apiserver, proxy, folder })
    }

    /// Starts Listless again in the same directories.
    pub(crate) async fn restart(&mut self, program: &Path) -> Result<()> {
        self.proxy.signal(Signal::Terminate)?;
        until("the sidecar ends", ROTATED_LIMIT, async || Ok(!self.proxy.is_running())).await?;
        let (pod, account) = (self.folder.path(), self.folder.path().join("account"));
        self.proxy = ProxyProcess::sidecar_program(program, &self.apiserver, &account, pod).await?;
        Ok(())
    }

    /// Its state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub(crate) fn mirrored(&self, file: &str) -> String {
        fs::read_to_string(self.folder.path().join("mirror").join(file)).expect("a file")
    }

    pub(crate) fn client(&self, token: Option<&str>) -> Client {
        Client::new(self.proxy.server(), token, Protocol::Http2)
    }

    async fn straight(&self, token: Option<&str>) -> Answer {
        get(&Client::new(&self.apiserver, token, Protocol::Http2), CONFIG_MAPS).await
    }

    /// Gives the pod another token, as the kubelet does from time to time.
    async fn replace_token(&self) -> String {
        let token = token(&self.admin).await;
        publish(&self.folder.path().join("account"), &self.apiserver, &token);
        token
    }

    async fn forwards_unauthenticated(&self, own: &str) {
        let reader = User::Reader.token();
        let cut = &own[..own.len() - 1];
        for stranger in [None, Some("not-a-token"), Some(&*reader), Some(cut)] {
            let through = get(&self.client(stranger), CONFIG_MAPS).await;
            let direct = self.straight(stranger).await;
            assert!(!through.is_hit(), "{stranger:?}");
            assert_eq!(through.status, direct.status, "{stranger:?}");
            assert_eq!(said(&through), said(&direct), "{stranger:?}");
        }
    }
}

async fn make_account(admin: &Client) -> Result<()> {
    let metadata = json!({"name": "beside", "namespace": "shop"});
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]);
    let subjects = json!([{"kind": "ServiceAccount", "name": "beside", "namespace": "shop"}]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "beside"});
    let accounts = ACCOUNT.trim_end_matches("/beside");
    for (collection, object) in [
        (accounts, json!({"metadata": metadata})),
        (ROLE, json!({"metadata": metadata, "rules": rules})),
        (BINDING, json!({"metadata": metadata, "subjects": subjects, "roleRef": role})),
    ] {
        admin.send(Request::new(Method::POST, collection).json(&object)).await?.successful()?;
    }
    Ok(())
}

/// A token as the kubelet requests one.
async fn token(admin: &Client) -> String {
    let request = json!({"spec": {"expirationSeconds": 3600, "audiences": []}});
    let request = Request::new(Method::POST, &format!("{ACCOUNT}/token")).json(&request);
    let answer = admin.send(request).await.expect("an answer").successful().expect("a token");
    let answer = answer.json().expect("a token");
    answer["status"]["token"].as_str().expect("a token").to_owned()
}

/// Writes a service account's files as the kubelet does: all at once.
fn publish(source: &Path, apiserver: &Server, token: &str) {
    let name = format!("..{}", uuid::Uuid::new_v4());
    fs::create_dir(source.join(&name)).expect("a directory");
    for (file, content) in [
        ("ca.crt", apiserver.authorities_pem()),
        ("namespace", b"shop"),
        ("token", token.as_bytes()),
    ] {
        fs::write(source.join(&name).join(file), content).expect("written");
        let link = source.join(file);
        if !link.exists() {
            std::os::unix::fs::symlink(Path::new("..data").join(file), &link).expect("a link");
        }
    }
    let next = source.join("..data_tmp");
    std::os::unix::fs::symlink(&name, &next).expect("a link");
    fs::rename(&next, source.join("..data")).expect("replaced");
}

async fn get(client: &Client, path: &str) -> Answer {
    client.get(path).await.expect("an answer")
}

async fn send(client: &Client, method: Method, path: &str) {
    let answer = client.send(Request::new(method, path)).await.expect("an answer");
    answer.successful().expect("a success");
}

/// The message of a Status, or the names of objects.
fn said(answer: &Answer) -> Value {
    let body = answer.json().expect("JSON");
    if body["items"].is_array() { body["items"].clone() } else { body }
}
