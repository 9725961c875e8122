//! The compact numbering of the words of all runs.
//!
//! Runs are laid side by side in *words* (pointer size), *granules* (16 bytes: malloc's alignment) and *regions* (64
//! granules: 1 KiB). Each run begins a new region. `P` is the number of words in a granule: 2 where pointers have 8
//! bytes, 4 where they have 4.
//!
//! In the numbering every block is a chunk. A slab's blocks get a granule for the header that they do not have. So
//! marking, following and counting do not depend on the allocator.

use super::runs::{Kind, Run, GRANULE, REGION, SLOTS};
use crate::hw::Spans;

/// The most bytes in a slab: more than 512 blocks of the largest small size. With pages of 64 KiB a slab has a few pages
/// too.
pub const MOST_SLAB: u64 = 1 << 25;

/// No slot of the table is smaller: 256 bytes. Few runs are.
const LEAST_SHIFT: u32 = 8;

/// A run with its place in the numbering.
#[derive(Clone, Copy, Debug)]
pub struct PlacedRun {
    /// The run.
    pub run: Run,
    /// A pointer into a block of this run lies in `[lo, hi)`.
    pub lo: u64,
    /// The end of the addresses that point into its blocks.
    pub hi: u64,
    /// Its first region; the regions of the run are `[region, next.region)`.
    pub region: usize,
    /// Its first edge. There is room for one edge per word. After the pass the edges of a batch of runs have no gaps.
    pub edge: usize,
}

/// The numbering of all runs, sorted by address.
#[derive(Debug)]
pub struct WordMap<const P: usize> {
    /// The runs, sorted by address.
    pub runs: Vec<PlacedRun>,
    /// How many regions there are.
    pub regions: usize,
    /// How many edges there is room for.
    pub edges: usize,
    /// The spans of addresses that point into the runs.
    pub spans: Spans,
    /// For each slot of each span: the first run that ends after the slot's start.
    table: [Vec<u32>; 2],
    shift: [u32; 2],
}

impl PlacedRun {
    /// Returns the address of block number `slot` of a slab, or of the one block of another run. `header` is the size of
    /// glibc's.
    #[inline(always)]
    pub fn block(&self, slot: u64, header: u64) -> u64 {
        match self.run.kind {
            Kind::Slab => self.run.start + slot * self.run.usable,
            Kind::Extent => self.run.start,
            _ => self.run.start + header,
        }
    }
}

impl<const P: usize> WordMap<P> {
    /// Bytes in a pointer.
    pub const WORD: u64 = GRANULE / P as u64;
    /// Bytes in a chunk's header.
    pub const HEADER: u64 = 2 * Self::WORD;
    /// The least chunk (MINSIZE): the header and the two links of a free chunk, rounded up to the alignment.
    pub const MIN_CHUNK: u64 = (4 * Self::WORD).next_multiple_of(GRANULE);

    /// Returns how many words a run takes in the numbering at most.
    pub fn room(run: &Run, apart: usize) -> u64 {
        let apart = 256 + if run.is_large() { apart as u64 } else { 0 };
        (run.granules() as u64).saturating_mul(P as u64).saturating_add(apart)
    }

    /// Sorts the runs. Drops impossible ones, those outside the `addresses`, and those that overlap an earlier one; the
    /// overlapping ones are returned. The edges of a large run begin at a multiple of `apart`: where a huge page begins.
    pub fn new(mut runs: Vec<Run>, addresses: (u64, u64), apart: usize) -> (WordMap<P>, Vec<Run>) {
        runs.retain(|r| {
            let least = if r.kind.has_chunks() { Self::MIN_CHUNK } else { r.usable.max(1) };
            let inside = r.start > 0 && r.start >= addresses.0 && r.end <= addresses.1;
            let fits = inside && r.start.checked_add(least).is_some_and(|least| least <= r.end);
            fits && (r.kind != Kind::Slab || (r.usable > 0 && r.end - r.start <= MOST_SLAB && r.slots() <= SLOTS))
        });
        runs.sort_by_key(|r| (r.start, std::cmp::Reverse(r.end)));
        let mut dropped = Vec::new();
        let (mut region, mut edge, mut reached) = (0usize, 0usize, 0u64);
        let mut placed: Vec<PlacedRun> = Vec::with_capacity(runs.len());
        for mut run in runs {
            if run.start < reached {
                dropped.push(run);
                continue;
            }
            reached = run.end;
            if run.kind == Kind::Mmapped {
                // The block ends within the run, whatever its size field claims.
                run.usable = run.usable.min(run.end - run.start - Self::HEADER);
            }
            let (lo, hi) = match run.kind {
                Kind::Main | Kind::Thread => (run.start + Self::HEADER, run.end + Self::WORD),
                Kind::Mmapped => (run.start + Self::HEADER, run.start + Self::HEADER + run.usable.max(1)),
                Kind::Slab => (run.start, run.start + run.slots() as u64 * run.usable),
                Kind::Extent => (run.start, run.end),
            };
            if let Some(before) = placed.last_mut() {
                // No word of the last chunk before it may belong to the next run.
                before.hi = before.hi.min(lo);
            }
            if run.is_large() {
                edge = edge.next_multiple_of(apart);
            }
            placed.push(PlacedRun { run, lo, hi, region, edge });
            let granules = run.granules();
            // A single block needs no map of its inside: one region for it and one for its sentinel. So untouched
            // gigabytes cost nothing.
            region += if run.kind.is_single() { 2 } else { (granules + 1).div_ceil(REGION) };
            edge += (granules + 1) * P;
        }
        let mut word_map = WordMap {
            runs: placed,
            regions: region,
            edges: edge,
            spans: Spans::default(),
            table: Default::default(),
            shift: [0; 2],
        };
        word_map.make_tables();
        (word_map, dropped)
    }

    /// Two spans are enough in practice: the brk heap is low, mmapped memory high. The widest gap separates them.
    fn make_tables(&mut self) {
        let Some(last) = self.runs.len().checked_sub(1) else { return };
        let split =
            (0..last).max_by_key(|&i| self.runs[i + 1].lo.saturating_sub(self.runs[i].hi)).map_or(last + 1, |i| i + 1);
        for (side, range) in [(0, 0..split), (1, split..last + 1)] {
            if range.is_empty() {
                continue;
            }
            let (lo, hi) = (self.runs[range.start].lo, self.runs[range.end - 1].hi);
            self.spans.lo[side] = lo;
            self.spans.len[side] = hi - lo;
            // Many slots for each run, but at most 2^16 for each span: 256 KiB that stay in the second-level cache.
            let bits = (range.len().ilog2() + 9).min(16);
            let shift = (64 - (hi - lo).leading_zeros()).saturating_sub(bits).max(LEAST_SHIFT);
            let slots = ((hi - lo) >> shift) as usize + 1;
            let mut first = range.start;
            self.table[side] = (0..slots as u64)
                .map(|slot| {
                    while first < range.end && self.runs[first].hi <= lo + (slot << shift) {
                        first += 1;
                    }
                    first as u32
                })
                .collect();
            self.shift[side] = shift;
        }
    }

    /// Returns the index of the run whose blocks a pointer of this value may point into.
    #[inline]
    pub fn run_of(&self, value: u64) -> Option<usize> {
        let side = usize::from(value.wrapping_sub(self.spans.lo[0]) >= self.spans.len[0]);
        let offset = value.wrapping_sub(self.spans.lo[side]);
        if offset >= self.spans.len[side] {
            return None;
        }
        let slot = (offset >> self.shift[side]) as usize;
        let first = self.table[side][slot] as usize;
        let bound =
            self.table[side].get(slot + 1).map_or(self.runs.len(), |&next| (next as usize + 1).min(self.runs.len()));
        let index = first + self.runs[first..bound].partition_point(|r| r.hi <= value);
        (index < self.runs.len() && self.runs[index].lo <= value).then_some(index)
    }

    /// Returns the number of the word that a pointer of this value names, in the run `placed` that holds it.
    #[inline(always)]
    pub fn word_in(placed: &PlacedRun, value: u64) -> usize {
        let first = placed.region * REGION * P;
        match placed.run.kind {
            Kind::Mmapped | Kind::Extent => first + P,
            Kind::Slab => {
                // A slab is far below 4 GiB, and 32-bit divisions are faster.
                let (offset, size) = ((value - placed.run.start) as u32, placed.run.usable as u32);
                let (block, within) = (offset / size, offset % size);
                first + (block as usize * placed.run.stride() + 1) * P + within as usize / Self::WORD as usize
            }
            Kind::Main | Kind::Thread => first + ((value - placed.run.start) / Self::WORD) as usize,
        }
    }

    /// Returns the number of the word that a pointer of this value names.
    #[inline]
    pub fn word_of(&self, value: u64) -> Option<usize> {
        self.run_of(value).map(|i| Self::word_in(&self.runs[i], value))
    }

    /// Returns the run that holds a granule.
    pub fn run_of_granule(&self, granule: usize) -> usize {
        let region = granule / REGION;
        self.runs.partition_point(|r| r.region <= region) - 1
    }

    /// Returns the address of the chunk that begins at a granule of run `index`.
    #[inline]
    pub fn address(&self, index: usize, granule: usize) -> u64 {
        let placed = &self.runs[index];
        placed.run.start + (granule - placed.region * REGION) as u64 * GRANULE
    }

    /// Returns what malloc returned for the block that begins at a granule of run `index`.
    #[inline]
    pub fn user(&self, index: usize, granule: usize) -> u64 {
        let placed = &self.runs[index];
        match placed.run.kind {
            Kind::Slab => placed.block(((granule - placed.region * REGION) / placed.run.stride()) as u64, 0),
            Kind::Extent => placed.block(0, 0),
            _ => self.address(index, granule) + Self::HEADER,
        }
    }

    /// Returns a granule of run `index` at or before the one that begins the first block at or after `address`.
    pub fn granule_near(&self, index: usize, address: u64) -> usize {
        let placed = &self.runs[index];
        let skip = address.saturating_sub(placed.run.start);
        let first = placed.region * REGION;
        match placed.run.kind {
            Kind::Slab => first + (skip / placed.run.usable) as usize * placed.run.stride(),
            // One header back: `address` may lie in the block of the chunk that begins before it.
            _ => first + ((skip / GRANULE) as usize).saturating_sub(1),
        }
    }

    /// Returns one past the last region of run `index`.
    pub fn region_end(&self, index: usize) -> usize {
        self.runs.get(index + 1).map_or(self.regions, |next| next.region)
    }
}

#[cfg(test)]
mod tests {
    use super::super::number::Index;
    use super::super::runs::Owner;
    use super::*;
    use crate::image::PROCESS;

    fn run(start: u64, size: u64, kind: Kind) -> Run {
        Run::of_chunks(start, start + size, kind, Owner::default(), if kind == Kind::Mmapped { size - 16 } else { 0 })
    }

    #[test]
    fn every_pointer_finds_its_run_and_no_other() {
        let mut runs = vec![run(0x5555_0000_0000, 0x21000, Kind::Main)];
        for i in 0..500 {
            runs.push(run(0x7f00_0000_0000 + i * 0x3000, 0x1000 + (i % 3) * 0x1000, Kind::Mmapped));
        }
        runs.push(run(0x7f80_0000_0000, 0x4000, Kind::Thread));
        let (word_map, dropped) = WordMap::<2>::new(runs.clone(), PROCESS, 1);
        assert!(dropped.is_empty());
        for (i, r) in runs.iter().enumerate() {
            assert_eq!(word_map.run_of(r.start + 8), None);
            assert_eq!(word_map.run_of(r.start + 16), Some(i));
            let tail = r.end - 1;
            assert_eq!(word_map.run_of(tail), Some(i));
            if r.kind == Kind::Mmapped {
                assert_eq!(word_map.run_of(r.end).filter(|&x| x == i), None);
            } else {
                assert_eq!(word_map.run_of(r.end + 7), Some(i));
                assert_eq!(word_map.run_of(r.end + 8), None);
            }
        }
        for value in [0, 1, u64::MAX, 0x6000_0000_0000] {
            assert_eq!(word_map.run_of(value), None);
        }
    }

    #[test]
    fn the_edges_of_large_runs_begin_where_huge_pages_do() {
        let large = 40 << 20;
        let runs = (0..6).map(|i| run(0x7f00_0000_0000 + i * 2 * large, large >> (i % 2), Kind::Main)).collect();
        let (word_map, _) = WordMap::<2>::new(runs, PROCESS, u32::APART);
        let mut used = 0;
        for placed in &word_map.runs {
            assert!(placed.edge >= used);
            assert!(!placed.run.is_large() || placed.edge % u32::APART == 0);
            used = placed.edge + (placed.run.granules() + 1) * 2;
        }
        assert_eq!(word_map.edges, used);
    }

    #[test]
    fn overlapping_and_absurd_runs_are_dropped() {
        let (word_map, dropped) = WordMap::<2>::new(
            vec![
                run(0x1000, 0x1000, Kind::Main),
                run(0x1800, 0x1000, Kind::Main),
                Run::of_chunks(0x9000, 0x1000, Kind::Main, Owner::default(), 0),
                Run::of_chunks(16, u64::MAX, Kind::Main, Owner::default(), 0),
            ],
            PROCESS,
            1,
        );
        assert_eq!(word_map.runs.len(), 1);
        assert_eq!(dropped.len(), 1);
    }
}
