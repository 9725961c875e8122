"""The kinds of pages with their titles, and the seven lines of ``::memstat`` that they add up to."""

from __future__ import annotations

from collections.abc import Mapping

from dmods.base.named_tuple import NamedTuple

KERNEL = "Kernel"
ZFS = "ZFS File Data"
ANON = "Anon"
EXEC = "Exec and libs"
PAGE_CACHE = "Page cache"
CACHELIST = "Free (cachelist)"
FREELIST = "Free (freelist)"
UNKNOWN = "Unknown"

# The order is that of mdb's ::memstat.
BUCKETS = (KERNEL, ZFS, ANON, EXEC, PAGE_CACHE, CACHELIST, FREELIST)


class Kind(NamedTuple):
    """A kind of page: the line of ``::memstat`` that counts it, and its ``title`` in the table of -v."""

    bucket: str
    title: str


# The keys are the engine's names (engine/core/src/kernel/kind.rs). The order is that of -v.
KINDS: Mapping[str, Kind] = {
    "reserved": Kind(KERNEL, "reserved at boot"),
    "slab": Kind(KERNEL, "slab"),
    "large_kmalloc": Kind(KERNEL, "large kmalloc"),
    "page_table": Kind(KERNEL, "page tables"),
    "stack": Kind(KERNEL, "kernel stacks"),
    "vmalloc": Kind(KERNEL, "vmalloc"),
    "zsmalloc": Kind(KERNEL, "zsmalloc (zram, zswap)"),
    "movable": Kind(KERNEL, "drivers' movable pages"),
    "hugetlb_free": Kind(KERNEL, "hugetlb pool, not in use"),
    "offline": Kind(KERNEL, "offline (ballooned)"),
    "guard": Kind(KERNEL, "debug guards"),
    "hwpoison": Kind(KERNEL, "poisoned hardware"),
    "uninitialized": Kind(KERNEL, "never initialized"),
    "ring": Kind(KERNEL, "rings (perf, io_uring, ...)"),
    "pipe": Kind(KERNEL, "data in pipes"),
    "socket": Kind(KERNEL, "data of sockets"),
    "page_pool": Kind(KERNEL, "network page pools"),
    "bpf": Kind(KERNEL, "BPF rings and arenas"),
    "percpu": Kind(KERNEL, "per-CPU memory"),
    "page_directory": Kind(KERNEL, "page directories"),
    "block": Kind(KERNEL, "block requests"),
    "ftrace": Kind(KERNEL, "ftrace: functions, tasks"),
    "dma_pool": Kind(KERNEL, "pools for DMA"),
    "kfence": Kind(KERNEL, "KFENCE's pool"),
    "kernel": Kind(KERNEL, "other kernel"),
    "zfs": Kind(ZFS, "ZFS file data"),
    "anon": Kind(ANON, "anonymous"),
    "ksm": Kind(ANON, "KSM (merged)"),
    "hugetlb": Kind(ANON, "hugetlb in use"),
    "shmem": Kind(ANON, "shmem and tmpfs"),
    "secret": Kind(ANON, "secret (memfd_secret)"),
    "swapcache": Kind(ANON, "swap cache, unmapped"),
    "exec": Kind(EXEC, "executables and libraries"),
    "file": Kind(PAGE_CACHE, "files: mapped, dirty, locked"),
    "block_device": Kind(PAGE_CACHE, "block devices: likewise"),
    "cachelist": Kind(CACHELIST, "clean, unmapped file pages"),
    "free": Kind(FREELIST, "buddy allocator"),
    "percpu_free": Kind(FREELIST, "per-CPU lists"),
    "unaccepted": Kind(FREELIST, "not yet accepted"),
    "unknown": Kind(UNKNOWN, "not in the dump, or garbled"),
}


def buckets(kinds: Mapping[str, int]) -> dict[str, int]:
    """Return the number of pages in each bucket.

    The seven buckets of mdb are always there. ``UNKNOWN`` is there only if it has pages.
    """
    found = dict.fromkeys(BUCKETS, 0)
    for name, pages in kinds.items():
        if pages:
            bucket = KINDS[name].bucket
            found[bucket] = found.get(bucket, 0) + pages
    return found
