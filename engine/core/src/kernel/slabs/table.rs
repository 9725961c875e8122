//! All slab objects of the machine, by number and by address.
//!
//! Objects are numbered by the page frames of their slabs. After them come the large blocks: compound pages of kmalloc.
//! A slab takes 32 bytes, and a page of a section (16 MB) that has slabs takes 4.

use super::heads::Head;
use super::layout::{Cache, Guarded, SlabLayout};
use crate::kernel::Kind;
use std::collections::HashMap;

/// The number of an object or a large block.
pub type Node = u32;

/// log2 of the pages in a section of the map.
const SECTION_BITS: u32 = 12;
/// 2^48 bytes of memory in pages of 4 KB.
const MOST_SECTIONS: u64 = 1 << 24;
/// The most pages of a slab or a large block. Kernels give at most 4 MB, or 512 MB with pages of 64 KB.
const MOST_PAGES: u32 = 1 << 13;
/// The most objects: the number of one must fit into 32 bits.
const MOST_NODES: u64 = u32::MAX as u64 - 1;

/// A slab, or a large block, which is a slab of one object.
#[derive(Clone, Copy, Debug)]
pub struct Slab {
    /// Its first page frame.
    pub pfn: u64,
    /// The first free object, as the page says.
    pub freelist: u64,
    /// The number of its first object.
    pub first: Node,
    /// Its pages.
    pub pages: u32,
    /// The number of its cache, or [`LARGE`].
    pub cache: u32,
    /// Its objects.
    pub objects: u16,
    /// Allocated ones, as the page says. Those on a CPU's freelist or in a sheaf count as allocated.
    pub inuse: u16,
}

/// The cache of a large block.
pub const LARGE: u32 = u32::MAX;

/// What was wrong with the slabs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Odd {
    /// Slabs whose cache is not in the list of caches.
    pub unknown: u64,
    /// Pages of those.
    pub unknown_pages: u64,
    /// Slabs whose number of objects does not fit their pages.
    pub nonsense: u64,
    /// Slabs beyond the number of objects, or the memory, that the engine can number.
    pub too_many: u64,
}

/// All objects.
pub struct Table {
    /// The caches, in the order given.
    pub caches: Vec<Cache>,
    /// The slabs, then the large blocks, each by page frame.
    pub slabs: Vec<Slab>,
    /// How many of `slabs` are slabs.
    pub slab_count: usize,
    /// Objects and large blocks.
    pub nodes: u64,
    /// Those of them that are objects.
    pub objects: u64,
    /// What was wrong.
    pub odd: Odd,
    /// Pages of slabs by number of the cache.
    pub pages: Vec<u64>,
    /// Objects in KFENCE's pool that were freed.
    pub freed: Vec<Node>,
    /// The virtual address of page frame 0.
    direct_map: u64,
    page_bits: u32,
    sections: Vec<Option<Box<[u32; 1 << SECTION_BITS]>>>,
}

/// Where an address lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The index of its slab.
    pub slab: u32,
    /// The number of its slot in the slab.
    pub slot: u32,
    /// The bytes from the beginning of the slot.
    pub within: u32,
}

impl Table {
    /// Numbers the objects of the slabs that were found. `heads` are sorted by page frame. Untyped compound pages are
    /// large blocks if `guess` says so.
    pub fn new(
        heads: &[Head],
        caches: Vec<Cache>,
        layout: &SlabLayout,
        page_bits: u32,
        guess: impl Fn(&Head) -> bool,
    ) -> Table {
        let by_address: HashMap<u64, u32, foldhash::fast::FixedState> =
            caches.iter().enumerate().map(|(number, cache)| (cache.address, number as u32)).collect();
        let mut table = Table {
            pages: vec![0; caches.len()],
            caches,
            slabs: Vec::new(),
            slab_count: 0,
            nodes: 0,
            objects: 0,
            odd: Odd::default(),
            freed: Vec::new(),
            direct_map: layout.direct_map,
            page_bits,
            sections: Vec::new(),
        };
        for head in heads.iter().filter(|head| matches!(head.kind, Kind::Slab | Kind::Kfence)) {
            if head.kind == Kind::Kfence {
                table.add_guarded(head, &layout.guarded);
                continue;
            }
            match by_address.get(&head.cache) {
                Some(cache) if head.pages <= MOST_PAGES => table.add_slab(head, *cache),
                _ => {
                    table.odd.unknown += 1;
                    table.odd.unknown_pages += u64::from(head.pages);
                }
            }
        }
        (table.slab_count, table.objects) = (table.slabs.len(), table.nodes);
        let large = |head: &&Head| matches!(head.kind, Kind::LargeKmalloc | Kind::Kernel);
        for head in heads.iter().filter(large).filter(|head| head.pages <= MOST_PAGES && guess(head)) {
            table.add(head, LARGE, 1, 1);
        }
        table
    }

    fn add_slab(&mut self, head: &Head, number: u32) {
        let cache = &self.caches[number as usize];
        self.pages[number as usize] += u64::from(head.pages);
        let room = (u64::from(head.pages) << self.page_bits) / u64::from(cache.size);
        let objects = u16::try_from(head.objects).unwrap_or(u16::MAX);
        if objects == 0 || u64::from(objects) > room || head.inuse > head.objects {
            self.odd.nonsense += 1;
        }
        let objects = u64::from(objects).min(room) as u16;
        self.add(head, number, objects, u16::try_from(head.inuse).unwrap_or(u16::MAX).min(objects));
    }

    /// Takes a page of KFENCE's pool, if it has an object.
    fn add_guarded(&mut self, head: &Head, guarded: &[Guarded]) {
        let Ok(at) = guarded.binary_search_by_key(&head.pfn, |one| one.pfn) else { return };
        let (node, one) = (self.nodes as Node, guarded[at]);
        let page = 1u64 << self.page_bits;
        if self.caches.get(one.cache as usize).is_some_and(|cache| u64::from(cache.size) == page) {
            self.add(&Head { pages: 1, ..*head }, one.cache, 1, 1);
            self.freed.extend((one.free && self.nodes > u64::from(node)).then_some(node));
        }
    }

    fn add(&mut self, head: &Head, cache: u32, objects: u16, inuse: u16) {
        let last = (head.pfn + u64::from(head.pages.max(1)) - 1) >> SECTION_BITS;
        if self.nodes + u64::from(objects) > MOST_NODES || last >= MOST_SECTIONS {
            self.odd.too_many += 1;
            return;
        }
        let (first, pages) = (self.nodes as Node, head.pages);
        self.slabs.push(Slab { pfn: head.pfn, freelist: head.freelist, first, pages, cache, objects, inuse });
        let number = self.slabs.len() as u32;
        if self.sections.len() <= last as usize {
            self.sections.resize_with(last as usize + 1, || None);
        }
        for pfn in head.pfn..head.pfn + u64::from(pages) {
            let section =
                self.sections[(pfn >> SECTION_BITS) as usize].get_or_insert_with(|| Box::new([0; 1 << SECTION_BITS]));
            section[pfn as usize % (1 << SECTION_BITS)] = number;
        }
        self.nodes += u64::from(objects);
    }

    /// Returns the index of the slab that a page frame belongs to.
    #[inline(always)]
    pub fn slab_of_frame(&self, pfn: u64) -> Option<u32> {
        let section = self.sections.get((pfn >> SECTION_BITS) as usize)?.as_ref()?;
        section[pfn as usize % (1 << SECTION_BITS)].checked_sub(1)
    }

    /// Returns how many bytes of physical memory the table covers. No object lies beyond.
    pub fn span(&self) -> u64 {
        (self.sections.len() as u64) << (SECTION_BITS + self.page_bits)
    }

    /// Returns the physical address that a direct-map address stands for. It is beyond [`Table::span`] for all others.
    #[inline(always)]
    pub fn physical(&self, address: u64) -> u64 {
        address.wrapping_sub(self.direct_map)
    }

    /// Returns the direct-map address of a physical one.
    pub fn address(&self, physical: u64) -> u64 {
        physical.wrapping_add(self.direct_map)
    }

    /// Returns where a physical address lies, if it lies in a slot of a slab or in a large block.
    #[inline(always)]
    pub fn place(&self, physical: u64) -> Option<Place> {
        let index = self.slab_of_frame(physical >> self.page_bits)?;
        let slab = &self.slabs[index as usize];
        let offset = physical - (slab.pfn << self.page_bits);
        if slab.cache == LARGE {
            return Some(Place { slab: index, slot: 0, within: offset as u32 });
        }
        let size = self.caches[slab.cache as usize].size;
        let (slot, within) = (offset as u32 / size, offset as u32 % size);
        (slot < u32::from(slab.objects)).then_some(Place { slab: index, slot, within })
    }

    /// Returns the object or large block that holds a physical address: red zones and tracks do not count.
    #[inline(always)]
    pub fn node(&self, physical: u64) -> Option<Node> {
        let place = self.place(physical)?;
        let slab = &self.slabs[place.slab as usize];
        if slab.cache != LARGE {
            let cache = &self.caches[slab.cache as usize];
            if place.within.wrapping_sub(cache.red_left) >= cache.scanned {
                return None;
            }
        }
        Some(slab.first + place.slot)
    }

    /// Returns the slab of an object.
    pub fn slab_of(&self, node: Node) -> &Slab {
        let index = self.slabs.partition_point(|slab| slab.first <= node);
        &self.slabs[index.saturating_sub(1)]
    }

    /// Returns the physical address of the object `slot` of a slab.
    pub fn start(&self, slab: &Slab, slot: u32) -> u64 {
        let base = slab.pfn << self.page_bits;
        match self.caches.get(slab.cache as usize) {
            Some(cache) => base + u64::from(slot) * u64::from(cache.size) + u64::from(cache.red_left),
            None => base,
        }
    }

    /// Returns (direct-map address, bytes, number of the cache) of an object. A large block's bytes are its pages.
    pub fn describe(&self, node: Node) -> (u64, u64, u32) {
        let slab = self.slab_of(node);
        (self.address(self.start(slab, node - slab.first)), self.bytes_of(slab), slab.cache)
    }

    /// Returns the bytes of each object of a slab. A large block's bytes are its pages.
    pub fn bytes_of(&self, slab: &Slab) -> u64 {
        match self.caches.get(slab.cache as usize) {
            Some(cache) => u64::from(cache.object_size),
            None => u64::from(slab.pages) << self.page_bits,
        }
    }

    /// Returns the object that begins exactly at a direct-map address, with its slab's index.
    pub fn exactly(&self, address: u64) -> Option<(u32, Node)> {
        let place = self.place(self.physical(address))?;
        let slab = &self.slabs[place.slab as usize];
        let red_left = self.caches.get(slab.cache as usize).map_or(0, |cache| cache.red_left);
        (place.within == red_left).then_some((place.slab, slab.first + place.slot))
    }

    /// log2 of a page's bytes.
    pub fn page_bits(&self) -> u32 {
        self.page_bits
    }
}
