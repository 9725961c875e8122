use std::sync::Arc;

use dmods_engine::blocks::stale_links;
use dmods_engine::python::{self, garbage, links, survey, unused, Release};
use pyo3::prelude::*;

use crate::address::{plain, Address, Ranges};
use crate::image::Image;
use crate::slots::Slots;
use crate::watch::watched;

type Row = (u64, u64, u64, u64, u64);
type Found = (u64, u64, u64, bool);

/// Returns the objects of CPython in blocks, by type. See `_engine.pyi`.
#[pyfunction]
#[pyo3(signature = (image, slots, blocks, minor, links=None, wanted=Vec::new(), most=0, progress=None))]
pub fn python_objects(
    py: Python<'_>,
    image: &Image,
    slots: Vec<PyRef<'_, Slots>>,
    blocks: Vec<(Address, u64)>,
    minor: u32,
    links: Option<PyRef<'_, CollectorLinks>>,
    wanted: Vec<u64>,
    most: usize,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<(Vec<Row>, Vec<Found>)> {
    let image = image.inner.clone();
    let slots: Vec<_> = slots.iter().map(|one| one.inner.clone()).collect();
    let blocks: Vec<(u64, u64)> = blocks.into_iter().map(|(at, size)| (at.0, size)).collect();
    let links = links.map(|one| one.inner.clone());
    let census = watched(py, progress.as_ref(), |control| {
        let slots: Vec<_> = slots.iter().map(|one| &**one).collect();
        Ok(python::take(&image, &slots, &blocks, Release { minor }, links.as_deref(), (&wanted, most), control))
    })?;
    let rows = census.rows.iter().map(|(&kind, row)| (kind, row.count, row.bytes, row.tracked, row.tracked_bytes));
    let found = census.found.iter().map(|found| (found.address, found.kind, found.size, found.tracked));
    Ok((rows.collect(), found.collect()))
}

/// The lists of CPython's collector. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct CollectorLinks {
    pub(crate) inner: Arc<links::Links>,
}

#[pymethods]
impl CollectorLinks {
    #[new]
    #[pyo3(signature = (image, states, minor, progress=None))]
    fn new(
        py: Python<'_>,
        image: &Image,
        states: Ranges,
        minor: u32,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (image, states) = (image.inner.clone(), plain(states));
        let found =
            watched(py, progress.as_ref(), |control| Ok(links::find(&image, &states, Release { minor }, control)))?;
        Ok(CollectorLinks { inner: Arc::new(found) })
    }

    fn __len__(&self) -> usize {
        self.inner.nodes.len()
    }

    fn __contains__(&self, address: Address) -> bool {
        self.inner.contains(address.0)
    }

    #[getter]
    fn heads(&self) -> Vec<u64> {
        self.inner.heads.clone()
    }

    #[getter]
    fn broken(&self) -> Option<u64> {
        self.inner.broken
    }

    fn tables_in_use(&self, py: Python<'_>, image: &Image, tables: Vec<Address>) -> PyResult<Vec<u64>> {
        let (image, tables) = (image.inner.clone(), tables.into_iter().map(|at| at.0).collect::<Vec<_>>());
        watched(py, None, |control| Ok(self.inner.tables_in_use(&image, &tables, control)))
    }

    #[pyo3(signature = (image, blocks, minor, unused=None))]
    fn garbage(
        &self,
        py: Python<'_>,
        image: &Image,
        mut blocks: Vec<(u64, u64)>,
        minor: u32,
        unused: Option<PyRef<'_, UnusedWords>>,
    ) -> PyResult<Vec<u64>> {
        let image = image.inner.clone();
        blocks.sort_unstable();
        let unused = unused.map(|one| one.ranges.clone()).unwrap_or_default();
        let release = Release { minor };
        watched(py, None, |control| Ok(garbage::find(&image, &blocks, &self.inner, &unused, release, control)))
    }
}

/// Words in blocks in use that keep nothing alive. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct UnusedWords {
    /// Sorted and disjoint.
    pub(crate) ranges: Arc<Vec<(u64, u64)>>,
}

#[pymethods]
impl UnusedWords {
    #[new]
    #[pyo3(signature = (image, slots, minor, links, interpreter, heads, stacks, threads, registers, frames, chunks, progress=None))]
    fn new(
        py: Python<'_>,
        image: &Image,
        slots: Vec<PyRef<'_, Slots>>,
        minor: u32,
        links: Option<PyRef<'_, CollectorLinks>>,
        interpreter: Ranges,
        heads: Ranges,
        stacks: Ranges,
        threads: Ranges,
        registers: Vec<Address>,
        frames: Vec<u64>,
        mut chunks: Vec<(u64, u64)>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let image = image.inner.clone();
        let slots: Vec<_> = slots.iter().map(|one| one.inner.clone()).collect();
        let links = links.map(|one| one.inner.clone());
        let registers: Vec<u64> = registers.into_iter().map(|value| value.0).collect();
        let [interpreter, heads, stacks, threads] = [interpreter, heads, stacks, threads].map(plain);
        chunks.sort_unstable();
        let ranges = watched(py, progress.as_ref(), |control| {
            let slots: Vec<_> = slots.iter().map(|one| &**one).collect();
            let process = unused::Process {
                slots: &slots,
                release: Release { minor },
                links: links.as_deref(),
                interpreter: &interpreter,
                heads: &heads,
                stacks: &stacks,
                threads: &threads,
                registers: &registers,
                frames: &frames,
                chunks: &chunks,
            };
            Ok(unused::find(&image, &process, control))
        })?;
        Ok(UnusedWords { ranges: Arc::new(ranges) })
    }

    /// Returns the ranges of the interpreter's data that have the instructions and characters of static objects.
    #[staticmethod]
    fn in_data(
        py: Python<'_>,
        image: &Image,
        minor: u32,
        interpreter: Ranges,
        data: Ranges,
    ) -> PyResult<Vec<(u64, u64)>> {
        let image = image.inner.clone();
        let [interpreter, data] = [interpreter, data].map(plain);
        watched(py, None, |control| {
            let process = unused::Process { interpreter: &interpreter, ..unused::Process::of(Release { minor }) };
            Ok(unused::statics::find(&image, &process, &data, control))
        })
    }

    /// Returns the links of free lists in blocks that nobody wrote to.
    #[staticmethod]
    #[pyo3(signature = (image, slots, progress=None))]
    fn stale_links(
        py: Python<'_>,
        image: &Image,
        slots: PyRef<'_, Slots>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (image, slots) = (image.inner.clone(), slots.inner.clone());
        let ranges = watched(py, progress.as_ref(), |control| Ok(stale_links::find(&image, &slots, control)))?;
        Ok(UnusedWords { ranges: Arc::new(ranges) })
    }

    fn __len__(&self) -> usize {
        self.ranges.len()
    }

    fn __contains__(&self, address: Address) -> bool {
        let place = self.ranges.partition_point(|part| part.1 <= address.0);
        self.ranges.get(place).is_some_and(|part| part.0 <= address.0)
    }
}

/// Modules, classes and objects of CPython in a heap. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct PythonNames {
    pub(crate) inner: Arc<survey::Survey>,
    /// The blocks of `inner`, once each.
    pub(crate) blocks: Arc<Vec<u64>>,
}

type HolderRow = (u64, bool, String, (u64, u64), Vec<(String, u64, u64)>);

#[pymethods]
impl PythonNames {
    fn holders(&self) -> Vec<HolderRow> {
        let rows = self.inner.holders.iter().map(|one| {
            let variables = one.variables.iter().map(|each| (each.name.clone(), each.start, each.value));
            (one.address, one.class, one.name.clone(), one.body, variables.collect())
        });
        rows.collect()
    }
}
