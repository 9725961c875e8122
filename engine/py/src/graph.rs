//! Types, shapes and growth: what Python gives and gets.

use std::collections::HashMap;
use std::sync::Arc;

use dmods_engine::graph::growth::{self, By, Core};
use dmods_engine::graph::kinds;
use dmods_engine::graph::sums::{Next, View};
use dmods_engine::heap::contents::{self, Form, Place, Section};
use dmods_engine::records::audit::Clock;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::address::Address;
use crate::heap::{state, Heap};
use crate::records::Records;
use crate::watch::watched;

type Places = Vec<(Address, Address, u8, u16, Address)>;
type KindRow = (u32, u8, u64, u64, u64, Vec<(u8, u64)>, Vec<u64>, Vec<u8>);
type SumRow = ((u64, u64), (u64, u64), (u64, u64), (u64, u64), Option<u64>, Option<u64>);
type GroupRow = (u64, bool, bool, u64, u64, u64, u64, u32);
type Amount = (u64, u64);
type GrowthRow = (u64, Vec<Amount>, Amount, Amount, Amount, Amount, u64, Option<u64>, Option<(u64, u64)>);
type Growth = (Vec<GrowthRow>, Vec<(usize, usize, u32)>);
type GivenClock = (u64, u32, u64, u64);
type GivenCore<'py> = (
    PyRef<'py, Heap>,
    Vec<(PyRef<'py, Records>, GivenClock, Vec<u64>)>,
    Vec<(Address, Address, u64)>,
    HashMap<u32, u64>,
);

/// The signatures of one heap's blocks. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Census {
    inner: Arc<contents::Census>,
}

#[pymethods]
impl Census {
    #[new]
    #[pyo3(signature = (heap, places, direct, threads, progress=None))]
    fn new(
        py: Python<'_>,
        heap: &Heap,
        places: Places,
        direct: bool,
        threads: usize,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let places: Vec<Place> = places
            .into_iter()
            .map(|(start, end, section, module, bias)| {
                let section = match section {
                    0 => Section::Code,
                    1 => Section::ReadOnly,
                    2 => Section::Data,
                    3 => Section::Elsewhere,
                    _ => return Err(PyValueError::new_err("a section is 0 to 3")),
                };
                Ok(Place { start: start.0, end: end.0, section, module, bias: bias.0 })
            })
            .collect::<PyResult<_>>()?;
        let inner = watched(py, progress.as_ref(), |control| {
            heap.heap().census(&heap.image, &places, direct, threads, control)
        })?;
        Ok(Census { inner: Arc::new(inner) })
    }

    #[getter]
    fn missing(&self) -> u64 {
        self.inner.missing
    }

    fn __len__(&self) -> usize {
        self.inner.of_block.len()
    }
}

/// The kinds of blocks of one or more heaps. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Kinds {
    censuses: Vec<Arc<contents::Census>>,
    inner: kinds::Kinds,
}

fn form_number(form: Form) -> u8 {
    match form {
        Form::Shape => 0,
        Form::Object => 1,
        Form::Exception => 2,
        Form::Various => 3,
        Form::Missing => 4,
    }
}

impl Kinds {
    fn census(&self, index: usize) -> PyResult<&contents::Census> {
        let found = self.censuses.get(index).map(|census| &**census);
        found.ok_or_else(|| PyValueError::new_err("there is no census of that number"))
    }
}

#[pymethods]
impl Kinds {
    #[new]
    fn new(py: Python<'_>, censuses: Vec<PyRef<'_, Census>>) -> Kinds {
        let censuses: Vec<Arc<contents::Census>> = censuses.iter().map(|census| census.inner.clone()).collect();
        py.detach(|| {
            let plain: Vec<&contents::Census> = censuses.iter().map(|census| &**census).collect();
            let inner = kinds::Kinds::new(&plain);
            Kinds { censuses, inner }
        })
    }

    fn all(&self) -> Vec<KindRow> {
        let rows = self.inner.all.iter().map(|kind| {
            let entry = &kind.entry;
            let (low, high) = contents::size_class(entry.signature.class);
            let words = entry.signature.words.iter();
            let words = words.map(|&word| (contents::kind_of(word), word & ((1 << 56) - 1))).collect();
            let form = form_number(entry.signature.form);
            (kind.id, form, low, high, entry.count, words, entry.sample.to_vec(), entry.same.to_vec())
        });
        rows.collect()
    }

    fn sums(&self, index: usize, heap: &Heap) -> PyResult<Vec<SumRow>> {
        let census = self.census(index)?;
        let sums = View::new(&**heap.heap(), census, &self.inner, index).sums();
        let row = |sum: &contents::Sum| {
            (sum.live, sum.leaked, sum.own, sum.sizes.unwrap_or_default(), sum.first, sum.first_leaked)
        };
        Ok(sums.iter().map(row).collect())
    }

    fn groups(&self, py: Python<'_>, index: usize, heap: &Heap) -> PyResult<Vec<GroupRow>> {
        let census = self.census(index)?;
        let groups = watched(py, None, |control| {
            let heap = heap.heap();
            View::new(&**heap, census, &self.inner, index).groups(control)
        })?;
        let row = |(g, kind): (dmods_engine::heap::leaks::Group, u32)| {
            (g.size, g.chunks, g.single, g.count, g.first, g.kept_count, g.kept_bytes, kind)
        };
        Ok(groups.into_iter().map(row).collect())
    }

    fn addresses(
        &self,
        py: Python<'_>,
        index: usize,
        heap: &Heap,
        wanted: Vec<u32>,
        states: Vec<u8>,
        start: (usize, u64),
        most: usize,
    ) -> PyResult<(Vec<u64>, Option<Next>)> {
        let census = self.census(index)?;
        let states = states.into_iter().map(state).collect::<PyResult<Vec<_>>>()?;
        watched(py, None, |control| {
            let heap = heap.heap();
            View::new(&**heap, census, &self.inner, index).addresses(&wanted, &states, start, most, control)
        })
    }

    fn kinds_at(&self, py: Python<'_>, index: usize, heap: &Heap, asked: Vec<u64>) -> PyResult<Vec<Option<u32>>> {
        let census = self.census(index)?;
        watched(py, None, |control| {
            let heap = heap.heap();
            View::new(&**heap, census, &self.inner, index).kinds_at(&asked, control)
        })
    }
}

#[pyfunction]
#[pyo3(signature = (cores, kinds, by, aligned, progress=None))]
pub fn compare_heaps(
    py: Python<'_>,
    cores: Vec<GivenCore<'_>>,
    kinds: Option<PyRef<'_, Kinds>>,
    by: &str,
    aligned: bool,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Growth> {
    let by = match by {
        "size" => By::Size,
        "state" => By::State,
        "arena" => By::Arena,
        "kind" => By::Kind,
        "stack" => By::Stack,
        "thread" => By::Thread,
        _ => return Err(PyValueError::new_err("unknown key")),
    };
    for (i, (heap, ..)) in cores.iter().enumerate() {
        if cores[..i].iter().any(|(other, ..)| std::ptr::eq(&**other, &**heap)) {
            return Err(PyValueError::new_err("a heap is compared with itself"));
        }
    }
    if cores.is_empty() {
        return Err(PyValueError::new_err("there is nothing to compare"));
    }
    let heaps: Vec<&Heap> = cores.iter().map(|(heap, ..)| &**heap).collect();
    let kinds = kinds.as_deref();
    let stores: Vec<Vec<&dmods_engine::records::Records>> =
        cores.iter().map(|(_, records, ..)| records.iter().map(|(one, ..)| one.inner()).collect()).collect();
    let clock = |&(start, shift, numerator, denominator): &GivenClock| Clock { start, shift, numerator, denominator };
    let clocks: Vec<Vec<Clock>> =
        cores.iter().map(|(_, records, ..)| records.iter().map(|(_, given, _)| clock(given)).collect()).collect();
    let threads: Vec<Vec<Vec<u64>>> =
        cores.iter().map(|(_, records, ..)| records.iter().map(|(.., threads)| threads.clone()).collect()).collect();
    let modules: Vec<Vec<(u64, u64, u64)>> = cores
        .iter()
        .map(|(_, _, modules, _)| modules.iter().map(|(start, end, shift)| (start.0, end.0, *shift)).collect())
        .collect();
    let arenas: Vec<HashMap<u32, u64>> = cores.iter().map(|(.., arenas)| arenas.clone()).collect();
    let found = watched(py, progress.as_ref(), |control| {
        let locked: Vec<_> = heaps.iter().map(|heap| heap.heap()).collect();
        let made: Vec<Core> = locked
            .iter()
            .enumerate()
            .map(|(index, heap)| Core {
                heap: &***heap,
                kinds: kinds
                    .and_then(|kinds| Some(View::new(&***heap, kinds.censuses.get(index)?, &kinds.inner, index))),
                records: stores[index].clone(),
                clocks: clocks[index].clone(),
                threads: threads[index].clone(),
                arenas: arenas[index].clone(),
                modules: modules[index].clone(),
            })
            .collect();
        growth::compare(&made, by, aligned, control)
    })?;
    let amount = |a: growth::Amount| (a.count, a.bytes);
    let rows = found.rows.into_iter().map(|(key, row)| {
        let totals = row.totals.iter().copied().map(amount).collect();
        let (gone, new, kept, survived) = (amount(row.gone), amount(row.new), amount(row.kept), amount(row.survived));
        (key, totals, gone, new, kept, survived, row.proven, row.example, row.times)
    });
    Ok((rows.collect(), found.stacks))
}
