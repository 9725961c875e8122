//! Slab objects and their records, as Python has them.

use dmods_engine::kernel::slabs::leaks::Leaks;
use dmods_engine::kernel::slabs::sweep::Pointers;
use dmods_engine::kernel::slabs::table::{Node, LARGE};
use dmods_engine::kernel::slabs::tracks::{Group, Track};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// What a search for leaks leaves.
pub(crate) struct Found {
    pub leaks: Leaks,
    /// What objects hold, until `set_aside` is called.
    pub pointers: Option<Pointers>,
    pub bytes: u64,
    pub missing: [u64; 2],
    /// Large blocks that only pointers to their struct page hold, sorted.
    pub only_paged: Vec<Node>,
}

pub(crate) type CacheRow = (u64, u64, u64, u64, u64, u64);
pub(crate) type GroupRow<'py> = (Option<u32>, u64, Option<Bound<'py, PyBytes>>, u64, u64, u64, u64, u64);
/// A fault of a freelist: (what, slab, cache, where, value).
pub(crate) type FaultRow = (&'static str, u64, u32, Option<u64>, u64);
/// Overwritten bytes: (zone, object, cache, first byte, bytes, expected value, what is there).
pub(crate) type Overwritten<'py> = (&'static str, u64, u32, u64, u32, u8, Bound<'py, PyBytes>);
/// An object: see `SlabObjects.at` in _engine.pyi.
pub(crate) type ObjectRow = (u64, u64, Option<u32>, u8, u32, u64, u64);
/// A leak that matches: see _engine.pyi.
pub(crate) type MatchRow = (u64, u64, Option<u32>, usize, u64, u64);
/// A leaked object: see _engine.pyi.
pub(crate) type LeakRow = (u64, u64, Option<u32>, bool, u64, u64);
/// An object with its record: (address, size, cache, record).
pub(crate) type RecordRow<'py> = (u64, u64, Option<u32>, TrackRow<'py>);
/// A word that holds: (address, value, state of what holds).
pub(crate) type HolderRow = (u64, u64, u8);

pub(crate) type TrackRow<'py> = (u64, Bound<'py, PyBytes>, i32, i32, u64);
pub(crate) type Pattern = (u32, Vec<(u32, u64, u64)>);

pub(crate) fn cache_of(number: u32) -> Option<u32> {
    (number != LARGE).then_some(number)
}

pub(crate) fn group_row<'py>(py: Python<'py>, group: &Group) -> GroupRow<'py> {
    let key = group.key.as_ref().map(|key| PyBytes::new(py, key));
    let (kept, kept_bytes) = group.kept;
    (cache_of(group.cache), group.size, key, group.count, kept, kept_bytes, group.oldest.0, group.oldest.1)
}

pub(crate) fn track_row<'py>(py: Python<'py>, track: &Track) -> TrackRow<'py> {
    (track.at, PyBytes::new(py, &track.key), track.cpu, track.pid, track.when)
}
