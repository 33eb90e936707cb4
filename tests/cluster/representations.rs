//! The cost of a list in protobuf and in JSON. client-go lists pods directly and through Listless, in
//! each representation.

use std::path::Path;

use serde_json::Value;

use crate::clusters::skipped;
use crate::load::{DATA, Fleet};
use crate::rig::artifact::Built;
use crate::rig::client_program::ClientProgram;
use crate::rig::control_plane::{Component, User, Version};

/// The default Accept header of client-go.
const BOTH: &str = "application/vnd.kubernetes.protobuf,application/json";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The number of reads of a list, and its selections: 50 pods, and all of them.
const LISTS: [(u32, &str); 2] = [(200, "poller=7"), (5, "")];

/// The reads after which a replica of their form answers.
const WARM_LISTS: u32 = 3;

/// One way to request a list, and its expected result.
struct Way {
    name: &'static str,
    through: bool,
    accept: &'static str,
    content_type: &'static str,
    cache_status: &'static str,
}

const WAYS: [Way; 4] = [
    Way {
        name: "straight, protobuf",
        through: false,
        accept: BOTH,
        content_type: PROTOBUF,
        cache_status: "",
    },
    Way {
        name: "straight, JSON",
        through: false,
        accept: JSON,
        content_type: JSON,
        cache_status: "",
    },
    Way {
        name: "Listless, protobuf",
        through: true,
        accept: BOTH,
        content_type: PROTOBUF,
        cache_status: "listless; hit; detail=session",
    },
    Way {
        name: "Listless, JSON",
        through: true,
        accept: JSON,
        content_type: JSON,
        cache_status: "listless; hit; detail=session",
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_gets_the_form_it_prefers_at_no_cost_to_the_apiserver() {
    let program = match ClientProgram::ClientGo.build().expect("a build that works") {
        Built::Here(program) => program,
        Built::Impossible(reason) => return skipped("the client-go program", &reason),
    };
    let Some(fleet) = Fleet::take(Version::V1_36).await else { return };
    let plane = fleet.plane();
    let proxy = fleet.proxy().await.expect("a proxy");
    let straight = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    eprintln!("processor time per list in µs: the client's, the apiserver's, that of Listless");
    for (lists, selector) in LISTS {
        let (mut apiserver, mut own) = (Vec::new(), Vec::new());
        for way in &WAYS {
            let kubeconfig = if way.through { proxy.kubeconfig() } else { &straight };
            // The cost of a new replica is not that of a list.
            measure(&program, kubeconfig, way.accept, WARM_LISTS, selector).await;
            let used = || {
                let apiserver = plane.cpu_seconds(Component::Apiserver).expect("a time");
                (apiserver, proxy.cpu_seconds().expect("a time"))
            };
            let before = used();
            let measured = measure(&program, kubeconfig, way.accept, lists, selector).await;
            let after = used();
            let micros = |seconds: f64| seconds * 1e6 / f64::from(lists + 1);
            let (server, listless) = (micros(after.0 - before.0), micros(after.1 - before.1));
            eprintln!(
                "{:>5} pods  {:<26} {:>9} {server:>9.0} {listless:>9.0}",
                measured["items"], way.name, measured["cpuMicros"]
            );
            assert_eq!(measured["contentType"], way.content_type, "{}", way.name);
            assert_eq!(measured["cacheStatus"], way.cache_status, "{}", way.name);
            apiserver.push(server);
            own.push(listless);
        }
        let [protobuf, json, ours, ours_in_json] = apiserver[..] else { panic!("four figures") };
        assert!(ours < protobuf / 2.0, "{ours} µs from memory, {protobuf} µs directly");
        assert!(ours_in_json < json / 2.0, "{ours_in_json} µs from memory, {json} µs directly");
        let [.., own_in_protobuf, own_in_json] = own[..] else { panic!("four figures") };
        eprintln!(
            "proof: Listless' own time in protobuf ÷ JSON: {:.2}",
            own_in_protobuf / own_in_json
        );
    }
}

async fn measure(
    program: &Path,
    kubeconfig: &Path,
    accept: &str,
    lists: u32,
    selector: &str,
) -> Value {
    let lists = lists.to_string();
    let arguments = [
        ["-namespace", DATA.namespace],
        ["-lists", &lists],
        ["-selector", selector],
        ["-accept", accept],
    ];
    let arguments: Vec<String> = arguments.into_iter().flatten().map(str::to_owned).collect();
    ClientProgram::ClientGo.run(program, kubeconfig, &arguments, &[]).await.expect("a measure")
}
