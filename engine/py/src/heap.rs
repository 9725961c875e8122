use std::sync::Mutex;

use dmods_engine::allocators::glibc::bins::{self, Bin};
use dmods_engine::allocators::glibc::lists::{self, Followed, List, Problem};
use dmods_engine::blocks;
use dmods_engine::blocks::odd::Kinds;
use dmods_engine::blocks::pass::Request;
use dmods_engine::blocks::pointers::{pointers, Asked};
use dmods_engine::blocks::runs::{Kind, Owner, Run};
use dmods_engine::blocks::tcache::TcacheShape;
use dmods_engine::graph::leading::Held;
use dmods_engine::graph::owned_heap::OwnedHeap;
use dmods_engine::graph::paths::Origin;
use dmods_engine::graph::roots::Named;
use dmods_engine::python::unused::merged;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::address::{self, plain, Address, Ranges};
use crate::heap_rows::{bin_fault, report_dict, state, Block, Group};
use crate::image::Image;
use crate::jemalloc::Extents;
use crate::owners::{areas, homes_of, scope, values, AreaRow, HomeRow, KeptRow, Path, Scope, Value};
use crate::python::{CollectorLinks, PythonNames, UnusedWords};
use crate::slots::Slots;
use crate::touched::Untouched;
use crate::watch::{bytes_in, watched, watched_over};

/// An indexed heap. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Heap {
    inner: Mutex<OwnedHeap>,
    pub(crate) image: std::sync::Arc<dmods_engine::image::Image>,
    /// How many bytes the runs have.
    pub(crate) bytes: u64,
}

type Bins = (Vec<(u64, u64)>, u64, Vec<(usize, &'static str, u64, u64)>);

fn kind(number: u8) -> PyResult<Kind> {
    match number {
        0 => Ok(Kind::Main),
        1 => Ok(Kind::Thread),
        2 => Ok(Kind::Mmapped),
        _ => Err(PyValueError::new_err("a run's kind is 0, 1 or 2")),
    }
}

impl Heap {
    pub(crate) fn heap(&self) -> std::sync::MutexGuard<'_, OwnedHeap> {
        // A panic while the lock was held would be our defect. The tables can still be read.
        self.inner.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[pymethods]
impl Heap {
    #[new]
    #[pyo3(signature = (image, word, runs, dead, watch, threads, progress=None, extents=Vec::new(), slots=Vec::new(), links=Vec::new(), unused=Vec::new()))]
    fn new(
        py: Python<'_>,
        image: &Image,
        word: u64,
        runs: Vec<(Address, Address, u8, u32, u64, u32)>,
        dead: Ranges,
        watch: Vec<(u64, usize, usize)>,
        threads: usize,
        progress: Option<Bound<'_, PyAny>>,
        extents: Vec<(PyRef<'_, Extents>, u32, u32)>,
        slots: Vec<(PyRef<'_, Slots>, u32, u32)>,
        links: Vec<PyRef<'_, CollectorLinks>>,
        unused: Vec<PyRef<'_, UnusedWords>>,
    ) -> PyResult<Self> {
        let mut runs = runs
            .into_iter()
            .map(|(start, end, number, arena, usable, allocator)| {
                Ok(Run::of_chunks(start.0, end.0, kind(number)?, Owner::new(allocator, arena), usable))
            })
            .collect::<PyResult<Vec<_>>>()?;
        let mut maps = Vec::new();
        for (extents, first_arena, allocator) in &extents {
            runs.extend(extents.inner.runs(Owner::new(*allocator, *first_arena), maps.len() as u32));
            maps.extend_from_slice(&extents.inner.maps);
        }
        for (slots, arena, allocator) in &slots {
            runs.extend(slots.inner.runs(Owner::new(*allocator, *arena), maps.len() as u32));
            maps.extend_from_slice(&slots.inner.maps);
        }
        let mut dead = plain(dead);
        dead.extend(links.iter().flat_map(|one| one.inner.ranges()));
        dead.extend(unused.iter().flat_map(|one| one.ranges.iter().copied()));
        let dead = merged(dead);
        let watch: Vec<TcacheShape> =
            watch.into_iter().map(|(chunk, bins, width)| TcacheShape { chunk, bins, width }).collect();
        let memory = image.inner.clone();
        let bytes = runs.iter().fold(0, |sum: u64, run| sum.saturating_add(run.end.saturating_sub(run.start)));
        let inner = watched_over(py, bytes, progress.as_ref(), |control| {
            let threads = threads.max(1);
            let request = Request { image: &memory, runs, dead: &dead, watch: &watch, maps: &maps, threads };
            blocks::build(word, request, control)
        })?;
        Ok(Heap { inner: Mutex::new(OwnedHeap::new(inner)), image: memory, bytes })
    }

    /// Returns how many runs were left out because they overlap another.
    #[getter]
    fn dropped(&self) -> usize {
        self.heap().found().dropped.len()
    }

    fn runs(&self) -> Vec<(u64, u64, u8, u32, u64)> {
        let number = |kind| match kind {
            Kind::Main => 0,
            Kind::Thread => 1,
            _ => 2,
        };
        self.heap()
            .found()
            .chunk_runs
            .iter()
            .map(|r| (r.start, r.end, number(r.kind), r.owner.arena, r.usable))
            .collect()
    }

    fn reports<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.heap().found().reports.iter().map(|report| report_dict(py, report)).collect()
    }

    #[pyo3(signature = (head, to_user, protected, least, most, set, collect))]
    fn follow(
        &self,
        py: Python<'_>,
        head: Address,
        to_user: bool,
        protected: bool,
        least: u64,
        most: u64,
        set: bool,
        collect: bool,
    ) -> (u64, u64, Option<(&'static str, u64)>, Vec<u64>) {
        let list = List { head: head.0, to_user, protected, least, most };
        let Followed { count, bytes, problem, blocks } =
            py.detach(|| lists::follow(&mut **self.heap(), &self.image, list, set, collect));
        let problem = problem.map(|(problem, at)| {
            let name = match problem {
                Problem::NotAChunk => "not a chunk",
                Problem::WrongSize => "a chunk of another size",
                Problem::AlreadyFree => "free already (a cycle, or on two lists)",
                Problem::Missing => "not in the dump",
            };
            (name, at)
        });
        (count, bytes, problem, blocks)
    }

    #[pyo3(signature = (to_user, protected, least, most, key))]
    fn release_orphans(
        &self,
        py: Python<'_>,
        to_user: bool,
        protected: bool,
        least: u64,
        most: u64,
        key: Option<u64>,
    ) -> u64 {
        let list = List { head: 0, to_user, protected, least, most };
        py.detach(|| lists::release_orphans(&mut **self.heap(), &self.image, list, key))
    }

    #[pyo3(signature = (bins, progress=None))]
    fn bins(
        &self,
        py: Python<'_>,
        bins: Vec<(u64, u32, u64, u64, bool)>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Bins> {
        let bins: Vec<Bin> = bins
            .into_iter()
            .map(|(head, arena, least, most, sorted)| Bin { head, arena, least, most, sorted })
            .collect();
        watched_over(py, self.bytes, progress.as_ref(), |control| {
            let followed = bins::follow(&**self.heap(), &self.image, &bins, control)?;
            Ok((
                followed.held.iter().map(|h| (h.count, h.bytes)).collect(),
                followed.problem_count,
                followed.problems.iter().map(|p| (p.bin, bin_fault(p.fault), p.at, p.value)).collect(),
            ))
        })
    }

    #[getter]
    fn missing(&self) -> Vec<(u64, u64)> {
        self.heap().found().missing.clone()
    }

    fn release(&self, py: Python<'_>, addresses: Vec<u64>) -> Vec<u64> {
        py.detach(|| self.heap().release(&addresses))
    }

    fn own(&self, py: Python<'_>, values: Vec<u64>, closure: bool) -> PyResult<u64> {
        watched_over(py, self.bytes, None, |control| self.heap().own(&values, closure, control))
    }

    fn take_odd(&self, unaligned: bool, tagged: bool, dead: Ranges) {
        let mut dead = plain(dead);
        dead.sort_unstable();
        self.heap().take_odd(Kinds { unaligned, tagged, dead });
    }

    #[pyo3(signature = (ranges, values, progress=None))]
    fn mark(
        &self,
        py: Python<'_>,
        ranges: Ranges,
        values: Vec<u64>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<(u64, u64)> {
        let ranges = plain(ranges);
        let bytes = self.bytes.saturating_add(bytes_in(&ranges));
        watched_over(py, bytes, progress.as_ref(), |control| {
            let marked = self.heap().mark(&self.image, &ranges, &values, control)?;
            Ok((marked.candidates, marked.reached))
        })
    }

    fn hide_ends(&self, py: Python<'_>) {
        py.detach(|| self.heap().hide_ends());
    }

    fn reveal_ends(&self, py: Python<'_>) -> PyResult<(Vec<u64>, Vec<u64>)> {
        watched_over(py, self.bytes, None, |control| self.heap().reveal_ends(control))
    }

    #[pyo3(signature = (progress=None))]
    fn find_leaks(&self, py: Python<'_>, progress: Option<Bound<'_, PyAny>>) -> PyResult<(u64, u64, u64, u64)> {
        watched_over(py, self.bytes, progress.as_ref(), |control| {
            let t = self.heap().find_leaks(&self.image, control)?;
            Ok((t.direct_count, t.direct_bytes, t.indirect_count, t.indirect_bytes))
        })
    }

    #[pyo3(signature = (ranges, values, barrier, asked, progress=None))]
    fn reached_without(
        &self,
        py: Python<'_>,
        ranges: Ranges,
        values: Vec<u64>,
        barrier: Address,
        asked: Vec<u64>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Vec<bool>> {
        let ranges = plain(ranges);
        watched(py, progress.as_ref(), |control| {
            self.heap().reached_without(&self.image, &ranges, &values, barrier.0, &asked, control)
        })
    }

    #[pyo3(signature = (ranges, dead, wanted, most, progress=None))]
    fn pointers(
        &self,
        py: Python<'_>,
        ranges: Ranges,
        dead: Ranges,
        wanted: Ranges,
        most: usize,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Vec<Vec<u64>>> {
        let (ranges, dead, wanted) = (plain(ranges), plain(dead), address::wanted(wanted)?);
        watched(py, progress.as_ref(), |control| {
            let asked = Asked { ranges: &ranges, dead: &dead, wanted: &wanted, most };
            pointers(&**self.heap(), &self.image, asked, control)
        })
    }

    fn groups(&self, py: Python<'_>) -> Vec<Group> {
        py.detach(|| self.heap().groups().iter().map(|group| Group::new(group, None)).collect())
    }

    fn blocks(&self, py: Python<'_>, states: Vec<u8>, start: Address, most: usize) -> PyResult<Vec<Block>> {
        let states = states.into_iter().map(state).collect::<PyResult<Vec<_>>>()?;
        Ok(py.detach(|| {
            let heap = self.heap();
            heap.blocks(&states, start.0, most)
                .into_iter()
                .map(|found| Block::new(&heap.run(found.0.run), found))
                .collect()
        }))
    }

    fn addresses(
        &self,
        py: Python<'_>,
        states: Vec<u8>,
        start: Address,
        end: Address,
        most: usize,
    ) -> PyResult<Vec<u64>> {
        let states = states.into_iter().map(state).collect::<PyResult<Vec<_>>>()?;
        Ok(py.detach(|| self.heap().addresses(&states, start.0, end.0, most)))
    }

    fn find(&self, address: Address) -> Option<Block> {
        let heap = self.heap();
        let found = heap.find(address.0)?;
        Some(Block::new(&heap.run(found.0.run), found))
    }

    fn untouched(&self, py: Python<'_>, memory: &Untouched, most: usize) -> ([u64; 5], Vec<(u64, u64)>) {
        py.detach(|| memory.inner.in_blocks(&**self.heap(), most))
    }

    #[pyo3(signature = (arena=None))]
    fn sizes(&self, py: Python<'_>, arena: Option<u32>) -> Vec<(u64, u64, u64, u64, u64)> {
        py.detach(|| self.heap().sizes(arena).iter().map(|c| (c.size, c.live, c.free, c.leaked, c.own)).collect())
    }

    #[pyo3(signature = (ranges, named, single, homes, leaves, all_edges=false, progress=None, parts=Vec::new(), selves=Vec::new(), names=None))]
    #[allow(clippy::too_many_arguments)]
    fn find_owners(
        &self,
        py: Python<'_>,
        ranges: Ranges,
        named: Vec<AreaRow>,
        single: Vec<Value>,
        homes: Vec<HomeRow>,
        mut leaves: Vec<u64>,
        all_edges: bool,
        progress: Option<Bound<'_, PyAny>>,
        parts: Vec<AreaRow>,
        selves: Vec<Value>,
        names: Option<PyRef<'_, PythonNames>>,
    ) -> PyResult<()> {
        let (parts, selves) = (areas(parts)?, values(selves));
        let names = names.map(|one| (one.inner.clone(), one.blocks.clone()));
        let (ranges, named, single, homes) = (plain(ranges), areas(named)?, values(single), homes_of(homes));
        leaves.sort_unstable();
        watched(py, progress.as_ref(), |control| {
            let (homes, leaves) = (&homes[..], &leaves[..]);
            let (borrowed, proven) = names.as_ref().map_or((&[][..], &[][..]), |one| (&one.0.borrowed, &one.1));
            let (parts, selves) = (&parts[..], &selves[..]);
            let (ranges, areas, values) = (&ranges[..], &named[..], &single[..]);
            let roots = Named { ranges, areas, values, homes, leaves, parts, selves, borrowed, proven, all_edges };
            self.heap().find_owners(&self.image, roots, control)
        })
    }

    fn edges_set_aside(&self) -> u64 {
        self.heap().owners().map_or(0, |owners| owners.left_over)
    }

    fn many_roots(&self) -> Vec<u32> {
        self.heap().owners().map_or(Vec::new(), |owners| owners.many.clone())
    }

    fn owner_lines(&self, py: Python<'_>) -> Vec<(u32, Option<Vec<u32>>, u64, u64)> {
        let lines = py.detach(|| self.heap().owner_lines());
        lines.into_iter().map(|line| (line.set, line.roots, line.count, line.bytes)).collect()
    }

    fn owners_above(&self, address: Address, most: usize) -> Option<(Vec<KeptRow>, u32)> {
        let (found, set) = self.heap().owners_above(address.0, most)?;
        Some((found.iter().map(|kept| (kept.address, kept.size, kept.count, kept.bytes)).collect(), set))
    }

    fn largest(&self, py: Python<'_>, within: Scope, most: usize) -> PyResult<Vec<KeptRow>> {
        let within = scope(within)?;
        let found = py.detach(|| self.heap().largest(within, most));
        Ok(found.iter().map(|kept| (kept.address, kept.size, kept.count, kept.bytes)).collect())
    }

    fn addresses_in(&self, py: Python<'_>, within: Scope, start: Address, most: usize) -> PyResult<Vec<u64>> {
        let within = scope(within)?;
        Ok(py.detach(|| self.heap().addresses_in(within, start.0, most)))
    }

    fn spread_in(&self, py: Python<'_>, within: Scope, start: Address, size: u64, most: usize) -> PyResult<Vec<u64>> {
        let within = scope(within)?;
        Ok(py.detach(|| self.heap().spread(within, (start.0, size), most)))
    }

    fn held_by_words(&self, py: Python<'_>, address: Address, most: u64) -> Vec<(u64, KeptRow)> {
        let found = py.detach(|| self.heap().held_by_words(&self.image, address.0, most));
        found.iter().map(|(at, kept)| (*at, (kept.address, kept.size, kept.count, kept.bytes))).collect()
    }

    fn led_to(
        &self,
        py: Python<'_>,
        by: Address,
        without: Vec<u64>,
        step: usize,
        sizes: Vec<u64>,
        words: u64,
    ) -> PyResult<Vec<(u64, u64)>> {
        let held = Held { by: by.0, without: &without, step, words };
        watched(py, None, |control| self.heap().led_to(&self.image, held, &sizes, control))
    }

    #[pyo3(signature = (within, ranges, progress=None))]
    fn alike(
        &self,
        py: Python<'_>,
        within: Scope,
        ranges: Ranges,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Vec<(u64, u64, u64, u64)>> {
        let (within, ranges) = (scope(within)?, plain(ranges));
        watched(py, progress.as_ref(), |control| {
            let found = self.heap().alike(&self.image, within, &ranges, control)?;
            Ok(found.iter().map(|kind| (kind.first_word, kind.size, kind.count, kind.example)).collect())
        })
    }

    #[pyo3(signature = (ranges, named, single, root, address, progress=None, parts=Vec::new()))]
    fn path<'py>(
        &self,
        py: Python<'py>,
        ranges: Ranges,
        named: Vec<AreaRow>,
        single: Vec<Value>,
        root: Option<u32>,
        address: Address,
        progress: Option<Bound<'_, PyAny>>,
        parts: Vec<AreaRow>,
    ) -> PyResult<Option<Path<'py>>> {
        let (ranges, named, single, parts) = (plain(ranges), areas(named)?, values(single), areas(parts)?);
        let found = watched(py, progress.as_ref(), |control| {
            let roots = Named { ranges: &ranges, areas: &named, values: &single, parts: &parts, ..Named::default() };
            self.heap().path(&self.image, roots, root, address.0, control)
        })?;
        Ok(found.map(|(origin, blocks)| {
            let bytes: Vec<u8> = blocks.iter().flat_map(|block| block.to_ne_bytes()).collect();
            let blocks = PyBytes::new(py, &bytes);
            match origin {
                Origin::Memory(at, root) => ("memory", at, root, blocks),
                Origin::Value(index, root) => ("value", index as u64, root, blocks),
                Origin::Leak => ("leak", 0, 0, blocks),
            }
        }))
    }
}
