//! jemalloc's extents out of a core: found without symbols, read through a layout that the caller tries and this module checks.
//!
//! jemalloc keeps a radix tree from page to `edata_t` (`extent_t` until 5.2): every slab at each of its pages, every other extent at its
//! first and last one. What the tree leads to is believed when it leads back: the extent's own address and size name the page that led
//! to it, and the copies of size class, state and slab flag in the tree are those of the extent.

use super::find::{userland, TOP};
use super::space::{Kind, Run, SLOTS};
use super::window::Window;
use super::{Control, Stopped};
use crate::image::Image;
use std::collections::{BTreeMap, HashMap, HashSet};

const PAGE: u64 = 4096;
/// Words of an `edata_t` that are read.
const EDATA_WORDS: usize = 16;
/// `e_addr`, `e_size_esn` and the slab's bitmap stand at the same place in every release from 5.0 to 5.3.1, as word numbers.
const E_ADDR: usize = 1;
const E_SIZE: usize = 2;
const E_SLAB: usize = 8;
/// Faults described; all are counted.
const DESCRIBED: usize = 100;
/// Bytes of a table that are read at once; and of what may be one.
const BLOCK: usize = 1 << 18;
const TASTE: usize = 1 << 13;
/// While a tree is looked for: entries of a leaf that may vote, and bytes of leaves that may be read in all.
const VOTERS: usize = 64;
const BUDGET: u64 = 1 << 30;

/// Where things stand, in the release that is tried.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Address bits that the tables of each level of the radix tree distinguish, from the root down.
    pub levels: Vec<u32>,
    /// Bytes of a leaf's entry: 8, or 16 where address bits leave no room beside the pointer. Then its second word has the copies.
    pub entry: u64,
    /// The part of an entry's first word that is the pointer.
    pub pointer: u64,
    /// (shift, width) of the copies in an entry; no width: there is none.
    pub leaf_szind: (u32, u32),
    pub leaf_slab: (u32, u32),
    pub leaf_state: (u32, u32),
    pub alignment: u64,
    /// (shift, width) of fields of `e_bits`.
    pub arena: (u32, u32),
    pub slab: (u32, u32),
    pub state: (u32, u32),
    pub szind: (u32, u32),
    pub nfree: (u32, u32),
    /// Usable bytes by size class; the first `bins` of them are small.
    pub sizes: Vec<u64>,
    pub bins: usize,
}

/// What is wrong with an entry of the tree, or with what it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Not an aligned address, or not in the dump.
    Missing,
    /// The extent's address and size do not name the page.
    Address,
    /// State or size class are none.
    Bits,
    /// The copies in the tree differ.
    Leaf,
    /// No slab of that size class has that size; or the extent is too small for its size class.
    Size,
    /// The slab's count of free regions is not that of its bitmap.
    Free,
    /// It lies within another extent.
    Overlap,
}

/// A part of the address space that jemalloc manages.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub edata: u64,
    /// Where its block begins; the extent itself begins at that page.
    pub address: u64,
    pub size: u64,
    pub arena: u16,
    /// 0: active; then dirty, muzzy, retained and states in between.
    pub state: u8,
    pub szind: u16,
    pub slab: bool,
    pub map: u32,
}

impl Extent {
    pub fn start(&self) -> u64 {
        self.address / PAGE * PAGE
    }
    pub fn end(&self) -> u64 {
        self.start() + self.size
    }
}

/// Sums over extents of an arena: of one size class, or in one state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    pub extents: u64,
    /// Of size classes: usable bytes of what is in use; of states: of the extents.
    pub bytes: u64,
    /// Regions, and of them those that the slab's bitmap has in use (a large extent has one).
    pub slots: u64,
    pub live: u64,
}

/// All extents of one jemalloc, by address.
#[derive(Clone, Debug, Default)]
pub struct Extents {
    pub all: Vec<Extent>,
    /// Bitmaps of slabs, 1: free.
    pub maps: Vec<[u64; SLOTS / 64]>,
    pub sizes: Vec<u64>,
    /// Bytes of a large extent that are no block's.
    pub pad: u64,
    pub faults: Vec<(Fault, u64, u64)>,
    pub fault_count: u64,
    /// Tables of the tree, but for its root.
    pub tables: Vec<u64>,
    /// Entries of the tree that were looked at.
    pub entries: u64,
}

impl Layout {
    /// Bytes of a table of that level.
    fn table(&self, level: usize) -> u64 {
        let entry = if level + 1 == self.levels.len() { self.entry } else { 8 };
        entry << self.levels[level]
    }
}

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

/// Tables are aligned to cache lines.
fn is_table(address: u64) -> bool {
    address % 64 == 0 && address < TOP
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
            if (at - table) % stride != 0 {
                return true;
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
        let key = address / PAGE;
        let own = key & ((1 << below) - 1) == path && address < TOP && key >> below >> layout.levels[0] == 0;
        own.then(|| slot.wrapping_sub(8 * (key >> below)))
    }
}

/// All extents of the tree with that root. With `most`, about so many (to try a layout); and not many more entries than that are looked
/// at, since what is no tree of jemalloc's leads to millions of no extents (CPython's tree of its arenas does).
pub fn collect(image: &Image, layout: &Layout, root: u64, most: usize, control: &Control) -> Result<Extents, Stopped> {
    let mut out = Extents { sizes: layout.sizes.clone(), ..Default::default() };
    let mut tables = vec![(0, root)];
    for level in 0..layout.levels.len() - 1 {
        tables = children(image, layout, level, &tables, &mut out, control)?;
        out.tables.extend(tables.iter().map(|&(_, table)| table));
    }
    let mut reader = Reader { layout, window: Window::new(image), seen: HashSet::new(), last: 0 };
    let last = layout.levels.len() - 1;
    for (path, leaf) in tables {
        if out.is_enough(most) {
            break;
        }
        each_word(image, leaf, leaf.saturating_add(layout.table(last)), BLOCK, |at, entry| {
            if (at - leaf) % layout.entry == 0 {
                let page = ((path << layout.levels[last]) | ((at - leaf) / layout.entry)) * PAGE;
                reader.entry(&mut out, page, entry, at);
            }
            !out.is_enough(most) && !control.cancelled()
        });
        if control.cancelled() {
            return Err(Stopped::Cancelled);
        }
    }
    out.settle();
    Ok(out)
}

/// The tables that those of a level lead to, each with the path of entries that led there. One is read once, and none that lies across
/// another: else a crafted root costs hours.
fn children(
    image: &Image,
    layout: &Layout,
    level: usize,
    tables: &[(u64, u64)],
    out: &mut Extents,
    control: &Control,
) -> Result<Vec<(u64, u64)>, Stopped> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for &(path, table) in tables {
        each_word(image, table, table.saturating_add(layout.table(level)), BLOCK, |at, child| {
            if is_table(child) {
                found.push(((path << layout.levels[level]) | ((at - table) / 8), child));
            } else {
                out.fault(Fault::Missing, child, at);
            }
            !control.cancelled()
        });
    }
    if control.cancelled() {
        return Err(Stopped::Cancelled);
    }
    found.sort_unstable_by_key(|&(path, table)| (table, path));
    let size = layout.table(level + 1);
    found.dedup_by(|next, kept| next.1 - kept.1 < size);
    Ok(found)
}

struct Reader<'a> {
    layout: &'a Layout,
    window: Window<'a>,
    seen: HashSet<u64>,
    last: u64,
}

impl Reader<'_> {
    /// An entry of a leaf, for the page; it stands at `at`.
    fn entry(&mut self, out: &mut Extents, page: u64, entry: u64, at: u64) {
        let edata = entry & self.layout.pointer;
        // An extent that is gone leaves a size class behind; a slab stands there once for each page.
        if edata == 0 || edata == self.last {
            return;
        }
        self.last = edata;
        out.entries += 1;
        let copies = if self.layout.entry == 8 { Some(entry) } else { self.window.word(at + 8, 8) };
        match self.extent(out, page, edata, copies.unwrap_or(0)) {
            Ok(Some(extent)) => out.all.push(extent),
            Ok(None) => {}
            Err(fault) => out.fault(fault, edata, page),
        }
    }

    /// The extent that an entry of the tree leads to; None where another page has led there.
    fn extent(&mut self, out: &mut Extents, page: u64, edata: u64, copies: u64) -> Result<Option<Extent>, Fault> {
        let layout = self.layout;
        if edata % layout.alignment != 0 || edata >= TOP {
            return Err(Fault::Missing);
        }
        let words: [u64; EDATA_WORDS] = self.window.words(edata, 8).ok_or(Fault::Missing)?;
        let bits = |field| part(words[0], field);
        let (address, size) = (words[E_ADDR], words[E_SIZE] & !(PAGE - 1));
        let start = address / PAGE * PAGE;
        let sound = size > 0 && start < TOP && size < TOP && start + size <= TOP;
        let slab = bits(layout.slab) != 0;
        let last = start.wrapping_add(size).wrapping_sub(PAGE);
        if !sound || !(page == start || page == last || slab && (start..last).contains(&page)) {
            return Err(Fault::Address);
        }
        let (state, szind) = (bits(layout.state), bits(layout.szind) as usize);
        if state > 5 || szind > layout.sizes.len() {
            return Err(Fault::Bits);
        }
        if !self.seen.insert(edata) {
            return Ok(None);
        }
        // Of a large extent only the first page's entry is kept up to date.
        let agrees = part(copies, layout.leaf_szind) as usize == szind && (part(copies, layout.leaf_slab) != 0) == slab;
        if state == 0 && page == start && !agrees {
            return Err(Fault::Leaf);
        }
        if layout.leaf_state.1 > 0 && part(copies, layout.leaf_state) != state {
            // The two are changed one after the other.
            out.fault(Fault::Leaf, edata, page);
        }
        let mut map = 0;
        if state == 0 && szind < layout.sizes.len() {
            let unit = layout.sizes[szind];
            if slab {
                let slots = size / unit;
                if szind >= layout.bins || address != start || slots == 0 || slots > SLOTS as u64 {
                    return Err(Fault::Size);
                }
                map = out.maps.len() as u32;
                let free = bitmap(&words, slots as usize);
                out.maps.push(free);
                if free.iter().map(|part| u64::from(part.count_ones())).sum::<u64>() != bits(layout.nfree) {
                    out.fault(Fault::Free, edata, page);
                }
            } else if address - start >= size || size < PAGE {
                return Err(Fault::Size);
            }
        }
        Ok(Some(Extent {
            edata,
            address,
            size,
            arena: bits(layout.arena) as u16,
            state: state as u8,
            szind: szind as u16,
            slab,
            map,
        }))
    }
}

/// A field, given as (shift, width), of a word.
fn part(word: u64, (shift, width): (u32, u32)) -> u64 {
    word >> shift & ((1 << width) - 1)
}

/// The first `slots` bits of a slab's bitmap.
fn bitmap(words: &[u64; EDATA_WORDS], slots: usize) -> [u64; SLOTS / 64] {
    let mut out = [0; SLOTS / 64];
    for (i, part) in out.iter_mut().enumerate() {
        let kept = slots.saturating_sub(i * 64).min(64);
        let mask = if kept == 64 { u64::MAX } else { (1 << kept) - 1 };
        *part = words[E_SLAB + i] & mask;
    }
    out
}

impl Extents {
    /// Whether a taste of `most` extents has shown what it can.
    fn is_enough(&self, most: usize) -> bool {
        self.all.len() >= most || self.entries >= (most as u64).saturating_mul(4)
    }

    fn fault(&mut self, fault: Fault, what: u64, at: u64) {
        self.fault_count += 1;
        if self.faults.len() < DESCRIBED {
            self.faults.push((fault, what, at));
        }
    }

    /// By address, without those that lie across others.
    fn settle(&mut self) {
        let mut all = std::mem::take(&mut self.all);
        all.sort_unstable_by_key(|e| (e.start(), e.state, e.edata));
        // Large blocks begin anywhere in a first page that is theirs beside what was asked for, unless jemalloc was built without.
        let moved = |e: &Extent| !e.slab && self.in_use(e) && e.address % PAGE != 0;
        let padded = |e: &Extent| !e.slab && self.in_use(e) && e.size == self.sizes[e.szind as usize] + PAGE;
        self.pad = if all.iter().any(|e| moved(e) || padded(e)) { PAGE } else { 0 };
        let mut reached = 0;
        for extent in all {
            if extent.start() < reached {
                self.fault(Fault::Overlap, extent.edata, extent.start());
            } else {
                reached = extent.end();
                self.all.push(extent);
            }
        }
    }

    /// Whether the program (or jemalloc itself) has blocks there.
    pub fn in_use(&self, extent: &Extent) -> bool {
        extent.state == 0 && (extent.szind as usize) < self.sizes.len()
    }

    /// Usable bytes of the extent's blocks. Since 5.3.1 a large block is as large as its pages, whatever its size class
    /// (opt.disable_large_size_classes).
    pub fn usable(&self, extent: &Extent) -> u64 {
        let class = self.sizes.get(extent.szind as usize).copied().unwrap_or(0);
        let room = extent.size.saturating_sub(if extent.slab { 0 } else { self.pad });
        class.min(room.max(1)).min(extent.end() - extent.address)
    }

    /// The runs of all blocks. `first_arena` is added to the arenas' numbers, `first_map` to those of bitmaps.
    pub fn runs(&self, first_arena: u32, first_map: u32) -> Vec<Run> {
        let used = self.all.iter().filter(|extent| self.in_use(extent));
        used.map(|extent| {
            let usable = self.usable(extent);
            let (kind, end) =
                if extent.slab { (Kind::Slab, extent.end()) } else { (Kind::Extent, extent.address + usable) };
            let arena = first_arena + u32::from(extent.arena);
            Run { start: extent.address, end, kind, arena, usable, map: first_map + extent.map }
        })
        .collect()
    }

    pub fn at(&self, address: u64) -> Option<&Extent> {
        let index = self.all.partition_point(|extent| extent.end() <= address);
        self.all.get(index).filter(|extent| extent.start() <= address)
    }

    /// By arena, slab or not, and size class: what is in use.
    pub fn classes(&self) -> BTreeMap<(u16, bool, u16), Sum> {
        let mut sums: BTreeMap<_, Sum> = BTreeMap::new();
        for extent in self.all.iter().filter(|extent| self.in_use(extent)) {
            let sum = sums.entry((extent.arena, extent.slab, extent.szind)).or_default();
            let free: u64 = match self.maps.get(extent.map as usize) {
                Some(map) if extent.slab => map.iter().map(|part| u64::from(part.count_ones())).sum(),
                _ => 0,
            };
            let slots = if extent.slab { extent.size / self.usable(extent) } else { 1 };
            sum.extents += 1;
            sum.bytes += self.usable(extent) * (slots - free);
            sum.slots += slots;
            sum.live += slots - free;
        }
        sums
    }

    /// By arena and state.
    pub fn states(&self) -> BTreeMap<(u16, u8), Sum> {
        let mut sums: BTreeMap<_, Sum> = BTreeMap::new();
        for extent in &self.all {
            let sum = sums.entry((extent.arena, extent.state)).or_default();
            sum.extents += 1;
            sum.bytes += extent.size;
        }
        sums
    }

    /// The address space of all of them, adjacent ones merged.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        merged(self.all.iter().map(|extent| (extent.start(), extent.end())))
    }

    /// The stretches of 2 MiB that hold an `edata_t` or a leaf.
    pub fn metadata(&self) -> Vec<u64> {
        let own = self.all.iter().map(|extent| extent.edata).chain(self.tables.iter().copied());
        let mut out: Vec<u64> = own.map(|at| at >> 21 << 21).collect();
        out.sort_unstable();
        out.dedup();
        out
    }
}

fn merged(ranges: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match out.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => out.push((start, end)),
        }
    }
    out
}

/// Calls `each` for every aligned word of the range that is not zero, until it says stop; `block` bytes are read at once. Returns how many
/// bytes were read.
fn each_word(image: &Image, start: u64, end: u64, block: usize, mut each: impl FnMut(u64, u64) -> bool) -> u64 {
    let mut buffer = vec![0u8; block];
    let mut read = 0;
    for (from, to) in image.covered(start, end.min(TOP)) {
        let mut at = image.data_from(from.next_multiple_of(8), to).next_multiple_of(8);
        while at < to {
            let want = (to - at).min(block as u64) as usize;
            let got = image.read(at, &mut buffer[..want]) / 8 * 8;
            read += want as u64;
            for (i, part) in buffer[..got].chunks_exact(8).enumerate() {
                let word = part.try_into().map_or(0, u64::from_le_bytes);
                if word != 0 && !each(at + i as u64 * 8, word) {
                    return read;
                }
            }
            at = image.data_from(at + want as u64, to).next_multiple_of(8);
        }
    }
    read
}
