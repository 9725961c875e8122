//! Unpacks a compressed dump.

use std::fs::File;
use std::path::PathBuf;

use dmods_engine::unpack::{self, Ended, Form, Stream};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// (size with holes, stored bytes, packed bytes that were read, whether it ended, what is damaged)
type Step = (u64, u64, u64, bool, Option<String>);

/// A packed file on its way into a sparse one. See `_engine.pyi`.
#[pyclass]
pub struct Unpacker {
    inner: unpack::Unpacker,
}

fn stream(path: PathBuf, form: &str) -> PyResult<Stream> {
    let form = Form::named(form).ok_or_else(|| PyValueError::new_err(format!("no such compression: {form}")))?;
    Ok(Stream::new(form, File::open(path)?)?)
}

#[pymethods]
impl Unpacker {
    #[new]
    fn new(path: PathBuf, form: &str, to: PathBuf) -> PyResult<Self> {
        let to = File::options().write(true).open(to)?;
        Ok(Self { inner: unpack::Unpacker::new(stream(path, form)?, to) })
    }

    fn step(&mut self, py: Python<'_>, bytes: u64) -> PyResult<Step> {
        let inner = &mut self.inner;
        let ended = py.detach(|| inner.step(bytes))?;
        let damage = match &ended {
            Some(Ended::Damaged(error)) => Some(error.to_string()),
            _ => None,
        };
        Ok((inner.size(), inner.stored(), inner.packed(), ended.is_some(), damage))
    }
}

/// The first bytes of what is in a packed file. See `_engine.pyi`.
#[pyfunction]
pub fn unpacked_head(py: Python<'_>, path: PathBuf, form: &str, count: usize) -> PyResult<Py<PyBytes>> {
    let mut head = vec![0; count.min(1 << 20)];
    let mut stream = stream(path, form)?;
    let (filled, _damage) = py.detach(|| stream.fill(&mut head));
    Ok(PyBytes::new(py, head.get(..filled).unwrap_or_default()).unbind())
}
