use std::os::unix::fs::PermissionsExt;

use rustls::{
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    pki_types::{ServerName, UnixTime},
};

use super::*;

fn accepts(ca_pem: &str, leaf: &Leaf, name: &str, at: SystemTime) -> bool {
    let roots = Arc::new(roots(ca_pem.as_bytes()).unwrap());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider()).build().unwrap();
    let at = UnixTime::since_unix_epoch(at.duration_since(SystemTime::UNIX_EPOCH).unwrap());
    let name = ServerName::try_from(name.to_owned()).unwrap();
    verifier.verify_server_cert(&leaf.chain[0], &leaf.chain[1..], &name, &[], at).is_ok()
}

#[test]
fn certificate_is_valid_for_every_name_of_an_apiserver() {
    let now = SystemTime::now();
    let authority = Authority::generate(now).unwrap();
    let leaf = authority.issue(&Names::of_apiserver("cluster.local"), now).unwrap();
    for name in [
        "127.0.0.1",
        "::1",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ] {
        assert!(accepts(authority.pem(), &leaf, name, now), "{name}");
    }
    assert!(!accepts(authority.pem(), &leaf, "example.com", now));
}

#[test]
fn certificate_ends_after_a_year_and_begins_a_little_early() {
    let now = SystemTime::now();
    let authority = Authority::generate(now).unwrap();
    let leaf = authority.issue(&Names::of_apiserver(""), now).unwrap();
    let valid = |at| accepts(authority.pem(), &leaf, "localhost", at);
    assert!(valid(now - BACKDATING / 2));
    assert!(valid(now + LEAF_LIFETIME - BACKDATING));
    assert!(!valid(now + LEAF_LIFETIME + BACKDATING));
}

#[test]
fn stored_authority_issues_certificates_that_its_old_certificate_trusts() {
    let directory = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let first = Authority::load_or_create(directory.path(), &Names::of_apiserver(""), now).unwrap();
    let later = now + LEAF_LIFETIME;
    let second =
        Authority::load_or_create(directory.path(), &Names::of_apiserver(""), later).unwrap();
    assert_eq!(first.pem(), second.pem());
    let leaf = second.issue(&Names::of_apiserver(""), later).unwrap();
    assert!(accepts(first.pem(), &leaf, "localhost", later));
}

#[test]
fn an_authority_is_refused_if_its_files_do_not_belong_together_or_are_not_valid_now() {
    let now = SystemTime::now();
    let names = Names::of_apiserver("");
    let [one, other] = [0, 1].map(|_| {
        let directory = tempfile::tempdir().unwrap();
        Authority::load_or_create(directory.path(), &names, now).unwrap();
        directory
    });
    for at in [now - CA_LIFETIME, now + CA_LIFETIME] {
        let error = Authority::load_or_create(one.path(), &names, at).err().unwrap().to_string();
        assert!(error.contains("not valid now; remove both"), "{error}");
    }
    std::fs::copy(other.path().join(CA_KEY_FILE), one.path().join(CA_KEY_FILE)).unwrap();
    let error = Authority::load_or_create(one.path(), &names, now).err().unwrap().to_string();
    assert!(error.contains("do not belong together; remove both"), "{error}");
}

#[test]
fn stored_keys_are_readable_by_their_owner_only() {
    let directory = tempfile::tempdir().unwrap();
    Authority::load_or_create(directory.path(), &Names::of_apiserver(""), SystemTime::now())
        .unwrap();
    let mode = |name| directory.path().join(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(CA_FILE), mode(CA_KEY_FILE)), (0o600, 0o600));
    assert_eq!(directory.path().read_dir().unwrap().count(), 2, "no partial file is left");
}

#[test]
fn unusable_key_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    Authority::load_or_create(directory.path(), &Names::of_apiserver(""), SystemTime::now())
        .unwrap();
    std::fs::write(directory.path().join(CA_KEY_FILE), "nonsense").unwrap();
    let error =
        Authority::load_or_create(directory.path(), &Names::of_apiserver(""), SystemTime::now())
            .err()
            .unwrap();
    assert!(error.to_string().contains(CA_KEY_FILE), "{error}");
}

#[test]
fn authorities_of_two_proxies_differ_in_serial_number() {
    let now = SystemTime::now();
    let (one, two) = (Authority::generate(now).unwrap(), Authority::generate(now).unwrap());
    assert_ne!(one.pem(), two.pem());
}

#[test]
fn an_authority_for_some_names_is_not_valid_for_others() {
    let now = SystemTime::now();
    let names = Names::of_apiserver("cluster.local").and("10.96.0.1");
    let authority = Authority::generate_for(&names, now).unwrap();
    let everything = names.and("example.com").and("10.96.0.2").and("kubernetes.evil.org");
    let leaf = |name: &str| authority.issue(&Names(Vec::new()).and(name), now).unwrap();
    for name in &everything.0 {
        let name = match name {
            Name::Dns(name) => name.clone(),
            Name::Ip(address) => address.to_string(),
        };
        let strange = ["example.com", "10.96.0.2", "kubernetes.evil.org"].contains(&&*name);
        assert_eq!(accepts(authority.pem(), &leaf(&name), &name, now), !strange, "{name}");
    }
}
