use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use dmods_engine::kernel::identity::REMEMBERED;
use dmods_engine::kernel::layout::Layout;
use dmods_engine::kernel::page_tables::Tables;
use dmods_engine::kernel::scan::{Counts, Scan};
use dmods_engine::kernel::slabs::check::{check, Zone};
use dmods_engine::kernel::slabs::freelists::{Fault, States};
use dmods_engine::kernel::slabs::heads::Heads;
use dmods_engine::kernel::slabs::holders::holders;
use dmods_engine::kernel::slabs::reserves::Reserves;
use dmods_engine::kernel::slabs::sweep::Memory;
use dmods_engine::kernel::slabs::table::{Node, Table};
use dmods_engine::kernel::slabs::tracks::{Track, TrackLayout, Tracks, ALLOCATED, FREE};
use dmods_engine::kernel::virtual_memory::VirtualMemory;
use dmods_engine::kernel::Kind;
use dmods_engine::{Control, Stopped};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::address::{Address, Ranges};
use crate::kernel::{counts_dict, sorted, Memmap, Physical};
use crate::slabs_description::{description, SlabsArgument};
use crate::slabs_rows::{
    cache_of, group_row, track_row, CacheRow, FaultRow, Found, GroupRow, HolderRow, LeakRow, MatchRow, ObjectRow,
    Overwritten, Pattern, RecordRow, TrackRow,
};
use crate::watch::watched;

/// All slab objects of a kernel. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Slabs {
    pub(crate) physical: Py<Physical>,
    tables: Tables,
    layout: Layout,
    ranges: Vec<(u64, u64)>,
    code: Vec<(u64, u64)>,
    ignored: Vec<u64>,
    unread: Vec<(u64, u64)>,
    kinds: Vec<u8>,
    track: TrackLayout,
    pub(crate) table: Table,
    pub(crate) reserves: Reserves,
    pub counts: Counts,
    pub(crate) states: Mutex<Option<Arc<States>>>,
    pub(crate) found: Mutex<Option<Arc<Found>>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

fn no_memory() -> Stopped {
    Stopped::NoMemory(std::io::ErrorKind::OutOfMemory.into())
}

pub(crate) fn stopped(control: &Control) -> Result<(), Stopped> {
    if control.cancelled() {
        Err(Stopped::Cancelled)
    } else {
        Ok(())
    }
}

impl Slabs {
    pub(crate) fn work<T: Send>(
        &self,
        py: Python<'_>,
        progress: Option<Bound<'_, PyAny>>,
        work: impl FnOnce(&mut VirtualMemory, &Control) -> Result<T, Stopped> + Send,
    ) -> PyResult<T> {
        let physical = self.physical.get();
        let answer = watched(py, progress.as_ref(), |control| {
            work(&mut VirtualMemory::new(&*physical.inner, self.tables), control)
        });
        physical.check()?;
        answer
    }

    /// Returns the states by freelists alone, or by the search for leaks where there was one.
    fn states(&self, py: Python<'_>) -> PyResult<Arc<States>> {
        if let Some(states) = &*lock(&self.states) {
            return Ok(states.clone());
        }
        let made = self.work(py, None, |space, control| {
            States::new(&self.table, &self.reserves, space.physical, control).map(Arc::new)
        })?;
        Ok(lock(&self.states).get_or_insert(made).clone())
    }

    pub(crate) fn memory<'a>(&'a self, registers: &'a [u64]) -> Memory<'a> {
        Memory {
            layout: &self.layout,
            ranges: &self.ranges,
            kinds: &self.kinds,
            registers,
            code: &self.code,
            ignored: &self.ignored,
            unread: &self.unread,
        }
    }

    fn tracks<'a>(&'a self, physical: &'a dyn dmods_engine::kernel::physical::Physical) -> Tracks<'a> {
        Tracks { table: &self.table, layout: self.track, physical }
    }

    pub(crate) fn found(&self) -> PyResult<Arc<Found>> {
        lock(&self.found).clone().ok_or_else(|| PyValueError::new_err("find_leaks() comes first"))
    }
}

#[pymethods]
impl Slabs {
    /// Makes the table, in one pass over the page array.
    #[new]
    #[pyo3(signature = (memmap, ranges, description, remember = REMEMBERED, progress = None))]
    fn new(
        py: Python<'_>,
        memmap: &Memmap,
        ranges: Ranges,
        mut description: SlabsArgument,
        remember: usize,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Slabs> {
        let (ranges, layout) = (sorted(ranges)?, &memmap.layout);
        let code = std::mem::take(&mut description.code);
        let mut ignored = std::mem::take(&mut description.ignored);
        ignored.sort_unstable();
        let unread = std::mem::take(&mut description.unread);
        let (slab_layout, track, caches) = self::description(description, layout.size)?;
        let physical = memmap.physical.get();
        let listed = lock(&memmap.listed);
        let guess = !layout.types.iter().any(|(_, _, kind)| *kind == Kind::LargeKmalloc);
        let made = watched(py, progress.as_ref(), |control| {
            let mut kinds = Vec::new();
            let pages: u64 = ranges.iter().map(|(start, end)| end - start).sum();
            kinds.try_reserve_exact(usize::try_from(pages).unwrap_or(usize::MAX)).map_err(|_| no_memory())?;
            let mut space = VirtualMemory::new(&*physical.inner, memmap.tables);
            let mut heads = Heads::new(&slab_layout);
            let scan = Scan::new(layout, &listed, &mut space, remember, Some(&mut kinds)).with_heads(&mut heads);
            let counts = scan.run(&ranges, control);
            // kmalloc gives whole pages above two (KMALLOC_MAX_CACHE_SIZE, include/linux/slab.h).
            let is_large = |head: &dmods_engine::kernel::slabs::heads::Head| {
                head.kind == Kind::LargeKmalloc || (guess && head.pages >= 4)
            };
            let table = Table::new(&heads.found, caches, &slab_layout, layout.page_bits, is_large);
            let reserves = Reserves::read(&table, &slab_layout, &mut space, control);
            stopped(control)?;
            Ok((kinds, counts, table, reserves))
        });
        physical.check()?;
        let (kinds, counts, table, reserves) = made?;
        Ok(Slabs {
            tables: memmap.tables,
            layout: layout.clone(),
            ranges,
            code,
            ignored,
            unread,
            kinds,
            track,
            table,
            reserves,
            counts,
            states: Mutex::default(),
            found: Mutex::default(),
            physical: memmap.physical.clone_ref(py),
        })
    }

    fn caches(&self) -> Vec<CacheRow> {
        let table = &self.table;
        let mut rows: Vec<CacheRow> = (0..table.caches.len())
            .map(|i| (0, table.pages[i], 0, 0, self.reserves.counts[i], self.reserves.cut[i]))
            .collect();
        for slab in &table.slabs[..table.slab_count] {
            let row = &mut rows[slab.cache as usize];
            row.0 += 1;
            row.2 += u64::from(slab.objects);
            row.3 += u64::from(slab.inuse);
        }
        rows
    }

    fn odd(&self) -> HashMap<&'static str, u64> {
        let odd = self.table.odd;
        HashMap::from([
            ("unknown", odd.unknown),
            ("unknown_pages", odd.unknown_pages),
            ("nonsense", odd.nonsense),
            ("too_many", odd.too_many),
            ("large", (self.table.slabs.len() - self.table.slab_count) as u64),
            ("objects", self.table.objects),
        ])
    }

    fn kinds(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        counts_dict(py, &self.counts).map(Bound::unbind)
    }

    fn kind(&self, pfn: u64) -> Option<&'static str> {
        let mut before = 0;
        for (start, end) in &self.ranges {
            if (*start..*end).contains(&pfn) {
                let number = *self.kinds.get((before + pfn - start) as usize)?;
                return dmods_engine::kernel::KINDS.get(number as usize).map(|(_, name)| *name);
            }
            before += end - start;
        }
        None
    }

    fn broken(&self) -> Vec<(u32, Option<u32>, u64, u64)> {
        self.reserves.broken.iter().map(|b| (b.cache, b.cpu, b.after, b.value)).collect()
    }

    fn damage(&self, py: Python<'_>) -> PyResult<(Vec<FaultRow>, u64, u64, u64)> {
        let states = self.states(py)?;
        let name = |fault| match fault {
            Fault::Leaves => "leaves",
            Fault::Twice => "twice",
            Fault::Count => "count",
        };
        let row = |d: &dmods_engine::kernel::slabs::freelists::Damage| {
            let slab = &self.table.slabs[d.slab as usize];
            let address = self.table.address(slab.pfn << self.table.page_bits());
            (name(d.fault), address, slab.cache, d.object.map(|node| self.table.describe(node).0), d.value)
        };
        Ok((states.damage.iter().map(row).collect(), states.faults, states.missing_pages, states.cut.len() as u64))
    }

    #[pyo3(signature = (progress = None))]
    fn overwritten<'py>(
        &self,
        py: Python<'py>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<(Vec<Overwritten<'py>>, u64)> {
        let states = self.states(py)?;
        let (found, count) =
            self.work(py, progress, |space, control| check(&self.table, &states, space.physical, control))?;
        let name = |zone| match zone {
            Zone::Before => "before",
            Zone::Behind => "behind",
            Zone::Freed => "freed",
            Zone::Rest => "rest",
        };
        let rows = found.iter().map(|f| {
            let (object, _, cache) = self.table.describe(f.node);
            (name(f.zone), object, cache, f.at, f.length, f.expected, PyBytes::new(py, &f.found))
        });
        Ok((rows.collect(), count))
    }

    fn at(&self, py: Python<'_>, address: Address) -> PyResult<Option<ObjectRow>> {
        let table = &self.table;
        let Some(place) = table.place(table.physical(address.0)) else { return Ok(None) };
        let slab = table.slabs[place.slab as usize];
        let node = slab.first + place.slot;
        let states = self.states(py)?;
        let (start, size, cache) = table.describe(node);
        let base = table.address(slab.pfn << table.page_bits());
        Ok(Some((start, size, cache_of(cache), states.of[node as usize], place.slot, base, u64::from(slab.pages))))
    }

    fn in_slab(&self, address: Address) -> Option<(u64, u64, Option<u32>)> {
        let table = &self.table;
        let index = table.slab_of_frame(table.physical(address.0) >> table.page_bits())?;
        let slab = table.slabs[index as usize];
        Some((table.address(slab.pfn << table.page_bits()), u64::from(slab.pages), cache_of(slab.cache)))
    }

    fn listed(
        &self,
        py: Python<'_>,
        cache: u32,
        free: bool,
        from: usize,
        most: usize,
    ) -> PyResult<(Vec<u64>, Option<usize>)> {
        let states = self.states(py)?;
        let mut found = Vec::new();
        let wanted = if free { FREE } else { ALLOCATED };
        for (index, slab) in self.table.slabs.iter().enumerate().skip(from) {
            if slab.cache != cache {
                continue;
            }
            if found.len() >= most {
                return Ok((found, Some(index)));
            }
            for slot in 0..u32::from(slab.objects) {
                if wanted.contains(&states.of[(slab.first + slot) as usize]) {
                    found.push(self.table.address(self.table.start(slab, slot)));
                }
            }
        }
        Ok((found, None))
    }

    #[pyo3(signature = (registers, unsure = false, progress = None))]
    fn find_leaks(
        &self,
        py: Python<'_>,
        registers: Vec<u64>,
        unsure: bool,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.search(py, &registers, unsure, progress)
    }

    fn set_aside(&self, py: Python<'_>, addresses: Vec<u64>) -> PyResult<()> {
        self.without(py, &addresses)
    }

    fn leak_totals(&self) -> PyResult<HashMap<&'static str, u64>> {
        self.totals()
    }

    fn only_paged(&self, address: Address) -> bool {
        let node = self.table.node(self.table.physical(address.0));
        let found = lock(&self.found).clone();
        node.zip(found).is_some_and(|(node, found)| found.only_paged.binary_search(&node).is_ok())
    }

    fn evidence(&self, py: Python<'_>) -> PyResult<HashMap<u8, (u64, u64)>> {
        let (states, leaks) = (self.states(py)?, lock(&self.found).clone());
        let others = leaks.as_ref().map_or(&[][..], |leaks| &leaks.only_paged);
        let mut found: HashMap<u8, (u64, u64)> = HashMap::new();
        for slab in self.table.slabs.iter().filter(|slab| others.binary_search(&slab.first).is_err()) {
            for node in slab.first..slab.first + u32::from(slab.objects) {
                let entry = found.entry(states.of[node as usize]).or_default();
                entry.0 += 1;
                entry.1 += match self.table.caches.get(slab.cache as usize) {
                    Some(cache) => u64::from(cache.object_size),
                    None => u64::from(slab.pages) << self.table.page_bits(),
                };
            }
        }
        Ok(found)
    }

    /// The direct leaks that match each pattern: (bytes at least, [(offset, lowest, highest)]).
    fn matching(&self, py: Python<'_>, patterns: Vec<Pattern>) -> PyResult<Vec<MatchRow>> {
        self.matches(py, &patterns)
    }

    fn leak_groups<'py>(&self, py: Python<'py>) -> PyResult<Vec<GroupRow<'py>>> {
        let found = self.found()?;
        let groups =
            self.work(py, None, |space, control| self.tracks(space.physical).of_leaks(&found.leaks, control))?;
        Ok(groups.iter().map(|group| group_row(py, group)).collect())
    }

    fn groups<'py>(&self, py: Python<'py>, wanted: Vec<u8>, untracked: bool) -> PyResult<Vec<GroupRow<'py>>> {
        let (states, found) = (self.states(py)?, lock(&self.found).clone());
        let others = found.as_ref().map_or(&[][..], |found| &found.only_paged);
        let groups = self.work(py, None, |space, control| {
            self.tracks(space.physical).of_states(&states, &wanted, untracked, others, control)
        })?;
        Ok(groups.iter().map(|group| group_row(py, group)).collect())
    }

    /// Leaked objects from number `from` on: (address, bytes, cache, direct, kept, kept bytes), and where to go on.
    fn leaked(&self, from: usize, most: usize) -> PyResult<(Vec<LeakRow>, Option<usize>)> {
        let found = self.found()?;
        let end = found.leaks.all.len().min(from.saturating_add(most));
        let row = |node: &Node| {
            let (address, size, cache) = self.table.describe(*node);
            let direct = found.leaks.direct.binary_search_by_key(node, |direct| direct.node).ok();
            let kept = direct.map_or((0, 0), |i| (found.leaks.direct[i].kept, found.leaks.direct[i].kept_bytes));
            (address, size, cache_of(cache), direct.is_some(), kept.0, kept.1)
        };
        let rows = found.leaks.all.get(from..end).unwrap_or_default().iter().map(row).collect();
        Ok((rows, (end < found.leaks.all.len()).then_some(end)))
    }

    fn track<'py>(&self, py: Python<'py>, address: Address, freed: bool) -> Option<TrackRow<'py>> {
        let (_, node) = self.table.exactly(address.0)?;
        let physical = self.physical.get();
        self.tracks(&*physical.inner).of(node, freed).map(|track| track_row(py, &track))
    }

    #[pyo3(signature = (freed, pid, most))]
    fn newest<'py>(
        &self,
        py: Python<'py>,
        freed: bool,
        pid: Option<i32>,
        most: usize,
    ) -> PyResult<(u64, u64, Vec<RecordRow<'py>>)> {
        let states = self.states(py)?;
        let (count, bytes, rows) = self
            .work(py, None, |space, control| self.tracks(space.physical).newest(&states, freed, pid, most, control))?;
        let row = |(_, address, node, track): &(u64, u64, Node, Track)| {
            let (_, size, cache) = self.table.describe(*node);
            (*address, size, cache_of(cache), track_row(py, track))
        };
        Ok((count, bytes, rows.iter().map(row).collect()))
    }

    #[pyo3(signature = (start, end, most, progress = None))]
    fn holders(
        &self,
        py: Python<'_>,
        start: Address,
        end: Address,
        most: usize,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<(Vec<HolderRow>, u64)> {
        let states = self.states(py)?;
        let (found, count) = self.work(py, progress, |space, control| {
            holders(&self.table, &states, space, &self.memory(&[]), (start.0, end.0), most, control)
        })?;
        Ok((found.iter().map(|holder| (holder.at, holder.value, holder.class)).collect(), count))
    }
}
