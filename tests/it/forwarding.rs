//! Forwarding: only the changes HTTP demands, only the caller's credentials, and no waiting.

mod identities;
mod streaming;
mod targets;
mod token_reviews;
mod tunnels;
mod unmodified;
