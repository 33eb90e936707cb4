//! Tests against a real control plane: etcd and kube-apiserver, built from source with Go.
//!
//! One control plane per version is shared by all tests, which take turns: the suites compare
//! answers about a quiet cluster and measure load. Without Go the tests print why they do nothing;
//! with `LISTLESS_REQUIRE_CLUSTER=1` they fail instead.

mod clusters;
mod dataset;
mod differential;
mod direct;
mod load;
mod read_your_writes;
mod rig;
mod ryw;
mod simulated;
mod through_listless;
mod under_load;
