//! The request to the pass, and its report on each run.

use crate::blocks::runs::Run;
use crate::blocks::tcache::TcacheShape;
use crate::image::Image;

/// What is wrong with a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The size field is impossible: not a multiple of 16, below MINSIZE, or beyond the run.
    Size,
    /// The arena or mmapped bit contradicts the run.
    Flags,
    /// PREV_INUSE is clear but prev_size is not the size of the chunk before.
    PrevSize,
    /// The header is not in the dump.
    Missing,
    /// The size field is possible but leads nowhere. The chunks after it were found again at `resumed`.
    WrongSize,
}

/// One bad chunk.
#[derive(Clone, Copy, Debug)]
pub struct Anomaly {
    /// What is wrong.
    pub fault: Fault,
    /// The chunk whose header is bad.
    pub chunk: u64,
    /// What its size field (or prev_size, for `PrevSize`) holds.
    pub value: u64,
    /// The chunk before it: the likely culprit, which wrote beyond its end. 0 where no chunk comes before it.
    pub before: u64,
    /// Where chunks make sense again, or the run's end.
    pub resumed: u64,
}

/// The report on one run.
#[derive(Clone, Debug, Default)]
pub struct RunReport {
    /// The first anomalies.
    pub anomalies: Vec<Anomaly>,
    /// How many anomalies there are.
    pub anomaly_count: u64,
    /// Chunks, free ones too; and how many of them the arena holds free in bins.
    pub chunks: u64,
    /// How many chunks are free in bins.
    pub free_chunks: u64,
    /// The chunk bytes of those.
    pub free_bytes: u64,
    /// Parts of the run that are not in the dump.
    pub missing: Vec<(u64, u64)>,
    /// Memory between two stretches of chunks, from another caller of sbrk. It is not malloc's, so its pointers count as
    /// roots.
    pub gaps: Vec<(u64, u64)>,
    /// Stretches after damage where no chunk was recognised. Their pointers count as roots, so that no block is called
    /// leaked wrongly.
    pub lost: Vec<(u64, u64)>,
    /// Chunks that look like a tcache.
    pub watched: Vec<u64>,
    /// Where the last block ends.
    pub used_end: u64,
    pub(super) holes: Vec<u64>,
    /// How many candidate pointers were kept.
    pub(super) edges: usize,
    /// A part of a run: its chunks do not lead to where the next part begins.
    pub(super) strayed: bool,
}

/// What the pass over the bytes found besides the blocks.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The runs of chunks.
    pub chunk_runs: Vec<Run>,
    /// One for each of these.
    pub reports: Vec<RunReport>,
    /// Parts of slabs and extents that are not in the dump.
    pub missing: Vec<(u64, u64)>,
    /// Runs that were left out: they overlap another, or almost nothing of them is in the dump.
    pub dropped: Vec<Run>,
}

/// What the pass needs.
pub struct Request<'a> {
    /// The memory of the process.
    pub image: &'a Image,
    /// The runs.
    pub runs: Vec<Run>,
    /// Memory inside runs that is dead (a stack below its SP): its words are not pointers. Sorted.
    pub dead: &'a [(u64, u64)],
    /// Chunks to report (`RunReport::watched`).
    pub watch: &'a [TcacheShape],
    /// For slabs (`Run::map`): one bit for each block, set where the block is free.
    pub maps: &'a [u64],
    /// How many threads to use.
    pub threads: usize,
}
