use std::sync::Arc;

use dmods_engine::allocators::musl::{self, Context, Group, Layout};
use dmods_engine::Control;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::address::{plain, Address, Ranges};
use crate::image::Image;
use crate::slots::Slots;
use crate::watch::watched;

/// (address of the context, secret, first area, last area)
type ContextRow = (u64, Address, Address, Address);

/// A group of slots. See `_engine.pyi`.
#[pyclass(frozen, get_all, module = "dmods._engine")]
pub struct MuslGroup {
    start: u64,
    end: u64,
    meta: u64,
    stride: u64,
    count: u32,
    size_class: u8,
    mapped: bool,
    freeable: bool,
    outermost: bool,
}

impl MuslGroup {
    fn new(group: &Group) -> MuslGroup {
        MuslGroup {
            start: group.start,
            end: group.end,
            meta: group.meta,
            stride: group.stride,
            count: group.count,
            size_class: group.class,
            mapped: group.mapped,
            freeable: group.freeable,
            outermost: group.is_outermost(),
        }
    }
}

/// All groups and blocks of one mallocng. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Mallocng {
    inner: musl::Walked,
    slots: Arc<dmods_engine::blocks::slots::Slots>,
}

fn layout(word: u64) -> PyResult<Layout> {
    if word != 4 && word != 8 {
        return Err(PyValueError::new_err("a word has 4 or 8 bytes"));
    }
    Ok(Layout { word })
}

#[pymethods]
impl Mallocng {
    #[new]
    #[pyo3(signature = (image, word, context, inside, progress=None))]
    fn new(
        py: Python<'_>,
        image: &Image,
        word: u64,
        context: ContextRow,
        inside: Ranges,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let layout = layout(word)?;
        let (memory, inside) = (image.inner.clone(), plain(inside));
        let context = Context { at: context.0, secret: context.1 .0, head: context.2 .0, tail: context.3 .0 };
        let inner = watched(py, progress.as_ref(), |control| musl::walk(&memory, &context, layout, &inside, control))?;
        let slots = Arc::new(inner.slots());
        Ok(Mallocng { inner, slots })
    }

    #[getter]
    fn slots(&self) -> Slots {
        Slots { inner: self.slots.clone() }
    }

    #[getter]
    fn groups(&self) -> usize {
        self.inner.groups.len()
    }

    #[getter]
    fn areas(&self) -> usize {
        self.inner.areas.len()
    }

    #[getter]
    fn listed(&self) -> bool {
        self.inner.listed
    }

    #[getter]
    fn missing(&self) -> (u64, u64) {
        (self.inner.missing_areas, self.inner.missing)
    }

    #[getter]
    fn between(&self) -> Vec<u64> {
        self.inner.between.clone()
    }

    #[getter]
    fn fault_count(&self) -> u64 {
        self.inner.fault_count
    }

    #[getter]
    fn faults(&self) -> Vec<(&'static str, u64, u64)> {
        self.inner.faults.iter().map(|&(fault, at, what)| (fault.name(), at, what)).collect()
    }

    fn owned(&self) -> Vec<(u64, u64)> {
        self.inner.owned()
    }

    fn at(&self, address: Address) -> Option<(MuslGroup, Option<u32>, bool)> {
        let group = self.inner.group_at(address.0)?;
        let slot = group.slot_of(address.0);
        Some((MuslGroup::new(group), slot, slot.is_some_and(|slot| group.in_use(slot))))
    }

    fn figures(&self) -> (u64, u64, u64, u64, u64) {
        let figures = self.inner.figures();
        (figures.asked, figures.used, figures.free, figures.mapped, figures.donated)
    }

    fn classes(&self) -> Vec<(u64, u64, u64, u64)> {
        self.inner.classes().iter().map(|(&size, sum)| (size, sum.groups, sum.slots, sum.live)).collect()
    }
}

#[pyfunction]
pub fn find_mallocngs(py: Python<'_>, image: &Image, word: u64, ranges: Ranges) -> PyResult<Vec<(u64, u64, u64, u64)>> {
    let (ranges, layout) = (plain(ranges), layout(word)?);
    let found = py.detach(|| musl::find(&image.inner, &ranges, layout, &Control::default()));
    Ok(found.into_iter().map(|context| (context.at, context.secret, context.head, context.tail)).collect())
}
