//! The splitter of a Table's body into packed rows while it arrives. Pure.
//!
//! The columns come before the rows: each row is proven as it arrives.

use super::{Window, print::TableEnvelope};
use crate::{
    api::{GroupVersionResource, version::ResourceVersion},
    cache::{
        envelope::EnvelopeError,
        reflector::ReflectorFailure,
        split::{SplitError, Splitter},
    },
};

/// A Table in progress.
#[derive(Debug)]
pub struct TableSplitter {
    splitter: Splitter,
    resource: GroupVersionResource,
    /// The form of the Table, once its header is complete.
    envelope: Option<TableEnvelope>,
    window: Option<Window>,
}

/// The end of a Table with rows, which must come after them.
const END: &str = "]}\n";

// === impl TableSplitter ===

impl TableSplitter {
    /// Creates a splitter that rejects larger rows.
    pub(in crate::cache) fn new(resource: GroupVersionResource, row_bytes_max: usize) -> Self {
        let splitter = Splitter::of_rows(row_bytes_max);
        Self { splitter, resource, envelope: None, window: None }
    }

    /// Notes that the next bytes arrive within a window of time.
    pub(in crate::cache) fn arrives(&mut self, window: Window) {
        self.window = Some(window);
    }

    /// Accepts the next bytes; passes on each row that they complete, packed.
    pub(in crate::cache) fn feed<E: From<SplitError>>(
        &mut self,
        bytes: &[u8],
        mut on_row: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let taken = self.splitter.feed_header(bytes)?;
        if self.envelope.is_none()
            && let Some(header) = self.splitter.complete_header()
        {
            let learned = TableEnvelope::learn(header, END, &self.resource);
            self.envelope = Some(learned.map_err(|_| SplitError::NotUnderstood)?.0);
        }
        let (Some(envelope), Some(window)) = (&self.envelope, self.window) else { return Ok(()) };
        self.splitter.feed(&bytes[taken..], |row| {
            let packed = str::from_utf8(row).ok().and_then(|row| envelope.pack(row, window));
            on_row(&packed.ok_or(SplitError::NotUnderstood)?)
        })
    }

    /// Ends the body; returns the form of the Table and its version.
    pub(in crate::cache) fn finish(
        self,
    ) -> Result<(TableEnvelope, ResourceVersion), ReflectorFailure> {
        let (header, trailer) = self.splitter.finish()?;
        let (envelope, version) = TableEnvelope::learn(&header, &trailer, &self.resource)?;
        if self.envelope.is_some_and(|known| known != envelope) {
            return Err(EnvelopeError::NotUnderstood.into());
        }
        Ok((envelope, version))
    }
}
