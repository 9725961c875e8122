//! Objects in the data of the interpreter's file: strings, numbers, and the code of modules that are imported first.
//!
//! The compiler made them (deepfreeze.py, 3.11 and 3.12; Include/internal/pycore_global_objects.h). No allocator has them,
//! and the collector does not track them. Instructions and characters look like addresses of a program at a fixed address,
//! whose heap is near.

use super::{merged, objects, Process, Search};
use crate::control::Control;
use crate::image::Image;
use crate::python::census;
use crate::python::types::Kind;

/// A static object of 3.11 is made with so many references, and loses or gets some (Tools/scripts/deepfreeze.py).
const REFERENCES_311: u64 = 999_999_999;
const MOST_CHANGED: u64 = 100_000_000;
/// Since 3.12 it is immortal: the lower half of its count is at least this (`_Py_IMMORTAL_REFCNT`, in 3.14
/// `_Py_IMMORTAL_INITIAL_REFCNT`).
const IMMORTAL: u64 = 3 << 30;
/// No larger one is in a file.
const MOST: u64 = 1 << 24;
/// Words between two looks at the control.
const STEP: u64 = 1 << 16;

/// Returns the ranges of `data`, the writable parts of the interpreter's file, whose words hold nothing: sorted and disjoint.
pub fn find(image: &Image, process: &Process<'_>, data: &[(u64, u64)], control: &Control) -> Vec<(u64, u64)> {
    let mut search = Search::new(image, process);
    let parts = data.iter().flat_map(|&(start, end)| image.covered(start.next_multiple_of(8), end));
    for (start, end) in parts {
        let mut at = start.next_multiple_of(8);
        while at.saturating_add(16) <= end {
            at = look(&mut search, at, end).unwrap_or(at + 8);
            if at / 8 % STEP == 0 && control.cancelled() {
                return Vec::new();
            }
        }
    }
    merged(search.found)
}

/// Adds what the object there does not use. Returns where it ends.
fn look(search: &mut Search<'_, '_>, at: u64, end: u64) -> Option<u64> {
    let release = search.process.release;
    let kind = search.word(at, 8).filter(|&kind| search.is_inside(kind))?;
    let count = search.word(at, 0)?;
    let lives = match release.minor {
        ..=11 => count.abs_diff(REFERENCES_311) < MOST_CHANGED,
        _ => count & 0xffff_ffff >= IMMORTAL,
    };
    let known = search.builtin(kind).filter(|_| lives)?;
    if !matches!(known.kind, Kind::Str | Kind::Int | Kind::Code) && !objects::is_bytes(&known) {
        return None;
    }
    let Search { types, words, .. } = search;
    let object = census::object_at(types, words, release, (at, 0), MOST.min(end - at))?;
    let behind = at.saturating_add(object.inside).next_multiple_of(8).min(end);
    objects::unused(search, object, behind);
    Some(behind)
}
