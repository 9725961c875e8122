//! The fourth stage of a heap: the dominator tree, and the roots that lead to each block.

use std::sync::Arc;

use dmods_engine::graph::leading::Held;
use dmods_engine::graph::owned_heap::OwnedHeap;
use dmods_engine::graph::owners;
use pyo3::prelude::*;

use crate::address::{plain, Address, Ranges};
use crate::blocks::Blocks;
use crate::owner_rows::{scope, KeptRow, Scope};
use crate::watch::watched;

/// The owners of the blocks of a heap. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Owners {
    pub(crate) blocks: Arc<Blocks>,
    pub(crate) inner: owners::Owners,
}

impl Owners {
    /// Keeps the owners with the heap that they were found in.
    pub fn new(blocks: Arc<Blocks>, inner: owners::Owners) -> Owners {
        Owners { blocks, inner }
    }
}

#[pymethods]
impl Owners {
    #[getter]
    fn set_aside(&self) -> u64 {
        self.inner.left_over
    }

    #[getter]
    fn many_roots(&self) -> Vec<u32> {
        self.inner.many.clone()
    }

    fn lines(&self, py: Python<'_>) -> Vec<(u32, Option<Vec<u32>>, u64, u64)> {
        let lines = py.detach(|| self.inner.lines());
        lines.into_iter().map(|line| (line.set, line.roots, line.count, line.bytes)).collect()
    }

    fn above(&self, address: Address, most: usize) -> Option<(Vec<KeptRow>, u32)> {
        let (found, set) = OwnedHeap::new(&**self.blocks.lock(), &self.inner).owners_above(address.0, most)?;
        Some((found.iter().map(|kept| (kept.address, kept.size, kept.count, kept.bytes)).collect(), set))
    }

    fn largest(&self, py: Python<'_>, within: Scope, most: usize) -> PyResult<Vec<KeptRow>> {
        let within = scope(within)?;
        let found = py.detach(|| OwnedHeap::new(&**self.blocks.lock(), &self.inner).largest(within, most));
        Ok(found.iter().map(|kept| (kept.address, kept.size, kept.count, kept.bytes)).collect())
    }

    fn addresses_in(&self, py: Python<'_>, within: Scope, start: Address, most: usize) -> PyResult<Vec<u64>> {
        let within = scope(within)?;
        Ok(py.detach(|| OwnedHeap::new(&**self.blocks.lock(), &self.inner).addresses_in(within, start.0, most)))
    }

    fn spread_in(&self, py: Python<'_>, within: Scope, start: Address, size: u64, most: usize) -> PyResult<Vec<u64>> {
        let within = scope(within)?;
        Ok(py.detach(|| OwnedHeap::new(&**self.blocks.lock(), &self.inner).spread(within, (start.0, size), most)))
    }

    fn held_by_words(&self, py: Python<'_>, address: Address, most: u64) -> Vec<(u64, KeptRow)> {
        let found = py.detach(|| {
            OwnedHeap::new(&**self.blocks.lock(), &self.inner).held_by_words(&self.blocks.image, address.0, most)
        });
        found.iter().map(|(at, kept)| (*at, (kept.address, kept.size, kept.count, kept.bytes))).collect()
    }

    fn led_to(
        &self,
        py: Python<'_>,
        by: Address,
        without: Vec<u64>,
        step: usize,
        sizes: Vec<u64>,
        words: u64,
    ) -> PyResult<Vec<(u64, u64)>> {
        let held = Held { by: by.0, without: &without, step, words };
        watched(py, None, |control| {
            OwnedHeap::new(&**self.blocks.lock(), &self.inner).led_to(&self.blocks.image, held, &sizes, control)
        })
    }

    #[pyo3(signature = (within, ranges, progress=None))]
    fn alike(
        &self,
        py: Python<'_>,
        within: Scope,
        ranges: Ranges,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Vec<(u64, u64, u64, u64)>> {
        let (within, ranges) = (scope(within)?, plain(ranges));
        watched(py, progress.as_ref(), |control| {
            let found = OwnedHeap::new(&**self.blocks.lock(), &self.inner).alike(
                &self.blocks.image,
                within,
                &ranges,
                control,
            )?;
            Ok(found.iter().map(|kind| (kind.first_word, kind.size, kind.count, kind.example)).collect())
        })
    }
}
