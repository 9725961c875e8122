//! Where things lie in this kernel's structures, and what its flags and types are numbered. All of it is found in the debug information of the
//! kernel that died (drgnext/kernel/layout.py): nothing here knows a release.

use super::Kind;

/// `struct page` in bytes: what is not a multiple of a word, or far from what any kernel has had (56 to 128), is not believed.
pub const PAGE_STRUCTS: std::ops::RangeInclusive<usize> = 32..=256;

/// How hugetlbfs' pages are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Huge {
    /// By page type, or there are none.
    ByType,
    /// The byte at this offset in the first tail page (compound_dtor) has this value.
    SecondByte { offset: usize, value: u8 },
    /// The flags of the first tail page have one of these bits.
    SecondFlags(u64),
}

/// A count, kept for a large folio in its first tail page, of how often it is mapped.
#[derive(Clone, Copy, Debug)]
pub struct MapCount {
    pub offset: usize,
    /// Its value when the folio is not mapped.
    pub unmapped: i32,
}

#[derive(Clone, Debug)]
pub struct Layout {
    /// Virtual address of the `struct page` of page 0.
    pub base: u64,
    /// log2 of a page's bytes.
    pub page_bits: u32,
    /// `sizeof(struct page)`.
    pub size: usize,

    // Offsets in struct page.
    pub flags: usize,
    /// `compound_head`, whose lowest bit makes a tail (`compound_info` since 7.1).
    pub head: usize,
    pub mapping: usize,
    pub private: usize,
    /// `_mapcount`, and `page_type` in the same place.
    pub mapcount: usize,
    pub refcount: usize,
    pub lru: usize,

    /// Tails hold a mask for their own address instead of the head's address (7.1, where `struct page` is a power of two).
    pub head_is_mask: bool,

    // Bits of page->flags; 0 where this kernel has no such flag.
    pub reserved: u64,
    pub compound: u64,
    pub slab: u64,
    pub swapbacked: u64,
    pub swapcache: u64,
    /// Any of these keeps a file page from being dropped at once: dirty, writeback, unevictable.
    pub kept: u64,
    pub has_private: u64,
    pub hwpoison: u64,

    /// (mask, value, kind) of page_type.
    pub types: Vec<(u32, u32, Kind)>,
    pub huge: Huge,
    pub large_counts: Vec<MapCount>,
    /// `mapping & 3 == 2` means movable pages of a driver.
    pub movable: bool,
    /// Whose movable pages they are, by what mapping points to.
    pub movers: Vec<(u64, Kind)>,
    /// Orders of the buddy allocator's lists: 0 to this, exclusive.
    pub orders: u32,
    /// What page->private holds on OpenZFS's file data.
    pub zfs: u64,

    pub files: Files,
}

/// What leads from a page's mapping to what it is.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// address_space.host, address_space.i_mmap's root node.
    pub host: u64,
    pub i_mmap: u64,
    /// inode.i_sb.
    pub i_sb: u64,
    /// rb_node.rb_left, rb_node.rb_right.
    pub left: u64,
    pub right: u64,
    /// From a node of i_mmap to its vm_area_struct's vm_flags (may be negative).
    pub to_flags: i64,
    pub exec: u64,
    /// Superblocks whose pages are of one kind: that of block devices.
    pub special: Vec<(u64, Kind)>,
}

impl Layout {
    /// Why it cannot be: whatever passes is safe to run with.
    pub fn problem(&self) -> Option<&'static str> {
        let word = |offset: usize| offset % 8 == 0 && offset + 8 <= self.size;
        let half = |offset: usize| offset % 4 == 0 && offset + 4 <= self.size;
        if !PAGE_STRUCTS.contains(&self.size) || self.size % 8 != 0 {
            return Some("struct page has no sensible size");
        }
        if ![self.flags, self.head, self.mapping, self.private, self.lru].into_iter().all(word) {
            return Some("a word of struct page lies outside it");
        }
        if ![self.mapcount, self.refcount].into_iter().all(half) || !self.large_counts.iter().all(|c| half(c.offset)) {
            return Some("a counter of struct page lies outside it");
        }
        if matches!(self.huge, Huge::SecondByte { offset, .. } if offset >= self.size) {
            return Some("compound_dtor lies outside struct page");
        }
        if !(12..=16).contains(&self.page_bits) || self.orders > 32 {
            return Some("no sensible page size");
        }
        None
    }

    /// The `struct page` of a page frame.
    pub fn page(&self, pfn: u64) -> Option<u64> {
        pfn.checked_mul(self.size as u64).map(|offset| self.base.wrapping_add(offset)).filter(|page| *page >= self.base)
    }

    /// The page frame whose `struct page` begins at the address.
    pub fn pfn(&self, page: u64) -> Option<u64> {
        let offset = page.checked_sub(self.base)?;
        (offset % self.size as u64 == 0).then_some(offset / self.size as u64)
    }
}
