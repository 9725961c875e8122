use pyo3::prelude::*;

use crate::address::Address;
use crate::image::Image;

/// One instruction as text. See `_engine.pyi`.
#[pyfunction]
pub fn disassemble(arch: &str, code: &[u8], address: u64) -> Option<(String, usize)> {
    dmods_engine::disassemble::instruction(arch, code, address)
}

/// How much of the red zone is in use. See `_engine.pyi`.
#[pyfunction]
pub fn red_zone_in_use(image: &Image, pc: Address, registers: [u64; 16]) -> Option<u64> {
    dmods_engine::red_zone::bytes_in_use(&image.inner, pc.0, &registers)
}

/// Whether code calls a function. See `_engine.pyi`.
#[pyfunction]
pub fn calls_function(image: &Image, start: Address, end: Address) -> bool {
    dmods_engine::red_zone::calls(&image.inner, start.0, end.0)
}
