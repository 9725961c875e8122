//! Which numbers are physical addresses of objects, as devices get them.
//!
//! All physical addresses of a small machine are small numbers, and many other numbers are small: sizes, times, offsets in
//! tables. On guests of 256 MB, 10 to 60 objects begin by chance where such a number points. So an address counts
//! only if the words around it agree with it. There are two ways to agree.
//!
//! * A *descriptor* has the length of the buffer behind its address (virtio 1.2, 2.7.5; NVMe's SGL; xHCI's TRB). The
//!   length fits the object.
//! * A *list* has the addresses of several objects near each other, and few other numbers of that size between them.
//!
//! Addresses of the middle of an object do not count: any number may point into a large object.

use super::freelists::state;
use super::table::Table;

/// Numbers below this are no addresses of objects.
pub const LEAST: u64 = 1 << 16;
/// How many words before and behind an address belong to its list. Descriptors have up to 64 bytes.
const NEAR: usize = 16;
/// This many addresses of pages make a list. Two do not: the area of a program has two as well, its start and its end.
const PAGES_OF_A_LIST: usize = 4;
/// What says that a number is the address of a page.
const PAGE: u64 = 4096;

/// Returns whether the word at an index of some words is the address of the object that it is equal to. `value` is that
/// word.
pub fn is_meant(table: &Table, states: &[u8], words: &[u8], index: usize, value: u64) -> bool {
    let is_object = |value: u64| object_at(table, states, value).is_some();
    let Some(size) = object_at(table, states, value) else { return false };
    has_length(words, index, size) || is_list(table.span(), words, index, value, is_object)
}

/// Returns the bytes of the allocated object of a slab that begins at a physical address.
fn object_at(table: &Table, states: &[u8], physical: u64) -> Option<u64> {
    let place = table.place(physical)?;
    let slab = &table.slabs[place.slab as usize];
    let cache = table.caches.get(slab.cache as usize)?;
    let allocated = *states.get(slab.first as usize + place.slot as usize)? < state::FREE;
    (place.within == cache.red_left && allocated).then_some(u64::from(cache.object_size))
}

/// Returns whether the next word has a length of at least half of the object: kmalloc gives no more than the double.
fn has_length(words: &[u8], index: usize, size: u64) -> bool {
    let length = word(words, index + 1).map_or(0, |next| next & 0xffff_ffff);
    length <= size && length * 2 >= size.max(1)
}

fn is_list(span: u64, words: &[u8], index: usize, value: u64, is_object: impl Fn(u64) -> bool) -> bool {
    let (mut others, mut pages, mut objects, mut numbers) = (0, 0, 0, 0);
    let mut seen = [0; 2 * NEAR + 1];
    let mut count = 0;
    for at in index.saturating_sub(NEAR)..=index + NEAR {
        let Some(near) = word(words, at).filter(|near| (LEAST..span).contains(near)) else { continue };
        let (is_page, is_object) = (near % PAGE == 0, is_object(near));
        if !is_page {
            numbers += 1;
            objects += usize::from(is_object);
        }
        if is_object && near != value && !seen[..count].contains(&near) {
            seen[count] = near;
            count += 1;
            others += usize::from(!is_page);
            pages += 1;
        }
    }
    let enough = if value % PAGE == 0 { pages + 1 >= PAGES_OF_A_LIST } else { others > 0 };
    enough && objects * 2 >= numbers
}

fn word(words: &[u8], index: usize) -> Option<u64> {
    words.get(index * 8..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}
