use std::sync::Arc;

use dmods_engine::allocators::pymalloc::{self, search, Problem, Sizes};
use pyo3::prelude::*;

use crate::address::{plain, Ranges};
use crate::image::Image;
use crate::slots::Slots;
use crate::watch::watched;

/// The arenas and pools of CPython. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Pymalloc {
    heap: pymalloc::Heap,
    slots: Arc<dmods_engine::blocks::slots::Slots>,
    strays: usize,
}

#[pymethods]
impl Pymalloc {
    #[new]
    #[pyo3(signature = (image, memory, places, arena, pool, progress=None))]
    fn new(
        py: Python<'_>,
        image: &Image,
        memory: Ranges,
        places: Vec<Ranges>,
        arena: u32,
        pool: u32,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (image, memory) = (image.inner.clone(), plain(memory));
        let places: Vec<Vec<(u64, u64)>> = places.into_iter().map(plain).collect();
        let pool = u64::from(pool).next_power_of_two().clamp(4096, 1 << 20);
        let sizes = Sizes { arena: u64::from(arena).max(pool), pool };
        let (mut heap, strays) = watched(py, progress.as_ref(), |control| {
            let mut pools = search::pools(&image, &memory, sizes, control);
            let mut arrays = std::collections::BTreeSet::new();
            let mut heap = pymalloc::Heap::default();
            for place in &places {
                if pools.is_empty() {
                    break;
                }
                arrays.append(&mut search::arrays(&image, place, &pools, sizes, control));
                let all: Vec<u64> = arrays.iter().copied().collect();
                heap = pymalloc::read(&image, &all, &memory, sizes, control);
                let known = |at: u64| {
                    let next = heap.arenas.partition_point(|arena| arena.end <= at);
                    heap.arenas.get(next).is_some_and(|arena| arena.start <= at)
                };
                for list in pools.values_mut() {
                    list.retain(|&at| !known(at));
                }
                pools.retain(|_, list| !list.is_empty());
            }
            Ok((heap, pools.values().map(Vec::len).sum::<usize>()))
        })?;
        let slots = Arc::new(std::mem::take(&mut heap.slots));
        Ok(Pymalloc { heap, slots, strays })
    }

    #[getter]
    fn slots(&self) -> Slots {
        Slots { inner: self.slots.clone() }
    }

    /// Pools that were found and are in no arena.
    #[getter]
    fn strays(&self) -> usize {
        self.strays
    }

    #[getter]
    fn arenas(&self) -> Vec<(u64, u64, u32, u32)> {
        self.heap.arenas.iter().map(|arena| (arena.start, arena.end, arena.pools, arena.used)).collect()
    }

    #[getter]
    fn problems(&self) -> Vec<(&'static str, u64)> {
        let name = |problem| match problem {
            Problem::Pool => "pool",
            Problem::FreePools => "free pools",
            Problem::Missing => "missing",
        };
        self.heap.problems.iter().map(|&(problem, at)| (name(problem), at)).collect()
    }

    #[getter]
    fn unknown(&self) -> Vec<(u64, u64)> {
        self.heap.unknown.clone()
    }

    #[getter]
    fn classes(&self) -> Vec<(u64, u64, u64)> {
        self.heap.classes.clone()
    }
}
