//! Debug information that a kernel carries in its own memory.

use dmods_engine::kernel::own_types::btf::Btf;
use dmods_engine::kernel::own_types::dwarf;
use dmods_engine::kernel::own_types::file::{self, Kernel};
use dmods_engine::kernel::own_types::join::Joined;
use dmods_engine::kernel::own_types::kallsyms::{self, Arrays, Symbol};
use dmods_engine::kernel::own_types::table::Table;
use dmods_engine::kernel::own_types::variables::{self, functions, Declared, Elements};
use dmods_engine::kernel::own_types::{by_shape, listing, module, questions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// (name, type, pointers, whether it is an array, whether it may be a pointer instead)
type Declaration = (String, String, u32, bool, bool);

/// The kernel's own symbol table. See `_engine.pyi`.
#[pyclass(frozen)]
pub struct KernelSymbols {
    inner: Table,
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
        Ok(Self { inner: Table::new(inner) })
    }

    /// The symbols of a kernel whose table lies in a part of its image, None if no table is there.
    #[staticmethod]
    fn by_shape(py: Python<'_>, image: &[u8], at: u64, stext: u64) -> PyResult<Option<Self>> {
        let found = py.detach(|| by_shape::find(image, at, stext)).map_err(PyValueError::new_err)?;
        Ok(found.map(|inner| Self { inner: Table::new(inner) }))
    }

    /// The symbols of a System.map or of /proc/kallsyms.
    #[staticmethod]
    fn listed(py: Python<'_>, text: &[u8]) -> PyResult<Self> {
        let inner = py.detach(|| listing::symbols(text)).map_err(PyValueError::new_err)?;
        Ok(Self { inner: Table::new(inner) })
    }

    /// The symbols of a module, out of its table in memory.
    #[staticmethod]
    fn of_module(table: &[u8], strings: &[u8], letters: bool) -> Self {
        Self { inner: Table::new(module::symbols(table, strings, letters)) }
    }

    /// The same symbols, those from `start` up to `end` `by` bytes higher (in 64 bits).
    fn moved(&self, start: u64, end: u64, by: u64) -> Self {
        let mut inner = self.inner.symbols().to_vec();
        for symbol in inner.iter_mut().filter(|symbol| (start..end).contains(&symbol.address)) {
            symbol.address = symbol.address.wrapping_add(by);
        }
        inner.sort_by_key(|symbol| symbol.address);
        Self { inner: Table::new(inner) }
    }

    fn __len__(&self) -> usize {
        self.inner.symbols().len()
    }

    /// The addresses of all symbols of that name.
    fn addresses(&self, name: &str) -> Vec<u64> {
        self.inner.named(name).map(|symbol| symbol.address).collect()
    }

    /// (address, type as nm has it, name) of each.
    fn rows(&self) -> Vec<(u64, char, String)> {
        self.inner
            .symbols()
            .iter()
            .map(|symbol| (symbol.address, char::from(symbol.kind), symbol.name.clone()))
            .collect()
    }
}

/// An ELF file that a debugger reads as it reads vmlinux. See `_engine.pyi`.
#[pyfunction]
#[pyo3(signature = (symbols, of_modules, btf, declared, *, start, end, moved, build_id, aarch64, char_signed))]
pub fn own_debug_file(
    py: Python<'_>,
    symbols: &KernelSymbols,
    of_modules: Vec<PyRef<'_, KernelSymbols>>,
    btf: &[u8],
    declared: Vec<Declaration>,
    start: u64,
    end: u64,
    moved: u64,
    build_id: &[u8],
    aarch64: bool,
    char_signed: bool,
) -> PyResult<Py<PyBytes>> {
    let kernel = Kernel { aarch64, build_id, start, end, moved, module: false };
    let declared: Vec<Declared> = declared.into_iter().map(declaration).collect();
    let of_modules: Vec<Symbol> = of_modules.iter().flat_map(|one| one.inner.symbols()).cloned().collect();
    let made = py.detach(|| {
        let btf = Btf::parse(btf)?;
        let variables = variables::variables(&kernel, &symbols.inner, &btf, &declared);
        let functions = functions(&kernel, &symbols.inner, &Table::new(of_modules), &btf);
        file::write(&kernel, symbols.inner.symbols(), &dwarf::sections(&btf, &variables, &functions, char_signed)?)
    });
    Ok(PyBytes::new(py, &made.map_err(PyValueError::new_err)?).unbind())
}

/// An ELF file that a debugger reads as it reads a module with debug information. See `_engine.pyi`.
#[pyfunction]
pub fn own_module_file(symbols: &KernelSymbols, build_id: &[u8], aarch64: bool) -> PyResult<Vec<u8>> {
    let (start, end) = match symbols.inner.symbols() {
        [first, .., last] => (first.address, last.address.saturating_add(last.size.max(1))),
        [only] => (only.address, only.address.saturating_add(only.size.max(1))),
        [] => return Err(PyValueError::new_err("it has no symbols")),
    };
    let kernel = Kernel { aarch64, build_id, start, end, moved: 0, module: true };
    let none = Btf::parse(&NO_TYPES).and_then(|btf| dwarf::sections(&btf, &[], &[], true));
    none.and_then(|sections| file::write(&kernel, symbols.inner.symbols(), &sections)).map_err(PyValueError::new_err)
}

/// BTF of no type: a header, and one empty string.
const NO_TYPES: [u8; 25] = [0x9f, 0xeb, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];

/// The answers to questions in VMCOREINFO's words. See `_engine.pyi`.
#[pyfunction]
pub fn btf_answers(py: Python<'_>, btf: &[u8], asked: Vec<String>) -> PyResult<Vec<Option<i64>>> {
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    let answers = py.detach(|| Btf::parse(btf).map(|btf| questions::answers(&btf, &asked)));
    answers.map_err(PyValueError::new_err)
}

/// (types, bytes of strings) of BTF. See `_engine.pyi`.
#[pyfunction]
pub fn btf_counts(btf: &[u8]) -> PyResult<(usize, usize)> {
    Btf::parse(btf).map(|btf| (btf.types().len(), btf.strings().len())).map_err(PyValueError::new_err)
}

/// A per-CPU variable that is elsewhere for the types than for the symbols. See `_engine.pyi`.
#[pyfunction]
pub fn misplaced_variable(py: Python<'_>, symbols: &KernelSymbols, btf: &[u8]) -> PyResult<Option<(String, u64, u64)>> {
    let found = py.detach(|| Btf::parse(btf).map(|btf| variables::misplaced(&symbols.inner, &btf)));
    found.map_err(PyValueError::new_err)
}

/// The types of a kernel and of its modules as one table. See `_engine.pyi`.
#[pyfunction]
pub fn joined_types(
    py: Python<'_>,
    kernel: &[u8],
    modules: Vec<Vec<u8>>,
) -> PyResult<(Py<PyBytes>, Vec<Option<String>>)> {
    let joined = py.detach(|| {
        let mut joined = Joined::new(kernel)?;
        let wrong = modules.iter().map(|one| joined.add(one).err()).collect();
        Ok((joined.bytes(), wrong))
    });
    let (bytes, wrong) = joined.map_err(|error: String| PyValueError::new_err(error))?;
    Ok((PyBytes::new(py, &bytes).unbind(), wrong))
}

fn declaration((name, of, pointers, array, or_pointer): Declaration) -> Declared {
    let elements = match (array, or_pointer) {
        (false, _) => Elements::One,
        (true, false) => Elements::Fill,
        (true, true) => Elements::FillOrPointer,
    };
    Declared { name, of, pointers, elements }
}
