//! What is forwarded: unchanged but for what HTTP demands, in nobody else's name, without waiting.

mod identities;
mod streaming;
mod targets;
mod token_reviews;
mod tunnels;
mod unmodified;
