//! The blocks that all stages of a heap look at, and the rows that several of them give.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};

use dmods_engine::allocators::glibc::lists::Problem;
use dmods_engine::blocks::model::Heap;
use dmods_engine::blocks::runs::Kind;
use dmods_engine::image::Image;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::heap_rows::report_dict;

/// The tables of a heap. Each stage shows what can be asked at that stage.
pub struct Blocks {
    heap: Mutex<Box<dyn Heap>>,
    /// Whether the index is marked. A marking that is stopped leaves none.
    pub is_marked: AtomicBool,
    /// The memory that it was read from.
    pub image: Arc<Image>,
    /// How many bytes the runs have.
    pub bytes: u64,
}

/// (start, end, kind, arena number, usable).
pub type RunRow = (u64, u64, u8, u32, u64);
/// What is wrong with a free list, and where.
pub type ProblemRow = Option<(&'static str, u64)>;

impl Blocks {
    /// Keeps a heap with its memory.
    pub fn new(heap: Box<dyn Heap>, image: Arc<Image>, bytes: u64) -> Arc<Blocks> {
        Arc::new(Blocks { heap: Mutex::new(heap), is_marked: AtomicBool::new(false), image, bytes })
    }

    /// Returns the tables.
    pub fn lock(&self) -> MutexGuard<'_, Box<dyn Heap>> {
        // A panic while the lock was held would be our defect. The tables can still be read.
        self.heap.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Returns the runs of chunks.
    pub fn runs(&self) -> Vec<RunRow> {
        let number = |kind| match kind {
            Kind::Main => 0,
            Kind::Thread => 1,
            _ => 2,
        };
        let heap = self.lock();
        heap.found().chunk_runs.iter().map(|r| (r.start, r.end, number(r.kind), r.owner.arena, r.usable)).collect()
    }

    /// Returns the report on each of them.
    pub fn reports<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.lock().found().reports.iter().map(|report| report_dict(py, report)).collect()
    }
}

/// Returns what is wrong with a free list, and where.
pub fn problem_row(problem: Option<(Problem, u64)>) -> ProblemRow {
    problem.map(|(problem, at)| {
        let name = match problem {
            Problem::NotAChunk => "not a chunk",
            Problem::WrongSize => "a chunk of another size",
            Problem::AlreadyFree => "free already (a cycle, or on two lists)",
            Problem::Missing => "not in the dump",
        };
        (name, at)
    })
}
