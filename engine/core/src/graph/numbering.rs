//! Dense numbers for the blocks of the tables, in address order.
//!
//! The tables name a block by its granule. An array by granule would have one entry for each 16 bytes of the heap. An array by
//! number has one for each block.

use super::edges::Edges;
use super::search::Graph;
use crate::blocks::index::{chunk_of_word, edges_of, Region, Tables};
use crate::blocks::model::Heap;
use crate::blocks::number::Index;
use crate::blocks::runs::REGION;
use crate::blocks::widths::by_width;
use crate::hw;

/// How many blocks begin before each region.
pub struct Numbering {
    before: Vec<u32>,
    count: usize,
}

impl Numbering {
    /// Numbers all starts in the tables, those of free blocks and fenceposts too. None: there are too many.
    pub fn new<I: Index, const P: usize>(regions: &[Region<I, P>]) -> Option<Numbering> {
        let mut count = 0usize;
        let mut before = Vec::with_capacity(regions.len());
        hw::huge_pages(before.spare_capacity_mut());
        for region in regions {
            before.push(u32::try_from(count).ok()?);
            count += region.start.count_ones() as usize;
        }
        (count < u32::MAX as usize / 2).then_some(Numbering { before, count })
    }

    /// Numbers the blocks of a heap. None: there are too many.
    pub fn of_heap(heap: &dyn Heap) -> Option<Numbering> {
        by_width!(Widths, heap.widths(), heap => Numbering::new(&heap.tables().regions))
    }

    /// Returns the number of the block of a heap whose chunk begins at `granule`.
    pub fn in_heap(&self, heap: &dyn Heap, granule: usize) -> usize {
        by_width!(Widths, heap.widths(), heap => self.of(&heap.tables().regions, granule))
    }

    /// Returns how many numbers there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of the block whose chunk begins at `granule`.
    #[inline(always)]
    pub fn of<I: Index, const P: usize>(&self, regions: &[Region<I, P>], granule: usize) -> usize {
        let below = regions[granule / REGION].start & ((1 << (granule % REGION)) - 1);
        self.before[granule / REGION] as usize + below.count_ones() as usize
    }

    /// Returns the granule of block `number`, which must be below the count.
    pub fn granule<I: Index, const P: usize>(&self, regions: &[Region<I, P>], number: usize) -> usize {
        let region = self.before.partition_point(|&before| before as usize <= number) - 1;
        let mut bits = regions[region].start;
        for _ in 0..number - self.before[region] as usize {
            bits &= bits - 1;
        }
        region * REGION + bits.trailing_zeros() as usize
    }
}

/// The heap as a graph. A node is a granule. The edges are those of the tables; nothing is stored twice.
pub struct HeapGraph<'a, I: Index, const P: usize> {
    /// The tables.
    pub tables: &'a Tables<I, P>,
    /// The numbers of the blocks.
    pub numbering: &'a Numbering,
    /// The edges that are left out.
    pub cut: Option<&'a Edges>,
}

impl<I: Index, const P: usize> HeapGraph<'_, I, P> {
    /// Asks the CPU to load what `edges` and `number` need for a node.
    #[inline(always)]
    pub fn load(&self, node: usize) {
        hw::prefetch(&self.tables.regions, node / REGION);
        hw::prefetch(&self.numbering.before, node / REGION);
    }

    /// Asks the CPU to load the edges of a range, or the first ones of many: it loads those after them by itself.
    #[inline(always)]
    pub fn load_edges(&self, first: usize, end: usize) {
        if first < end {
            let edges = self.tables.edges.as_slice();
            hw::prefetch(edges, first);
            hw::prefetch(edges, end - 1);
        }
    }
}

impl<I: Index, const P: usize> Graph for HeapGraph<'_, I, P> {
    type Edge = I;

    fn count(&self) -> usize {
        self.numbering.count
    }

    #[inline(always)]
    fn number(&self, node: usize) -> usize {
        self.numbering.of(&self.tables.regions, node)
    }

    #[inline(always)]
    fn edges(&self, node: usize) -> (usize, usize) {
        edges_of(&self.tables.regions, node)
    }

    #[inline(always)]
    fn target(&self, edge: usize) -> Option<usize> {
        if self.cut.is_some_and(|cut| cut.contains(edge)) {
            return None;
        }
        let word = self.tables.edges.as_slice()[edge].get();
        chunk_of_word(&self.tables.regions, word)
    }

    #[inline(always)]
    fn prefetch(&self, edge: usize) {
        if let Some(word) = self.tables.edges.as_slice().get(edge) {
            hw::prefetch(&self.tables.regions, word.get() / (REGION * P));
            hw::prefetch(&self.numbering.before, word.get() / (REGION * P));
        }
    }

    #[inline(always)]
    fn each(&self, mut each: impl FnMut(usize, usize, usize) -> bool) {
        // The edges of a block end where those of the next block begin. `Some` is a block whose next has not been met.
        let (mut number, mut open) = (0, None);
        for (region, &free) in self.tables.regions.iter().zip(&self.tables.free) {
            if region.start == 0 {
                continue;
            }
            let (ranks, mut bits) = (Ranks::new(region), region.start);
            while bits != 0 {
                let bit = bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let first = ranks.edge_of(bit);
                if let Some(before) = open.replace((free >> bit & 1 == 0).then_some(first)) {
                    let (from, to) = before.map_or((0, 0), |from| (from, first));
                    if !each(number, from, to) {
                        return;
                    }
                    number += 1;
                }
            }
        }
        // Nothing follows the last sentinel. Every sentinel counts as free.
        if open.is_some() {
            each(number, 0, 0);
        }
    }
}

/// A region whose edges are asked for at several places.
pub(super) struct Ranks<'a, I: Index, const P: usize> {
    region: &'a Region<I, P>,
    /// Where words have 8 bytes: those that are candidate pointers.
    words: u128,
}

impl<'a, I: Index, const P: usize> Ranks<'a, I, P> {
    #[inline(always)]
    pub(super) fn new(region: &'a Region<I, P>) -> Self {
        let part = |i: usize| u128::from(region.pointers(i)) << (64 * i);
        Ranks { region, words: if P == 2 { part(0) | part(1) } else { 0 } }
    }

    /// Returns whether the region has no pointers. Where words have 4 bytes, it does not tell.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        P == 2 && self.words == 0
    }

    /// Returns the first edge of the block whose chunk begins at a granule of the region: see `blocks::index::edges_of`.
    #[inline(always)]
    pub(super) fn edge_of(&self, granule: usize) -> usize {
        let before = match P {
            // Nothing is masked twice: a chunk's size word holds no pointer.
            2 => (self.words & ((2 << (granule * P)) - 1)).count_ones() as usize,
            _ => self.region.rank(granule * P + 1),
        };
        self.region.edge.get() + before
    }
}

/// Returns whether a pointer to word number `word` points to the first byte of the block at `granule`. A pointer into a block with a
/// run of its own counts as one: the numbering does not tell.
#[inline(always)]
pub fn is_start<const P: usize>(word: usize, granule: usize) -> bool {
    word - granule * P <= P
}
