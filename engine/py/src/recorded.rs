use std::sync::Arc;

use dmods_engine::records::blocks;
use pyo3::prelude::*;

use crate::address::{plain, Ranges};
use crate::image::Image;
use crate::records::Records;
use crate::slots::Slots;

/// The blocks of an allocator that dmods cannot walk. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Recorded {
    pub(crate) inner: Arc<blocks::Recorded>,
}

#[pymethods]
impl Recorded {
    #[new]
    fn new(py: Python<'_>, records: PyRef<'_, Records>, inside: Ranges, classes: Vec<u64>) -> Self {
        let (inside, records) = (plain(inside), &records.inner);
        Recorded { inner: Arc::new(py.detach(|| blocks::Recorded::new(records, &inside, &classes))) }
    }

    #[getter]
    fn slots(&self) -> Slots {
        Slots { inner: self.inner.slots.clone() }
    }

    #[getter]
    fn strays(&self) -> u64 {
        self.inner.strays
    }

    #[getter]
    fn cut(&self) -> u64 {
        self.inner.cut
    }

    fn areas(&self, page: u32) -> Vec<(u64, u64)> {
        self.inner.areas(u64::from(page.max(1).next_power_of_two()))
    }

    fn gaps(&self, py: Python<'_>, image: &Image, areas: Ranges, every: bool) -> Vec<(u64, u64)> {
        let (areas, image) = (plain(areas), image.inner.clone());
        py.detach(|| self.inner.gaps(&image, &areas, every))
    }
}
