//! What slab objects keep alive alone. See `_engine.pyi`.

use dmods_engine::kernel::slabs::retained::{self, Kept, Retained};
use dmods_engine::kernel::slabs::table::{Node, LARGE};
use pyo3::prelude::*;

use crate::address::Address;
use crate::slabs::Slabs;
use crate::slabs_rows::cache_of;

/// An object with what it keeps alive. See `_engine.pyi`.
#[pyclass(frozen, get_all, module = "dmods._engine")]
pub struct KeptObject {
    address: u64,
    size: u64,
    cache: Option<u32>,
    count: u32,
    bytes: u64,
    leaked: bool,
}

/// What the objects of a cache keep alive. See `_engine.pyi`.
#[pyclass(frozen, get_all, module = "dmods._engine")]
pub struct CacheKeeps {
    cache: Option<u32>,
    held: u64,
    leaked: u64,
}

/// Objects of one cache. See `_engine.pyi`.
#[pyclass(frozen, get_all, module = "dmods._engine")]
pub struct CacheSum {
    cache: Option<u32>,
    count: u64,
    bytes: u64,
}

/// The dominator tree of a kernel's slab objects. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct SlabsRetained {
    slabs: Py<Slabs>,
    inner: Retained,
    /// Bytes read.
    #[pyo3(get)]
    read: u64,
    /// Pages that the dump lacks: of slabs, and others.
    #[pyo3(get)]
    missing: (u64, u64),
}

impl SlabsRetained {
    fn row(&self, kept: &Kept) -> KeptObject {
        let (address, size, cache) = self.slabs.get().table.describe(kept.node);
        let (count, bytes) = (kept.count, kept.bytes);
        KeptObject { address, size, cache: cache_of(cache), count, bytes, leaked: self.inner.is_leaked(kept.node) }
    }

    fn rows(&self, found: &[Kept]) -> Vec<KeptObject> {
        found.iter().map(|kept| self.row(kept)).collect()
    }

    fn node(&self, address: Address) -> Option<Node> {
        let table = &self.slabs.get().table;
        table.node(table.physical(address.0))
    }
}

#[pymethods]
impl SlabsRetained {
    #[new]
    #[pyo3(signature = (slabs, registers, unsure = false, progress = None))]
    fn new(
        py: Python<'_>,
        slabs: Py<Slabs>,
        registers: Vec<u64>,
        unsure: bool,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<SlabsRetained> {
        let of = slabs.get();
        let (inner, read, [of_slabs, others]) = of.work(py, progress, |space, control| {
            let (states, pointers, leaks) = of.searched(&registers, unsure, space, control)?;
            let inner = retained::find(&of.table, &states, &pointers, &leaks, control)?;
            Ok((inner, pointers.bytes, pointers.missing))
        })?;
        Ok(SlabsRetained { slabs, inner, read, missing: (of_slabs, others) })
    }

    fn by_cache(&self, py: Python<'_>) -> PyResult<Vec<CacheKeeps>> {
        let of = self.slabs.get();
        let sums = of.work(py, None, |_, control| self.inner.by_cache(&of.table, control))?;
        let number = |index: usize| (index < of.table.caches.len()).then_some(index as u32);
        let row = |(index, (held, leaked))| CacheKeeps { cache: number(index), held, leaked };
        Ok(sums.into_iter().enumerate().map(row).collect())
    }

    fn largest(&self, py: Python<'_>, cache: Option<u32>, most: usize) -> Vec<KeptObject> {
        let table = &self.slabs.get().table;
        let found = py.detach(|| self.inner.largest(table, cache.unwrap_or(LARGE), most));
        self.rows(&found)
    }

    fn above(&self, address: Address, most: usize) -> Vec<KeptObject> {
        let found = self.node(address).map(|node| self.inner.above(node, most));
        self.rows(&found.unwrap_or_default())
    }

    fn below(&self, py: Python<'_>, address: Address, most: usize) -> Vec<KeptObject> {
        let found = self.node(address).map(|node| py.detach(|| self.inner.below(node, most)));
        self.rows(&found.unwrap_or_default())
    }

    fn caches_of(&self, py: Python<'_>, address: Address) -> Vec<CacheSum> {
        let table = &self.slabs.get().table;
        let found = self.node(address).map(|node| py.detach(|| self.inner.caches_of(table, node)));
        let row = |(cache, count, bytes)| CacheSum { cache: cache_of(cache), count, bytes };
        found.unwrap_or_default().into_iter().map(row).collect()
    }
}
