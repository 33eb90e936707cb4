//! The programs of a node, and the start of each.

use std::fs;

use anyhow::Result;
use serde_json::{Value, json};

use super::NodePlace;
use crate::artifacts::PAUSE;
use crate::machine::PLUGINS;

/// A program that runs in the node's namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The store.
    Etcd,
    /// The kube-apiserver.
    Apiserver,
    /// The kube-controller-manager.
    Manager,
    /// The kube-scheduler.
    Scheduler,
    /// The container runtime, containerd.
    Containerd,
    /// The kubelet.
    Kubelet,
    /// The kube-proxy.
    Proxy,
}

/// The address range of services.
pub const SERVICES: &str = "10.96.0.0/16";
const PODS: &str = "10.244.0.0/24";

// === impl Component ===

impl Component {
    /// The name, also of its log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Apiserver => "kube-apiserver",
            Self::Manager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
            Self::Proxy => "kube-proxy",
        }
    }

    /// Its flags.
    pub fn flags(self, place: &NodePlace) -> Vec<String> {
        let folder = place.folder.display();
        match self {
            Self::Etcd => etcd(place),
            Self::Apiserver => apiserver(place),
            Self::Manager => manager(place),
            Self::Scheduler => {
                [with_kubeconfig(place, "scheduler"), words("--leader-elect=false")].concat()
            }
            Self::Containerd => words(&format!("--config {folder}/containerd.toml")),
            Self::Kubelet => words(&format!(
                "--config {folder}/kubelet.json --kubeconfig {folder}/pki/kubelet.kubeconfig \
                 --root-dir {folder}/kubelet --node-ip {} --hostname-override {}",
                place.address, place.name
            )),
            Self::Proxy => words(&format!("--config {folder}/proxy.json")),
        }
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn etcd(place: &NodePlace) -> Vec<String> {
    let (client, peer) = ("http://127.0.0.1:2379", "http://127.0.0.1:2380");
    words(&format!(
        "--data-dir {}/etcd --unsafe-no-fsync --log-level warn --listen-client-urls {client} \
         --advertise-client-urls {client} --listen-peer-urls {peer} \
         --initial-advertise-peer-urls {peer} --initial-cluster default={peer}",
        place.folder.display()
    ))
}

fn apiserver(place: &NodePlace) -> Vec<String> {
    let pki = place.folder.join("pki");
    let (pki, address, port) = (pki.display(), &place.address, place.port);
    words(&format!(
        "--etcd-servers http://127.0.0.1:2379 --secure-port {port} --advertise-address {address} \
         --tls-cert-file {pki}/apiserver.crt --tls-private-key-file {pki}/apiserver.key \
         --client-ca-file {pki}/ca.crt --token-auth-file {pki}/tokens.csv \
         --kubelet-client-certificate {pki}/to-kubelet.crt \
         --kubelet-client-key {pki}/to-kubelet.key \
         --kubelet-certificate-authority {pki}/ca.crt \
         --kubelet-preferred-address-types InternalIP \
         --requestheader-client-ca-file {pki}/ca.crt --requestheader-allowed-names front-proxy \
         --requestheader-username-headers X-Remote-User \
         --requestheader-group-headers X-Remote-Group \
         --requestheader-extra-headers-prefix X-Remote-Extra- \
         --proxy-client-cert-file {pki}/front-proxy.crt \
         --proxy-client-key-file {pki}/front-proxy.key \
         --service-account-issuer https://kubernetes.default.svc.cluster.local \
         --service-account-key-file {pki}/accounts.pub \
         --service-account-signing-key-file {pki}/accounts.key \
         --service-cluster-ip-range {SERVICES} --authorization-mode Node,RBAC \
         --enable-admission-plugins NodeRestriction --profiling=false"
    ))
}

fn manager(place: &NodePlace) -> Vec<String> {
    let pki = place.folder.join("pki");
    let pki = pki.display();
    let own = words(&format!(
        "--root-ca-file {pki}/ca.crt --service-account-private-key-file {pki}/accounts.key \
         --cluster-signing-cert-file {pki}/ca.crt --cluster-signing-key-file {pki}/ca.key \
         --use-service-account-credentials=true --leader-elect=false"
    ));
    [with_kubeconfig(place, "manager"), own].concat()
}

fn with_kubeconfig(place: &NodePlace, name: &str) -> Vec<String> {
    let file = place.folder.join("pki").join(name).with_extension("kubeconfig");
    let flags = ["--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig"];
    let mut flags: Vec<_> =
        flags.into_iter().flat_map(|flag| [flag.to_owned(), file.display().to_string()]).collect();
    flags.push("--bind-address=127.0.0.1".to_owned());
    flags
}

/// Writes the files that the flags name.
pub fn configure(place: &NodePlace) -> Result<()> {
    let write = |name: &str, text: String| fs::write(place.folder.join(name), text);
    write("kubelet.json", kubelet(place).to_string())?;
    write("proxy.json", proxy(place).to_string())?;
    write("containerd.toml", containerd(place))?;
    write("cni/10-pods.conflist", network().to_string())?;
    write("resolv.conf", String::new())?;
    Ok(())
}

fn kubelet(place: &NodePlace) -> Value {
    let file = |name: &str| place.folder.join(name);
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": file("pki/ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": file("pki/kubelet.crt"),
        "tlsPrivateKeyFile": file("pki/kubelet.key"),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "volumePluginDir": file("volume-plugins"),
        "resolvConf": file("resolv.conf"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", place.name),
        "failCgroupV1": false,
        "clusterDNS": ["10.96.0.10"],
        "clusterDomain": "cluster.local",
        "serializeImagePulls": false,
        // Nothing can be pulled again, so no image may be removed.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
    })
}

fn proxy(place: &NodePlace) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": PODS,
        "hostnameOverride": place.name,
        "clientConnection": {"kubeconfig": place.folder.join("pki/proxy.kubeconfig")},
        // Zeros: the machine's own sysctls are left alone.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    })
}

/// In the form of 1.6, which later versions understand, too.
fn containerd(place: &NodePlace) -> String {
    let folder = place.folder.display();
    format!(
        r#"version = 2
root = "{folder}/containerd"
state = "/run/containerd"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  # Without CAP_SYS_RESOURCE no process may be made less likely to be killed than it is.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{folder}/cni"
"#
    )
}

fn network() -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "pods",
                "isGateway": true,
                "isDefaultGateway": true,
                "ipMasq": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": PODS}]],
                    "dataDir": "/run/cni-addresses",
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}
