//! Searches a process's memory for the radix tree of extents.

use super::layout::{is_table, Layout};
use super::tree::E_ADDR;
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::image::Image;
use crate::nonzero_words::each_word;
use crate::search::userland;
use crate::words::USER_END;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Bytes read at once: of a module's data, and of a possible table.
const BLOCK: usize = 1 << 18;
const TASTE: u64 = 1 << 12;
/// What each further part of a possible table costs of the budget.
const STEP: u64 = 256;
/// How many entries of a possible leaf vote, and how many bytes of leaves may be read in all.
const VOTERS: usize = 64;
const BUDGET: u64 = 1 << 30;

/// One jemalloc is assumed to manage at most this much address space, and so to use at most so many slots of a root. The
/// other slots are zero.
const MOST_SPACE: u64 = 1 << 44;
const MOST_SLOTS: u64 = 64;

/// Returns the places where the root of a radix tree may be, with the number of entries of its leaves that led back to
/// their own page. The highest number comes first. A root lies in a module's data, is as large as `layout` says, and is
/// mostly zero. Memory that cannot be a part of a root is skipped.
pub fn find(image: &Image, ranges: &[(u64, u64)], layout: &Layout, control: &Control) -> Vec<(u64, u64)> {
    let size = layout.table(0);
    let below: u32 = layout.levels[1..].iter().sum();
    let most = MOST_SLOTS.max(MOST_SPACE.checked_shr(layout.page + below).unwrap_or(0));
    let window = CachedReader::new(image);
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

/// Returns the parts of `[start, end)` in which every word lies in a stretch of at least `size` bytes with at most `most`
/// words that are not zero.
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
    // The places of the words since `from` that are not zero: at most as many as a stretch may have.
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
    window: CachedReader<'a>,
    budget: u64,
    /// Stretches of memory, start -> end, in which every word is zero. A leaf is mostly zero. So may be the memory that a
    /// program's own table of a million pointers leads to. It must not be read a million times.
    blank: BTreeMap<u64, u64>,
    votes: HashMap<u64, u64>,
}

impl Search<'_> {
    /// Looks into a possible table of that level, to which the slot at `slot` of the root leads through the entries in
    /// `path`.
    fn taste(&mut self, slot: u64, table: u64, level: usize, path: u64, voters: &mut usize) {
        let end = table.saturating_add(self.layout.table(level)).min(USER_END);
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

    /// Reads the part of a table from one address to another. Returns whether all of it is zero.
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
            // Extents that are gone leave their size class behind. A leaf may begin with hundreds of those.
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

    /// Returns the first word at or after `at` that may not be zero.
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

    /// Returns the root that an entry votes for.
    fn vote(&mut self, slot: u64, path: u64, entry: u64) -> Option<u64> {
        let layout = self.layout;
        let edata = entry & layout.pointer;
        if edata == 0 || edata % layout.alignment != 0 {
            return None;
        }
        let address = self.window.word(edata.checked_add(8 * E_ADDR as u64)?, 8)?;
        let below: u32 = layout.levels[1..].iter().sum();
        let key = address >> layout.page;
        let own = key & ((1 << below) - 1) == path && address < USER_END && key >> below >> layout.levels[0] == 0;
        own.then(|| slot.wrapping_sub(8 * (key >> below)))
    }
}
