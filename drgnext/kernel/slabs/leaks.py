"""The slab objects that nothing holds, those that the kernel drops on purpose, and those with weak evidence."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Optional

from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple
from dmods.errors import UserError
from dmods.report import Verdict
from drgnext.kernel.dump.cpu_notes import read_notes
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.pages.counters import large_kmalloc
from drgnext.kernel.pages.frame_ranges import count_pages
from drgnext.kernel.pages.memmap import Progress
from drgnext.kernel.slabs.caches import SlabCacheInfo
from drgnext.kernel.slabs.objects import PHYSICAL, PLAIN, STACK, UNALIGNED, UNSURE, SlabObjects, slab_objects
from drgnext.kernel.slabs.orphans import is_variable_of, orphan_patterns
from drgnext.kernel.slabs.tracks import SlabUser, Tracks

_MOST_NOTES = 1 << 20  # bytes of registers
_BATCH = 1 << 16
_MOST_MISSING = 100  # no verdict if more than one page in so many is missing

# The kinds of pages in which the engine looks for pointers (engine/core/src/kernel/slabs/plan.rs, source()).
_HOLDERS = (
    *("stack", "slab", "large_kmalloc", "reserved", "kernel", "vmalloc", "percpu", "socket", "page_pool", "block"),
    *("ftrace", "dma_pool", "bpf", "kfence"),
)

#: The classes of evidence, strongest first, with what they mean.
EVIDENCE = {
    PLAIN: "a pointer",
    STACK: "a stack of a task only",
    UNALIGNED: "a pointer that is not aligned to 8 bytes only",
    PHYSICAL: "its physical address only",
}


class Orphan(NamedTuple):
    """A direct leak that the kernel dropped on purpose. ``kept_count`` objects lead on from it."""

    address: int
    size: int
    cache: Optional[SlabCacheInfo]
    what: str
    why: str
    kept_count: int
    kept_bytes: int


@dataclass
class SlabLeaks:
    """The result of a search. Counts and bytes leave out what the kernel dropped on purpose.

    ``large`` is the number of blocks of kmalloc with their own pages. ``large_doubt`` says why these blocks may be
    something else, "" if they cannot.
    """

    slabs: SlabObjects
    tracks: Tracks
    groups: list[SlabUser]
    orphans: list[Orphan]
    verdict: Verdict
    notes: list[str]
    figures: dict[str, int]
    seconds: float
    cpu_seconds: float
    evidence: dict[int, tuple[int, int]] = field(default_factory=dict)
    large: int = 0
    large_doubt: str = ""

    @property
    def large_notes(self) -> list[str]:
        """Return a note if large blocks are listed that may be something else."""
        listed = any(group.cache is None for group in self.groups)
        return [self.large_doubt] if listed and self.large_doubt else []

    @property
    def direct_count(self) -> int:
        """Return the number of direct leaks."""
        return sum(group.count for group in self.groups)

    @property
    def direct_bytes(self) -> int:
        """Return their bytes."""
        return sum(group.count * group.size for group in self.groups)

    @property
    def indirect_count(self) -> int:
        """Return how many other objects they keep alive."""
        return sum(group.kept_count for group in self.groups)

    @property
    def indirect_bytes(self) -> int:
        """Return the bytes of those."""
        return sum(group.kept_bytes for group in self.groups)


_known: list[tuple[SlabObjects, SlabLeaks]] = []


def kernel_leaks(kernel: Kernel, progress: Progress = None, again: bool = False) -> SlabLeaks:
    """Return the leaks of this kernel. They are found once for a dump, unless ``again``.

    Raises UserError for a running kernel.
    """
    if kernel.live:
        raise UserError("findleaks needs a dump: pointers move while it reads a running kernel", "take a dump first")
    slabs = slab_objects(kernel)
    if again or not _known or _known[0][0] is not slabs:
        _known[:] = [(slabs, _find(kernel, slabs, progress))]
    return _known[0][1]


def _find(kernel: Kernel, slabs: SlabObjects, progress: Progress) -> SlabLeaks:
    started, cpu = time.monotonic(), time.process_time()
    slabs.engine.find_leaks(registers(kernel), kernel.lost_pages, progress)
    orphans = _orphans(slabs)
    slabs.engine.set_aside([orphan.address for orphan in orphans])
    totals = slabs.engine.leak_totals()
    tracks = Tracks(slabs)
    groups = tracks.users(slabs.engine.leak_groups())
    groups.sort(key=lambda group: (-group.count * group.size - group.kept_bytes, group.oldest))
    missing = totals["missing_slab_pages"], totals["missing_pages"]
    notes, verdict = missing_pages(slabs, missing)
    _rows, faults, _pages, _cut = slabs.engine.damage()
    if faults:
        notes.append(f"{faults} slabs have a damaged freelist or count: free objects of them may count as leaked")
    evidence = slabs.engine.evidence()
    notes += _unsure(kernel, *evidence.get(UNSURE, (0, 0)))
    return SlabLeaks(
        slabs,
        tracks,
        groups,
        orphans,
        verdict,
        notes,
        totals,
        time.monotonic() - started,
        time.process_time() - cpu,
        evidence,
        *_large(slabs, totals),
    )


def _unsure(kernel: Kernel, count: int, size: int) -> Iterator[str]:
    """Yield a note on the objects that may be leaked, if there are any."""
    if count:
        why = "be free: the dump lacks a part of the lists of free objects"
        why = "be held by pages that the dump lacks, or be free" if kernel.lost_pages else why
        yield f"{count} objects, {size} bytes, are not listed: nothing in the dump points to them, and they may {why}"


def marks_large(slabs: SlabObjects) -> bool:
    """Return whether the kernel marks the pages of blocks of kmalloc that have their own (6.14 does)."""
    return any(kind == "large_kmalloc" for _mask, _value, kind in slabs.pages.layout["types"])


def _large(slabs: SlabObjects, totals: dict[str, int]) -> tuple[int, str]:
    """Return how many blocks of kmalloc have their own pages, and why they may be something else ("": they cannot).

    Since 6.14 their pages have a type. Before, dmods takes compound pages for such a block that have one reference,
    nothing noted in them, and no pointer to their struct page alone. The kernel counts their pages as slab. If both
    numbers agree, each of them is such a block.
    """
    from drgn import FaultError

    if marks_large(slabs):
        return slabs.engine.odd()["large"], ""
    found, pages = totals["large_blocks"], totals["large_pages"]
    why = "kmalloc-large is probable, not certain: this kernel does not mark such blocks (6.14 does)"
    try:
        counted = large_kmalloc(slabs.prog, slabs.counted.kinds["slab"])
    except (LookupError, AttributeError, FaultError, ValueError):
        return found, f"{why}, and its counter of slab pages cannot be read"
    return found, "" if counted == pages else f"{why}. {pages} pages look like them, and the kernel counts {counted}"


def missing_pages(slabs: SlabObjects, missing: tuple[int, int]) -> tuple[list[str], Verdict]:
    """Return notes on pages that the dump lacks, and whether a verdict is possible.

    ``missing`` counts pages of slabs, and others.
    """
    notes: list[str] = []
    lost = sum(missing)
    if lost:
        only = "objects that only these pages point to are listed as leaked"
        only = "no object can be called leaked" if slabs.kernel.lost_pages else only
        notes.append(f"{lost} pages of the kernel ({missing[0]} of them slabs) are not in the dump: {only}")
    unknown = slabs.counted.kinds["unknown"]
    if unknown:
        notes.append(f"{unknown} pages have no struct page in the dump: slabs among them are not known")
    whole = sum(slabs.counted.kinds[kind] for kind in _HOLDERS) + unknown
    whole = max(0, whole - count_pages(slabs.description["unread"]))  # they are reserved at boot
    if slabs.kernel.lost_pages or (lost + unknown) * _MOST_MISSING > whole:
        return notes, Verdict(False, f"{lost + unknown} of {whole} pages of the kernel are not in the dump")
    return notes, Verdict(True)


def _orphans(slabs: SlabObjects) -> list[Orphan]:
    patterns = orphan_patterns(slabs.prog)
    rows = slabs.engine.matching([(pattern.size, pattern.words) for pattern in patterns]) if patterns else []
    found = []
    for address, size, cache, number, kept, kept_bytes in rows:
        pattern = patterns[number]
        if pattern.pointer is not None:
            data = slabs.pages.read(address + pattern.pointer, 8)
            if not is_variable_of(slabs.prog, int.from_bytes(data, "little"), pattern.variable):
                continue
        found.append(Orphan(address, size, slabs.cache(cache), pattern.what, pattern.why, kept, kept_bytes))
    return found


def registers(kernel: Kernel) -> list[int]:
    """Return the words of the notes of a dump: the registers of all CPUs are among them.

    What they hold counts as if it were on a stack.
    """
    data = b"".join(read_notes(kernel.path)[1])[:_MOST_NOTES]
    # Notes are aligned to 4 bytes, and so are the registers in them.
    words = [struct.unpack(f"<{len(part) // 8}Q", part[: len(part) // 8 * 8]) for part in (data, data[4:])]
    return [word for part in words for word in part if word >> 47]
