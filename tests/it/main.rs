//! The integration tests that need nothing but this repository: one binary, one module per subject.

mod cli;
mod config;
mod freshness;
mod harness;
mod metrics;
mod reads;
mod tidy;
