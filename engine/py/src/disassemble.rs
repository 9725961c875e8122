use pyo3::prelude::*;

/// One instruction as text. See `_engine.pyi`.
#[pyfunction]
pub fn disassemble(arch: &str, code: &[u8], address: u64) -> Option<(String, usize)> {
    dmods_engine::disassemble::instruction(arch, code, address)
}
