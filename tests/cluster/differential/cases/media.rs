//! Representations: `Accept`, `Accept-Encoding`, `pretty`, and the user agents that change them.

use super::super::case::Pace;
use super::Case;

const LIST: &str = "/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb";
const OBJECT: &str = "/api/v1/namespaces/shop/pods/web-0";
const CUSTOM_LIST: &str = "/apis/shop.example.com/v1/widgets";
const CUSTOM: &str = "/apis/shop.example.com/v1/namespaces/shop/widgets/widget-1";
const MISSING: &str = "/api/v1/namespaces/shop/pods/none";
const CUSTOM_MISSING: &str = "/apis/shop.example.com/v1/namespaces/shop/widgets/none";
const BIG_LIST: &str = "/api/v1/namespaces/shop/pods";

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TYPED: &str = "application/vnd.kubernetes.protobuf,application/json";

/// `Accept` values and the status they get on (a built-in list, a custom list).
const ACCEPTS: &[(&str, u16, u16)] = &[
    ("application/json", 200, 200),
    ("application/json; charset=utf-8", 200, 200),
    ("application/json;q=0.5", 200, 200),
    ("application/json;q=0", 200, 200),
    ("application/json;pretty=1", 200, 200),
    ("application/json;unknown=1", 200, 200),
    ("application/json;stream=watch", 200, 200),
    ("application/json;stream=other", 406, 406),
    ("application/json, */*", 200, 200),
    ("text/html,application/json;q=0.9,*/*;q=0.8", 200, 200),
    ("*/*", 200, 200),
    ("application/*", 406, 200),
    ("*/json", 406, 406),
    ("text/html", 406, 406),
    ("text/*", 406, 406),
    ("APPLICATION/JSON", 406, 406),
    ("garbage", 406, 406),
    (";", 406, 406),
    ("", 200, 200),
    ("application/yaml", 200, 200),
    ("application/yaml,application/json", 200, 200),
    ("application/json;q=0.1,application/yaml;q=0.9", 200, 200),
    ("application/cbor", 406, 406),
    ("application/cbor,application/json", 200, 200),
    (PROTOBUF, 200, 406),
    (TYPED, 200, 200),
    ("application/json,application/vnd.kubernetes.protobuf", 200, 200),
    (TABLE, 200, 200),
    (KUBECTL, 200, 200),
    ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", 200, 200),
    ("application/json;as=Table;v=v2;g=meta.k8s.io", 406, 406),
    ("application/yaml;as=Table;v=v1;g=meta.k8s.io", 200, 200),
    ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", 406, 406),
    ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", 200, 200),
    ("application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io", 200, 200),
    (
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        200,
        200,
    ),
    (
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
        200,
        200,
    ),
    ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", 406, 406),
    ("application/json;as=Nothing;v=v1;g=meta.k8s.io", 406, 406),
    ("application/json;as=Nothing;v=v1;g=meta.k8s.io,application/json", 200, 200),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (accept, built_in, custom) in ACCEPTS {
        cases.push(accepting(LIST, accept, *built_in));
        cases.push(accepting(CUSTOM_LIST, accept, *custom));
    }
    cases.extend(objects());
    cases.extend(metadata());
    cases.extend(encodings());
    cases.extend(pretty());
    cases.extend(tables());
    cases
}

fn accepting(target: &str, accept: &str, status: u16) -> Case {
    let case = Case::get(target).accept(accept).status(status);
    if accept.starts_with("application/json;as=PartialObjectMetadata") && status == 200 {
        return case.wanted();
    }
    // Tables hold ages in seconds.
    if accept.contains("as=Table") { case.pace(Pace::Ages) } else { case }
}

fn objects() -> Vec<Case> {
    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let mut cases = Vec::new();
    for (target, protobuf, as_list) in [(OBJECT, 200, 406), (CUSTOM, 406, 500)] {
        for (accept, status) in [
            ("application/json", 200),
            ("application/yaml", 200),
            ("application/cbor", 406),
            (PROTOBUF, protobuf),
            (TYPED, 200),
            (partial, 200),
            ("application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io", 200),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
                200,
            ),
            (TABLE, 200),
            ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", as_list),
        ] {
            cases.push(accepting(target, accept, status));
        }
    }
    // Errors have protobuf, also where objects have not: only the apiserver says it in that form.
    cases.push(free(Case::get(CUSTOM_MISSING).accept("application/json").status(404), true));
    cases.push(Case::get(CUSTOM_MISSING).accept(TYPED).status(404));
    for (accept, status) in [
        ("application/json", 404),
        ("application/yaml", 404),
        (PROTOBUF, 404),
        (TABLE, 404),
        (partial, 404),
        ("text/html", 406),
    ] {
        // Memory may report a missing object just as it returns a present one.
        cases.push(free(Case::get(MISSING).accept(accept).status(status), status == 404));
    }
    cases
}

/// Metadata alone, of many kinds of objects and in the form of a client-go client.
fn metadata() -> Vec<Case> {
    let mut cases = Vec::new();
    for version in ["v1", "v1beta1"] {
        let list =
            format!("application/json;as=PartialObjectMetadataList;v={version};g=meta.k8s.io");
        for target in [
            BIG_LIST,
            "/api/v1/namespaces/shop/pods?labelSelector=app%3Dnobody",
            "/api/v1/namespaces/shop/services",
            "/api/v1/namespaces",
            "/apis/apps/v1/namespaces/shop/deployments",
            "/apis/shop.example.com/v1/namespaces/shop/widgets",
            "/apis/shop.example.com/v1beta1/namespaces/shop/widgets?labelSelector=app%3Dnobody",
        ] {
            cases.push(accepting(target, &list, 200));
        }
        // A conversion adds annotations to these, which their metadata alone does not have.
        for target in [
            "/apis/apps/v1/namespaces/shop/daemonsets",
            "/apis/autoscaling/v1/namespaces/shop/horizontalpodautoscalers",
        ] {
            cases.push(free(accepting(target, &list, 200), true));
        }
        let object = list.replace("List", "");
        // Other objects are among the cases of one object.
        cases.push(accepting("/api/v1/namespaces/shop", &object, 200));
        let client_go = format!("{},{list}", list.replace("/json", "/vnd.kubernetes.protobuf"));
        cases.push(Case::get(BIG_LIST).accept(&client_go).status(200));
    }
    cases
}

fn free(mut case: Case, free: bool) -> Case {
    if free {
        case.memory = super::super::case::Memory::Free;
    }
    case
}

fn encodings() -> Vec<Case> {
    let encodings = [
        "gzip",
        "gzip, deflate, br",
        "deflate, gzip;q=1.0",
        "gzip;q=1.0",
        "gzip;q=0",
        "identity",
        "*",
        "GZIP",
        "x-gzip",
        "deflate",
        "br",
        "gzip,gzip",
        " gzip ",
        "",
    ];
    let mut cases: Vec<Case> = encodings
        .into_iter()
        .map(|encoding| Case::get(BIG_LIST).header("Accept-Encoding", encoding))
        .collect();
    for target in [
        LIST,
        OBJECT,
        MISSING,
        CUSTOM_LIST,
        "/api/v1/namespaces/shop/configmaps",
        "/api/v1/namespaces/shop/configmaps/big-1",
        "/api/v1/namespaces/shop/configmaps/big-2",
        "/api/v1/namespaces/shop/configmaps/big-3",
        "/api/v1/namespaces/shop/configmaps?pretty=true",
        "/api/v1/pods?resourceVersion=0",
        "/api/v1/pods?limit=90",
        "/apis",
        "/openapi/v2",
    ] {
        let case = Case::get(target).header("Accept-Encoding", "gzip");
        cases.push(if target == MISSING { free(case.status(404), true) } else { case });
    }
    let both = Case::get(BIG_LIST).accept(PROTOBUF).header("Accept-Encoding", "gzip");
    cases.push(both);
    cases
}

fn pretty() -> Vec<Case> {
    let mut cases = Vec::new();
    for target in [LIST, OBJECT, CUSTOM_LIST, CUSTOM] {
        let join = if target.contains('?') { '&' } else { '?' };
        for value in ["true", "1", "t", "TRUE", "false", "0", "", "yes"] {
            cases.push(Case::get(&format!("{target}{join}pretty={value}")));
        }
        for agent in ["curl/8.5.0", "Wget/1.21", "Mozilla/5.0 (X11)", "mozilla/5.0", "kubectl/v1"] {
            cases.push(Case::get(target).header("User-Agent", agent));
        }
    }
    cases.push(Case::get(&format!("{OBJECT}?pretty=false")).header("User-Agent", "curl/8.5.0"));
    let missing = Case::get(&format!("{MISSING}?pretty=true")).status(404);
    cases.push(free(missing, true));
    cases
}

fn tables() -> Vec<Case> {
    let mut cases = Vec::new();
    for (include, status) in [("None", 200), ("Metadata", 200), ("Object", 200), ("Other", 400)] {
        for target in ["/api/v1/namespaces/shop/services", CUSTOM_LIST] {
            let target = format!("{target}?includeObject={include}");
            cases.push(Case::get(&target).accept(TABLE).status(status).pace(Pace::Ages));
        }
    }
    for target in ["/api/v1/namespaces/empty/pods", "/api/v1/nodes?limit=2", "/api/v1/secrets"] {
        cases.push(Case::get(target).accept(TABLE).pace(Pace::Ages));
    }
    cases
}
