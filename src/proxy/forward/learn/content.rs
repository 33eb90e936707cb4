//! The content of a forwarded list, which tells whether it changed since the last one.

use std::sync::{Arc, OnceLock};

/// The content of a list in any form and coding, in the extensions of its response.
#[derive(Clone, Debug, Default)]
pub(in crate::proxy) struct ListContent(Arc<OnceLock<Option<u32>>>);

// === impl ListContent ===

impl ListContent {
    /// Returns the fingerprint; `None` until the whole list was parsed.
    pub(in crate::proxy) fn fingerprint(&self) -> Option<u32> {
        self.0.get().copied().flatten()
    }

    pub(super) fn know(&self, fingerprint: Option<u32>) {
        self.0.get_or_init(|| fingerprint);
    }
}
