use dmods_engine::touched::{self, Sign};
use pyo3::prelude::*;

use crate::address::{plain, Ranges};
use crate::image::Image;
use crate::watch::{bytes_in, watched_over};

/// The memory that a process never touched. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Untouched {
    pub inner: touched::Untouched,
}

#[pymethods]
impl Untouched {
    #[new]
    #[pyo3(signature = (image, ranges, holes, threads, progress=None))]
    fn new(
        py: Python<'_>,
        image: &Image,
        ranges: Ranges,
        holes: bool,
        threads: usize,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (memory, ranges) = (image.inner.clone(), plain(ranges));
        let sign = if holes { Sign::Hole } else { Sign::Zeros };
        let inner = watched_over(py, bytes_in(&ranges), progress.as_ref(), |control| {
            touched::Untouched::find(&memory, &ranges, sign, threads, control)
        })?;
        Ok(Untouched { inner })
    }

    fn within(&self, ranges: Ranges) -> u64 {
        plain(ranges).iter().fold(0, |sum: u64, &(start, end)| sum.saturating_add(self.inner.within(start, end)))
    }
}
