//! What a heap says of its runs and bins, as Python has it.

use dmods_engine::allocators::glibc::bins::Fault as BinFault;
use dmods_engine::blocks::pass::{Fault, RunReport};
use pyo3::prelude::*;
use pyo3::types::PyDict;

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
