"""The dominator tree over all slab objects of a kernel: the memory that each keeps alive alone."""

from __future__ import annotations

from typing import Optional

from dmods._engine import CacheSum, KeptObject, SlabsRetained
from dmods.base.dataclass import dataclass
from dmods.base.named_tuple import NamedTuple
from dmods.errors import UserError
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.pages.memmap import Progress
from drgnext.kernel.slabs.caches import SlabCacheInfo
from drgnext.kernel.slabs.leaks import missing_pages, registers
from drgnext.kernel.slabs.objects import SlabObjects, slab_objects


class CacheKept(NamedTuple):
    """A cache (None: kmalloc's own pages), and the bytes that its objects keep alive, themselves included.

    ``held`` is of objects that something holds, ``leaked`` of leaked ones.
    """

    cache: Optional[SlabCacheInfo]
    held: int
    leaked: int


@dataclass
class KernelRetained:
    """The dominator tree of one dump. All sizes are bytes."""

    slabs: SlabObjects
    tree: SlabsRetained
    notes: list[str]

    def by_cache(self) -> list[CacheKept]:
        """Return the caches, those that keep most alive first. A byte counts once for each cache."""
        rows = [CacheKept(self.slabs.cache(row.cache), row.held, row.leaked) for row in self.tree.by_cache()]
        rows = [row for row in rows if row.held or row.leaked]
        return sorted(rows, key=lambda row: (-row.held - row.leaked, row.cache.name if row.cache else ""))

    def above(self, address: int, most: int) -> list[KeptObject]:
        """Return the object at the address, and those that keep it alive, from the inside out. [] if it is free."""
        return self.tree.above(address, most)

    def caches_of(self, address: int) -> list[CacheSum]:
        """Return what the object at the address keeps alive, by cache, the most bytes first."""
        return sorted(self.tree.caches_of(address), key=lambda row: -row.bytes)


_known: list[tuple[SlabObjects, KernelRetained]] = []


def kernel_retained(kernel: Kernel, progress: Progress = None) -> KernelRetained:
    """Return what the slab objects of this kernel keep alive. It is found once for a dump.

    Raises UserError for a running kernel.
    """
    if kernel.live:
        raise UserError("retained needs a dump: pointers move while it reads a running kernel", "take a dump first")
    slabs = slab_objects(kernel)
    if not _known or _known[0][0] is not slabs:
        tree = SlabsRetained(slabs.engine, registers(kernel), kernel.lost_pages, progress)
        notes, _verdict = missing_pages(slabs, tree.missing)
        _known[:] = [(slabs, KernelRetained(slabs, tree, notes))]
    return _known[0][1]
