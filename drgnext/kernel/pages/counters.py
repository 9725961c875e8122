"""Read the kernel's own counters of memory whose pages have no owner that dmods follows.

A counter says how many pages, and not which. So these rows overlap the kinds of pages, and each says where its pages
count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from dmods.base.named_tuple import NamedTuple

if TYPE_CHECKING:
    from drgn import Object, Program

_MOST_POOLS = 1 << 16


class Counter(NamedTuple):
    """A counter: what it counts, the number of pages, and the kinds of pages that these are."""

    what: str
    pages: int
    within: str


def counters(prog: Program, kinds: Mapping[str, int]) -> list[Counter]:
    """Return the counters that this kernel has, without those that are 0. ``kinds`` are the pages that were counted."""
    from drgn import FaultError

    def large(prog: Program) -> int:
        return 0 if kinds["large_kmalloc"] else large_kmalloc(prog, kinds["slab"])

    found = []
    for what, within, read in (*_COUNTERS, ("large kmalloc", "other kernel", large)):
        try:
            pages = read(prog)
        except (LookupError, AttributeError, FaultError, ValueError, RecursionError):
            continue  # this kernel does not have it, or the dump lacks it
        if 0 < pages < 1 << 52:
            found.append(Counter(what, pages, within))
    return found


def large_kmalloc(prog: Program, slab: int) -> int:
    """Return the pages of large kmalloc. They count as slab (since 5.4, commit 6a486c0ad4dc), and ``slab`` pages are
    slabs. Before 6.14 (PGTY_large_kmalloc) nothing marks them. Raises LookupError, FaultError.
    """
    return _slab(prog) - slab


def _number(value: Object) -> int:
    """Return the value of a number or of an atomic_long_t."""
    return int(value.counter if hasattr(value, "counter") else value)


def _sockets(name: str, reserve: str) -> Callable[[Program], int]:
    """Return a function for a protocol's counter of buffer memory, with what CPUs hold in reserve (since 6.0)."""

    def read(prog: Program) -> int:
        """Return the number of pages. Since 6.17 the counters are members of one structure."""
        try:
            counter = prog[name]
        except LookupError:
            counter = getattr(prog["net_aligned_data"], name)
        return _number(counter) + sum(_each_cpu(prog, reserve))

    return read


def _each_cpu(prog: Program, name: str) -> Iterator[int]:
    """Yield the value of a per-CPU variable for each CPU. Yield nothing if there is no such variable."""
    from drgn.helpers.linux.cpumask import for_each_possible_cpu
    from drgn.helpers.linux.percpu import per_cpu

    try:
        variable = prog[name]
    except LookupError:
        return
    for cpu in for_each_possible_cpu(prog):
        yield int(per_cpu(variable, cpu))


def _per_cpu(prog: Program) -> int:
    """Return the pages of chunks of per-CPU memory: those that are populated, in the units of all CPUs."""
    return int(prog["pcpu_nr_populated"]) * int(prog["pcpu_nr_units"])


def _crash_kernel(prog: Program) -> int:
    """Return the pages that are reserved for a crash kernel."""
    size = 0
    for name in ("crashk_res", "crashk_low_res"):
        start, end = int(prog[name].start), int(prog[name].end)
        size += end + 1 - start if 0 < start < end else 0
    return size >> int(prog["PAGE_SHIFT"])


def _slab(prog: Program) -> int:
    """Return the pages that count as slab, with what each CPU has not yet added. All possible CPUs count."""
    from drgn.helpers.linux.cpumask import for_each_possible_cpu
    from drgn.helpers.linux.mmzone import for_each_online_pgdat
    from drgn.helpers.linux.percpu import per_cpu_ptr

    names = ("NR_SLAB_RECLAIMABLE_B", "NR_SLAB_UNRECLAIMABLE_B")  # in pages, whatever their names say
    items = [int(prog[name]) for name in names]
    total = sum(int(prog["vm_node_stat"][item].counter) for item in items)
    for node in for_each_online_pgdat(prog):
        for cpu in for_each_possible_cpu(prog):
            parts = per_cpu_ptr(node.per_cpu_nodestats, cpu).vm_node_stat_diff
            total += sum(int(parts[item]) for item in items)
    return total


def _page_pools(prog: Program) -> int:
    """Return the pages that drivers' page pools hold and have given to packets (since 6.8)."""
    from itertools import islice

    from drgn import cast
    from drgn.helpers.linux.xarray import xa_for_each

    pages = 0
    for _index, entry in islice(xa_for_each(prog["page_pools"].address_of_()), _MOST_POOLS):
        pool = cast("struct page_pool *", entry)
        held, released = int(pool.pages_state_hold_cnt), int(pool.pages_state_release_cnt.counter)
        pages += ((held - released) & 0xFFFFFFFF) << int(pool.p.order)
    return pages


_NETWORK = "sockets, slab, other kernel"
_COUNTERS: tuple[tuple[str, str, Callable[[Program], int]], ...] = (
    ("TCP: buffers of sockets", _NETWORK, _sockets("tcp_memory_allocated", "tcp_memory_per_cpu_fw_alloc")),
    ("UDP: buffers of sockets", _NETWORK, _sockets("udp_memory_allocated", "udp_memory_per_cpu_fw_alloc")),
    ("page pools of network drivers", "network page pools, data of sockets, other kernel", _page_pools),
    ("per-CPU memory", "per-CPU memory, reserved at boot", _per_cpu),
    ("reserved for a crash kernel", "reserved at boot", _crash_kernel),
    ("contiguous memory (CMA)", "any: free, anonymous, files", lambda prog: int(prog["totalcma_pages"])),
)
