//! The tables that the pass fills, and lookups in them.

use super::number::Index;
use super::runs::{Kind, GRANULE, REGION};
use super::word_map::WordMap;

/// The state of 1 KiB of heap (64 granules). It has 32 bytes where a word has 8 bytes and numbers have 32 bits.
///
/// `ptr` has one bit for each word: the word holds a candidate pointer. The targets are in the edges, in order. A chunk's
/// size word holds no pointer, so its bit is the chunk's *mark*: the chunk is reachable, or it is free and must not be
/// followed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Region<I: Index, const P: usize> {
    /// Which granules begin a chunk.
    pub start: u64,
    /// The bits of the words.
    pub ptr: [u64; P],
    /// The number of the first edge at or after this region's first word.
    pub edge: I,
    /// The last granule before this region that begins a chunk.
    pub back: I,
}

impl<I: Index, const P: usize> Default for Region<I, P> {
    fn default() -> Self {
        Region { start: 0, ptr: [0; P], edge: I::default(), back: I::default() }
    }
}

impl<I: Index, const P: usize> Region<I, P> {
    /// Returns the bits of `ptr[i]` that are size words of chunks.
    #[inline(always)]
    pub fn size_words(&self, i: usize) -> u64 {
        if P == 2 {
            let half = if i == 0 { self.start as u32 } else { (self.start >> 32) as u32 };
            spread2(half) << 1
        } else {
            spread4((self.start >> (i * 16)) as u16) << 1
        }
    }

    /// Returns how many candidate pointers this region has before its word `word` (0 ..= 64 * P).
    #[inline(always)]
    pub fn rank(&self, word: usize) -> usize {
        let mut count = 0;
        for i in 0..P {
            let from = i * 64;
            if word <= from {
                break;
            }
            let keep = if word - from >= 64 { u64::MAX } else { (1 << (word - from)) - 1 };
            count += (self.ptr[i] & !self.size_words(i) & keep).count_ones() as usize;
        }
        count
    }

    /// Returns whether the chunk that begins at a granule is marked.
    #[inline(always)]
    pub fn marked(&self, granule: usize) -> bool {
        let bit = granule * P + 1;
        self.ptr[bit / 64] >> (bit % 64) & 1 != 0
    }

    /// Marks the chunk that begins at a granule.
    #[inline(always)]
    pub fn mark(&mut self, granule: usize) {
        let bit = granule * P + 1;
        self.ptr[bit / 64] |= 1 << (bit % 64);
    }

    /// Returns which granules begin a chunk that is not marked.
    #[inline(always)]
    pub fn unmarked(&self) -> u64 {
        let open: [u64; P] = std::array::from_fn(|i| self.size_words(i) & !self.ptr[i]);
        if open == [0; P] {
            return 0;
        }
        (0..REGION).filter(|g| open[g * P / 64] >> (g * P % 64 + 1) & 1 != 0).fold(0, |mask, g| mask | 1 << g)
    }

    /// Removes the mark of the chunk that begins at a granule.
    #[inline(always)]
    pub fn unmark(&mut self, granule: usize) {
        let bit = granule * P + 1;
        self.ptr[bit / 64] &= !(1 << (bit % 64));
    }
}

/// Moves bit i of `x` to bit 2i.
#[inline(always)]
fn spread2(x: u32) -> u64 {
    let mut x = u64::from(x);
    x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    x = (x | x << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    x = (x | x << 2) & 0x3333_3333_3333_3333;
    (x | x << 1) & 0x5555_5555_5555_5555
}

/// Moves bit i of `x` to bit 4i.
#[inline(always)]
fn spread4(x: u16) -> u64 {
    let mut x = u64::from(x);
    x = (x | x << 24) & 0x0000_00ff_0000_00ff;
    x = (x | x << 12) & 0x000f_000f_000f_000f;
    x = (x | x << 6) & 0x0303_0303_0303_0303;
    (x | x << 3) & 0x1111_1111_1111_1111
}

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

/// All results of the pass.
pub struct Tables<I: Index, const P: usize> {
    /// The numbering of words.
    pub word_map: WordMap<P>,
    /// The regions of all runs.
    pub regions: Vec<Region<I, P>>,
    /// The targets of candidate pointers, as word numbers. Each run has room for one edge per word. Memory that is not
    /// needed stays untouched.
    pub edges: Edges<I>,
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
    marker: std::marker::PhantomData<I>,
}

impl<I: Index> Edges<I> {
    /// Reserves address space for `count` edges.
    pub fn new(count: usize) -> std::io::Result<Self> {
        let bytes = count.checked_mul(std::mem::size_of::<I>()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        let map = match bytes {
            0 => None,
            _ => Some(memmap2::MmapOptions::new().len(bytes).no_reserve_swap().map_anon()?),
        };
        Ok(Edges { map, marker: std::marker::PhantomData })
    }
    /// Returns all edges.
    #[inline(always)]
    pub fn as_slice(&self) -> &[I] {
        self.map.as_ref().map_or(&[], |map| bytemuck::cast_slice(map))
    }
    /// Returns all edges, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [I] {
        self.map.as_mut().map_or(&mut [], |map| bytemuck::cast_slice_mut(map))
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
    let region = if granule / REGION == word / (REGION * P) { region } else { &regions[granule / REGION] };
    let below = region.start & (u64::MAX >> (REGION - 1 - granule % REGION));
    if below != 0 {
        Some(granule / REGION * REGION + (REGION - 1 - below.leading_zeros() as usize))
    } else {
        Some(region.back.get())
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
        let words =
            u128::from(region.ptr[0] & !region.size_words(0)) | u128::from(region.ptr[1] & !region.size_words(1)) << 64;
        let first = within * P + 2;
        let count = (above.trailing_zeros() as usize + 1) * P - 1;
        let inside = words >> first & ((1 << count) - 1);
        if inside == 0 {
            return (0, 0);
        }
        let before = (words & ((1 << first) - 1)).count_ones() as usize;
        let edge = region.edge.get() + before;
        return (edge, edge + inside.count_ones() as usize);
    }
    let end = next_start(regions, granule);
    (edge_at(regions, granule * P + 2), edge_at(regions, end * P + 1))
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
    /// false.
    pub fn each_block(&self, run: usize, from: usize, mut each: impl FnMut(usize) -> bool) {
        let placed = &self.word_map.runs[run];
        let first = placed.region * REGION;
        let last = match placed.run.kind {
            Kind::Mmapped | Kind::Extent => first + 1,
            Kind::Slab => first + placed.run.granules(),
            Kind::Main | Kind::Thread => first + ((self.used_end[run] - placed.run.start) / GRANULE) as usize,
        };
        let from = from.max(first);
        let mut region = from / REGION;
        let mut bits = self.regions.get(region).map_or(0, |r| r.start) & (u64::MAX << (from % REGION));
        while region * REGION < last {
            while bits != 0 {
                let granule = region * REGION + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if granule >= last {
                    return;
                }
                if self.holes.binary_search(&granule).is_err() && !each(granule) {
                    return;
                }
            }
            region += 1;
            bits = self.regions.get(region).map_or(0, |r| r.start);
        }
    }

    /// Returns whether a block is reachable, once [`super::mark`] has run. Free blocks count as marked.
    pub fn is_marked(&self, granule: usize) -> bool {
        self.regions[granule / REGION].marked(granule % REGION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreading_is_the_slow_loop() {
        for x in [0u32, 1, 0x8000_0001, 0xdead_beef, u32::MAX] {
            let slow = (0..32).filter(|i| x >> i & 1 != 0).fold(0u64, |m, i| m | 1 << (2 * i));
            assert_eq!(spread2(x), slow);
            let slow = (0..16).filter(|i| x >> i & 1 != 0).fold(0u64, |m, i| m | 1 << (4 * i));
            assert_eq!(spread4(x as u16), slow);
        }
    }

    #[test]
    fn a_region_is_half_a_cache_line() {
        assert_eq!(std::mem::size_of::<Region<u32, 2>>(), 32);
    }
}
