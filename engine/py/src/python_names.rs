//! The objects of CPython in a heap, and the names of what holds them.

use std::sync::Arc;

use dmods_engine::graph::labels::{self, Label};
use dmods_engine::python::survey::{self, Part};
use dmods_engine::python::Release;
use pyo3::prelude::*;

use crate::graph::Labels;
use crate::marks::Marks;
use crate::python::{CollectorLinks, PythonNames};
use crate::watch::watched;

/// Returns the objects, modules and classes of CPython in a heap. See `_engine.pyi`.
#[pyfunction]
#[pyo3(signature = (marks, minor, links=None, progress=None))]
pub fn find_python_names(
    py: Python<'_>,
    marks: &Marks,
    minor: u32,
    links: Option<PyRef<'_, CollectorLinks>>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<PythonNames> {
    let blocks = marks.blocks()?;
    let links = links.map(|one| one.inner.clone());
    let found = watched(py, progress.as_ref(), |control| {
        survey::look(&**blocks.lock(), &blocks.image, Release { minor }, links.as_deref(), control)
    })?;
    let mut proven: Vec<u64> = found.blocks.iter().map(|one| one.0).collect();
    proven.dedup();
    Ok(PythonNames { inner: Arc::new(found), blocks: Arc::new(proven) })
}

/// Returns a label for each block of an object, and what the labels mean. See `_engine.pyi`.
#[pyfunction]
pub fn python_labels(
    py: Python<'_>,
    marks: &Marks,
    names: &PythonNames,
) -> PyResult<(Labels, Vec<(u64, &'static str)>)> {
    let blocks = marks.blocks()?;
    let rows = py.detach(|| {
        let heap = blocks.lock();
        let sized = names.inner.blocks.iter().filter_map(|&(address, label)| {
            let (block, ..) = heap.find(address).filter(|found| found.0.address == address)?;
            Some(Label { address, label, size: block.size, counted: false, kind: 0 })
        });
        labels::Labels::new(sized.collect(), false)
    });
    let kinds = names.inner.kinds.iter().map(|&(kind, part)| (kind, shown(part)));
    Ok((Labels { inner: rows }, kinds.collect()))
}

fn shown(part: Part) -> &'static str {
    match part {
        Part::Whole => "",
        Part::Items => "items",
        Part::Table => "table",
        Part::Values => "values",
    }
}
