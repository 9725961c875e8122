//! The first stage of a heap: its bytes are read, and free lists are followed.

use std::sync::{Arc, Mutex};

use dmods_engine::allocators::glibc::lists::{self, List};
use dmods_engine::blocks;
use dmods_engine::blocks::pass::Request;
use dmods_engine::blocks::runs::{Kind, Owner, Run};
use dmods_engine::blocks::tcache::TcacheShape;
use dmods_engine::python::unused::merged;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::address::{plain, Address, Ranges};
use crate::blocks::{problem_row, Blocks, ProblemRow};
use crate::heap_rows::Block;
use crate::image::Image;
use crate::index::Index;
use crate::jemalloc::Extents;
use crate::python::{CollectorLinks, UnusedWords};
use crate::slots::Slots;
use crate::watch::watched_over;

/// A heap whose blocks are read. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct HeapBuilder {
    /// None: the index is made.
    blocks: Mutex<Option<Arc<Blocks>>>,
}

fn kind(number: u8) -> PyResult<Kind> {
    match number {
        0 => Ok(Kind::Main),
        1 => Ok(Kind::Thread),
        2 => Ok(Kind::Mmapped),
        _ => Err(PyValueError::new_err("a run's kind is 0, 1 or 2")),
    }
}

impl HeapBuilder {
    fn blocks(&self) -> PyResult<Arc<Blocks>> {
        let blocks = self.blocks.lock().unwrap_or_else(|e| e.into_inner());
        blocks.clone().ok_or_else(|| PyRuntimeError::new_err("the index is made: ask it"))
    }
}

#[pymethods]
impl HeapBuilder {
    #[new]
    #[pyo3(signature = (image, word, runs, dead, watch, threads, progress=None, extents=Vec::new(), slots=Vec::new(), links=Vec::new(), unused=Vec::new()))]
    fn new(
        py: Python<'_>,
        image: &Image,
        word: u64,
        runs: Vec<(Address, Address, u8, u32, u64, u32)>,
        dead: Ranges,
        watch: Vec<(u64, usize, usize)>,
        threads: usize,
        progress: Option<Bound<'_, PyAny>>,
        extents: Vec<(PyRef<'_, Extents>, u32, u32)>,
        slots: Vec<(PyRef<'_, Slots>, u32, u32)>,
        links: Vec<PyRef<'_, CollectorLinks>>,
        unused: Vec<PyRef<'_, UnusedWords>>,
    ) -> PyResult<Self> {
        let mut runs = runs
            .into_iter()
            .map(|(start, end, number, arena, usable, allocator)| {
                Ok(Run::of_chunks(start.0, end.0, kind(number)?, Owner::new(allocator, arena), usable))
            })
            .collect::<PyResult<Vec<_>>>()?;
        let mut maps = Vec::new();
        for (extents, first_arena, allocator) in &extents {
            runs.extend(extents.inner.runs(Owner::new(*allocator, *first_arena), maps.len() as u32));
            maps.extend_from_slice(&extents.inner.maps);
        }
        for (slots, arena, allocator) in &slots {
            runs.extend(slots.inner.runs(Owner::new(*allocator, *arena), maps.len() as u32));
            maps.extend_from_slice(&slots.inner.maps);
        }
        let mut dead = plain(dead);
        dead.extend(links.iter().flat_map(|one| one.inner.ranges()));
        dead.extend(unused.iter().flat_map(|one| one.ranges.iter().copied()));
        let dead = merged(dead);
        let watch: Vec<TcacheShape> =
            watch.into_iter().map(|(chunk, bins, width)| TcacheShape { chunk, bins, width }).collect();
        let memory = image.inner.clone();
        let bytes = runs.iter().fold(0, |sum: u64, run| sum.saturating_add(run.end.saturating_sub(run.start)));
        let inner = watched_over(py, bytes, progress.as_ref(), |control| {
            let threads = threads.max(1);
            let request = Request { image: &memory, runs, dead: &dead, watch: &watch, maps: &maps, threads };
            blocks::build(word, request, control)
        })?;
        Ok(HeapBuilder { blocks: Mutex::new(Some(Blocks::new(inner, memory, bytes))) })
    }

    fn reports<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.blocks()?.reports(py)
    }

    fn find(&self, address: Address) -> PyResult<Option<Block>> {
        let blocks = self.blocks()?;
        let heap = blocks.lock();
        Ok(heap.find(address.0).map(|found| Block::new(&heap.run(found.0.run), found)))
    }

    fn follow(
        &self,
        py: Python<'_>,
        head: Address,
        to_user: bool,
        protected: bool,
        least: u64,
        most: u64,
    ) -> PyResult<(u64, u64, ProblemRow)> {
        let (blocks, list) = (self.blocks()?, List { head: head.0, to_user, protected, least, most });
        let found = py.detach(|| lists::follow(&mut **blocks.lock(), &blocks.image, list, true, false));
        Ok((found.count, found.bytes, problem_row(found.problem)))
    }

    #[pyo3(signature = (to_user, protected, least, most, key))]
    fn release_orphans(
        &self,
        py: Python<'_>,
        to_user: bool,
        protected: bool,
        least: u64,
        most: u64,
        key: Option<u64>,
    ) -> PyResult<u64> {
        let (blocks, list) = (self.blocks()?, List { head: 0, to_user, protected, least, most });
        Ok(py.detach(|| lists::release_orphans(&mut **blocks.lock(), &blocks.image, list, key)))
    }

    fn release(&self, py: Python<'_>, addresses: Vec<u64>) -> PyResult<Vec<u64>> {
        let blocks = self.blocks()?;
        Ok(py.detach(|| blocks.lock().release(&addresses)))
    }

    fn own(&self, py: Python<'_>, values: Vec<u64>, closure: bool) -> PyResult<u64> {
        let blocks = self.blocks()?;
        watched_over(py, blocks.bytes, None, |control| blocks.lock().own(&values, closure, control))
    }

    fn index(&self) -> PyResult<Index> {
        let blocks = self.blocks()?;
        self.blocks.lock().unwrap_or_else(|e| e.into_inner()).take();
        Ok(Index::new(blocks))
    }
}
