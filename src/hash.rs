//! The hasher of the data path.
//!
//! Several tables are asked for every request; the standard hasher took a tenth of the instructions
//! of an answer from memory. This one is seeded per process, and every table it serves is bounded.

/// Hashes the keys of tables that every request asks.
pub type RandomState = foldhash::quality::RandomState;

/// A map that every request asks.
pub type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
