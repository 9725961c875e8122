use std::path::PathBuf;
use std::sync::Arc;

use dmods_engine::image as core;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::address::Address;

/// The memory of a process. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Image {
    pub inner: Arc<core::Image>,
}

#[pymethods]
impl Image {
    #[new]
    #[pyo3(signature = (files, segments, blobs, addresses=core::PROCESS))]
    fn new(
        files: Vec<PathBuf>,
        segments: &Bound<'_, PyAny>,
        blobs: Vec<(u64, Bound<'_, PyBytes>)>,
        addresses: (u64, u64),
    ) -> PyResult<Image> {
        // There may be a million: none is kept as a Python object.
        let mut all = Vec::with_capacity(segments.len()?.saturating_add(blobs.len()));
        for segment in segments.try_iter()? {
            let (start, size, index, offset): (u64, u64, usize, u64) = segment?.extract()?;
            all.push(core::Segment {
                start,
                end: start.saturating_add(size),
                source: core::Source::File { index, offset },
            });
        }
        for (start, data) in blobs {
            let data: Arc<[u8]> = data.as_bytes().into();
            all.push(core::Segment {
                start,
                end: start.saturating_add(data.len() as u64),
                source: core::Source::Bytes(data),
            });
        }
        Ok(Image { inner: Arc::new(core::Image::new(&files, all)?.with_addresses(addresses)) })
    }

    fn read<'py>(&self, py: Python<'py>, address: Address, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let address = address.0;
        // Memory for unmapped addresses is not allocated: a size from a dump may be anything.
        let covered = self.inner.covered(address, address.saturating_add(size as u64));
        let size = match covered.first() {
            Some(&(start, end)) if start == address => size.min((end - start) as usize),
            _ => 0,
        };
        let mut buf = Vec::new();
        buf.try_reserve_exact(size).map_err(|_| pyo3::exceptions::PyMemoryError::new_err("read too large"))?;
        buf.resize(size, 0);
        let n = self.inner.read(address, &mut buf);
        Ok(PyBytes::new(py, &buf[..n]))
    }

    fn covered(&self, start: Address, end: Address) -> Vec<(u64, u64)> {
        self.inner.covered(start.0, end.0)
    }
}
