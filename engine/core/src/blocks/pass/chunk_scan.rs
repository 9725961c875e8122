//! The state of the walk and scan of one run of chunks.

use super::report::RunReport;
use crate::blocks::index::Region;
use crate::blocks::number::Index;
use crate::blocks::runs::{GRANULE, REGION};
use crate::blocks::word_map::{PlacedRun, WordMap};
use crate::image::Image;

/// How many headers are tried in a run, in all, to find chunks that a wrong size has skipped. A crafted heap must not
/// cost minutes.
pub(super) const SEARCH_BACK: u64 = 1 << 26;

/// The walk and scan of one run.
pub(super) struct ChunkScan<'a, I: Index, const P: usize> {
    pub(super) image: &'a Image,
    pub(super) word_map: &'a WordMap<P>,
    pub(super) placed: PlacedRun,
    pub(super) regions: &'a mut [Region<I, P>],
    pub(super) free: &'a mut [u64],
    pub(super) edges: &'a mut [I],
    pub(super) report: &'a mut RunReport,
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
        regions: &'a mut [Region<I, P>],
        free: &'a mut [u64],
        edges: &'a mut [I],
        report: &'a mut RunReport,
    ) -> Self {
        let placed = word_map.runs[index];
        ChunkScan {
            image,
            word_map,
            placed,
            regions,
            free,
            edges,
            report,
            count: 0,
            at: placed.run.start,
            before: 0,
            before2: 0,
            done: false,
            went_back: false,
            budget: SEARCH_BACK,
            before_is_chunk: false,
            hole_end: 0,
        }
    }

    pub(super) fn granule(&self, chunk: u64) -> usize {
        ((chunk - self.placed.run.start) / GRANULE) as usize
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
