//! The integration tests that need nothing but this repository: one binary, one module per subject.

mod config;
mod harness;
mod metrics;
mod reads;
mod tidy;
