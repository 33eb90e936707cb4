//! The estimated cost of a request for kube-apiserver and etcd, by a documented formula. Pure.
//!
//! The numbers were measured on kube-apiserver 1.36 with etcd 3.6: CPU time per request over pods
//! of 14.6 KB. The report prints the formula.

use super::report::Cost;

/// The unit of costs.
pub type Micros = f64;

/// The requested version of a read, as far as it affects the cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Freshness {
    /// Unset: a consistent read.
    Unset,
    /// Zero: any version.
    Any,
    /// Not older than, or exactly, some version.
    Given,
    /// Not a read, or not a plain one.
    NoRead,
}

/// The work for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A read of one object.
    Get(Freshness),
    /// A scan of a collection of so many objects.
    List(Freshness, u32),
    /// Any other work.
    Other,
}

/// The formula in words, shown with every estimate.
pub const FORMULA: &str = "estimate, microseconds: apiserver LIST 500 + 0.4 x objects gone through \
+ 8 x KB of answer, GET 830 (resourceVersion=0: 250) + 8 x KB, anything else 500 + 8 x KB; etcd \
consistent LIST 350, consistent GET 236, resourceVersion=0 30 and 3; deducted for each own request 500 + 8 x KB to replicas, etcd 236; \
measured on 1.36, where \
consistent reads come from the apiserver's cache: an apiserver without it spends some ten times \
as much on a LIST";

const LIST: Micros = 500.0;
const PER_OBJECT: Micros = 0.4;
const PER_KILOBYTE: Micros = 8.0;
const GET: Micros = 830.0;
const GET_ANY: Micros = 250.0;
const OTHER: Micros = 500.0;
const ETCD_LIST: Micros = 350.0;
const ETCD_LIST_ANY: Micros = 30.0;
const ETCD_GET: Micros = 236.0;
const ETCD_GET_ANY: Micros = 3.0;

/// Returns the apiserver's and etcd's cost in microseconds. `bytes` is the size of the response.
pub fn of(work: Work, bytes: u64) -> (Micros, Micros) {
    let by_bytes = PER_KILOBYTE * bytes as f64 / 1000.0;
    let (fixed, etcd) = match work {
        Work::Get(Freshness::Any) => (GET_ANY, ETCD_GET_ANY),
        Work::Get(_) => (GET, ETCD_GET),
        Work::List(freshness, objects) => {
            let consistent = freshness == Freshness::Unset;
            let etcd = if consistent { ETCD_LIST } else { ETCD_LIST_ANY };
            (LIST + PER_OBJECT * f64::from(objects), etcd)
        }
        Work::Other => (OTHER, 0.0),
    };
    (fixed + by_bytes, etcd)
}

/// Returns the cost of Listless's own requests and of the bytes sent to replicas.
pub fn of_own(requests: u64, bytes: u64) -> (Micros, Micros) {
    let requests = requests as f64;
    (OTHER * requests + PER_KILOBYTE * bytes as f64 / 1000.0, ETCD_GET * requests)
}

/// Converts to seconds, as in reports.
pub fn seconds((apiserver, etcd): (Micros, Micros)) -> Cost {
    Cost { apiserver_cpu_seconds: apiserver / 1e6, etcd_cpu_seconds: etcd / 1e6 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The measured values in microseconds: the apiserver's, and etcd's if measured.
    const MEASURED: &[(&str, Work, u64, f64, Option<f64>)] = &[
        ("GET, unset", Work::Get(Freshness::Unset), 14_600, 944.0, Some(236.0)),
        ("GET, 0", Work::Get(Freshness::Any), 14_600, 369.0, Some(3.0)),
        ("LIST, none of 5000", Work::List(Freshness::Unset, 5000), 100, 2577.0, Some(363.0)),
        ("LIST, 10 of 5000", Work::List(Freshness::Unset, 5000), 148_000, 3857.0, Some(363.0)),
        ("LIST, 50 of 5000", Work::List(Freshness::Unset, 5000), 739_000, 9182.0, Some(363.0)),
        ("LIST, 50 of 5000, 0", Work::List(Freshness::Any, 5000), 739_000, 7733.0, Some(34.0)),
        ("LIST a namespace", Work::List(Freshness::Any, 500), 7_300_000, 59_420.0, None),
        ("LIST all", Work::List(Freshness::Any, 5000), 73_000_000, 530_588.0, None),
        ("a name that is not there", Work::List(Freshness::Unset, 1), 100, 528.0, None),
    ];

    #[test]
    fn the_formula_is_within_a_fifth_of_what_was_measured() {
        for (what, work, bytes, apiserver, etcd) in MEASURED {
            let (found, found_etcd) = of(*work, *bytes);
            assert!((found / apiserver - 1.0).abs() <= 0.2, "{what}: {found} for {apiserver}");
            let Some(etcd) = etcd else { continue };
            assert!((found_etcd / etcd - 1.0).abs() <= 0.2, "{what}: {found_etcd} for {etcd}");
        }
    }
}
