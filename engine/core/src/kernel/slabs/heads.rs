//! What the pass over the page array tells of slabs and of other compound pages of the kernel.

use super::layout::SlabLayout;
use crate::kernel::classify::Page;
use crate::kernel::Kind;

/// The first page of a slab, or of another compound page of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Its page frame.
    pub pfn: u64,
    /// How many pages there are, with the tails that were met.
    pub pages: u32,
    /// Slab, LargeKmalloc, Kernel, or Kfence: a page of KFENCE's pool.
    pub kind: Kind,
    /// The address of the `struct kmem_cache`, of a slab.
    pub cache: u64,
    /// The first free object, of a slab.
    pub freelist: u64,
    /// Allocated objects as the page says, of a slab.
    pub inuse: u32,
    /// All objects, of a slab.
    pub objects: u32,
}

/// Collects heads in the order of their page frames.
#[derive(Debug)]
pub struct Heads<'l> {
    layout: &'l SlabLayout,
    /// What was found.
    pub found: Vec<Head>,
}

impl<'l> Heads<'l> {
    /// Nothing is found yet.
    pub fn new(layout: &'l SlabLayout) -> Heads<'l> {
        Heads { layout, found: Vec::new() }
    }

    /// Takes a head.
    pub fn add(&mut self, page: Page, pfn: u64, kind: Kind) {
        let mut head = Head { pfn, pages: 1, kind, cache: 0, freelist: 0, inuse: 0, objects: 0 };
        if kind == Kind::Slab {
            head.cache = page.word(self.layout.cache);
            head.freelist = page.word(self.layout.freelist);
            head.inuse = self.layout.inuse.of(page.word(self.layout.inuse.word));
            head.objects = self.layout.objects.of(page.word(self.layout.objects.word));
        }
        self.found.push(head);
    }

    /// Takes a tail of a slab whose head is not the last one that was met: a page whose cache is not known.
    pub fn add_lost(&mut self, pfn: u64, kind: Kind) {
        if kind == Kind::Slab {
            self.found.push(Head { pfn, pages: 1, kind, cache: 0, freelist: 0, inuse: 0, objects: 0 });
        }
    }

    /// Adds tails to the last head, if it is of that kind and they follow it.
    pub fn add_tails(&mut self, first: u64, count: u64, kind: Kind) {
        match self.found.last_mut() {
            Some(last) if last.kind == kind && last.pfn + u64::from(last.pages) == first => {
                last.pages = last.pages.saturating_add(count as u32);
            }
            _ if kind == Kind::Slab => {
                for pfn in first..first + count {
                    self.add_lost(pfn, kind);
                }
            }
            _ => {}
        }
    }
}
