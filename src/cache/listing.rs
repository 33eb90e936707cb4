//! A list in one representation, printed whole or item by item. Pure.
//!
//! Invariant: the whole list is its head, its items in LIST order and its tail. The text of an item
//! depends on its object, the representation, the moment, and whether it is the first.

use bytes::Bytes;

use super::{
    form::Envelope,
    held::{Held, PageReader},
    page,
    portion::{ListMeta, Portion},
    render::{Gather, ListBody},
    selection::Selection,
    store::Snapshot,
    table::Moment,
};
use crate::api::{media::Representation, query::Query};

/// A part of the objects that a query selects, and the form to print it in.
pub struct Listing<'a> {
    snapshot: &'a Snapshot,
    selection: Selection<'a>,
    portion: &'a Portion,
    representation: Representation,
    now: Moment,
}

// === impl Snapshot ===

impl Snapshot {
    /// Selects the objects of a list that this snapshot covers. The moment is that of Tables.
    pub fn listing<'a>(
        &'a self,
        query: &Query,
        portion: &'a Portion,
        representation: Representation,
        now: Moment,
    ) -> Listing<'a> {
        let selection = portion.select(self, query);
        Listing { snapshot: self, selection, portion, representation, now }
    }
}

// === impl Listing ===

impl<'a> Listing<'a> {
    /// Returns the snapshot.
    pub fn snapshot(&self) -> &'a Snapshot {
        self.snapshot
    }

    /// Returns the objects, in LIST order.
    pub fn objects(&self) -> impl Iterator<Item = Held<'a>> {
        self.selection.iter()
    }

    /// Returns the moment of Tables.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// Returns the length of the whole list if it need not be printed for this.
    pub fn known_bytes(&self) -> Option<usize> {
        if self.representation != Representation::Object {
            return None;
        }
        let separators = self.separator().len() * self.selection.len().saturating_sub(1);
        let objects: usize = self.objects().map(Held::len).sum();
        let (head, tail) = self.ends(objects + separators)?;
        Some(head.len() + objects + separators + tail.len())
    }

    /// Appends an object's bytes as an item, after the separator from the previous one; `None` if it
    /// cannot be printed.
    pub fn write(&self, object: &[u8], is_first: bool, out: &mut Vec<u8>) -> Option<()> {
        let envelope = self.snapshot.envelope();
        if !is_first {
            out.extend_from_slice(self.separator());
        }
        match self.representation {
            Representation::Object => out.extend_from_slice(object),
            Representation::Metadata(partial) => {
                envelope.write_metadata(object, partial, out)?;
            }
            Representation::Table(table) => {
                envelope.table()?.write_row(object, table, self.now, out)?;
            }
        }
        Some(())
    }

    /// Returns the moment until which an item's text stays the same; `None` if it does not change
    /// with time.
    pub fn alike_until(&self, object: &[u8]) -> Option<Moment> {
        self.snapshot.envelope().table()?.alike_until(object, self.now)
    }

    /// Returns the texts before and after the items, which have this length together.
    pub fn ends(&self, items: usize) -> Option<(Vec<u8>, Vec<u8>)> {
        let (envelope, meta) = (self.snapshot.envelope(), self.meta());
        ends(envelope, &meta, self.representation, items, self.selection.is_empty())
    }

    /// Returns the whole list; `None` if an item cannot be printed.
    pub fn body(&self) -> Option<ListBody> {
        match self.representation {
            Representation::Object => self.body_of_runs(),
            Representation::Metadata(_) | Representation::Table(_) => self.body_of_items(),
        }
    }

    fn body_of_runs(&self) -> Option<ListBody> {
        let runs = self.selection.runs();
        let last = runs.len().saturating_sub(1);
        let mut reader = PageReader::default();
        let items = runs.iter().enumerate().map(|(index, run)| reader.run(run, index < last));
        let items: Vec<_> = items.collect();
        let (head, tail) = self.ends(items.iter().map(Bytes::len).sum())?;
        let mut gather = Gather::new();
        gather.copy(&head);
        items.into_iter().for_each(|item| gather.add(item));
        gather.copy(&tail);
        let private = gather.copied() + reader.private();
        let (chunks, bytes) = gather.finish();
        let (version, count) = (self.snapshot.version().clone(), self.selection.len());
        Some(ListBody { version, chunks, count, bytes, private, alike_until: None })
    }

    fn body_of_items(&self) -> Option<ListBody> {
        let (mut gather, mut reader) = (Gather::new(), PageReader::default());
        let mut alike_until = None::<Moment>;
        for (index, object) in self.objects().enumerate() {
            let object = reader.object(object);
            gather.write(|out| self.write(object, index == 0, out))?;
            alike_until = alike_until.into_iter().chain(self.alike_until(object)).min();
        }
        let (mut chunks, items) = gather.finish();
        let (head, tail) = self.ends(items)?;
        let bytes = head.len() + items + tail.len();
        chunks.push_front(head.into());
        chunks.push_back(tail.into());
        let (version, count) = (self.snapshot.version().clone(), self.selection.len());
        Some(ListBody { version, chunks, count, bytes, private: bytes, alike_until })
    }

    fn meta(&self) -> ListMeta<'_> {
        self.portion.meta(self.snapshot.version())
    }

    fn separator(&self) -> &'static [u8] {
        page::separator(self.representation.form(self.snapshot.form()))
    }
}

/// Returns the texts before and after the items of a list, which have this length together.
pub(super) fn ends(
    envelope: &Envelope,
    meta: &ListMeta<'_>,
    representation: Representation,
    items: usize,
    is_empty: bool,
) -> Option<(Vec<u8>, Vec<u8>)> {
    Some(match representation {
        Representation::Object => (envelope.head(meta, items), envelope.tail(meta)),
        Representation::Metadata(partial) => {
            envelope.metadata_ends(meta, partial, items, is_empty)?
        }
        Representation::Table(table) => {
            let envelope = envelope.table()?;
            let head = envelope.header(meta, table.version, true, is_empty);
            (head.into(), envelope.trailer(is_empty).into())
        }
    })
}
