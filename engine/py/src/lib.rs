//! The Python binding of the engine: `dmods._engine`. It converts values, releases the GIL and answers Ctrl-C.

// Python callers pass arguments by keyword. A struct for each call would only rename them.
#![allow(clippy::too_many_arguments)]

use pyo3::prelude::*;

mod address;
mod disassemble;
mod file_caches;
mod golang;
mod graph;
mod heap;
mod heap_rows;
mod heap_search;
mod image;
mod jemalloc;
mod kernel;
mod lines;
mod live;
mod mimalloc;
mod musl;
mod own_types;
mod owners;
mod profile;
mod pymalloc;
mod python;
mod recorded;
mod records;
mod slabs;
mod slabs_description;
mod slabs_leaks;
mod slabs_rows;
mod slots;
mod symbols;
mod tcmalloc;
mod typed;
mod unpack;
mod unwind;
mod watch;

#[pymodule]
fn _engine(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<image::Image>()?;
    m.add_class::<heap::Heap>()?;
    m.add_class::<heap_rows::Block>()?;
    m.add_class::<heap_rows::Group>()?;
    m.add_class::<records::LeakGroup>()?;
    m.add_class::<records::RecordRow>()?;
    m.add_class::<records::LogRow>()?;
    m.add_class::<records::UserRow>()?;
    m.add_class::<graph::KindRow>()?;
    m.add_class::<graph::SumRow>()?;
    m.add_class::<graph::GrowthRow>()?;
    m.add_class::<recorded::Recorded>()?;
    m.add_class::<pymalloc::Pymalloc>()?;
    m.add_function(wrap_pyfunction!(python::python_objects, m)?)?;
    m.add_class::<python::CollectorLinks>()?;
    m.add_class::<golang::GoObjects>()?;
    m.add_class::<python::UnusedWords>()?;
    m.add_class::<slots::Slots>()?;
    m.add_function(wrap_pyfunction!(heap_search::find_bins, m)?)?;
    m.add_function(wrap_pyfunction!(heap_search::find_mmapped, m)?)?;
    m.add_function(wrap_pyfunction!(heap_search::find_stretches, m)?)?;
    m.add_function(wrap_pyfunction!(heap_search::find_pointers, m)?)?;
    m.add_function(wrap_pyfunction!(heap_search::find_code_words, m)?)?;
    m.add_class::<graph::Census>()?;
    m.add_class::<graph::Kinds>()?;
    m.add_class::<graph::Labels>()?;
    m.add_function(wrap_pyfunction!(graph::find_labels, m)?)?;
    m.add_function(wrap_pyfunction!(graph::compare_heaps, m)?)?;
    m.add_class::<jemalloc::Extents>()?;
    m.add_function(wrap_pyfunction!(jemalloc::find_radix_trees, m)?)?;
    m.add_class::<musl::Mallocng>()?;
    m.add_function(wrap_pyfunction!(musl::find_mallocngs, m)?)?;
    m.add_class::<mimalloc::Mimalloc>()?;
    m.add_function(wrap_pyfunction!(mimalloc::find_mimallocs, m)?)?;
    m.add_class::<tcmalloc::Tcmalloc>()?;
    m.add_function(wrap_pyfunction!(tcmalloc::find_tcmallocs, m)?)?;
    m.add_class::<records::Records>()?;
    m.add_function(wrap_pyfunction!(records::read_audit, m)?)?;
    m.add_function(wrap_pyfunction!(records::group_leaks, m)?)?;
    m.add_function(wrap_pyfunction!(profile::group_records, m)?)?;
    m.add_function(wrap_pyfunction!(profile::reference_stacks, m)?)?;
    m.add_function(wrap_pyfunction!(profile::encode_pprof, m)?)?;
    m.add_function(wrap_pyfunction!(profile::decode_pprof, m)?)?;
    m.add_class::<kernel::Physical>()?;
    m.add_class::<own_types::KernelSymbols>()?;
    m.add_function(wrap_pyfunction!(own_types::own_debug_file, m)?)?;
    m.add_function(wrap_pyfunction!(own_types::own_module_file, m)?)?;
    m.add_function(wrap_pyfunction!(own_types::btf_answers, m)?)?;
    m.add_function(wrap_pyfunction!(own_types::btf_counts, m)?)?;
    m.add_function(wrap_pyfunction!(own_types::misplaced_variable, m)?)?;
    m.add_function(wrap_pyfunction!(own_types::joined_types, m)?)?;
    m.add_class::<kernel::Memmap>()?;
    m.add_class::<slabs::Slabs>()?;
    m.add_function(wrap_pyfunction!(kernel::hex_lines, m)?)?;
    m.add_function(wrap_pyfunction!(file_caches::count_names, m)?)?;
    m.add_function(wrap_pyfunction!(file_caches::count_inodes, m)?)?;
    m.add("PAGE_KINDS", kernel::kind_names(m.py())?)?;
    m.add_class::<lines::Lines>()?;
    m.add_class::<typed::TypeGraph>()?;
    m.add_class::<symbols::Symbols>()?;
    m.add_function(wrap_pyfunction!(symbols::demangle, m)?)?;
    m.add_function(wrap_pyfunction!(symbols::short_type, m)?)?;
    m.add_function(wrap_pyfunction!(symbols::is_short, m)?)?;
    m.add_function(wrap_pyfunction!(symbols::is_name, m)?)?;
    m.add_function(wrap_pyfunction!(symbols::elf_section, m)?)?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_function(wrap_pyfunction!(disassemble::disassemble, m)?)?;
    m.add_function(wrap_pyfunction!(disassemble::red_zone_in_use, m)?)?;
    m.add_function(wrap_pyfunction!(live::take_picture, m)?)?;
    m.add_class::<unpack::Unpacker>()?;
    m.add_function(wrap_pyfunction!(unpack::unpacked_head, m)?)?;
    m.add_class::<unwind::Unwinder>()?;
    m.add_function(wrap_pyfunction!(unwind::find_self_pointers, m)?)?;
    m.add_function(wrap_pyfunction!(unwind::find_dtv_pointers, m)?)?;
    Ok(())
}
