//! Tests of the comparison itself: it must report nothing for equal responses, and detect every
//! fault.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clusters::Cluster;
use crate::dataset::{Dataset, current_version};
use crate::differential::case::{Case, Pace};
use crate::differential::judge::{Bounds, ComparedAnswers, Side};
use crate::differential::mutation::Mutation;
use crate::differential::target::{Kind, Target};
use crate::differential::{Suite, cases};
use crate::rig::client::{Answer, Client, Protocol};
use crate::rig::control_plane::{User, Version};

/// The table may only grow.
const CASES_MIN: usize = 220;

/// The number of retries of an apiserver that differs from itself.
const SETTLE_ATTEMPTS: usize = 15;
const SETTLE_POLL: Duration = Duration::from_secs(1);

#[tokio::test]
async fn the_apiserver_compared_with_itself_shows_no_difference_on_1_36() {
    no_false_alarm(Version::V1_36).await;
}

#[tokio::test]
async fn the_apiserver_compared_with_itself_shows_no_difference_on_1_30() {
    no_false_alarm(Version::V1_30).await;
}

#[tokio::test]
async fn every_fault_in_an_answer_is_noticed_on_1_36() {
    every_fault_is_noticed(Version::V1_36).await;
}

#[tokio::test]
async fn every_fault_in_an_answer_is_noticed_on_1_30() {
    every_fault_is_noticed(Version::V1_30).await;
}

async fn no_false_alarm(version: Version) {
    let Some(cluster) = Cluster::take(version).await else { return };
    let server = cluster.plane().server().expect("an address");
    let target = Target::new(&server, &User::Admin.token(), Kind::Apiserver, Protocol::Http2);
    let suite = Suite::new(cluster.plane(), cluster.dataset(), target).expect("a suite");
    let report = suite.run(&cases::all()).await.expect("a whole run");
    eprintln!("proof: {} against itself: {report}", version.name());
    assert!(report.cases >= CASES_MIN, "only {} cases", report.cases);
    assert!(report.differences.is_empty(), "{report}");
}

async fn every_fault_is_noticed(version: Version) {
    let Some(cluster) = Cluster::take(version).await else { return };
    let mut applied: BTreeMap<String, usize> = BTreeMap::new();
    let mut missed = Vec::new();
    let server = cluster.plane().server().expect("an address");
    let target = Target::new(&server, &User::Admin.token(), Kind::Apiserver, Protocol::Http2);
    let probe = cluster.plane().client(User::Admin, Protocol::Http2).expect("a client");
    for case in cases::all().iter().filter(|case| case.pace != Pace::Clock) {
        let pair = Pair::equal(case, cluster.dataset(), &target, &probe).await;
        for mutation in Mutation::ALL {
            let Some(faulty) = mutation.apply(&pair.through) else { continue };
            *applied.entry(format!("{mutation:?}")).or_default() += 1;
            if pair.differences(&faulty).is_empty() {
                missed.push(format!("{mutation:?} in {}", case.name()));
            }
        }
    }
    eprintln!("proof: {}: faults put in and noticed: {applied:?}", version.name());
    assert!(missed.is_empty(), "not noticed: {missed:#?}");
    for mutation in Mutation::ALL {
        assert!(applied.contains_key(&format!("{mutation:?}")), "{mutation:?} never applied");
    }
}

/// Two responses of the apiserver to one case, the second disguised as a cache's.
struct Pair<'a> {
    case: &'a Case,
    dataset: &'a Dataset,
    direct: Side,
    through: Answer,
    bounds: Bounds,
}

// === impl Pair ===

impl<'a> Pair<'a> {
    /// Two responses that do not differ; an apiserver that has just started may need some more
    /// attempts.
    async fn equal(case: &'a Case, dataset: &'a Dataset, target: &Target, probe: &Client) -> Self {
        let mut poll = tokio::time::interval(SETTLE_POLL);
        for _ in 0..SETTLE_ATTEMPTS {
            poll.tick().await;
            let pair = Self::of(case, dataset, target, probe).await;
            let differences = pair.differences(&pair.through);
            if differences.is_empty() {
                return pair;
            }
            eprintln!("{} differs from itself: {differences:?}", case.name());
        }
        panic!("{} never settled", case.name());
    }

    async fn of(case: &'a Case, dataset: &'a Dataset, target: &Target, probe: &Client) -> Self {
        let floor = current_version(probe).await.expect("a version");
        let request = || case.request(dataset);
        let send = || async { target.send(case.caller, request()).await.expect("an answer") };
        let (direct, mut through) = tokio::join!(send(), send());
        let forwarded = http::HeaderValue::from_static("listless; fwd=bypass; detail=test");
        through.headers.insert("cache-status", forwarded);
        let ceiling = current_version(probe).await.expect("a version");
        let direct = Side::new(direct);
        Self { case, dataset, direct, through, bounds: Bounds { floor, ceiling } }
    }

    fn differences(&self, through: &Answer) -> Vec<String> {
        let exchange = ComparedAnswers {
            case: self.case,
            dataset: self.dataset,
            kind: Kind::Listless,
            direct: &self.direct,
            through: &Side::new(through.clone()),
            bounds: self.bounds,
        };
        exchange.differences()
    }
}
