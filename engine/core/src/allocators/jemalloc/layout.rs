//! The layout of a release of jemalloc. The caller tries several.

use crate::words::USER_END;

/// The layout of the release that is tried.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Bits of an address within a page of jemalloc's: 12, or the value of `--with-lg-page`.
    pub page: u32,
    /// How many address bits the tables of each level of the radix tree distinguish, from the root down.
    pub levels: Vec<u32>,
    /// Bytes of a leaf's entry: 8, or 16 where address bits leave no room beside the pointer. Then its second word has
    /// the copies.
    pub entry: u64,
    /// The part of an entry's first word that is the pointer.
    pub pointer: u64,
    /// (shift, width) of the copies in an entry. Width 0 means that there is no copy.
    pub leaf_szind: (u32, u32),
    /// The copy of the slab flag.
    pub leaf_slab: (u32, u32),
    /// The copy of the state.
    pub leaf_state: (u32, u32),
    /// The alignment of an `edata_t`.
    pub alignment: u64,
    /// (shift, width) of fields of `e_bits`.
    pub arena: (u32, u32),
    /// The slab flag.
    pub slab: (u32, u32),
    /// The state.
    pub state: (u32, u32),
    /// The size class.
    pub szind: (u32, u32),
    /// The count of free regions.
    pub nfree: (u32, u32),
    /// Usable bytes by size class; the first `bins` of them are small.
    pub sizes: Vec<u64>,
    /// How many size classes are small.
    pub bins: usize,
}

/// What is wrong with an entry of the tree, or with the extent that it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The address is not aligned, or not in the dump.
    Missing,
    /// The extent's address and size do not name the page.
    Address,
    /// The state or the size class is not valid.
    Bits,
    /// The copies in the tree differ.
    Leaf,
    /// No slab of that size class has that size, or the extent is too small for its size class.
    Size,
    /// The slab's count of free regions differs from its bitmap.
    Free,
    /// It lies within another extent.
    Overlap,
}

impl Fault {
    /// Returns its name for the Python side.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Missing => "missing",
            Fault::Address => "address",
            Fault::Bits => "bits",
            Fault::Leaf => "leaf",
            Fault::Size => "size",
            Fault::Free => "free",
            Fault::Overlap => "overlap",
        }
    }
}

impl Layout {
    /// Returns the bytes of a page.
    pub(super) fn page_size(&self) -> u64 {
        1 << self.page
    }

    /// Returns the bytes of a table of that level.
    pub(super) fn table(&self, level: usize) -> u64 {
        let entry = if level + 1 == self.levels.len() { self.entry } else { 8 };
        entry << self.levels[level]
    }
}

/// Returns a field of a word, given as (shift, width).
pub(super) fn part(word: u64, (shift, width): (u32, u32)) -> u64 {
    word >> shift & ((1 << width) - 1)
}

/// Returns whether a table can be at the address. Tables are aligned to cache lines.
pub(super) fn is_table(address: u64) -> bool {
    address % 64 == 0 && address < USER_END
}
