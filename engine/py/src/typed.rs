//! Types from debug information: what Python gives and gets.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use dmods_engine::contents::Sum;
use dmods_engine::dwarf::model::Id;
use dmods_engine::dwarf::{DebugTypes, Folder, FrameAt, Place};
use dmods_engine::graph::sums::Next;
use dmods_engine::typed::blocks::{Claim, Shape};
use dmods_engine::typed::build::{build, Request, Root, TypeGraph as Built};
use dmods_engine::typed::count::{Alike, Counted};
use dmods_engine::typed::names::part;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::address::{plain, Address, Ranges};
use crate::graph::Kinds;
use crate::graph_rows::SumRow;
use crate::heap_rows::{state, Group};
use crate::image::Image;
use crate::marks::Marks;
use crate::owner_rows::{scope, Scope};
use crate::owners::Owners;
use crate::records::Records;
use crate::typed_rows::{text_of, ClaimRow};
use crate::watch::watched;

type Local = (String, String, Option<u64>, u64, Option<u16>, Option<String>);
/// A group of direct leaks, with its type where it has no kind.
type NamedGroup = (Group, Option<(String, &'static str)>);
type AlikeRow = (Option<u32>, Option<String>, u64, u64, u64);
/// Objects in pools: their type, whether their contents alone prove it, their sum.
type PooledRow = (String, bool, SumRow);
/// Type, count, bytes, distance or 0.
type InPool = (String, u64, u64, u64);
/// See `object` in `_engine.pyi`.
type ObjectRow = (u64, u64, String, u64, u64, u16, String);
type TypeRow = (u32, u8, u8, &'static str, String, SumRow);

/// Types of blocks from debug information. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct TypeGraph {
    state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) debug: DebugTypes,
    pub(crate) roots: Vec<Root>,
    built: Option<Built>,
}

impl TypeGraph {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[pymethods]
impl TypeGraph {
    #[new]
    #[pyo3(signature = (word, folder=None, at_least=0))]
    fn new(word: u64, folder: Option<PathBuf>, at_least: u64) -> Self {
        let folder = folder.map(|path| Folder { path, at_least });
        let state = State { debug: DebugTypes::new(word, folder), roots: Vec::new(), built: None };
        TypeGraph { state: Mutex::new(state) }
    }

    fn open(
        &self,
        py: Python<'_>,
        path: Option<PathBuf>,
        debug_roots: Vec<PathBuf>,
        build_id: Option<Vec<u8>>,
        bias: i128,
    ) -> PyResult<Option<usize>> {
        watched(py, None, |_| Ok(self.lock().debug.open(path, debug_roots, build_id, bias as u64)))
    }

    #[getter]
    fn problems(&self) -> Vec<String> {
        self.lock().debug.problems()
    }

    /// Returns the work that the parser of debug information did.
    #[getter]
    fn parsing_work(&self) -> u64 {
        self.lock().debug.parsing_work()
    }

    fn add_variables(&self, py: Python<'_>, module: usize, thread_local: Vec<u64>) -> PyResult<(usize, usize)> {
        watched(py, None, |_| {
            let mut state = self.lock();
            let found = state.debug.variables(module);
            let (count, mut left_out) = (found.len(), 0);
            for variable in found {
                match variable.place {
                    Place::Thread(offset) => {
                        left_out += usize::from(thread_local.is_empty());
                        for base in &thread_local {
                            let mut one = variable.clone();
                            one.place = Place::At(base.wrapping_add(offset));
                            state.roots.push(Root { variable: one, local: false });
                        }
                    }
                    _ => state.roots.push(Root { variable, local: false }),
                }
            }
            Ok((count, left_out))
        })
    }

    fn needs_line(&self, py: Python<'_>, module: usize, pc: Address) -> PyResult<bool> {
        watched(py, None, |_| Ok(self.lock().debug.needs_line(module, pc.0)))
    }

    fn add_frame(
        &self,
        py: Python<'_>,
        image: &Image,
        module: usize,
        pc: Address,
        cfa: Option<Address>,
        registers: HashMap<u16, u64>,
        line: Option<u64>,
    ) -> PyResult<Vec<Local>> {
        let frame = FrameAt { pc: pc.0, cfa: cfa.map(|cfa| cfa.0), registers, line };
        let image = image.inner.clone();
        watched(py, None, |_| {
            let mut state = self.lock();
            let mut read = |address: u64, size: u8| {
                matches!(size, 1 | 2 | 4 | 8).then(|| image.word(address, usize::from(size)))?
            };
            let found = state.debug.locals(module, &frame, &mut read);
            let mut out = Vec::new();
            for variable in found {
                let at = match variable.place {
                    Place::At(at) => Some(at),
                    Place::Value(_) => None,
                    Place::Thread(_) => continue,
                };
                let size = state.debug.types.size(variable.kind);
                let kind = state.debug.types.text(variable.kind);
                out.push((variable.name.clone(), kind, at, size, variable.register, variable.function.clone()));
                state.roots.push(Root { variable, local: true });
            }
            Ok(out)
        })
    }

    #[pyo3(signature = (marks, memory, taught, untyped, managed, strange, progress=None))]
    fn build(
        &self,
        py: Python<'_>,
        marks: &Marks,
        memory: Ranges,
        taught: Vec<(u64, u32)>,
        untyped: Vec<u64>,
        managed: Vec<(u64, u32)>,
        strange: Vec<u32>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let blocks = marks.blocks()?;
        let mut memory = plain(memory);
        memory.sort_unstable();
        watched(py, progress.as_ref(), |control| {
            let locked = blocks.lock();
            let mut state = self.lock();
            let State { debug, roots, built } = &mut *state;
            let request = Request {
                heap: &**locked,
                image: &blocks.image,
                memory: &memory,
                roots,
                taught: &taught,
                untyped: &untyped,
                managed: &managed,
                strange: &strange,
                sample: None,
            };
            *built = Some(build(&request, debug, control)?);
            Ok(())
        })
    }

    /// Returns the types of a name: (number, text, size).
    fn find(&self, py: Python<'_>, name: &str) -> PyResult<Vec<(Id, String, u64)>> {
        watched(py, None, |_| {
            let mut state = self.lock();
            let found = state.debug.find(name);
            let types = &state.debug.types;
            let mut out: Vec<(Id, String, u64)> = Vec::new();
            for id in found.into_iter().map(|id| types.bare(id)) {
                if out.iter().all(|&(other, ..)| other != id) {
                    out.push((id, types.text(id), types.size(id)));
                }
            }
            Ok(out)
        })
    }

    /// Returns what is said of the block that begins at an address.
    fn at(&self, marks: &Marks, address: u64) -> PyResult<Option<ClaimRow>> {
        let blocks = marks.blocks()?;
        let locked = blocks.lock();
        let state = self.lock();
        let (Some((block, ..)), Some(built)) = (locked.find(address), &state.built) else { return Ok(None) };
        let claim = built.table.of(&**locked, block.granule);
        Ok(claim.is_some().then(|| ClaimRow::new(&state.debug, &claim)))
    }

    /// Returns the name of the part of a block's object at an offset in the block: ".next".
    fn field(&self, marks: &Marks, address: u64, offset: u64) -> PyResult<Option<String>> {
        let blocks = marks.blocks()?;
        let locked = blocks.lock();
        let state = self.lock();
        let (Some((block, ..)), Some(built)) = (locked.find(address), &state.built) else { return Ok(None) };
        let claim = built.table.of(&**locked, block.granule);
        if !claim.is_some() || claim.disputed {
            return Ok(None);
        }
        let types = &state.debug.types;
        let Some(mut at) = offset.checked_sub(u64::from(claim.skip)) else { return Ok(None) };
        let size = types.size(claim.kind);
        let mut out = String::new();
        if claim.shape == Shape::Many && size > 0 {
            out = format!("[{}]", at / size);
            at %= size;
        }
        out.push_str(&part(types, claim.kind, at));
        Ok(Some(out))
    }

    fn object(&self, address: u64) -> Option<ObjectRow> {
        let state = self.lock();
        let (at, object) = state.built.as_ref()?.pools.at(address)?;
        let types = &state.debug.types;
        let field = part(types, object.kind, address - at);
        Some((at, object.size, types.text(object.kind), types.size(object.kind), object.from, object.proofs, field))
    }

    fn pool(&self, marks: &Marks, address: u64) -> PyResult<Vec<InPool>> {
        let blocks = marks.blocks()?;
        let locked = blocks.lock();
        let state = self.lock();
        let (Some(found), Some(built)) = (locked.find(address), &state.built) else { return Ok(Vec::new()) };
        Ok(built.pools.contents(found.0.address, found.0.size, |kind| state.debug.types.text(kind)))
    }

    /// Returns the variable that holds an address, and the part of it there: "server.db".
    fn variable(&self, address: u64) -> Option<(String, bool)> {
        let state = self.lock();
        let types = &state.debug.types;
        let mut best: Option<(u64, String, bool)> = None;
        for root in &state.roots {
            let Place::At(start) = root.variable.place else { continue };
            let size = types.size(root.variable.kind);
            if start <= address && address - start < size.max(1) && best.as_ref().is_none_or(|best| size < best.0) {
                let name = format!("{}{}", root.variable.name, part(types, root.variable.kind, address - start));
                best = Some((size, name, root.local));
            }
        }
        best.map(|(_, name, local)| (name, local))
    }

    /// What was done: addresses that were looked up, reads of memory, places in objects that were looked at, and
    /// blocks and pointers that were taken from lists.
    #[getter]
    fn work(&self) -> (u64, u64, u64, u64) {
        let work = self.lock().built.as_ref().map_or_else(Default::default, |built| built.work);
        (work.looked_up, work.read, work.steps, work.taken)
    }

    /// Returns whether not all pointers were followed, because there were too many.
    #[getter]
    fn exhausted(&self) -> bool {
        self.lock().built.as_ref().is_some_and(|built| built.exhausted)
    }

    fn conflicts(&self) -> (u64, Vec<(u64, ClaimRow, ClaimRow)>) {
        let state = self.lock();
        let Some(built) = &state.built else { return (0, Vec::new()) };
        let row = |claim: &Claim| ClaimRow::new(&state.debug, claim);
        let rows = built.conflicts.iter().map(|one| (one.address, row(&one.kept), row(&one.other)));
        (built.conflict_count, rows.collect())
    }

    fn sums(
        &self,
        py: Python<'_>,
        kinds: PyRef<'_, Kinds>,
        index: usize,
        marks: &Marks,
    ) -> PyResult<(Vec<SumRow>, Vec<TypeRow>, Vec<PooledRow>)> {
        let blocks = marks.blocks()?;
        let kinds = &*kinds;
        kinds.check(index)?;
        let (by_kind, by_type, pooled) = watched(py, None, |control| {
            let locked = blocks.lock();
            let state = self.lock();
            let view = kinds.view(index, &**locked);
            state.built.as_ref().map_or(Ok(Default::default()), |built| built.sums(&view, control))
        })?;
        let state = self.lock();
        let row = |((id, shape, rank), sum): ((Id, Shape, _), Sum)| {
            let claim = Claim { kind: id, shape, rank, ..Claim::default() };
            let text = text_of(&state.debug, &claim);
            (id, shape as u8, rank as u8, claim.evidence(), text, SumRow::new(&sum))
        };
        let pooled = pooled
            .into_iter()
            .map(|((id, proven), sum)| (state.debug.types.text(id), proven, SumRow::new(&sum)))
            .collect();
        Ok((by_kind.iter().map(SumRow::new).collect(), by_type.into_iter().map(row).collect(), pooled))
    }

    fn asked(
        &self,
        py: Python<'_>,
        kinds: PyRef<'_, Kinds>,
        index: usize,
        marks: &Marks,
        records: Vec<PyRef<'_, Records>>,
        sizes: Vec<u64>,
    ) -> PyResult<Vec<(u64, u64)>> {
        let blocks = marks.blocks()?;
        let kinds = &*kinds;
        kinds.check(index)?;
        let records: Vec<_> = records.iter().map(|one| one.inner()).collect();
        watched(py, None, |control| {
            let locked = blocks.lock();
            let state = self.lock();
            let view = kinds.view(index, &**locked);
            state.built.as_ref().map_or(Ok(Vec::new()), |built| built.asked(&view, &records, &sizes, control))
        })
    }

    /// Returns what the blocks of each group keep alive. `groups` has the group of each kind, `types` of each type.
    fn retained(
        &self,
        py: Python<'_>,
        kinds: PyRef<'_, Kinds>,
        index: usize,
        owners: &Owners,
        groups: Vec<u32>,
        types: Vec<(Id, bool, u32)>,
        count: usize,
    ) -> PyResult<Vec<(u64, u64)>> {
        let (blocks, found) = (&owners.blocks, &owners.inner);
        let kinds = &*kinds;
        kinds.check(index)?;
        if groups.iter().chain(types.iter().map(|(_, _, group)| group)).any(|&group| group as usize >= count) {
            return Err(PyValueError::new_err("there is no group of that number"));
        }
        let types: HashMap<(Id, bool), u32> = types.into_iter().map(|(id, many, group)| ((id, many), group)).collect();
        watched(py, None, |control| {
            let locked = blocks.lock();
            let view = kinds.view(index, &**locked);
            let state = self.lock();
            let Some(built) = &state.built else { return Ok(vec![(0, 0); count]) };
            built.retained(&view, found, (&groups, &types), count, control)
        })
    }

    /// Returns the direct leaks by kind or type, and size: the group, and the type.
    fn groups(
        &self,
        py: Python<'_>,
        kinds: PyRef<'_, Kinds>,
        index: usize,
        marks: &Marks,
    ) -> PyResult<Vec<NamedGroup>> {
        let blocks = marks.blocks()?;
        let kinds = &*kinds;
        kinds.check(index)?;
        let groups = watched(py, None, |control| {
            let locked = blocks.lock();
            let view = kinds.view(index, &**locked);
            let state = self.lock();
            state.built.as_ref().map_or(Ok(Vec::new()), |built| built.groups(&view, control))
        })?;
        let state = self.lock();
        let rows = groups.into_iter().map(|(g, counted)| match counted {
            Counted::Kind(kind) => (Group::new(&g, Some(kind)), None),
            Counted::Type((kind, shape, rank)) => {
                let claim = Claim { kind, shape, rank, ..Claim::default() };
                (Group::new(&g, None), Some((text_of(&state.debug, &claim), claim.evidence())))
            }
        });
        Ok(rows.collect())
    }

    /// Returns the blocks of a scope by type and size: (type, first word, size, count, example).
    fn in_scope(
        &self,
        py: Python<'_>,
        kinds: PyRef<'_, Kinds>,
        index: usize,
        owners: &Owners,
        scope: Scope,
    ) -> PyResult<Vec<AlikeRow>> {
        let (blocks, found) = (&owners.blocks, &owners.inner);
        let (kinds, scope) = (&*kinds, self::scope(scope)?);
        kinds.check(index)?;
        let rows = watched(py, None, |control| {
            let locked = blocks.lock();
            let view = kinds.view(index, &**locked);
            let state = self.lock();
            let Some(built) = &state.built else { return Ok(Vec::new()) };
            built.in_scope(&view, found, scope, control)
        })?;
        let state = self.lock();
        let row = |one: &Alike| {
            let (kind, text) = match one.counted {
                Counted::Kind(kind) => (Some(kind), None),
                Counted::Type((kind, shape, _)) => {
                    (None, Some(text_of(&state.debug, &Claim { kind, shape, ..Claim::default() })))
                }
            };
            (kind, text, one.size, one.count, one.example)
        };
        Ok(rows.iter().map(row).collect())
    }

    fn addresses(
        &self,
        py: Python<'_>,
        kinds: PyRef<'_, Kinds>,
        index: usize,
        marks: &Marks,
        wanted_kinds: Vec<u32>,
        wanted_types: Vec<(u32, bool)>,
        states: Vec<u8>,
        start: (usize, u64),
        most: usize,
    ) -> PyResult<(Vec<u64>, Option<Next>)> {
        let blocks = marks.blocks()?;
        let kinds = &*kinds;
        kinds.check(index)?;
        let states = states.into_iter().map(state).collect::<PyResult<Vec<_>>>()?;
        watched(py, None, |control| {
            let locked = blocks.lock();
            let view = kinds.view(index, &**locked);
            let state = self.lock();
            let Some(built) = &state.built else { return Ok((Vec::new(), None)) };
            built.addresses(&view, (&wanted_kinds, &wanted_types), &states, start, most, control)
        })
    }
}

impl Kinds {
    pub(crate) fn check(&self, index: usize) -> PyResult<()> {
        match self.has(index) {
            true => Ok(()),
            false => Err(PyValueError::new_err("there is no census of that number")),
        }
    }
}
