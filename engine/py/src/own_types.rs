//! Debug information that a kernel carries in its own memory.

use dmods_engine::kernel::own_types::btf::Btf;
use dmods_engine::kernel::own_types::dwarf;
use dmods_engine::kernel::own_types::file::{self, Kernel};
use dmods_engine::kernel::own_types::kallsyms::{self, Arrays, Symbol};
use dmods_engine::kernel::own_types::variables::{functions, variables, Declared, Elements};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// (name, type, pointers, whether it is an array, whether it may be a pointer instead)
type Declaration = (String, String, u32, bool, bool);

/// The kernel's own symbol table. See `_engine.pyi`.
#[pyclass(frozen)]
pub struct KernelSymbols {
    inner: Vec<Symbol>,
}

#[pymethods]
impl KernelSymbols {
    #[new]
    #[pyo3(signature = (count, *, names, token_table, token_index, offsets, offsets_at, base))]
    fn new(
        py: Python<'_>,
        count: usize,
        names: &[u8],
        token_table: &[u8],
        token_index: &[u8],
        offsets: &[u8],
        offsets_at: u64,
        base: Option<u64>,
    ) -> PyResult<Self> {
        let arrays = Arrays { count, names, token_table, token_index, offsets, offsets_at, base };
        let inner = py.detach(|| kallsyms::symbols(&arrays)).map_err(PyValueError::new_err)?;
        Ok(Self { inner })
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }

    /// The addresses of all symbols of that name.
    fn addresses(&self, name: &str) -> Vec<u64> {
        self.inner.iter().filter(|symbol| symbol.name == name).map(|symbol| symbol.address).collect()
    }

    /// (address, type as nm has it, name) of each.
    fn rows(&self) -> Vec<(u64, char, String)> {
        self.inner.iter().map(|symbol| (symbol.address, char::from(symbol.kind), symbol.name.clone())).collect()
    }
}

/// An ELF file that a debugger reads as it reads vmlinux. See `_engine.pyi`.
#[pyfunction]
#[pyo3(signature = (symbols, btf, declared, *, start, end, moved, build_id, aarch64, char_signed))]
pub fn own_debug_file(
    py: Python<'_>,
    symbols: &KernelSymbols,
    btf: &[u8],
    declared: Vec<Declaration>,
    start: u64,
    end: u64,
    moved: u64,
    build_id: &[u8],
    aarch64: bool,
    char_signed: bool,
) -> PyResult<Py<PyBytes>> {
    let kernel = Kernel { aarch64, build_id, start, end, moved };
    let declared: Vec<Declared> = declared.into_iter().map(declaration).collect();
    let made = py.detach(|| {
        let btf = Btf::parse(btf)?;
        let variables = variables(&kernel, &symbols.inner, &btf, &declared);
        let functions = functions(&kernel, &symbols.inner, &btf);
        file::write(&kernel, &symbols.inner, &dwarf::sections(&btf, &variables, &functions, char_signed)?)
    });
    Ok(PyBytes::new(py, &made.map_err(PyValueError::new_err)?).unbind())
}

fn declaration((name, of, pointers, array, or_pointer): Declaration) -> Declared {
    let elements = match (array, or_pointer) {
        (false, _) => Elements::One,
        (true, false) => Elements::Fill,
        (true, true) => Elements::FillOrPointer,
    };
    Declared { name, of, pointers, elements }
}
