use std::sync::Arc;

use dmods_engine::allocators::jemalloc;
use dmods_engine::Control;
use pyo3::prelude::*;

use crate::address::{plain, Address, Ranges};
use crate::image::Image;
use crate::watch::watched;

/// The attributes of a `dmods.jemalloc.layouts.Layout` that the engine reads.
#[derive(FromPyObject)]
pub struct Layout {
    page: u32,
    levels: Vec<u32>,
    entry: u64,
    pointer: u64,
    leaf_szind: (u32, u32),
    leaf_slab: (u32, u32),
    leaf_state: (u32, u32),
    alignment: u64,
    arena: (u32, u32),
    slab: (u32, u32),
    state: (u32, u32),
    szind: (u32, u32),
    nfree: (u32, u32),
    sizes: Vec<u64>,
    bins: usize,
}

impl From<Layout> for jemalloc::Layout {
    fn from(l: Layout) -> Self {
        jemalloc::Layout {
            page: l.page,
            levels: l.levels,
            entry: l.entry,
            pointer: l.pointer,
            leaf_szind: l.leaf_szind,
            leaf_slab: l.leaf_slab,
            leaf_state: l.leaf_state,
            alignment: l.alignment,
            arena: l.arena,
            slab: l.slab,
            state: l.state,
            szind: l.szind,
            nfree: l.nfree,
            sizes: l.sizes,
            bins: l.bins,
        }
    }
}

/// The extents of one jemalloc. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Extents {
    pub(crate) inner: Arc<jemalloc::Extents>,
}

type Row = (u64, u64, u64, u16, u8, Option<u16>, bool);

fn row(extent: &jemalloc::Extent) -> Row {
    let class = extent.in_use().then_some(extent.szind);
    (extent.edata, extent.address, extent.size, extent.arena, extent.state, class, extent.slab)
}

#[pymethods]
impl Extents {
    #[new]
    #[pyo3(signature = (image, layout, root, most=usize::MAX, progress=None))]
    fn new(
        py: Python<'_>,
        image: &Image,
        layout: Layout,
        root: Address,
        most: usize,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (memory, layout) = (image.inner.clone(), layout.into());
        let inner =
            watched(py, progress.as_ref(), |control| jemalloc::collect(&memory, &layout, root.0, most, control))?;
        Ok(Extents { inner: Arc::new(inner) })
    }

    fn __len__(&self) -> usize {
        self.inner.all.len()
    }

    #[getter]
    fn entries(&self) -> u64 {
        self.inner.entries
    }

    #[getter]
    fn fault_count(&self) -> u64 {
        self.inner.fault_count
    }

    #[getter]
    fn faults(&self) -> Vec<(&'static str, u64, u64)> {
        self.inner.faults.iter().map(|&(fault, what, at)| (fault.name(), what, at)).collect()
    }

    fn at(&self, address: Address) -> Option<Row> {
        self.inner.at(address.0).map(row)
    }

    fn following(&self, start: Address, most: usize) -> Vec<Row> {
        let first = self.inner.all.partition_point(|extent| extent.start < start.0);
        self.inner.all[first..].iter().take(most).map(row).collect()
    }

    fn classes(&self) -> Vec<(u16, bool, u16, u64, u64, u64, u64)> {
        let sums = self.inner.classes();
        sums.iter().map(|(&(a, slab, i), s)| (a, slab, i, s.extents, s.bytes, s.slots, s.live)).collect()
    }

    fn states(&self) -> Vec<(u16, u8, u64, u64)> {
        self.inner.states().iter().map(|(&(a, state), s)| (a, state, s.extents, s.bytes)).collect()
    }

    fn ranges(&self) -> Vec<(u64, u64)> {
        self.inner.ranges()
    }

    fn metadata(&self) -> Vec<u64> {
        self.inner.metadata()
    }
}

#[pyfunction]
pub fn find_radix_trees(py: Python<'_>, image: &Image, ranges: Ranges, layout: Layout) -> Vec<(u64, u64)> {
    let (ranges, layout) = (plain(ranges), layout.into());
    py.detach(|| jemalloc::find(&image.inner, &ranges, &layout, &Control::default()))
}
