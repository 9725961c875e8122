"""Compute what /proc/meminfo would have said, from the counters that it reads (fs/proc/meminfo.c, mm/show_mem.c).

The file shows the global counters. What CPUs have not yet added to them is missing there, and here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Callable, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.dump.machine import architecture
from drgnext.kernel.dump.vmcoreinfo import numbers
from drgnext.kernel.system.reading import Reader, number
from drgnext.kernel.system.swap import swap_areas

if TYPE_CHECKING:
    from drgn import Object

_SWP_USED, _SWP_WRITEOK = 1, 2  # include/linux/swap.h
_MOST_ZONES = 5 * 1024
_IN_KB = ("KernelStack", "ShadowCallStack", "VmallocTotal")
_WMARK_LOW = 1  # enum zone_watermarks


class Line(NamedTuple):
    """A line of the file. ``value`` is in kB, or a number of pages if ``unit`` is ""."""

    name: str
    value: int
    unit: str = "kB"


class Meminfo:
    """The counters of one kernel."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._page_shift = int(reader.prog["PAGE_SHIFT"])

    def lines(self) -> list[Line]:
        """Return the lines in the order of the file. A line whose counter this kernel lacks is left out."""
        return list(self._lines())

    def _lines(self) -> Iterator[Line]:
        for name, count in self._pages():
            pages = self._try(count)
            if pages is not None:
                yield Line(name, pages if name in _IN_KB else self._kb(pages))
        for lines in (self._huge_pages, self._direct_map):
            with self._reader.reading("counters"):
                yield from lines()

    def _kb(self, pages: int) -> int:
        return pages << (self._page_shift - 10)

    def _try(self, count: Callable[[], Optional[int]]) -> Optional[int]:
        """Return a number of pages, None if this kernel has no such counter or the dump lacks it."""
        with self._reader.reading("counters"):
            try:
                return count()
            except LookupError:
                return None
        return None

    def _pages(self) -> Iterator[tuple[str, Callable[[], Optional[int]]]]:
        """Yield the name of each line, and what counts its pages, or the kB of those in _IN_KB."""
        yield from self._pages_in_use()
        yield from self._pages_of_the_kernel()
        yield from self._pages_of_kinds()

    def _pages_in_use(self) -> Iterator[tuple[str, Callable[[], Optional[int]]]]:
        """Yield the lines up to Zswapped."""
        node, zone, read = self._node, self._zone, self._symbol
        yield "MemTotal", lambda: read("_totalram_pages")
        yield "MemFree", lambda: zone("NR_FREE_PAGES")
        yield "MemAvailable", self._available
        yield "Buffers", self._buffers
        yield "Cached", self._cached
        yield "SwapCached", self._swap_cached
        yield "Active", lambda: _sum(node("NR_ACTIVE_ANON"), node("NR_ACTIVE_FILE"))
        yield "Inactive", lambda: _sum(node("NR_INACTIVE_ANON"), node("NR_INACTIVE_FILE"))
        yield "Active(anon)", lambda: node("NR_ACTIVE_ANON")
        yield "Inactive(anon)", lambda: node("NR_INACTIVE_ANON")
        yield "Active(file)", lambda: node("NR_ACTIVE_FILE")
        yield "Inactive(file)", lambda: node("NR_INACTIVE_FILE")
        yield "Unevictable", lambda: node("NR_UNEVICTABLE")
        yield "Mlocked", lambda: zone("NR_MLOCK")
        yield "SwapTotal", lambda: _sum(read("total_swap_pages"), self._unused())
        yield "SwapFree", lambda: _sum(read("nr_swap_pages"), self._unused())
        yield "Zswap", self._zswap
        yield "Zswapped", lambda: read("zswap_stored_pages")

    def _pages_of_the_kernel(self) -> Iterator[tuple[str, Callable[[], Optional[int]]]]:
        """Yield the lines from Dirty to Percpu."""
        node, zone, read = self._node, self._zone, self._symbol
        yield "Dirty", lambda: node("NR_FILE_DIRTY")
        yield "Writeback", lambda: node("NR_WRITEBACK")
        yield "AnonPages", lambda: node("NR_ANON_MAPPED")
        yield "Mapped", lambda: node("NR_FILE_MAPPED")
        yield "Shmem", lambda: node("NR_SHMEM")
        slab = "NR_SLAB_RECLAIMABLE_B", "NR_SLAB_UNRECLAIMABLE_B"
        yield "KReclaimable", lambda: _sum(node(slab[0]), node("NR_KERNEL_MISC_RECLAIMABLE"))
        yield "Slab", lambda: _sum(node(slab[0]), node(slab[1]))
        yield "SReclaimable", lambda: node(slab[0])
        yield "SUnreclaim", lambda: node(slab[1])
        yield "KernelStack", lambda: node("NR_KERNEL_STACK_KB")
        yield "ShadowCallStack", lambda: node("NR_KERNEL_SCS_KB")
        yield "PageTables", lambda: _first(node("NR_PAGETABLE"), zone("NR_PAGETABLE"))
        yield "SecPageTables", lambda: node("NR_SECONDARY_PAGETABLE")
        yield "NFS_Unstable", lambda: 0  # a constant since 5.8
        yield "Bounce", lambda: _first(zone("NR_BOUNCE"), 0)
        yield "WritebackTmp", lambda: _first(node("NR_WRITEBACK_TEMP"), 0)
        yield "CommitLimit", self._commit_limit
        yield "Committed_AS", lambda: max(0, self._reader.counter(self._reader.prog["vm_committed_as"]))
        yield "VmallocTotal", self._vmalloc_total
        yield "VmallocUsed", lambda: _first(node("NR_VMALLOC"), read("nr_vmalloc_pages"))
        yield "VmallocChunk", lambda: 0
        yield "Percpu", lambda: int(self._reader.prog["pcpu_nr_populated"]) * int(self._reader.prog["pcpu_nr_units"])

    def _pages_of_kinds(self) -> Iterator[tuple[str, Callable[[], Optional[int]]]]:
        """Yield the lines from HardwareCorrupted on."""
        node, zone, read = self._node, self._zone, self._symbol

        def scaled(name: str) -> Callable[[], Optional[int]]:
            return lambda: self._scaled(node(name))

        yield "HardwareCorrupted", lambda: read("num_poisoned_pages")
        if self._reader.symbol("transparent_hugepage_flags") is not None:  # CONFIG_TRANSPARENT_HUGEPAGE
            yield "AnonHugePages", scaled("NR_ANON_THPS")
            yield "ShmemHugePages", scaled("NR_SHMEM_THPS")
            yield "ShmemPmdMapped", scaled("NR_SHMEM_PMDMAPPED")
            yield "FileHugePages", scaled("NR_FILE_THPS")
            yield "FilePmdMapped", scaled("NR_FILE_PMDMAPPED")
        if self._reader.symbol("cma_areas") is not None:  # CONFIG_CMA
            yield "CmaTotal", lambda: read("totalcma_pages")
            yield "CmaFree", lambda: zone("NR_FREE_CMA_PAGES")
        yield "Unaccepted", lambda: zone("NR_UNACCEPTED")
        yield "Balloon", lambda: node("NR_BALLOON_PAGES")
        yield "GPUActive", lambda: node("NR_GPU_ACTIVE")
        yield "GPUReclaim", lambda: node("NR_GPU_RECLAIM")

    def _symbol(self, name: str) -> Optional[int]:
        found = self._reader.symbol(name)
        return None if found is None else number(found)

    def _stat(self, array: str, item: str) -> Optional[int]:
        """Return a counter of vm_node_stat or vm_zone_stat; a negative one shows as 0 (linux/vmstat.h)."""
        index = self._reader.constant(item)
        return None if index is None else max(0, int(self._reader.prog[array][index].counter))

    def _node(self, item: str) -> Optional[int]:
        try:
            constants = self._reader.prog.type("enum node_stat_item").enumerators or ()
        except LookupError:
            return None
        return self._stat("vm_node_stat", item) if item in {name for name, _value in constants} else None

    def _zone(self, item: str) -> Optional[int]:
        try:
            constants = self._reader.prog.type("enum zone_stat_item").enumerators or ()
        except LookupError:
            return None
        return self._stat("vm_zone_stat", item) if item in {name for name, _value in constants} else None

    def _swap_cached(self) -> Optional[int]:
        """Return the pages of the swap cache. NR_SWAPCACHE is there since 5.12."""
        counted = self._node("NR_SWAPCACHE")
        if counted is not None:
            return counted
        spaces, sizes = self._reader.prog["swapper_spaces"], self._reader.prog["nr_swapper_spaces"]
        pages = 0
        for kind in range(len(sizes)):
            count = min(int(sizes[kind]), 1 << 16)
            if spaces[kind].value_():
                pages += sum(int(spaces[kind][each].nrpages) for each in range(count))
        return pages

    def _buffers(self) -> int:
        """Return the pages of block devices (nr_blockdev_pages())."""
        head = self._reader.prog["blockdev_superblock"].s_inodes.address_of_().value_()
        inodes = self._reader.members(head, "struct inode", "i_sb_list", "inodes of block devices")
        return sum(int(inode.i_mapping.nrpages) for inode in inodes)

    def _cached(self) -> Optional[int]:
        pages, swap = self._node("NR_FILE_PAGES"), self._swap_cached()
        return None if pages is None or swap is None else max(0, pages - swap - self._buffers())

    def _available(self) -> Optional[int]:
        """Return what si_mem_available() estimates."""
        free = self._zone("NR_FREE_PAGES")
        files = _sum(self._node("NR_ACTIVE_FILE"), self._node("NR_INACTIVE_FILE"))
        reclaimable = _sum(self._node("NR_SLAB_RECLAIMABLE_B"), self._node("NR_KERNEL_MISC_RECLAIMABLE"))
        reserve = self._symbol("totalreserve_pages")
        if free is None or files is None or reclaimable is None or reserve is None:
            return None
        low = sum(map(self._low, self._zones()))
        available = free - reserve + files - min(files // 2, low) + reclaimable - min(reclaimable // 2, low)
        return max(0, available)

    def _low(self, zone: Object) -> int:
        return int(zone._watermark[_WMARK_LOW]) + int(zone.watermark_boost)

    def _zones(self) -> Iterator[Object]:
        """Yield all zones of all nodes that are online."""
        from drgn.helpers.linux.mmzone import for_each_online_pgdat

        for count, node in enumerate(for_each_online_pgdat(self._reader.prog)):
            if count > _MOST_ZONES:
                return
            yield from node.node_zones

    def _unused(self) -> int:
        """Return the used pages of swap areas that are being switched off."""
        return sum(
            area.used for area in swap_areas(self._reader) if area.flags & (_SWP_USED | _SWP_WRITEOK) == _SWP_USED
        )

    def _zswap(self) -> Optional[int]:
        """Return the pages that zswap's pools take."""
        size = self._symbol("zswap_pool_total_size")
        if size is not None:
            return size >> self._page_shift
        pools = self._reader.symbol("zswap_pools")
        if pools is None:
            return None
        found = self._reader.members(pools.address_of_().value_(), "struct zswap_pool", "list", "pools of zswap")
        return sum(number(pool.zs_pool.pages_allocated) for pool in found)

    def _commit_limit(self) -> Optional[int]:
        """Return vm_commit_limit()."""
        total, swap = self._symbol("_totalram_pages"), self._symbol("total_swap_pages")
        if total is None or swap is None:
            return None
        fixed = self._symbol("sysctl_overcommit_kbytes")
        if fixed:
            return (fixed >> (self._page_shift - 10)) + swap
        huge = sum(int(state.nr_huge_pages) << int(state.order) for state in self._hstates())
        return (total - huge) * int(self._reader.prog["sysctl_overcommit_ratio"]) // 100 + swap

    def _vmalloc_total(self) -> Optional[int]:
        """Return the size of the vmalloc area in kB."""
        from drgn import Architecture

        if architecture(self._reader.prog) == Architecture.X86_64:
            # Documentation/arch/x86/x86_64/mm.rst: 32 TB, or 12800 TB with five levels. VMALLOC_END is the last byte.
            five = self._reader.symbol("__pgtable_l5_enabled")
            return (((12800 if five is not None and int(five) else 32) << 40) - 1) >> 10
        known = numbers(self._reader.prog)
        if "VMALLOC_START" not in known or "VMALLOC_END" not in known:
            return None
        return (known["VMALLOC_END"] - known["VMALLOC_START"]) >> 10

    def _scaled(self, count: Optional[int]) -> Optional[int]:
        """Return huge pages as pages. Since 5.12, when NR_SWAPCACHE came, the counters are in pages."""
        if count is None or self._node("NR_SWAPCACHE") is not None:
            return count
        return count << (self._page_shift - 3)  # HPAGE_PMD_NR: a table of the last level has as many entries

    def _hstates(self) -> list[Object]:
        states = self._reader.symbol("hstates")
        if states is None:
            return []
        known = self._symbol("hugetlb_max_hstate")
        return [states[each] for each in range(min(known or 0, len(states)))]

    def _huge_pages(self) -> Iterator[Line]:
        """Yield the lines of hugetlb_report_meminfo()."""
        states = self._hstates()
        default = self._symbol("default_hstate_idx")
        if not states or default is None or default >= len(states):
            return
        own = states[default]
        yield Line("HugePages_Total", int(own.nr_huge_pages), "")
        yield Line("HugePages_Free", int(own.free_huge_pages), "")
        yield Line("HugePages_Rsvd", int(own.resv_huge_pages), "")
        yield Line("HugePages_Surp", int(own.surplus_huge_pages), "")
        yield Line("Hugepagesize", self._kb(1 << int(own.order)))
        yield Line("Hugetlb", sum(self._kb(int(state.nr_huge_pages) << int(state.order)) for state in states))

    def _direct_map(self) -> Iterator[Line]:
        """Yield the lines of x86's arch_report_meminfo(). Levels count from 1: pages of 4 kB."""
        counts = self._reader.symbol("direct_pages_count")
        if counts is None or len(counts) < 4:
            return
        yield Line("DirectMap4k", int(counts[1]) << 2)
        yield Line("DirectMap2M", int(counts[2]) << 11)
        if self._symbol("direct_gbpages"):
            yield Line("DirectMap1G", int(counts[3]) << 20)


def _sum(*counts: Optional[int]) -> Optional[int]:
    """Return the sum, None if one is missing."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def _first(*counts: Optional[int]) -> Optional[int]:
    return next((count for count in counts if count is not None), None)
