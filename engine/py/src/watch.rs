//! Runs long computations without the GIL, with Ctrl-C answered and progress reported.

use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::Duration;

use dmods_engine::{Control, Stopped};
use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::prelude::*;

/// How often Python can handle a signal.
const POLL: Duration = Duration::from_millis(50);

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
    match (result, raised) {
        (_, Some(error)) => Err(error),
        (Some(Ok(value)), None) => Ok(value),
        (Some(Err(Stopped::NoMemory(error))), None) => {
            Err(PyMemoryError::new_err(format!("no memory for the tables of the heap: {error}")))
        }
        _ => Err(PyRuntimeError::new_err("the engine stopped without an answer")),
    }
}
