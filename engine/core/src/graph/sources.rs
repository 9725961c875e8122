//! The blocks in use that have pointers, with the range of their edges: by region, without their addresses and sizes.
//!
//! The edges of a block end where those of the next block begin. So a region without pointers takes a few steps,
//! however many blocks it has.

use super::numbering::Ranks;
use crate::blocks::index::Tables;
use crate::blocks::number::Index;
use crate::blocks::runs::REGION;
use crate::control::{Control, Stopped};

/// Regions between two looks at [`Control`].
pub(super) const CHECK: usize = 1 << 14;

/// Returns whether the block of a number is among one in `step` that are looked at. Programs allocate in turns: every
/// 24th block may belong to one container.
#[inline(always)]
pub fn is_sampled(number: usize, step: usize) -> bool {
    step == 1 || (((number as u32).wrapping_mul(0x9e37_79b9) >> 8) as usize) % step == 0
}

/// A block in use that has pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Where its chunk begins.
    pub granule: usize,
    /// Its number: see [`super::numbering`].
    pub number: usize,
    /// Its run.
    pub run: usize,
    /// The range of its edges.
    pub edges: (usize, usize),
}

/// Reads these blocks one after the other, by address.
pub struct Sources<'a, 'c, I: Index, const P: usize> {
    tables: &'a Tables<I, P>,
    control: &'c Control,
    /// The region, what its pointers are, and its blocks that have not been met.
    region: usize,
    ranks: Option<Ranks<'a, I, P>>,
    bits: u64,
    free: u64,
    /// The run of the region, which ends before `run_end`.
    run: usize,
    run_end: usize,
    /// The block whose next has not been met, and whether it is in use. Its edges begin with `edges.0`.
    open: Source,
    in_use: bool,
}

impl<'a, 'c, I: Index, const P: usize> Sources<'a, 'c, I, P> {
    /// Begins with the first block.
    pub fn new(tables: &'a Tables<I, P>, control: &'c Control) -> Self {
        Sources {
            tables,
            control,
            region: usize::MAX,
            ranks: None,
            bits: 0,
            free: 0,
            run: 0,
            run_end: tables.word_map.region_end(0),
            open: Source { granule: 0, number: usize::MAX, run: 0, edges: (0, 0) },
            in_use: false,
        }
    }

    /// Returns the next block.
    #[inline(always)]
    pub fn read(&mut self) -> Result<Option<Source>, Stopped> {
        loop {
            while self.bits == 0 {
                // Nothing follows the last sentinel, and a sentinel is not in use.
                if !self.next_region()? {
                    return Ok(None);
                }
            }
            let bit = self.bits.trailing_zeros() as usize;
            self.bits &= self.bits - 1;
            let Some(ranks) = &self.ranks else { return Ok(None) };
            let (first, is_empty) = (ranks.edge_of(bit), ranks.is_empty());
            let found = self.meet(bit, first);
            if is_empty && self.bits != 0 {
                self.pass();
            }
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Passes all blocks of the region but the last: they have no pointers.
    #[inline(always)]
    fn pass(&mut self) {
        let last = 63 - self.bits.leading_zeros() as usize;
        self.open.number += self.bits.count_ones() as usize;
        self.open.granule = self.region * REGION + last;
        self.in_use = self.free >> last & 1 == 0;
        self.bits = 0;
    }

    /// Meets the block that begins at a granule of the region, whose edges begin with `first`. Returns the one before
    /// it, if it is in use and has edges.
    #[inline(always)]
    fn meet(&mut self, bit: usize, first: usize) -> Option<Source> {
        let before = self.in_use && self.open.edges.0 < first;
        let found = Source { edges: (self.open.edges.0, first), ..self.open };
        let number = self.open.number.wrapping_add(1);
        self.open = Source { granule: self.region * REGION + bit, number, run: self.run, edges: (first, first) };
        self.in_use = self.free >> bit & 1 == 0;
        before.then_some(found)
    }

    /// Goes to the next region. Returns false behind the last one.
    #[inline(always)]
    fn next_region(&mut self) -> Result<bool, Stopped> {
        self.region = self.region.wrapping_add(1);
        let Some(region) = self.tables.regions.get(self.region) else { return Ok(false) };
        if self.region % CHECK == 0 && self.control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        while self.region >= self.run_end {
            self.run += 1;
            self.run_end = self.tables.word_map.region_end(self.run);
        }
        (self.bits, self.free) = (region.start, self.tables.free[self.region]);
        self.ranks = Some(Ranks::new(region));
        Ok(true)
    }
}
