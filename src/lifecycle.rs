//! Readiness and draining.
