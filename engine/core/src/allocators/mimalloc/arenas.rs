//! Arenas of mimalloc 3.x: the memory of pages, and which pages are in use.
//!
//! Until 3.0.1 the page map keeps the entries of a page that is gone: `_mi_page_map_unregister` writes the page itself
//! instead of NULL. By then the page's memory is cleared, or unmapped, or part of a later page, depending on when the
//! arena was purged. An arena has a bitmap (`mi_arena_t.pages`) with the first slice of each page that is in use. It is
//! recognized by its bits: each belongs to an entry, and no other bitmap has more of the pages that have used blocks.

use super::page::Page;
use super::shape::{mapped as shapes, Shape, LARGE, SLICE};
use super::walked::{merged, Heap};
use crate::image::Image;
use std::collections::{HashMap, HashSet};

const MOST_ARENA: u64 = 1 << 44;
/// Bytes behind `xthread_free` and the word after it in which a page's `memid` begins.
const MOST_OFFSET: usize = 160;
/// Words of a `mi_arena_t` that are searched for its size and its bitmaps.
const ARENA_WORDS: u64 = 24;
/// How many pages are asked for the place of their `memid`, and for their bit.
const TRIED: usize = 2048;
/// `MI_BCHUNK_BITS`, and the most chunks of a bitmap.
const CHUNK_BITS: u64 = 512;
const MOST_CHUNKS: u64 = 512;
/// The share of pages with used blocks that must have their bit, in percent.
const AGREE: usize = 90;

/// A page in the map: where its `mi_page_t` lies, and its slices.
pub(super) type Entry = (u64, u64, u64);

/// Returns the memory that a page may use.
pub(super) fn area((_, from, to): Entry) -> (u64, u64) {
    // The map has as many slices as the blocks need, without the header before them. It does not know the end of a large
    // page.
    (from, if to - from >= LARGE - SLICE { from.saturating_add(1 << 46) } else { to.saturating_add(SLICE) })
}

/// The entries of a page map, without those of pages that are gone.
#[derive(Default)]
pub(super) struct Entries {
    pub kept: Vec<Entry>,
    pub arenas: Arenas,
    /// Whether the map keeps entries of pages that are gone.
    pub left_behind: bool,
    /// Pages whose `mi_page_t` is mapped, but not in the dump.
    pub absent: usize,
}

/// Leaves out the entries of pages that are gone. `mapped` are the mappings of the process.
pub(super) fn in_use(image: &Image, all: Vec<Entry>, mapped: &[(u64, u64)]) -> Entries {
    let mut tried = shapes().iter().filter(|shape| shape.keys.is_none()).map(|shape| {
        let mut arenas = Arenas::find(image, shape, &all);
        let agreed = arenas.find_starts(image, shape, &all);
        (agreed, shape, arenas)
    });
    let Some(first) = tried.next() else { return Entries::default() };
    let (_, shape, arenas) = tried.fold(first, |best, one| if one.0 > best.0 { one } else { best });
    let mapped = merged(mapped.to_vec());
    let is_mapped = |at: u64| mapped.get(mapped.partition_point(|&(_, end)| end <= at)).is_some_and(|one| one.0 <= at);
    let mut out = Entries::default();
    for entry in all {
        let (page, from, _) = entry;
        if begins_itself(entry) && arenas.is_start(page) == Some(false) {
            // A page with used blocks is not gone, whatever its bit says.
            if Page::read(image, shape, page, area(entry)).is_none_or(|page| page.used == 0) {
                out.left_behind = true;
                continue;
            }
        } else if image.next(page) != Some(page) {
            if is_mapped(page) {
                out.absent += 1;
                continue;
            } else if begins_itself(entry) && !is_mapped(from) {
                out.left_behind = true;
                continue;
            }
        }
        out.kept.push(entry);
    }
    out.arenas = arenas;
    out
}

/// Returns whether the page lies at the start of its slices, as until 3.2.
pub(super) fn begins_itself((page, from, _): Entry) -> bool {
    page % SLICE == 0 && from.checked_sub(page).is_some_and(|before| before <= LARGE)
}

/// The `memid` of a page: arena and slice, or base and size.
#[derive(Clone, Copy, Default)]
struct Memory {
    words: [u64; 2],
    /// Where the arena's memory begins, if it is an arena and agrees with the page's place in the map.
    base: Option<u64>,
}

/// The memory of one `mi_arena_t`.
struct Arena {
    address: u64,
    start: u64,
    end: u64,
    /// A bit for each slice at which a page in use begins. Empty if that is not known.
    starts: Vec<u8>,
}

/// The memory of pages.
#[derive(Default)]
pub(super) struct Arenas {
    /// Sorted by address of their memory.
    all: Vec<Arena>,
    /// Memory of pages that comes from the operating system.
    outside: Vec<(u64, u64)>,
}

impl Arenas {
    /// Finds the arenas that the pages name.
    pub(super) fn find(image: &Image, shape: &Shape, entries: &[Entry]) -> Arenas {
        // (arena, where its memory begins) -> (its first slice with a page, the slices that it must have)
        let mut found: HashMap<(u64, u64), (u64, u64)> = HashMap::new();
        let mut out = Arenas::default();
        for (of, &(_, from, to)) in memory_ids(image, shape, entries).iter().zip(entries) {
            let [word, rest] = of.words;
            let (index, count) = (rest & 0xffff_ffff, rest >> 32);
            if let Some(base) = of.base {
                let needs = found.entry((word, base)).or_insert((index, 0));
                *needs = (needs.0.min(index), needs.1.max(index + count));
            } else if word % 4096 == 0 && word != 0 && word <= from && rest < 1 << 46 && word.saturating_add(rest) >= to
            {
                out.outside.push((word, word + rest));
            }
        }
        for (&(address, start), &(first, needs)) in &found {
            // slice_count and info_slices stand side by side; the header's slices come before those of pages.
            let words = (0..ARENA_WORDS).map_while(|i| image.words::<2>(address.checked_add(8 * i)?, 8));
            let fits = |&[count, info]: &[u64; 2]| {
                count >= needs && count < MOST_ARENA / SLICE && info > 0 && info <= first && info < count
            };
            let count = words.skip(2).find(fits).map_or(needs, |[count, _]| count);
            out.all.push(Arena { address, start, end: start.saturating_add(count << 16), starts: Vec::new() });
        }
        out.all.sort_unstable_by_key(|arena| (arena.start, arena.end));
        out
    }

    /// Returns the arena whose memory has the address.
    pub(super) fn at(&self, address: u64) -> Option<usize> {
        let index = self.all.partition_point(|arena| arena.start <= address).checked_sub(1)?;
        (address < self.all[index].end).then_some(index)
    }

    /// Returns whether a page in use begins at the address, or None if that is not known.
    fn is_start(&self, address: u64) -> Option<bool> {
        let arena = &self.all[self.at(address)?];
        has(&arena.starts, (address - arena.start) / SLICE)
    }

    /// Finds the bitmaps of pages in use. Returns how many pages with used blocks agree with them; 0: not found.
    fn find_starts(&mut self, image: &Image, shape: &Shape, entries: &[Entry]) -> usize {
        let mut used = Vec::new();
        for &entry in entries.iter().step_by(entries.len() / TRIED + 1).filter(|&&entry| begins_itself(entry)) {
            let page = Page::read(image, shape, entry.0, area(entry)).filter(|page| page.used > 0);
            used.extend(page.and_then(|page| self.slice(page.address)));
        }
        let firsts: HashSet<(usize, u64)> = entries.iter().filter_map(|entry| self.slice(entry.0)).collect();
        let mut best: Option<(usize, std::cmp::Reverse<usize>, Vec<Vec<u8>>)> = None;
        for place in 0..ARENA_WORDS {
            let maps: Vec<Vec<u8>> = self.all.iter().map(|arena| arena.bitmap(image, place)).collect();
            let hits = used.iter().filter(|&&(index, slice)| has(&maps[index], slice) == Some(true)).count();
            let (mut set, mut stray) = (0, 0);
            for (index, map) in maps.iter().enumerate() {
                for (byte, &bits) in map.iter().enumerate().filter(|&(_, &bits)| bits != 0) {
                    let slices = (0..8).filter(|bit| bits >> bit & 1 != 0).map(|bit| 8 * byte as u64 + bit);
                    set += bits.count_ones() as usize;
                    stray += slices.filter(|&slice| !firsts.contains(&(index, slice))).count();
                }
            }
            // One page may be between the bitmap and the map.
            let fits = hits > 0 && hits * 100 >= used.len() * AGREE && stray <= 1 + set / 20;
            let score = (hits, std::cmp::Reverse(set));
            if fits && best.as_ref().is_none_or(|one| score > (one.0, one.1)) {
                best = Some((hits, score.1, maps));
            }
        }
        let Some((hits, _, maps)) = best else { return 0 };
        for (arena, map) in self.all.iter_mut().zip(maps) {
            arena.starts = map;
        }
        hits
    }

    /// Returns the arena of an address, and the slice in it.
    fn slice(&self, address: u64) -> Option<(usize, u64)> {
        let index = self.at(address)?;
        Some((index, (address - self.all[index].start) / SLICE))
    }

    /// Gives the memory to the heap.
    pub(super) fn own(self, heap: &mut Heap) {
        for (start, end) in self.outside {
            heap.own(start, end);
        }
        for (start, end) in merged(self.all.iter().map(|arena| (arena.start, arena.end)).collect()) {
            heap.own(start, end);
            heap.regions.push((start, end, 0));
        }
    }
}

impl Arena {
    /// Returns the bits of the `mi_bitmap_t` to which that word of the arena points. Empty: it points to none.
    fn bitmap(&self, image: &Image, place: u64) -> Vec<u8> {
        let bits = || {
            let at = image.word(self.address.checked_add(8 * place)?, 8)?;
            if at % 64 != 0 || !(self.address..self.end).contains(&at) {
                return None;
            }
            // The number of chunks, padding to 64 bytes, a chunk that says which chunks have bits, the chunks.
            let [chunks, padding @ ..] = image.words::<8>(at, 8)?;
            let needs = ((self.end - self.start) / SLICE).div_ceil(CHUNK_BITS);
            if !(needs..=MOST_CHUNKS).contains(&chunks) || padding != [0; 7] {
                return None;
            }
            let mut out = vec![0; (chunks * CHUNK_BITS / 8) as usize];
            (image.read(at.checked_add(128)?, &mut out) == out.len()).then_some(out)
        };
        bits().unwrap_or_default()
    }
}

fn has(map: &[u8], slice: u64) -> Option<bool> {
    Some(map.get(usize::try_from(slice / 8).ok()?)? >> (slice % 8) & 1 != 0)
}

/// Returns each page's `memid`. Its offset is where most pages name their own slice.
fn memory_ids(image: &Image, shape: &Shape, entries: &[Entry]) -> Vec<Memory> {
    // The arena's memory begins with it, or where its own memid says (3.6).
    let base = |[arena, index]: [u64; 2], from: u64| -> Option<u64> {
        if arena == 0 || arena % SLICE != 0 || index >> 32 == 0 {
            return None;
        }
        let bytes = (index & 0xffff_ffff) << 16;
        let fits = |base: &u64| base.checked_add(bytes) == Some(from) && base % SLICE == 0;
        Some(arena).filter(fits).or_else(|| image.word(arena, 8).filter(fits))
    };
    let first = shape.thread_free + 16;
    let mut votes: HashMap<usize, usize> = HashMap::new();
    for &(page, from, _) in entries.iter().step_by(entries.len() / TRIED + 1) {
        let mut bytes = [0; MOST_OFFSET + 8];
        let got = image.read(page.saturating_add(first as u64), &mut bytes);
        let word = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        for at in (0..MOST_OFFSET).step_by(8).take_while(|at| at + 16 <= got) {
            if base([word(at), word(at + 8)], from).is_some() {
                *votes.entry(first + at).or_default() += 1;
            }
        }
    }
    let Some((&offset, _)) = votes.iter().max_by_key(|&(offset, votes)| (*votes, std::cmp::Reverse(*offset))) else {
        return vec![Memory::default(); entries.len()];
    };
    let read = |&(page, from, _): &Entry| {
        let words = image.words::<2>(page.saturating_add(offset as u64), 8).unwrap_or([0; 2]);
        Memory { words, base: base(words, from) }
    };
    entries.iter().map(read).collect()
}
