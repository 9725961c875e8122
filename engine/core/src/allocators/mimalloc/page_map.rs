//! Pages of mimalloc 3.x, found by `_mi_page_map`.
//!
//! The map is a table of tables of pointers to pages, or a table of bytes. Its address lies in the data of mimalloc's
//! module. It is believed when its entries lead to pages whose blocks lie in the slices that the entries stand for.

use super::arenas::{area, begins_itself, in_use, Arenas, Entries, Entry};
use super::page::{Fault, Page};
use super::shape::{mapped, Shape, LARGE, SLICE};
use super::walked::{merged, Heap, Trial};
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::image::Image;
use crate::nonzero_words::each_word;
use crate::words::USER_END;
use std::collections::{HashMap, HashSet};

const BLOCK: usize = 1 << 18;
const TASTE: usize = 1 << 12;
/// `MI_PAGE_MAP_SUB_COUNT`: entries of a table of the second level.
const SUB: u64 = 1 << 13;
/// How many bits of address space a map may cover. Behind it lies other memory.
const BITS: [u32; 2] = [47, 48];
/// How many entries vote for a map, and how many may be wrong before it is given up.
const VOTERS: usize = 64;
const WRONG: usize = 4;
/// How many words of a possible map are looked at for the bytes before it, and how many bytes that may be.
const TRIED_SLOTS: usize = 64;
const MOST_HEADER: u64 = 4096;
/// How many pages of a trial are read.
const TRIED: usize = 512;
/// How many pages are read.
const MOST_PAGES: usize = 1 << 23;
/// How many bytes the search for a map may read.
const BUDGET: u64 = 1 << 30;

/// A possible map.
#[derive(Clone, Copy)]
struct Map {
    root: u64,
    /// Whether it is a table of bytes.
    flat: bool,
    bits: u32,
}

impl Map {
    /// Returns the bytes of the table, or of the first level.
    fn size(&self) -> u64 {
        if self.flat {
            1 << (self.bits - 16)
        } else {
            8 << (self.bits - 16 - 13)
        }
    }

    fn end(&self) -> u64 {
        self.root.saturating_add(self.size())
    }
}

/// The address space that one entry of the first level stands for.
const REACH: u64 = SLICE * SUB;

/// Returns the parts of a first level that stand for mapped memory, as offsets in bytes from its start. No other entry
/// leads to a page that is there. A word of the program's data often leads to megabytes of zeros: a search that read all of
/// them took half a second in each process with jemalloc.
fn parts(mapped: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let entries = mapped.iter().filter(|(start, end)| start < end && *start < USER_END);
    merged(entries.map(|&(start, end)| (8 * (start / REACH), 8 * (end.min(USER_END).div_ceil(REACH)))).collect())
}

/// Reads all mimallocs 3.x. See [`super::segments::find`]. `mapped` are the mappings of the process.
pub(super) fn find(
    image: &Image,
    data: &[(u64, u64)],
    mapped: &[(u64, u64)],
    control: &Control,
) -> (Vec<Heap>, Option<String>) {
    let mut heaps = Vec::new();
    let mut refused = None;
    let mut seen = HashSet::new();
    let mut roots = Vec::new();
    let mut budget = BUDGET;
    let parts = parts(mapped);
    for &(start, end) in data {
        each_word(image, start, end, BLOCK, |_, word| {
            if budget > 0 && word % 64 == 0 && (SLICE..1 << 48).contains(&word) && seen.insert(word) {
                for flat in [false, true] {
                    let root = if flat { word } else { word + header(image, word, &parts, &mut budget) };
                    let maps = BITS.map(|bits| Map { root, flat, bits });
                    let votes = maps.map(|map| if flat || word % 4096 == 0 { votes(image, map, &parts) } else { 0 });
                    if votes[0] > 0 || votes[1] > 0 {
                        roots.push(maps[usize::from(votes[1] > votes[0])]);
                    }
                }
            }
            !control.cancelled()
        });
    }
    for map in roots {
        let (all, tables) = entries(image, map, control);
        let entries = in_use(image, all, mapped);
        match choose(image, &entries.kept) {
            Ok(shape) => {
                let mut heap = read(image, shape, map, &entries, control);
                // An entry that was left behind (3.0) may point into a block.
                let own = tables.into_iter().map(|table| (table, table.saturating_add(8 * SUB)));
                heap.owned = merged(heap.owned.into_iter().chain(own).collect());
                heaps.push(heap);
            }
            Err(why) => refused = Some(why),
        }
    }
    (heaps, refused)
}

/// Returns the bytes before the table of the first level. (3.6 has some.) A page at the start of a slice tells them: its
/// address is its place in the map.
///
/// Takes what it reads from the budget.
fn header(image: &Image, root: u64, parts: &[(u64, u64)], budget: &mut u64) -> u64 {
    let mut found = 0;
    if root % 4096 != 0 {
        return found;
    }
    let mut left = TRIED_SLOTS;
    let shifted = parts.iter().map(|&(from, to)| (root + from, root + to + MOST_HEADER));
    for (from, to) in merged(shifted.collect()) {
        let read = each_word(image, from, to, TASTE, |at, table| {
            left -= 1;
            if table % 4096 == 0 && table < 1 << 48 && table != root && image.next(table) == Some(table) {
                let mut tried = 0;
                each_word(image, table, table.saturating_add(8 * SUB), TASTE, |place, page| {
                    let slice = page >> 16;
                    let table_of = root.wrapping_add(8 * (slice / SUB));
                    let bytes = at.wrapping_sub(table_of);
                    if page % SLICE == 0 && slice % SUB == (place - table) / 8 && bytes < MOST_HEADER {
                        found = bytes;
                    }
                    tried += 1;
                    found == 0 && tried < TRIED_SLOTS
                });
            }
            found == 0 && left > 0
        });
        *budget = budget.saturating_sub(read);
        if found != 0 || left == 0 {
            break;
        }
    }
    *budget = budget.saturating_sub(SLICE);
    found
}

/// Returns how many entries of a possible map lead to a page; 0 if too many do not. An entry of a page that is gone
/// counts for neither.
fn votes(image: &Image, map: Map, parts: &[(u64, u64)]) -> usize {
    let (mut right, mut wrong) = (0, 0);
    if map.flat {
        let mut first = [0; 2];
        // The first slice of the address space has 1, so that a null pointer needs no test.
        if image.read(map.root, &mut first) < 2 || first != [1, 0] {
            return 0;
        }
    }
    visit(image, map, parts, &mut |slice, page| {
        match is_page(image, page, slice) {
            true => right += 1,
            false if !map.flat && begins_itself((page, slice, slice + SLICE)) => (),
            false => wrong += 1,
        }
        right + wrong < VOTERS && wrong < WRONG
    });
    if wrong >= WRONG || wrong > right {
        0
    } else {
        right
    }
}

/// Calls `each(slice, page)` for the first slice of each page in these parts of the map, until it returns false. What is
/// no map is left after a few words.
fn visit(image: &Image, map: Map, parts: &[(u64, u64)], each: &mut dyn FnMut(u64, u64) -> bool) {
    let root = map.root;
    if map.flat {
        each_word(image, root.next_multiple_of(8), map.end(), TASTE, |at, word| {
            (0..8).all(|i| {
                let slice = (at - root + i) << 16;
                word >> (8 * i) & 0xff != 1 || slice == 0 || each(slice, slice)
            })
        });
        return;
    }
    let (mut last, mut go_on) = (0, true);
    for &(from, to) in parts {
        each_word(image, root + from, map.end().min(root + to), TASTE, |at, table| {
            let index = (at - root) / 8;
            if index == 0 {
                return true; // for null pointers: in 3.0.1 shorter than the other tables
            }
            if table % 4096 != 0 || table >= 1 << 48 || table == root {
                go_on = false;
                return false;
            }
            each_word(image, table, table.saturating_add(8 * SUB), TASTE, |at, page| {
                let slice = (index * SUB + (at - table) / 8) << 16;
                if page != last {
                    last = page;
                    go_on = each(slice, page);
                }
                go_on
            });
            go_on
        });
        if !go_on {
            return;
        }
    }
}

/// Returns whether the fields that all releases share are those of a page whose blocks begin in the slice.
fn is_page(image: &Image, address: u64, slice: u64) -> bool {
    if slice == 0 || address % 8 != 0 || address >= USER_END - SLICE {
        return false;
    }
    let last = slice.saturating_add(LARGE);
    mapped().iter().filter(|shape| shape.keys.is_none()).any(|shape| {
        let page = Page::read(image, shape, address, (slice, last.max(slice + (1 << 46))));
        page.is_some_and(|page| page.start < last)
    })
}

/// Returns the pages in the map, with the slices that it gives to them, and the tables of the second level.
fn entries(image: &Image, map: Map, control: &Control) -> (Vec<Entry>, Vec<u64>) {
    let root = map.root;
    let mut tables = HashSet::new();
    let mut found: HashMap<u64, (u64, u64)> = HashMap::new();
    let mut note = |slice: u64, page: u64| {
        if found.len() >= MOST_PAGES {
            return false;
        }
        let slices = found.entry(page).or_insert((slice, slice + SLICE));
        *slices = (slices.0.min(slice), slices.1.max(slice + SLICE));
        !control.cancelled()
    };
    if map.flat {
        each_word(image, root.next_multiple_of(8), map.end(), BLOCK, |at, word| {
            (0..8).all(|i| {
                let (slice, back) = ((at - root + i) << 16, word >> (8 * i) & 0xff);
                let page = slice.saturating_sub(back.saturating_sub(1) << 16);
                slice == 0 || back == 0 || note(slice, page)
            })
        });
    } else {
        each_word(image, root, map.end(), BLOCK, |at, table| {
            let index = (at - root) / 8;
            if index != 0 && table % 4096 == 0 && table < 1 << 48 && table != root && tables.insert(table) {
                each_word(image, table, table.saturating_add(8 * SUB), BLOCK, |at, page| {
                    note((index * SUB + (at - table) / 8) << 16, page)
                });
            }
            !control.cancelled()
        });
    }
    let mut out: Vec<Entry> = found.into_iter().map(|(page, (from, to))| (page, from, to)).collect();
    out.sort_unstable_by_key(|&(page, from, _)| (from, page));
    (out, tables.into_iter().collect())
}

fn choose(image: &Image, entries: &[Entry]) -> Result<Shape, String> {
    let mut trial = Trial::default();
    let step = entries.len() / TRIED + 1;
    let mut reader = CachedReader::new(image);
    for shape in mapped() {
        let mut heap = Heap::new(*shape);
        for &entry in entries.iter().step_by(step) {
            match Page::read(image, shape, entry.0, area(entry)) {
                Some(page) => heap.pages.push(page),
                None => heap.fault(Fault::Page, entry.0),
            }
        }
        heap.follow(&mut reader, &Control::default());
        trial.add(heap);
    }
    trial.best()
}

fn read(image: &Image, shape: Shape, map: Map, entries: &Entries, control: &Control) -> Heap {
    let mut heap = Heap::new(shape);
    heap.map = map.root;
    heap.absent = entries.absent;
    let mut unsound = Vec::new();
    for (index, &entry) in entries.kept.iter().enumerate() {
        if index % 1024 == 0 && control.cancelled() {
            break;
        }
        match Page::read(image, &shape, entry.0, area(entry)) {
            Some(page) => {
                heap.own(entry.1, page.end().max(entry.2));
                heap.pages.push(page);
            }
            None => {
                unsound.push(entry);
                heap.own(entry.1, entry.2);
            }
        }
    }
    heap.pages.sort_by_key(|page| page.start);
    for entry in unsound {
        let (page, from, _) = entry;
        // An entry that was left behind may lead into a block of a page that came later.
        let before = heap.pages.partition_point(|one| one.start <= from);
        let covered = before > 0 && heap.pages[before - 1].end() > from;
        let unmapped_since = entries.left_behind && begins_itself(entry) && entries.arenas.at(page).is_none();
        if !covered && !unmapped_since {
            heap.fault(Fault::Page, page);
        }
    }
    Arenas::find(image, &shape, &entries.kept).own(&mut heap);
    heap.follow(&mut CachedReader::new(image), control);
    heap
}
