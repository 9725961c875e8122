//! Where in a process's memory a radix tree of extents may be.

use super::tree::E_ADDR;
use super::words::each_word;
use super::{is_table, Layout};
use crate::heap::find::{userland, TOP};
use crate::heap::window::Window;
use crate::heap::Control;
use crate::image::Image;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Bytes that are read at once of a module's data; and of what may be a table.
const BLOCK: usize = 1 << 18;
const TASTE: u64 = 1 << 12;
/// What it costs of the budget to go on to the next part of what may be a table.
const STEP: u64 = 256;
/// Entries of what may be a leaf that vote, and bytes of leaves that may be read in all.
const VOTERS: usize = 64;
const BUDGET: u64 = 1 << 30;

/// As much of the address space is believed to be in one jemalloc, and to have so many slots of a root in use at least: the rest of it is
/// zero.
const MOST_SPACE: u64 = 1 << 44;
const MOST_SLOTS: u64 = 64;

/// Places where the root of a radix tree may be, with how many entries of its leaves led back to their own page; most first. A root lies
/// in a module's data and is as large as `layout` says, and mostly zero: what cannot be a part of one is passed over.
pub fn find(image: &Image, ranges: &[(u64, u64)], layout: &Layout, control: &Control) -> Vec<(u64, u64)> {
    let size = layout.table(0);
    let below: u32 = layout.levels[1..].iter().sum();
    let most = MOST_SLOTS.max(MOST_SPACE.checked_shr(layout.page + below).unwrap_or(0));
    let window = Window::new(image);
    let mut search = Search { image, layout, window, budget: BUDGET, blank: BTreeMap::new(), votes: HashMap::new() };
    let mut seen: HashSet<u64> = HashSet::new();
    let wide = userland(ranges).filter(|(start, end)| end - start >= size);
    let sparse: Vec<(u64, u64)> =
        wide.flat_map(|(start, end)| sparse(image, start, end, size, most as usize)).collect();
    for &(start, end) in &sparse {
        each_word(image, start, end, BLOCK, |at, table| {
            if is_table(table) && search.budget > 0 && seen.insert(table) {
                search.taste(at, table, 1, 0, &mut { VOTERS });
            }
            !control.cancelled()
        });
        search.votes.retain(|&root, _| sparse.iter().any(|r| r.0 <= root && root.saturating_add(size) <= r.1));
    }
    let mut found: Vec<(u64, u64)> = search.votes.into_iter().collect();
    found.sort_by_key(|&(root, votes)| (std::cmp::Reverse(votes), root));
    found
}

/// The parts of `[start, end)` in which every word lies in a stretch of at least `size` bytes of which `most` words at most are not zero.
fn sparse(image: &Image, start: u64, end: u64, size: u64, most: usize) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    let mut stretch = |from: u64, to: u64| {
        if to.saturating_sub(from) >= size {
            match found.last_mut() {
                Some(last) if from <= last.1 => last.1 = to,
                _ => found.push((from, to)),
            }
        }
    };
    // Where the words since `from` are that are not zero: as many as a stretch may have.
    let mut recent = VecDeque::with_capacity(most);
    let mut from = start;
    each_word(image, start, end, BLOCK, |at, _word| {
        if recent.len() == most {
            stretch(from, at);
            from = recent.pop_front().map_or(at, |first: u64| first + 8);
        }
        recent.push_back(at);
        true
    });
    stretch(from, end);
    found
}

struct Search<'a> {
    image: &'a Image,
    layout: &'a Layout,
    window: Window<'a>,
    budget: u64,
    /// Stretches of memory, start -> end, in which every word is zero. A leaf is mostly that; and so may be whatever a program's own
    /// table of a million pointers leads to, which is not to be read a million times.
    blank: BTreeMap<u64, u64>,
    votes: HashMap<u64, u64>,
}

impl Search<'_> {
    /// Looks into what may be a table of that level, which the slot at `slot` of the root leads to by way of the entries in `path`.
    fn taste(&mut self, slot: u64, table: u64, level: usize, path: u64, voters: &mut usize) {
        let end = table.saturating_add(self.layout.table(level)).min(TOP);
        let mut at = table;
        while *voters > 0 && self.budget > 0 {
            self.budget = self.budget.saturating_sub(STEP);
            at = self.beyond_blank(at);
            if at >= end {
                break;
            }
            let data = self.image.data_from(at, end);
            let next = if data > at { data } else { ((at / TASTE + 1) * TASTE).min(end) };
            let blank = data > at || self.taste_part(slot, (table, at, next), level, path, voters);
            if blank {
                self.note_blank(at, next);
            }
            self.budget = self.budget.saturating_sub((next - at).min(TASTE));
            at = next;
        }
    }

    /// The part of a table from one address to another; whether all of it is zero.
    fn taste_part(
        &mut self,
        slot: u64,
        (table, start, end): (u64, u64, u64),
        level: usize,
        path: u64,
        voters: &mut usize,
    ) -> bool {
        let layout = self.layout;
        let leaf = level + 1 == layout.levels.len();
        let stride = if leaf { layout.entry } else { 8 };
        let mut blank = true;
        each_word(self.image, start, end, TASTE as usize, |at, value| {
            blank = false;
            // Extents that are gone leave their size class behind: a leaf may begin with hundreds of those.
            if (at - table) % stride != 0 || leaf && value & layout.pointer == 0 {
                return self.budget > 0;
            }
            let path = (path << layout.levels[level]) | ((at - table) / stride);
            if !leaf {
                if is_table(value) && value != table {
                    self.taste(slot, value, level + 1, path, voters);
                } else {
                    *voters -= 1;
                }
            } else {
                *voters -= 1;
                if let Some(root) = self.vote(slot, path, value) {
                    *self.votes.entry(root).or_default() += 1;
                }
            }
            *voters > 0 && self.budget > 0
        });
        blank
    }

    /// Where the first word at or behind `at` is that may not be zero.
    fn beyond_blank(&self, at: u64) -> u64 {
        self.blank.range(..=at).next_back().map_or(at, |(_, &end)| end.max(at))
    }

    fn note_blank(&mut self, start: u64, end: u64) {
        let end = self.blank.remove(&end).unwrap_or(end);
        match self.blank.range_mut(..start).next_back() {
            Some((_, last)) if *last == start => *last = end,
            _ => drop(self.blank.insert(start, end)),
        }
    }

    /// The root that an entry speaks for.
    fn vote(&mut self, slot: u64, path: u64, entry: u64) -> Option<u64> {
        let layout = self.layout;
        let edata = entry & layout.pointer;
        if edata == 0 || edata % layout.alignment != 0 {
            return None;
        }
        let address = self.window.word(edata.checked_add(8 * E_ADDR as u64)?, 8)?;
        let below: u32 = layout.levels[1..].iter().sum();
        let key = address >> layout.page;
        let own = key & ((1 << below) - 1) == path && address < TOP && key >> below >> layout.levels[0] == 0;
        own.then(|| slot.wrapping_sub(8 * (key >> below)))
    }
}
