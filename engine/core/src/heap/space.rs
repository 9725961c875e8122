//! Where the runs lie, and the compact numbering of their words.
//!
//! A *run* is a stretch of chunks that follow each other: the main arena's brk area up to `top`, one heap of a thread
//! arena, or one mmapped chunk. Of an allocator without headers it is a slab (blocks of one size side by side) or the
//! extent of a single block. Runs are laid side by side in a compact space of *words* (pointer size), *granules* (16
//! bytes: malloc's alignment) and *regions* (64 granules: 1 KiB), each run beginning a new region. `P` is the number of
//! words in a granule: 2 where pointers have 8 bytes, 4 where they have 4.
//!
//! In the compact space every block is a chunk. A slab's blocks get a granule for the header that they do not have, so
//! that whoever marks, follows and counts need not know which allocator a block is of.

use super::find::TOP;
use crate::hw::Spans;

/// Granules in a region.
pub const REGION: usize = 64;
/// Bytes in a granule: MALLOC_ALIGNMENT of every 64-bit port, and of i386 since glibc 2.26.
pub const GRANULE: u64 = 16;
/// Blocks in a slab at most (jemalloc's SC_LG_SLAB_MAXREGS; 512 with pages of 4 KiB, this with those of 64 KiB).
pub const SLOTS: usize = 8192;
/// The least large size of jemalloc (SC_LARGE_MINCLASS with pages of 4 KiB).
const LEAST_LARGE: u64 = 1 << 14;
/// Bytes of a slab at most: more than 512 of the largest small size; with pages of 64 KiB slabs are of a few pages, too.
const MOST_SLAB: u64 = 1 << 25;
/// Bytes in a region.
pub const REGION_BYTES: u64 = GRANULE * REGION as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Chunks of the main arena: NON_MAIN_ARENA is clear.
    Main,
    /// Chunks of a thread arena: NON_MAIN_ARENA is set.
    Thread,
    /// One chunk of its own mapping.
    Mmapped,
    /// Blocks of one size without headers.
    Slab,
    /// One block without a header, which begins at `start`.
    Extent,
}

impl Kind {
    /// Whether the run is one block.
    pub fn is_single(self) -> bool {
        matches!(self, Kind::Mmapped | Kind::Extent)
    }
    /// Whether its blocks have glibc's headers.
    pub fn has_chunks(self) -> bool {
        matches!(self, Kind::Main | Kind::Thread | Kind::Mmapped)
    }
}

/// A run as it was found: `[start, end)` from the first chunk's address to `top` (or the heap's end, or the mapping's); the blocks
/// alone where they have no headers.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub start: u64,
    pub end: u64,
    pub kind: Kind,
    /// The caller's number for the arena.
    pub arena: u32,
    /// Usable bytes of the one block of a `Mmapped` run or an `Extent`, and of each block of a `Slab`; 0 for others.
    pub usable: u64,
    /// For a `Slab`, where its map of free blocks begins: see [`super::pass::Request`].
    pub map: u32,
}

impl Run {
    /// A run of chunks.
    pub fn of_chunks(start: u64, end: u64, kind: Kind, arena: u32, usable: u64) -> Run {
        Run { start, end, kind, arena, usable, map: 0 }
    }

    /// Whether its block is a large one: a mapping of its own, or an extent that is not that of a small block. (jemalloc gives a small
    /// block an extent when its profiler samples it.)
    pub fn is_oversized(&self) -> bool {
        self.kind == Kind::Mmapped || (self.kind == Kind::Extent && self.usable >= LEAST_LARGE)
    }

    /// How many blocks a slab has room for.
    pub fn slots(&self) -> usize {
        (self.end.saturating_sub(self.start) / self.usable.max(1)) as usize
    }

    /// Granules that a block of a slab takes in the compact space.
    pub fn stride(&self) -> usize {
        1 + self.usable.div_ceil(GRANULE) as usize
    }

    /// Granules of the whole run in the compact space; one more is the sentinel that bounds its last block.
    pub fn granules(&self) -> usize {
        match self.kind {
            Kind::Slab => self.slots().saturating_mul(self.stride()),
            // Where words have 4 bytes a heap ends half a granule past its last whole one.
            _ => self.end.saturating_sub(self.start).div_ceil(GRANULE) as usize,
        }
    }
}

/// A run with its place in the compact space.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    pub run: Run,
    /// A pointer into a block of this run lies in `[lo, hi)`.
    pub lo: u64,
    pub hi: u64,
    /// Its first region; the regions of the run are `[region, next.region)`.
    pub region: usize,
    /// Its first edge; there is room for one edge a word.
    pub edge: usize,
}

/// The compact space of all runs, sorted by address.
#[derive(Debug)]
pub struct Space<const P: usize> {
    pub runs: Vec<Placed>,
    pub regions: usize,
    pub edges: usize,
    pub spans: Spans,
    /// For each slot of each span: the first run that ends beyond the slot's start.
    table: [Vec<u32>; 2],
    shift: [u32; 2],
}

impl<const P: usize> Space<P> {
    /// Bytes in a pointer.
    pub const WORD: u64 = GRANULE / P as u64;
    /// Bytes in a chunk's header.
    pub const HEADER: u64 = 2 * Self::WORD;
    /// The least chunk (MINSIZE): header and the two links of a free chunk, rounded up to the alignment.
    pub const MIN_CHUNK: u64 = (4 * Self::WORD).next_multiple_of(GRANULE);

    /// Sorts the runs and drops those that overlap an earlier one (returned beside), and absurd ones: 0 points to nothing.
    pub fn new(mut runs: Vec<Run>) -> (Space<P>, Vec<Run>) {
        runs.retain(|r| {
            let least = if r.kind.has_chunks() { Self::MIN_CHUNK } else { r.usable.max(1) };
            let fits = r.start.checked_add(least).is_some_and(|least| least <= r.end) && r.start > 0 && r.end <= TOP;
            fits && (r.kind != Kind::Slab || (r.usable > 0 && r.end - r.start <= MOST_SLAB && r.slots() <= SLOTS))
        });
        runs.sort_by_key(|r| (r.start, std::cmp::Reverse(r.end)));
        let mut dropped = Vec::new();
        let (mut region, mut edge, mut reached) = (0usize, 0usize, 0u64);
        let mut placed: Vec<Placed> = Vec::with_capacity(runs.len());
        for mut run in runs {
            if run.start < reached {
                dropped.push(run);
                continue;
            }
            reached = run.end;
            if run.kind == Kind::Mmapped {
                // Its one block ends in it, whatever its size claims.
                run.usable = run.usable.min(run.end - run.start - Self::HEADER);
            }
            let (lo, hi) = match run.kind {
                Kind::Main | Kind::Thread => (run.start + Self::HEADER, run.end + Self::WORD),
                Kind::Mmapped => (run.start + Self::HEADER, run.start + Self::HEADER + run.usable.max(1)),
                Kind::Slab => (run.start, run.start + run.slots() as u64 * run.usable),
                Kind::Extent => (run.start, run.start + run.usable.max(1)),
            };
            if let Some(before) = placed.last_mut() {
                // The last chunk before it has no word of what is the next run's.
                before.hi = before.hi.min(lo);
            }
            placed.push(Placed { run, lo, hi, region, edge });
            let granules = run.granules();
            // A single block needs no map of its inside: one region for it, one for its sentinel, so that untouched gigabytes
            // cost nothing.
            region += if run.kind.is_single() { 2 } else { (granules + 1).div_ceil(REGION) };
            edge += (granules + 1) * P;
        }
        let mut space = Space {
            runs: placed,
            regions: region,
            edges: edge,
            spans: Spans::default(),
            table: Default::default(),
            shift: [0; 2],
        };
        space.make_tables();
        (space, dropped)
    }

    /// Two spans are enough in practice: the brk heap low, mmapped memory high. They part at the widest gap.
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
            // Many for each run, but at most 2^16 a span: 256 KiB that stay in the second-level cache.
            let bits = (range.len().ilog2() + 9).min(16);
            let shift = (64 - (hi - lo).leading_zeros()).saturating_sub(bits);
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

    /// The index of the run whose blocks a pointer of this value may point into.
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

    /// The number of the word that a pointer of this value names, in the run `placed` that holds it.
    #[inline(always)]
    pub fn word_in(placed: &Placed, value: u64) -> usize {
        let first = placed.region * REGION * P;
        match placed.run.kind {
            Kind::Mmapped | Kind::Extent => first + P,
            Kind::Slab => {
                // A slab and its blocks are far below 4 GiB, and 32-bit divisions are the fast ones.
                let (offset, size) = ((value - placed.run.start) as u32, placed.run.usable as u32);
                let (block, within) = (offset / size, offset % size);
                first + (block as usize * placed.run.stride() + 1) * P + within as usize / Self::WORD as usize
            }
            Kind::Main | Kind::Thread => first + ((value - placed.run.start) / Self::WORD) as usize,
        }
    }

    #[inline]
    pub fn word_of(&self, value: u64) -> Option<usize> {
        self.run_of(value).map(|i| Self::word_in(&self.runs[i], value))
    }

    /// The run that holds a granule.
    pub fn run_of_granule(&self, granule: usize) -> usize {
        let region = granule / REGION;
        self.runs.partition_point(|r| r.region <= region) - 1
    }

    /// The address of the chunk that begins at a granule of run `index`.
    #[inline]
    pub fn address(&self, index: usize, granule: usize) -> u64 {
        let placed = &self.runs[index];
        placed.run.start + (granule - placed.region * REGION) as u64 * GRANULE
    }

    /// What malloc returned for the block that begins at a granule of run `index`.
    #[inline]
    pub fn user(&self, index: usize, granule: usize) -> u64 {
        let placed = &self.runs[index];
        match placed.run.kind {
            Kind::Extent => placed.run.start,
            Kind::Slab => {
                let block = (granule - placed.region * REGION) / placed.run.stride();
                placed.run.start + block as u64 * placed.run.usable
            }
            _ => self.address(index, granule) + Self::HEADER,
        }
    }

    /// A granule of run `index` at or before the one that begins the first block at or after `address`.
    pub fn granule_near(&self, index: usize, address: u64) -> usize {
        let placed = &self.runs[index];
        let skip = address.saturating_sub(placed.run.start);
        let first = placed.region * REGION;
        match placed.run.kind {
            Kind::Slab => first + (skip / placed.run.usable) as usize * placed.run.stride(),
            // A header's length back: `address` may be in the block of the chunk that begins before it.
            _ => first + ((skip / GRANULE) as usize).saturating_sub(1),
        }
    }

    /// One past the last region of run `index`.
    pub fn region_end(&self, index: usize) -> usize {
        self.runs.get(index + 1).map_or(self.regions, |next| next.region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, size: u64, kind: Kind) -> Run {
        Run::of_chunks(start, start + size, kind, 0, if kind == Kind::Mmapped { size - 16 } else { 0 })
    }

    #[test]
    fn every_pointer_finds_its_run_and_no_other() {
        let mut runs = vec![run(0x5555_0000_0000, 0x21000, Kind::Main)];
        for i in 0..500 {
            runs.push(run(0x7f00_0000_0000 + i * 0x3000, 0x1000 + (i % 3) * 0x1000, Kind::Mmapped));
        }
        runs.push(run(0x7f80_0000_0000, 0x4000, Kind::Thread));
        let (space, dropped) = Space::<2>::new(runs.clone());
        assert!(dropped.is_empty());
        for (i, r) in runs.iter().enumerate() {
            assert_eq!(space.run_of(r.start + 8), None);
            assert_eq!(space.run_of(r.start + 16), Some(i));
            let tail = r.end - 1;
            assert_eq!(space.run_of(tail), Some(i));
            if r.kind == Kind::Mmapped {
                assert_eq!(space.run_of(r.end).filter(|&x| x == i), None);
            } else {
                assert_eq!(space.run_of(r.end + 7), Some(i));
                assert_eq!(space.run_of(r.end + 8), None);
            }
        }
        for value in [0, 1, u64::MAX, 0x6000_0000_0000] {
            assert_eq!(space.run_of(value), None);
        }
    }

    #[test]
    fn overlapping_and_absurd_runs_are_dropped() {
        let (space, dropped) = Space::<2>::new(vec![
            run(0x1000, 0x1000, Kind::Main),
            run(0x1800, 0x1000, Kind::Main),
            Run::of_chunks(0x9000, 0x1000, Kind::Main, 0, 0),
            Run::of_chunks(16, u64::MAX, Kind::Main, 0, 0),
        ]);
        assert_eq!(space.runs.len(), 1);
        assert_eq!(dropped.len(), 1);
    }
}
