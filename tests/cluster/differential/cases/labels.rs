//! Label selectors: every operator, every spelling, and malformed ones.

use super::super::case::Memory;
use super::{Case, table};

const PODS: &str = "/api/v1/namespaces/shop/pods?labelSelector=";

const VALID: &[(&str, u16)] = &[
    ("app%3Dweb", 200),
    ("app=web", 200),
    ("app%3d%3dweb", 200),
    ("app==api", 200),
    ("app!=web", 200),
    ("app%21%3Dweb", 200),
    ("app+in+(web,api)", 200),
    ("app%20in%20%28web%2Capi%29", 200),
    ("app+notin+(web,api)", 200),
    ("app+in+(web)", 200),
    ("app+in+(none)", 200),
    ("canary", 200),
    ("!canary", 200),
    ("%21canary", 200),
    ("!+canary", 200),
    ("missing", 200),
    ("!missing", 200),
    ("app=web,tier=front", 200),
    ("app=web,app=web", 200),
    ("app=web,app=api", 200),
    ("app+in+(web,db),canary,!weird_.-x", 200),
    ("app!=web,app!=api", 200),
    ("tier=", 200),
    ("tier==", 200),
    ("tier!=", 200),
    ("app=", 200),
    ("missing=", 200),
    ("missing!=", 200),
    ("tier+in+()", 200),
    ("tier+in+(,front)", 200),
    ("tier+in+(front,)", 200),
    ("tier+notin+()", 200),
    ("index%3E500", 200),
    ("index%3C100", 200),
    ("index%3E100,index%3C200", 200),
    ("app%3E1", 200),
    ("index%3E-5", 400),
    ("release=7", 200),
    ("in=notin", 200),
    ("in", 200),
    ("!in", 200),
    ("in+in+(notin)", 200),
    ("in+notin+(in)", 200),
    ("notin", 200),
    ("weird_.-x=A_b.C-9", 200),
    ("example.com/role=r1", 200),
    ("example.com%2Frole%3Dr1", 200),
    ("example.com/role+in+(r0,r1),app=db", 200),
    ("app+=+web", 200),
    ("+app=web+", 200),
    ("app=web+,+canary", 200),
    ("app+in+(+web+,+api+)", 200),
    ("%09app%09=%0Aweb%0D", 200),
    ("app+in(web)", 200),
    ("", 200),
    ("+", 200),
];

const MALFORMED: &[(&str, u16)] = &[
    ("app===web", 400),
    ("=web", 400),
    ("app=web,", 400),
    (",app=web", 400),
    ("app=web,,tier=front", 400),
    ("app+in+web", 400),
    ("app+in+(web", 400),
    ("app+in+web)", 400),
    ("app=web)", 400),
    ("app=(web)", 400),
    ("!app=web", 400),
    ("!app+in+(web)", 400),
    ("!", 400),
    ("!!app", 400),
    ("app+web", 400),
    ("app+notin", 400),
    ("app=web+api", 400),
    ("-app=web", 400),
    ("app-=web", 400),
    ("app=-web", 400),
    ("app=web-", 400),
    ("app=w%C3%A9b", 400),
    ("%C3%A9=web", 400),
    ("Example.com/role=r1", 400),
    ("a/b/c=d", 400),
    ("/app=web", 400),
    ("example.com/=web", 400),
    ("app=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 400),
    ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=b", 400),
    ("index%3Ex", 400),
    ("index%3E1.5", 400),
    ("index%3E=5", 400),
    ("app=web%3Bx", 400),
    ("(app=web)", 400),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = table(PODS, Memory::Wanted, VALID);
    cases.extend(table(PODS, Memory::Never, MALFORMED));
    cases.extend(elsewhere());
    cases.extend(spellings());
    cases
}

/// The same operators on other scopes and kinds.
fn elsewhere() -> Vec<Case> {
    [
        "/api/v1/pods?labelSelector=app%3Dweb",
        "/api/v1/pods?labelSelector=app%2Ccanary",
        "/api/v1/namespaces/a-b/pods?labelSelector=app%3Dweb",
        "/api/v1/namespaces/empty/pods?labelSelector=app%3Dweb",
        "/api/v1/namespaces/none/pods?labelSelector=app%3Dweb",
        "/api/v1/nodes?labelSelector=zone%3Deast",
        "/api/v1/nodes?labelSelector=cores%3E8",
        "/api/v1/namespaces?labelSelector=team%3Dretail",
        "/api/v1/namespaces?labelSelector=kubernetes.io/metadata.name+in+(shop,a)",
        "/api/v1/configmaps?labelSelector=kind%3Deven",
        "/api/v1/namespaces/shop/configmaps?labelSelector=kind%3Descape",
        "/api/v1/namespaces/shop/configmaps?labelSelector=set%3D",
        "/apis/apps/v1/deployments?labelSelector=app%21%3Dweb",
        "/apis/shop.example.com/v1/widgets?labelSelector=size%3Dlarge",
        "/apis/shop.example.com/v1/namespaces/shop/widgets?labelSelector=size+notin+(large)",
        "/apis/shop.example.com/v1beta1/widgets?labelSelector=size",
        "/apis/shop.example.com/v1/planets?labelSelector=rocky%3Dyes",
        "/apis/shop.example.com/v1/planets?labelSelector=!rocky",
    ]
    .into_iter()
    .map(|target| Case::get(target).wanted())
    .collect()
}

/// Query strings that Go parses in its own way.
fn spellings() -> Vec<Case> {
    let pods = "/api/v1/namespaces/shop/pods?";
    let free = [
        "labelSelector=app=web&labelSelector=app=api",
        "labelSelector",
        "labelSelector=app=web&",
        "&labelSelector=app=web",
        "labelselector=app=web",
        "labelSelector=app=web;tier=front",
        "labelSelector=app%3Dweb&x;y=1",
        "labelSelector=app%zz",
        "label%53elector=app%3Dweb",
        "%6CabelSelector=app%3Dweb&labelSelector=app%3Dapi",
    ];
    let mut cases: Vec<Case> =
        free.into_iter().map(|query| Case::get(&format!("{pods}{query}"))).collect();
    cases.push(Case::get("/apis/shop.example.com/v1/widgets?labelSelector=((").status(400));
    // The apiserver ends the selector at the zero byte. Listless does not parse it at all.
    cases.push(Case::get(&format!("{pods}labelSelector=app=%00")).never());
    cases.push(Case::get("/api/v1/secrets?labelSelector=app=web").never());
    cases
}
