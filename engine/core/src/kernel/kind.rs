//! What a page can be used for.

/// What a page is used for, in Linux's own terms. Every page has exactly one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Its `struct page` is not in the dump, or is damaged.
    Unknown,
    /// PG_reserved: never given to the page allocator (the kernel's image, memmap, firmware).
    Reserved,
    /// Its `struct page` was never initialised (all ones).
    Uninitialized,
    /// Broken hardware: PG_hwpoison.
    HwPoison,
    /// In the buddy allocator.
    Free,
    /// On a per-CPU free list.
    PerCpuFree,
    /// Free, but not yet accepted from the hypervisor (TDX, SEV-SNP).
    Unaccepted,
    /// OpenZFS's file data (ARC).
    Zfs,
    /// In a huge page of hugetlbfs.
    Hugetlb,
    /// In hugetlbfs' pool, and not used.
    HugetlbFree,
    /// In a slab.
    Slab,
    /// A kmalloc too large for a slab.
    LargeKmalloc,
    /// A page table.
    PageTable,
    /// The stack of a task.
    Stack,
    /// Mapped by vmalloc.
    Vmalloc,
    /// Given back to the hypervisor (balloons), or not onlined.
    Offline,
    /// Around allocations, with debug_pagealloc.
    Guard,
    /// In zsmalloc's pool.
    Zsmalloc,
    /// Movable pages of drivers (balloons, and zsmalloc where its name is not known).
    Movable,
    /// Anonymous memory.
    Anon,
    /// Anonymous memory that KSM merged.
    Ksm,
    /// In the swap cache and not yet mapped anywhere.
    SwapCache,
    /// tmpfs, System V and anonymous shared memory.
    Shmem,
    /// Of a file that is mapped executable somewhere.
    Exec,
    /// Of a file, mapped, dirty, under writeback or locked in memory.
    File,
    /// Of a block device: mapped, dirty, under writeback or locked in memory.
    BlockDevice,
    /// Of a file or block device, clean and not mapped: it could be dropped at once.
    Cachelist,
    /// Other pages of the kernel.
    Kernel,
    /// A ring that the kernel shares with programs: of perf, io_uring or packet sockets.
    Ring,
    /// Data in a pipe.
    Pipe,
    /// Data in the queue of a socket.
    Socket,
    /// A page table that `struct page` does not mark: of the kernel itself, or of a level above the last two.
    PageDirectory,
    /// In a chunk of per-CPU memory.
    PerCpu,
    /// Requests of block devices.
    Block,
    /// What ftrace knows of functions and tasks.
    Ftrace,
    /// In a pool of memory for DMA.
    DmaPool,
    /// In a network driver's page pool, or handed out by it.
    PagePool,
    /// Memory of BPF maps that programs share: ring buffers and arenas.
    Bpf,
    /// In the pool of KFENCE, whatever `struct page` says.
    Kfence,
    /// Memory of memfd_secret(2).
    Secret,
}

/// All kinds with their names, in the order of their numbers.
pub const KINDS: [(Kind, &str); 40] = [
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
    (Kind::Ring, "ring"),
    (Kind::Pipe, "pipe"),
    (Kind::Socket, "socket"),
    (Kind::PageDirectory, "page_directory"),
    (Kind::PerCpu, "percpu"),
    (Kind::Block, "block"),
    (Kind::Ftrace, "ftrace"),
    (Kind::DmaPool, "dma_pool"),
    (Kind::PagePool, "page_pool"),
    (Kind::Bpf, "bpf"),
    (Kind::Kfence, "kfence"),
    (Kind::Secret, "secret"),
];

impl Kind {
    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        KINDS[self as usize].1
    }

    /// Returns whether a list may know better what the page is. Packets of a page pool wait in the queue of a socket.
    #[inline(always)]
    pub fn may_be_listed(self) -> bool {
        matches!(self, Kind::Kernel | Kind::PagePool)
    }

    /// Returns whether the list is right whatever `struct page` says: KFENCE marks some pages of its pool as slabs, and
    /// memblock marks all of them as reserved (mm/kfence/core.c, kfence_init_pool()).
    pub fn is_always_listed(self) -> bool {
        self == Kind::Kfence
    }

    /// Returns the kind of that name.
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
