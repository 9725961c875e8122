"""All slab objects of a kernel: the engine's table, prepared for commands.

slabs = slab_objects(kernel)
slabs.usage()[0]                # Usage(cache=..., objects=..., in_use=..., ...)
slabs.object_at(address)        # Object(address=..., state="allocated", ...)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Optional

from dmods._engine import Slabs
from dmods.base.dataclass import dataclass
from dmods.base.named_tuple import NamedTuple
from dmods.errors import MissingDebugInfoError, UserError
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.pages.memmap import Counted, PageArray, Progress, page_array
from drgnext.kernel.slabs.caches import Described, SlabCacheInfo, describe_slabs
from drgnext.kernel.slabs.guarded import GuardedObjects

_known: list[Any] = []  # the last kernel that a command asked about, and its slab objects
_BATCH = 1 << 16

#: The states of objects, by the engine's numbers (engine/core/src/kernel/slabs/freelists.rs).
LEAKED, PLAIN, STACK, UNALIGNED, PHYSICAL, OWN, SET_ASIDE, UNSURE = range(8)
FREE, FREE_CPU, FREE_SHEAF, FREE_GUARDED = 0x40, 0x41, 0x42, 0x43
ALLOCATED_STATES = (LEAKED, PLAIN, STACK, UNALIGNED, PHYSICAL, OWN, SET_ASIDE, UNSURE)
FREE_NAMES: Mapping[int, str] = {
    FREE: "free",
    FREE_CPU: "free, on the list of a CPU",
    FREE_SHEAF: "free, in a sheaf",
    FREE_GUARDED: "free",
}


class Usage(NamedTuple):
    """The figures of a cache. ``pages`` are those that memstat counts as slab.

    ``cut`` is how many lists of free objects lead into pages that the dump lacks: up to ``in_use`` are in use then.
    """

    cache: SlabCacheInfo
    slabs: int
    pages: int
    objects: int
    in_use: int
    cut: int = 0

    @property
    def free(self) -> int:
        """Return the number of free objects."""
        return self.objects - self.in_use


@dataclass(frozen=True)
class Object:
    """A slab object, or a block of kmalloc that has its own pages (``cache`` is None).

    ``slot`` is its number in its slab, which begins at ``slab`` and has ``pages`` pages.
    """

    address: int
    size: int
    cache: Optional[SlabCacheInfo]
    state: int
    slot: int
    slab: int
    pages: int

    @property
    def free(self) -> bool:
        """Return whether the object is free."""
        return self.state >= FREE


class SlabObjects:
    """The slab objects of one dump.

    ``notes`` say what is missing or wrong. ``missing_caches`` are those on caches that are not known.
    """

    def __init__(self, kernel: Kernel, progress: Progress = None, array: Optional[PageArray] = None) -> None:
        """Read the caches, and the page array once. Raises UserError if the debug information does not fit."""
        from drgn import FaultError

        self.kernel = kernel
        self.prog = kernel.prog
        self.pages: PageArray = page_array(kernel) if array is None else array
        try:
            described: Described = describe_slabs(kernel.prog)
        except FaultError as error:
            raise UserError(
                f"the dump lacks the list of slab caches: {error}",
                "the dump is truncated, or was filtered too much: copy or take it again",
            ) from None
        except MissingDebugInfoError as error:
            raise UserError(
                f"dmods cannot find {error}",
                "load the kernel's vmlinux with its debug information: drgn -s vmlinux ...",
            ) from None
        self.caches = described.caches
        self.description = described.description
        self.missing_caches = described.notes
        self.own_notes = list(described.notes)
        self.guarded = GuardedObjects(kernel.prog, self.pages, self.caches)
        self.guarded.describe(self.description)
        self.engine: Slabs = self.pages.slabs(described.description, progress)
        self._odd_notes()

    @cached_property
    def counted(self) -> Counted:
        """Return the pages by kind, as memstat counts them: of the same pass over the page array."""
        return self.pages.counted(self.engine.kinds())

    @property
    def notes(self) -> list[str]:
        """Return what is missing or wrong, one line each."""
        return [*self.pages.notes, *self.counted.notes, *self.own_notes]

    def _odd_notes(self) -> None:
        odd = self.engine.odd()
        if self.guarded.in_use:
            count = self.guarded.in_use
            self.own_notes.append(f"KFENCE guards {count} more objects, in a pool of its own: `walk kfence` lists them")
        texts = {
            "unknown": "{} slabs belong to a cache that is not in the list of caches: their objects are not known",
            "nonsense": "{} slabs have an impossible number of objects: slabcheck",
            "too_many": "{} slabs are left out, because there are more objects than dmods can number",
        }
        self.own_notes += [text.format(odd[name]) for name, text in texts.items() if odd[name]]
        if self.broken:
            self.own_notes.append(f"{len(self.broken)} lists of free objects are damaged: slabcheck shows them")
        cut = [one for one in self.usage() if one.cut]
        if cut:
            self.own_notes.append(
                f"lists of free objects of {len(cut)} caches lead into pages that the dump lacks: for these "
                "caches, objects in use are upper bounds, and free objects are lower bounds"
            )

    @cached_property
    def broken(self) -> list[tuple[int, Optional[int], int, int]]:
        """Return the damaged lists of free objects: (cache, cpu or None for sheaves, after this object, value).

        A list that leads to pages that the dump does not describe is not damaged.
        """
        return [row for row in self.engine.broken() if self.kind_at(row[3]) != "unknown"]

    def kind_at(self, address: int) -> Optional[str]:
        """Return the kind of the page of an address in the map of all memory, or None."""
        physical = (address - self.description["direct_map"]) & ((1 << 64) - 1)
        return self.engine.kind(physical >> self.pages.layout["page_bits"])

    @property
    def unknown_pages(self) -> int:
        """Return the pages of slabs whose cache is not known."""
        return self.engine.odd()["unknown_pages"]

    def usage(self) -> list[Usage]:
        """Return the figures of each cache, in the kernel's order."""
        found = []
        for cache, (slabs, pages, objects, inuse, reserved, cut) in zip(self.caches, self.engine.caches()):
            found.append(Usage(cache, slabs, pages, objects, max(0, inuse - reserved), cut))
        return found

    def cache(self, number: Optional[int]) -> Optional[SlabCacheInfo]:
        """Return the cache of that number. None stands for kmalloc's own pages."""
        return self.guarded.numbered[number] if number is not None else None

    def named(self, text: str) -> Optional[SlabCacheInfo]:
        """Return the cache of that name or address, or None. A cache that was merged has another one's name."""
        for cache in self.caches:
            if cache.name == text or text == hex(cache.address):
                return cache
        other = self.aliases.get(text)
        return next((cache for cache in self.caches if cache.name == other), None) if other else None

    @cached_property
    def aliases(self) -> Mapping[str, str]:
        """Return the caches that were merged into another one: name -> name of the other. {} if that is not known."""
        from drgn import FaultError
        from drgn.helpers.linux.slab import get_slab_cache_aliases

        try:
            return dict(get_slab_cache_aliases(self.prog))
        except (LookupError, FaultError, AttributeError, ValueError):
            return {}

    def object_at(self, address: int) -> Optional[Object]:
        """Return the object whose slot holds a direct-map address, or None. Red zones and tracks are in the slot."""
        found = self.engine.at(address)
        if found is None:
            return None
        start, size, cache, state, slot, slab, pages = found
        return Object(start, size, self.cache(cache), state, slot, slab, pages)

    def walk(self, cache: SlabCacheInfo, free: bool) -> Iterator[int]:
        """Yield the addresses of the allocated, or free, objects of a cache."""
        at: Optional[int] = 0
        while at is not None:
            found, at = self.engine.listed(cache.number, free, at, _BATCH)
            yield from found


def slab_objects(kernel: Kernel, progress: Progress = None) -> SlabObjects:
    """Return the slab objects of this kernel. They are found once for a dump."""
    if kernel.live or _known[:1] != [kernel]:
        _known[:] = [kernel, SlabObjects(kernel, progress)]
    objects: SlabObjects = _known[1]
    return objects
