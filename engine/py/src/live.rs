//! Takes a picture of a live process.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use dmods_engine::live::{self, Options, Picture, Trouble};
use pyo3::exceptions::{PyPermissionError, PyProcessLookupError, PyRuntimeError, PyTimeoutError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::watch::watched;

type Bytes = Py<PyBytes>;
/// (tid, signal, siginfo_t, [(kind of note, registers)])
type ThreadRow = (i32, i32, Option<Bytes>, Vec<(u32, Bytes)>);
/// (start, end, flags, offset in its file, path, bytes in the picture, their offset)
type MappingRow = (u64, u64, String, Option<u64>, Bytes, u64, u64);
/// (seconds of the pause, bytes read, bytes that could not be read, bytes left out, threads, mappings)
type Row = (f64, u64, u64, u64, Vec<ThreadRow>, Vec<MappingRow>);

/// A picture of a live process. See `_engine.pyi`.
#[pyfunction]
pub fn take_picture(
    py: Python<'_>,
    pid: i32,
    path: PathBuf,
    filter: u32,
    page: u64,
    in_memory: bool,
    least: u64,
) -> PyResult<Row> {
    let file = File::options().read(true).write(true).open(path)?;
    let options = Options { filter, page, in_memory, least };
    let taken = watched(py, None, move |control| Ok(live::take(pid, &file, options, control)))?;
    match taken {
        Ok(picture) => Ok(row(py, picture)),
        Err(Trouble::Io(error)) => Err(raised(error)),
        Err(Trouble::Stuck(tid)) => Err(PyTimeoutError::new_err(tid)),
        Err(Trouble::Cancelled) => Err(PyRuntimeError::new_err("the picture was cancelled")),
    }
}

fn raised(error: io::Error) -> PyErr {
    // ESRCH is 3 on every machine of Linux. A process that ends loses its files in /proc, too.
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::PermissionDenied, _) => PyPermissionError::new_err(error.to_string()),
        (io::ErrorKind::NotFound, _) | (_, Some(3)) => PyProcessLookupError::new_err(error.to_string()),
        _ => error.into(),
    }
}

fn row(py: Python<'_>, picture: Picture) -> Row {
    let bytes = |data: &[u8]| PyBytes::new(py, data).unbind();
    let threads = picture.threads.iter().map(|thread| {
        let registers = thread.registers.iter().map(|(kind, data)| (*kind, bytes(data))).collect();
        (thread.tid, thread.signal, thread.siginfo.as_ref().map(|info| bytes(info)), registers)
    });
    let mappings = picture.mappings.iter().map(|taken| {
        let mapping = &taken.mapping;
        (
            mapping.start,
            mapping.end,
            mapping.flags.clone(),
            (mapping.inode != 0).then_some(mapping.offset),
            bytes(&mapping.path),
            taken.size,
            taken.offset,
        )
    });
    let Picture { pause, read, unread, left, .. } = picture;
    (pause.as_secs_f64(), read, unread, left, threads.collect(), mappings.collect())
}
