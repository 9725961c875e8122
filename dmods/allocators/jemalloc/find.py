"""Find jemalloc, by the radix tree of its extents and by the memory that it keeps for itself."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Optional

from dmods import _engine
from dmods.allocators.jemalloc.layouts import LAYOUTS, Layout
from dmods.base.cached import cached
from dmods.base.dataclass import dataclass, field, replace
from dmods.base.ranges import Ranges
from dmods.base.words import Words
from dmods.modules.data import module_data
from dmods.modules.elf import PAGE
from dmods.target import Module, Target

HUGE = 2 << 20  # HUGEPAGE: blocks of jemalloc's base allocator are multiples of it, and aligned to it
_ROOTS = 4  # addresses that are tried
_TASTE = 4000  # extents that are checked before a layout is believed
_BELIEVED = 0.5  # the share of them that must be sound
_MOST_BLOCKS = 1 << 16
_NEAR_ROOT = 64 << 10  # bytes: jemalloc's variables on either side of the tree's root
_BASE_WORDS = 128  # a base_block_t, and the base_t behind it as far as its list of blocks
_SYMBOLS = ("mallctl", "je_mallctl", "_rjem_mallctl", "_rjem_je_arena_emap_global", "je_arena_emap_global")

ACTIVE, DIRTY, MUZZY, RETAINED = 0, 1, 2, 3
STATES = (
    "in use",
    "dirty (free)",
    "muzzy (free)",
    "retained (address space alone)",
    "in transition",
    "in transition",
    # Without a size class: in the cache of opt.hpa, or a source of extents for opt.san_guard_small.
    "kept at hand (free)",
)
FAULTS = {
    "missing": "no extent stands where the tree leads",
    "address": "the extent's address and size are not those of the page that leads to it",
    "bits": "the extent's state or size class is not valid",
    "leaf": "the extent's size class, state or slab flag are not those in the tree",
    "size": "the extent's size does not fit its size class",
    "free": "the slab's count of free regions is not that of its bitmap",
    "overlap": "the extent lies across another",
}


@dataclass
class Jemalloc:
    """One jemalloc of the process. `base` is its own memory: records of extents, tree leaves, arenas."""

    root: int  # of the radix tree: rtree_t.root
    layout: Layout
    extents: _engine.Extents
    module: Optional[Module]  # that holds the root
    base: Ranges = field(default_factory=Ranges)
    owned: Ranges = field(default_factory=Ranges)
    notes: list[str] = field(default_factory=list)

    def data(self) -> list[tuple[int, int]]:
        """Return the writable parts of the module that holds the jemalloc."""
        parts = self.module.ranges if self.module is not None else ()
        return [(part.start, part.end) for part in parts if "w" in part.flags]

    @property
    def name(self) -> str:
        """Return the name for notes, with the module."""
        return f"jemalloc of {self.module.name}" if self.module is not None else f"jemalloc at {self.root:#x}"


@dataclass
class FoundJemallocs:
    """The jemallocs of a process. `notes` say what is there and could not be read."""

    all: list[Jemalloc] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@cached
def find_jemallocs(target: Target) -> FoundJemallocs:
    """Return every jemalloc of the process, searched once for each state of it."""
    found = FoundJemallocs()
    words = Words(target.image(), target.arch.word)
    if words.size != 8:
        return found
    data = list(module_data(target))
    for shape in dict.fromkeys(_shape(layout) for layout in LAYOUTS):
        layouts = [one for one in LAYOUTS if _shape(one) == shape]
        loose = replace(layouts[0], alignment=min(one.alignment for one in layouts))
        for root, _votes in _engine.find_radix_trees(words.image, data, loose)[:_ROOTS]:
            if any(abs(root - other.root) < 8 << other.layout.levels[0] for other in found.all):
                continue
            chosen = _choose(words, root, layouts, found.notes)
            if chosen is not None:
                found.all.append(_made(target, words, root, chosen))
    if found.all:
        found.notes.clear()
    elif not (named := _named(target)):
        found.notes.clear()  # other trees look alike at first: CPython's tree of arenas
    elif not found.notes:
        found.notes.append(_unread(named))
    found.all.sort(key=lambda one: one.root)
    return found


def _shape(layout: Layout) -> tuple[Hashable, ...]:
    """Return the parts of a layout by which a tree is recognised."""
    return layout.page, layout.levels, layout.entry, layout.pointer


def _choose(words: Words, root: int, layouts: Sequence[Layout], notes: list[str]) -> Optional[Layout]:
    """Return the layout that holds for the extents, newest first, or None."""
    refused = []
    for layout in layouts:
        tried = _engine.Extents(words.image, layout, root, _TASTE)
        if tried.entries and tried.fault_count <= tried.entries * (1 - _BELIEVED):
            return layout
        checks = ", ".join(sorted({fault for fault, _what, _at in tried.faults})) or "empty"
        refused.append(f"{layout.name}: {tried.fault_count} of {tried.entries} extents fail ({checks})")
    if notes:
        return None  # the notes name the most likely address already
    notes.append(f"the data at {root:#x} may be jemalloc's radix tree, but fits no known layout: {'; '.join(refused)}")
    return None


def _named(target: Target) -> Optional[str]:
    """Return the evidence that a jemalloc must be there, or None."""
    for module in target.modules():
        if "jemalloc" in module.name:
            return module.name
    return next((name for name in _SYMBOLS[2:] if target.lookup(name) is not None), None)


def _unread(named: str) -> str:
    return (
        f"{named} is in the process, but nothing in its data looks like the radix tree of jemalloc 5.1.0 to "
        "5.3.1: its blocks are not known"
    )


def _made(target: Target, words: Words, root: int, layout: Layout) -> Jemalloc:
    extents = _engine.Extents(words.image, layout, root)
    module = next((m for m in target.modules() if m.start <= root < m.end), None)
    made = Jemalloc(root, layout, extents, module)
    made.base = Ranges(_base_blocks(words, extents.metadata()))
    made.owned = Ranges(made.base)
    for start, end in extents.ranges():
        made.owned.add(start, end)
    for start, end in list(_guards(target, made)):
        made.owned.add(start, end)
    if extents.fault_count:
        kinds = sorted({fault for fault, _what, _at in extents.faults})
        made.notes.append(
            f"{made.name}: {extents.fault_count} of its {extents.entries} extents contradict themselves "
            f"({', '.join(kinds)}): `heapcheck` tells which"
        )
    return made


def _guards(target: Target, one: Jemalloc) -> Iterator[tuple[int, int]]:
    """Yield the guard pages of opt.san_guard_small and san_guard_large (san.c).

    They lie at each end of an extent, are no part of it, and still hold their old content.
    """
    for mapping in target.mappings():
        locked = set("rwx").isdisjoint(mapping.flags) and mapping.anonymous
        beside = mapping.start - 1 in one.owned or mapping.end in one.owned
        if locked and beside and mapping.size <= 2 * one.layout.page_size:
            yield mapping.start, mapping.end


def program_breaks(words: Words, one: Jemalloc) -> Iterator[tuple[int, int]]:
    """Yield (address, value) of variables that may be `dss_base` and `dss_max` (extent_dss.c).

    The flag `dss_exhausted` stands between them. They keep the program's break of jemalloc's start, as long as jemalloc
    takes nothing from there. In a jemalloc that was loaded late they point into the middle of glibc's heap.
    """
    data, end = Ranges(one.data()), one.root + (words.size << one.layout.levels[0])
    for part in ((one.root - _NEAR_ROOT, one.root), (end, end + _NEAR_ROOT)):
        for start, stop in data.within(*part):
            first = -(-start // words.size) * words.size
            values = words.many(first, max(0, stop - first) // words.size) or ()
            for index, (value, exhausted, last) in enumerate(zip(values, values[1:], values[2:])):
                if value and value == last and value % PAGE == 0 and exhausted <= 1:
                    yield first + index * words.size, value
                    yield first + (index + 2) * words.size, value


def _base_blocks(words: Words, places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the blocks of the base allocator that hold `places`, multiples of HUGE, and the blocks they link to.

    base_block_t has its size, the next block, and the record of its remaining space, which lies within the block. The
    first block of each arena has its base_t behind that, with a pointer to the newest block, which may hold no record
    of an extent yet.
    """
    known: dict[int, int] = {}
    pending = sorted(places, reverse=True)
    while pending and len(known) < _MOST_BLOCKS:
        place = pending.pop()
        if any(start <= place < end for start, end in known.items()):
            continue
        for start in range(place, max(0, place - 64 * HUGE), -HUGE):
            block = words.many(start, 5)
            if block is None:
                break
            size, following, _bits, address, left = block
            if _is_block(start, size, following, address, left) and start + size > place:
                known[start] = start + size
                near = words.many(start, _BASE_WORDS) or (following,)
                pending.extend(value for value in near if value and value % HUGE == 0 and value < 1 << 47)
                break
    return iter(known.items())


def _is_block(start: int, size: int, following: int, address: int, left: int) -> bool:
    sound = size > 0 and size % HUGE == 0 and following % HUGE == 0 and start + size < 1 << 47
    return sound and start < address <= start + size and address + left <= start + size
