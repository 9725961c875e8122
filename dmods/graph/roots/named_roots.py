"""The roots of a process by name: a variable, a frame of a thread, thread-local memory, a register, a mapping.

``findleaks`` takes memory as roots. Here each piece of that memory has a name and a rank. Data counts before stacks: a
stack has words that no function reads again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import Optional

from dmods._engine import demangle, find_pointers
from dmods.base.cached import cached
from dmods.base.ranges import Ranges
from dmods.base.regex import regex
from dmods.errors import FaultError
from dmods.graph.roots.python_variables import PythonRoots
from dmods.graph.roots.ranked_root import RANK_DATA, RANK_FRAME, RANK_NO_FRAME, RANK_OWN, RANK_REGISTER, Root
from dmods.graph.roots.thread_frames import FrameRoots
from dmods.graph.roots.unnamed_variables import Joiner
from dmods.graph.types.typegraph import opened
from dmods.heap.block import OWN
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.process.mappings import mapping_at
from dmods.process.stack_bounds import pthread_reach
from dmods.process.stdio import own_blocks
from dmods.process.threads import ThreadStack, stacks_of
from dmods.process.tls import dtv_blocks
from dmods.process.vectors import values as vector_values
from dmods.target import Module, Symbol, Target

LEAKED = (1 << 32) - 1  # the engine's number for the root of the leaked blocks
UNALIGNED = LEAKED - 1  # ... and for words that are not aligned, where findleaks was asked to take those
_LONG = 8
_MOST_TLS = 1 << 20  # bytes of static TLS beside a thread pointer, at most
_MOST_WORDS = 1 << 20  # words of data that are named
_MOST_LOOKUPS = 1 << 18  # symbols that are looked up
_MOST_WANTED = 1 << 12  # ranges of the heap that are told apart while words are searched


_MARKS = frozenset(("data_start", "__data_start", "__bss_start", "_edata", "edata", "_end", "end", "__dso_handle"))
_HIDDEN, _ANONYMOUS = "_GLOBAL__N_1", "(anonymous namespace)"  # as gcc and clang call it, and as c++filt writes it
_MEMBER = regex(r"[.\[]")  # what begins the part of a variable

_OTHER = Root("other memory", "mapping")
_ALLOCATOR = Root("the allocator itself", "allocator")
_UNALIGNED = Root("words that are not aligned", "mapping")
_LEAKED = Root("leaked blocks", "leaked")
_CODE = Root("code that the program made", "mapping")
GARBAGE = Root("garbage that is not yet collected", "mapping")
CYCLES = Root("garbage that Python's collector has not freed", "mapping")


def _qualified(place: str, root: Root) -> str:
    """Return a part of a variable with the namespaces and classes of the variable, which its symbol has."""
    if root.kind != "variable":
        return place
    symbol = root.name.partition("`")[2]
    own = symbol.rpartition("::")[2]
    rest = place[len(own) :]
    return symbol + rest if own != symbol and place.startswith(own) and (not rest or rest[0] in ".[") else place


def _is_mark(symbol: Symbol) -> bool:
    """Return whether a symbol is a place that the linker names, and no variable (the default script of GNU ld).

    A program that exports its symbols, as each does that loads plugins, exports these as well.
    """
    return not symbol.size and symbol.name in _MARKS


class NamedRoots:
    """The roots of a heap whose leaks have been found.

    ``ranges``, ``areas``, ``values``, ``homes``, ``leaves``, ``parts``, ``selves`` and ``names`` are what the engine
    takes: see ``_engine.Heap.find_owners``.
    """

    def __init__(self, heap: ProcessHeap) -> None:
        self.heap = heap
        self.target = heap.target
        self.ranges, values = heap.marks.ranges, heap.marks.values
        self.notes: list[str] = []
        self._roots: list[Root] = [_OTHER]
        self._numbers: dict[Hashable, int] = {_OTHER: 0}
        self._taken = Ranges()
        self._frames = FrameRoots(heap)
        self.threads = self._frames.threads
        self._python = PythonRoots(heap)
        self.names = self._python.names
        self._arenas: dict[int, int] = {}  # of threads, by tid
        areas: list[tuple[int, int, int, int]] = []
        for start, end, root, rank in self._all_areas():
            areas.extend((s, e, self._number(root), rank) for s, e in self._taken.without([(start, end)]))
            self._taken.add(start, end)
        self.areas = sorted(areas)
        self._starts = [area[0] for area in self.areas]
        self.values = list(self._values(values))
        self.parts = [(part.start, part.end, self._number(part.root), part.rank) for part in self._python.parts]
        self.selves = [(address, self._number(root), 0) for address, root in self._python.selves]
        self.homes = [
            (number, self._arenas.get(root.tid), root.variable is not None)
            for number, root in enumerate(self._roots)
            if root.tid is not None and root.kind in ("frame", "stack", "register")
        ]
        self.leaves = own_blocks(self.target)

    def root(self, number: int) -> Root:
        """Return the root with the engine's number."""
        if number in (LEAKED, UNALIGNED):
            return _LEAKED if number == LEAKED else _UNALIGNED
        return self._roots[number]

    def number_of(self, root: Root) -> Optional[int]:
        """Return the engine's number for a root."""
        return self._numbers.get(root)

    def at(self, address: int) -> Optional[int]:
        """Return the number of the root whose memory holds the address, or None."""
        index = bisect_right(self._starts, address) - 1
        if index >= 0 and address < self.areas[index][1]:
            return self.areas[index][2]
        return 0 if address in self._range_set else None

    def variable_at(self, address: int) -> Optional[int]:
        """Return the number of the root whose word in a block lies at the address: a variable of CPython. Or None."""
        index = bisect_right(self.parts, (address, 1 << 64, 0, 0)) - 1
        if index >= 0 and self.root(self.parts[index][2]).address == address:
            return self.parts[index][2]
        return None

    def neighbours(self) -> Iterator[tuple[int, int, int]]:
        """Yield (root, root, address) for roots without a name that lie side by side: the second begins there."""
        before: Optional[tuple[int, int]] = None  # where a root without a name ends, and its number
        for start, end, number, _rank in self.areas:
            root = self._roots[number]
            if root.kind != "data" or root.address != start or not root.name.startswith(f"{root.module}`"):
                before = None
                continue
            if before is not None and before[0] == start:
                yield before[1], number, start
            before = end, number

    def join(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Give the memory of the second root of each pair to the first."""
        first_of: dict[int, int] = {}
        for first, second in sorted(pairs):
            first_of[second] = first_of.get(first, first)
        self.areas = [(start, end, first_of.get(number, number), rank) for start, end, number, rank in self.areas]

    def all_roots(self) -> Sequence[Root]:
        """Return all roots, in the order of their numbers."""
        return self._roots

    def part(self, number: int, address: int) -> Optional[str]:
        """Return the part of the root's variable at an address, where debug information knows it: "server.db"."""
        if self.root(number).kind not in ("variable", "data", "thread-local", "frame"):
            return None
        information = opened(self.target)
        place = information.place(address) if information is not None else None
        return place if place is None else _qualified(place.replace(_HIDDEN, _ANONYMOUS), self.root(number))

    def place(self, number: int, address: int) -> str:
        """Return the place of a word of a root: "server+0x30"."""
        root, part = self.root(number), self.part(number, address)
        if part is not None and root.kind in ("variable", "data"):
            return f"{root.module}`{part}"
        if part is not None:
            return root.name if part == root.variable else f"{root.name} {part}"
        if root.address is None or root.kind not in ("variable", "data", "mapping") or address == root.address:
            return root.name if root is not _OTHER else f"{root.name} {address:#x}"
        return f"{root.name}+{address - root.address:#x}"

    @cached_property
    def _range_set(self) -> Ranges:
        return Ranges(self.ranges)

    def _number(self, root: Root) -> int:
        number = self._numbers.get(root)
        if number is None:
            number = self._numbers[root] = len(self._roots)
            self._roots.append(root)
        return number

    # -- memory ---------------------------------------------------------------------------------------------------

    def _all_areas(self) -> Iterator[tuple[int, int, Root, int]]:
        """Yield (start, end, root, rank). Where two overlap, the first is meant."""
        for report in self.heap.index.reports:
            for start, end in report["gaps"]:
                yield (
                    start,
                    end,
                    Root(f"memory from sbrk at {start:#x}", "mapping", start, alike="memory from sbrk"),
                    RANK_DATA,
                )
            for start, end in report["lost"]:
                yield start, end, Root(f"damaged heap at {start:#x}", "mapping", start, alike="damaged heap"), RANK_DATA
        stacks = stacks_of(self.target, list(self.heap.owned))
        yield from self._thread_locals(stacks)
        yield from self._frames.areas()
        yield from self._python.frames
        for each in self.heap.heaps:
            for start, end, name, alike, rank in each.stack_frames():
                kind, place = ("frame", RANK_FRAME + rank) if rank is not None else ("stack", RANK_NO_FRAME)
                yield start, end, Root(name, kind, start, alike=alike), place
        for stack in stacks:
            name = self.threads.name(stack.tid) if stack.tid is not None else "a thread that has exited"
            alike = f"a stack of {self.threads.anywhere(stack.tid)}"
            root = Root(f"the stack of {name}", "stack", stack.start, tid=stack.tid, alike=alike)
            yield stack.start, stack.end, root, RANK_NO_FRAME
        yield from self._data()
        yield from self._mappings()

    def _thread_locals(self, stacks: Iterable[ThreadStack]) -> Iterator[tuple[int, int, Root, int]]:
        """Yield the static TLS and the struct pthread of each thread: they lie around the thread pointer."""
        behind = not self.target.arch.tcb_is_pthread
        for stack in stacks:
            mapping = mapping_at(self.target, stack.tcb) if stack.tcb is not None else None
            if stack.tcb is None or mapping is None:
                continue
            blocks = dtv_blocks(self.heap.words, self.target.arch, stack.tcb)
            near = [at for at in blocks if stack.tcb - _MOST_TLS < at < stack.tcb + _MOST_TLS]
            reach = pthread_reach(self.target, stack.tcb)
            low = stack.tcb - reach if behind else min((at for at in near if at < stack.tcb), default=stack.tcb)
            high = stack.end if stack.tcb < stack.end else mapping.end
            if not behind:
                high = min(high, stack.tcb + reach)
            name = self.threads.name(stack.tid) if stack.tid is not None else "a thread that has exited"
            alike = f"thread-local memory of {self.threads.anywhere(stack.tid)}"
            root = Root(f"thread-local memory of {name}", "thread-local", stack.tcb, tid=stack.tid, alike=alike)
            low, high = max(low, mapping.start), min(high, mapping.end)
            self._find_arena(stack, low, high)
            yield from self._thread_variables(root, low, high, (name, self.threads.anywhere(stack.tid)))
            yield low, high, root, RANK_DATA

    def _thread_variables(
        self, around: Root, low: int, high: int, thread: tuple[str, str]
    ) -> Iterator[tuple[int, int, Root, int]]:
        """Yield the words of a thread's own variables that point into the heap, where debug information has them."""
        information = opened(self.target)
        for at in self.heap_words([(low, high)]) if information is not None else ():
            place = information.place(at) if information is not None else None
            if place is not None:
                variable = _MEMBER.split(place, maxsplit=1)[0]
                name, alike = (f"thread-local {variable} of {each}" for each in thread)
                root = Root(name, "thread-local", around.address, None, around.tid, alike, variable)
                yield at, at + self.heap.words.size, root, RANK_DATA

    def _find_arena(self, stack: ThreadStack, low: int, high: int) -> None:
        """Note which arena the thread allocates from: that of its cache, to which its thread-local memory points."""
        known = {value for one in self.heap.heaps for value in one.thread_caches()}
        if stack.tid is None or not known:
            return
        word = self.heap.words.size
        try:
            data = self.target.read(low, min(high - low, _MOST_TLS) // word * word)
        except FaultError:
            return
        for value in known.intersection(memoryview(data).cast("Q" if word == _LONG else "I")):
            block = self.heap.block_at(value)
            if block is not None and block.arena is not None:
                self._arenas[stack.tid] = block.arena

    def _data(self) -> Iterator[tuple[int, int, Root, int]]:
        """Yield the variables of modules that hold a pointer into the heap."""
        word = self.heap.words.size
        symbols, joiner = 0, Joiner(self.heap)
        for module in self.target.modules():
            pieces = [part for piece in module.ranges for part in self._range_set.within(piece.start, piece.end)]
            end = 0  # of the last variable
            run: list[int] = []
            for address in self.heap_words(pieces):
                if address < end:
                    continue
                symbol = self.target.symbol_at(address) if symbols < _MOST_LOOKUPS else None
                symbols += 1
                if symbol is None or not symbol.address <= address or _is_mark(symbol):
                    run.append(address)
                    continue
                yield from (self._unnamed(module, part) for part in joiner.groups(run))
                run = []
                end = symbol.address + max(symbol.size, address + word - symbol.address)
                name = demangle(symbol.name).replace(_HIDDEN, _ANONYMOUS)
                root = Root(f"{module.name}`{name}", "variable", symbol.address, module.name)
                yield symbol.address, end, root, RANK_DATA
            yield from (self._unnamed(module, part) for part in joiner.groups(run))
        if symbols > _MOST_LOOKUPS:
            self.notes.append(f"{symbols - _MOST_LOOKUPS} words of data are not named: there are too many")
        for module in self.target.modules():
            for piece in module.ranges:
                root = Root(f"data of {module.name}", "data", piece.start, module.name)
                yield piece.start, piece.end, root, RANK_DATA

    def _unnamed(self, module: Module, run: list[int]) -> tuple[int, int, Root, int]:
        root = Root(f"{module.name}`{run[0] - module.bias:#x}", "data", run[0], module.name)
        return run[0], run[-1] + self.heap.words.size, root, RANK_DATA

    @cached_property
    def _wanted(self) -> list[tuple[int, int]]:
        """Return where blocks lie. A heap of very many pieces is taken as one: more words are looked up then."""
        pieces = list(self.heap.owned)
        return pieces if len(pieces) <= _MOST_WANTED else [(pieces[0][0], pieces[-1][1])]

    def heap_words(self, ranges: list[tuple[int, int]]) -> list[int]:
        """Return the addresses of the words in the ranges that point into the heap, sorted."""
        if not ranges or not self._wanted:
            return []
        image, word = self.target.image(), self.heap.words.size
        return sorted(at for found in find_pointers(image, ranges, word, self._wanted, _MOST_WORDS) for at in found)

    def _mappings(self) -> Iterator[tuple[int, int, Root, int]]:
        """Yield what else the process has mapped. Neighbours with the same file are one."""
        found = (m for m in self.heap.index.mappings if self._range_set.within(m.start, m.end))
        for path, group in groupby(found, key=lambda mapping: mapping.path):
            for mapping in group:
                name = f"{path} at {mapping.start:#x}" if path else f"anonymous memory at {mapping.start:#x}"
                root = Root(name, "mapping", mapping.start, alike=path or "anonymous memory")
                yield mapping.start, mapping.end, root, RANK_DATA

    # -- single values --------------------------------------------------------------------------------------------

    def _values(self, marked: Iterable[int]) -> Iterator[tuple[int, int, int]]:
        """Yield (value, root, rank) for the values that marking took: registers, and tcaches of the allocator."""
        kept = {value for one in self.heap.heaps for value in one.kept()}
        own = {value for value in kept if (row := self.heap.index.engine.find(value)) is not None and row.state == OWN}
        yield from ((value, self._number(_ALLOCATOR), RANK_OWN) for value in sorted(own))
        left = set(marked) - own
        named: set[int] = set()
        for thread in self.target.threads():
            name, words = self.threads.name(thread.tid), thread.registers
            alike = f"registers of {self.threads.anywhere(thread.tid)}"
            held: list[tuple[int, Root, int]] = []
            for register, value in words.items():
                if value in left:
                    own_root = Root(f"register {register} of {name}", "register", tid=thread.tid, alike=alike)
                    known = self._frames.registers.get((thread.tid, register))
                    held.append((value, *(known or (own_root, RANK_REGISTER))))
            others = Root(f"vector registers of {name}", "register", tid=thread.tid, alike=alike)
            vectors = vector_values(thread.vectors or {}, self.heap.words.size) & left
            held += [(value, others, RANK_REGISTER) for value in vectors - set(words.values())]
            for value, root, rank in held:
                named.add(value)
                # Without a block it points to a header, or past a block's end: the engine decides.
                yield value, self._number(root) if self.heap.index.engine.find(value) is not None else 0, rank
        left -= named
        code = left & {value for _at, value in self.heap.marks.code_words}
        yield from ((value, self._number(_CODE), RANK_DATA) for value in sorted(code))
        left -= code
        garbage = {value for value in left if any(value in one for one in self.heap.marks.garbage)}
        yield from ((value, self._number(GARBAGE), RANK_REGISTER) for value in sorted(garbage))
        left -= garbage
        cycles = left.intersection(self.heap.marks.unfreed)
        yield from ((value, self._number(CYCLES), RANK_REGISTER) for value in sorted(cycles))
        yield from ((value, 0, RANK_REGISTER) for value in sorted(left - cycles))


@cached
def named_roots(target: Target) -> NamedRoots:
    """Return the roots by name, computed once for each state of the target. The leaks are found first."""
    heap = find_heap(target)
    return NamedRoots(heap)
