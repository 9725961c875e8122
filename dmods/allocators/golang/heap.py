"""The heap of a Go program: its spans as blocks, and its goroutines' stacks as roots."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Optional

from dmods._engine import Slots, find_pointers
from dmods.allocators.golang import NAME
from dmods.allocators.golang.objects import object_table
from dmods.allocators.golang.stacks import stack_frames, stack_name
from dmods.allocators.protocol import Found, Heap
from dmods.allocators.vocabulary import Problem, StackFrame
from dmods.base.dataclass import dataclass, field
from dmods.base.ranges import Ranges
from dmods.base.words import Words
from dmods.modules.golang.moduledata import go_modules
from dmods.report import Table
from dmods.runtimes.golang.goroutines import find_goroutines
from dmods.runtimes.golang.live_stacks import Live, LiveStacks, live_stacks
from dmods.runtimes.golang.mheap import ARENA, PAGE, GoHeap, Span, find_mheap
from dmods.runtimes.golang.sweeping import objects_of, unmarked
from dmods.target import Target

if TYPE_CHECKING:
    from dmods.allocators.block import Block

_MOST_PAIRS = 1 << 16  # words that point to the beginning of one arena
_MOST_ENDS = 1 << 20  # words that point to the end of one stack


@dataclass
class GoBlocks(Heap):
    """The heap of a Go runtime. ``unknown`` is memory of spans that are damaged, or whose bits are not in the dump."""

    target: Optional[Target] = None
    heap: Optional[GoHeap] = None
    stacks: LiveStacks = field(default_factory=lambda: LiveStacks([]))
    problems: list[Problem] = field(default_factory=list)

    @property
    def collected(self) -> bool:
        """Return True: Go has a collector."""
        return True

    def condemned(self) -> Iterator[tuple[int, int]]:
        """Yield the objects that the collector did not mark, in spans that wait for the sweeper."""
        for span, bits in self._unmarked():
            yield from objects_of(span, bits)

    def _unmarked(self) -> Iterator[tuple[Span, int]]:
        if self.heap is not None and self.target is not None:
            yield from unmarked(Words(self.target.image(), self.target.arch.word), self.heap)

    def roots(self, target: Target, unaligned: bool) -> list[tuple[int, int]]:
        """Return the live parts of stacks, and the memory of Go where no span is known."""
        del target, unaligned
        return [*((part.start, part.end) for part in self.stacks.parts), *self._unknown]

    @cached_property
    def _unknown(self) -> list[tuple[int, int]]:
        """Return what no span covers if spans are damaged or missing: they may be there. Otherwise, it is free."""
        if self.heap is None or not (self.heap.problems or self.heap.missing):
            return []
        known = Ranges(
            sorted([*((s.start, s.end) for s in self.heap.spans), *((m[0], m[1]) for m in self.heap.manual)])
        )
        records = Ranges(_records(self.heap))
        return records.without(known.without(self.owned))

    @cached_property
    def _starts(self) -> list[int]:
        return [span.start for span in self.heap.spans] if self.heap is not None else []

    def span_at(self, address: int) -> Optional[Span]:
        """Return the span of objects that holds the address, or None."""
        index = bisect_right(self._starts, address) - 1
        span = self.heap.spans[index] if self.heap is not None and index >= 0 else None
        return span if span is not None and address < span.end else None

    def where(self, address: int) -> Optional[str]:
        """Return what memory of the heap is that is in no object."""
        if self.heap is None:
            return None
        span = self.span_at(address)
        if span is not None:
            return f"in the rest of {self.described(span)}, behind its last object"
        for start, end, _size in self.heap.manual:
            if start <= address < end:
                return f"in the span {start:#x}-{end:#x} of Go's stacks, not in use"
        if any(start <= address < end for start, end in _records(self.heap)):
            return "in the records that Go's runtime has of its spans"
        return "in pages of Go's heap that are free"

    def stack_at(self, address: int) -> Optional[str]:
        """Return the stack of a goroutine, or of the runtime itself, that is in use there."""
        index = bisect_right(self._stack_starts, address) - 1
        part = self._sorted_stacks[index] if index >= 0 else None
        return stack_name(self.target, part)[0] if part is not None and address < part.end else None

    def stack_frames(self) -> Iterator[StackFrame]:
        """Yield the frames of goroutines."""
        if self.target is not None:
            yield from stack_frames(self.target, self.stacks)

    def tables(self, block: Block, garbage: bool) -> Iterator[Table]:
        """Yield the object that the block is, or was."""
        span = self.span_at(block.address)
        if span is not None and self.heap is not None and self.target is not None:
            waits = self.heap.needs_sweeping(span)
            yield object_table(self.target, block, garbage, self.described(span), waits)

    @cached_property
    def _sorted_stacks(self) -> list[Live]:
        return sorted(self.stacks.parts, key=lambda part: part.start)

    @cached_property
    def _stack_starts(self) -> list[int]:
        return [part.start for part in self._sorted_stacks]

    def described(self, span: Span) -> str:
        """Return a span in words."""
        kind = "with pointers" if span.pointers else "without pointers"
        if span.size_class == 0:
            return f"the span {span.start:#x}-{span.end:#x} of one large object {kind}"
        return f"the span {span.start:#x}-{span.end:#x} of objects of {span.size} bytes {kind}"

    def holder(self, address: int) -> Optional[str]:
        """Return the span of the free object."""
        span = self.span_at(address)
        return f"in {self.described(span)}" if span is not None else None

    def statistics(self) -> list[tuple[str, int]]:
        """Return figures of the spans. runtime.MemStats has some of them, too."""
        if self.heap is None:
            return []
        spans = self.heap.spans
        pointed: dict[bool, int] = defaultdict(int)
        for span in spans:
            pointed[span.pointers] += _live(span) * span.size
        rows = [
            ("spans", len(spans)),
            ("bytes of spans in use", sum(span.end - span.start for span in spans)),
            ("bytes of objects with pointers", pointed[True]),
            ("bytes of objects without pointers", pointed[False]),
            ("bytes of spans of stacks", sum(end - start for start, end, _size in self.heap.manual)),
        ]
        if self.heap.sweepgen is not None:
            rows.append(("spans that wait for the sweeper", sum(map(self.heap.needs_sweeping, spans))))
            dead = [(bin(bits).count("1"), span.size) for span, bits in self._unmarked()]
            rows.append(("objects without a mark in these spans", sum(count for count, _size in dead)))
            rows.append(("bytes of objects without a mark in these spans", sum(count * size for count, size in dead)))
        return rows


def find_go(target: Target, owned: Ranges) -> Found:
    """Return the heap of the Go runtime in the process."""
    found = find_mheap(target)
    heap = found.heap
    if heap is None:
        return Found(refusals=[found.refusal] if found.refusal else [])
    stacks = live_stacks(target, heap)
    memory = Ranges((m.start, m.end) for m in target.mappings() if m.anonymous)
    used = [(span.start, span.end) for span in heap.spans] + [(start, end) for start, end, _size in heap.manual]
    arenas = Ranges(sorted((start // ARENA * ARENA, -(-end // ARENA) * ARENA) for start, end in used))
    wide = [part for start, end in arenas for part in memory.within(start, end)]
    mine = owned.without(Ranges(sorted([*wide, *_records(heap)])))
    lies = [span for span in heap.spans if not _inside(mine, span)]
    if lies:
        for span in lies:
            heap.note(span.record, f"its pages at {span.start:#x} are no memory of Go's")
        gone = set(lies)
        heap.spans = [span for span in heap.spans if span not in gone]
    made = GoBlocks(
        NAME,
        mine,
        Slots([_slots(span) for span in heap.spans]),
        serves_malloc=False,
        target=target,
        heap=heap,
        stacks=stacks,
    )
    made.problems = [
        Problem(record, f"the span that this record describes is not read: {text}") for record, text in heap.problems
    ]
    made.dead = [*_ends_of_stacks(target, heap), *_ranges_of_pages(target, arenas)]
    if stacks.note:
        made.notes.append(stacks.note)
    if heap.problems:
        some = "1 span" if heap.problem_count == 1 else f"{heap.problem_count} spans"
        made.notes.append(
            f"{some} of Go's heap cannot be right: the objects there are not known, and what they point to counts as "
            "reachable; `heapcheck` tells more"
        )
    if heap.missing:
        made.notes.append(f"{heap.missing} records of Go's spans are not in the dump: the objects there are not known")
    blind = sum(span.free is None for span in heap.spans)
    if blind:
        made.notes.append(f"which objects are in use is not known of {blind} spans of Go's heap: all count as in use")
    return Found([made])


def _ends_of_stacks(target: Target, heap: GoHeap) -> Iterator[tuple[int, int]]:
    """Yield the words g.stack.hi. A stack ends there, and an object may begin.

    A struct g is a variable, or in spans of one size, as the runtime allocates it. g.stack.lo stands before the word.
    """
    known = [goroutine.address for goroutine in find_goroutines(target).all]
    starts = [span.start for span in heap.spans]
    sizes = {heap.spans[place].size for place in {bisect_right(starts, g) - 1 for g in known} if place >= 0}
    spans = [(span.start, span.end) for span in heap.spans if span.size in sizes and span.pointers]
    variables = [part for module in go_modules(target) for part in module.data]
    spans = list(Ranges([*spans, *(part for start, end in variables for part in target.image().covered(start, end))]))
    ends = {end: start for start, end, _size in heap.manual}
    wanted = sorted((at, at + 1) for at in ends.keys() & set(starts))
    words = Words(target.image(), target.arch.word)
    if wanted and spans:
        for found, (end, _next) in zip(find_pointers(target.image(), spans, words.size, wanted, _MOST_ENDS), wanted):
            yield from ((at, at + 8) for at in found if ends[end] <= (words.at(at - 8) or 0) < end)


def _ranges_of_pages(target: Target, arenas: Ranges) -> Iterator[tuple[int, int]]:
    """Yield the pairs of words in which the runtime keeps which pages are its own (addrRange of runtime/mranges.go).

    Go's collector does not scan that memory, which no arena has. The first word of a pair is where an arena begins, and
    up to Go 1.25 an object begins there, too.
    """
    words = Words(target.image(), target.arch.word)
    anonymous = Ranges((m.start, m.end) for m in target.mappings() if m.anonymous and "w" in m.flags)
    outside = [part for start, end in arenas.without(anonymous) for part in target.image().covered(start, end)]
    wanted = [(start, start + 1) for start, _end in arenas]
    if not outside or not wanted:
        return
    found = find_pointers(target.image(), outside, words.size, wanted, _MOST_PAIRS)
    for places, (start, end) in zip(found, arenas):
        for at in places:
            limit = words.at(at + words.size) or 0
            if start < limit <= end and not limit % PAGE:
                yield at, at + 2 * words.size


def _inside(mine: list[tuple[int, int]], span: Span) -> bool:
    index = bisect_right(mine, (span.start, 1 << 64)) - 1
    return index >= 0 and span.end <= mine[index][1]


def _records(heap: GoHeap) -> list[tuple[int, int]]:
    """Return where the records of spans are: they point to each span's first object, and keep nothing alive."""
    return list(Ranges((at, at + heap.stride) for at in heap.records))


def _slots(span: Span) -> tuple[int, int, int, bytes]:
    return span.start, span.size, span.objects, (span.free or 0).to_bytes((span.objects + 7) // 8, "little")


def _live(span: Span) -> int:
    return span.objects - bin(span.free or 0).count("1")
