//! The objects of CPython in a heap, and the names of what holds them.

use std::sync::Arc;

use dmods_engine::graph::labels::{self, Label};
use dmods_engine::python::survey::{self, Part};
use dmods_engine::python::Release;
use pyo3::prelude::*;

use crate::graph::Labels;
use crate::heap::Heap;
use crate::python::{CollectorLinks, PythonNames};
use crate::watch::watched;

/// Returns the objects, modules and classes of CPython in a heap. See `_engine.pyi`.
#[pyfunction]
#[pyo3(signature = (heap, minor, links=None, progress=None))]
pub fn find_python_names(
    py: Python<'_>,
    heap: &Heap,
    minor: u32,
    links: Option<PyRef<'_, CollectorLinks>>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<PythonNames> {
    let links = links.map(|one| one.inner.clone());
    let found = watched(py, progress.as_ref(), |control| {
        survey::look(&**heap.heap(), &heap.image, Release { minor }, links.as_deref(), control)
    })?;
    let mut blocks: Vec<u64> = found.blocks.iter().map(|one| one.0).collect();
    blocks.dedup();
    Ok(PythonNames { inner: Arc::new(found), blocks: Arc::new(blocks) })
}

/// Returns a label for each block of an object, and what the labels mean. See `_engine.pyi`.
#[pyfunction]
pub fn python_labels(py: Python<'_>, heap: &Heap, names: &PythonNames) -> (Labels, Vec<(u64, &'static str)>) {
    let rows = py.detach(|| {
        let heap = heap.heap();
        let sized = names.inner.blocks.iter().filter_map(|&(address, label)| {
            let (block, ..) = heap.find(address).filter(|found| found.0.address == address)?;
            Some(Label { address, label, size: block.size, counted: false, kind: 0 })
        });
        labels::Labels::new(sized.collect(), false)
    });
    let kinds = names.inner.kinds.iter().map(|&(kind, part)| (kind, shown(part)));
    (Labels { inner: rows }, kinds.collect())
}

fn shown(part: Part) -> &'static str {
    match part {
        Part::Whole => "",
        Part::Items => "items",
        Part::Table => "table",
        Part::Values => "values",
    }
}
