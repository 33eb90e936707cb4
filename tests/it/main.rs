//! The integration tests that need nothing but this repository: one binary, one module per subject.

mod authorization;
mod bad_input;
mod callers;
mod cli;
mod coalescing;
mod config;
mod connect;
mod faults;
mod forwarding;
mod freshness;
mod harness;
mod injection;
mod metrics;
#[cfg(feature = "mutants")]
mod mutants;
mod reads;
mod tidy;
mod watches;
