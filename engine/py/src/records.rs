use dmods_engine::records::audit::{self, Bits, Clock, Layout, Ring, Shadow, Table};
use dmods_engine::records::by_thread;
use dmods_engine::records::groups::{self, Leak, Split};
use dmods_engine::records::log::{Log, Transaction};
use dmods_engine::records::redzones::redzones;
use dmods_engine::records::stacks::{Stack, Stacks};
use dmods_engine::records::{self as core, Record};
use pyo3::prelude::*;

use crate::address::Address;
use crate::heap_rows::Block;
use crate::image::Image;
use crate::watch::watched;

/// All records of one recorder. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Records {
    pub(crate) inner: core::Records,
}

impl Records {
    pub(crate) fn inner(&self) -> &core::Records {
        &self.inner
    }
}

type GivenRow = (Address, Address, u64, u64, u32, u32);
type GivenLogRow = (Address, u64, bool, Address, u64, u64, u32, u32, (u64, u32, u32), (Address, u64));
type Triple = (u8, u8, u8);
type Newest = (u64, u64, Vec<RecordRow>);
type Damage = (bool, bool, bool, u64, u64);

/// A record. See `_engine.pyi`.
#[pyclass(frozen, get_all, module = "dmods._engine")]
#[derive(Clone, Copy)]
pub struct RecordRow {
    address: u64,
    at: u64,
    size: u64,
    time: u64,
    stack: u32,
    thread: u32,
}

/// A transaction. See `_engine.pyi`.
#[pyclass(frozen, get_all, module = "dmods._engine")]
pub struct LogRow {
    at: u64,
    sequence: u64,
    freed: bool,
    address: u64,
    size: u64,
    time: u64,
    stack: u32,
    thread: u32,
    alloc_time: u64,
    alloc_stack: u32,
    alloc_thread: u32,
    contents: u64,
    contents_size: u64,
}

/// The memory that the blocks of one stack have. See `_engine.pyi`.
#[pyclass(frozen, get_all, module = "dmods._engine")]
pub struct UserRow {
    stack: u32,
    part: u64,
    count: u64,
    bytes: u64,
    likely_count: f64,
    likely_bytes: f64,
    least: u64,
    most: u64,
    oldest: RecordRow,
}

fn row(record: &Record) -> RecordRow {
    let &Record { address, at, size, time, stack, thread, .. } = record;
    RecordRow { address, at, size, time, stack, thread }
}

fn log_row(t: &Transaction) -> LogRow {
    LogRow {
        at: t.at,
        sequence: t.sequence,
        freed: t.freed,
        address: t.address,
        size: t.size,
        time: t.time,
        stack: t.stack,
        thread: t.thread,
        alloc_time: t.alloc_time,
        alloc_stack: t.alloc_stack,
        alloc_thread: t.alloc_thread,
        contents: t.contents,
        contents_size: t.contents_size,
    }
}

fn user_row(u: &groups::User) -> UserRow {
    UserRow {
        stack: u.stack,
        part: u.part,
        count: u.count,
        bytes: u.bytes,
        likely_count: u.likely_count,
        likely_bytes: u.likely_bytes,
        least: u.least,
        most: u.most,
        oldest: row(&u.oldest),
    }
}

#[pymethods]
impl Records {
    #[new]
    #[pyo3(signature = (records, transactions, stacks, mean))]
    fn new(
        py: Python<'_>,
        records: Vec<GivenRow>,
        transactions: Vec<GivenLogRow>,
        stacks: Vec<Vec<u64>>,
        mean: u64,
    ) -> Records {
        py.detach(|| {
            let (stacks, keys) = Stacks::of_lists(stacks.iter().map(Vec::as_slice));
            // The caller counts its stacks from 1.
            let key = |number: u32| (number as usize).checked_sub(1).and_then(|i| keys.get(i)).copied().unwrap_or(0);
            let records = records
                .into_iter()
                .map(|(address, at, size, time, stack, thread)| Record {
                    address: address.0,
                    at: at.0,
                    size,
                    time,
                    stack: key(stack),
                    thread,
                })
                .collect();
            let transactions = transactions
                .into_iter()
                .map(|(at, sequence, freed, address, size, time, stack, thread, alloc, contents)| Transaction {
                    at: at.0,
                    sequence,
                    freed,
                    address: address.0,
                    size,
                    time,
                    stack: key(stack),
                    thread,
                    alloc_time: alloc.0,
                    alloc_stack: key(alloc.1),
                    alloc_thread: alloc.2,
                    contents: contents.0 .0,
                    contents_size: contents.1,
                })
                .collect();
            Records { inner: core::Records::new(records, stacks, Log::new(transactions), mean) }
        })
    }

    fn __len__(&self) -> usize {
        self.inner.all().len()
    }

    fn of_block(&self, address: Address) -> Option<RecordRow> {
        self.inner.of_block(address.0).map(row)
    }

    fn at(&self, at: Address) -> Option<RecordRow> {
        self.inner.at(at.0).map(row)
    }

    #[pyo3(signature = (start, most, threads=None))]
    fn records(&self, py: Python<'_>, start: Address, most: usize, threads: Option<Vec<u32>>) -> Vec<RecordRow> {
        py.detach(|| self.inner.from(start.0, most, threads.as_deref()).iter().map(row).collect())
    }

    fn stack(&self, key: u32) -> (Vec<(u64, bool)>, bool) {
        let Stack { frames, truncated } = self.inner.stacks.stack(key);
        (frames, truncated)
    }

    #[getter]
    fn logged(&self) -> usize {
        self.inner.log.all().len()
    }

    fn logged_at(&self, at: Address) -> Option<LogRow> {
        self.inner.log.at(at.0).map(log_row)
    }

    fn logged_of(&self, address: Address, most: usize) -> Vec<LogRow> {
        self.inner.log.of_block(address.0).take(most).map(log_row).collect()
    }

    fn logged_holding(&self, address: Address) -> Option<LogRow> {
        self.inner.log.holding(address.0).map(log_row)
    }

    fn freed_holding(&self, address: Address) -> Option<LogRow> {
        self.inner.log.freed_holding(address.0).map(log_row)
    }

    #[pyo3(signature = (before, most, freed=None, threads=None))]
    fn log(
        &self,
        py: Python<'_>,
        before: Address,
        most: usize,
        freed: Option<bool>,
        threads: Option<Vec<u32>>,
    ) -> Vec<LogRow> {
        py.detach(|| self.inner.log.before(before.0, most, freed, threads.as_deref()).iter().map(log_row).collect())
    }

    fn newest(&self, py: Python<'_>, freed: bool, threads: Vec<u32>, most: usize) -> Newest {
        py.detach(|| {
            let found = by_thread::newest(&self.inner, freed, &threads, most);
            let event = |e: &by_thread::Event| RecordRow {
                address: e.address,
                at: e.at,
                size: e.size,
                time: e.time,
                stack: e.stack,
                thread: e.thread,
            };
            (found.count, found.bytes, found.events.iter().map(event).collect())
        })
    }

    fn redzones(
        &self,
        py: Python<'_>,
        image: &Image,
        size: usize,
        byte: u8,
        most: usize,
    ) -> PyResult<(u64, u64, u64, Vec<RecordRow>)> {
        let image = image.inner.clone();
        let found = watched(py, None, |control| redzones(&self.inner, &image, size, byte, most, control))?;
        Ok((found.compared, found.unreadable, found.damaged, found.first.iter().map(row).collect()))
    }

    #[pyo3(signature = (split=""))]
    fn users(&self, py: Python<'_>, split: &str) -> Vec<UserRow> {
        let split = match split {
            "thread" => Split::Thread,
            "size" => Split::Size,
            _ => Split::None,
        };
        py.detach(|| groups::users(&self.inner, split).iter().map(user_row).collect())
    }
}

#[pyfunction]
pub fn read_audit(
    py: Python<'_>,
    image: &Image,
    shadow: (Address, [u32; 8], [Triple; 7]),
    stacks: (Address, u32, u32, u32, u64),
    log: (Address, u64, u32),
    contents: (Address, u64, u32),
    clock: (u64, u32, u64, u64),
    frames: usize,
    mean: u64,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<(Records, Damage)> {
    let (
        top,
        [top_shift, top_count, middle_shift, middle_count, granule_shift, leaf_records, record_size, offset_shift],
        fields,
    ) = shadow;
    let [live, offset, stack, thread, size, time, freed] =
        fields.map(|(word, shift, width)| Bits { word, shift, width });
    let ring = |(entries, capacity, entry_size): (Address, u64, u32)| Ring { entries: entries.0, capacity, entry_size };
    let (chunks, chunk_shift, chunk_count, entry_size, count) = stacks;
    let (start, shift, numerator, denominator) = clock;
    let layout = Layout {
        shadow: Shadow {
            top: top.0,
            top_shift,
            top_count,
            middle_shift,
            middle_count,
            granule_shift,
            leaf_records,
            record_size,
            offset_shift,
            live,
            freed,
            offset,
            stack,
            thread,
            size,
            time,
        },
        stacks: Table { chunks: chunks.0, chunk_shift, chunk_count, entry_size, count },
        log: ring(log),
        contents: ring(contents),
        clock: Clock { start, shift, numerator, denominator },
        frames,
        mean,
    };
    let image = image.inner.clone();
    let (inner, damage) = watched(py, progress.as_ref(), |control| audit::read(&image, &layout, control))?;
    let damage = (damage.layout, damage.stacks_layout, damage.log_layout, damage.tables, damage.entries);
    Ok((Records { inner }, damage))
}

/// Direct leaks of one size and stack. See `_engine.pyi`.
#[pyclass(frozen, get_all, module = "dmods._engine")]
pub struct LeakGroup {
    size: u64,
    single: bool,
    recorder: Option<usize>,
    stack: u32,
    count: u64,
    first: u64,
    record: Option<RecordRow>,
    kept_count: u64,
    kept_bytes: u64,
}

#[pyfunction]
pub fn group_leaks(
    py: Python<'_>,
    recorders: Vec<PyRef<'_, Records>>,
    blocks: Vec<PyRef<'_, Block>>,
) -> Vec<LeakGroup> {
    let recorders: Vec<&core::Records> = recorders.iter().map(|records| &records.inner).collect();
    let leak = |block: &PyRef<'_, Block>| Leak {
        address: block.address,
        size: block.size,
        mmapped: block.single,
        kept_count: block.kept_count,
        kept_bytes: block.kept_bytes,
    };
    let leaks: Vec<Leak> = blocks.iter().map(leak).collect();
    py.detach(|| {
        let group = |g: &groups::LeakGroup| LeakGroup {
            size: g.size,
            single: g.mmapped,
            recorder: g.recorder,
            stack: g.stack,
            count: g.count,
            first: g.first,
            record: g.record.as_ref().map(row),
            kept_count: g.kept_count,
            kept_bytes: g.kept_bytes,
        };
        groups::group(&recorders, &leaks).iter().map(group).collect()
    })
}
