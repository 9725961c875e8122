use std::ffi::OsString;
use std::path::PathBuf;

use dmods_engine::lines as core;
use pyo3::prelude::*;

use crate::watch::watched;

/// Source lines and inlined functions of one ELF file. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Lines {
    inner: core::Lines,
}

type Frame = (Option<String>, Option<String>, Option<u32>);

#[pymethods]
impl Lines {
    #[new]
    #[pyo3(signature = (path, debug_roots = Vec::new(), build_id = None))]
    fn new(path: Option<PathBuf>, debug_roots: Vec<PathBuf>, build_id: Option<Vec<u8>>) -> Lines {
        Lines { inner: core::Lines::new(path, debug_roots, build_id) }
    }

    #[getter]
    fn debug_file(&self, py: Python<'_>) -> Option<OsString> {
        py.detach(|| self.inner.debug_file()).map(PathBuf::into_os_string)
    }

    #[getter]
    fn problems(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.inner.problems())
    }

    fn find(&self, py: Python<'_>, addresses: Vec<i128>) -> PyResult<Vec<Vec<Frame>>> {
        // An address less the bias, both from a dump, may not fit into 64 bits. Nothing is at such an address.
        let addresses: Vec<u64> = addresses.into_iter().map(|a| u64::try_from(a).unwrap_or(u64::MAX)).collect();
        let found = watched(py, None, |control| self.inner.find(&addresses, control))?;
        let row = |frame: core::Frame| (frame.function, frame.path, frame.line);
        Ok(found.into_iter().map(|frames| frames.into_iter().map(row).collect()).collect())
    }
}
