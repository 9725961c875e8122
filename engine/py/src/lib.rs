//! The Python binding of the engine: `dmods._engine`. It converts values, releases the GIL and answers Ctrl-C.

// Python callers pass arguments by keyword. A struct for each call would only rename them.
#![allow(clippy::too_many_arguments)]

use pyo3::prelude::*;

mod address;
mod disassemble;
mod graph;
mod heap;
mod image;
mod jemalloc;
mod kernel;
mod lines;
mod records;
mod symbols;
mod unwind;
mod watch;

#[pymodule]
fn _engine(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<image::Image>()?;
    m.add_class::<heap::Heap>()?;
    m.add_function(wrap_pyfunction!(heap::find_bins, m)?)?;
    m.add_function(wrap_pyfunction!(heap::find_mmapped, m)?)?;
    m.add_function(wrap_pyfunction!(heap::find_stretches, m)?)?;
    m.add_function(wrap_pyfunction!(heap::find_pointers, m)?)?;
    m.add_class::<jemalloc::Extents>()?;
    m.add_function(wrap_pyfunction!(jemalloc::find_radix_trees, m)?)?;
    m.add_class::<records::Records>()?;
    m.add_function(wrap_pyfunction!(records::read_audit, m)?)?;
    m.add_function(wrap_pyfunction!(records::group_leaks, m)?)?;
    m.add_class::<kernel::Physical>()?;
    m.add_class::<kernel::Memmap>()?;
    m.add_function(wrap_pyfunction!(kernel::hex_lines, m)?)?;
    m.add("PAGE_KINDS", kernel::kind_names(m.py())?)?;
    m.add_class::<lines::Lines>()?;
    m.add_class::<symbols::Symbols>()?;
    m.add_function(wrap_pyfunction!(symbols::demangle, m)?)?;
    m.add_function(wrap_pyfunction!(symbols::is_name, m)?)?;
    m.add_function(wrap_pyfunction!(symbols::elf_section, m)?)?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_function(wrap_pyfunction!(disassemble::disassemble, m)?)?;
    m.add_class::<unwind::Unwinder>()?;
    m.add_function(wrap_pyfunction!(unwind::find_self_pointers, m)?)?;
    m.add_function(wrap_pyfunction!(unwind::find_dtv_pointers, m)?)?;
    Ok(())
}
