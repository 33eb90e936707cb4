//! The whole proxy in one process, and the promises its files make.

mod config;
mod metrics;
