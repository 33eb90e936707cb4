//! The integration tests that need only this repository: one binary, one module per subject.

mod admin;
mod authorization;
mod bad_input;
mod callers;
mod chart;
mod cli;
mod coalescing;
mod config;
mod connect;
mod consistency;
mod discovery;
mod exhaustion;
mod faults;
mod forms;
mod forwarding;
mod freshness;
mod fuzz;
mod harness;
mod injection;
mod insight;
mod metrics;
mod monitoring;
mod observe;
mod outcomes;
mod own_work;
mod pages;
mod polls;
mod reads;
mod records;
#[cfg(unix)]
mod services;
mod tables;
mod tidy;
mod watches;
