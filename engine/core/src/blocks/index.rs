//! The tables that the pass fills, and lookups in them.

use super::guide::Guide;
use super::number::Index;
pub use super::region::Region;
use super::runs::{Kind, GRANULE, REGION};
use super::word_map::WordMap;
use crate::hw;

/// All granules: for [`Tables::each_block`].
pub const EVERY: (usize, usize) = (0, usize::MAX);

/// A block in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The granule that begins its chunk: the block's number.
    pub granule: usize,
    /// What malloc returned.
    pub address: u64,
    /// malloc_usable_size.
    pub size: u64,
    /// The number of its run.
    pub run: usize,
    /// Whether it is free.
    pub free: bool,
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

/// All results of the pass.
pub struct Tables<I: Index, const P: usize> {
    /// The numbering of words.
    pub word_map: WordMap<P>,
    /// The regions of all runs.
    pub regions: Vec<Region<I, P>>,
    /// The targets of candidate pointers, as word numbers. Each run has room for one edge per word. Memory that is not
    /// needed stays untouched.
    pub edges: Edges<I>,
    /// Where the edges of a word are, about.
    pub guide: Guide<I>,
    /// Which granules begin a chunk that is not a live block: free, a fencepost, a hole.
    pub free: Vec<u64>,
    /// Granules of pseudo-chunks that are no chunks at all (memory between two stretches of the main arena).
    pub holes: Vec<usize>,
    /// For each run: where its last block ends. That is below `run.end` where fenceposts follow.
    pub used_end: Vec<u64>,
}

/// Anonymous memory that costs nothing until it is written.
pub struct Edges<I: Index> {
    map: Option<memmap2::MmapMut>,
    /// Where they begin in the mapping: where a huge page begins.
    from: usize,
    /// How many bytes they take.
    bytes: usize,
    marker: std::marker::PhantomData<I>,
}

impl<I: Index> Edges<I> {
    /// Reserves address space for `count` edges.
    pub fn new(count: usize) -> std::io::Result<Self> {
        let bytes = count.checked_mul(std::mem::size_of::<I>()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        let map = match bytes {
            0 => None,
            _ => {
                let room = bytes.checked_add(hw::HUGE).ok_or(std::io::ErrorKind::OutOfMemory)?;
                Some(memmap2::MmapOptions::new().len(room).no_reserve_swap().map_anon()?)
            }
        };
        let start = map.as_ref().map_or(0, |map| map.as_ptr() as usize);
        Ok(Edges { map, from: start.next_multiple_of(hw::HUGE) - start, bytes, marker: std::marker::PhantomData })
    }
    /// Returns all edges.
    #[inline(always)]
    pub fn as_slice(&self) -> &[I] {
        self.map.as_ref().map_or(&[], |map| bytemuck::cast_slice(&map[self.from..][..self.bytes]))
    }
    /// Returns all edges, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [I] {
        self.map.as_mut().map_or(&mut [], |map| bytemuck::cast_slice_mut(&mut map[self.from..][..self.bytes]))
    }
}

/// Returns the granule of the chunk that holds word `word`. None where the word is that chunk's own size field, which is
/// not inside any block. (A block's last word is the prev_size of the chunk after it.)
#[inline(always)]
pub fn chunk_of_word<I: Index, const P: usize>(regions: &[Region<I, P>], word: usize) -> Option<usize> {
    let region = &regions[word / (REGION * P)];
    let granule = (word - 1) / P;
    if word % P == 1 && region.start >> (word / P % REGION) & 1 != 0 {
        return None;
    }
    let number = granule / REGION;
    let region = if number == word / (REGION * P) { region } else { &regions[number] };
    let below = region.start & (u64::MAX >> (REGION - 1 - granule % REGION));
    if below != 0 {
        Some(number * REGION + (REGION - 1 - below.leading_zeros() as usize))
    } else {
        Some(Region::chunk_before(regions, number))
    }
}

/// Returns the granule that begins the chunk after `granule`'s.
#[inline(always)]
pub fn next_start<I: Index, const P: usize>(regions: &[Region<I, P>], granule: usize) -> usize {
    let mut region = granule / REGION;
    let within = granule % REGION;
    let above = if within == REGION - 1 { 0 } else { regions[region].start >> (within + 1) };
    if above != 0 {
        return granule + 1 + above.trailing_zeros() as usize;
    }
    loop {
        region += 1;
        // A run ends with a sentinel, so this loop ends before the tables do.
        let start = regions[region].start;
        if start != 0 {
            return region * REGION + start.trailing_zeros() as usize;
        }
    }
}

/// Returns the range of edges of the block whose chunk begins at `granule`.
#[inline(always)]
pub fn edges_of<I: Index, const P: usize>(regions: &[Region<I, P>], granule: usize) -> (usize, usize) {
    let region = &regions[granule / REGION];
    let within = granule % REGION;
    let above = if within == REGION - 1 { 0 } else { region.start >> (within + 1) };
    if P == 2 && above != 0 {
        // Most blocks lie within one region: its 128 bits are counted once.
        let words = u128::from(region.bits(0)) | u128::from(region.bits(1)) << 64;
        let first = within * P + 2;
        let count = (above.trailing_zeros() as usize + 1) * P - 1;
        // No chunk begins in the block, so none of its bits is a mark.
        let inside = words >> first & ((1 << count) - 1);
        if inside == 0 {
            return (0, 0);
        }
        let words = words & !(u128::from(region.size_words(0)) | u128::from(region.size_words(1)) << 64);
        let before = (words & ((1 << first) - 1)).count_ones() as usize;
        let edge = region.edge.get() + before;
        return (edge, edge + inside.count_ones() as usize);
    }
    let end = next_start(regions, granule);
    (edge_at(regions, granule * P + 2), edge_at(regions, end * P + 1))
}

/// Returns which of the first `count` (up to 8) words of the block whose chunk begins at `granule` are candidate pointers,
/// and the number of the first one's edge. `bare`: the block has no header.
#[inline(always)]
pub fn first_pointers<I: Index, const P: usize>(
    regions: &[Region<I, P>],
    granule: usize,
    count: usize,
    bare: bool,
) -> (u8, usize) {
    let wanted = ((1u32 << count) - 1) as u8;
    if P == 2 {
        // With a header or with the granule that stands for it, two words come first.
        let region = &regions[granule / REGION];
        let first = granule % REGION * P + 2;
        let words = u128::from(region.bits(0)) | u128::from(region.bits(1)) << 64;
        let mut mask = if first < 128 { (words >> first) as u8 } else { 0 };
        if first + count > 128 {
            mask |= (regions[granule / REGION + 1].bits(0) << (128 - first)) as u8;
        }
        mask &= wanted;
        return (mask, if mask == 0 { 0 } else { region.edge.get() + region.rank(first) });
    }
    let first = granule * P + if bare { P } else { 2 };
    let bit = |word: usize| regions[word / (REGION * P)].bits(word % (REGION * P) / 64) >> (word % 64) & 1 != 0;
    let mask = (0..count).filter(|&i| bit(first + i)).fold(0, |mask, i| mask | 1 << i);
    (mask, if mask == 0 { 0 } else { edge_at(regions, first) })
}

/// Calls `each` with (offset in words, number of the edge) for each pointer in the block whose chunk begins at a granule.
#[inline(always)]
pub fn each_edge<I: Index, const P: usize>(
    regions: &[Region<I, P>],
    granule: usize,
    (mut edge, end): (usize, usize),
    mut each: impl FnMut(usize, usize),
) {
    let first = granule * P + 2;
    let mut word = first;
    while edge < end {
        let Some(region) = regions.get(word / (REGION * P)) else { return };
        let part = word % (REGION * P) / 64;
        let mut bits = region.pointers(part) & u64::MAX << (word % 64);
        let base = word - word % 64;
        while bits != 0 && edge < end {
            each(base + bits.trailing_zeros() as usize - first, edge);
            bits &= bits - 1;
            edge += 1;
        }
        word = base + 64;
    }
}

#[inline(always)]
fn edge_at<I: Index, const P: usize>(regions: &[Region<I, P>], word: usize) -> usize {
    let region = &regions[word / (REGION * P)];
    region.edge.get() + region.rank(word % (REGION * P))
}

/// Returns the usable bytes of the block whose chunk begins at `granule` of run `run`.
#[inline(always)]
pub fn size_of<I: Index, const P: usize>(
    word_map: &WordMap<P>,
    regions: &[Region<I, P>],
    used_end: &[u64],
    run: usize,
    granule: usize,
) -> u64 {
    let placed = &word_map.runs[run];
    if !matches!(placed.run.kind, Kind::Main | Kind::Thread) {
        return placed.run.usable;
    }
    let end = word_map.address(run, next_start(regions, granule)).min(used_end[run]);
    // The next chunk lends its first word to this one: usable = size - SIZE_SZ.
    (end - word_map.address(run, granule)).saturating_sub(WordMap::<P>::WORD)
}

impl<I: Index, const P: usize> Tables<I, P> {
    /// See [`chunk_of_word`].
    pub fn chunk_of_word(&self, word: usize) -> Option<usize> {
        chunk_of_word(&self.regions, word)
    }

    /// Returns whether the chunk that begins at a granule is not a live block.
    #[inline(always)]
    pub fn is_free(&self, granule: usize) -> bool {
        self.free[granule / REGION] >> (granule % REGION) & 1 != 0
    }

    /// Returns whether a chunk begins at a granule.
    pub fn is_start(&self, granule: usize) -> bool {
        self.regions[granule / REGION].start >> (granule % REGION) & 1 != 0
    }

    /// Sets a block free for good. No walk follows it, and no listing calls it live.
    pub fn set_free(&mut self, granule: usize) {
        self.free[granule / REGION] |= 1 << (granule % REGION);
        self.regions[granule / REGION].mark(granule % REGION);
    }

    /// Returns the block whose chunk begins at `granule` of run `run`.
    pub fn block(&self, run: usize, granule: usize) -> Block {
        let size = size_of(&self.word_map, &self.regions, &self.used_end, run, granule);
        Block { granule, address: self.word_map.user(run, granule), size, run, free: self.is_free(granule) }
    }

    /// Returns the block that `address` points into, free or not. A header belongs to no block.
    pub fn find(&self, address: u64) -> Option<Block> {
        let run = self.word_map.run_of(address)?;
        let granule = self.chunk_of_word(WordMap::<P>::word_in(&self.word_map.runs[run], address))?;
        // Fenceposts and the sentinel follow the last block. They have no size.
        if !self.in_use_range(run, granule) {
            return None;
        }
        let block = self.block(run, granule);
        (address < block.address + block.size).then_some(block)
    }

    /// Returns the glibc block whose chunk begins exactly at `chunk`.
    pub fn chunk_at(&self, chunk: u64) -> Option<Block> {
        let address = chunk.checked_add(WordMap::<P>::HEADER)?;
        let own = |block: &Block| self.word_map.runs[block.run].run.kind.has_chunks();
        self.find(address).filter(|block| block.address == address && own(block))
    }

    fn in_use_range(&self, run: usize, granule: usize) -> bool {
        !self.word_map.runs[run].run.kind.has_chunks()
            || (self.word_map.address(run, granule) < self.used_end[run] && self.holes.binary_search(&granule).is_err())
    }

    /// Calls `each` for every block of a run, free ones too, in address order from granule `from` on, until it returns
    /// false. No block begins at `end` or later. Returns false where `each` did.
    #[inline(always)]
    pub fn each_block(&self, run: usize, range: (usize, usize), each: impl FnMut(Block) -> bool) -> bool {
        self.each_block_to(run, range, &mut Closure(each))
    }

    /// Does the same for what is inlined for certain.
    #[inline(always)]
    pub fn each_block_to(&self, run: usize, (from, end): (usize, usize), to: &mut impl Each) -> bool {
        let placed = &self.word_map.runs[run];
        let first = placed.region * REGION;
        let (last, stride) = match placed.run.kind {
            Kind::Mmapped | Kind::Extent => (first + 1, 1),
            Kind::Slab => (first + placed.run.granules(), placed.run.stride()),
            Kind::Main | Kind::Thread => (first + ((self.used_end[run] - placed.run.start) / GRANULE) as usize, 0),
        };
        let (from, last, used_end) = (from.max(first), last.min(end), self.used_end[run]);
        // Where blocks have no headers, they are counted: a division for each takes time.
        let mut slot = if stride > 0 { (from - first).div_ceil(stride) as u64 } else { 0 };
        let mut holes = &self.holes[self.holes.partition_point(|&hole| hole < from)..];
        for region in from / REGION..last.div_ceil(REGION) {
            let mut bits = self.regions[region].start;
            if region == from / REGION {
                bits &= u64::MAX << (from % REGION);
            }
            let free = self.free[region];
            while bits != 0 {
                let bit = bits.trailing_zeros() as usize;
                let granule = region * REGION + bit;
                bits &= bits - 1;
                if granule >= last {
                    return true;
                }
                if holes.first() == Some(&granule) {
                    holes = &holes[1..];
                    continue;
                }
                let (address, size) = if stride > 0 {
                    slot += 1;
                    (placed.block(slot - 1, WordMap::<P>::HEADER), placed.run.usable)
                } else {
                    let next = match bits {
                        0 => next_start(&self.regions, granule),
                        _ => region * REGION + bits.trailing_zeros() as usize,
                    };
                    // The granules are those of the run, so its addresses do not overflow.
                    let at = |granule: usize| {
                        placed.run.start.wrapping_add((granule.wrapping_sub(first) * GRANULE as usize) as u64)
                    };
                    // See `size_of`.
                    let size = at(next).min(used_end).wrapping_sub(at(granule)).saturating_sub(WordMap::<P>::WORD);
                    (at(granule).wrapping_add(WordMap::<P>::HEADER), size)
                };
                if !to.take(Block { granule, address, size, run, free: free >> bit & 1 != 0 }) {
                    return false;
                }
            }
        }
        true
    }

    /// Returns whether a block is reachable, once [`super::mark`] has run. Free blocks count as marked.
    pub fn is_marked(&self, granule: usize) -> bool {
        self.regions[granule / REGION].marked(granule % REGION)
    }
}
