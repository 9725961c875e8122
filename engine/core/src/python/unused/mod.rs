//! Words in blocks in use that CPython does not use: they keep nothing alive.
//!
//! pymalloc does not clear what it gives out, and its blocks are often larger than their objects. So old pointers stay
//! where nobody writes: behind an object, behind the last item of a list, in objects that lie in a free list. Marking
//! would take them for pointers. Only what the layout of the built-in types proves is left out:
//!
//! * [`objects`]: the rest of a block behind an object, numbers and characters, the places of a list behind its last item.
//! * [`frames`]: the places of a value stack above its top, and numbers between pointers.
//! * [`deques`]: the places before the first item and behind the last, and blocks that are kept for reuse.
//! * [`values`]: the bytes beside the values of attributes.
//! * [`free_lists`]: objects that CPython keeps for reuse. Only the links of these lists count.
//! * [`arena`]: the memory of the compiler's trees. Their objects are also in a list.
//! * [`large`]: objects above 512 bytes, which lie in blocks of malloc.
//! * [`statics`]: objects in the data of the interpreter's file.

pub mod arena;
pub mod deques;
pub mod frames;
pub mod free_lists;
pub mod large;
pub mod objects;
pub mod search;
pub mod statics;
pub mod values;

use super::census;
use crate::control::Control;
use crate::image::Image;
pub use search::Process;
use search::Search;

/// Returns the ranges whose words CPython does not use: sorted and disjoint.
pub fn find(image: &Image, process: &Process<'_>, control: &Control) -> Vec<(u64, u64)> {
    let mut search = Search::new(image, process);
    for slots in process.slots {
        for span in &slots.spans {
            if control.cancelled() {
                return Vec::new();
            }
            for index in (0..span.count).filter(|&index| !slots.is_free(span, index)) {
                let start = span.start.saturating_add(u64::from(index).saturating_mul(span.slot));
                look(&mut search, start, span.slot);
            }
            control.add(span.slot.saturating_mul(u64::from(span.count)));
        }
    }
    large::find(&mut search, control);
    free_lists::find(&mut search, control);
    merged(search.found)
}

fn look(search: &mut Search<'_, '_>, start: u64, size: u64) {
    let Process { release, links, .. } = *search.process;
    let end = start.saturating_add(size);
    let Search { types, words, .. } = search;
    // Most containers are in a list of the collector, which says where they begin.
    let before = [16, 32].into_iter().find(|&before| search.nodes.next_is(start.saturating_add(before - 16)));
    let listed = before.filter(|&before| before < size);
    let found = listed
        .and_then(|before| census::object_at(types, words, release, (start + before, before), size - before))
        .or_else(|| census::object(types, words, release, links, start, size));
    match found {
        Some(object) => objects::unused(search, object, end),
        None => arena::unused(search, start, size),
    }
}

/// Returns the ranges sorted, with those that touch made one.
pub fn merged(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort(); // they are sorted in parts
    let mut out: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (start, end) in ranges {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}
