//! Callers other than the one Listless stands for: never answered from its memory.

use super::super::case::Caller;
use super::Case;
use crate::rig::control_plane::User;

const READER: Caller = Caller::User(User::Reader);
const NARROW: Caller = Caller::User(User::Narrow);
const NOBODY: Caller = Caller::User(User::Nobody);

const ROWS: &[(Caller, &str, u16)] = &[
    (READER, "/api/v1/namespaces/shop/pods", 200),
    (READER, "/api/v1/namespaces/shop/pods/web-0", 200),
    (READER, "/api/v1/namespaces/shop/configmaps?labelSelector=kind%3Deven", 200),
    (READER, "/api/v1/namespaces/a/pods", 403),
    (READER, "/api/v1/namespaces/a/pods/web-0", 403),
    (READER, "/api/v1/pods", 403),
    (READER, "/api/v1/pods?fieldSelector=metadata.namespace%3Dshop", 403),
    (READER, "/api/v1/namespaces/shop/services", 403),
    (READER, "/api/v1/namespaces/shop/secrets", 403),
    (READER, "/api/v1/namespaces/shop/pods/web-0/status", 403),
    (READER, "/api/v1/nodes", 403),
    (READER, "/apis/shop.example.com/v1/namespaces/shop/widgets", 403),
    (NARROW, "/api/v1/namespaces/shop/configmaps/settings", 200),
    (NARROW, "/api/v1/namespaces/shop/configmaps/a", 403),
    (NARROW, "/api/v1/namespaces/shop/configmaps", 403),
    (NARROW, "/api/v1/namespaces/shop/configmaps?fieldSelector=metadata.name%3Dsettings", 200),
    (NARROW, "/api/v1/namespaces/shop/configmaps?fieldSelector=metadata.name%3Da", 403),
    (NOBODY, "/api/v1/namespaces/shop/pods", 403),
    (NOBODY, "/api/v1/namespaces/shop/pods/none", 403),
    (NOBODY, "/api/v1/namespaces/shop", 403),
    (NOBODY, "/apis", 200),
    (NOBODY, "/version", 200),
    (NOBODY, "/metrics", 403),
    (Caller::Anonymous, "/api/v1/namespaces/shop/pods", 403),
    (Caller::Anonymous, "/api/v1/namespaces/shop/pods/web-0", 403),
    (Caller::Anonymous, "/apis", 403),
    (Caller::Anonymous, "/version", 200),
    (Caller::Anonymous, "/healthz", 200),
    (Caller::UnknownToken, "/api/v1/namespaces/shop/pods", 401),
    (Caller::UnknownToken, "/api/v1/namespaces/shop/pods/web-0", 401),
    (Caller::UnknownToken, "/version", 401),
    (Caller::UnknownToken, "/apis", 401),
];

pub(super) fn cases() -> Vec<Case> {
    let row = |(caller, target, status): &(Caller, &str, u16)| {
        Case::get(target).caller(*caller).never().status(*status)
    };
    let mut cases: Vec<Case> = ROWS.iter().map(row).collect();
    // Documents that are the same for every caller may come from memory nevertheless.
    for case in &mut cases {
        if case.target == "/version" || case.target == "/apis" {
            case.memory = super::super::case::Memory::Free;
        }
    }
    cases.extend(impersonation());
    cases.extend(authorization());
    cases
}

fn impersonation() -> Vec<Case> {
    let pods = "/api/v1/namespaces/shop/pods";
    let as_user = |target: &str, user: &str| Case::get(target).header("Impersonate-User", user);
    vec![
        as_user(pods, "reader").never(),
        as_user("/api/v1/namespaces/a/pods", "reader").status(403),
        as_user(pods, "nobody").status(403),
        as_user(pods, "nobody").header("Impersonate-Group", "system:masters").never(),
        as_user(pods, "x").header("Impersonate-Extra-scopes", "view").status(403),
        as_user(pods, "").never(),
        Case::get(pods).header("Impersonate-Group", "people").status(400).status_on_old(500),
        Case::get(pods).header("Impersonate-Uid", "7").status(400).status_on_old(500),
        as_user(pods, "admin").caller(READER).status(403),
        as_user(pods, "reader").caller(Caller::Anonymous).status(403),
    ]
}

/// Spellings of the credential header.
fn authorization() -> Vec<Case> {
    let pods = "/api/v1/namespaces/shop/pods";
    let with = |value: &str, status: u16| {
        Case::get(pods)
            .caller(Caller::Anonymous)
            .header("Authorization", value)
            .never()
            .status(status)
    };
    vec![
        with("Basic cmVhZGVyOnJlYWRlcg==", 403),
        with("Bearer", 403),
        with("Bearer ", 403),
        with("reader-token", 403),
        with("bearer reader-token", 200),
        with("Bearer reader-token", 200),
        with("Bearer  reader-token", 403),
        with("Bearer Reader-token", 401),
    ]
}
