//! Reads and watches in the forms that clients ask for, straight and through Listless: protobuf and
//! tables, byte for byte.
//!
//! The cases come from tables of kinds, scopes, selectors, versions and `Accept` values. The data
//! has objects of more than 40 kinds from seconds to years old. A table is compared with two of the
//! apiserver, one before it and one after it, that are equal.

mod ages;
mod kinds;
mod protobuf;
mod tables;
mod watches;

use std::collections::BTreeSet;

pub use ages::load;

use crate::clusters::Cluster;
use crate::differential::case::{Caller, Case, Memory};
use crate::differential::target::{Kind, Target};
use crate::differential::{Report, Suite};
use crate::rig::client::Protocol;
use crate::rig::control_plane::{User, Version};
use crate::rig::proxy_process::ProxyProcess;

/// The share in per cent of a form's wanted answers that must come from memory at least. Zero means
/// that the form is still forwarded.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Lists and objects in protobuf.
    protobuf: usize,
    /// Lists and objects as tables.
    tables: usize,
    /// Watches in protobuf.
    protobuf_watches: usize,
    /// Watches of tables.
    table_watches: usize,
    /// The LISTs of the kubectl matrix, in per cent, that the apiserver need not answer.
    pub kubectl_lists_saved: f64,
    /// The LISTs of a walk with k9s, in per cent, that the apiserver need not answer.
    pub k9s_lists_saved: f64,
    /// Helm's releases cost no LIST of secrets.
    pub releases_from_memory: bool,
    /// `kubectl get pods -A` on thousands of pods costs no LIST and 0.6 of the time.
    pub all_pods_from_memory: bool,
}

/// The shares that hold today.
pub const EXPECTED: Expected = Expected {
    protobuf: 90,
    tables: 80,
    protobuf_watches: 80,
    table_watches: 50,
    kubectl_lists_saved: 15.0,
    k9s_lists_saved: 60.0,
    releases_from_memory: true,
    all_pods_from_memory: true,
};

/// The numbers of cases; they may only grow.
const PROTOBUF_MIN: usize = 250;
const TABLES_MIN: usize = 180;

const READER: Caller = Caller::User(User::Reader);
const NOBODY: Caller = Caller::User(User::Nobody);
const UNKNOWN: Caller = Caller::UnknownToken;

/// Every collection is read in its own right, so many queries are alive at once.
const CONFIGURATION: &str = "\
apiVersion: listless.dev/v1alpha1
kind: ProxyConfiguration
repeatPolls: {action: off}
";

#[tokio::test]
async fn reads_in_protobuf_through_listless_equal_the_apiservers_on_1_36() {
    equal(Version::V1_36, "protobuf", protobuf_cases(), EXPECTED.protobuf).await;
}

#[tokio::test]
async fn reads_in_protobuf_through_listless_equal_the_apiservers_on_1_30() {
    equal(Version::V1_30, "protobuf", protobuf_cases(), EXPECTED.protobuf).await;
}

#[tokio::test]
async fn tables_through_listless_equal_the_apiservers_on_1_36() {
    equal(Version::V1_36, "tables", table_cases(), EXPECTED.tables).await;
}

#[tokio::test]
async fn tables_through_listless_equal_the_apiservers_on_1_30() {
    equal(Version::V1_30, "tables", table_cases(), EXPECTED.tables).await;
}

#[test]
fn the_tables_of_cases_have_no_case_twice() {
    let (protobuf, tables) = (protobuf_cases(), table_cases());
    assert!(protobuf.len() >= PROTOBUF_MIN, "{} cases in protobuf", protobuf.len());
    assert!(tables.len() >= TABLES_MIN, "{} tables", tables.len());
    let names: BTreeSet<String> = protobuf.iter().chain(&tables).map(Case::name).collect();
    assert_eq!(names.len(), protobuf.len() + tables.len());
}

/// The reads in protobuf.
pub fn protobuf_cases() -> Vec<Case> {
    distinct(protobuf::cases())
}

/// The reads of tables.
pub fn table_cases() -> Vec<Case> {
    distinct(tables::cases())
}

/// The axes of a matrix may meet in one case.
fn distinct(mut cases: Vec<Case>) -> Vec<Case> {
    let mut names = BTreeSet::new();
    cases.retain(|case| names.insert(case.name()));
    cases
}

async fn equal(version: Version, form: &str, mut cases: Vec<Case>, percent: usize) {
    let Some(cluster) = Cluster::take_aged(version).await else { return };
    let kubeconfig = cluster.plane().kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, Some(CONFIGURATION)).await.expect("a proxy");
    let is_wanted = |case: &&Case| case.memory == Memory::Wanted;
    let intended = cases.iter().filter(is_wanted).count();
    if percent == 0 {
        // Nothing is repeated for an answer that cannot come.
        let wanted = cases.iter_mut().filter(|case| case.memory == Memory::Wanted);
        wanted.for_each(|case| case.memory = Memory::Free);
    }
    let token = proxy.token().expect("a token in the written kubeconfig");
    let target = Target::new(proxy.server(), token, Kind::Listless, Protocol::Http2);
    let mut suite = Suite::new(cluster.plane(), cluster.dataset(), target).expect("a suite");
    if percent > 0 {
        suite = suite.of_one_form();
    }
    let report = suite.run(&cases).await.expect("a whole run");
    let (name, given) = (cluster.plane().version().name(), given(&report));
    // Each case runs over both HTTP versions.
    let intended = 2 * intended;
    eprintln!(
        "proof: {form} through Listless on {name}: {given} of {intended} intended from memory, {percent} % required; {report}"
    );
    assert!(report.differences.is_empty(), "{report}\n{}", proxy.log());
    assert!(given * 100 >= intended * percent, "{report}\n{}", proxy.log());
}

/// The wanted answers that came from memory.
fn given(report: &Report) -> usize {
    report.wanted - report.behind - report.cold.len()
}
