//! The webhook's certificates over months, kept by several replicas at a simulated apiserver.
//!
//! Time is an argument; clients check certificates by the same time.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use listless::{
    api::{GroupResource, ObjectKey},
    injector::{
        keeper::{CertificateObjects, Error, Keeper},
        keyring::Wanted,
    },
    lifecycle::Ready,
    metrics::Metrics,
    simulator::{ResourceType, Simulator},
    tls,
};
use rustls::{
    ClientConfig,
    pki_types::{ServerName, UnixTime},
    time_provider::TimeProvider,
};
use serde_json::{Value, json};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const GROUP: &str = "admissionregistration.k8s.io";
const NAME: &str = "listless-injector.listless.svc";
const DAY: Duration = Duration::from_secs(86_400);

#[derive(Debug)]
struct At(SystemTime);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        self.0.duration_since(SystemTime::UNIX_EPOCH).ok().map(UnixTime::since_unix_epoch)
    }
}

/// A replica and the certificate it serves.
struct Replica {
    keeper: Keeper,
    server: tls::Server,
    ready: Ready,
}

fn webhooks() -> GroupResource {
    GroupResource::new(GROUP, "mutatingwebhookconfigurations")
}

fn secrets() -> GroupResource {
    GroupResource::new("", "secrets")
}

fn cluster() -> Simulator {
    let simulator = Simulator::default();
    let plural = "mutatingwebhookconfigurations";
    let kind = ResourceType::custom(GROUP, &["v1"], plural, "MutatingWebhookConfiguration");
    simulator.register(kind.cluster_scoped());
    let entry = |name: &str| json!({"name": name, "clientConfig": {"service": {"name": "s"}}});
    simulator.put(
        &webhooks(),
        json!({
            "metadata": {"name": "listless-injector"},
            "webhooks": [entry("namespace.listless.dev"), entry("pod.listless.dev")],
        }),
    );
    simulator
        .put(&secrets(), json!({"metadata": {"namespace": "listless", "name": "certificates"}}));
    simulator
}

fn replica(simulator: &Simulator) -> Replica {
    let place = CertificateObjects {
        namespace: "listless".to_owned(),
        secret: "certificates".to_owned(),
        webhook: "listless-injector".to_owned(),
    };
    let wanted = Wanted {
        names: vec![NAME.to_owned()],
        authority_lifetime: 90 * DAY,
        leaf_lifetime: 8 * DAY,
    };
    let now = SystemTime::now();
    let nobody = tls::Authority::generate(now).expect("an authority");
    let leaf = nobody.issue(&tls::Names::of_apiserver(""), now).expect("a certificate");
    let server = tls::Server::new(leaf).expect("a server");
    let ready = Ready::default();
    let part = ready.register("certificate");
    let client = Arc::new(simulator.clone());
    let keeper = Keeper::new(client, place, wanted, server.clone(), part, Metrics::new());
    Replica { keeper, server, ready }
}

/// The CA bundle that the apiserver trusts, for each of its webhooks.
fn published(simulator: &Simulator) -> Vec<String> {
    let key = ObjectKey::new(None, "listless-injector");
    let object = simulator.object(&webhooks(), &key).expect("the configuration");
    let object: Value = serde_json::from_slice(&object.to_bytes()).expect("JSON");
    let entries = object["webhooks"].as_array().expect("webhooks").iter();
    let of = |entry: &Value| {
        let bundle = entry["clientConfig"]["caBundle"].as_str().unwrap_or("");
        String::from_utf8(STANDARD.decode(bundle).expect("base64")).expect("PEM")
    };
    entries.map(of).collect()
}

/// Reports whether the apiserver accepts this replica's certificate.
async fn is_trusted(simulator: &Simulator, server: &tls::Server, now: SystemTime) -> bool {
    for bundle in published(simulator) {
        let Ok(roots) = tls::roots(bundle.as_bytes()) else { return false };
        let builder = ClientConfig::builder_with_details(tls::provider(), Arc::new(At(now)));
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        let client = builder.with_root_certificates(roots).with_no_client_auth();
        let (near, far) = tokio::io::duplex(16 * 1024);
        let accept = TlsAcceptor::from(server.current()).accept(far);
        let name = ServerName::try_from(NAME).expect("a name");
        let connect = TlsConnector::from(Arc::new(client)).connect(name, near);
        let (_, connected) = tokio::join!(accept, connect);
        if connected.is_err() {
            return false;
        }
    }
    true
}

#[tokio::test]
async fn the_first_check_publishes_a_certificate_for_every_webhook() {
    let (simulator, now) = (cluster(), SystemTime::now());
    let mut replica = replica(&simulator);
    assert!(!replica.ready.is_ready());
    assert!(!is_trusted(&simulator, &replica.server, now).await);
    replica.keeper.look(now).await.expect("a look");
    assert!(replica.ready.is_ready());
    assert!(is_trusted(&simulator, &replica.server, now).await);
    assert_eq!(published(&simulator).len(), 2);
    let revision = simulator.revision();
    replica.keeper.look(now + DAY).await.expect("a look");
    assert_eq!(simulator.revision(), revision, "nothing to write");
}

#[tokio::test]
async fn replicas_that_start_together_agree_on_one_certificate() {
    let (simulator, now) = (cluster(), SystemTime::now());
    let (mut one, mut other) = (replica(&simulator), replica(&simulator));
    for _ in 0..3 {
        let looks = tokio::join!(one.keeper.look(now), other.keeper.look(now));
        for look in [looks.0, looks.1] {
            let is_race = |error: &Error| matches!(error, Error::Api(error) if error.is_conflict());
            assert!(look.as_ref().err().is_none_or(is_race), "{look:?}");
        }
    }
    for replica in [&one, &other] {
        assert!(replica.ready.is_ready());
        assert!(is_trusted(&simulator, &replica.server, now).await);
    }
}

#[tokio::test]
async fn over_a_year_every_replica_is_trusted_all_the_time() {
    let (simulator, start) = (cluster(), SystemTime::now());
    let (mut often, mut seldom) = (replica(&simulator), replica(&simulator));
    let mut bundles = Vec::new();
    for half_day in 0..730_u32 {
        let now = start + half_day * DAY / 2;
        often.keeper.look(now).await.expect("a look");
        if half_day % 3 == 0 {
            seldom.keeper.look(now).await.expect("a look");
        }
        for replica in [&often, &seldom] {
            assert!(replica.ready.is_ready(), "{half_day}");
            assert!(is_trusted(&simulator, &replica.server, now).await, "{half_day}");
        }
        bundles.push(published(&simulator).concat());
    }
    bundles.dedup();
    assert!(bundles.len() > 8, "authorities followed one another: {}", bundles.len());
    assert!(bundles.iter().all(|bundle| bundle.matches("BEGIN").count() <= 4), "old ones go");
}

#[tokio::test]
async fn damaged_secrets_and_bundles_are_repaired() {
    let (simulator, now) = (cluster(), SystemTime::now());
    let mut replica = replica(&simulator);
    replica.keeper.look(now).await.expect("a look");
    let metadata = json!({"namespace": "listless", "name": "certificates"});
    let broken = json!({"metadata": metadata, "data": {"keyring.json": STANDARD.encode("{}")}});
    simulator.put(&secrets(), broken);
    replica.keeper.look(now).await.expect("a look");
    assert!(is_trusted(&simulator, &replica.server, now).await);
    let entries = json!([{"name": "a", "clientConfig": {"caBundle": STANDARD.encode("nothing")}}]);
    simulator
        .put(&webhooks(), json!({"metadata": {"name": "listless-injector"}, "webhooks": entries}));
    replica.keeper.look(now).await.expect("a look");
    assert!(is_trusted(&simulator, &replica.server, now).await);
}

#[tokio::test]
async fn without_the_apiserver_it_stays_ready_until_its_certificate_expires() {
    let (simulator, now) = (cluster(), SystemTime::now());
    let mut replica = replica(&simulator);
    replica.keeper.look(now).await.expect("a look");
    let key = ObjectKey::new(None, "listless-injector");
    simulator.remove(&webhooks(), &key);
    replica.keeper.look(now + DAY).await.expect_err("nothing to serve");
    assert!(replica.ready.is_ready());
    replica.keeper.look(now + 9 * DAY).await.expect_err("nothing to serve");
    assert!(!replica.ready.is_ready());
}
