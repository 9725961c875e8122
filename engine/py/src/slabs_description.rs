use dmods_engine::kernel::slabs::layout::{Bits, Cache, Guarded, Sheaves, SlabLayout};
use dmods_engine::kernel::slabs::tracks::TrackLayout;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct SheavesArgument {
    of_cpu: Vec<u64>,
    of_barn: Vec<u64>,
    list: u64,
    cache: u64,
    size: u64,
    objects: u64,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct CacheArgument {
    address: u64,
    size: u32,
    object_size: u32,
    inuse: u32,
    offset: u32,
    red_left: u32,
    scanned: u32,
    random: Option<u64>,
    cpu_slab: u64,
    cpu_sheaves: u64,
    barns: Vec<u64>,
    track: u32,
    red_zone: bool,
    poison: bool,
    padded: bool,
    rest: bool,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct SlabsArgument {
    cache: usize,
    freelist: usize,
    inuse: (usize, u32, u32),
    objects: (usize, u32, u32),
    direct_map: u64,
    cpus: Vec<u64>,
    pub code: Vec<(u64, u64)>,
    cpu_freelist: Option<u64>,
    sheaves: Option<SheavesArgument>,
    track: Option<(u32, u32, u32, u32, u32, u32, u32)>,
    caches: Vec<CacheArgument>,
    guarded: Vec<(u64, u32, bool)>,
    pub ignored: Vec<u64>,
    pub unread: Vec<(u64, u64)>,
}

fn bits((word, shift, width): (usize, u32, u32)) -> Bits {
    Bits { word, shift, width }
}

fn guarded(rows: Vec<(u64, u32, bool)>) -> Vec<Guarded> {
    let mut found: Vec<_> = rows.into_iter().map(|(pfn, cache, free)| Guarded { pfn, cache, free }).collect();
    found.sort_unstable_by_key(|one| one.pfn);
    found
}

pub type Description = (SlabLayout, TrackLayout, Vec<Cache>);

/// Checks and converts what Python says.
pub fn description(a: SlabsArgument, page: usize) -> PyResult<Description> {
    let layout = SlabLayout {
        cache: a.cache,
        freelist: a.freelist,
        inuse: bits(a.inuse),
        objects: bits(a.objects),
        direct_map: a.direct_map,
        cpus: a.cpus,
        cpu_freelist: a.cpu_freelist,
        sheaves: a.sheaves.map(|s| Sheaves {
            of_cpu: s.of_cpu,
            of_barn: s.of_barn,
            list: s.list,
            cache: s.cache,
            size: s.size,
            objects: s.objects,
        }),
        guarded: guarded(a.guarded),
    };
    let words = [layout.cache, layout.freelist, layout.inuse.word, layout.objects.word];
    if words.iter().any(|offset| offset % 8 != 0 || offset + 8 > page) {
        return Err(PyValueError::new_err("a word of struct slab lies outside struct page"));
    }
    let (size, addr, stack, stack_bytes, cpu, pid, when) = a.track.unwrap_or_default();
    let track = TrackLayout { size, addr, stack, stack_bytes, cpu, pid, when };
    if size != 0 && !track.is_sane() {
        return Err(PyValueError::new_err("a member of struct track lies outside it"));
    }
    let caches = a.caches.into_iter().map(|c| Cache {
        address: c.address,
        size: c.size,
        object_size: c.object_size,
        inuse: c.inuse,
        offset: c.offset,
        red_left: c.red_left,
        scanned: c.scanned,
        random: c.random,
        cpu_slab: c.cpu_slab,
        cpu_sheaves: c.cpu_sheaves,
        barns: c.barns,
        track: c.track,
        red_zone: c.red_zone,
        poison: c.poison,
        padded: c.padded,
        rest: c.rest,
    });
    let caches: Vec<Cache> = caches.collect();
    if !caches.iter().all(Cache::is_sane) {
        return Err(PyValueError::new_err("the numbers of a slab cache are not possible"));
    }
    Ok((layout, track, caches))
}
