use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

/// An address that Python computed from values in a dump. A value that does not fit into 64 bits becomes the last
/// address. No memory is there and every range ends there. So a read gives no bytes, and nothing is raised.
#[derive(Clone, Copy)]
pub struct Address(pub u64);

impl<'py> FromPyObject<'_, 'py> for Address {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.extract::<u64>() {
            Ok(value) => Ok(Address(value)),
            Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => Ok(Address(u64::MAX)),
            Err(error) => Err(error),
        }
    }
}

/// `[start, end)` ranges.
pub type Ranges = Vec<(Address, Address)>;

pub fn plain(ranges: Ranges) -> Vec<(u64, u64)> {
    ranges.into_iter().map(|(start, end)| (start.0, end.0)).collect()
}

/// Returns the ranges that are searched for. Raises ValueError if they are in disorder.
pub fn wanted(ranges: Ranges) -> PyResult<Vec<(u64, u64)>> {
    let ranges = plain(ranges);
    if ranges.windows(2).any(|pair| pair[1].0 < pair[0].1) {
        return Err(PyValueError::new_err("the wanted ranges must be sorted and must not overlap"));
    }
    Ok(ranges)
}
