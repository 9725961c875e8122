//! The extents of one jemalloc, as the blocks of a heap and as sums.

use super::Fault;
use crate::heap::space::{Kind, Run};
use std::collections::BTreeMap;

/// Faults described; all are counted.
const DESCRIBED: usize = 100;
/// The state of an extent that is active and of no size class: in the cache of opt.hpa, or what opt.san_guard_small cuts extents from.
pub const SPARE: u8 = 6;

/// A part of the address space that jemalloc manages.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub edata: u64,
    pub start: u64,
    pub size: u64,
    /// Where its block begins: in its first page.
    pub address: u64,
    pub arena: u16,
    /// 0: in use; then dirty, muzzy, retained, two states in between, and `SPARE`.
    pub state: u8,
    pub szind: u16,
    pub slab: bool,
    /// Of a slab in use: the first word of its bitmap, and how many of its regions are free.
    pub map: u32,
    pub free: u32,
}

impl Extent {
    pub fn end(&self) -> u64 {
        self.start + self.size
    }

    /// Whether the program (or jemalloc itself) has blocks there.
    pub fn in_use(&self) -> bool {
        self.state == 0
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
    /// Bitmaps of slabs one after the other, each beginning a word; 1: free.
    pub maps: Vec<u64>,
    pub sizes: Vec<u64>,
    /// Bytes of a page.
    pub page: u64,
    /// Bytes of a large extent that are no block's.
    pub pad: u64,
    pub faults: Vec<(Fault, u64, u64)>,
    pub fault_count: u64,
    /// Tables of the tree, but for its root.
    pub tables: Vec<u64>,
    /// Entries of the tree that were looked at.
    pub entries: u64,
}

impl Extents {
    /// Whether a taste of `most` extents has shown what it can.
    pub(super) fn is_enough(&self, most: usize) -> bool {
        self.all.len() >= most || self.entries >= (most as u64).saturating_mul(4)
    }

    pub(super) fn fault(&mut self, fault: Fault, what: u64, at: u64) {
        self.fault_count += 1;
        if self.faults.len() < DESCRIBED {
            self.faults.push((fault, what, at));
        }
    }

    /// By address, without those that lie across others.
    pub(super) fn settle(&mut self) {
        let mut all = std::mem::take(&mut self.all);
        all.sort_unstable_by_key(|e| (e.start, e.state, e.edata));
        // Large blocks begin anywhere in a first page that is theirs beside what was asked for, unless jemalloc was built without.
        let moved = |e: &Extent| !e.slab && e.in_use() && e.address != e.start;
        let padded = |e: &Extent| !e.slab && e.in_use() && e.size == self.sizes[e.szind as usize] + self.page;
        self.pad = if all.iter().any(|e| moved(e) || padded(e)) { self.page } else { 0 };
        let mut reached = 0;
        for extent in all {
            if extent.start < reached {
                self.fault(Fault::Overlap, extent.edata, extent.start);
            } else {
                reached = extent.end();
                self.all.push(extent);
            }
        }
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
        let used = self.all.iter().filter(|extent| extent.in_use());
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
        self.all.get(index).filter(|extent| extent.start <= address)
    }

    /// By arena, slab or not, and size class: what is in use.
    pub fn classes(&self) -> BTreeMap<(u16, bool, u16), Sum> {
        let mut sums: BTreeMap<_, Sum> = BTreeMap::new();
        for extent in self.all.iter().filter(|extent| extent.in_use()) {
            let sum = sums.entry((extent.arena, extent.slab, extent.szind)).or_default();
            let slots = if extent.slab { extent.size / self.usable(extent) } else { 1 };
            let live = slots - u64::from(extent.free);
            sum.extents += 1;
            sum.bytes += self.usable(extent) * live;
            sum.slots += slots;
            sum.live += live;
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
        merged(self.all.iter().map(|extent| (extent.start, extent.end())))
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
