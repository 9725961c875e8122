//! Decides what one page is used for, by its `struct page`.
//!
//! The order of the checks matters, because one field has many meanings. First reserved, type (buddy first), ZFS, hugetlb
//! and slab; only then `mapping`, which slab and typed pages use for something else.

use super::identity::Identity;
use super::kind::Kind;
use super::layout::{Huge, Layout};
use super::page_tables::Tables;
use super::virtual_memory::VirtualMemory;

/// A `struct page`, as words.
pub type Words = [u64];

/// The fields of one `struct page`.
#[derive(Clone, Copy)]
pub struct Page<'a>(pub &'a Words);

impl<'a> Page<'a> {
    /// Returns the word at a byte offset (a multiple of 8).
    #[inline(always)]
    pub fn word(self, offset: usize) -> u64 {
        self.0.get(offset / 8).map_or(0, |w| u64::from_le(*w))
    }

    /// Returns the four bytes at a byte offset (a multiple of 4).
    #[inline(always)]
    pub fn half(self, offset: usize) -> u32 {
        (self.word(offset & !7) >> (offset % 8 * 8)) as u32
    }

    fn byte(self, offset: usize) -> u8 {
        (self.word(offset & !7) >> (offset % 8 * 8)) as u8
    }
}

/// The result for one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The page is of this kind by its own words.
    Is(Kind),
    /// The page begins a block of 2^order free pages. An impossible order is reported as 0, with `false`.
    FreeBlock {
        /// log2 of the number of pages.
        order: u32,
        /// Whether the order is possible.
        sane: bool,
        /// The kind of free memory.
        kind: Kind,
    },
    /// The words contradict each other.
    Nonsense,
}

/// The rules, for one kernel.
pub struct Rules<'l> {
    layout: &'l Layout,
    /// Flags that need a closer look. With none of them, and no type, a page is what its mapping says.
    special: u64,
    /// Where the kernel's half of the address space begins.
    kernel: u64,
}

/// The kind of a page whose type the debug information does not name.
const MAPCOUNT_UNUSED: u32 = u32::MAX;

impl<'l> Rules<'l> {
    /// Makes the rules of a kernel.
    pub fn new(layout: &'l Layout, tables: &Tables) -> Rules<'l> {
        let special = layout.reserved | layout.hwpoison | layout.has_private | layout.compound | layout.slab;
        Rules { layout, special, kernel: tables.kernel_start() }
    }

    /// Returns whether this is an ordinary page of anonymous memory: not typed, compound or special.
    #[inline(always)]
    pub fn plainly_anonymous(&self, page: Page) -> bool {
        let (layout, mapping) = (self.layout, page.word(self.layout.mapping));
        page.word(layout.flags) & self.special == 0
            && page.word(layout.head) & 1 == 0
            && mapping & 3 == 1
            && mapping >= self.kernel
            && page.half(layout.mapcount) as i32 >= -1
            && page.half(layout.refcount) as i32 >= 0
    }

    /// Returns the address of the head's `struct page` if this page is a tail. `next` is the `struct page` after it.
    ///
    /// A hugetlb page's memmap may be mapped several times ("fake heads", Documentation/mm/vmemmap_dedup.rst). For a
    /// `struct page` with PG_head at the beginning of a page of memory, the next one names the true head.
    #[inline(always)]
    pub fn head(&self, page: Page, address: u64, next: Option<Page>) -> Option<u64> {
        let layout = self.layout;
        let head = page.word(layout.head);
        if head & 1 != 0 {
            return Some(if layout.head_is_mask { address & head } else { head - 1 });
        }
        if !layout.head_is_mask
            && address % (1 << layout.page_bits) == 0
            && page.word(layout.flags) & layout.compound != 0
        {
            let head = next?.word(layout.head);
            if head & 1 != 0 && head - 1 != address {
                return Some(head - 1);
            }
        }
        None
    }

    /// Judges a page that is not a tail. `second` is the `struct page` after it.
    pub fn judge(
        &self,
        page: Page,
        pfn: u64,
        second: Option<Page>,
        identity: &mut Identity,
        memory: &mut VirtualMemory,
    ) -> Verdict {
        let layout = self.layout;
        let flags = page.word(layout.flags);
        if flags == u64::MAX {
            return Verdict::Is(Kind::Uninitialized); // PAGE_POISON_PATTERN
        }
        if flags & layout.reserved != 0 {
            return Verdict::Is(Kind::Reserved);
        }
        let typed = self.typed(page.half(layout.mapcount));
        match typed {
            Some(Kind::Free) => {
                let order = page.word(layout.private);
                let sane = order < u64::from(layout.orders) && pfn % (1 << order) == 0;
                return Verdict::FreeBlock { order: if sane { order as u32 } else { 0 }, sane, kind: Kind::Free };
            }
            // Only blocks of the largest order can be unaccepted (mm/page_alloc.c, __free_unaccepted()).
            Some(Kind::Unaccepted) => {
                let order = layout.orders.saturating_sub(1);
                let sane = pfn % (1 << order) == 0;
                return Verdict::FreeBlock { order: if sane { order } else { 0 }, sane, kind: Kind::Unaccepted };
            }
            _ => {}
        }
        if flags & layout.hwpoison != 0 {
            return Verdict::Is(Kind::HwPoison);
        }
        if flags & layout.has_private != 0 && page.word(layout.private) == layout.zfs {
            return Verdict::Is(Kind::Zfs);
        }
        if typed == Some(Kind::Hugetlb) || (flags & layout.compound != 0 && self.hugetlb(second)) {
            let used = page.half(layout.refcount) != 0;
            return Verdict::Is(if used { Kind::Hugetlb } else { Kind::HugetlbFree });
        }
        if let Some(kind) = typed {
            return Verdict::Is(kind);
        }
        if flags & layout.slab != 0 {
            return Verdict::Is(Kind::Slab);
        }
        if (page.half(layout.refcount) as i32) < 0 {
            return Verdict::Nonsense;
        }
        self.mapped(page, flags, second, identity, memory)
    }

    /// Returns the kind that the page type says. None for a page without a type.
    #[inline(always)]
    fn typed(&self, mapcount: u32) -> Option<Kind> {
        // Types are numbers far below zero. A page that is not mapped has -1.
        if mapcount == MAPCOUNT_UNUSED || (mapcount as i32) >= 0 {
            return None;
        }
        self.layout.types.iter().find(|(mask, value, _)| mapcount & mask == *value).map(|(_, _, kind)| *kind)
    }

    fn hugetlb(&self, second: Option<Page>) -> bool {
        let Some(second) = second else { return false };
        match self.layout.huge {
            Huge::ByType => false,
            Huge::SecondByte { offset, value } => second.byte(offset) == value,
            Huge::SecondFlags(mask) => second.word(self.layout.flags) & mask != 0,
        }
    }

    /// Decides by `mapping`, whose two lowest bits say what it points to.
    fn mapped(
        &self,
        page: Page,
        flags: u64,
        second: Option<Page>,
        identity: &mut Identity,
        memory: &mut VirtualMemory,
    ) -> Verdict {
        let layout = self.layout;
        let mapping = page.word(layout.mapping);
        if mapping == 0 {
            let swap = layout.swapbacked | layout.swapcache;
            let cached = layout.swapcache != 0 && flags & swap == swap;
            return Verdict::Is(match layout.page_pool {
                _ if cached => Kind::SwapCache,
                // The word is one of two links on other pages. The signature is no address that a link can have.
                Some(pool)
                    if page.word(pool.offset) & pool.mask == pool.value
                        && page.word(pool.offset + 8) >= self.kernel =>
                {
                    Kind::PagePool
                }
                _ => Kind::Kernel,
            });
        }
        if mapping < self.kernel {
            return Verdict::Nonsense;
        }
        let kind = match mapping & 3 {
            1 => Kind::Anon,
            3 => Kind::Ksm,
            2 if layout.movable => {
                let owner = mapping & !3;
                layout.movers.iter().find(|(mover, _)| *mover == owner).map_or(Kind::Movable, |(_, kind)| *kind)
            }
            2 => return Verdict::Nonsense,
            _ if flags & layout.swapbacked != 0 => Kind::Shmem,
            _ => match identity.of(mapping, &layout.files, memory) {
                kind @ (Kind::Exec | Kind::Ring) => kind,
                _ if flags & layout.kept == 0 && !self.in_use(page, flags, second) => Kind::Cachelist,
                other => other,
            },
        };
        Verdict::Is(kind)
    }

    /// Returns whether some process has the page in its page tables.
    fn in_use(&self, page: Page, flags: u64, second: Option<Page>) -> bool {
        let mapped = |count: u32| count as i32 >= 0;
        mapped(page.half(self.layout.mapcount))
            || (flags & self.layout.compound != 0
                && second.is_some_and(|second| {
                    self.layout.large_counts.iter().any(|c| second.half(c.offset) as i32 != c.unmapped)
                }))
    }
}
