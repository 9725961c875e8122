//! The state of the walk and scan of one run of chunks.

use super::part::Part;
use super::report::RunReport;
use super::share::Share;
use crate::blocks::index::Region;
use crate::blocks::number::Index;
use crate::blocks::runs::{GRANULE, REGION, REGION_BYTES};
use crate::blocks::word_map::{PlacedRun, WordMap};
use crate::image::Image;

/// How many headers are tried in a run, in all, to find chunks that a wrong size has skipped. A crafted heap must not
/// cost minutes.
pub(super) const SEARCH_BACK: u64 = 1 << 26;

/// The walk and scan of one run, or of a part of it.
pub(super) struct ChunkScan<'a, I: Index, const P: usize> {
    pub(super) image: &'a Image,
    pub(super) word_map: &'a WordMap<P>,
    pub(super) placed: PlacedRun,
    pub(super) regions: &'a mut [Region<I, P>],
    pub(super) free: &'a mut [u64],
    pub(super) edges: &'a mut [I],
    pub(super) report: &'a mut RunReport,
    /// The part of the run that is walked and scanned. The tables are those of the part.
    pub(super) part: Part,
    /// Edges written.
    pub(super) count: usize,
    /// The next chunk to look at, the one before it, and the one before that (0: none).
    pub(super) at: u64,
    pub(super) before: u64,
    pub(super) before2: u64,
    /// No more chunks follow.
    pub(super) done: bool,
    /// Chunks were found before `at`, so `Region::back` must be computed again.
    pub(super) went_back: bool,
    /// How many headers searches back may still try.
    pub(super) budget: u64,
    /// Whether the chunk at `before` can be free. A hole cannot.
    pub(super) before_is_chunk: bool,
    /// The file has a hole up to here.
    pub(super) hole_end: u64,
}

impl<'a, I: Index, const P: usize> ChunkScan<'a, I, P> {
    pub(super) const WORD: u64 = WordMap::<P>::WORD;

    pub(super) fn new(
        image: &'a Image,
        word_map: &'a WordMap<P>,
        index: usize,
        part: Part,
        share: Share<'a, I, P>,
        report: &'a mut RunReport,
    ) -> Self {
        let Share { regions, free, edges } = share;
        let placed = word_map.runs[index];
        ChunkScan {
            image,
            word_map,
            placed,
            regions,
            free,
            edges,
            report,
            part,
            count: 0,
            at: part.chunk,
            before: 0,
            before2: 0,
            done: false,
            went_back: false,
            budget: SEARCH_BACK,
            before_is_chunk: false,
            hole_end: 0,
        }
    }

    /// Gives the scan room for its edges. `first` is the number of the first one.
    pub(super) fn set_room(&mut self, first: usize, edges: &'a mut [I]) {
        self.part.edge = first;
        self.edges = edges;
    }

    /// Returns the room behind the edges that were kept, and the number of its first edge.
    pub(super) fn room_left(self) -> (usize, &'a mut [I]) {
        (self.part.edge + self.count, &mut self.edges[self.count..])
    }

    /// Returns the granule of a chunk, counted from the part's first.
    #[inline(always)]
    pub(super) fn granule(&self, chunk: u64) -> usize {
        ((chunk - self.part.start) / GRANULE) as usize
    }

    /// Returns the number of a region of the part.
    #[inline(always)]
    pub(super) fn number(&self, index: usize) -> usize {
        self.placed.region + ((self.part.start - self.placed.run.start) / REGION_BYTES) as usize + index
    }

    pub(super) fn set_start(&mut self, chunk: u64) {
        let granule = self.granule(chunk);
        self.regions[granule / REGION].start |= 1 << (granule % REGION);
    }

    pub(super) fn set_free(&mut self, chunk: u64) {
        let granule = self.granule(chunk);
        self.free[granule / REGION] |= 1 << (granule % REGION);
        self.regions[granule / REGION].mark(granule % REGION);
    }
}
