use std::sync::Arc;

use dmods_engine::blocks::slots::{self, Single};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::address::Address;

/// The blocks of an allocator without headers. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Slots {
    pub(crate) inner: Arc<slots::Slots>,
}

#[pymethods]
impl Slots {
    #[new]
    #[pyo3(signature = (spans, singles=Vec::new()))]
    fn new(spans: Vec<(Address, u64, u32, Vec<u8>)>, singles: Vec<(Address, u64, Address)>) -> PyResult<Self> {
        let mut found = slots::Slots::default();
        for (start, slot, count, free) in spans {
            if free.len() != count.div_ceil(8) as usize {
                return Err(PyValueError::new_err("a span's map has a bit for each slot"));
            }
            let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
            found.add(start.0, slot, count, free.chunks(8).map(word));
        }
        found.singles =
            singles.into_iter().map(|(start, size, end)| Single { start: start.0, size, end: end.0 }).collect();
        Ok(Slots { inner: Arc::new(found) })
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }

    #[getter]
    fn usable_bytes(&self) -> u64 {
        self.inner.bytes()
    }
}
