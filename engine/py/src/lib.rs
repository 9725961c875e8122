//! The Python binding of the engine: `dmods._engine`. Thin: it converts, releases the GIL and answers Ctrl-C.

use pyo3::prelude::*;

mod image;

#[pymodule]
fn _engine(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<image::Image>()?;
    Ok(())
}
