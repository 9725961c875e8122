use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use dmods_engine::kernel::hex_lines::hex_lines as lines;
use dmods_engine::kernel::identity::{Figures, REMEMBERED};
use dmods_engine::kernel::kdump::Kdump;
use dmods_engine::kernel::layout::{Files, Huge, Layout, MapCount, PagePool};
use dmods_engine::kernel::listed_pages::{ListedPages, Lists};
use dmods_engine::kernel::page_tables::{Format, Tables};
use dmods_engine::kernel::physical::{Foreign, Physical as Memory};
use dmods_engine::kernel::scan::{Counts, Scan};
use dmods_engine::kernel::virtual_memory::VirtualMemory;
use dmods_engine::kernel::{Kind, KINDS};
use dmods_engine::{Control, Stopped};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::address::{plain, Address, Ranges};
use crate::image::Image;
use crate::watch::watched;

/// A machine's memory by physical address. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Physical {
    pub inner: Arc<dyn Memory>,
    /// The exception that a reader in Python raised.
    raised: Arc<Mutex<Option<PyErr>>>,
}

impl Physical {
    fn new(inner: Arc<dyn Memory>) -> Physical {
        Physical { inner, raised: Arc::default() }
    }

    /// Takes the exception that a reader in Python has raised since the last call.
    pub fn check(&self) -> PyResult<()> {
        let raised = self.raised.lock().unwrap_or_else(|e| e.into_inner()).take();
        raised.map_or(Ok(()), Err)
    }
}

#[pymethods]
impl Physical {
    #[staticmethod]
    fn elf(image: &Image) -> Physical {
        Physical::new(image.inner.clone())
    }

    #[staticmethod]
    fn kdump(py: Python<'_>, path: PathBuf) -> PyResult<Physical> {
        let dump = py.detach(|| Kdump::open(&path)).map_err(PyValueError::new_err)?;
        Ok(Physical::new(Arc::new(dump)))
    }

    #[staticmethod]
    fn through(reader: Py<PyAny>) -> Physical {
        let raised: Arc<Mutex<Option<PyErr>>> = Arc::default();
        let failed = raised.clone();
        let read = move |address: u64, buf: &mut [u8]| {
            let answer = Python::attach(|py| {
                let answer = reader.call1(py, (address, buf.len()))?;
                let bytes = answer.bind(py).cast::<PyBytes>()?.as_bytes();
                let length = bytes.len().min(buf.len());
                buf[..length].copy_from_slice(&bytes[..length]);
                Ok(length)
            });
            answer.unwrap_or_else(|error: PyErr| {
                failed.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(error);
                0
            })
        };
        Physical { inner: Arc::new(Foreign(read)), raised }
    }

    fn read<'py>(&self, py: Python<'py>, address: Address, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = read(py, size, |buf| self.inner.read(address.0, buf))?;
        self.check()?;
        Ok(bytes)
    }
}

fn read(py: Python<'_>, size: usize, fill: impl FnOnce(&mut [u8]) -> usize + Send) -> PyResult<Bound<'_, PyBytes>> {
    let mut buf = Vec::new();
    buf.try_reserve_exact(size).map_err(|_| PyMemoryError::new_err("read too large"))?;
    buf.resize(size, 0);
    let got = py.detach(|| fill(&mut buf));
    Ok(PyBytes::new(py, &buf[..got]))
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct TablesArgument {
    arch: String,
    root: u64,
    page_bits: u32,
    va_bits: u32,
    clear: u64,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct LayoutArgument {
    base: u64,
    page_bits: u32,
    size: usize,
    flags: usize,
    head: usize,
    mapping: usize,
    private: usize,
    mapcount: usize,
    refcount: usize,
    lru: usize,
    head_is_mask: bool,
    reserved: u64,
    compound: u64,
    slab: u64,
    swapbacked: u64,
    swapcache: u64,
    kept: u64,
    has_private: u64,
    hwpoison: u64,
    types: Vec<(u32, u32, String)>,
    huge_byte: Option<(usize, u8)>,
    huge_flags: u64,
    large_counts: Vec<(usize, i32)>,
    movable: bool,
    movers: Vec<(u64, String)>,
    orders: u32,
    zfs: u64,
    page_pool: Option<(usize, u64, u64)>,
    host: u64,
    i_mmap: u64,
    i_sb: u64,
    left: u64,
    right: u64,
    to_flags: i64,
    exec: u64,
    special: Vec<(u64, String)>,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ListsArgument {
    per_cpu: Vec<(u64, u32)>,
    vmap: Vec<u64>,
    vmap_area: [u64; 3],
    first_task: u64,
    task: [u64; 4],
    thread_head: u64,
    stack_size: u64,
    owned: Vec<(String, u64, u64)>,
    areas: Vec<(String, u64, u64)>,
}

fn kind(name: &str) -> PyResult<Kind> {
    Kind::by_name(name).ok_or_else(|| PyValueError::new_err(format!("no kind of page is called {name:?}")))
}

fn kinds<T>(named: Vec<(T, String)>) -> PyResult<Vec<(T, Kind)>> {
    named.into_iter().map(|(value, name)| Ok((value, kind(&name)?))).collect()
}

fn with_kinds(named: Vec<(String, u64, u64)>) -> PyResult<Vec<(Kind, u64, u64)>> {
    named.into_iter().map(|(name, first, last)| Ok((kind(&name)?, first, last))).collect()
}

fn layout(a: LayoutArgument) -> PyResult<Layout> {
    let types = a.types.into_iter().map(|(mask, value, name)| Ok((mask, value, kind(&name)?)));
    let layout = Layout {
        base: a.base,
        page_bits: a.page_bits,
        size: a.size,
        flags: a.flags,
        head: a.head,
        mapping: a.mapping,
        private: a.private,
        mapcount: a.mapcount,
        refcount: a.refcount,
        lru: a.lru,
        head_is_mask: a.head_is_mask,
        reserved: a.reserved,
        compound: a.compound,
        slab: a.slab,
        swapbacked: a.swapbacked,
        swapcache: a.swapcache,
        kept: a.kept,
        has_private: a.has_private,
        hwpoison: a.hwpoison,
        types: types.collect::<PyResult<_>>()?,
        huge: match (a.huge_byte, a.huge_flags) {
            (Some((offset, value)), _) => Huge::SecondByte { offset, value },
            (None, 0) => Huge::ByType,
            (None, flags) => Huge::SecondFlags(flags),
        },
        large_counts: a.large_counts.into_iter().map(|(offset, unmapped)| MapCount { offset, unmapped }).collect(),
        movable: a.movable,
        movers: kinds(a.movers)?,
        orders: a.orders,
        zfs: a.zfs,
        page_pool: a.page_pool.map(|(offset, mask, value)| PagePool { offset, mask, value }),
        files: Files {
            host: a.host,
            i_mmap: a.i_mmap,
            i_sb: a.i_sb,
            left: a.left,
            right: a.right,
            to_flags: a.to_flags,
            exec: a.exec,
            special: kinds(a.special)?,
        },
    };
    layout.problem().map_or(Ok(layout), |problem| Err(PyValueError::new_err(problem)))
}

/// A kernel's page array. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Memmap {
    pub physical: Py<Physical>,
    pub tables: Tables,
    pub layout: Layout,
    pub listed: Mutex<ListedPages>,
}

#[pymethods]
impl Memmap {
    #[new]
    fn new(physical: Py<Physical>, tables: TablesArgument, layout: LayoutArgument) -> PyResult<Memmap> {
        let format = match tables.arch.as_str() {
            "x86_64" => Format::X86 { clear: tables.clear },
            "aarch64" => Format::Aarch64,
            other => return Err(PyValueError::new_err(format!("the page tables of {other} are not known"))),
        };
        let tables = Tables::new(format, tables.root, tables.page_bits, tables.va_bits)
            .ok_or_else(|| PyValueError::new_err("the shape of the page tables is not possible"))?;
        Ok(Memmap { physical, tables, layout: self::layout(layout)?, listed: Mutex::default() })
    }

    fn read<'py>(&self, py: Python<'py>, address: Address, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let physical = self.physical.get();
        let bytes = read(py, size, |buf| VirtualMemory::new(&*physical.inner, self.tables).read(address.0, buf))?;
        physical.check()?;
        Ok(bytes)
    }

    fn translate(&self, address: Address) -> Option<u64> {
        let physical = &*self.physical.get().inner;
        VirtualMemory::new(physical, self.tables).walker.translate(physical, address.0).map(|mapped| mapped.physical)
    }

    fn some_last_table(&self, root: Address) -> Option<u64> {
        self.tables.some_last_table(&*self.physical.get().inner, root.0)
    }

    /// Follows the lists. `classify` uses the result from then on.
    #[pyo3(signature = (lists, ram, progress = None))]
    fn gather<'py>(
        &self,
        py: Python<'py>,
        lists: ListsArgument,
        ram: Ranges,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let lists = Lists {
            per_cpu: lists.per_cpu,
            vmap: lists.vmap,
            vmap_area: lists.vmap_area,
            first_task: lists.first_task,
            task: lists.task,
            thread_head: lists.thread_head,
            stack_size: lists.stack_size,
            owned: with_kinds(lists.owned)?,
            areas: with_kinds(lists.areas)?,
        };
        let ram = sorted(ram)?;
        let listed =
            self.work(py, progress, |space, control| ListedPages::gather(&lists, &self.layout, &ram, space, control))?;
        let said = PyDict::new(py);
        said.set_item("broken", listed.broken)?;
        said.set_item("endless", listed.endless)?;
        said.set_item("tasks", listed.tasks)?;
        said.set_item("vmap_areas", listed.vmap_areas)?;
        *self.listed.lock().unwrap_or_else(|e| e.into_inner()) = listed;
        Ok(said)
    }

    #[pyo3(signature = (ranges, remember = REMEMBERED, each = false, progress = None))]
    fn classify<'py>(
        &self,
        py: Python<'py>,
        ranges: Ranges,
        remember: usize,
        each: bool,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<(Bound<'py, PyDict>, Option<Bound<'py, PyBytes>>)> {
        let ranges = sorted(ranges)?;
        let mut kinds = Vec::new();
        if each {
            let pages: u64 = ranges.iter().map(|(start, end)| end - start).sum();
            kinds
                .try_reserve_exact(usize::try_from(pages).unwrap_or(usize::MAX))
                .map_err(|_| PyMemoryError::new_err("no memory for a byte for each page"))?;
        }
        let wanted = each.then_some(&mut kinds);
        let listed = self.listed.lock().unwrap_or_else(|e| e.into_inner());
        let counts = self.work(py, progress, |space, control| {
            Scan::new(&self.layout, &listed, space, remember, wanted).run(&ranges, control)
        })?;
        Ok((counts_dict(py, &counts)?, each.then(|| PyBytes::new(py, &kinds))))
    }
}

impl Memmap {
    /// Runs `work` on the kernel's memory, without the GIL.
    pub fn work<T: Send>(
        &self,
        py: Python<'_>,
        progress: Option<Bound<'_, PyAny>>,
        work: impl FnOnce(&mut VirtualMemory, &Control) -> T + Send,
    ) -> PyResult<T> {
        let physical = self.physical.get();
        let answer = watched(py, progress.as_ref(), |control| {
            let answer = work(&mut VirtualMemory::new(&*physical.inner, self.tables), control);
            if control.cancelled() {
                Err(Stopped::Cancelled)
            } else {
                Ok(answer)
            }
        });
        physical.check()?;
        answer
    }
}

/// Checks that the ranges are sorted and do not overlap. The passes rely on it.
pub fn sorted(ranges: Ranges) -> PyResult<Vec<(u64, u64)>> {
    let ranges = plain(ranges);
    let apart = ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0);
    if apart && ranges.iter().all(|(start, end)| start <= end) {
        return Ok(ranges);
    }
    Err(PyValueError::new_err("the ranges of page frames must be sorted and must not overlap"))
}

pub fn counts_dict<'py>(py: Python<'py>, counts: &Counts) -> PyResult<Bound<'py, PyDict>> {
    let Figures { hits, misses, lost, cut } = counts.identity;
    let kinds: HashMap<&str, u64> = KINDS.iter().map(|(kind, name)| (*name, counts.kinds[*kind as usize])).collect();
    let dict = PyDict::new(py);
    dict.set_item("kinds", kinds)?;
    dict.set_item("skipped", counts.skipped)?;
    let identity = [("hits", hits), ("misses", misses), ("lost", lost), ("cut", cut)];
    dict.set_item("identity", HashMap::from(identity))?;
    let odd = counts.odd;
    let odd = [
        ("missing", odd.missing),
        ("nonsense", odd.nonsense),
        ("lost_heads", odd.lost_heads),
        ("orders", odd.orders),
        ("used_in_free", odd.used_in_free),
        ("repeated", odd.repeated),
    ];
    dict.set_item("odd", HashMap::from(odd))?;
    Ok(dict)
}

/// Returns the names of the kinds, by number.
pub fn kind_names(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    PyTuple::new(py, KINDS.iter().map(|(_, name)| *name))
}

/// Returns the addresses as lines, each as Python's hex() writes it. See `_engine.pyi`.
#[pyfunction]
#[pyo3(signature = (start, step, count, numbers = None, wanted = 0))]
pub fn hex_lines(
    py: Python<'_>,
    start: u64,
    step: u64,
    count: usize,
    numbers: Option<&Bound<'_, PyBytes>>,
    wanted: u8,
) -> PyResult<String> {
    let numbers = numbers.map(|numbers| numbers.as_bytes());
    py.detach(|| lines(start, step, count, numbers, wanted)).map_err(|_| PyMemoryError::new_err("lines of text"))
}
