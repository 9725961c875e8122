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
            let words = |i: usize| u128::from(region.pointers(i));
            (self.region, self.words, self.edge) = (number, words(0) | words(1) << 64, region.edge.get());
        }
        // With a header or with the granule that stands for it, two words come first.
        let first = granule % REGION * P + 2;
        let mut mask = if first < 128 { (self.words >> first) as u8 } else { 0 };
        if first + count > 128 {
            mask |= (regions[number + 1].bits(0) << (128 - first)) as u8;
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

/// What is known of the blocks that begin in each region, one bit for each: so most pointers need no more than the region.
pub(super) struct Hints {
    /// Whether one of them is free. Most have none: then the bits of their blocks need not be loaded.
    some_free: Vec<u64>,
    /// Whether all of them are chunks that end where the next one begins: then their run need not be known.
    chunks: Vec<u64>,
}

impl Hints {
    /// Looks at all regions.
    pub fn new<I: Index, const P: usize>(tables: &Tables<I, P>) -> Hints {
        let one = |part: &[u64]| part.iter().enumerate().fold(0, |bits, (i, &free)| bits | u64::from(free != 0) << i);
        let mut chunks = vec![0; tables.regions.len().div_ceil(64)];
        for run in 0..tables.word_map.runs.len() {
            for region in whole_chunks(tables, run) {
                chunks[region / 64] |= 1 << (region % 64);
            }
        }
        Hints { some_free: tables.free.chunks(64).map(one).collect(), chunks }
    }

    #[inline(always)]
    fn some_free(&self, region: usize) -> bool {
        self.some_free[region / 64] >> (region % 64) & 1 != 0
    }

    #[inline(always)]
    fn chunks(&self, region: usize) -> bool {
        self.chunks[region / 64] >> (region % 64) & 1 != 0
    }
}

/// Returns the regions of a run in which only chunks begin that end where the next one begins. The last block of a run
/// ends before its sentinel.
fn whole_chunks<I: Index, const P: usize>(tables: &Tables<I, P>, run: usize) -> std::ops::Range<usize> {
    let placed = &tables.word_map.runs[run];
    let first = placed.region;
    if !matches!(placed.run.kind, Kind::Main | Kind::Thread) {
        return first..first;
    }
    let used = (tables.used_end[run].saturating_sub(placed.run.start) / GRANULE) as usize;
    let last = (first + used / REGION).min(tables.word_map.region_end(run).saturating_sub(1));
    // Up to where the last chunk begins that may be the next one.
    let begins = |&region: &usize| {
        let within = if region == first + used / REGION { u64::MAX >> (REGION - 1 - used % REGION) } else { u64::MAX };
        tables.regions[region].start & within != 0
    };
    first..(first..=last).rev().find(begins).unwrap_or(first)
}

/// What pointers into the heap lead to.
pub(super) struct Targets<'a, I: Index, const P: usize> {
    tables: &'a Tables<I, P>,
    hints: &'a Hints,
    last: Last,
}

impl<'a, I: Index, const P: usize> Targets<'a, I, P> {
    pub fn new(tables: &'a Tables<I, P>, hints: &'a Hints) -> Self {
        Targets { tables, hints, last: Last { first: 0, granules: 0, used: 0, usable: None } }
    }

    /// Asks the CPU to load what [`Targets::class`] needs.
    #[inline(always)]
    pub fn load(&self, word: usize) {
        let region = word / (REGION * P);
        hw::prefetch(&self.tables.regions, region);
        if self.hints.some_free(region) {
            hw::prefetch(&self.tables.free, region);
        }
    }

    /// Returns the size class of the block in use that a word of the heap belongs to, or None where it belongs to no block.
    #[inline(always)]
    pub fn class(&mut self, word: usize) -> Option<u64> {
        let regions = &self.tables.regions[..];
        let granule = chunk_of_word(regions, word)?;
        if self.hints.some_free(granule / REGION) && self.tables.is_free(granule) {
            return None;
        }
        if self.hints.chunks(granule / REGION) {
            let size = (next_start(regions, granule).wrapping_sub(granule) as u64).wrapping_mul(GRANULE);
            return Some(size_class(size.saturating_sub(WordMap::<P>::WORD)).0);
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
