//! Searches for structures of glibc's heap, and for pointers.

use dmods_engine::allocators::glibc::{find, shared};
use dmods_engine::search::{self, code_words};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::address::{self, plain, Ranges};
use crate::image::Image;
use crate::watch::{bytes_in, watched_over};

#[pyfunction]
pub fn find_bins(py: Python<'_>, image: &Image, ranges: Ranges, word: u64) -> PyResult<Vec<u64>> {
    let ranges = plain(ranges);
    watched_over(py, bytes_in(&ranges), None, |control| find::bins(&image.inner, &ranges, word, control))
}

#[pyfunction]
pub fn find_mmapped(
    py: Python<'_>,
    image: &Image,
    ranges: Ranges,
    whole: Ranges,
    word: u64,
    page: u64,
    deep: bool,
) -> Vec<(u64, u64, u64, u64)> {
    let (ranges, whole) = (plain(ranges), plain(whole));
    py.detach(|| {
        find::mapped(&image.inner, &ranges, &whole, word, page, deep)
            .iter()
            .map(|m| (m.chunk, m.base, m.end, m.usable))
            .collect()
    })
}

#[pyfunction]
pub fn find_stretches(
    py: Python<'_>,
    image: &Image,
    ranges: Ranges,
    word: u64,
    page: u64,
    top: u64,
) -> Vec<(u64, u64)> {
    let ranges = plain(ranges);
    py.detach(|| find::stretches(&image.inner, &ranges, word, page, top))
}

#[pyfunction]
pub fn find_parts(py: Python<'_>, image: &Image, start: u64, top: u64, foreign: Ranges, word: u64) -> Vec<(u64, u64)> {
    let foreign = plain(foreign);
    py.detach(|| shared::parts(&image.inner, (start, top), &foreign, word))
}

#[pyfunction]
#[pyo3(signature = (image, ranges, word, wanted, most, progress=None))]
pub fn find_pointers(
    py: Python<'_>,
    image: &Image,
    ranges: Ranges,
    word: u64,
    wanted: Ranges,
    most: usize,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Vec<Vec<u64>>> {
    let (ranges, wanted) = (plain(ranges), address::wanted(wanted)?);
    watched_over(py, bytes_in(&ranges), progress.as_ref(), |control| {
        search::pointers(&image.inner, &ranges, word, &wanted, most, control)
    })
}

#[pyfunction]
pub fn find_code_words(
    py: Python<'_>,
    image: &Image,
    ranges: Ranges,
    word: usize,
    wanted: Ranges,
) -> PyResult<Vec<(u64, u64)>> {
    let (ranges, wanted) = (plain(ranges), address::wanted(wanted)?);
    if !matches!(word, 4 | 8) {
        return Err(PyValueError::new_err("a word has 4 or 8 bytes"));
    }
    watched_over(py, bytes_in(&ranges), None, |control| code_words(&image.inner, &ranges, word, &wanted, control))
}
