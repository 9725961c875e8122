//! What the questions about owners take and give, as Python has it.

use dmods_engine::graph::owners;
use dmods_engine::graph::roots::{Area, Home, Word};
use pyo3::exceptions::PyValueError;
use pyo3::types::PyBytes;
use pyo3::{Bound, PyResult};

use crate::address::Address;

/// (start, end, root, rank).
pub type AreaRow = (Address, Address, u32, u32);
/// (value, root, rank).
pub type Value = (u64, u32, u32);
/// (root, arena, whether it is a variable).
pub type HomeRow = (u32, Option<u32>, bool);
/// ("live", 0), ("set", its number) or ("below", an address).
pub type Scope = (String, u64);
/// (address, usable bytes, blocks, bytes) that a block keeps alive, itself included.
pub type KeptRow = (u64, u64, u32, u64);
/// Where the path begins ("memory", "value" or "leak"), the address or index, the root, and the addresses of the blocks.
pub type Path<'py> = (&'static str, u64, u32, Bound<'py, PyBytes>);

/// Returns the areas. Raises ValueError if they overlap or are not sorted.
pub fn areas(rows: Vec<AreaRow>) -> PyResult<Vec<Area>> {
    let areas: Vec<Area> =
        rows.into_iter().map(|(start, end, root, rank)| Area { start: start.0, end: end.0, root, rank }).collect();
    if areas.windows(2).any(|pair| pair[1].start < pair[0].end) {
        return Err(PyValueError::new_err("the areas must be sorted and must not overlap"));
    }
    Ok(areas)
}

/// Returns the single roots.
pub fn values(rows: Vec<Value>) -> Vec<Word> {
    rows.into_iter().map(|(value, root, rank)| Word { value, root, rank }).collect()
}

/// Returns what is known of roots on stacks.
pub fn homes_of(rows: Vec<HomeRow>) -> Vec<Home> {
    let mut homes: Vec<Home> =
        rows.into_iter().map(|(root, arena, is_variable)| Home { root, arena, is_variable }).collect();
    homes.sort_unstable_by_key(|home| home.root);
    homes
}

/// Returns the scope. Raises ValueError for an unknown one.
pub fn scope((name, value): Scope) -> PyResult<owners::Scope> {
    match name.as_str() {
        "live" => Ok(owners::Scope::Live),
        "set" => Ok(owners::Scope::Set(u32::try_from(value).unwrap_or(u32::MAX))),
        "below" => Ok(owners::Scope::Below(value)),
        _ => Err(PyValueError::new_err("a scope is live, set or below")),
    }
}
