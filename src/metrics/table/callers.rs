//! Metrics of callers: reads and their cost, access reviews, sessions, CONNECT and discovery.

use metrics::Unit;

use super::{
    super::{
        labels::{Connect, DocumentResult, EdgeRefusal, Review, ServedBy},
        metric::{Label, Metric, Values, counter, gauge},
    },
    GROUP, RESOURCE, SCOPE, VERB, VERSION,
};

pub(in crate::metrics) const UNSAFE_READS: Metric = counter(
    "listless_unsafe_reads_total",
    Unit::Count,
    &[VERB, GROUP, VERSION, RESOURCE, SCOPE, of!("served_by", ServedBy)],
    "Unsafe reads: LIST and GET without a resourceVersion, which cost the apiserver a consistent \
     read.",
);
pub(in crate::metrics) const SAVED: Metric = counter(
    "listless_saved_requests_total",
    Unit::Count,
    &[GROUP, RESOURCE],
    "Requests answered from memory or with another request's response: requests saved for the \
     apiserver. Listless's own requests are not deducted.",
);
pub(in crate::metrics) const SAVED_BYTES: Metric = counter(
    "listless_saved_bytes_total",
    Unit::Bytes,
    &[GROUP, RESOURCE],
    "Bytes of response bodies that came from memory or from another request's response, as sent.",
);
pub(in crate::metrics) const REVIEWS: Metric = counter(
    "listless_access_reviews_total",
    Unit::Count,
    &[of!("result", Review)],
    "Access reviews sent for callers before memory answers them.",
);
pub(in crate::metrics) const REVIEWS_CACHED: Metric = gauge(
    "listless_access_reviews_cached",
    Unit::Count,
    &[],
    "Cached access reviews, one per caller and permission.",
);
pub(in crate::metrics) const SESSIONS: Metric = gauge(
    "listless_gateway_sessions",
    Unit::Count,
    &[],
    "Sessions of a gateway, one per token, each with the versions its caller has seen and written.",
);
pub(in crate::metrics) const CLIENT_CONNECTS: Metric = counter(
    "listless_client_connects_total",
    Unit::Count,
    &[of!("result", Connect)],
    "CONNECT requests of clients that use Listless as an HTTP proxy.",
);
pub(in crate::metrics) const CLIENT_REFUSED: Metric = counter(
    "listless_client_refused_total",
    Unit::Count,
    &[of!("reason", EdgeRefusal)],
    "Requests that a listener refused before it parsed them; the metrics of requests do not count \
     them.",
);
pub(in crate::metrics) const DOCUMENTS_GIVEN: Metric = counter(
    "listless_discovery_total",
    Unit::Count,
    &[of!("result", DocumentResult)],
    "Discovery and OpenAPI documents served to clients that requested a plain form.",
);
pub(in crate::metrics) const DOCUMENTS_HELD: Metric = gauge(
    "listless_discovery_documents",
    Unit::Count,
    &[],
    "Cached discovery and OpenAPI documents.",
);
pub(in crate::metrics) const DOCUMENT_BYTES: Metric = gauge(
    "listless_discovery_bytes",
    Unit::Bytes,
    &[],
    "Bytes of cached discovery and OpenAPI documents, as sent (compressed or not).",
);
