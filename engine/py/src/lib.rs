//! The Python binding of the engine: `dmods._engine`. Thin: it converts, releases the GIL and answers Ctrl-C.

// Python callers pass by keyword; a struct per call would only rename them.
#![allow(clippy::too_many_arguments)]

use pyo3::prelude::*;

mod heap;
mod image;
mod watch;

#[pymodule]
fn _engine(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<image::Image>()?;
    m.add_class::<heap::Heap>()?;
    m.add_function(wrap_pyfunction!(heap::find_bins, m)?)?;
    m.add_function(wrap_pyfunction!(heap::find_mmapped, m)?)?;
    m.add_function(wrap_pyfunction!(heap::find_stretches, m)?)?;
    m.add_function(wrap_pyfunction!(heap::find_pointers, m)?)?;
    Ok(())
}
