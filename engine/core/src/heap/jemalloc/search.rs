//! Where in a process's memory a radix tree of extents may be.

use super::tree::E_ADDR;
use super::words::each_word;
use super::{is_table, Layout};
use crate::heap::find::{userland, TOP};
use crate::heap::window::Window;
use crate::heap::Control;
use crate::image::Image;
use std::collections::{HashMap, HashSet};

/// Bytes that are read at once of a module's data; and of what may be a table.
const BLOCK: usize = 1 << 18;
const TASTE: usize = 1 << 13;
/// Entries of what may be a leaf that vote, and bytes of leaves that may be read in all.
const VOTERS: usize = 64;
const BUDGET: u64 = 1 << 30;

/// Places where the root of a radix tree may be, with how many entries of its leaves led back to their own page; most first. A root lies
/// in a module's data and is as large as `layout` says, so smaller ranges are passed over.
pub fn find(image: &Image, ranges: &[(u64, u64)], layout: &Layout, control: &Control) -> Vec<(u64, u64)> {
    let size = layout.table(0);
    let mut search = Search { image, layout, window: Window::new(image), budget: BUDGET, votes: HashMap::new() };
    let mut seen: HashSet<u64> = HashSet::new();
    for (start, end) in userland(ranges).filter(|(start, end)| end - start >= size) {
        each_word(image, start, end, BLOCK, |at, table| {
            if is_table(table) && search.budget > 0 && seen.insert(table) {
                search.taste(at, table, 1, 0, &mut { VOTERS });
            }
            !control.cancelled()
        });
        search.votes.retain(|&root, _| ranges.iter().any(|r| r.0 <= root && root.saturating_add(size) <= r.1));
    }
    let mut found: Vec<(u64, u64)> = search.votes.into_iter().collect();
    found.sort_by_key(|&(root, votes)| (std::cmp::Reverse(votes), root));
    found
}

struct Search<'a> {
    image: &'a Image,
    layout: &'a Layout,
    window: Window<'a>,
    budget: u64,
    votes: HashMap<u64, u64>,
}

impl Search<'_> {
    /// Looks into what may be a table of that level, which the slot at `slot` of the root leads to by way of the entries in `path`.
    fn taste(&mut self, slot: u64, table: u64, level: usize, path: u64, voters: &mut usize) {
        let layout = self.layout;
        let leaf = level + 1 == layout.levels.len();
        let stride = if leaf { layout.entry } else { 8 };
        let read = each_word(self.image, table, table.saturating_add(layout.table(level)), TASTE, |at, value| {
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
        self.budget = self.budget.saturating_sub(read);
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
