//! Offsets in this kernel's structures, and the values of its flags and types. All of them come from the debug
//! information of the kernel that died (drgnext/kernel/layout.py). Nothing here depends on a release.

use super::kind::Kind;

/// The possible sizes of `struct page`: a multiple of a word, and close to what kernels have had (56 to 128).
pub const PAGE_STRUCTS: std::ops::RangeInclusive<usize> = 32..=256;

/// How pages of hugetlbfs are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Huge {
    /// By page type, or there are no such pages.
    ByType,
    /// The byte at this offset in the first tail page (compound_dtor) has this value.
    SecondByte {
        /// The offset of the byte in `struct page`.
        offset: usize,
        /// Its value in a huge page.
        value: u8,
    },
    /// The flags of the first tail page have one of these bits.
    SecondFlags(u64),
}

/// A count of how often a large folio is mapped, kept in its first tail page.
#[derive(Clone, Copy, Debug)]
pub struct MapCount {
    /// Where the count is.
    pub offset: usize,
    /// Its value when the folio is not mapped.
    pub unmapped: i32,
}

/// Offsets in bytes, masks and numbers of one kernel.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Virtual address of the `struct page` of page 0.
    pub base: u64,
    /// log2 of a page's bytes.
    pub page_bits: u32,
    /// `sizeof(struct page)`.
    pub size: usize,

    // Offsets in struct page.
    /// `flags`.
    pub flags: usize,
    /// `compound_head`, whose lowest bit makes a tail (`compound_info` since 7.1).
    pub head: usize,
    /// `mapping`.
    pub mapping: usize,
    /// `private`.
    pub private: usize,
    /// `_mapcount`, and `page_type` in the same place.
    pub mapcount: usize,
    /// `_refcount`.
    pub refcount: usize,
    /// `lru`.
    pub lru: usize,

    /// Tails hold a mask for their own address instead of the head's address (7.1, where `struct page` is a power of two).
    pub head_is_mask: bool,

    // Bits of page->flags; 0 where this kernel has no such flag.
    /// PG_reserved.
    pub reserved: u64,
    /// PG_head.
    pub compound: u64,
    /// PG_slab.
    pub slab: u64,
    /// PG_swapbacked.
    pub swapbacked: u64,
    /// PG_swapcache.
    pub swapcache: u64,
    /// Any of these keeps a file page from being dropped at once: dirty, writeback, unevictable.
    pub kept: u64,
    /// PG_private.
    pub has_private: u64,
    /// PG_hwpoison.
    pub hwpoison: u64,

    /// (mask, value, kind) of page_type.
    pub types: Vec<(u32, u32, Kind)>,
    /// How pages of hugetlbfs are recognised.
    pub huge: Huge,
    /// The counts of how often a large folio is mapped.
    pub large_counts: Vec<MapCount>,
    /// `mapping & 3 == 2` means movable pages of a driver.
    pub movable: bool,
    /// Which driver the movable pages belong to, by what mapping points to.
    pub movers: Vec<(u64, Kind)>,
    /// Orders of the buddy allocator's lists: 0 to this, exclusive.
    pub orders: u32,
    /// The value of page->private on OpenZFS's file data.
    pub zfs: u64,
    /// How pages of page pools are recognised; None where this kernel does not mark them.
    pub page_pool: Option<PagePool>,

    /// The offsets that lead from a mapping to its kind.
    pub files: Files,
}

/// A word of `struct page` that marks pages of page pools. The next word points to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePool {
    /// The offset of page.pp_magic.
    pub offset: usize,
    /// The bits that are the same in all such pages.
    pub mask: u64,
    /// PP_SIGNATURE.
    pub value: u64,
}

/// The offsets that lead from a page's mapping to its kind.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// address_space.host, address_space.i_mmap's root node.
    pub host: u64,
    /// address_space.i_mmap's root node.
    pub i_mmap: u64,
    /// inode.i_sb.
    pub i_sb: u64,
    /// rb_node.rb_left, rb_node.rb_right.
    pub left: u64,
    /// rb_node.rb_right.
    pub right: u64,
    /// From a node of i_mmap to its vm_area_struct's vm_flags (may be negative).
    pub to_flags: i64,
    /// VM_EXEC.
    pub exec: u64,
    /// Superblocks whose pages are of one kind: that of block devices.
    pub special: Vec<(u64, Kind)>,
}

impl Layout {
    /// Returns why the layout is not possible. A layout that passes cannot cause a panic.
    pub fn problem(&self) -> Option<&'static str> {
        let word = |offset: usize| offset % 8 == 0 && offset + 8 <= self.size;
        let half = |offset: usize| offset % 4 == 0 && offset + 4 <= self.size;
        if !PAGE_STRUCTS.contains(&self.size) || self.size % 8 != 0 {
            return Some("the size of struct page is not possible");
        }
        if ![self.flags, self.head, self.mapping, self.private, self.lru].into_iter().all(word) {
            return Some("a word of struct page lies outside it");
        }
        if !self.page_pool.iter().all(|pool| word(pool.offset) && word(pool.offset.wrapping_add(8))) {
            return Some("the mark of page pools lies outside struct page");
        }
        if ![self.mapcount, self.refcount].into_iter().all(half) || !self.large_counts.iter().all(|c| half(c.offset)) {
            return Some("a counter of struct page lies outside it");
        }
        if matches!(self.huge, Huge::SecondByte { offset, .. } if offset >= self.size) {
            return Some("compound_dtor lies outside struct page");
        }
        if !(12..=16).contains(&self.page_bits) || self.orders > 32 {
            return Some("the page size is not possible");
        }
        None
    }

    /// Returns the address of the `struct page` of a page frame.
    pub fn page(&self, pfn: u64) -> Option<u64> {
        pfn.checked_mul(self.size as u64).map(|offset| self.base.wrapping_add(offset)).filter(|page| *page >= self.base)
    }

    /// Returns the page frame whose `struct page` begins at the address.
    pub fn pfn(&self, page: u64) -> Option<u64> {
        let offset = page.checked_sub(self.base)?;
        (offset % self.size as u64 == 0).then_some(offset / self.size as u64)
    }
}
