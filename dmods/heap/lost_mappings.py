"""Mappings that nothing points to any more: the program mapped them, and has lost their addresses.

The search is that of ``findleaks``: from registers, stacks, the data of modules and blocks in use, through mappings to
others. A pointer to any byte holds a mapping, at any alignment, and so does one to the first byte behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from dmods.allocators.unwalked import pointed_runtimes
from dmods.base.cached import cached
from dmods.base.dataclass import dataclass
from dmods.base.named_tuple import NamedTuple
from dmods.base.ranges import Ranges
from dmods.base.sizes import human_size
from dmods.heap.block import LIVE, OWN
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.heap.live_words import LiveWords
from dmods.heap.loose_mappings import Loose, loose_mappings
from dmods.heap.mapping_kinds import classify_mappings
from dmods.heap.roots.hidden_pointers import jump_buffer_values
from dmods.heap.signal_stacks import signal_stack_sizes
from dmods.heap.verdict import leak_verdict
from dmods.modules.find import writable_segments
from dmods.process.addresses import module_at
from dmods.process.mappings import mapping_at
from dmods.process.stack_bounds import pthread_reach
from dmods.report import Verdict
from dmods.target import Target

NOT_DUMPED = "not in the dump: never touched, or left out of it"
AT_END = "a pointer leads to its end, where another mapping begins"
SIGNAL_STACK = "it may be an alternate signal stack, to which only the kernel points"
OF_SYSTEM = "it is of a file of the system or of a device, which a library may have mapped for good"
MANY = "it has too many pointers to look at"

_SYSTEM = ("/usr/", "/lib", "/bin/", "/etc/", "/opt/", "/dev/", "/sys/", "/proc/", "/run/", "/var/cache/", "/snap/")
_PAGE = 4096
_FEW, _MOST = 64, 1 << 16  # pointers to a mapping that are looked at
_ROUNDS = 64
_MOST_UNALIGNED = 1 << 30  # bytes of memory that are searched for pointers at any byte


class Doubtful(NamedTuple):
    """A mapping without a known pointer of which nobody knows whether it is lost, and why."""

    mapping: Loose
    why: str


@dataclass(frozen=True)
class LostMappings:
    """The mappings that nothing points to, by address.

    ``verdict`` says whether the dump allows an answer. Its reason, where an answer is possible, is why a mapping may be
    held nevertheless.
    """

    lost: Sequence[Loose]
    doubtful: Sequence[Doubtful]
    verdict: Verdict

    @property
    def bytes(self) -> int:
        """Return the bytes of the lost mappings that can be written."""
        return sum(each.size for each in self.lost)


@cached
def find_lost_mappings(target: Target) -> LostMappings:
    """Return the mappings that nothing points to. The memory of the process is read at most twice."""
    heap = find_heap(target)
    why = _no_verdict(heap)
    if why:
        return LostMappings([], [], Verdict(False, why))
    search = _Search(heap, loose_mappings(target))
    search.run()
    lost, doubtful = [], []
    for number in search.open:
        mapping, reason = search.units[number], search.doubt(number)
        if reason:
            doubtful.append(Doubtful(mapping, reason))
        else:
            lost.append(mapping)
    kept, stacks = _signal_stacks(target, lost)
    doubtful = sorted([*doubtful, *stacks])
    unknown = _unread(target, [*kept, *(each.mapping for each in doubtful)])
    reasons = [text for text in pointed_runtimes(target).values() if text]
    if unknown:
        reasons.append(f"{human_size(unknown)} of other memory is not in the dump, and may hold pointers to them")
    return LostMappings(kept, doubtful, Verdict(True, "; ".join(reasons) if kept else ""))


def hidden_heaps(heap: ProcessHeap) -> list[str]:
    """Return a note for each heap that is not walked and whose mappings may look lost.

    Ruby's and PHP's do not: plain pointers lead to them, and every word of them counts as a pointer.
    """
    pointed = pointed_runtimes(heap.target)
    return [note for note in heap.index.unwalked() if note not in pointed]


def _no_verdict(heap: ProcessHeap) -> str:
    """Return why the dump does not tell which mappings are lost, or ""."""
    target = heap.target
    lacking = sum(end - start for start, end in target.missing)
    if lacking:
        return f"the dump is truncated and lacks {lacking} bytes ({human_size(lacking)}), which may hold pointers"
    if not target.names_files:
        return "the dump does not say which files were mapped, so mappings of files look like anonymous memory"
    others = hidden_heaps(heap)
    if others:
        return f"mappings may belong to a heap that dmods does not walk: {others[0]}"
    if heap.found:
        verdict = leak_verdict(heap)
        return "" if verdict.possible and not verdict.reason else verdict.reason
    stacks = [heap.words.many(thread.registers.get(target.arch.sp, 0), 1) for thread in target.threads()]
    return "" if any(stacks) else "no stack is in the dump, and stacks hold pointers to mappings"


def _signal_stacks(target: Target, lost: Sequence[Loose]) -> tuple[list[Loose], list[Doubtful]]:
    """Return the mappings without those that may be alternate signal stacks, and those. Each thread may have one."""
    sizes = signal_stack_sizes(target)
    alike = {each for each in lost if each.size in sizes and each.path is None}
    if len(alike) > len(target.threads()):
        alike = set()
    return [each for each in lost if each not in alike], [Doubtful(each, SIGNAL_STACK) for each in sorted(alike)]


def _unread(target: Target, aside: Iterable[Loose]) -> int:
    """Return how many bytes of memory that can hold pointers are not in the dump. ``aside`` is not counted.

    Nor are the zeros with which the data of a module begins (.bss): the kernel leaves out what nobody has touched, and
    programs do not exclude them (MADV_DONTDUMP).
    """
    data = ((start, -(-end // _PAGE) * _PAGE) for start, end in writable_segments(target))
    known = Ranges(sorted([*((each.start, each.end) for each in aside), *data]))
    unread = 0
    for mapping, kind in classify_mappings(target):
        if kind in ("anon", "shared") and "w" in mapping.flags:
            for start, end in known.without([(mapping.start, mapping.end)]):
                unread += end - start - sum(high - low for low, high in target.image().covered(start, end))
    return unread


class _Search:
    """The search for pointers to the mappings ``units``. ``open`` are the numbers of those without one so far."""

    def __init__(self, heap: ProcessHeap, units: Sequence[Loose]) -> None:
        self.heap, self.target, self.units = heap, heap.target, units
        self.open = list(range(len(units)))
        self._starts = [each.start for each in units]
        self._words = LiveWords(heap, Ranges((each.start, each.end) for each in units))
        self._searched: set[int] = set()  # units whose own memory was searched
        self._odd: set[int] = set()  # ... for unaligned words
        self._full: set[int] = set()  # units with more pointers than were looked at

    def run(self) -> None:
        """Find what is held: first by the roots, then by blocks in use, then through other mappings."""
        for step in (self._by_values, self._by_roots, self._by_blocks, self._by_jump_buffers):
            if self.open:
                self._hold(step())
                self._spread()
        memory = self._words.memory
        if sum(end - start for start, end in memory) > _MOST_UNALIGNED:
            memory = self._words.roots
        for _round in range(_ROUNDS):
            number = len(self.open)
            self._hold(self._by_odd_words(memory))
            self._spread()
            if not self.open or len(self.open) == number:
                return
            memory = []

    def doubt(self, number: int) -> str:
        """Return why an open mapping may be held nevertheless, or ""."""
        unit = self.units[number]
        if unit.path is None and unit.dumped < unit.size:
            return NOT_DUMPED
        if number in self._full:
            return MANY
        if unit.path is not None:  # the end of a file is seldom that of its last page: the pointer is the neighbour's
            return OF_SYSTEM if unit.path.startswith(_SYSTEM) else ""
        return AT_END if unit.end in self._held_ends else ""

    # -- where pointers are -------------------------------------------------------------------------------------------

    def _by_values(self) -> set[int]:
        values = self._words.values | {*self.heap.index.thread_pointers}
        return {number for value in values for number in self._of(value)}

    def _by_roots(self) -> set[int]:
        return {number for number, places in self._pointers(self._words.roots, 1) if places}

    def _by_blocks(self) -> set[int]:
        """Return the mappings to which blocks in use point. What leaked blocks point to is lost with them."""
        found = set()
        for most in (_FEW, _MOST):
            self._full = set()
            for number, places in self._pointers(self._words.blocks, most):
                if any(at in self._words for at in places):
                    found.add(number)
                elif len(places) == most:
                    self._full.add(number)
            if not self._full:
                break
        return found

    def _by_odd_words(self, memory: Sequence[tuple[int, int]]) -> set[int]:
        """Return those to which unaligned words lead: in code that the program made, and in packed structures.

        Mappings in use that were not searched for such words are searched, too.
        """
        open_ = set(self.open)
        held = [number for number in range(len(self.units)) if number not in open_ | self._odd]
        self._odd.update(held)
        own = Ranges(self._memory_of(held))
        found = self._words.odd_pointers(list(Ranges(sorted([*memory, *own]))), self._wanted())
        values = (value for at, value in found if at in own or at in self._words)
        return {number for value in values for number in self._of(value)}

    def _by_jump_buffers(self) -> set[int]:
        """Return those in which a suspended coroutine has its stack: glibc encrypts the address."""
        own = Ranges((self.units[number].start, self.units[number].end) for number in self.open)
        values = jump_buffer_values(self.target, self._words.memory, own, lambda _at: True)
        return {number for value in values for number in self._of(value)}

    def _pointers(self, ranges: Sequence[tuple[int, int]], most: int) -> Iterator[tuple[int, list[int]]]:
        """Yield each open mapping with the addresses of up to ``most`` words that point to it."""
        yield from zip(self.open, self._words.pointers(ranges, self._wanted(), most))

    def _wanted(self) -> list[tuple[int, int]]:
        """Return the addresses that mean an open mapping: its bytes, and the one behind it if nothing begins there."""
        return [(unit.start, unit.end + (not self._is_neighbour(n))) for n in self.open for unit in [self.units[n]]]

    def _is_neighbour(self, number: int) -> bool:
        return mapping_at(self.target, self.units[number].end) is not None

    def _of(self, value: int) -> Iterator[int]:
        """Yield the mapping that a value points to."""
        number = bisect_right(self._starts, value) - 1
        if number >= 0:
            unit = self.units[number]
            if value < unit.end or (value == unit.end and not self._is_neighbour(number)):
                yield number

    # -- from mapping to mapping --------------------------------------------------------------------------------------

    def _hold(self, numbers: Iterable[int]) -> None:
        held = set(numbers)
        self.open = [number for number in self.open if number not in held]

    def _spread(self) -> None:
        """Hold what mappings in use point to, and what those point to.

        Two passes find all links between mappings, where none has very many pointers. Rounds find the rest.
        """
        fresh = [number for number in range(len(self.units)) if number not in self._searched]
        if len(fresh) == len(self.open):
            return
        links: dict[int, set[int]] = defaultdict(set)
        for number, places in self._pointers(self._memory_of(fresh), _FEW):
            for at in places:
                links[bisect_right(self._starts, at) - 1].add(number)
        self._follow(links)
        for _round in range(_ROUNDS):
            todo = sorted(set(fresh) - set(self.open) - self._searched)
            if not todo or not self.open:
                return
            self._searched.update(todo)
            self._hold({number for number, places in self._pointers(self._memory_of(todo), 1) if places})
        self._full.update(self.open)  # a chain that is made to be slow

    def _follow(self, links: dict[int, set[int]]) -> None:
        open_ = set(self.open)
        todo = [number for number in links if number not in open_]
        while todo:
            for number in links.get(todo.pop(), set()) & open_:
                open_.discard(number)
                todo.append(number)
        self.open = sorted(open_)

    def _memory_of(self, numbers: Iterable[int]) -> list[tuple[int, int]]:
        return [
            part
            for number in numbers
            for part in self.target.image().covered(self.units[number].start, self.units[number].end)
        ]

    # -- pointers to the end ------------------------------------------------------------------------------------------

    @cached_property
    def _held_ends(self) -> set[int]:
        """Return the ends of open mappings to which pointers lead that may mean these, not the mappings that follow."""
        held = sorted(set(range(len(self.units))) - set(self.open))
        ends = sorted(self.units[number].end for number in self.open if self._is_neighbour(number))
        if not ends:
            return set()
        ranges = list(Ranges(sorted([*self._words.memory, *self._memory_of(held)])))
        found = self._words.pointers(ranges, [(end, end + 1) for end in ends], _FEW)
        return {end for end, places in zip(ends, found) if any(self._may_be_end(at, end) for at in places)}

    def _may_be_end(self, at: int, end: int) -> bool:
        block = self.heap.block_at(at)
        if block is not None and block.state not in (LIVE, OWN):
            return False
        return not self._is_of_loader(at, end) and not any(low <= at < high for low, high in self._descriptors)

    def _is_of_loader(self, at: int, start: int) -> bool:
        """Return whether the word says where a module begins: its end or its dynamic section follows.

        So it is in struct link_map (l_addr and l_ld, l_map_start and l_map_end), and in the tables of libgcc and
        _dl_find_object (elf/link.h, elf/dl-find_object.h).
        """
        module = module_at(self.target, start)
        if module is None or module.start != start:
            return False
        following = self.heap.words.many(at + self.heap.words.size, 2) or ()
        return any(start < value <= module.end for value in following)

    @cached_property
    def _descriptors(self) -> list[tuple[int, int]]:
        """Return the memory of each struct pthread, which says where its stack begins."""
        return [
            (pointer - reach, pointer + reach)
            for pointer in self.heap.index.thread_pointers
            for reach in [pthread_reach(self.target, pointer)]
        ]
