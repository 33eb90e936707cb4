//! GET bodies of Tables, and the lines of their watches, at a moment. Pure.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{human::Moment, print::TableEnvelope};
use crate::{
    api::{media::Table, version::ResourceVersion},
    cache::{held::Held, history::Change, portion::ListMeta, store::Snapshot},
};

// === impl Snapshot ===

impl Snapshot {
    /// Returns the apiserver's Table of one of this snapshot's objects, at a moment; `None` if it
    /// cannot be printed.
    pub fn table_body(
        &self,
        object: Held<'_>,
        table: Table,
        now: Moment,
    ) -> Option<VecDeque<Bytes>> {
        let envelope = self.envelope().table()?;
        let raw = object.raw();
        let mut out = Vec::with_capacity(raw.len() + 4096);
        write_one(envelope, &raw, object.version(), table, true, now, &mut out)?;
        out.push(b'\n');
        Some([Bytes::from(out)].into())
    }
}

/// Returns the line of a watch for a packed row at a version, at a moment; `None` if it cannot be
/// printed.
pub fn table_line(
    envelope: &TableEnvelope,
    seen: Change,
    (packed, version): (&[u8], &ResourceVersion),
    table: Table,
    with_columns: bool,
    now: Moment,
) -> Option<Bytes> {
    let mut out = Vec::with_capacity(packed.len() + 4096);
    out.extend_from_slice(format!(r#"{{"type":"{}","object":"#, seen.as_str()).as_bytes());
    write_one(envelope, packed, version, table, with_columns, now, &mut out)?;
    out.extend_from_slice(b"}\n");
    Some(out.into())
}

fn write_one(
    envelope: &TableEnvelope,
    packed: &[u8],
    version: &ResourceVersion,
    table: Table,
    with_columns: bool,
    now: Moment,
    out: &mut Vec<u8>,
) -> Option<()> {
    let meta = ListMeta::whole(version);
    let header = envelope.header(&meta, table.version, with_columns, false);
    out.extend_from_slice(header.as_bytes());
    envelope.write_row(packed, table, now, out)?;
    out.extend_from_slice(b"]}");
    Some(())
}
