//! Listless ("LIST less"): a caching sidecar proxy for the Kubernetes apiserver.

pub mod api;
pub mod body;
pub mod upstream;
