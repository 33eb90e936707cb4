//! The pages of a snapshot, in chapters. Pure.
//!
//! Invariant: pages are in key order, and no chapter is empty. Successive snapshots share chapters: a
//! change copies the references of one chapter, not those of all pages.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::page::Page;
use crate::api::ObjectKey;

/// The pages of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    chapters: Vec<Arc<Chapter>>,
    objects: usize,
    text_bytes: u64,
}

/// Adjacent pages.
#[derive(Debug)]
pub struct Chapter {
    pages: Vec<Arc<Page>>,
    /// The lowest key of each page, side by side: a search reads few of the pages.
    first_keys: Box<[ObjectKey]>,
    objects: usize,
    text_bytes: u64,
    /// The memory held when it was last measured.
    bytes: AtomicUsize,
}

/// The place of a page, or the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagePosition {
    chapter: usize,
    page: usize,
}

/// The target number of pages in a chapter.
const CHAPTER_PAGES: usize = if cfg!(test) { 4 } else { 128 };

/// The number of pages above which a chapter is split.
const CHAPTER_PAGES_MAX: usize = 2 * CHAPTER_PAGES;

/// The number of pages below which a chapter is merged with the one before it.
const CHAPTER_PAGES_MIN: usize = CHAPTER_PAGES / 4;

// === impl Pages ===

impl Pages {
    /// Returns the number of objects.
    pub fn objects(&self) -> usize {
        self.objects
    }

    /// Returns the size of all objects before compression.
    pub fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    /// Returns the memory held when it was last measured.
    pub fn bytes(&self) -> usize {
        self.chapters.iter().map(|chapter| chapter.bytes.load(Ordering::Relaxed)).sum()
    }

    /// Measures the memory held. It changes as pages are compressed and read.
    pub fn measure(&self) {
        self.chapters.iter().for_each(|chapter| chapter.measure());
    }

    /// Returns the chapters, in key order.
    pub fn chapters(&self) -> &[Arc<Chapter>] {
        &self.chapters
    }

    /// Returns the pages, in key order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Page>> {
        self.from(PagePosition::default())
    }

    /// Returns the pages from a place, in key order.
    pub fn from(&self, place: PagePosition) -> impl Iterator<Item = &Arc<Page>> {
        let chapters = self.chapters.iter().skip(place.chapter);
        chapters.flat_map(|chapter| &chapter.pages).skip(place.page)
    }

    /// Returns the page at a place; `None` at the end.
    pub fn get(&self, place: PagePosition) -> Option<&Arc<Page>> {
        self.chapters.get(place.chapter)?.pages.get(place.page)
    }

    /// Returns the lowest key of the page at a place; `None` at the end.
    pub fn first_key(&self, place: PagePosition) -> Option<&ObjectKey> {
        self.chapters.get(place.chapter)?.first_keys.get(place.page)
    }

    /// Returns the place after another.
    pub fn after(&self, PagePosition { chapter, page }: PagePosition) -> PagePosition {
        match self.chapters.get(chapter) {
            Some(held) if page + 1 < held.pages.len() => PagePosition { chapter, page: page + 1 },
            _ => PagePosition { chapter: chapter + 1, page: 0 },
        }
    }

    /// Returns the place of the last page that does not begin after a key, or else of the first.
    pub fn find(&self, key: &str) -> PagePosition {
        let is_before = |first: &ObjectKey| first.as_str() <= key;
        let chapter = self.chapters.partition_point(|chapter| is_before(chapter.first_key()));
        let chapter = chapter.saturating_sub(1);
        let first_keys = self.chapters.get(chapter).map_or(&[][..], |chapter| &chapter.first_keys);
        let page = first_keys.partition_point(is_before).saturating_sub(1);
        PagePosition { chapter, page }
    }

    /// Appends a chapter.
    pub fn push(&mut self, chapter: Arc<Chapter>) {
        self.objects += chapter.objects;
        self.text_bytes += chapter.text_bytes;
        self.chapters.push(chapter);
    }

    /// Appends pages as chapters of a good size; a small last chapter may absorb them.
    pub fn extend(&mut self, mut pages: Vec<Arc<Page>>) {
        if pages.is_empty() {
            return;
        }
        if let Some(last) = self.chapters.last()
            && (last.pages.len() < CHAPTER_PAGES_MIN || pages.len() < CHAPTER_PAGES_MIN)
            && last.pages.len() + pages.len() <= CHAPTER_PAGES
        {
            pages.splice(0..0, last.pages.iter().cloned());
            self.objects -= last.objects;
            self.text_bytes -= last.text_bytes;
            self.chapters.pop();
        }
        let is_large = pages.len() > CHAPTER_PAGES_MAX;
        let length = if is_large { CHAPTER_PAGES } else { CHAPTER_PAGES_MAX };
        pages.chunks(length).for_each(|pages| self.push(Arc::new(Chapter::new(pages.to_vec()))));
    }
}

// === impl Chapter ===

impl Chapter {
    fn new(pages: Vec<Arc<Page>>) -> Self {
        let first_keys = pages.iter().map(|page| page.first_key().clone()).collect();
        let objects = pages.iter().map(|page| page.len()).sum();
        let text_bytes = pages.iter().map(|page| page.text_bytes() as u64).sum();
        let chapter =
            Self { pages, first_keys, objects, text_bytes, bytes: AtomicUsize::default() };
        chapter.measure();
        chapter
    }

    /// Returns the pages, in key order.
    pub fn pages(&self) -> &[Arc<Page>] {
        &self.pages
    }

    /// Returns the lowest key.
    pub fn first_key(&self) -> &ObjectKey {
        &self.first_keys[0]
    }

    fn measure(&self) {
        let place = size_of::<Arc<Page>>() + size_of::<ObjectKey>();
        let pages = self.pages.iter().map(|page| page.bytes() + place);
        self.bytes.store(pages.sum::<usize>() + size_of::<Self>(), Ordering::Relaxed);
    }
}
