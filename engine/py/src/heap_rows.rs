//! Rows of blocks, runs and bins as Python has them, and the numbers of their states.

use dmods_engine::allocators::glibc::bins::Fault as BinFault;
use dmods_engine::blocks::leaks;
use dmods_engine::blocks::model::{State, Stated};
use dmods_engine::blocks::pass::{Fault, RunReport};
use dmods_engine::blocks::runs::Run;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A block. See `_engine.pyi`.
#[pyclass(frozen, get_all, module = "dmods._engine")]
pub struct Block {
    pub address: u64,
    pub size: u64,
    pub state: u8,
    pub allocator: u32,
    pub arena: u32,
    pub single: bool,
    pub kept_count: u64,
    pub kept_bytes: u64,
}

impl Block {
    /// Makes the row of a block in a run.
    pub fn new(run: &Run, (block, state, kept_count, kept_bytes): Stated) -> Block {
        Block {
            address: block.address,
            size: block.size,
            state: state_number(state),
            allocator: run.owner.allocator,
            arena: run.owner.arena,
            single: run.is_oversized(),
            kept_count,
            kept_bytes,
        }
    }
}

/// Direct leaks of one size. See `_engine.pyi`.
#[pyclass(frozen, get_all, module = "dmods._engine")]
pub struct Group {
    pub size: u64,
    pub allocator: u32,
    pub single: bool,
    pub count: u64,
    pub first: u64,
    pub kept_count: u64,
    pub kept_bytes: u64,
    pub kind: Option<u32>,
}

impl Group {
    /// Makes the row of a group, and of one kind where kinds are told apart.
    pub fn new(group: &leaks::Group, kind: Option<u32>) -> Group {
        Group {
            size: group.size,
            allocator: group.allocator,
            single: group.single,
            count: group.count,
            first: group.first,
            kept_count: group.kept_count,
            kept_bytes: group.kept_bytes,
            kind,
        }
    }
}

pub(crate) fn state_number(state: State) -> u8 {
    match state {
        State::Live => 0,
        State::Free => 1,
        State::LeakedDirectly => 2,
        State::LeakedIndirectly => 3,
        State::Own => 4,
    }
}

pub(crate) fn state(number: u8) -> PyResult<State> {
    match number {
        0 => Ok(State::Live),
        1 => Ok(State::Free),
        2 => Ok(State::LeakedDirectly),
        3 => Ok(State::LeakedIndirectly),
        4 => Ok(State::Own),
        _ => Err(PyValueError::new_err("a block's state is 0 to 4")),
    }
}

pub(crate) fn bin_fault(fault: BinFault) -> &'static str {
    match fault {
        BinFault::NotAChunk => "not a chunk",
        BinFault::OtherArena => "other arena",
        BinFault::InUse => "in use",
        BinFault::WrongSize => "wrong size",
        BinFault::Again => "again",
        BinFault::Backward => "backward",
        BinFault::Order => "order",
        BinFault::SizeRing => "size ring",
        BinFault::Missing => "missing",
        BinFault::Unlisted => "unlisted",
    }
}

pub(crate) fn report_dict<'py>(py: Python<'py>, report: &RunReport) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("chunks", report.chunks)?;
    dict.set_item("free_chunks", report.free_chunks)?;
    dict.set_item("free_bytes", report.free_bytes)?;
    dict.set_item("used_end", report.used_end)?;
    dict.set_item("missing", &report.missing)?;
    dict.set_item("gaps", &report.gaps)?;
    dict.set_item("lost", &report.lost)?;
    dict.set_item("watched", &report.watched)?;
    dict.set_item("anomaly_count", report.anomaly_count)?;
    let anomalies: Vec<(&str, u64, u64, u64, u64)> = report
        .anomalies
        .iter()
        .map(|a| {
            let fault = match a.fault {
                Fault::Size => "size",
                Fault::Flags => "flags",
                Fault::PrevSize => "prev_size",
                Fault::Missing => "missing",
                Fault::WrongSize => "wrong_size",
            };
            (fault, a.chunk, a.value, a.before, a.resumed)
        })
        .collect();
    dict.set_item("anomalies", anomalies)?;
    Ok(dict)
}
