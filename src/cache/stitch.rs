//! Compressed lists in parts, most of which the next state of the list takes over. Pure.
//!
//! A part has the text of adjacent items. It was compressed after the text of the item before it,
//! which takes the place of all that came before. It is right as long as these items and that one
//! have the same text. After a change only the parts around it are compressed again.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use bytes::Bytes;

use super::{
    form::Envelope,
    held::{Held, PageReader},
    listing::{self, Listing},
    object::Head,
    portion::Portion,
    store::Snapshot,
    table::Moment,
};
use crate::{
    api::{ObjectKey, media::Representation},
    gzip::{Deflaters, Effort, Joint, Member, Segment, WINDOW_BYTES},
};

/// The parts of a compressed list.
#[derive(Debug)]
pub struct Stitched {
    envelope: Arc<Envelope>,
    parts: Vec<Arc<Part>>,
    /// The compressed texts of the parts.
    joint: Joint,
    text_bytes: usize,
    bytes: usize,
}

/// A compressed list, ready to send.
#[derive(Debug)]
pub struct Joined {
    /// The body: one gzip member.
    pub chunks: VecDeque<Bytes>,
    /// The length of the body before compression.
    pub text_bytes: usize,
    /// The parts, for the next state of the list.
    pub stitched: Stitched,
    /// The moment until which the body stays the same; `None` if it does not change with time.
    pub alike_until: Option<Moment>,
}

/// A list that is being compressed.
pub struct Stitcher<'a> {
    listing: Listing<'a>,
    objects: Vec<Held<'a>>,
    reader: PageReader<'a>,
    base: Option<Arc<Stitched>>,
    /// The next part of the base.
    old: usize,
    /// The objects after those of `parts` that need new parts.
    changed: Range<usize>,
    /// The items of the base's parts that these replace.
    replaced: Vec<Text>,
    parts: Vec<Arc<Part>>,
    /// The bytes of text that may still be compressed thoroughly.
    thorough_bytes: usize,
    text: Vec<u8>,
    before: Vec<u8>,
}

/// Adjacent items, compressed.
#[derive(Debug)]
struct Part {
    /// The item before them; `None` at the start of the list.
    before: Option<Text>,
    texts: Box<[Text]>,
    segment: Segment,
    effort: Effort,
}

/// The identity of an item's text.
#[derive(Clone, Debug)]
struct Text {
    head: Arc<Head>,
    /// The time in which the object has this text; `None` if it never has another.
    alike: Option<Range<Moment>>,
}

/// The size of a part's text: a shorter one is compressed less well, of a longer one more is
/// compressed again after a change.
const PART_BYTES: usize = WINDOW_BYTES;

/// The size of objects below which they get no part of their own.
const SHORT_BYTES: usize = PART_BYTES / 4;

/// The text of one list that is compressed thoroughly. A long list is compressed fast at first. The
/// parts that last are compressed again, a few with each later state.
const THOROUGH_BYTES_MAX: usize = 256 * 1024;

// === impl Stitched ===

impl Stitched {
    /// Returns the length of the text of all items.
    pub fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Returns the memory held, estimated.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Joins the same items as the same list in another state; `None` if it has other properties,
    /// or some part should be compressed again.
    pub fn rejoin(
        &self,
        snapshot: &Snapshot,
        portion: &Portion,
        representation: Representation,
        deflaters: &mut Deflaters,
    ) -> Option<VecDeque<Bytes>> {
        if *self.envelope != **snapshot.envelope()
            || self.parts.iter().any(|part| part.can_improve(THOROUGH_BYTES_MAX))
        {
            return None;
        }
        let (meta, is_empty) = (portion.meta(snapshot.version()), self.parts.is_empty());
        let ends = listing::ends(&self.envelope, &meta, representation, self.text_bytes, is_empty)?;
        Some(join(&ends, &self.joint, deflaters))
    }
}

// === impl Stitcher ===

impl<'a> Stitcher<'a> {
    /// Begins to compress a list, based on an earlier state of the same list.
    pub fn new(listing: Listing<'a>, base: Option<Arc<Stitched>>) -> Self {
        let envelope = listing.snapshot().envelope();
        let base = base
            .filter(|base| Arc::ptr_eq(&base.envelope, envelope) || *base.envelope == **envelope);
        let parts = Vec::with_capacity(base.as_ref().map_or(0, |base| base.parts.len() + 1));
        Self {
            objects: listing.objects().collect(),
            reader: PageReader::default(),
            listing,
            base,
            old: 0,
            changed: 0..0,
            replaced: Vec::new(),
            parts,
            thorough_bytes: THOROUGH_BYTES_MAX,
            text: Vec::new(),
            before: Vec::new(),
        }
    }

    /// Compresses a little more than `bytes_max` of text; returns `true` when the list is complete,
    /// and `None` if an item cannot be printed.
    pub fn step(&mut self, deflaters: &mut Deflaters, bytes_max: usize) -> Option<bool> {
        let mut bytes = 0;
        while bytes < bytes_max {
            if self.changed.is_empty() && !self.find_changed() {
                return Some(true);
            }
            bytes += self.add_part(deflaters)?;
        }
        Some(false)
    }

    /// Joins the complete list.
    pub fn finish(self, deflaters: &mut Deflaters) -> Option<Joined> {
        let text_bytes: usize = self.parts.iter().map(|part| part.segment.text_bytes()).sum();
        let ends = self.listing.ends(text_bytes)?;
        let joint = Joint::of(self.parts.iter().map(|part| &part.segment));
        let moments = self.parts.iter().flat_map(|part| &part.texts).filter_map(Text::end);
        Some(Joined {
            chunks: join(&ends, &joint, deflaters),
            text_bytes: ends.0.len() + text_bytes + ends.1.len(),
            alike_until: moments.min(),
            stitched: Stitched {
                envelope: self.listing.snapshot().envelope().clone(),
                bytes: self.parts.iter().map(|part| part.bytes()).sum(),
                parts: self.parts,
                joint,
                text_bytes,
            },
        })
    }

    /// Takes over parts up to the next changed one; returns `false` at the end of the list.
    fn find_changed(&mut self) -> bool {
        self.replaced.clear();
        let base = self.base.clone();
        let old = base.as_ref().map_or(&[][..], |base| &base.parts);
        while self.changed.end < self.objects.len() {
            let (part, after) = (old.get(self.old), old.get(self.old + 1));
            self.old += 1;
            let Some(part) = part else {
                self.changed.end = self.objects.len();
                break;
            };
            if self.changed.is_empty() && self.holds(part, after) {
                self.parts.push(part.clone());
                let next = self.changed.end + part.texts.len();
                self.changed = next..next;
                continue;
            }
            self.replaced.extend_from_slice(&part.texts);
            let rest = &self.objects[self.changed.end..];
            self.changed.end += after.map_or(rest.len(), |after| {
                rest.partition_point(|object| object.key() < after.first_key())
            });
            // Few objects that remain of a part are joined with those of the part after it.
            if !self.is_short(&self.changed) {
                break;
            }
        }
        !self.changed.is_empty()
    }

    /// Reports whether a part of the base has exactly the next objects up to the part after it.
    fn holds(&self, part: &Part, after: Option<&Arc<Part>>) -> bool {
        let rest = &self.objects[self.changed.start..];
        let Some((objects, rest)) = rest.split_at_checked(part.texts.len()) else { return false };
        let is_whole = match (rest.first(), after) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(next), Some(after)) => next.key() >= after.first_key(),
        };
        let mut texts = part.texts.iter().zip(objects);
        is_whole
            && !part.can_improve(self.thorough_bytes)
            && self.last() == part.before.as_ref()
            && texts.all(|(text, object)| text.is_of(object.head(), self.listing.now()))
    }

    /// Compresses the next changed objects as a part; returns the length of its text.
    fn add_part(&mut self, deflaters: &mut Deflaters) -> Option<usize> {
        let first = self.changed.start;
        self.before.clear();
        if let Some(last) = first.checked_sub(1) {
            let object = self.reader.object(self.objects[last]);
            self.listing.write(object, true, &mut self.before)?;
        }
        self.text.clear();
        let mut texts = Vec::new();
        while let Some(index) = self.changed.next() {
            let object = self.reader.object(self.objects[index]);
            self.listing.write(object, index == 0, &mut self.text)?;
            let alike_until = self.listing.alike_until(object);
            texts.push(self.text_of(self.objects[index].head(), alike_until));
            // A short rest is not left to a part of its own.
            if self.text.len() >= PART_BYTES && !self.is_short(&self.changed) {
                break;
            }
        }
        let effort = match self.thorough_bytes.checked_sub(self.text.len()) {
            Some(left) => {
                self.thorough_bytes = left;
                Effort::Thorough
            }
            None => Effort::Fast,
        };
        let segment = deflaters.segment(effort, &self.before, &self.text);
        let (before, texts) = (self.last().cloned(), texts.into());
        self.parts.push(Arc::new(Part { before, texts, segment, effort }));
        Some(self.text.len())
    }

    fn last(&self) -> Option<&Text> {
        self.parts.last()?.texts.last()
    }

    /// Returns the identity of an item's text; that of the base, if it is still right.
    fn text_of(&self, head: &Arc<Head>, alike_until: Option<Moment>) -> Text {
        let now = self.listing.now();
        let alike = alike_until.map(|until| {
            let held = self.replaced.iter().find(|text| text.is_of(head, now));
            held.and_then(|text| text.alike.clone()).unwrap_or(now..until)
        });
        Text { head: head.clone(), alike }
    }

    fn is_short(&self, range: &Range<usize>) -> bool {
        let mut bytes = 0;
        !self.objects[range.clone()].iter().any(|object| {
            bytes += object.len();
            bytes >= SHORT_BYTES
        })
    }
}

// === impl Part ===

impl Part {
    fn first_key(&self) -> &ObjectKey {
        &self.texts[0].head.key
    }

    /// Reports whether it can be compressed better, with so many bytes of text.
    fn can_improve(&self, thorough_bytes: usize) -> bool {
        self.effort == Effort::Fast && self.segment.text_bytes() <= thorough_bytes
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.texts)
            + self.segment.bytes()
            + size_of::<(Arc<Self>, Bytes)>()
    }
}

// === impl Text ===

impl Text {
    /// Reports whether an object has this text at a moment.
    fn is_of(&self, head: &Arc<Head>, now: Moment) -> bool {
        Arc::ptr_eq(&self.head, head)
            && self.alike.as_ref().is_none_or(|alike| alike.contains(&now))
    }

    fn end(&self) -> Option<Moment> {
        self.alike.as_ref().map(|alike| alike.end)
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.head, &other.head) && self.alike == other.alike
    }
}

/// Returns one gzip member of a list's head, its compressed items and its tail.
fn join(
    (head, tail): &(Vec<u8>, Vec<u8>),
    items: &Joint,
    deflaters: &mut Deflaters,
) -> VecDeque<Bytes> {
    let mut member = Member::new(items.segments());
    if head.len() < SHORT_BYTES / 8 {
        member.store(head);
    } else {
        member.append(&deflaters.segment(Effort::Fast, b"", head));
    }
    member.append_all(items);
    member.store(tail);
    member.finish()
}

#[cfg(test)]
#[path = "stitch/tests.rs"]
mod tests;
