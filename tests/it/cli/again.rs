//! `listless sidecar` in a container that restarts in the same pod, in front of a simulated
//! apiserver.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use http::Request;
use listless::{
    api::Verb,
    body::Body,
    upstream::{Client, Lane, Settings, dial::Tcp, identity},
};
use serde_json::json;

use super::{
    LISTLESS,
    check::{ADMIN, Cluster},
    signal,
};

const CONFIG_MAPS: &str = "/api/v1/namespaces/shop/configmaps";
/// A size limit; a response is much shorter.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Starts a container of the pod, and returns the address where it serves.
fn start(cluster: &Cluster, pod: &Path) -> (Child, String) {
    let mut command = Command::new(LISTLESS);
    command.args(["--log", "warn", "sidecar", "--listen", "127.0.0.1:0"]);
    command.args(["--admin", "127.0.0.1:0", "--health", "127.0.0.1:0"]);
    command.arg("--service-account").arg(pod.join("account"));
    command.arg("--mirror").arg(pod.join("mirror")).arg("--state").arg(pod.join("state"));
    command.env("KUBERNETES_SERVICE_HOST", cluster.address.ip().to_string());
    command.env("KUBERNETES_SERVICE_PORT", cluster.address.port().to_string());
    command.env_remove("LISTLESS_LOG").stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary runs");
    let mut line = String::new();
    let out = child.stdout.as_mut().expect("a pipe");
    BufReader::new(out).read_line(&mut line).expect("a line");
    let server = line.trim().rsplit(" at ").next().expect("a server").to_owned();
    (child, server)
}

/// The form in which a list without a version reaches the apiserver.
fn asked_upstream(cluster: &Cluster, pod: &Path) -> String {
    let (mut child, server) = start(cluster, pod);
    let bundle = fs::read_to_string(pod.join("mirror/ca.crt")).expect("a bundle");
    let before = cluster.simulator.records().len();
    cluster.runtime.block_on(async {
        let server = server.parse().expect("a URL");
        let access = identity::from_token(server, &bundle, ADMIN.to_owned()).await;
        let (_, own) =
            access.expect("access").clients(Arc::new(Tcp::default()), Settings::default());
        let request = Request::get(CONFIG_MAPS).header("accept", "application/json");
        let request = request.body(Body::empty()).expect("a request");
        let answer = own.send(request, Lane::Short).await.expect("an answer");
        assert_eq!(answer.status(), 200);
        let body = answer.into_body().collect(ANSWER_BYTES_MAX).await.expect("a body");
        assert!(String::from_utf8_lossy(&body).contains("\"one\""));
    });
    signal(&child, "TERM");
    assert_eq!(child.wait().expect("an end").code(), Some(0));
    let records = cluster.simulator.records();
    let mut lists = records[before..]
        .iter()
        .filter(|record| record.asked.verb == Verb::List && record.asked.resource == "configmaps");
    lists.next().expect("a list").asked.path_and_query.clone()
}

#[test]
fn a_restarted_container_reads_consistently_and_the_first_need_not() {
    let cluster = Cluster::start();
    cluster.put("configmaps", json!({"metadata": {"namespace": "shop", "name": "one"}}));
    let pod = tempfile::tempdir().expect("a pod");
    let account = pod.path().join("account");
    fs::create_dir(&account).expect("a directory");
    for (file, content) in
        [("token", ADMIN), ("namespace", "shop"), ("ca.crt", cluster.authority.pem())]
    {
        fs::write(account.join(file), content).expect("written");
    }
    let first = asked_upstream(&cluster, pod.path());
    assert_eq!(first, format!("{CONFIG_MAPS}?resourceVersion=0"), "nobody has seen anything");
    let again = asked_upstream(&cluster, pod.path());
    assert_eq!(again, CONFIG_MAPS, "somebody may have");
    // Either of the two is proof alone: the copy, and the authority.
    fs::remove_dir_all(pod.path().join("state")).expect("removed");
    assert_eq!(asked_upstream(&cluster, pod.path()), CONFIG_MAPS);
    fs::remove_dir_all(pod.path().join("mirror")).expect("removed");
    assert_eq!(asked_upstream(&cluster, pod.path()), CONFIG_MAPS);
}
