//! jemalloc's extents out of a core: found without symbols, read through a layout that the caller tries and this module checks.
//!
//! jemalloc keeps a radix tree from page to `edata_t` (`extent_t` until 5.2): every slab at each of its pages, every other extent at its
//! first and last one. What the tree leads to is believed when it leads back: the extent's own address and size name the page that led
//! to it, and the copies of size class, state and slab flag in the tree are those of the extent.
//!
//! * [`search`]: where such a tree is.
//! * [`tree`]: reads all that it leads to.
//! * [`extents`]: what was read, as blocks and as sums.

mod extents;
mod search;
mod tree;
mod words;

pub use extents::{Extent, Extents, Sum};
pub use search::find;
pub use tree::collect;

/// Where things stand, in the release that is tried.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Bits of an address within a page of jemalloc's: 12, or what `--with-lg-page` said.
    pub page: u32,
    /// Address bits that the tables of each level of the radix tree distinguish, from the root down.
    pub levels: Vec<u32>,
    /// Bytes of a leaf's entry: 8, or 16 where address bits leave no room beside the pointer. Then its second word has the copies.
    pub entry: u64,
    /// The part of an entry's first word that is the pointer.
    pub pointer: u64,
    /// (shift, width) of the copies in an entry; no width: there is none.
    pub leaf_szind: (u32, u32),
    pub leaf_slab: (u32, u32),
    pub leaf_state: (u32, u32),
    pub alignment: u64,
    /// (shift, width) of fields of `e_bits`.
    pub arena: (u32, u32),
    pub slab: (u32, u32),
    pub state: (u32, u32),
    pub szind: (u32, u32),
    pub nfree: (u32, u32),
    /// Usable bytes by size class; the first `bins` of them are small.
    pub sizes: Vec<u64>,
    pub bins: usize,
}

/// What is wrong with an entry of the tree, or with what it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Not an aligned address, or not in the dump.
    Missing,
    /// The extent's address and size do not name the page.
    Address,
    /// State or size class are none.
    Bits,
    /// The copies in the tree differ.
    Leaf,
    /// No slab of that size class has that size; or the extent is too small for its size class.
    Size,
    /// The slab's count of free regions is not that of its bitmap.
    Free,
    /// It lies within another extent.
    Overlap,
}

impl Layout {
    /// Bytes of a page.
    fn page_size(&self) -> u64 {
        1 << self.page
    }

    /// Bytes of a table of that level.
    fn table(&self, level: usize) -> u64 {
        let entry = if level + 1 == self.levels.len() { self.entry } else { 8 };
        entry << self.levels[level]
    }
}

/// A field, given as (shift, width), of a word.
fn part(word: u64, (shift, width): (u32, u32)) -> u64 {
    word >> shift & ((1 << width) - 1)
}

/// Tables are aligned to cache lines.
fn is_table(address: u64) -> bool {
    address % 64 == 0 && address < super::find::TOP
}
