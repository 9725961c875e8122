//! Reads the pages of mimalloc 2.x and 3.x from a core, without symbols.
//!
//! A page has blocks of one size side by side and three lists of free blocks. What is below its capacity and in no list
//! is in use. A shape (the offsets of a page's fields) is believed when the lists and the counts of pages agree.
//!
//! * [`shape`]: the shapes that are tried.
//! * [`page`]: one page and its lists.
//! * `segments`: where 2.x has its pages; the delayed lists of its heaps.
//! * `page_map`: where 3.x has its pages.
//! * `arenas`: the memory of those pages, and which of them are in use.
//! * [`walked`]: what was read.

mod arenas;
pub mod page;
mod page_map;
mod segments;
pub mod shape;
pub mod walked;

pub use page::{Fault, Page};
pub use walked::Heap;

use crate::control::Control;
use crate::image::Image;

/// Returns every mimalloc of the process, and what failed where something looked like one. `data` is the writable memory
/// of modules. `memory` is where segments may lie. `mapped` are all mappings.
pub fn find(
    image: &Image,
    data: &[(u64, u64)],
    memory: &[(u64, u64)],
    mapped: &[(u64, u64)],
    control: &Control,
) -> (Vec<Heap>, Vec<String>) {
    let (mut heaps, older) = segments::find(image, data, memory, control);
    let (newer, refused) = page_map::find(image, data, mapped, control);
    heaps.extend(newer);
    let why = [older.map(|why| format!("segments: {why}")), refused.map(|why| format!("page map: {why}"))];
    (heaps, why.into_iter().flatten().collect())
}
