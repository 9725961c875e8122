//! Which pages hold pointers that keep objects alive, and by what right.

use super::table::{Table, LARGE};
use crate::kernel::Kind;

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The objects of this slab or large block.
    Slab(u32),
    /// Pages of the kernel.
    Pages,
    /// Stacks of tasks.
    Stack,
}

/// Pages that lie side by side and are read for the same reason.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// What is read.
    pub source: Source,
    /// The first page frame.
    pub pfn: u64,
    /// How many pages.
    pub pages: u64,
}

/// Whether pages of a kind are read as roots. Data of programs and files holds no pointers of the kernel, or only by
/// accident. Page tables hold physical addresses of pages, not of objects.
fn source(kind: Kind) -> Option<Source> {
    match kind {
        Kind::Stack => Some(Source::Stack),
        // A slab that the table does not have: its cache is not known. What is in it may well be in use.
        Kind::Slab | Kind::LargeKmalloc | Kind::Reserved | Kind::Kernel | Kind::Vmalloc | Kind::PerCpu => {
            Some(Source::Pages)
        }
        // The header of a ring buffer of BPF has a list of its pages.
        Kind::Socket | Kind::PagePool | Kind::Block | Kind::Ftrace | Kind::DmaPool | Kind::Bpf => Some(Source::Pages),
        Kind::PageTable | Kind::PageDirectory | Kind::Guard | Kind::Offline | Kind::Unknown => None,
        Kind::Free | Kind::PerCpuFree | Kind::Unaccepted | Kind::Uninitialized | Kind::HwPoison => None,
        Kind::Anon | Kind::Ksm | Kind::SwapCache | Kind::Shmem | Kind::Exec | Kind::File | Kind::BlockDevice => None,
        Kind::Cachelist | Kind::Zfs | Kind::Hugetlb | Kind::HugetlbFree | Kind::Zsmalloc | Kind::Movable => None,
        // Its objects are in the table. The rest of each page is a pattern.
        Kind::Ring | Kind::Pipe | Kind::Secret | Kind::Kfence => None,
    }
}

/// Whether a page's own `struct page` may hold pointers to objects: those of free pages are stale.
pub fn has_struct_page(kind: u8) -> bool {
    let free = [Kind::Unknown, Kind::Uninitialized, Kind::Free, Kind::PerCpuFree, Kind::Unaccepted, Kind::Offline];
    !free.iter().any(|other| *other as u8 == kind)
}

/// Calls `each` for every piece, in the order of page frames. `kinds` has a byte for each page of `ranges`. `skipped`
/// says whether a page is read in another way: the page array itself.
pub fn pieces(
    table: &Table,
    ranges: &[(u64, u64)],
    kinds: &[u8],
    skipped: impl Fn(u64) -> bool,
    mut each: impl FnMut(Piece),
) {
    let mut by_kind = [None; 256];
    for (kind, _) in crate::kernel::KINDS {
        by_kind[kind as usize] = source(kind);
    }
    let mut has_objects = [false; 256];
    for kind in [Kind::Slab, Kind::Kernel, Kind::LargeKmalloc, Kind::Kfence] {
        has_objects[kind as usize] = true;
    }
    let mut before = 0;
    for &(start, end) in ranges {
        let mut pfn = start;
        while pfn < end {
            let kind = kinds.get((before + pfn - start) as usize).copied().unwrap_or(0);
            let node = has_objects[kind as usize].then(|| table.slab_of_frame(pfn)).flatten();
            if let Some(index) = node {
                let slab = &table.slabs[index as usize];
                let pages = u64::from(slab.pages).max(1);
                if slab.pfn == pfn {
                    each(Piece { source: Source::Slab(index), pfn, pages });
                }
                pfn = slab.pfn + pages;
                continue;
            }
            let Some(source) = by_kind[kind as usize].filter(|_| !skipped(pfn)) else {
                pfn += 1;
                continue;
            };
            let mut last = pfn + 1;
            while last < end
                && kinds.get((before + last - start) as usize) == Some(&kind)
                && !skipped(last)
                && table.slab_of_frame(last).is_none()
            {
                last += 1;
            }
            each(Piece { source, pfn, pages: last - pfn });
            pfn = last;
        }
        before += end - start;
    }
}

/// Whether a slab is a large block.
pub fn is_large(table: &Table, index: u32) -> bool {
    table.slabs[index as usize].cache == LARGE
}
