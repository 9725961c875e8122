"""The words in which an allocator speaks to the rest of dmods: what the engine walks, places, parts, figures."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Optional, Union

from dmods._engine import Extents, Slots
from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple
from dmods.finding import CERTAIN, LIKELY, POSSIBLE, SERIOUS, WASTE, Evidence, Finding
from dmods.report import Column, Schema, Table, Value

if TYPE_CHECKING:
    from dmods.allocators.block import Block

PYTHON = "CPython"  # a runtime that has an allocator of its own
ADVICE_BYTES = 64 << 20  # below this much unused memory no advice is given
ADVICE_SHARE = 0.5  # of what is held, so much is unused
#: What to do about memory that was overwritten.
OVERWRITTEN = "check what is written into that memory; `dmods run --audit audit,log,guards -- PROG` stops at the write"


# -- what the engine walks ---------------------------------------------------------------------------------------------


class Chunks(NamedTuple):
    """Runs of chunks with glibc's headers. ``watched`` are structures that the walk reports (``HeapBuilder``)."""

    runs: Sequence[tuple[int, int, int, int, int]]
    watched: Sequence[tuple[int, int, int]]


class Slabs(NamedTuple):
    """Slabs of equal blocks, and single blocks. All are in the arena with that number."""

    slots: Slots
    arena: int


class SomeExtents(NamedTuple):
    """Extents of jemalloc's, slabs and single blocks. ``first`` is added to the numbers of their arenas."""

    extents: Extents
    first: int


Walk = Union[Chunks, Slabs, SomeExtents]


# -- what is somewhere -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A place in memory. ``text`` follows "ADDRESS is"; ``brief`` names the place in a list of addresses.

    ``kind`` is one of these. The allocator's memory: block, header, top, arena, heap_info, slack (in no block). Memory
    of threads: stack, dead stack, guard page, thread-local, pthread. Of a recorder of allocations: record. Everything
    else: module, mapping.
    """

    kind: str
    text: str
    brief: str


class StackFrame(NamedTuple):
    """A frame on a stack of a runtime, as a root. ``alike`` means the same in other runs of the program.

    ``rank`` is 0 for the outermost frame. It is None for a stack whose frames are not known.
    """

    start: int
    end: int
    name: str
    alike: str
    rank: Optional[int]


class ArenaRow(NamedTuple):
    """An arena whose own structure is at ``address``. ``mapped`` is what it took from the system, in bytes."""

    address: int
    name: str
    top: Optional[int]
    mapped: int
    threads: int


# -- what is wrong -----------------------------------------------------------------------------------------------------


class Problem(NamedTuple):
    """Damage that the reader of an allocator's structures met."""

    address: int
    text: str


@dataclass(frozen=True)
class Contradiction(Finding):
    """A contradiction in the records of an allocator. ``arena`` is a number; None for a structure that belongs to no
    arena. ``where`` names the structure or list. ``address`` is its place, where it has one."""

    arena: Optional[int] = None
    where: str = ""

    @property
    def address(self) -> Optional[int]:
        """Return where the structure is, or None."""
        return self.evidence[0].address if self.evidence else None


def contradiction(arena: Optional[int], where: str, address: Optional[int], what: str) -> Contradiction:
    """Return the finding of a contradiction."""
    evidence = (Evidence(address, f"{where}: {what}"),) if address is not None else ()
    return Contradiction(
        "list-damage", SERIOUS, CERTAIN, what, OVERWRITTEN, evidence, ("heapcheck",), arena=arena, where=where
    )


@dataclass(frozen=True)
class Damage(Finding):
    """A damaged chunk of an arena.

    ``what`` says what is wrong. ``private`` says the same without ``value``, which is what the program wrote there.
    ``kind`` is a name for the kind of damage. ``suspect`` is the block that was most likely written beyond its end, or
    before its start. ``why`` is the evidence for that. Chunks are valid again from ``resumed`` on.
    """

    arena: int = 0
    value: int = 0
    suspect: Optional[Block] = None
    why: str = ""
    resumed: int = 0
    private: str = ""

    @property
    def chunk(self) -> int:
        """Return where the chunk is."""
        return self.evidence[0].address

    @property
    def extent(self) -> int:
        """Return how many bytes the damage covers."""
        return self.resumed - self.chunk


@dataclass
class Part:
    """The findings for one part of the heap: an arena, all tcaches, all mmapped blocks, an allocator, the guards."""

    name: str
    address: Optional[int] = None
    locked: bool = False
    chunks: Optional[int] = None
    free: Optional[int] = None
    in_bins: Optional[int] = None
    in_fastbins: Optional[int] = None
    cached: Optional[int] = None
    bad_chunks: int = 0
    bad_guards: int = 0
    misuses: int = 0
    bad_links: int = 0
    contradictions: int = 0

    @property
    def problems(self) -> int:
        """Return the number of problems of all kinds."""
        return self.bad_chunks + self.bad_links + self.contradictions + self.bad_guards + self.misuses

    @property
    def verdict(self) -> str:
        """Return the problems in words: "1 damaged chunk, 2 damaged links"."""
        parts = [
            f"{count} {noun}{'' if count == 1 else 's'}"
            for count, noun in (
                (self.bad_chunks, "damaged chunk"),
                (self.bad_links, "damaged link"),
                (self.contradictions, "contradiction"),
                (self.bad_guards, "overwritten guard"),
                (self.misuses, "misuse that stopped the program"),
            )
            if count
        ]
        text = ", ".join(parts) or "clean"
        return f"{text} (the arena was locked: a thread may have been changing it)" if self.locked and parts else text


@dataclass
class Checked:
    """The answer of a check of one heap.

    ``structures`` are contradictions in its own structures, ``links`` in its lists of free chunks. ``undescribed``
    counts links that are wrong as well and were not described.
    """

    parts: list[Part] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    structures: list[Contradiction] = field(default_factory=list)
    links: list[Contradiction] = field(default_factory=list)
    undescribed: int = 0


# -- figures -----------------------------------------------------------------------------------------------------------


@dataclass
class Statistics:
    """The figures of a heap, as the allocator's own report has them. ``sums`` are totals that add up over its heaps."""

    tables: list[Table] = field(default_factory=list)
    totals: dict[str, Value] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    sums: dict[str, int] = field(default_factory=dict)


class Declared(NamedTuple):
    """The declarations of an allocator: tables and totals of ``Heap.report``, and the tables of ``Heap.tables``."""

    figures: Sequence[Schema] = ()
    totals: Sequence[Column] = ()
    of_block: Sequence[Schema] = ()


def unused(
    kind: str,
    what: str,
    remedy: str,
    bytes: int,
    next: Sequence[str],
    *,
    confidence: str = CERTAIN,
    place: Optional[tuple[int, str]] = None,
    helps: bool = True,
    alternative: str = "",
) -> Finding:
    """Return the finding of memory that an allocator holds and the program does not use: ``bytes`` of it.

    ``helps`` says whether the remedy is likely to help. An empty remedy stands for the allocator's ``release``.
    ``place`` is an address that shows the waste, and what is there.
    """
    return Finding(
        kind,
        WASTE,
        confidence,
        what,
        remedy,
        (Evidence(*place),) if place is not None else (),
        tuple(next),
        weight=bytes,
        remedy_confidence=LIKELY if helps else POSSIBLE,
        alternative=alternative,
    )


class ArenaKey(NamedTuple):
    """The arena with the number, by an identity that means the same in several cores, and its name there."""

    number: int
    identity: Hashable
    name: str


class Lost(NamedTuple):
    """The blocks of caches that are gone. ``doubtful`` ones were in them, or leaked. ``own`` are the caches' blocks."""

    doubtful: list[int]
    own: list[int]
