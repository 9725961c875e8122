//! Reads the blocks of the tables one after the other.
//!
//! A closure that takes the blocks is compiled apart where it is large, and then for any CPU: see [`crate::hw::Work`]. What
//! stands in a loop over this is compiled with the loop.

use super::index::{next_start, Block, Tables};
use super::number::Index;
use super::runs::{Kind, GRANULE, REGION};
use super::word_map::WordMap;

/// The blocks of runs, free ones too, in address order.
pub struct Blocks<'a, I: Index, const P: usize> {
    tables: &'a Tables<I, P>,
    run: usize,
    /// The runs end before this one.
    runs: usize,
    /// The region, and its blocks that have not been read. The run's regions end before `end`.
    region: usize,
    end: usize,
    bits: u64,
    free: u64,
    /// The first granule of the run. No block begins at `last` or later.
    first: usize,
    last: usize,
    /// Granules of each block, where all have one size, and the number of the next block; 0 where they have headers.
    stride: usize,
    slot: u64,
    used_end: u64,
    holes: &'a [usize],
}

impl<'a, I: Index, const P: usize> Blocks<'a, I, P> {
    /// Begins with the first block of all runs.
    pub fn new(tables: &'a Tables<I, P>) -> Self {
        Blocks { runs: tables.word_map.runs.len(), ..Blocks::none(tables) }
    }

    /// Reads the blocks of one run that begin at the granules `[from, end)`.
    #[inline(always)]
    pub fn of_run(tables: &'a Tables<I, P>, run: usize, (from, end): (usize, usize)) -> Self {
        let mut blocks = Blocks { run, runs: run + 1, ..Blocks::none(tables) };
        blocks.begin(from, end);
        blocks
    }

    #[inline(always)]
    fn none(tables: &'a Tables<I, P>) -> Self {
        Blocks {
            tables,
            run: usize::MAX,
            runs: 0,
            region: 0,
            end: 0,
            bits: 0,
            free: 0,
            first: 0,
            last: 0,
            stride: 0,
            slot: 0,
            used_end: 0,
            holes: &[],
        }
    }

    /// Goes to the first of the run's blocks that begin at the granules `[from, end)`.
    #[inline(always)]
    fn begin(&mut self, from: usize, end: usize) {
        let (tables, run) = (self.tables, self.run);
        let placed = &tables.word_map.runs[run];
        self.used_end = tables.used_end[run];
        self.first = placed.region * REGION;
        let (last, stride) = match placed.run.kind {
            Kind::Mmapped | Kind::Extent => (self.first + 1, 1),
            Kind::Slab => (self.first + placed.run.granules(), placed.run.stride()),
            Kind::Main | Kind::Thread => (self.first + ((self.used_end - placed.run.start) / GRANULE) as usize, 0),
        };
        let from = from.max(self.first);
        (self.last, self.stride) = (last.min(end), stride);
        // Where blocks have no headers, they are counted: a division for each takes time.
        self.slot = if stride > 0 { (from - self.first).div_ceil(stride) as u64 } else { 0 };
        self.holes = &tables.holes[tables.holes.partition_point(|&hole| hole < from)..];
        (self.region, self.end) = (from / REGION, self.last.div_ceil(REGION));
        (self.bits, self.free) = (0, 0);
        if self.region < self.end {
            self.bits = tables.regions[self.region].start & (u64::MAX << (from % REGION));
            self.free = tables.free[self.region];
        }
    }

    /// Goes to the next run. Returns false after the last one.
    #[cold]
    #[inline(never)]
    fn next_run(&mut self) -> bool {
        let run = self.run.wrapping_add(1);
        if run >= self.runs {
            return false;
        }
        self.run = run;
        self.begin(0, usize::MAX);
        true
    }

    /// Returns the address and the usable bytes of the block whose chunk begins at a granule of the region. `self.bits` are those
    /// of the region behind it.
    #[inline(always)]
    fn place(&mut self, granule: usize) -> (u64, u64) {
        let placed = &self.tables.word_map.runs[self.run];
        if self.stride > 0 {
            self.slot += 1;
            return (placed.block(self.slot - 1, WordMap::<P>::HEADER), placed.run.usable);
        }
        let next = match self.bits {
            0 => next_start(&self.tables.regions, granule),
            bits => self.region * REGION + bits.trailing_zeros() as usize,
        };
        // The granules are those of the run, so its addresses do not overflow.
        let first = self.first;
        let at =
            |granule: usize| placed.run.start.wrapping_add((granule.wrapping_sub(first) * GRANULE as usize) as u64);
        // See `size_of`.
        let size = at(next).min(self.used_end).wrapping_sub(at(granule)).saturating_sub(WordMap::<P>::WORD);
        (at(granule).wrapping_add(WordMap::<P>::HEADER), size)
    }
}

impl<I: Index, const P: usize> Iterator for Blocks<'_, I, P> {
    type Item = Block;

    #[inline(always)]
    fn next(&mut self) -> Option<Block> {
        loop {
            while self.bits == 0 {
                self.region += 1;
                if self.region < self.end {
                    self.bits = self.tables.regions[self.region].start;
                    self.free = self.tables.free[self.region];
                } else if !self.next_run() {
                    return None;
                }
            }
            let bit = self.bits.trailing_zeros() as usize;
            let granule = self.region * REGION + bit;
            self.bits &= self.bits - 1;
            if granule >= self.last {
                self.bits = 0;
                self.region = self.end;
                continue;
            }
            if self.holes.first() == Some(&granule) {
                self.holes = &self.holes[1..];
                continue;
            }
            let (address, size) = self.place(granule);
            return Some(Block { granule, address, size, run: self.run, free: self.free >> bit & 1 != 0 });
        }
    }
}

/// What takes the blocks of [`Tables::each_block_to`].
pub trait Each {
    /// Takes a block. Returns whether more are wanted. It should be `#[inline(always)]`.
    fn take(&mut self, block: Block) -> bool;
}

struct Closure<F>(F);

impl<F: FnMut(Block) -> bool> Each for Closure<F> {
    #[inline(always)]
    fn take(&mut self, block: Block) -> bool {
        (self.0)(block)
    }
}

impl<I: Index, const P: usize> Tables<I, P> {
    /// Calls `each` for every block of a run, free ones too, in address order from granule `from` on, until it returns
    /// false. No block begins at `end` or later. Returns false where `each` did.
    #[inline(always)]
    pub fn each_block(&self, run: usize, range: (usize, usize), each: impl FnMut(Block) -> bool) -> bool {
        self.each_block_to(run, range, &mut Closure(each))
    }

    /// Does the same for what is inlined for certain.
    #[inline(always)]
    pub fn each_block_to(&self, run: usize, range: (usize, usize), to: &mut impl Each) -> bool {
        for block in Blocks::of_run(self, run, range) {
            if !to.take(block) {
                return false;
            }
        }
        true
    }
}
