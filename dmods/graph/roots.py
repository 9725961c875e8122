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
from dmods.base.dataclass import dataclass
from dmods.base.ranges import Ranges
from dmods.errors import FaultError
from dmods.graph.typegraph import opened
from dmods.graph.unnamed import Joiner
from dmods.heap.block import OWN
from dmods.heap.process_heap import ProcessHeap, find_heap
from dmods.process.addresses import module_at
from dmods.process.mappings import mapping_at
from dmods.process.stdio import buffers
from dmods.process.threads import LiveStackFinder, ThreadStack, pthread_reach, stacks_of
from dmods.process.tls import dtv_blocks
from dmods.process.unwind import Frame
from dmods.process.vectors import values as vector_values
from dmods.target import Module, Target, Thread

LEAKED = (1 << 32) - 1  # the engine's number for the root of the leaked blocks
UNALIGNED = LEAKED - 1  # ... and for words that are not aligned, where findleaks was asked to take those
# The ranks that the engine knows. Stacks follow: outermost frames first, because inner frames borrow from outer ones.
_OWN, _DATA, _FRAMES = 0, 1, 2
_NO_FRAME = 1 << 20  # a stack whose frames are not known
_REGISTER = 1 << 21
_LONG = 8
_MOST_TLS = 1 << 20  # bytes of static TLS beside a thread pointer, at most
_MOST_WORDS = 1 << 20  # words of data that are named
_MOST_LOOKUPS = 1 << 18  # symbols that are looked up
_MOST_WANTED = 1 << 12  # ranges of the heap that are told apart while words are searched
_MOST_LOCAL = 8 << 20  # bytes of a local variable: a stack's usual limit


@dataclass(frozen=True)
class Root:
    """A root with a name.

    ``kind`` is one of these: "variable" (it has a symbol), "data" (a module's, without a symbol), "frame", "stack" (its
    frames are not known), "register", "thread-local", "mapping", "allocator" (malloc's own words), "leaked" (no root:
    the leaked blocks). ``address`` is where it begins; None for registers and the like. ``alike`` is a name that means
    the same in other cores and in other runs: it has no address and no tid. "": the name itself does.
    """

    name: str
    kind: str
    address: Optional[int] = None
    module: Optional[str] = None
    tid: Optional[int] = None
    alike: str = ""
    variable: Optional[str] = None  # the local variable of a frame, where debug information knows it
    frame: Optional[int] = None  # its number in the thread's stack; 0 is the innermost

    @property
    def key(self) -> str:
        """Return the name without addresses."""
        return self.alike or self.name


_OTHER = Root("other memory", "mapping")
_ALLOCATOR = Root("the allocator itself", "allocator")
_UNALIGNED = Root("words that are not aligned", "mapping")
_LEAKED = Root("leaked blocks", "leaked")
_CODE = Root("code that the program made", "mapping")
_GARBAGE = Root("garbage that is not yet collected", "mapping")


class NamedRoots:
    """The roots of a heap whose leaks have been found.

    ``ranges``, ``areas``, ``values``, ``homes`` and ``leaves`` are what the engine takes: see
    ``_engine.Heap.find_owners``.
    """

    def __init__(self, heap: ProcessHeap) -> None:
        self.heap = heap
        self.target = heap.target
        self.ranges, values = heap.mark_sources
        self.notes: list[str] = []
        self._roots: list[Root] = [_OTHER]
        self._numbers: dict[Hashable, int] = {_OTHER: 0}
        self._taken = Ranges()
        self._arenas: dict[int, int] = {}  # of threads, by tid
        areas: list[tuple[int, int, int, int]] = []
        for start, end, root, rank in self._all_areas():
            areas.extend((s, e, self._number(root), rank) for s, e in self._taken.without([(start, end)]))
            self._taken.add(start, end)
        self.areas = sorted(areas)
        self._starts = [area[0] for area in self.areas]
        self.values = list(self._values(values))
        self.homes = [
            (number, self._arenas.get(root.tid), root.variable is not None)
            for number, root in enumerate(self._roots)
            if root.tid is not None and root.kind in ("frame", "stack", "register")
        ]
        self.leaves = buffers(self.target)

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

    def all_roots(self) -> Sequence[Root]:
        """Return all roots, in the order of their numbers."""
        return self._roots

    def part(self, number: int, address: int) -> Optional[str]:
        """Return the part of the root's variable at an address, where debug information knows it: "server.db"."""
        if self.root(number).kind not in ("variable", "data", "thread-local", "frame"):
            return None
        information = opened(self.target)
        return information.place(address) if information is not None else None

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
        for report in self.heap.reports:
            for start, end in report["gaps"]:
                yield (
                    start,
                    end,
                    Root(f"memory from sbrk at {start:#x}", "mapping", start, alike="memory from sbrk"),
                    _DATA,
                )
            for start, end in report["lost"]:
                yield start, end, Root(f"damaged heap at {start:#x}", "mapping", start, alike="damaged heap"), _DATA
        stacks = stacks_of(self.target, list(self.heap.owned))
        yield from self._thread_locals(stacks)
        yield from self._frames()
        for each in self.heap.heaps:
            for start, end, name, alike, rank in each.stack_frames():
                kind, place = ("frame", _FRAMES + rank) if rank is not None else ("stack", _NO_FRAME)
                yield start, end, Root(name, kind, start, alike=alike), place
        for stack in stacks:
            name = self._thread_name(stack.tid) if stack.tid is not None else "a thread that has exited"
            alike = f"a stack of {self._any_thread(stack.tid)}"
            root = Root(f"the stack of {name}", "stack", stack.start, tid=stack.tid, alike=alike)
            yield stack.start, stack.end, root, _NO_FRAME
        yield from self._data()
        yield from self._mappings()

    @cached_property
    def _threads(self) -> dict[int, Thread]:
        return {thread.tid: thread for thread in self.target.threads()}

    def _thread_name(self, tid: Optional[int]) -> str:
        thread = self._threads.get(tid) if tid is not None else None
        return f"thread {tid} ({thread.name})" if thread is not None and thread.name else f"thread {tid}"

    def _any_thread(self, tid: Optional[int]) -> str:
        """Return the name of a thread without its tid. Threads of one name are one."""
        thread = self._threads.get(tid) if tid is not None else None
        if tid is None:
            return "a thread that has exited"
        return f"thread {thread.name}" if thread is not None and thread.name else "a thread"

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
            name = self._thread_name(stack.tid) if stack.tid is not None else "a thread that has exited"
            alike = f"thread-local memory of {self._any_thread(stack.tid)}"
            root = Root(f"thread-local memory of {name}", "thread-local", stack.tcb, tid=stack.tid, alike=alike)
            low, high = max(low, mapping.start), min(high, mapping.end)
            self._find_arena(stack, low, high)
            yield low, high, root, _DATA

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

    def _frames(self) -> Iterator[tuple[int, int, Root, int]]:
        """Yield the frames of each thread, and the parts of its stacks where no frame is known."""
        finder = LiveStackFinder(self.target)
        locals_ = self._locals()
        for thread in self.target.threads():
            if finder.out_of_budget:
                return
            frames, stacks = finder.frames_and_stacks(thread)
            name = self._thread_name(thread.tid)
            for place, variable, start, size in locals_.get(thread.tid, ()):
                if place < len(frames):
                    function, anywhere = self._function(frames[place])
                    text = f"{function} in {name}, frame {place}, local '{variable}'"
                    alike = f"{anywhere} in {self._any_thread(thread.tid)}, local '{variable}'"
                    root = Root(text, "frame", start, None, thread.tid, alike, variable, place)
                    yield start, start + size, root, _FRAMES + len(frames) - 1 - place
            for live in stacks:
                inside = sorted(
                    ((frame.sp, place) for place, frame in enumerate(frames) if live.start <= frame.sp < live.end),
                )
                if not inside:
                    alike = f"a stack of {self._any_thread(thread.tid)}"
                    root = Root(f"the stack of {name}", "stack", live.start, tid=thread.tid, alike=alike)
                    yield live.start, live.end, root, _NO_FRAME
                    continue
                starts = [live.start, *(sp for sp, _place in inside[1:]), live.end]
                for (start, end), (_sp, place) in zip(zip(starts, starts[1:]), inside):
                    function, anywhere = self._function(frames[place])
                    alike = f"{anywhere} in {self._any_thread(thread.tid)}"
                    text = f"{function} in {name}, frame {place}"
                    root = Root(text, "frame", start, tid=thread.tid, alike=alike, frame=place)
                    yield start, end, root, _FRAMES + len(frames) - 1 - place

    def _locals(self) -> dict[int, list[tuple[int, str, int, int]]]:
        """Return the variables of frames that are in memory, by thread: (number of the frame, name, address, size)."""
        information = opened(self.target)
        found: dict[int, list[tuple[int, str, int, int]]] = {}
        if information is not None:
            information.add_frames(self.heap)
            for tid, place, name, address, size in information.locals:
                if 0 < size <= _MOST_LOCAL:
                    found.setdefault(tid, []).append((place, name, address, size))
        return found

    def _function(self, frame: Frame) -> tuple[str, str]:
        """Return the function's name, and a name that means the same in other runs."""
        symbol = self.target.symbol_at(frame.code_address)
        if symbol is not None:
            name = demangle(symbol.name).split("(")[0]
            return name, name
        module = module_at(self.target, frame.code_address)
        offset = f"{module.name}`{frame.code_address - module.bias:#x}" if module is not None else "unknown code"
        return f"{frame.pc:#x}", offset

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
                if symbol is None or not symbol.address <= address:
                    run.append(address)
                    continue
                yield from (self._unnamed(module, part) for part in joiner.groups(run))
                run = []
                end = symbol.address + max(symbol.size, address + word - symbol.address)
                name = demangle(symbol.name)
                yield symbol.address, end, Root(f"{module.name}`{name}", "variable", symbol.address, module.name), _DATA
            yield from (self._unnamed(module, part) for part in joiner.groups(run))
        if symbols > _MOST_LOOKUPS:
            self.notes.append(f"{symbols - _MOST_LOOKUPS} words of data are not named: there are too many")
        for module in self.target.modules():
            for piece in module.ranges:
                yield piece.start, piece.end, Root(f"data of {module.name}", "data", piece.start, module.name), _DATA

    def _unnamed(self, module: Module, run: list[int]) -> tuple[int, int, Root, int]:
        root = Root(f"{module.name}`{run[0] - module.bias:#x}", "data", run[0], module.name)
        return run[0], run[-1] + self.heap.words.size, root, _DATA

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
        found = (m for m in self.heap.mappings if self._range_set.within(m.start, m.end))
        for path, group in groupby(found, key=lambda mapping: mapping.path):
            for mapping in group:
                name = f"{path} at {mapping.start:#x}" if path else f"anonymous memory at {mapping.start:#x}"
                root = Root(name, "mapping", mapping.start, alike=path or "anonymous memory")
                yield mapping.start, mapping.end, root, _DATA

    # -- single values --------------------------------------------------------------------------------------------

    def _values(self, marked: Iterable[int]) -> Iterator[tuple[int, int, int]]:
        """Yield (value, root, rank) for the values that marking took: registers, and tcaches of the allocator."""
        kept = {value for one in self.heap.heaps for value in one.kept()}
        own = {value for value in kept if (row := self.heap.index.find(value)) is not None and row.state == OWN}
        yield from ((value, self._number(_ALLOCATOR), _OWN) for value in sorted(own))
        left = set(marked) - own
        named: set[int] = set()
        for thread in self.target.threads():
            name, words = self._thread_name(thread.tid), thread.registers
            alike = f"registers of {self._any_thread(thread.tid)}"
            held = [(value, f"register {register} of {name}") for register, value in words.items() if value in left]
            vectors = vector_values(thread.vectors or {}, self.heap.words.size) & left
            held += [(value, f"vector registers of {name}") for value in vectors - set(words.values())]
            for value, text in held:
                named.add(value)
                # Without a block it points to a header, or past a block's end: the engine decides.
                known = self.heap.index.find(value) is not None
                yield (
                    value,
                    self._number(Root(text, "register", tid=thread.tid, alike=alike)) if known else 0,
                    _REGISTER,
                )
        left -= named
        code = left & {value for _at, value in self.heap.code_words}
        yield from ((value, self._number(_CODE), _DATA) for value in sorted(code))
        left -= code
        garbage = {value for value in left if any(value in one for one in self.heap.garbage)}
        yield from ((value, self._number(_GARBAGE), _REGISTER) for value in sorted(garbage))
        yield from ((value, 0, _REGISTER) for value in sorted(left - garbage))


@cached
def named_roots(target: Target) -> NamedRoots:
    """Return the roots by name, computed once for each state of the target. The leaks are found first."""
    heap = find_heap(target)
    heap.leaks()
    return NamedRoots(heap)
