"""The protocol of an allocator. The rest of dmods knows an allocator by this module and `vocabulary` alone.

An allocator is a folder that `directory` finds by its name. Its module ``allocator`` has an ``ALLOCATOR``, which finds
the heaps of a process. All methods of a heap have defaults: one that knows its blocks, and nothing else, is whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Callable, Optional, Protocol

from dmods._engine import Slots
from dmods.allocators.numbers import arena_number
from dmods.allocators.vocabulary import (
    ArenaKey,
    ArenaRow,
    Checked,
    Damage,
    Declared,
    Lost,
    Part,
    Place,
    Problem,
    Slabs,
    StackFrame,
    Statistics,
    Walk,
    contradiction,
)
from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple
from dmods.base.ranges import Ranges
from dmods.finding import Finding
from dmods.process.untouched import untouched
from dmods.report import Table
from dmods.target import Target

if TYPE_CHECKING:
    from dmods import _engine
    from dmods.allocators.block import Block
    from dmods.allocators.recording import Recording
    from dmods.allocators.search import Search
    from dmods.base.words import Words


@dataclass(frozen=True)
class Building:
    """A process heap whose bytes are read, and whose free lists are not yet followed: see ``Heap.release``.

    ``thread_pointers`` are those without registers, too. ``reports`` say what the walk of ``Chunks`` met.
    """

    target: Target
    words: Words
    thread_pointers: Sequence[int]
    reports: Sequence[_engine.RunReport]
    engine: _engine.HeapBuilder


class Marked(Protocol):
    """The blocks of the whole process by what holds them, for an allocator: ``heap.Marks``."""

    engine: _engine.Marks

    def blocks(self, *states: int) -> Iterator[Block]: ...


class Process(Protocol):
    """The blocks of the whole process, for an allocator that looks at its own part of it: ``heap.Index``.

    ``reports`` say what the walk of ``Chunks`` met. ``thread_pointers`` are those without registers, too. A block that
    has leaked is in use here.
    """

    target: Target
    words: Words
    engine: _engine.Index
    reports: Sequence[_engine.RunReport]

    @property
    def thread_pointers(self) -> Sequence[int]: ...
    def block_at(self, address: int) -> Optional[Block]: ...
    def referrers(self, block: Block, most: int, start_only: bool = False) -> list[int]: ...
    def is_missing(self, address: int) -> bool: ...
    def guard_intact(self, block: Block) -> Optional[bool]: ...


class Describer(Protocol):
    """Whoever describes addresses in words: ``heap.AddressFinder``."""

    def thread_named(self, tid: Optional[int]) -> str: ...
    def state(self, block: Block) -> str: ...
    def past(self, address: int, before: Block) -> str: ...
    def behind(self, address: int) -> str: ...


@dataclass
class Heap:
    """A heap of one allocator.

    ``name`` is for notes, "jemalloc of libjemalloc.so.2"; ``allocator`` is what its blocks are called after. ``owned``
    is all memory that it manages, in use or not, with its own structures: none of it holds roots. ``slots`` are its
    blocks, where the engine walks slabs and single blocks.

    ``notes`` say what is uncertain. ``doubts`` say why a block that is in use may be missing. ``dead`` are words in its
    blocks, or outside, that look like pointers into the heap and are not pointers. ``own`` are addresses of blocks that
    the allocator took for itself: they are no leaks of the program. ``problems`` is the damage. ``zeroed`` are places
    of its structures where the dump has zeros (``process.zeroed``).

    ``serves_malloc`` says that malloc() of the process gives out its blocks. ``home`` is an address in the module whose
    malloc() that is. ``leaves_links`` says that free blocks are linked by their first word, and that malloc() does not
    clear it.
    """

    name: str
    owned: Iterable[tuple[int, int]]
    slots: Slots = field(default_factory=lambda: Slots([]))
    notes: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    dead: list[tuple[int, int]] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    zeroed: list[int] = field(default_factory=list)
    serves_malloc: bool = True
    home: Optional[int] = None
    leaves_links: bool = False
    part_of: Optional[Process] = field(default=None, repr=False, compare=False)

    # -- what it is, before its blocks are read -------------------------------------------------------------------

    @property
    def allocator(self) -> str:
        """Return the name that its blocks are called after."""
        return self.name

    @property
    def arena(self) -> int:
        """Return the number of the arena that stands for all its blocks. Not for allocators with several arenas."""
        return arena_number(self.allocator)

    @property
    def is_used(self) -> bool:
        """Return whether the heap has memory for blocks."""
        return True

    @property
    def is_checked(self) -> bool:
        """Return whether the allocator's own structures were read, so that their damage was seen."""
        return True

    @property
    def has_headers(self) -> bool:
        """Return whether a chunk's header, of two words, lies before each block."""
        return False

    @property
    def equal_sizes(self) -> bool:
        """Return whether all blocks for which as much was asked have one usable size."""
        return False

    @property
    def collected(self) -> bool:
        """Return whether a garbage collector frees the blocks. Then a block that nothing reaches is no leak."""
        return False

    @property
    def runtime(self) -> Optional[str]:
        """Return the runtime of a language whose objects all its blocks are: see `vocabulary`. None: any code's."""
        return None

    @property
    def summary(self) -> str:
        """Return the heap as `doctor` names it."""
        return self.name if self.is_checked else f"{self.name} (its blocks are known from records alone)"

    @property
    def bytes(self) -> int:
        """Return the bytes in its chunks or blocks."""
        return self.slots.usable_bytes

    def walks(self) -> Sequence[Walk]:
        """Return what the engine walks."""
        return [Slabs(self.slots, self.arena)]

    def homes(self) -> list[int]:
        """Return an address in each module that holds the allocator."""
        return [self.home] if self.home is not None else []

    def claims(self) -> list[tuple[int, int, str]]:
        """Return the parts of ``owned`` that `maps` names in another way than "heap", or ("") as if they were not."""
        return []

    def condemned(self) -> Iterable[tuple[int, int]]:
        """Return (address, bytes) of the blocks that the collector has found dead and will free, by address."""
        return ()

    def roots(self, target: Target, unaligned: bool) -> list[tuple[int, int]]:
        """Return the parts of ``owned`` that may hold a pointer which the program uses."""
        del target, unaligned
        return []

    def moment_notes(self) -> list[str]:
        """Return the notes about the moment at which the dump was taken."""
        return []

    def give_way(self, target: Target, others: Ranges) -> None:
        """Give up memory in ``owned`` that another allocator proved its own, where no block of this heap lies.

        ``others`` is the memory of all other heaps. Two allocators may take memory from the same source.
        """
        del target, others

    # -- its part of the heap -------------------------------------------------------------------------------------

    def attached(self, process: Process) -> Heap:
        """Return a copy that belongs to the blocks of a process. Its own are released."""
        found = copy(self)
        found.part_of = process
        return found

    @property
    def process(self) -> Process:
        """Return the blocks that its own belong to."""
        assert self.part_of is not None, "only the heaps of an index are asked about their blocks"
        return self.part_of

    def release(self, building: Building) -> None:
        """Set the blocks in caches free, and make the allocator's own blocks its own.

        This is asked of a new copy. It is done again where caches were found that are gone.
        """
        del building

    def kept(self) -> list[int]:
        """Return the addresses of the blocks that the allocator itself keeps alive."""
        return self.own

    def thread_caches(self) -> Sequence[int]:
        """Return the blocks that are caches of threads, to which thread-local memory points.

        Each comes from the arena that its thread allocates from.
        """
        return ()

    def damage_notes(self) -> list[str]:
        """Return the notes about damage that makes the answers uncertain, once its blocks are released."""
        return []

    def silent(self) -> Ranges:
        """Return memory outside the heap, of the allocator's, whose words keep nothing alive."""
        return Ranges()

    def false_words(self, search: Search) -> Iterator[tuple[int, int]]:
        """Yield the ranges of roots that the allocator wrote and that are no pointers, though they look like some."""
        del search
        return iter(())

    def may_have_lost(self) -> bool:
        """Return whether ``lost`` has to be asked."""
        return False

    def lost(self, marks: Marked) -> Optional[Lost]:
        """Return the caches that nothing leads to any more. They are among the unreachable blocks."""
        del marks
        return None

    # -- arenas ---------------------------------------------------------------------------------------------------

    @property
    def has_arenas(self) -> bool:
        """Return whether it has arenas with structures of their own."""
        return False

    def has_arena(self, number: Optional[int]) -> bool:
        """Return whether the number of an arena is one of this heap's."""
        return number == self.arena

    def arena_of(self, address: int) -> Optional[int]:
        """Return the number of the arena whose structure or memory contains the address, or None."""
        return self.arena if any(start <= address < end for start, end in self.owned) else None

    def memory_of(self, number: int) -> list[tuple[int, int]]:
        """Return the memory that holds the blocks of its arena with that number, by address."""
        del number
        return sorted(self.owned)

    def arena_numbers(self) -> dict[str, int]:
        """Return the numbers of the arenas that a user can name, by name."""
        return {}

    def arena_rows(self) -> Iterable[ArenaRow]:
        """Return the arenas that have structures of their own."""
        return ()

    def arena_keys(self, cores: Sequence[Sequence[Heap]], aligned: bool) -> Iterator[ArenaKey]:
        """Yield the arenas by what is the same in several cores.

        ``cores`` has this allocator's heaps in each of the cores. ``aligned``: their addresses may be compared.
        """
        del cores, aligned
        yield ArenaKey(self.arena, ("allocator", self.name), self.name)

    # -- addresses ------------------------------------------------------------------------------------------------

    def place(self, describer: Describer, address: int) -> Optional[Place]:
        """Return what an address is that is in no block. None: it is not in this heap's memory."""
        if address not in Ranges(self.owned):
            return None
        stack = self.stack_at(address)
        if stack is not None:
            return Place("stack", f"on {stack}", stack)
        text = self.where(address) or f"in memory of {self.name}, in no block"
        return Place("slack", f"{text}{describer.behind(address)}", f"memory of {self.name} in no block")

    def stack_at(self, address: int) -> Optional[str]:
        """Return the stack in use of the heap's runtime that holds the address, in words, or None."""
        del address
        return None

    def stack_frames(self) -> Iterator[StackFrame]:
        """Yield the frames of the stacks that the heap's runtime keeps in ``owned``: they are among its ``roots``."""
        return iter(())

    def tables(self, block: Block, garbage: bool) -> Iterator[Table]:
        """Yield what the heap's runtime says of a block. ``garbage``: its collector will free it."""
        del block, garbage
        return iter(())

    def where(self, address: int) -> Optional[str]:
        """Return what an address in ``owned`` that is in no block is: "in a free span of 8 pages". None: unknown."""
        del address
        return None

    def holding(self, describer: Describer, block: Block) -> str:
        """Return what holds a free block: "in the tcache of thread 123"."""
        del describer
        return self.holder(block.address) or "in its slot"

    def merged(self, block: Block, address: int) -> Optional[bool]:
        """Return whether a free block is made of several that were freed; None where it may be.

        ``address`` lies in the block. An old header before it proves it.
        """
        del block, address
        return False

    def holder(self, address: int) -> Optional[str]:
        """Return what holds the free block that begins there: "in the cache of thread 5". None: unknown."""
        del address
        return None

    def structure(self, describer: Describer, block: Block) -> Optional[str]:
        """Return which of the allocator's own structures the block is: "the tcache of thread 123". None: none."""
        del describer, block
        return None

    @property
    def single(self) -> Optional[str]:
        """Return what a block has that is alone in its memory: "an extent". None: this is not told."""
        return None

    def links_in_free(self, block: Block) -> int:
        """Return how many bytes at the start of a free block hold links of the allocator. Most have one link there."""
        del block
        return self.process.words.size

    # -- figures --------------------------------------------------------------------------------------------------

    def counts(self) -> tuple[int, int]:
        """Return how many arenas and how many caches of threads there are."""
        return 0, 0

    def statistics(self) -> list[tuple[str, int]]:
        """Return what malloc_stats says besides the sums over the blocks, as (what, how many or how many bytes)."""
        return []

    def report(self, every_class: bool) -> Statistics:
        """Return the figures that the allocator's own report has. ``every_class``: size classes for each arena."""
        del every_class
        if not self.is_checked:
            return Statistics()
        from dmods.allocators import figures

        return figures.statistics(
            self.name, self._sizes(), sum(end - start for start, end in self.owned), self.statistics()
        )

    def own_report(self) -> list[str]:
        """Return the lines that the allocator's own function of that purpose writes. []: there is no such function."""
        return []

    def free_memory(self) -> Sequence[tuple[int, int]]:
        """Return the memory in no block from which it will make blocks, by address: the tops of arenas, free pages."""
        return ()

    @property
    def free_touched(self) -> int:
        """Return the bytes of ``free_memory`` that were touched: what the system cannot give to others."""
        parts = list(self.free_memory())
        return sum(end - start for start, end in parts) - untouched(self.process.target).within(parts)

    @property
    def free_place(self) -> str:
        """Return what ``free_memory`` is, in words."""
        return "free pages"

    def _sizes(self) -> list[tuple[int, int, int, int]]:
        return self.process.engine.sizes(self.arena)

    @property
    def _keeps_free(self) -> bool:
        """Return whether free blocks are memory that malloc() keeps back from the program and the system."""
        return self.serves_malloc and not self.collected

    def usage(self) -> Optional[str]:
        """Return in words how much of its memory is in use. None: this is not told."""
        from dmods.allocators import figures

        return figures.usage(self.name, self._sizes(), self.free_touched) if self._keeps_free else None

    def waste(self) -> Iterator[Finding]:
        """Yield what the allocator holds and the program does not use, if it is much."""
        from dmods.allocators import figures

        if self._keeps_free:
            yield from figures.waste(self.name, self._sizes(), self.free_touched)

    def advice(self) -> str:
        """Return how the memory that it keeps can be given back, if this says more than the allocator's ``advice``."""
        return ""

    # -- damage ---------------------------------------------------------------------------------------------------

    @property
    def is_locked(self) -> bool:
        """Return whether a thread was inside the allocator."""
        return False

    def damages(self) -> Sequence[Damage]:
        """Return the damaged chunks, with who may have done it."""
        return ()

    def check(self) -> Checked:
        """Return what contradicts itself in the allocator's own records."""
        if not self.is_checked:
            return Checked()
        # What the dump lacks is not damaged.
        seen = [problem for problem in self.problems if not self.process.is_missing(problem.address)]
        found = [contradiction(self.arena, self.name, problem.address, problem.text) for problem in seen]
        return Checked([Part(self.name, chunks=len(self.slots), contradictions=len(found))], structures=found)


class Found(NamedTuple):
    """The heaps that were found, and those that were refused.

    ``refusals`` say which check failed where an allocator is there and its layout could not be proven. Its memory then
    counts as ordinary memory.
    """

    heaps: Sequence[Heap] = ()
    refusals: Sequence[str] = ()


@dataclass(frozen=True)
class Allocator:
    """An allocator. ``find(target, taken)`` returns its heaps in a process.

    ``taken`` is memory that holds none of them: that of heaps that were found before, and of recorders.

    Allocators with a lower ``turn`` look first. Heaps stand in the order of ``place``. ``advice`` says how the memory
    that it keeps can be given back, in a sentence. ``release`` names the call or the setting that gives it back.
    ``recording`` returns the records that the allocator itself keeps of who allocated its blocks. ``declared`` returns
    what its heaps' tables and totals look like; without it, the figures are those of `figures`.
    """

    name: str
    find: Callable[[Target, Ranges], Found]
    turn: int = 100
    place: int = 100
    advice: str = ""
    release: str = ""
    recording: Optional[Callable[[Target], Optional[Recording]]] = None
    declared: Callable[[], Declared] = Declared
