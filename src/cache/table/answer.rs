//! LIST and GET bodies of Tables, and the lines of their watches, at a moment. Pure.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{human::Moment, print::TableEnvelope};
use crate::{
    api::{media::Table, query::Query, version::ResourceVersion},
    cache::{
        history::Change,
        object::Object,
        portion::{ListMeta, Portion},
        render::{Gather, ListBody},
        store::Snapshot,
    },
};

/// A Table, and the moment until which its text stays the same.
#[derive(Debug)]
pub struct TableBody {
    /// The response to a LIST.
    pub list: ListBody,
    /// The moment; `None` if the text does not change with time.
    pub alike_until: Option<Moment>,
}

// === impl Snapshot ===

impl Snapshot {
    /// Returns the apiserver's Table for a query that this snapshot covers, at a moment; `None` if
    /// a row cannot be printed.
    pub fn table_list(
        &self,
        query: &Query,
        portion: &Portion,
        table: Table,
        now: Moment,
    ) -> Option<TableBody> {
        let (envelope, selection) = (self.envelope().table()?, portion.select(self, query));
        let (version, is_empty) = (self.version(), selection.is_empty());
        let mut gather = Gather::new();
        let meta = portion.meta(version);
        gather.copy(envelope.header(&meta, table.version, true, is_empty).as_bytes());
        let (mut row, mut alike_until) = (Vec::new(), None::<Moment>);
        for (index, object) in selection.iter().enumerate() {
            row.clear();
            if index > 0 {
                row.push(b',');
            }
            envelope.write_row(object.raw(), table, now, &mut row)?;
            gather.copy(&row);
            let until = envelope.alike_until(object.raw(), now);
            alike_until = alike_until.into_iter().chain(until).min();
        }
        gather.copy(envelope.trailer(is_empty).as_bytes());
        let (chunks, bytes) = gather.finish();
        let count = selection.len();
        let list = ListBody { version: version.clone(), chunks, count, bytes };
        Some(TableBody { list, alike_until })
    }

    /// Returns the apiserver's Table of one of this snapshot's objects, at a moment; `None` if it
    /// cannot be printed.
    pub fn table_body(
        &self,
        object: &Object,
        table: Table,
        now: Moment,
    ) -> Option<VecDeque<Bytes>> {
        let envelope = self.envelope().table()?;
        let mut out = Vec::with_capacity(object.raw().len() + 4096);
        write_one(envelope, object.raw(), object.version(), table, true, now, &mut out)?;
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
