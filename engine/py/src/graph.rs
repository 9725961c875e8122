//! Types, shapes and growth: what Python gives and gets.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use dmods_engine::blocks::model::Heap;
use dmods_engine::contents::{self, Place, Section};
use dmods_engine::graph::asked;
use dmods_engine::graph::by_stack::{self, Known};
use dmods_engine::graph::growth::{self, By, Core};
use dmods_engine::graph::in_place::{self, Side};
use dmods_engine::graph::kinds;
use dmods_engine::graph::labels::{self, Label, Mark};
use dmods_engine::graph::named::{named, Name};
use dmods_engine::graph::owned_heap::OwnedHeap;
use dmods_engine::graph::retained;
use dmods_engine::graph::sums::{Next, View};
use dmods_engine::records::audit::Clock;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::address::{plain, Address, Ranges};
use crate::graph_rows::{GrowthRow, HeldRow, KindRow, SumRow};
use crate::heap_rows::{state, Group};
use crate::marks::Marks;
use crate::owner_rows::{scope, Scope};
use crate::owners::Owners;
use crate::records::Records;
use crate::watch::{watched, watched_over};

type Places = Vec<(Address, Address, u8, u16, Address)>;
type Growth = (Vec<GrowthRow>, Vec<(usize, usize, u32)>);
type GivenClock = (u64, u32, u64, u64);
type GivenCore<'py> = (
    PyRef<'py, Marks>,
    Option<PyRef<'py, Owners>>,
    Vec<(PyRef<'py, Records>, GivenClock, Vec<u64>)>,
    Vec<(Address, Address, u64)>,
    HashMap<u32, u64>,
    Vec<u64>,
    bool,
);
type MarkRow = (u64, u32, i8, i8, u64, i8, u8);

/// The signatures of one heap's blocks. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Census {
    inner: Arc<contents::Census>,
}

#[pymethods]
impl Census {
    #[new]
    #[pyo3(signature = (marks, places, direct, threads, progress=None))]
    fn new(
        py: Python<'_>,
        marks: &Marks,
        places: Places,
        direct: bool,
        threads: usize,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let blocks = marks.blocks()?;
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
        let inner = watched_over(py, blocks.bytes, progress.as_ref(), |control| {
            contents::Census::take(&**blocks.lock(), &blocks.image, &places, direct, threads, control)
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

    #[pyo3(signature = (marks, labels, names, whole=HashSet::new(), progress=None))]
    fn named(
        &self,
        py: Python<'_>,
        marks: &Marks,
        labels: &Labels,
        names: HashMap<labels::Key, u32>,
        whole: HashSet<labels::Key>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Census> {
        let blocks = marks.blocks()?;
        let inner = watched(py, progress.as_ref(), |control| {
            let name = |row: &Label| {
                let key = (row.label, row.size, row.counted, row.kind);
                Some((row.address, *names.get(&key)?, whole.contains(&key)))
            };
            let chosen: Vec<Name> = labels.inner.rows.iter().filter_map(name).collect();
            named(&self.inner, &**blocks.lock(), &chosen, control)
        })?;
        Ok(Census { inner: Arc::new(inner) })
    }
}

/// What something else than their content says of blocks. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Labels {
    pub(crate) inner: labels::Labels,
}

#[pymethods]
impl Labels {
    #[new]
    fn new(rows: Vec<(u64, u64, u32)>) -> Labels {
        let row = |(address, size, label)| Label { address, label, size, counted: false, kind: 0 };
        Labels { inner: labels::Labels::new(rows.into_iter().map(row).collect(), false) }
    }

    #[getter]
    fn conflicts(&self) -> u64 {
        self.inner.conflicts
    }

    #[getter]
    fn cut(&self) -> bool {
        self.inner.cut
    }

    fn __len__(&self) -> usize {
        self.inner.rows.len()
    }

    fn sizes(&self) -> Vec<(labels::Key, u64)> {
        self.inner.sizes()
    }
}

#[pyfunction]
#[pyo3(signature = (marks, word, inside, outside, signs, direct, progress=None))]
pub fn find_labels(
    py: Python<'_>,
    marks: &Marks,
    word: u64,
    inside: Ranges,
    outside: Ranges,
    signs: Vec<MarkRow>,
    direct: bool,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Labels> {
    let blocks = marks.blocks()?;
    if word != 4 && word != 8 {
        return Err(PyValueError::new_err("a word has 4 or 8 bytes"));
    }
    let (inside, outside) = (plain(inside), plain(outside));
    let mark = |(value, label, pointer, beside_at, beside, room, width)| Mark {
        value,
        label,
        pointer,
        beside_at,
        beside,
        room,
        width,
    };
    let signs: Vec<Mark> = signs.into_iter().map(mark).collect();
    let inner = watched(py, progress.as_ref(), |control| {
        labels::find(&**blocks.lock(), &blocks.image, word, (&inside, &outside), &signs, direct, control)
    })?;
    Ok(Labels { inner })
}

/// The kinds of blocks of one or more heaps. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Kinds {
    pub(crate) censuses: Vec<Arc<contents::Census>>,
    pub(crate) inner: kinds::Kinds,
}

impl Kinds {
    pub(crate) fn has(&self, index: usize) -> bool {
        index < self.censuses.len()
    }

    /// Returns the view of a census that is there.
    pub(crate) fn view<'a>(&'a self, index: usize, heap: &'a dyn Heap) -> View<'a> {
        View::new(heap, &self.censuses[index], &self.inner, index)
    }

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
        self.inner.all.iter().map(KindRow::new).collect()
    }

    fn sums(&self, index: usize, marks: &Marks) -> PyResult<Vec<SumRow>> {
        let blocks = marks.blocks()?;
        let census = self.census(index)?;
        let sums = View::new(&**blocks.lock(), census, &self.inner, index).sums();
        Ok(sums.iter().map(SumRow::new).collect())
    }

    fn groups(&self, py: Python<'_>, index: usize, marks: &Marks) -> PyResult<Vec<Group>> {
        let blocks = marks.blocks()?;
        let census = self.census(index)?;
        let groups = watched(py, None, |control| {
            let heap = blocks.lock();
            View::new(&**heap, census, &self.inner, index).groups(control)
        })?;
        Ok(groups.iter().map(|(group, kind)| Group::new(group, Some(*kind))).collect())
    }

    fn addresses(
        &self,
        py: Python<'_>,
        index: usize,
        marks: &Marks,
        wanted: Vec<u32>,
        states: Vec<u8>,
        start: (usize, u64),
        most: usize,
    ) -> PyResult<(Vec<u64>, Option<Next>)> {
        let blocks = marks.blocks()?;
        let census = self.census(index)?;
        let states = states.into_iter().map(state).collect::<PyResult<Vec<_>>>()?;
        watched(py, None, |control| {
            let heap = blocks.lock();
            View::new(&**heap, census, &self.inner, index).addresses(&wanted, &states, start, most, control)
        })
    }

    fn examples(
        &self,
        py: Python<'_>,
        index: usize,
        marks: &Marks,
        wanted: Vec<u32>,
        states: Vec<u8>,
        most: usize,
    ) -> PyResult<Vec<Vec<u64>>> {
        let blocks = marks.blocks()?;
        let census = self.census(index)?;
        let states = states.into_iter().map(state).collect::<PyResult<Vec<_>>>()?;
        watched_over(py, blocks.bytes, None, |control| {
            let heap = blocks.lock();
            View::new(&**heap, census, &self.inner, index).examples(&wanted, &states, most, control)
        })
    }

    #[pyo3(signature = (index, owners, groups, count, progress=None))]
    fn retained(
        &self,
        py: Python<'_>,
        index: usize,
        owners: &Owners,
        groups: Vec<u32>,
        count: usize,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Vec<(u64, u64)>> {
        let (blocks, found) = (&owners.blocks, &owners.inner);
        let census = self.census(index)?;
        if groups.iter().any(|&group| group as usize >= count) {
            return Err(PyValueError::new_err("there is no group of that number"));
        }
        watched(py, progress.as_ref(), |control| {
            let heap = blocks.lock();
            retained::by_group(&View::new(&**heap, census, &self.inner, index), found, &groups, count, control)
        })
    }

    fn in_scope(&self, py: Python<'_>, index: usize, owners: &Owners, within: Scope) -> PyResult<Vec<HeldRow>> {
        let (blocks, found) = (&owners.blocks, &owners.inner);
        let (census, within) = (self.census(index)?, scope(within)?);
        let held = watched(py, None, |control| {
            let heap = blocks.lock();
            retained::in_scope(&View::new(&**heap, census, &self.inner, index), found, within, control)
        })?;
        Ok(held.iter().map(HeldRow::new).collect())
    }

    /// Returns the labels with the kinds of their blocks.
    fn take_kinds(&self, py: Python<'_>, index: usize, marks: &Marks, labels: &Labels) -> PyResult<Labels> {
        let blocks = marks.blocks()?;
        let census = self.census(index)?;
        let mut inner = labels.inner.clone();
        watched(py, None, |control| {
            let heap = blocks.lock();
            inner.take_kinds(&View::new(&**heap, census, &self.inner, index), control)
        })?;
        Ok(Labels { inner })
    }

    fn by_stack(
        &self,
        py: Python<'_>,
        plain: &Kinds,
        index: usize,
        marks: &Marks,
        callers: Vec<(PyRef<'_, Records>, HashMap<u32, u32>)>,
        known: Vec<i64>,
    ) -> PyResult<Labels> {
        let blocks = marks.blocks()?;
        let (census, shapes) = (self.census(index)?, plain.census(index)?);
        let known: Vec<Known> = known
            .into_iter()
            .map(|number| match u32::try_from(number) {
                Ok(name) => Known::Type(name),
                Err(_) if number == -1 => Known::Nothing,
                Err(_) => Known::Itself,
            })
            .collect();
        let callers: Vec<_> = callers.iter().map(|(one, of_stack)| (one.inner(), of_stack.clone())).collect();
        let inner = watched(py, None, |control| {
            let heap = blocks.lock();
            let view = View::new(&**heap, census, &self.inner, index);
            let shapes = View::new(&**heap, shapes, &plain.inner, index);
            by_stack::labels(&view, &shapes, &callers, &known, control)
        })?;
        Ok(Labels { inner })
    }

    fn asked(
        &self,
        py: Python<'_>,
        index: usize,
        marks: &Marks,
        records: Vec<PyRef<'_, Records>>,
        sizes: Vec<u64>,
    ) -> PyResult<Vec<(u64, u64)>> {
        let blocks = marks.blocks()?;
        let census = self.census(index)?;
        let records: Vec<_> = records.iter().map(|one| one.inner()).collect();
        watched(py, None, |control| {
            let heap = blocks.lock();
            asked::asked(&View::new(&**heap, census, &self.inner, index), &records, &sizes, control)
        })
    }

    fn kinds_at(&self, py: Python<'_>, index: usize, marks: &Marks, asked: Vec<u64>) -> PyResult<Vec<Option<u32>>> {
        let blocks = marks.blocks()?;
        let census = self.census(index)?;
        watched(py, None, |control| {
            let heap = blocks.lock();
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
    let by_holder = by == "holder";
    let by = match by {
        "size" => By::Size,
        "state" => By::State,
        "arena" => By::Arena,
        "kind" => By::Kind,
        "stack" => By::Stack,
        "thread" => By::Thread,
        "owner" | "holder" => By::Given,
        _ => return Err(PyValueError::new_err("unknown key")),
    };
    for (i, (marks, ..)) in cores.iter().enumerate() {
        if cores[..i].iter().any(|(other, ..)| marks.is_of(other)) {
            return Err(PyValueError::new_err("a heap is compared with itself"));
        }
    }
    if cores.is_empty() {
        return Err(PyValueError::new_err("there is nothing to compare"));
    }
    let heaps = cores.iter().map(|(marks, ..)| marks.blocks()).collect::<PyResult<Vec<_>>>()?;
    let owners: Vec<Option<&Owners>> = cores.iter().map(|(_, owners, ..)| owners.as_deref()).collect();
    let kinds = kinds.as_deref();
    let stores: Vec<Vec<&dmods_engine::records::Records>> =
        cores.iter().map(|(_, _, records, ..)| records.iter().map(|(one, ..)| one.inner()).collect()).collect();
    let clock = |&(start, shift, numerator, denominator): &GivenClock| Clock { start, shift, numerator, denominator };
    let clocks: Vec<Vec<Clock>> =
        cores.iter().map(|(_, _, records, ..)| records.iter().map(|(_, given, _)| clock(given)).collect()).collect();
    let threads: Vec<Vec<Vec<u64>>> =
        cores.iter().map(|(_, _, records, ..)| records.iter().map(|(.., threads)| threads.clone()).collect()).collect();
    let modules: Vec<Vec<(u64, u64, u64)>> = cores
        .iter()
        .map(|(_, _, _, modules, ..)| modules.iter().map(|(start, end, shift)| (start.0, end.0, *shift)).collect())
        .collect();
    let arenas: Vec<HashMap<u32, u64>> = cores.iter().map(|(.., arenas, _, _)| arenas.clone()).collect();
    let sets: Vec<&[u64]> = cores.iter().map(|(.., sets, _)| &sets[..]).collect();
    let whole: Vec<bool> = cores.iter().map(|(.., whole)| *whole).collect();
    let found = watched(py, progress.as_ref(), |control| {
        let locked: Vec<_> = heaps.iter().map(|heap| heap.lock()).collect();
        let mut made = Vec::with_capacity(locked.len());
        for (index, heap) in locked.iter().enumerate() {
            let view =
                kinds.and_then(|kinds| Some(View::new(&***heap, kinds.censuses.get(index)?, &kinds.inner, index)));
            let keys = match (by, owners[index].map(|owners| &owners.inner), &view) {
                (By::Given, Some(owners), Some(view)) if by_holder => {
                    retained::holder_keys(view, owners, sets[index], control)?
                }
                (By::Given, Some(owners), _) => retained::owner_keys(OwnedHeap::new(&***heap, owners), sets[index]),
                _ => Vec::new(),
            };
            made.push(Core {
                heap: &***heap,
                kinds: view,
                records: stores[index].clone(),
                clocks: clocks[index].clone(),
                threads: threads[index].clone(),
                arenas: arenas[index].clone(),
                modules: modules[index].clone(),
                keys,
                whole: whole[index],
            });
        }
        growth::compare(&made, by, aligned, control)
    })?;
    let rows = found.rows.into_iter().map(|(key, row)| GrowthRow::new(key, &row));
    Ok((rows.collect(), found.stacks))
}

#[pyfunction]
#[pyo3(signature = (old, new, owned, word, progress=None))]
pub fn changed_in_place(
    py: Python<'_>,
    old: &Marks,
    new: &Marks,
    owned: Ranges,
    word: u64,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<(u64, u64)> {
    if old.is_of(new) {
        return Err(PyValueError::new_err("a heap is compared with itself"));
    }
    if word != 4 && word != 8 {
        return Err(PyValueError::new_err("a word has 4 or 8 bytes"));
    }
    let (owned, old, new) = (plain(owned), old.blocks()?, new.blocks()?);
    watched(py, progress.as_ref(), |control| {
        let (before, after) = (old.lock(), new.lock());
        let (before, after) = (Side { heap: &**before, image: &old.image }, Side { heap: &**after, image: &new.image });
        in_place::changed(&before, &after, &owned, word, control)
    })
}
