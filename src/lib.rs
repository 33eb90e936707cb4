//! Listless ("LIST less"): a caching proxy for the Kubernetes apiserver.

pub mod admin;
pub mod api;
pub mod app;
pub mod audit;
pub mod body;
pub mod cache;
pub mod check;
pub mod cli;
pub mod config;
pub mod connection_limit;
#[cfg(feature = "demo")]
pub mod demo;
pub mod error;
pub mod explain;
pub mod gzip;
pub mod hash;
mod held_bytes;
pub mod injector;
pub mod insight;
pub mod lifecycle;
pub mod limit;
pub mod metrics;
pub mod mirror;
pub mod notify;
pub mod policy;
pub mod proxy;
pub mod shares;
#[cfg(feature = "demo")]
pub mod simulator;
pub mod stream;
pub mod supervisor;
pub mod suspension;
pub mod tap;
pub mod terminal;
#[cfg(test)]
mod testing;
pub mod timeline;
pub mod tls;
pub mod upstream;
pub mod websocket;
