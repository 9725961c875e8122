//! The third stage of a heap: which blocks the roots lead to, and which have leaked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use dmods_engine::blocks::marking::Marked;
use dmods_engine::blocks::model::Heap;
use dmods_engine::graph::owned_heap::{find_owners, path};
use dmods_engine::graph::paths::Origin;
use dmods_engine::graph::roots::Named;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::address::{plain, Address, Ranges};
use crate::blocks::Blocks;
use crate::heap_rows::{state, Block, Group};
use crate::owner_rows::{areas, homes_of, values, AreaRow, HomeRow, Path, Value};
use crate::owners::Owners;
use crate::python::PythonNames;
use crate::touched::Untouched;
use crate::watch::{watched, watched_over};

/// (usable size, live blocks, free blocks, leaked blocks, the allocator's own).
type SizeRow = (u64, u64, u64, u64, u64);
/// Bytes by state, and (address, bytes) of blocks.
type UntouchedRows = ([u64; 5], Vec<(u64, u64)>);

/// A marked heap. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Marks {
    blocks: Arc<Blocks>,
    marked: Marked,
    /// Others went on from these.
    is_spent: AtomicBool,
}

impl Marks {
    /// Makes the marks of a heap that is marked.
    pub fn new(blocks: Arc<Blocks>, marked: Marked) -> Marks {
        Marks { blocks, marked, is_spent: AtomicBool::new(false) }
    }

    /// Returns what is marked. Raises RuntimeError if further blocks have been marked since.
    pub fn blocks(&self) -> PyResult<&Arc<Blocks>> {
        match self.is_spent.load(Ordering::Relaxed) {
            true => Err(PyRuntimeError::new_err("further blocks are marked: ask those marks")),
            false => Ok(&self.blocks),
        }
    }

    /// Returns the tables.
    pub fn heap(&self) -> PyResult<MutexGuard<'_, Box<dyn Heap>>> {
        Ok(self.blocks()?.lock())
    }

    /// Returns whether both are of the same heap.
    pub fn is_of(&self, other: &Marks) -> bool {
        Arc::ptr_eq(&self.blocks, &other.blocks)
    }
}

#[pymethods]
impl Marks {
    #[getter]
    fn candidates(&self) -> u64 {
        self.marked.candidates
    }

    #[getter]
    fn reached(&self) -> u64 {
        self.marked.reached
    }

    #[getter]
    fn by_vectors(&self) -> Vec<(u64, u64)> {
        self.marked.by_vectors.clone()
    }

    #[getter]
    fn by_ends(&self) -> Vec<u64> {
        self.marked.by_ends.clone()
    }

    #[getter]
    fn beside_ends(&self) -> Vec<u64> {
        self.marked.beside_ends.clone()
    }

    #[getter]
    fn totals(&self) -> (u64, u64, u64, u64) {
        let totals = &self.marked.totals;
        (totals.direct_count, totals.direct_bytes, totals.indirect_count, totals.indirect_bytes)
    }

    #[pyo3(signature = (values, progress=None))]
    fn more(&self, py: Python<'_>, values: Vec<u64>, progress: Option<Bound<'_, PyAny>>) -> PyResult<Marks> {
        let blocks = self.blocks()?;
        self.is_spent.store(true, Ordering::Relaxed);
        let more = watched_over(py, blocks.bytes, progress.as_ref(), |control| {
            blocks.lock().mark_more(&blocks.image, &values, control)
        });
        if more.is_err() {
            blocks.is_marked.store(false, Ordering::Relaxed);
        }
        let more = more?;
        let (candidates, reached) = (self.marked.candidates + more.candidates, self.marked.reached + more.reached);
        let marked = Marked { candidates, reached, totals: more.totals, ..self.marked.clone() };
        Ok(Marks::new(blocks.clone(), marked))
    }

    #[pyo3(signature = (ranges, values, barrier, asked, progress=None))]
    fn reached_without(
        &self,
        py: Python<'_>,
        ranges: Ranges,
        values: Vec<u64>,
        barrier: Address,
        asked: Vec<u64>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Vec<bool>> {
        let (blocks, ranges) = (self.blocks()?, plain(ranges));
        watched(py, progress.as_ref(), |control| {
            blocks.lock().reached_without(&blocks.image, &ranges, &values, barrier.0, &asked, control)
        })
    }

    fn groups(&self, py: Python<'_>) -> PyResult<Vec<Group>> {
        let blocks = self.blocks()?;
        Ok(py.detach(|| blocks.lock().groups().iter().map(|group| Group::new(group, None)).collect()))
    }

    #[pyo3(name = "blocks")]
    fn listed(&self, py: Python<'_>, states: Vec<u8>, start: Address, most: usize) -> PyResult<Vec<Block>> {
        let (blocks, states) = (self.blocks()?, states.into_iter().map(state).collect::<PyResult<Vec<_>>>()?);
        Ok(py.detach(|| {
            let heap = blocks.lock();
            let found = heap.blocks(&states, start.0, most).into_iter();
            found.map(|found| Block::new(&heap.run(found.0.run), found)).collect()
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
        let (blocks, states) = (self.blocks()?, states.into_iter().map(state).collect::<PyResult<Vec<_>>>()?);
        Ok(py.detach(|| blocks.lock().addresses(&states, start.0, end.0, most)))
    }

    fn find(&self, address: Address) -> PyResult<Option<Block>> {
        let heap = self.heap()?;
        Ok(heap.find(address.0).map(|found| Block::new(&heap.run(found.0.run), found)))
    }

    fn untouched(&self, py: Python<'_>, memory: &Untouched, most: usize) -> PyResult<UntouchedRows> {
        let blocks = self.blocks()?;
        Ok(py.detach(|| memory.inner.in_blocks(&**blocks.lock(), most)))
    }

    #[pyo3(signature = (arena=None))]
    fn sizes(&self, py: Python<'_>, arena: Option<u32>) -> PyResult<Vec<SizeRow>> {
        let blocks = self.blocks()?;
        let sizes = py.detach(|| blocks.lock().sizes(arena));
        Ok(sizes.iter().map(|c| (c.size, c.live, c.free, c.leaked, c.own)).collect())
    }

    #[pyo3(signature = (ranges, named, single, homes, leaves, all_edges=false, progress=None, parts=Vec::new(), selves=Vec::new(), names=None))]
    #[allow(clippy::too_many_arguments)]
    fn find_owners(
        &self,
        py: Python<'_>,
        ranges: Ranges,
        named: Vec<AreaRow>,
        single: Vec<Value>,
        homes: Vec<HomeRow>,
        mut leaves: Vec<u64>,
        all_edges: bool,
        progress: Option<Bound<'_, PyAny>>,
        parts: Vec<AreaRow>,
        selves: Vec<Value>,
        names: Option<PyRef<'_, PythonNames>>,
    ) -> PyResult<Owners> {
        let (parts, selves) = (areas(parts)?, values(selves));
        let names = names.map(|one| (one.inner.clone(), one.blocks.clone()));
        let (ranges, named, single, homes) = (plain(ranges), areas(named)?, values(single), homes_of(homes));
        leaves.sort_unstable();
        let blocks = self.blocks()?;
        let found = watched(py, progress.as_ref(), |control| {
            let (homes, leaves) = (&homes[..], &leaves[..]);
            let (borrowed, proven) = names.as_ref().map_or((&[][..], &[][..]), |one| (&one.0.borrowed, &one.1));
            let (parts, selves) = (&parts[..], &selves[..]);
            let (ranges, areas, values) = (&ranges[..], &named[..], &single[..]);
            let roots = Named { ranges, areas, values, homes, leaves, parts, selves, borrowed, proven, all_edges };
            find_owners(&**blocks.lock(), &blocks.image, roots, control)
        })?;
        Ok(Owners::new(blocks.clone(), found))
    }

    #[pyo3(signature = (ranges, named, single, root, address, progress=None, parts=Vec::new(), owners=None))]
    fn path<'py>(
        &self,
        py: Python<'py>,
        ranges: Ranges,
        named: Vec<AreaRow>,
        single: Vec<Value>,
        root: Option<u32>,
        address: Address,
        progress: Option<Bound<'_, PyAny>>,
        parts: Vec<AreaRow>,
        owners: Option<PyRef<'_, Owners>>,
    ) -> PyResult<Option<Path<'py>>> {
        let (ranges, named, single, parts) = (plain(ranges), areas(named)?, values(single), areas(parts)?);
        let (blocks, owners) = (self.blocks()?, owners.as_ref().map(|owners| &owners.inner));
        let found = watched(py, progress.as_ref(), |control| {
            let roots = Named { ranges: &ranges, areas: &named, values: &single, parts: &parts, ..Named::default() };
            path(&**blocks.lock(), owners, &blocks.image, roots, root, address.0, control)
        })?;
        Ok(found.map(|(origin, blocks)| {
            let bytes: Vec<u8> = blocks.iter().flat_map(|block| block.to_ne_bytes()).collect();
            let blocks = PyBytes::new(py, &bytes);
            match origin {
                Origin::Memory(at, root) => ("memory", at, root, blocks),
                Origin::Value(index, root) => ("value", index as u64, root, blocks),
                Origin::Leak => ("leak", 0, 0, blocks),
            }
        }))
    }
}
