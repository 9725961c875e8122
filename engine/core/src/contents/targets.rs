//! Where the pointers of a block lead.

use super::signature::size_class;
use crate::blocks::index::{chunk_of_word, first_pointers, next_start, Tables};
use crate::blocks::number::Index;
use crate::blocks::runs::{Kind, GRANULE, REGION};
use crate::blocks::word_map::WordMap;
use crate::hw;

/// The candidate pointers of blocks that are asked for in address order. What a region holds is kept for all its blocks.
pub(super) struct Pointers<'a, I: Index, const P: usize> {
    tables: &'a Tables<I, P>,
    region: usize,
    /// The words of the region that are candidate pointers.
    words: u128,
    /// The edge of the first.
    edge: usize,
}

impl<'a, I: Index, const P: usize> Pointers<'a, I, P> {
    pub fn new(tables: &'a Tables<I, P>) -> Self {
        Pointers { tables, region: usize::MAX, words: 0, edge: 0 }
    }

    /// See [`first_pointers`].
    #[inline(always)]
    pub fn of(&mut self, granule: usize, count: usize, bare: bool) -> (u8, usize) {
        let regions = &self.tables.regions;
        if P != 2 {
            return first_pointers(regions, granule, count, bare);
        }
        let number = granule / REGION;
        if number != self.region {
            let region = &regions[number];
            let words = |i: usize| u128::from(region.ptr[i] & !region.size_words(i));
            (self.region, self.words, self.edge) = (number, words(0) | words(1) << 64, region.edge.get());
        }
        // With a header or with the granule that stands for it, two words come first.
        let first = granule % REGION * P + 2;
        let mut mask = if first < 128 { (self.words >> first) as u8 } else { 0 };
        if first + count > 128 {
            mask |= (regions[number + 1].ptr[0] << (128 - first)) as u8;
        }
        mask &= ((1u32 << count) - 1) as u8;
        if mask == 0 {
            return (0, 0);
        }
        let before = if first < 128 { self.words & ((1 << first) - 1) } else { self.words };
        (mask, self.edge + before.count_ones() as usize)
    }
}

/// The run that the last pointers led to.
struct Last {
    /// The first granule, and how many there are.
    first: usize,
    granules: usize,
    /// Bytes from the first granule to where the last block ends.
    used: u64,
    /// The usable bytes of each block; None where a block has a size of its own.
    usable: Option<u64>,
}

/// Which regions have a block that is free. Most have none: then the bits of their blocks need not be loaded.
pub(super) struct SomeFree(Vec<u64>);

impl SomeFree {
    /// `free` has the bits of each region's blocks.
    pub fn new(free: &[u64]) -> SomeFree {
        let one = |part: &[u64]| part.iter().enumerate().fold(0, |bits, (i, &free)| bits | u64::from(free != 0) << i);
        SomeFree(free.chunks(64).map(one).collect())
    }

    #[inline(always)]
    fn of(&self, region: usize) -> bool {
        self.0[region / 64] >> (region % 64) & 1 != 0
    }
}

/// What pointers into the heap lead to.
pub(super) struct Targets<'a, I: Index, const P: usize> {
    tables: &'a Tables<I, P>,
    some_free: &'a SomeFree,
    last: Last,
}

impl<'a, I: Index, const P: usize> Targets<'a, I, P> {
    pub fn new(tables: &'a Tables<I, P>, some_free: &'a SomeFree) -> Self {
        Targets { tables, some_free, last: Last { first: 0, granules: 0, used: 0, usable: None } }
    }

    /// Asks the CPU to load what [`Targets::class`] needs.
    #[inline(always)]
    pub fn load(&self, word: usize) {
        let region = word / (REGION * P);
        hw::prefetch(&self.tables.regions, region);
        if self.some_free.of(region) {
            hw::prefetch(&self.tables.free, region);
        }
    }

    /// Returns the size class of the block in use that a word of the heap belongs to, or None where it belongs to no block.
    #[inline(always)]
    pub fn class(&mut self, word: usize) -> Option<u64> {
        let regions = &self.tables.regions[..];
        let granule = chunk_of_word(regions, word)?;
        if self.some_free.of(granule / REGION) && self.tables.is_free(granule) {
            return None;
        }
        if granule.wrapping_sub(self.last.first) >= self.last.granules {
            self.find(granule);
        }
        let size = match self.last.usable {
            Some(usable) => usable,
            None => {
                let at = |granule: usize| (granule - self.last.first) as u64 * GRANULE;
                let end = at(next_start(regions, granule)).min(self.last.used);
                // See `blocks::index::size_of`.
                end.saturating_sub(at(granule)).saturating_sub(WordMap::<P>::WORD)
            }
        };
        Some(size_class(size).0)
    }

    #[cold]
    fn find(&mut self, granule: usize) {
        let map = &self.tables.word_map;
        let number = map.run_of_granule(granule);
        let (placed, end) = (&map.runs[number], map.region_end(number));
        let usable = (!matches!(placed.run.kind, Kind::Main | Kind::Thread)).then_some(placed.run.usable);
        let used = self.tables.used_end[number].saturating_sub(placed.run.start);
        self.last = Last { first: placed.region * REGION, granules: (end - placed.region) * REGION, used, usable };
    }
}
