//! The types of leaks in a large heap: what Python gives and gets.

use dmods_engine::dwarf::DebugTypes;
use dmods_engine::typed::blocks::Claim;
use dmods_engine::typed::build::{build, Request};
use dmods_engine::typed::count::Counted;
use dmods_engine::typed::sampled_groups::NamedGroup;
use pyo3::prelude::*;

use crate::address::{plain, Ranges};
use crate::graph::Kinds;
use crate::heap_rows::Group;
use crate::marks::Marks;
use crate::typed::{State, TypeGraph};
use crate::typed_rows::text_of;
use crate::watch::watched;

/// A group of direct leaks, its type and the evidence where it has no kind, and whether only some blocks were looked at.
type SampledRow = (Group, Option<(String, &'static str)>, bool);
/// See `work` in `_engine.pyi`.
type WorkRow = (u64, u64, u64, u64);

#[pyfunction]
#[pyo3(signature = (graph, kinds, index, marks, memory, taught, untyped, managed, strange, progress=None))]
pub fn sampled_leaks(
    py: Python<'_>,
    graph: &TypeGraph,
    kinds: PyRef<'_, Kinds>,
    index: usize,
    marks: &Marks,
    memory: Ranges,
    taught: Vec<(u64, u32)>,
    untyped: Vec<u64>,
    managed: Vec<(u64, u32)>,
    strange: Vec<u32>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<(Vec<SampledRow>, WorkRow)> {
    let blocks = marks.blocks()?;
    let kinds = &*kinds;
    kinds.check(index)?;
    let mut memory = plain(memory);
    memory.sort_unstable();
    watched(py, progress.as_ref(), |control| {
        let locked = blocks.lock();
        let view = kinds.view(index, &**locked);
        let sampled = view.sampled_groups(control)?;
        let mut asked: Vec<u64> = sampled.iter().flat_map(|one| &one.blocks).map(|found| found.block.address).collect();
        asked.sort_unstable();
        let mut state = graph.lock();
        let State { debug, roots, .. } = &mut *state;
        let request = Request {
            heap: &**locked,
            image: &blocks.image,
            memory: &memory,
            roots,
            taught: &taught,
            untyped: &untyped,
            managed: &managed,
            strange: &strange,
            sample: Some(&asked),
        };
        let built = build(&request, debug, control)?;
        let groups = built.sampled_groups(&view, &sampled);
        let work = built.work;
        let work = (work.looked_up, work.read, work.steps, work.taken);
        Ok((groups.iter().map(|one| row(debug, one)).collect(), work))
    })
}

fn row(debug: &DebugTypes, one: &NamedGroup) -> SampledRow {
    match one.counted {
        Counted::Kind(kind) => (Group::new(&one.group, Some(kind)), None, one.sampled),
        Counted::Type((kind, shape, rank)) => {
            let claim = Claim { kind, shape, rank, ..Claim::default() };
            (Group::new(&one.group, None), Some((text_of(debug, &claim), claim.evidence())), one.sampled)
        }
    }
}
