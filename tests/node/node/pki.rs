//! Keys, certificates and their kubeconfigs: one authority for all.

use std::fs;
use std::path::Path;

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

/// One certificate: the name of its files, its subject, and its server names.
struct Holder {
    file: &'static str,
    user: String,
    group: Option<&'static str>,
    names: Vec<String>,
}

/// Writes everything a node needs below `folder`.
pub fn write(folder: &Path, node: &str, address: &str, server: &str) -> Result<()> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.distinguished_name.push(DnType::CommonName, "kubernetes");
    fs::write(folder.join("ca.crt"), params.self_signed(&key)?.pem())?;
    fs::write(folder.join("ca.key"), key.serialize_pem())?;
    let issuer = Issuer::new(params, key);
    for holder in holders(node, address) {
        holder.write(folder, &issuer)?;
        fs::write(
            folder.join(holder.file).with_extension("kubeconfig"),
            kubeconfig(folder, &holder, server),
        )?;
    }
    let accounts = KeyPair::generate()?;
    fs::write(folder.join("accounts.key"), accounts.serialize_pem())?;
    fs::write(folder.join("accounts.pub"), accounts.public_key_pem())?;
    Ok(())
}

fn holders(node: &str, address: &str) -> Vec<Holder> {
    let holder = |file, user: &str, group, names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Holder { file, user: user.to_owned(), group, names }
    };
    let service = "kubernetes.default.svc.cluster.local";
    let apiserver = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        service,
        "10.96.0.1",
        "127.0.0.1",
        address,
    ];
    vec![
        holder("apiserver", "kube-apiserver", None, &apiserver),
        holder("to-kubelet", "kube-apiserver-kubelet-client", Some("system:masters"), &[]),
        holder("front-proxy", "front-proxy", None, &[]),
        holder("manager", "system:kube-controller-manager", None, &[]),
        holder("scheduler", "system:kube-scheduler", None, &[]),
        holder("proxy", "system:kube-proxy", None, &[]),
        holder("kubelet", &format!("system:node:{node}"), Some("system:nodes"), &[node, address]),
    ]
}

fn kubeconfig(folder: &Path, holder: &Holder, server: &str) -> String {
    let file = |extension| folder.join(holder.file).with_extension(extension);
    let cluster = json!({"server": server, "certificate-authority": folder.join("ca.crt")});
    let user = json!({"client-certificate": file("crt"), "client-key": file("key")});
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "node",
        "clusters": [{"name": "node", "cluster": cluster}],
        "users": [{"name": "node", "user": user}],
        "contexts": [{"name": "node", "context": {"cluster": "node", "user": "node"}}],
    })
    .to_string()
}

// === impl Holder ===

impl Holder {
    fn write(&self, folder: &Path, issuer: &Issuer<'_, KeyPair>) -> Result<()> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(self.names.clone())?;
        params.distinguished_name.push(DnType::CommonName, self.user.as_str());
        if let Some(group) = self.group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let path = folder.join(self.file);
        fs::write(path.with_extension("crt"), params.signed_by(&key, issuer)?.pem())?;
        fs::write(path.with_extension("key"), key.serialize_pem())?;
        Ok(())
    }
}
