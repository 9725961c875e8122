//! Runs long computations without the GIL, with Ctrl-C answered and progress reported.

use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::Duration;

use dmods_engine::{Control, Stopped};
use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::prelude::*;

/// How often Python can handle a signal.
const POLL: Duration = Duration::from_millis(50);

/// A call that reads no more bytes than this is brief. It needs no thread of its own: to start one takes longer than most
/// such calls. Where each word is a cache miss (200 ns), Ctrl-C waits a fifth of a second.
const BRIEF: u64 = 8 << 20;

/// Does as [`watched`]. The caller says how many bytes of memory `work` reads at most. Brief work runs in the calling
/// thread, and Python handles signals as it returns.
pub fn watched_over<T: Send>(
    py: Python<'_>,
    bytes: u64,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Control) -> Result<T, Stopped> + Send,
) -> PyResult<T> {
    if bytes > BRIEF {
        return watched(py, progress, work);
    }
    answer(Some(py.detach(|| work(&Control::default()))))
}

/// Returns how many bytes the ranges have.
pub fn bytes_in(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().fold(0, |sum, &(start, end)| sum.saturating_add(end.saturating_sub(start)))
}

/// Runs `work` on its own thread. Meanwhile it checks for signals and calls `progress(bytes done)`. An exception from
/// either stops the work and is raised.
pub fn watched<T: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Control) -> Result<T, Stopped> + Send,
) -> PyResult<T> {
    let control = Control::default();
    let progress = progress.map(|p| p.clone().unbind());
    let control = &control;
    let (result, raised) = py.detach(move || {
        std::thread::scope(|scope| {
            let (done, ended) = channel();
            scope.spawn(move || {
                let _ = done.send(work(control));
            });
            let mut raised = None;
            loop {
                match ended.recv_timeout(POLL) {
                    Ok(result) => return (Some(result), raised),
                    Err(RecvTimeoutError::Disconnected) => return (None, raised),
                    Err(RecvTimeoutError::Timeout) if raised.is_none() => {
                        let answer = Python::attach(|py| {
                            py.check_signals()?;
                            progress.as_ref().map_or(Ok(()), |p| p.call1(py, (control.done(),)).map(|_| ()))
                        });
                        if let Err(error) = answer {
                            control.cancel();
                            raised = Some(error);
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                }
            }
        })
    });
    match raised {
        Some(error) => Err(error),
        None => answer(result),
    }
}

fn answer<T>(result: Option<Result<T, Stopped>>) -> PyResult<T> {
    match result {
        Some(Ok(value)) => Ok(value),
        Some(Err(Stopped::NoMemory(error))) => {
            Err(PyMemoryError::new_err(format!("no memory for the tables of the heap: {error}")))
        }
        _ => Err(PyRuntimeError::new_err("the engine stopped without an answer")),
    }
}
