//! A part of a run.

use crate::blocks::runs::REGION_BYTES;
use crate::blocks::word_map::PlacedRun;

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Where it begins: a multiple of a region's bytes from the start of the run.
    pub(super) start: u64,
    /// Where it ends.
    pub(super) end: u64,
    /// The first chunk that begins in it.
    pub(super) chunk: u64,
    /// The first chunk of the next part, if there is one.
    pub(super) next: Option<u64>,
    /// The number of its first edge.
    pub(super) edge: usize,
}

impl Part {
    /// The whole run.
    pub(super) fn whole(placed: &PlacedRun) -> Part {
        let run = placed.run;
        Part { start: run.start, end: run.end, chunk: run.start, next: None, edge: placed.edge }
    }

    /// Returns how many regions of the run come before it.
    pub(super) fn regions_before(&self, placed: &PlacedRun) -> usize {
        ((self.start - placed.run.start) / REGION_BYTES) as usize
    }
}
