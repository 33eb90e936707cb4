//! Getting a sidecar into pods: what must change in them, in files and on their way into the cluster.
//!
//! [`patch`] decides, and does nothing else. Manifests are files in which its changes are made; the
//! webhook sends them to the apiserver.

pub mod manifest;
pub mod patch;
pub mod workload;
