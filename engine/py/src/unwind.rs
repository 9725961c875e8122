use std::collections::HashMap;
use std::path::PathBuf;

use dmods_engine::unwind::{Arch, Module, Unwinder as Core, UNKNOWN};
use dmods_engine::{image, tcb, unwind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::address::{plain, Address, Ranges};
use crate::image::Image;

/// Unwinds the threads of one process. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Unwinder {
    inner: Core,
}

type Saved<'py> = Vec<(Bound<'py, PyString>, u64)>;
type Frame<'py> =
    (u64, u64, Bound<'py, PyString>, bool, bool, Option<u64>, Option<u64>, Bound<'py, PyDict>, Saved<'py>);

#[pymethods]
impl Unwinder {
    #[new]
    fn new(
        py: Python<'_>,
        image: &Bound<'_, Image>,
        arch: &str,
        modules: Vec<(Address, Address, Address, Option<PathBuf>)>,
        code: Ranges,
    ) -> PyResult<Unwinder> {
        let arch =
            Arch::by_name(arch).ok_or_else(|| PyValueError::new_err(format!("there is no unwinder for {arch}")))?;
        let modules = modules
            .into_iter()
            .map(|(start, end, bias, file)| Module { start: start.0, end: end.0, bias: bias.0, file })
            .collect();
        let image = image.get().inner.clone();
        Ok(Unwinder { inner: py.detach(|| Core::new(image, arch, modules, plain(code))) })
    }

    #[pyo3(signature = (registers, limit = 256))]
    fn unwind<'py>(
        &self,
        py: Python<'py>,
        registers: HashMap<String, u64>,
        limit: usize,
    ) -> PyResult<(Vec<Frame<'py>>, &'static str)> {
        let arch = self.inner.arch();
        let mut known = UNKNOWN;
        for (name, value) in &registers {
            if let Some(number) = arch.register(name) {
                known[number] = Some(*value);
            }
        }
        let (frames, end) = py.detach(|| self.inner.unwind(&known, limit));
        let frames = frames.into_iter().map(|frame| convert(py, arch, &frame)).collect::<PyResult<_>>()?;
        Ok((frames, end.name()))
    }

    fn function(&self, py: Python<'_>, pc: Address) -> Option<(u64, u64)> {
        py.detach(|| self.inner.function(pc.0))
    }
}

fn convert<'py>(py: Python<'py>, arch: &Arch, frame: &unwind::Frame) -> PyResult<Frame<'py>> {
    let registers = PyDict::new(py);
    for (name, value) in arch.names.iter().zip(&frame.registers) {
        if let Some(value) = value {
            registers.set_item(PyString::intern(py, name), value)?;
        }
    }
    let found = PyString::intern(py, frame.found.name());
    let saved = frame.saved.iter().map(|&(number, at)| (PyString::intern(py, arch.names[number]), at)).collect();
    Ok((frame.pc, frame.sp, found, frame.exact, frame.trampoline, frame.ucontext, frame.siginfo, registers, saved))
}

/// Returns the addresses in the ranges whose words at 0 and 2 words on hold the address itself. See `_engine.pyi`.
#[pyfunction]
#[pyo3(signature = (image, ranges, word = 8, limit = 65536))]
pub fn find_self_pointers(
    py: Python<'_>,
    image: &Bound<'_, Image>,
    ranges: Ranges,
    word: usize,
    limit: usize,
) -> PyResult<Vec<u64>> {
    let word = if word == 4 { 4 } else { 8 };
    interruptible(py, image, ranges, |image, ranges, stop| tcb::find_self_pointers(image, ranges, word, limit, stop))
}

/// Returns the addresses that look like AArch64's TCBs. See `_engine.pyi`.
#[pyfunction]
#[pyo3(signature = (image, ranges, limit = 65536))]
pub fn find_dtv_pointers(py: Python<'_>, image: &Bound<'_, Image>, ranges: Ranges, limit: usize) -> PyResult<Vec<u64>> {
    interruptible(py, image, ranges, |image, ranges, stop| tcb::find_dtv_pointers(image, ranges, limit, stop))
}

/// Runs a search without the GIL. It checks for Ctrl-C now and then.
fn interruptible(
    py: Python<'_>,
    image: &Bound<'_, Image>,
    ranges: Ranges,
    search: impl FnOnce(&image::Image, &[(u64, u64)], &mut dyn FnMut() -> bool) -> Vec<u64> + Send,
) -> PyResult<Vec<u64>> {
    let (image, ranges) = (image.get().inner.clone(), plain(ranges));
    let mut interrupt = Ok(());
    let found = py.detach(|| {
        let mut reads = 0u32;
        search(&image, &ranges, &mut || {
            // Each read is a megabyte, so this is some 100 times a second.
            reads += 1;
            if reads % 64 == 0 {
                interrupt = Python::attach(|py| py.check_signals());
            }
            interrupt.is_err()
        })
    });
    interrupt.map(|()| found)
}
