//! The second stage of a heap: all blocks, of which some are free. Nothing is known of leaks.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use dmods_engine::allocators::glibc::bins::{self, Bin};
use dmods_engine::allocators::glibc::lists::{self, List};
use dmods_engine::blocks::marking::Roots;
use dmods_engine::blocks::model::{State, Stated};
use dmods_engine::blocks::odd::Kinds;
use dmods_engine::blocks::pointers::{pointers, Asked};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::address::{self, plain, Address, Ranges};
use crate::blocks::{problem_row, Blocks, ProblemRow, RunRow};
use crate::heap_rows::{bin_fault, state, Block};
use crate::marks::Marks;
use crate::watch::{bytes_in, watched, watched_over};

/// The blocks of a heap. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Index {
    blocks: Arc<Blocks>,
}

type Bins = (Vec<(u64, u64)>, u64, Vec<(usize, &'static str, u64, u64)>);

impl Index {
    /// Makes the index of blocks that are read.
    pub fn new(blocks: Arc<Blocks>) -> Index {
        Index { blocks }
    }
}

/// Forgets what marking found: a block in use is in use.
fn unmarked((block, state, ..): Stated) -> Stated {
    let state = match state {
        State::LeakedDirectly | State::LeakedIndirectly => State::Live,
        other => other,
    };
    (block, state, 0, 0)
}

/// Returns the states after marking of blocks that have these states here.
fn states(numbers: Vec<u8>) -> PyResult<Vec<State>> {
    let mut states = numbers.into_iter().map(state).collect::<PyResult<Vec<_>>>()?;
    states.retain(|state| !matches!(state, State::LeakedDirectly | State::LeakedIndirectly));
    if states.contains(&State::Live) {
        states.extend([State::LeakedDirectly, State::LeakedIndirectly]);
    }
    Ok(states)
}

#[pymethods]
impl Index {
    #[getter]
    fn dropped(&self) -> usize {
        self.blocks.lock().found().dropped.len()
    }

    #[getter]
    fn missing(&self) -> Vec<(u64, u64)> {
        self.blocks.lock().found().missing.clone()
    }

    fn runs(&self) -> Vec<RunRow> {
        self.blocks.runs()
    }

    fn follow(
        &self,
        py: Python<'_>,
        head: Address,
        to_user: bool,
        protected: bool,
        least: u64,
        most: u64,
    ) -> (ProblemRow, Vec<u64>) {
        let list = List { head: head.0, to_user, protected, least, most };
        let found = py.detach(|| lists::follow(&mut **self.blocks.lock(), &self.blocks.image, list, false, true));
        (problem_row(found.problem), found.blocks)
    }

    #[pyo3(signature = (bins, progress=None))]
    fn bins(
        &self,
        py: Python<'_>,
        bins: Vec<(u64, u32, u64, u64, bool)>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Bins> {
        let bins: Vec<Bin> = bins
            .into_iter()
            .map(|(head, arena, least, most, sorted)| Bin { head, arena, least, most, sorted })
            .collect();
        watched_over(py, self.blocks.bytes, progress.as_ref(), |control| {
            let followed = bins::follow(&**self.blocks.lock(), &self.blocks.image, &bins, control)?;
            Ok((
                followed.held.iter().map(|h| (h.count, h.bytes)).collect(),
                followed.problem_count,
                followed.problems.iter().map(|p| (p.bin, bin_fault(p.fault), p.at, p.value)).collect(),
            ))
        })
    }

    #[pyo3(signature = (ranges, dead, wanted, most, progress=None))]
    fn pointers(
        &self,
        py: Python<'_>,
        ranges: Ranges,
        dead: Ranges,
        wanted: Ranges,
        most: usize,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Vec<Vec<u64>>> {
        let (ranges, dead, wanted) = (plain(ranges), plain(dead), address::wanted(wanted)?);
        watched(py, progress.as_ref(), |control| {
            let asked = Asked { ranges: &ranges, dead: &dead, wanted: &wanted, most };
            pointers(&**self.blocks.lock(), &self.blocks.image, asked, control)
        })
    }

    fn find(&self, address: Address) -> Option<Block> {
        let heap = self.blocks.lock();
        let found = heap.find(address.0)?;
        Some(Block::new(&heap.run(found.0.run), unmarked(found)))
    }

    fn blocks(&self, py: Python<'_>, states: Vec<u8>, start: Address, most: usize) -> PyResult<Vec<Block>> {
        let states = self::states(states)?;
        Ok(py.detach(|| {
            let heap = self.blocks.lock();
            let found = heap.blocks(&states, start.0, most).into_iter();
            found.map(|found| Block::new(&heap.run(found.0.run), unmarked(found))).collect()
        }))
    }

    fn addresses(
        &self,
        py: Python<'_>,
        states: Vec<u8>,
        start: Address,
        end: Address,
        most: usize,
    ) -> PyResult<Vec<u64>> {
        let states = self::states(states)?;
        Ok(py.detach(|| self.blocks.lock().addresses(&states, start.0, end.0, most)))
    }

    #[pyo3(signature = (arena=None))]
    fn sizes(&self, py: Python<'_>, arena: Option<u32>) -> Vec<(u64, u64, u64, u64)> {
        let sizes = py.detach(|| self.blocks.lock().sizes(arena));
        sizes.iter().map(|c| (c.size, c.live + c.leaked, c.free, c.own)).collect()
    }

    #[pyo3(signature = (ranges, values, vectors=Vec::new(), unaligned=false, tagged=false, dead=Vec::new(), progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn mark(
        &self,
        py: Python<'_>,
        ranges: Ranges,
        values: Vec<u64>,
        vectors: Vec<u64>,
        unaligned: bool,
        tagged: bool,
        dead: Ranges,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Marks> {
        if self.blocks.is_marked.swap(true, Ordering::Relaxed) {
            return Err(PyRuntimeError::new_err("an index is marked once"));
        }
        let (ranges, mut dead) = (plain(ranges), plain(dead));
        dead.sort_unstable();
        let odd = (unaligned || tagged).then_some(Kinds { unaligned, tagged, dead });
        let bytes = self.blocks.bytes.saturating_add(bytes_in(&ranges));
        let marked = watched_over(py, bytes, progress.as_ref(), |control| {
            // With pointers at every byte, an end of a block is no weaker than any other.
            let (ranges, values, vectors) = (&ranges[..], &values[..], &vectors[..]);
            let roots = Roots { ranges, values, vectors, odd, ends_last: !unaligned };
            self.blocks.lock().mark(&self.blocks.image, roots, control)
        });
        if marked.is_err() {
            self.blocks.is_marked.store(false, Ordering::Relaxed);
        }
        Ok(Marks::new(self.blocks.clone(), marked?))
    }
}
