//! Config maps, secrets, services and other namespaced objects that are not workloads.

use serde_json::{Value, json};

use super::{Item, NAMESPACES, cluster_scoped::base64_text};

pub(super) fn items() -> Vec<Item> {
    let mut items = config_maps();
    items.extend(escapes());
    items.extend(secrets());
    items.extend(services());
    items.extend(events());
    items.extend(others());
    items
}

fn config_map(namespace: &str, name: &str, labels: Value, data: Value) -> Item {
    Item::new(
        format!("/api/v1/namespaces/{namespace}/configmaps"),
        json!({"metadata": {"name": name, "labels": labels}, "data": data}),
    )
}

/// Names whose byte order differs from that of a human or a locale.
fn config_maps() -> Vec<Item> {
    let names = ["a", "a-b", "a.b", "a0", "b", "b.a-c", "z", "0", "9.z", "settings"];
    let mut items = Vec::new();
    for namespace in NAMESPACES.iter().filter(|namespace| **namespace != "empty") {
        for (index, name) in names.iter().enumerate() {
            let labels = json!({"kind": if index % 2 == 0 { "even" } else { "odd" }, "set": ""});
            items.push(config_map(namespace, name, labels, json!({"index": index.to_string()})));
        }
    }
    for (name, size) in [("big-1", 100_000), ("big-2", 300_000), ("big-3", 900_000)] {
        items.push(config_map("shop", name, json!({"big": "yes"}), json!({"text": prose(size)})));
    }
    items.push(config_map("shop", "none", json!({}), Value::Null));
    let going = json!({"metadata": {
        "name": "going", "labels": {"kind": "going"}, "finalizers": ["example.com/stay"]}});
    items.push(Item::new("/api/v1/namespaces/shop/configmaps", going));
    items
}

/// Repetitive but not constant, so that compression behaves as it does on real data.
fn prose(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 32);
    let mut number: u32 = 1;
    while text.len() < bytes {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.push_str(&format!("line {number}: value={}\n", number % 97));
    }
    text
}

/// Values that JSON writers escape, each in its own way.
fn escapes() -> impl Iterator<Item = Item> {
    let values = [
        ("markup", "<a href=\"x\">&amp;</a>"),
        ("separators", "line\u{2028}paragraph\u{2029}end"),
        ("emoji", "\u{1F600} \u{1F469}\u{200D}\u{1F4BB} \u{1F1EA}\u{1F1FA}"),
        ("controls", "tab\t newline\n return\r bell\u{7} null\u{0} delete\u{7f} escape\u{1b}"),
        ("backslashes", "\\ \\\\ \" \\\" / \\u0041"),
        ("scripts", "Grüße Ελλάδα Москва 日本語 العربية עברית हिन्दी"),
        ("combining", "e\u{301} \u{e9} \u{fb01} \u{FEFF}bom"),
        ("last", "\u{10FFFF}\u{E000}\u{D7FF}\u{FFFD}"),
        ("json", "{\"resourceVersion\":\"1\",\"items\":[]}"),
        ("empty", ""),
    ];
    values.into_iter().map(|(name, value)| {
        let metadata = json!({
            "name": format!("escape-{name}"),
            "labels": {"kind": "escape"},
            "annotations": {"example.com/value": value},
        });
        let raw = base64_text([0_u8, 255, 128, 10]);
        Item::new(
            "/api/v1/namespaces/shop/configmaps",
            json!({"metadata": metadata, "data": {"value": value}, "binaryData": {"raw": raw}}),
        )
    })
}

fn secrets() -> impl Iterator<Item = Item> {
    let kinds = [
        ("plain", "Opaque", json!({"password": "x"})),
        ("login", "kubernetes.io/basic-auth", json!({"username": "u", "password": "p"})),
        ("other", "example.com/custom", json!({})),
    ];
    let namespaces = ["shop", "a"];
    namespaces.into_iter().flat_map(move |namespace| {
        kinds.clone().into_iter().map(move |(name, kind, data)| {
            Item::new(
                format!("/api/v1/namespaces/{namespace}/secrets"),
                json!({"metadata": {"name": name}, "type": kind, "stringData": data}),
            )
        })
    })
}

fn services() -> impl Iterator<Item = Item> {
    let ports = json!([{"port": 80}]);
    let specs = [
        ("web", json!({"clusterIP": "10.96.7.1", "ports": ports, "selector": {"app": "web"}})),
        ("db", json!({"clusterIP": "None", "ports": ports})),
        ("far", json!({"type": "ExternalName", "externalName": "example.com"})),
        ("edge", json!({"type": "NodePort", "ports": [{"port": 81, "nodePort": 30081}]})),
    ];
    specs.into_iter().map(|(name, spec)| {
        let metadata = json!({"name": name, "labels": {"app": name}});
        Item::new("/api/v1/namespaces/shop/services", json!({"metadata": metadata, "spec": spec}))
    })
}

fn events() -> impl Iterator<Item = Item> {
    (0..6).map(|number| {
        let involved =
            json!({"kind": "Pod", "namespace": "shop", "name": format!("web-{}", number % 2)});
        Item::new(
            "/api/v1/namespaces/shop/events",
            json!({
                "metadata": {"name": format!("event-{number}")},
                "involvedObject": involved,
                "reason": if number % 2 == 0 { "Pulled" } else { "Failed" },
                "type": if number % 2 == 0 { "Normal" } else { "Warning" },
                "message": "text", "source": {"component": "rig"},
                "firstTimestamp": "2024-01-01T00:00:00Z", "lastTimestamp": "2024-01-01T00:00:00Z",
                "count": 1,
            }),
        )
    })
}

fn others() -> Vec<Item> {
    let core = "/api/v1/namespaces/shop";
    vec![
        Item::new(
            format!("{core}/serviceaccounts"),
            json!({"metadata": {"name": "builder", "labels": {"app": "ci"}}}),
        ),
        Item::new(
            format!("{core}/persistentvolumeclaims"),
            json!({"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        Item::new(
            "/apis/coordination.k8s.io/v1/namespaces/shop/leases",
            json!({"metadata": {"name": "leader"}, "spec": {"holderIdentity": "nobody"}}),
        ),
        Item::new(
            "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices",
            json!({"metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
                   "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.7"]}],
                   "ports": [{"port": 80}]}),
        ),
        Item::new(
            "/apis/networking.k8s.io/v1/namespaces/shop/ingresses",
            json!({"metadata": {"name": "front"}, "spec": {"defaultBackend": {
                "service": {"name": "web", "port": {"number": 80}}}}}),
        ),
    ]
}
