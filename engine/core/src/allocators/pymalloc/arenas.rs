//! Reads all pools of the arenas of an array.

use super::pool::{self, Header};
use super::search::{self, Entry};
use super::{Sizes, HEADER};
use crate::blocks::slots::Slots;
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::image::Image;
use std::collections::HashSet;

/// How many arenas an array may have: 1 TiB.
const MOST_ARENAS: u32 = 1 << 20;
/// How many entries without an arena may follow each other at the end. The array doubles as it grows.
const MOST_EMPTY: u32 = 1 << 16;

/// An arena, with what its pools are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arena {
    /// Where it begins.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// How many pools it has.
    pub pools: u32,
    /// How many of them have blocks in use.
    pub used: u32,
}

/// What is wrong with a pool or an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The pool contradicts itself: its blocks are not known.
    Pool,
    /// The arena's count of free pools is not the length of its list.
    FreePools,
    /// The pool is not in the dump.
    Missing,
}

/// The arenas, pools and blocks of the arrays.
#[derive(Debug, Default)]
pub struct Heap {
    /// The blocks.
    pub slots: Slots,
    /// The arenas, by address.
    pub arenas: Vec<Arena>,
    /// What is wrong, and where.
    pub problems: Vec<(Problem, u64)>,
    /// The pools whose blocks are not known.
    pub unknown: Vec<(u64, u64)>,
    /// How many blocks each size class has: (pools, blocks in use, free blocks), by class.
    pub classes: Vec<(u64, u64, u64)>,
}

/// Reads the arenas of the arrays. `inside` is the memory that may hold arenas: sorted, disjoint.
pub fn read(image: &Image, arrays: &[u64], inside: &[(u64, u64)], sizes: Sizes, control: &Control) -> Heap {
    let mut heap = Heap { classes: vec![(0, 0, 0); super::CLASSES as usize], ..Heap::default() };
    let mut entries: Vec<(u32, Entry)> = Vec::new();
    let mut reader = CachedReader::new(image);
    for &array in arrays {
        let mut empty = 0;
        for index in 0..MOST_ARENAS {
            let Some(entry) = search::entry(&mut reader, array, index, sizes) else { break };
            empty = if entry.address == 0 { empty + 1 } else { 0 };
            if empty > MOST_EMPTY {
                break;
            }
            if entry.address != 0 {
                entries.push((index, entry));
            }
        }
    }
    entries.sort_by_key(|(_, entry)| entry.address);
    let mut last = 0;
    for (index, entry) in entries {
        let end = entry.address + sizes.arena;
        let place = inside.partition_point(|range| range.1 <= entry.address);
        let mapped = inside.get(place).is_some_and(|range| range.0 <= entry.address && end <= range.1);
        if entry.address < last || !mapped || control.cancelled() {
            continue; // what follows an array may look like an arena
        }
        last = end;
        arena(image, index, &entry, sizes, &mut heap);
        control.add(sizes.arena);
    }
    heap
}

fn arena(image: &Image, index: u32, entry: &Entry, sizes: Sizes, heap: &mut Heap) {
    let first = entry.address.next_multiple_of(sizes.pool);
    let mut bytes = vec![0u8; sizes.pool as usize];
    let free = free_pools(image, entry, sizes);
    let cut = (entry.uncut.saturating_sub(first) / sizes.pool).min(u64::from(entry.pools));
    let mut used = 0;
    for number in 0..cut {
        let at = first + number * sizes.pool;
        if free.as_ref().is_some_and(|free| free.contains(&at)) {
            continue;
        }
        let whole = image.read(at, &mut bytes) == bytes.len();
        let header = Header::parse(&bytes, sizes).filter(|header| whole && header.arena == index);
        let map = header.and_then(|header| Some((header, pool::free_map(at, &bytes, &header, sizes)?)));
        let Some((header, map)) = map else {
            let empty = header.is_some_and(|header| header.count == 0) && free.is_none();
            if !empty {
                heap.problems.push((if whole { Problem::Pool } else { Problem::Missing }, at));
                heap.unknown.push((at, at + sizes.pool));
            }
            continue;
        };
        used += 1;
        let blocks = pool::blocks(header.size, sizes);
        let class = &mut heap.classes[(header.size / super::ALIGNMENT - 1) as usize];
        *class = (class.0 + 1, class.1 + u64::from(header.count), class.2 + blocks - u64::from(header.count));
        heap.slots.add(at + HEADER, header.size, blocks as u32, map);
    }
    let uncut = u64::from(entry.pools) - cut;
    if free.is_none_or(|free| free.len() as u64 + uncut != u64::from(entry.free)) {
        heap.problems.push((Problem::FreePools, entry.address));
    }
    heap.arenas.push(Arena { start: entry.address, end: entry.address + sizes.arena, pools: entry.pools, used });
}

/// Returns the free pools of an arena, or None if their list is damaged.
fn free_pools(image: &Image, entry: &Entry, sizes: Sizes) -> Option<HashSet<u64>> {
    let mut found = HashSet::new();
    let mut at = entry.first_free;
    while at != 0 {
        let inside = (entry.address..entry.uncut).contains(&at) && at % sizes.pool == 0;
        if !inside || !found.insert(at) {
            return None;
        }
        at = image.word(at + 16, 8)?;
    }
    Some(found)
}
