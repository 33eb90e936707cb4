//! Tests against a real control plane: etcd and kube-apiserver, built from source with Go.
//!
//! All tests share one control plane per version and take turns: the suites compare responses about
//! a quiet cluster and measure load. Without Go the tests print the reason and do nothing; with
//! `LISTLESS_REQUIRE_CLUSTER=1` they fail instead.
#![expect(
    unreachable_pub,
    clippy::print_stderr,
    clippy::large_futures,
    reason = "the rig is shared with the benches; tests tell what they skip and find; one future runs at a time"
)]

mod chart;
mod check;
mod clusters;
mod dataset;
mod definitions;
mod differential;
mod direct;
mod discovery;
mod drivers;
mod estimate;
mod etcd;
mod faults;
mod forms;
mod gateway;
mod gzip;
mod helm;
mod histories;
mod injector;
mod k9s;
mod kubectl;
mod load;
mod local;
mod mixed;
mod page;
mod prometheus;
mod protobuf_reads;
mod protobuf_watches;
mod read_your_writes;
mod relay;
mod representations;
mod rig;
mod rig_works;
mod ryw;
mod sidecar;
mod simulated;
mod soak;
mod through_listless;
mod under_load;
mod unmodified;
mod watches;
