//! The hasher of the data path, and digests.
//!
//! Every request looks up several tables. The standard hasher took a tenth of the instructions of a
//! response from memory. This one is seeded per process, and all its tables are bounded. A table
//! whose wrong match would give one caller the answer of another has digests as keys.

use std::hash::{Hash, Hasher};

use aws_lc_rs::digest;

/// The hasher of tables that every request looks up.
pub type RandomState = foldhash::quality::RandomState;

/// A map that every request looks up.
pub type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// A fixed-size key of a value of any size. Nobody can make two values with the same one.
pub type Digest = [u8; 32];

/// Feeds SHA-256 with the bytes of a value.
struct Digester(digest::Context);

/// Returns the SHA-256 of a value.
pub fn digest(value: &impl Hash) -> Digest {
    let mut digester = Digester(digest::Context::new(&digest::SHA256));
    value.hash(&mut digester);
    digester.digest()
}

// === impl Digester ===

impl Digester {
    fn digest(self) -> Digest {
        self.0.finish().as_ref().try_into().expect("SHA-256 gives 32 bytes")
    }
}

impl Hasher for Digester {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = Self(self.0.clone()).digest();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}
