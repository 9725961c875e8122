//! Where the fields of `mi_page_t` lie. The caller tries every shape, and keeps the one that agrees with itself.
//!
//! Sources: `types.h` of mimalloc 2.0.0 to 2.4.1 and 3.0.1 to 3.4.3, 64-bit; 3.6.0 from its memory. A build that encodes its free lists, or pads
//! its blocks, has two keys in each page (`MI_SECURE` >= 3, `MI_DEBUG`).

use std::sync::OnceLock;

/// Bytes of a slice: `MI_SEGMENT_SLICE_SIZE`, `MI_ARENA_SLICE_SIZE`.
pub const SLICE: u64 = 1 << 16;
/// The furthest slice of a page that a page map knows: `MI_LARGE_PAGE_SIZE`.
pub(super) const LARGE: u64 = 4 << 20;
/// The most bytes of a `mi_page_t` that are read.
pub(super) const PAGE_BYTES: usize = 192;

/// How the first block of a page is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// `page_start` at this offset.
    Pointer(usize),
    /// `page_woffset` at this offset: words from the page (3.3, 3.4).
    Words(usize),
    /// Bytes from the page, at this offset (3.6).
    Bytes(usize),
    /// The offset of the first block in the first slice, if a block has at most 1024 bytes (2.0.0 to 2.0.9).
    Fixed(u64),
    /// Three blocks into the slice for small blocks, one for larger ones (2.1.0 to 2.1.2).
    Blocks,
}

/// The offsets of the fields of a page.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// What notes call it.
    pub name: &'static str,
    /// `sizeof(mi_page_t)` in the array of slices (2.x). 0: pages are found by the page map (3.x).
    pub(super) stride: u64,
    pub(super) capacity: usize,
    pub(super) reserved: usize,
    pub(super) free: usize,
    pub(super) local: usize,
    /// (offset, bytes) of `used` and `block_size`.
    pub(super) used: (usize, usize),
    pub(super) block: (usize, usize),
    pub(super) start: Start,
    /// Where the keys lie, if there are some.
    pub(super) keys: Option<usize>,
    pub(super) thread_free: usize,
    /// `xthread_id` (3.x).
    pub(super) thread: usize,
    /// Whether the links of free lists are encoded.
    pub(super) coded: bool,
}

impl Shape {
    /// Returns the offset of `xheap`, which follows `xthread_free` (2.x).
    pub(super) fn heap(&self) -> usize {
        self.thread_free + 8
    }

    /// Returns whether the links of free lists are encoded.
    pub fn is_coded(&self) -> bool {
        self.coded
    }

    /// Returns whether the pages lie in segments.
    pub fn in_segments(&self) -> bool {
        self.stride != 0
    }
}

/// A page with a 32-bit block size (2.0.0 to 2.1.2).
const NARROW: Shape = Shape {
    name: "2.0",
    stride: 80,
    capacity: 10,
    reserved: 12,
    free: 16,
    local: 32,
    used: (24, 4),
    block: (28, 4),
    start: Start::Fixed(384),
    keys: None,
    thread_free: 40,
    thread: 0,
    coded: false,
};

/// A page that knows where its blocks begin (2.1.4 to 2.4).
const WIDE: Shape = Shape {
    name: "2.1.4 to 2.4",
    stride: 96,
    local: 24,
    used: (32, 2),
    block: (40, 8),
    start: Start::Pointer(48),
    thread_free: 56,
    ..NARROW
};

/// A page of 3.x. Only what follows `block_size` differs between releases.
const MAPPED: Shape = Shape {
    name: "3.0 to 3.2",
    stride: 0,
    capacity: 18,
    reserved: 20,
    free: 8,
    local: 24,
    used: (16, 2),
    block: (40, 8),
    start: Start::Pointer(48),
    keys: None,
    thread_free: 32,
    thread: 0,
    coded: false,
};

/// A page of 3.6, as seen in Debian's library.
const LATER: Shape = Shape {
    name: "3.6",
    capacity: 56,
    reserved: 58,
    free: 16,
    local: 24,
    used: (40, 2),
    block: (32, 8),
    start: Start::Bytes(48),
    thread_free: 64,
    thread: 8,
    ..MAPPED
};

/// Returns the shapes of pages in segments (2.x).
pub(super) fn in_segments() -> &'static [Shape] {
    static SHAPES: OnceLock<Vec<Shape>> = OnceLock::new();
    SHAPES.get_or_init(|| {
        let narrow = [("2.0.9", Start::Fixed(384)), ("2.0.3", Start::Fixed(128)), ("2.1.2", Start::Blocks)];
        let narrow = narrow.map(|(name, start)| {
            let plain = Shape { name, start, ..NARROW };
            // The keys stand before xthread_free since 2.0.9, and behind `free` before.
            let keyed = Shape { stride: 96, thread_free: 56, keys: Some(40), ..plain };
            let early = Shape { used: (40, 4), block: (44, 4), local: 48, keys: Some(24), ..keyed };
            (plain, vec![keyed, early])
        });
        let wide = (WIDE, vec![Shape { stride: 112, thread_free: 72, keys: Some(56), ..WIDE }]);
        in_all_builds(narrow.into_iter().chain([wide]))
    })
}

/// Returns the shapes of pages in a page map (3.x).
pub(super) fn mapped() -> &'static [Shape] {
    static SHAPES: OnceLock<Vec<Shape>> = OnceLock::new();
    SHAPES.get_or_init(|| {
        let kinds = [(MAPPED.name, Start::Pointer(48), [64, 56]), ("3.3 and 3.4", Start::Words(48), [56, 64])];
        let kinds = kinds.map(|(name, start, keys)| {
            let plain = Shape { name, start, ..MAPPED };
            (plain, keys.map(|at| Shape { keys: Some(at), ..plain }).to_vec())
        });
        in_all_builds(kinds.into_iter().chain([(LATER, Vec::new())]))
    })
}

/// Returns each plain shape and behind it those with keys: once with encoded links, once without. A build with keys and
/// plain links reads like one without keys, but for the size of its pages.
fn in_all_builds(kinds: impl Iterator<Item = (Shape, Vec<Shape>)>) -> Vec<Shape> {
    let both = |shape: Shape| [true, false].map(|coded| Shape { coded, ..shape });
    kinds.flat_map(|(plain, keyed)| [plain].into_iter().chain(keyed.into_iter().flat_map(both))).collect()
}
