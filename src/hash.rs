//! The hasher of the data path.
//!
//! Every request looks up several tables. The standard hasher took a tenth of the instructions of a
//! response from memory. This one is seeded per process, and all its tables are bounded.

/// The hasher of tables that every request looks up.
pub type RandomState = foldhash::quality::RandomState;

/// A map that every request looks up.
pub type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
