//! The estimated cost of a request for kube-apiserver and etcd, by a documented formula. Pure.
//!
//! The numbers were measured on kube-apiserver 1.36 and 1.30 with etcd 3.6: CPU time per request over
//! pods of 9 and 14.6 KB. The report prints the formula. The objects that a LIST goes through are
//! those of the replica that answers: beside a replica of a narrow selection, the true cost is higher.

use super::report::Cost;
use crate::api::form::Form;

/// The unit of costs.
pub type Micros = f64;

/// The requested version of a read, as far as it affects the cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestedVersion {
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
    Get(RequestedVersion),
    /// A scan of a collection.
    List(RequestedVersion, Collection, Lists),
    /// Any other work.
    Other,
}

/// A collection that the apiserver goes through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Collection {
    /// The number of its objects.
    pub objects: u32,
    /// The size of the objects, in the form of the replica.
    pub bytes: u64,
}

/// The source of the apiserver's consistent lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lists {
    /// Its watch cache (ConsistentListFromCache), the default since Kubernetes 1.31.
    #[default]
    FromCache,
    /// etcd.
    FromEtcd,
}

/// The encoding of a response body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoding {
    /// The form of the objects.
    pub form: Form,
    /// The size before compression; `None` if it was not compressed.
    pub decompressed: Option<u64>,
}

/// The cost of each kilobyte of an answer: one price for its beginning, and one for the rest.
struct PerKilobyte {
    first: Micros,
    rest: Micros,
}

const LIST: Micros = 500.0;
const PER_OBJECT: Micros = 0.55;
/// Before Kubernetes 1.31.
const PER_OBJECT_BEFORE: Micros = 0.64;
/// The beginning of an answer, in kilobytes: large lists are encoded piece by piece.
const FIRST_KILOBYTES: f64 = 1000.0;
const JSON: PerKilobyte = PerKilobyte { first: 6.5, rest: 5.8 };
const PROTOBUF: PerKilobyte = PerKilobyte { first: 5.5, rest: 3.3 };
/// Before Kubernetes 1.31. Later ones encode long lists object by object.
const PROTOBUF_BEFORE: PerKilobyte = PerKilobyte { rest: 2.3, ..PROTOBUF };
const TABLE: PerKilobyte = PerKilobyte { first: 11.0, rest: 11.0 };
/// Small, because less is encrypted and sent.
const COMPRESSION: Micros = 0.5;
const PER_KILOBYTE_READ: Micros = 3.7;
const ETCD_PER_KILOBYTE_READ: Micros = 1.0;
/// The size of typical objects as JSON, to that in protobuf.
const PROTOBUF_AS_JSON: f64 = 1.3;
const GET: Micros = 560.0;
const GET_ANY: Micros = 280.0;
const OTHER: Micros = 500.0;
const ETCD_LIST: Micros = 350.0;
const ETCD_LIST_ANY: Micros = 30.0;
const ETCD_GET: Micros = 236.0;
const ETCD_GET_ANY: Micros = 3.0;

/// Returns the apiserver's and etcd's cost in microseconds. `bytes` is the size of the response as
/// sent.
pub fn of(work: Work, bytes: u64, encoding: Encoding) -> (Micros, Micros) {
    let Encoding { form, decompressed } = encoding;
    let bytes = decompressed.unwrap_or(bytes);
    let price = match (form, work) {
        (Form::Json, _) => JSON,
        (Form::Protobuf, Work::List(.., Lists::FromEtcd)) => PROTOBUF_BEFORE,
        (Form::Protobuf, _) => PROTOBUF,
        (Form::Table, _) => TABLE,
    };
    let compression = if decompressed.is_some() { COMPRESSION } else { 0.0 };
    let by_bytes = price.of(kilobytes(bytes)) + compression * kilobytes(bytes);
    let (fixed, etcd) = match work {
        Work::Get(RequestedVersion::Any) => (GET_ANY, ETCD_GET_ANY),
        Work::Get(_) => (GET, ETCD_GET),
        Work::List(version, Collection { objects, bytes }, lists) => {
            let is_consistent = version == RequestedVersion::Unset;
            let per_object = match lists {
                Lists::FromCache => PER_OBJECT,
                Lists::FromEtcd => PER_OBJECT_BEFORE,
            };
            let scan = LIST + per_object * f64::from(objects);
            match (is_consistent, lists) {
                (false, _) => (scan, ETCD_LIST_ANY),
                (true, Lists::FromCache) => (scan, ETCD_LIST),
                (true, Lists::FromEtcd) => {
                    let is_protobuf = form == Form::Protobuf;
                    let read = kilobytes(bytes) * if is_protobuf { PROTOBUF_AS_JSON } else { 1.0 };
                    (scan + PER_KILOBYTE_READ * read, ETCD_LIST + ETCD_PER_KILOBYTE_READ * read)
                }
            }
        }
        Work::Other => (OTHER, 0.0),
    };
    (fixed + by_bytes, etcd)
}

/// Returns the formula in words, which is shown with every estimate.
pub fn formula() -> String {
    format!(
        "estimate, microseconds: apiserver LIST {LIST} + {PER_OBJECT} x objects gone through \
         (before Kubernetes 1.31 {PER_OBJECT_BEFORE}), GET {GET} (resourceVersion=0: {GET_ANY}), anything else {OTHER}; more for each KB of answer: \
         {} ({} above {FIRST_KILOBYTES} KB; protobuf {} and {}, before 1.31 {}; Table {}; compressed \
         {COMPRESSION} more), and before Kubernetes 1.31 for each KB that a consistent LIST goes \
         through: {PER_KILOBYTE_READ}; etcd consistent LIST {ETCD_LIST} (before 1.31 \
         {ETCD_PER_KILOBYTE_READ} x KB more), consistent GET {ETCD_GET}, resourceVersion=0 \
         {ETCD_LIST_ANY} and {ETCD_GET_ANY}; deducted for each own request {OTHER} + \
         {} x KB to replicas, etcd {ETCD_GET}; another machine is faster or slower at everything",
        JSON.first,
        JSON.rest,
        PROTOBUF.first,
        PROTOBUF.rest,
        PROTOBUF_BEFORE.rest,
        TABLE.first,
        JSON.rest
    )
}

// === impl PerKilobyte ===

impl PerKilobyte {
    fn of(&self, kilobytes: f64) -> Micros {
        let first = kilobytes.min(FIRST_KILOBYTES);
        self.first * first + self.rest * (kilobytes - first)
    }
}

fn kilobytes(bytes: u64) -> f64 {
    bytes as f64 / 1000.0
}

/// Returns the cost of Listless's own requests and of the bytes sent to replicas.
pub fn of_own(requests: u64, bytes: u64) -> (Micros, Micros) {
    let requests = requests as f64;
    (OTHER * requests + JSON.rest * kilobytes(bytes), ETCD_GET * requests)
}

/// Converts to seconds, as in reports.
pub fn seconds((apiserver, etcd): (Micros, Micros)) -> Cost {
    Cost { apiserver_cpu_seconds: apiserver / 1e6, etcd_cpu_seconds: etcd / 1e6 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: Collection = Collection { objects: 5000, bytes: 73_000_000 };
    const UNSET: Work = Work::List(RequestedVersion::Unset, PODS, Lists::FromCache);
    const ANY: Work = Work::List(RequestedVersion::Any, PODS, Lists::FromCache);

    /// The measured values in microseconds: the apiserver's, and etcd's if measured.
    const MEASURED: &[(&str, Work, u64, f64, Option<f64>)] = &[
        ("GET, unset", Work::Get(RequestedVersion::Unset), 14_600, 944.0, Some(236.0)),
        ("GET, 0", Work::Get(RequestedVersion::Any), 14_600, 369.0, Some(3.0)),
        ("LIST, none of 5000", UNSET, 100, 2577.0, Some(363.0)),
        ("LIST, 10 of 5000", UNSET, 148_000, 3857.0, Some(363.0)),
        ("LIST, 50 of 5000", UNSET, 739_000, 9182.0, Some(363.0)),
        ("LIST, 50 of 5000, 0", ANY, 739_000, 7733.0, Some(34.0)),
        ("LIST all", ANY, 73_000_000, 530_588.0, None),
    ];

    #[test]
    fn the_formula_is_within_a_third_of_what_was_measured() {
        for (what, work, bytes, apiserver, etcd) in MEASURED {
            let (found, found_etcd) = of(*work, *bytes, Encoding::default());
            assert!((found / apiserver - 1.0).abs() <= 0.33, "{what}: {found} for {apiserver}");
            let Some(etcd) = etcd else { continue };
            assert!((found_etcd / etcd - 1.0).abs() <= 0.2, "{what}: {found_etcd} for {etcd}");
        }
    }

    #[test]
    fn a_compressed_answer_costs_as_much_as_before_its_compression() {
        let plain = of(UNSET, 739_000, Encoding::default()).0;
        let encoding = Encoding { decompressed: Some(739_000), ..Encoding::default() };
        let compressed = of(UNSET, 100_000, encoding).0;
        assert!((plain..plain * 1.1).contains(&compressed), "{compressed} for {plain}");
    }

    #[test]
    fn a_consistent_list_from_etcd_costs_the_whole_collection() {
        let from_etcd =
            |version| of(Work::List(version, PODS, Lists::FromEtcd), 100, Encoding::default());
        let from_cache = of(ANY, 100, Encoding::default()).0;
        assert!((1.0..1.5).contains(&(from_etcd(RequestedVersion::Any).0 / from_cache)));
        assert!(
            from_etcd(RequestedVersion::Unset).0 > 50.0 * of(UNSET, 100, Encoding::default()).0
        );
    }
}
