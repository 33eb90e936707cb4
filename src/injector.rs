//! Sidecar injection: the needed changes of pods, in manifests and at admission.
//!
//! [`patch`] computes the changes and has no side effects. [`manifest`] applies them to files.
//! [`review`] returns them to the apiserver. [`keeper`] rotates the webhook's certificates.

pub mod api;
pub mod events;
pub mod keeper;
pub mod keyring;
pub mod lines;
pub mod manifest;
pub mod patch;
pub mod review;
pub mod workload;
