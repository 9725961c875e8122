//! What every page of a dead Linux machine is used for.
//!
//! * [`physical`]: the dump's bytes by physical address; [`kdump`] reads makedumpfile's compressed format.
//! * [`tables`]: the kernel's page tables, walked natively; [`space`]: its memory by virtual address.
//! * [`layout`]: where things lie in this kernel's structures, as its debug information says.
//! * [`classify`]: one `struct page`, by the rules. **Here memstat decides.**
//! * [`identity`]: what a file page's mapping is, looked up once per mapping.
//! * [`overlay`]: what only other lists tell: per-CPU free pages, stacks, vmalloc.
//! * [`scan`]: all of it over the page array, streamed; [`shared`]: what of it is shown more than once.

pub mod classify;
pub mod identity;
pub mod kdump;
pub mod layout;
pub mod lines;
pub mod overlay;
pub mod physical;
pub mod scan;
pub mod shared;
pub mod space;
pub mod tables;

/// What a page is used for: Linux's own kinds. Every page is of exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Its `struct page` is not in the dump, or says nothing that makes sense.
    Unknown,
    /// PG_reserved: never given to the page allocator (the kernel's image, memmap, firmware).
    Reserved,
    /// Its `struct page` was never initialised (all ones).
    Uninitialized,
    HwPoison,
    /// In the buddy allocator.
    Free,
    /// On a per-CPU free list.
    PerCpuFree,
    /// Free, but not yet accepted from the hypervisor (TDX, SEV-SNP).
    Unaccepted,
    /// OpenZFS's file data (ARC).
    Zfs,
    Hugetlb,
    /// In hugetlbfs' pool and not used.
    HugetlbFree,
    Slab,
    LargeKmalloc,
    PageTable,
    Stack,
    Vmalloc,
    /// Given back to the hypervisor (balloons), or not onlined.
    Offline,
    /// Around allocations, with debug_pagealloc.
    Guard,
    Zsmalloc,
    /// Movable pages of drivers (balloons, zsmalloc where its name cannot be told).
    Movable,
    Anon,
    Ksm,
    /// In the swap cache and not yet mapped anywhere.
    SwapCache,
    /// tmpfs, System V and anonymous shared memory.
    Shmem,
    /// Of a file that is mapped executable somewhere.
    Exec,
    /// Of a file, mapped, dirty, under writeback or locked in memory.
    File,
    /// Of a block device, likewise.
    BlockDevice,
    /// Of a file or block device, and could be dropped at once.
    Cachelist,
    /// The kernel's otherwise.
    Kernel,
}

/// All kinds with their names, in the order of their numbers.
pub const KINDS: [(Kind, &str); 28] = [
    (Kind::Unknown, "unknown"),
    (Kind::Reserved, "reserved"),
    (Kind::Uninitialized, "uninitialized"),
    (Kind::HwPoison, "hwpoison"),
    (Kind::Free, "free"),
    (Kind::PerCpuFree, "percpu_free"),
    (Kind::Unaccepted, "unaccepted"),
    (Kind::Zfs, "zfs"),
    (Kind::Hugetlb, "hugetlb"),
    (Kind::HugetlbFree, "hugetlb_free"),
    (Kind::Slab, "slab"),
    (Kind::LargeKmalloc, "large_kmalloc"),
    (Kind::PageTable, "page_table"),
    (Kind::Stack, "stack"),
    (Kind::Vmalloc, "vmalloc"),
    (Kind::Offline, "offline"),
    (Kind::Guard, "guard"),
    (Kind::Zsmalloc, "zsmalloc"),
    (Kind::Movable, "movable"),
    (Kind::Anon, "anon"),
    (Kind::Ksm, "ksm"),
    (Kind::SwapCache, "swapcache"),
    (Kind::Shmem, "shmem"),
    (Kind::Exec, "exec"),
    (Kind::File, "file"),
    (Kind::BlockDevice, "block_device"),
    (Kind::Cachelist, "cachelist"),
    (Kind::Kernel, "kernel"),
];

impl Kind {
    pub fn name(self) -> &'static str {
        KINDS[self as usize].1
    }

    pub fn by_name(name: &str) -> Option<Kind> {
        KINDS.iter().find(|(_, n)| *n == name).map(|(kind, _)| *kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_numbered_in_their_order() {
        for (number, (kind, name)) in KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, number);
            assert_eq!(Kind::by_name(name), Some(*kind));
        }
    }
}
