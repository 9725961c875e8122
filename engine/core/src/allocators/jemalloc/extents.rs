//! The extents of one jemalloc, as blocks of a heap and as sums.

use super::layout::Fault;
use crate::blocks::runs::{Kind, Owner, Run};
use std::collections::BTreeMap;

/// How many faults are described. All are counted.
const DESCRIBED: usize = 100;
/// The state of an extent that is active but has no size class. It is in the cache of opt.hpa, or opt.san_guard_small
/// cuts extents from it.
pub const SPARE: u8 = 6;

/// A part of the address space that jemalloc manages.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The address of its `edata_t`.
    pub edata: u64,
    /// Its first address.
    pub start: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Where its block begins. The block begins in the first page.
    pub address: u64,
    /// The number of its arena.
    pub arena: u16,
    /// 0: in use. Then dirty, muzzy, retained, two states in between, and `SPARE`.
    pub state: u8,
    /// Its size class.
    pub szind: u16,
    /// Whether it is a slab.
    pub slab: bool,
    /// For a slab in use: the first word of its bitmap, and how many of its regions are free.
    pub map: u32,
    /// How many regions of the slab are free.
    pub free: u32,
}

impl Extent {
    /// Returns the address after its last byte.
    pub fn end(&self) -> u64 {
        self.start + self.size
    }

    /// Returns whether the program, or jemalloc itself, has blocks there.
    pub fn in_use(&self) -> bool {
        self.state == 0
    }
}

/// Sums over the extents of an arena that have one size class or one state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// How many extents.
    pub extents: u64,
    /// For size classes: usable bytes in use. For states: bytes of the extents.
    pub bytes: u64,
    /// Regions, and how many of them the slab's bitmap has in use. A large extent has one region.
    pub slots: u64,
    /// How many regions are in use.
    pub live: u64,
}

/// All extents of one jemalloc, by address.
#[derive(Clone, Debug, Default)]
pub struct Extents {
    /// The extents, sorted by address.
    pub all: Vec<Extent>,
    /// The bitmaps of slabs, one after the other, each from a new word on. 1 means free.
    pub maps: Vec<u64>,
    /// Usable bytes by size class.
    pub sizes: Vec<u64>,
    /// Bytes of a page.
    pub page: u64,
    /// Bytes of a large extent that belong to no block.
    pub pad: u64,
    /// The first faults, as (what is wrong, `edata_t`, page).
    pub faults: Vec<(Fault, u64, u64)>,
    /// How many faults there are.
    pub fault_count: u64,
    /// Tables of the tree, without its root.
    pub tables: Vec<u64>,
    /// How many entries of the tree were looked at.
    pub entries: u64,
}

impl Extents {
    /// Returns whether a trial with `most` extents has read enough.
    pub(super) fn is_enough(&self, most: usize) -> bool {
        self.all.len() >= most || self.entries >= (most as u64).saturating_mul(4)
    }

    pub(super) fn fault(&mut self, fault: Fault, what: u64, at: u64) {
        self.fault_count += 1;
        if self.faults.len() < DESCRIBED {
            self.faults.push((fault, what, at));
        }
    }

    /// Makes the extents, sorted by address, without those that overlap others.
    pub(super) fn settle(&mut self) {
        let mut all = std::mem::take(&mut self.all);
        all.sort_unstable_by_key(|e| (e.start, e.state, e.edata));
        // A large block begins anywhere in its first page, which has room beside the bytes asked for, unless jemalloc
        // was built without that (cache-oblivious).
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

    /// Returns the usable bytes of the extent's blocks. Since 5.3.1 a large block is as large as its pages, whatever its
    /// size class (opt.disable_large_size_classes).
    pub fn usable(&self, extent: &Extent) -> u64 {
        let class = self.sizes.get(extent.szind as usize).copied().unwrap_or(0);
        let room = extent.size.saturating_sub(if extent.slab { 0 } else { self.pad });
        class.min(room.max(1)).min(extent.end() - extent.address)
    }

    /// Returns the runs of all blocks. `first_arena` is added to the arenas' numbers, `first_map` to those of bitmaps.
    pub fn runs(&self, first: Owner, first_map: u32) -> Vec<Run> {
        let used = self.all.iter().filter(|extent| extent.in_use());
        used.map(|extent| {
            let usable = self.usable(extent);
            let (kind, end) =
                if extent.slab { (Kind::Slab, extent.end()) } else { (Kind::Extent, extent.address + usable) };
            let owner = Owner { arena: first.arena + u32::from(extent.arena), ..first };
            Run { start: extent.address, end, kind, owner, usable, map: first_map + extent.map }
        })
        .collect()
    }

    /// Returns the extent that holds the address.
    pub fn at(&self, address: u64) -> Option<&Extent> {
        let index = self.all.partition_point(|extent| extent.end() <= address);
        self.all.get(index).filter(|extent| extent.start <= address)
    }

    /// Returns what is in use, by arena, slab or not, and size class.
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

    /// Returns the sums by arena and state.
    pub fn states(&self) -> BTreeMap<(u16, u8), Sum> {
        let mut sums: BTreeMap<_, Sum> = BTreeMap::new();
        for extent in &self.all {
            let sum = sums.entry((extent.arena, extent.state)).or_default();
            sum.extents += 1;
            sum.bytes += extent.size;
        }
        sums
    }

    /// Returns the address space of all extents, adjacent ones merged.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        merged(self.all.iter().map(|extent| (extent.start, extent.end())))
    }

    /// Returns the stretches of 2 MiB that hold an `edata_t` or a leaf.
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
