"""The memory of a process by use: the one place from which all commands have their totals.

The words:

* *in use*: the blocks that roots hold. *leaked*: those that nothing holds. Their usable bytes count, as in `findleaks`.
* *free in the allocator*: free blocks, caches, the tops of arenas, and pages that it keeps for later.
* *the allocator's own*: the rest of its memory: headers, padding, tables.
* *stacks*, *other anonymous memory*, *shared memory*, *data of files*, *code*: by kind of mapping (``mapping_kinds``).
* *touched*: pages that the process has used. Of a live process the kernel knows it. In a dump, a page that is all
  zeros, or that the kernel did not write, counts as never touched. Of data of files, only what the dump has is counted:
  pages that the process itself wrote. So it is with *of files, or untouched*: memory without a name, in a dump that
  does not say which files were mapped. Code is the files' own, and costs the process nothing.

The memory of the process is what it has touched. Address space that is mapped and was never touched costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods.base.cached import cached
from dmods.base.dataclass import dataclass
from dmods.base.named_tuple import NamedTuple
from dmods.base.ranges import Ranges
from dmods.heap.block import DIRECT, FREE, INDIRECT, LIVE
from dmods.heap.heap import find_heap
from dmods.heap.mapping_kinds import classify_mappings
from dmods.heap.verdict import leak_verdict
from dmods.process.untouched import untouched
from dmods.report import Column, Schema
from dmods.target import Target

IN_USE, LEAKED, FREE_MEMORY, OWN = "in use", "leaked", "free in the allocator", "the allocator's own"
UNJUDGED = "in use or leaked"
STACKS, ANONYMOUS, SHARED, UNNAMED, FILES, CODE = (
    "stacks",
    "other anonymous memory",
    "shared memory",
    "of files, or untouched",
    "data of files",
    "code",
)
_KINDS = {
    "heap": OWN,
    "arena": OWN,
    "stack": STACKS,
    "thread stack": STACKS,
    "anon": ANONYMOUS,
    "shared": SHARED,
    "unknown": UNNAMED,
    "file data": FILES,
    "file text": CODE,
    "vdso": CODE,
}
_ORDER = (IN_USE, LEAKED, FREE_MEMORY, OWN, STACKS, ANONYMOUS, SHARED, UNNAMED, FILES, CODE)
_STATES = {IN_USE: (LIVE,), LEAKED: (DIRECT, INDIRECT), FREE_MEMORY: (FREE,)}
_UNJUDGED_STATES = {IN_USE: (LIVE, DIRECT, INDIRECT), FREE_MEMORY: (FREE,)}
_COLUMNS = {LIVE: 1, FREE: 2, DIRECT: 3, INDIRECT: 3}  # of the rows of `_engine.Heap.sizes`
NOT_COUNTED = (UNNAMED, FILES, CODE)  # nobody knows which of their pages were touched
HEAP = (IN_USE, LEAKED, FREE_MEMORY, OWN)
#: The key of each use in JSON.
_KEYS = {
    IN_USE: "in_use", LEAKED: "leaked", FREE_MEMORY: "free", OWN: "own", STACKS: "stacks",
    ANONYMOUS: "other_anonymous", SHARED: "shared", UNNAMED: "unnamed", FILES: "file_data", CODE: "code",
}  # fmt: skip
_UNKNOWN_LEAKS = "no verdict on leaks is possible"
_TOUCHED = {LEAKED: _UNKNOWN_LEAKS, CODE: "it is code, so always: the pages are the files'"}
#: What `Ledger.values` gives.
LEDGER = Schema(
    "memory",
    "the memory of the process by use, as every command has it",
    (
        *(
            column
            for use, key in _KEYS.items()
            for column in (
                Column(f"{key}_bytes", "bytes", null=_UNKNOWN_LEAKS if use == LEAKED else ""),
                Column(f"{key}_touched_bytes", "bytes", null=_TOUCHED.get(use, "")),
            )
        ),
        Column("heap_bytes", "bytes", about="of the allocators"),
        Column("touched_bytes", "bytes", about="of the process, code left out"),
        Column("untouched_bytes", "bytes", about="mapped, and never touched"),
        Column("reserved_bytes", "bytes", about="mapped without any access"),
        Column("missing_bytes", "bytes", about="the dump lacks them"),
    ),
)
_MOST_BLOCKS = 256  # blocks in use that have memory which was never touched


class Use(NamedTuple):
    """Memory of one use: its bytes, and those of them that were touched."""

    name: str
    bytes: int
    touched: int

    @property
    def untouched(self) -> int:
        """Return the bytes that are mapped and were never touched."""
        return self.bytes - self.touched

    def part(self, name: str, size: int, touched: int) -> Use:
        """Return a part of it for another use: as much as there is. A damaged heap may claim more."""
        size = max(0, min(size, self.bytes))
        return Use(name, size, max(0, min(touched, size, self.touched)))

    def less(self, part: Use) -> Use:
        """Return what is left of it without a part."""
        return Use(self.name, self.bytes - part.bytes, self.touched - part.touched)


@dataclass(frozen=True)
class Ledger:
    """The memory of a process. ``uses`` has each use that there is, once.

    ``judged``: it is known what leaked; if not, it is in use. ``free_pages`` is the part of the free memory that is in
    no block. ``blocks`` has the blocks in use with most memory that was never touched: their addresses and these bytes.
    ``reserved`` is address space that cannot be accessed. ``missing`` is memory that a cut dump lacks: it is among the
    bytes of its use, and nobody knows whether it was touched.
    """

    uses: Sequence[Use]
    judged: bool
    free_pages: Use
    blocks: Sequence[tuple[int, int]]
    reserved: int
    missing: int

    def use(self, name: str) -> Use:
        """Return the use of that name. It has no bytes if the process has no such memory."""
        return next((each for each in self.uses if each.name == name), Use(name, 0, 0))

    @property
    def heap(self) -> int:
        """Return the bytes of the allocators' memory: blocks in use, leaked, free, their own."""
        return sum(self.use(name).bytes for name in HEAP)

    @property
    def touched(self) -> int:
        """Return the memory of the process: all that it has touched, without code."""
        return sum(each.touched for each in self.uses if each.name != CODE)

    @property
    def untouched(self) -> int:
        """Return the bytes that are mapped, can be accessed, and were never touched; files are not counted."""
        return sum(each.untouched for each in self.uses if each.name not in NOT_COUNTED) - self.missing

    def shown(self, use: Use) -> str:
        """Return the name of a use. Where nobody knows what leaked, blocks in use may have."""
        return UNJUDGED if use.name == IN_USE and not self.judged else use.name

    def values(self) -> dict[str, Optional[int]]:
        """Return the bytes as JSON has them: the same names and numbers in each command."""
        values: dict[str, Optional[int]] = {}
        for name, key in _KEYS.items():
            use = self.use(name)
            known = self.judged or name != LEAKED
            values[f"{key}_bytes"] = use.bytes if known else None
            values[f"{key}_touched_bytes"] = use.touched if known and name != CODE else None
        return {
            **values,
            "heap_bytes": self.heap,
            "touched_bytes": self.touched,
            "untouched_bytes": self.untouched,
            "reserved_bytes": self.reserved,
            "missing_bytes": self.missing,
        }


@cached
def find_ledger(target: Target) -> Ledger:
    """Return the memory of the target by use."""
    heap, unknown = find_heap(target), _Unknown(target)
    judged = leak_verdict(heap).possible
    sums: dict[str, list[int]] = {name: [0, 0] for name in _ORDER}
    reserved, missing, whole = 0, 0, Ranges()
    for part, kind in classify_mappings(target):
        name = _KINDS.get(kind)
        if name is None:
            reserved += part.size
            continue
        end = part.end if part.anonymous and name != UNNAMED else part.start + part.dumped
        sums[name][0] += part.size
        sums[name][1] += end - part.start - unknown.within([(part.start, end)])
        missing += unknown.lost([(part.start, end)]) if name not in NOT_COUNTED else 0
        if name == OWN:
            whole.add(part.start, part.end)
    never, blocks = heap.marks.engine.untouched(unknown.never, _MOST_BLOCKS)
    pages = [part for one in heap.heaps for start, end in one.free_memory() for part in whole.within(start, end)]
    size = sum(end - start for start, end in pages)
    own = Use(OWN, *sums[OWN])
    free_pages = own.part(FREE_MEMORY, size, size - unknown.within(pages))
    own = own.less(free_pages)
    sums[FREE_MEMORY] = [free_pages.bytes, free_pages.touched]
    for name, states in (_STATES if judged else _UNJUDGED_STATES).items():
        use = own.part(name, *_blocks(heap.marks.engine.sizes(), never, *states))
        own = own.less(use)
        sums[name] = [sums[name][0] + use.bytes, sums[name][1] + use.touched]
    sums[OWN] = [own.bytes, own.touched]
    uses = [Use(name, *sums[name]) for name in _ORDER if sums[name][0]]
    return Ledger(uses, judged, free_pages, blocks, reserved, missing)


class _Unknown:
    """The memory that was never touched, and that a cut dump lacks."""

    def __init__(self, target: Target) -> None:
        self.never, self._missing = untouched(target), Ranges(target.missing)

    def within(self, parts: Sequence[tuple[int, int]]) -> int:
        """Return how many bytes of the parts it has."""
        return self.never.within(list(parts)) + self.lost(parts)

    def lost(self, parts: Sequence[tuple[int, int]]) -> int:
        """Return how many bytes of the parts a cut dump lacks."""
        return sum(end - start for part in parts for start, end in self._missing.within(*part))


def _blocks(rows: Sequence[tuple[int, ...]], never: Sequence[int], *states: int) -> tuple[int, int]:
    """Return the bytes of the blocks in these states, and how many of them were touched."""
    columns = {_COLUMNS[state] for state in states}
    size = sum(row[0] * row[column] for row in rows for column in columns)
    return size, size - sum(never[state] for state in states)
