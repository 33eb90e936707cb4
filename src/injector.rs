//! Getting a sidecar into pods: what must change in them, in files and on their way into the cluster.
//!
//! [`patch`] decides, and does nothing else. [`manifest`] makes its changes in files. [`review`]
//! answers the apiserver with them; [`keeper`] looks after the certificates that this takes.

pub mod api;
pub mod events;
pub mod keeper;
pub mod keyring;
pub mod manifest;
pub mod patch;
pub mod review;
pub mod workload;
