use dmods_engine::symbols as core;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The functions and objects of one ELF file. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Symbols {
    inner: core::Symbols,
}

#[pymethods]
impl Symbols {
    #[new]
    #[pyo3(signature = (files, blobs = Vec::new()))]
    fn new(py: Python<'_>, files: Vec<std::path::PathBuf>, blobs: Vec<Bound<'_, PyBytes>>) -> Symbols {
        let blobs: Vec<&[u8]> = blobs.iter().map(|b| b.as_bytes()).collect();
        Symbols { inner: py.detach(|| core::Symbols::load(&files, &blobs)) }
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }

    fn at(&self, address: i128) -> Option<(String, u64, u64)> {
        let symbol = self.inner.at(u64::try_from(address).ok()?)?;
        Some((String::from_utf8_lossy(symbol.name).into_owned(), symbol.address, symbol.size))
    }

    fn lookup(&self, name: &str) -> Option<(u64, u64)> {
        self.inner.lookup(name.as_bytes()).map(|s| (s.address, s.size))
    }

    fn named(&self, py: Python<'_>, text: &str, most: usize) -> Vec<(String, u64, u64, bool, bool)> {
        py.detach(|| {
            let found = self.inner.named(text, most);
            found.into_iter().map(|n| (n.name, n.address, n.size, n.exact, n.minor)).collect()
        })
    }

    fn with_part(&self, py: Python<'_>, parts: Vec<String>, most: usize) -> Vec<(String, u64, u64)> {
        py.detach(|| {
            let parts: Vec<&[u8]> = parts.iter().map(String::as_bytes).collect();
            let found = self.inner.with_part(&parts, most);
            found.iter().map(|s| (String::from_utf8_lossy(s.name).into_owned(), s.address, s.size)).collect()
        })
    }

    fn tls(&self, name: &str) -> Option<(u64, u64)> {
        self.inner.tls(name.as_bytes()).map(|s| (s.address, s.size))
    }
}

/// The symbols of an ELF file, for addresses that one of them alone contains. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct SoleSymbols {
    inner: dmods_engine::sole_symbols::SoleSymbols,
}

#[pymethods]
impl SoleSymbols {
    #[new]
    fn new(py: Python<'_>, path: std::path::PathBuf) -> SoleSymbols {
        SoleSymbols { inner: py.detach(|| dmods_engine::sole_symbols::SoleSymbols::load(&path)) }
    }

    fn at(&self, address: i128) -> Option<(String, u64, u64)> {
        let (name, start, size) = self.inner.at(u64::try_from(address).ok()?)?;
        Some((String::from_utf8_lossy(&name).into_owned(), start, size))
    }
}

#[pyfunction]
pub fn demangle(name: &str) -> String {
    core::demangle(name).unwrap_or_else(|| name.to_owned())
}

#[pyfunction]
pub fn short_type(name: &str) -> String {
    dmods_engine::dwarf::short::short(name)
}

#[pyfunction]
pub fn is_name(text: &str, symbol: &str) -> bool {
    dmods_engine::names::is_name(text, symbol)
}

#[pyfunction]
pub fn is_short(text: &str, name: &str) -> bool {
    dmods_engine::names::is_short(text, name)
}

#[pyfunction]
pub fn elf_section<'py>(py: Python<'py>, path: std::path::PathBuf, name: &str) -> Option<Bound<'py, PyBytes>> {
    core::section(path, name.as_bytes()).map(|data| PyBytes::new(py, &data))
}
