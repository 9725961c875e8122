//! The memory of one slab. The dump may lack some of its pages, and have those behind them.

use std::ops::Range;

use super::table::{Slab, Table};
use crate::kernel::physical::{read_pages, Physical};

/// The bytes of a slab.
#[derive(Debug, Default)]
pub struct SlabBytes {
    bytes: Vec<u8>,
    /// The pages that the dump lacks, counted from the first one of the slab, in order.
    lost: Vec<usize>,
    page_bits: u32,
}

impl SlabBytes {
    /// Reads a slab in the place of the last one.
    pub fn read(&mut self, table: &Table, slab: &Slab, physical: &dyn Physical) {
        self.page_bits = table.page_bits();
        self.bytes.resize((slab.pages as usize) << self.page_bits, 0);
        self.lost.clear();
        let lost = &mut self.lost;
        read_pages(physical, slab.pfn << self.page_bits, self.page_bits, &mut self.bytes, |page| lost.push(page));
    }

    /// Returns how many pages the dump lacks.
    pub fn lost(&self) -> u64 {
        self.lost.len() as u64
    }

    /// Returns the bytes in a range. None: they end behind the slab, or lie on a page that the dump lacks.
    pub fn get(&self, range: Range<usize>) -> Option<&[u8]> {
        let found = self.bytes.get(range.clone())?;
        let pages = range.start >> self.page_bits..=range.end.saturating_sub(1).max(range.start) >> self.page_bits;
        let at = self.lost.partition_point(|page| page < pages.start());
        (!self.lost.get(at).is_some_and(|page| pages.contains(page))).then_some(found)
    }

    /// Returns how many bytes the slab has.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}
