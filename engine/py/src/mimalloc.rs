use std::sync::Arc;

use dmods_engine::allocators::mimalloc;
use pyo3::prelude::*;

use crate::address::{plain, Address, Ranges};
use crate::image::Image;
use crate::slots::Slots;
use crate::watch::watched;

/// The pages of one mimalloc. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Mimalloc {
    inner: mimalloc::Heap,
    blocks: Arc<dmods_engine::blocks::slots::Slots>,
}

#[pymethods]
impl Mimalloc {
    #[getter]
    fn shape(&self) -> &'static str {
        self.inner.shape.name
    }

    #[getter]
    fn coded(&self) -> bool {
        self.inner.shape.is_coded()
    }

    #[getter]
    fn segmented(&self) -> bool {
        self.inner.shape.in_segments()
    }

    #[getter]
    fn slots(&self) -> Slots {
        Slots { inner: self.blocks.clone() }
    }

    #[getter]
    fn owned(&self) -> Vec<(u64, u64)> {
        self.inner.owned.clone()
    }

    #[getter]
    fn own(&self) -> Vec<u64> {
        self.inner.own_blocks()
    }

    #[getter]
    fn regions(&self) -> Vec<(u64, u64, u64)> {
        self.inner.regions.clone()
    }

    fn free_memory(&self) -> Vec<(u64, u64)> {
        self.inner.free_memory()
    }

    #[getter]
    fn faults(&self) -> Vec<(&'static str, u64)> {
        self.inner.faults.iter().map(|&(fault, at)| (fault.name(), at)).collect()
    }

    #[getter]
    fn fault_count(&self) -> usize {
        self.inner.fault_count
    }

    #[getter]
    fn changing(&self) -> usize {
        self.inner.changing
    }

    #[getter]
    fn no_delayed(&self) -> bool {
        self.inner.no_delayed
    }

    #[getter]
    fn absent(&self) -> usize {
        self.inner.absent
    }

    #[getter]
    fn map(&self) -> u64 {
        self.inner.map
    }

    fn page_at(&self, address: Address) -> Option<(u64, u64, u64, u32, u32, u32, u64)> {
        let page = self.inner.page_at(address.0)?;
        Some((page.address, page.start, page.block, page.capacity, page.reserved, page.used, page.thread))
    }

    fn list_of(&self, image: &Image, address: Address) -> Option<usize> {
        self.inner.page_at(address.0)?.list_of(&image.inner, address.0)
    }

    fn counts(&self) -> (usize, usize, u64, u64, u64, u64, u64) {
        let pages = &self.inner.pages;
        let sum = |list: usize| pages.iter().map(|page| u64::from(page.counts[list])).sum();
        let unmade = pages.iter().map(|page| page.end() - page.made()).fold(0, u64::saturating_add);
        let abandoned = pages.iter().filter(|page| page.thread == 0).count();
        (pages.len(), abandoned, sum(0), sum(1), sum(2), sum(3), unmade)
    }
}

#[pyfunction]
#[pyo3(signature = (image, data, memory, mapped, progress=None))]
pub fn find_mimallocs(
    py: Python<'_>,
    image: &Image,
    data: Ranges,
    memory: Ranges,
    mapped: Ranges,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<(Vec<Mimalloc>, Vec<String>)> {
    let (image, data) = (image.inner.clone(), plain(data));
    let (memory, mapped) = (plain(memory), plain(mapped));
    watched(py, progress.as_ref(), |control| {
        let (heaps, refused) = mimalloc::find(&image, &data, &memory, &mapped, control);
        let made = heaps.into_iter().map(|heap| Mimalloc { blocks: Arc::new(heap.slots(&image)), inner: heap });
        Ok((made.collect(), refused))
    })
}
