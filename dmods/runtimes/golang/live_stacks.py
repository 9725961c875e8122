"""Which parts of the stacks that Go's runtime made are in use. Its stacks lie between the spans of its heap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.base.cached import cached
from dmods.base.dataclass import dataclass
from dmods.base.named_tuple import NamedTuple
from dmods.base.ranges import Ranges
from dmods.base.words import Words
from dmods.runtimes.golang.goroutines import SYSCALL, WAITING, Goroutine, find_goroutines
from dmods.runtimes.golang.layout import M, is_g, thread_m
from dmods.runtimes.golang.mheap import GoHeap
from dmods.target import Target, Thread

_STOPPED = (1, WAITING, 9, 10)  # runnable, waiting, preempted, leaked: the saved sp is the lowest in use
_M_WORDS = 60  # of struct m in which g0, gsignal and curg are: the first 480 bytes


class Live(NamedTuple):
    """The live part of a stack. ``goroutine`` is None for one of the runtime's own (g0, gsignal)."""

    start: int
    end: int
    goroutine: Optional[Goroutine]


@dataclass
class LiveStacks:
    """The live parts of stacks in Go's heap. ``note`` says why all of that memory counts as live, or is empty."""

    parts: list[Live]
    note: str = ""


@cached
def _found(target: Target) -> dict[int, LiveStacks]:
    return {}


def live_stacks(target: Target, heap: GoHeap) -> LiveStacks:
    """Return the live parts of the stacks in the heap's memory."""
    known = _found(target)
    if heap.allspans not in known:
        known[heap.allspans] = _find(target, heap)
    return known[heap.allspans]


def _find(target: Target, heap: GoHeap) -> LiveStacks:
    every = [Live(start, end, None) for start, end, _size in heap.manual]
    goroutines = find_goroutines(target)
    why = goroutines.problem or (f"{goroutines.lost} goroutines could not be read" if goroutines.lost else "")
    if why:
        return LiveStacks(every, f"all stacks of goroutines count as live: {why}")
    words = Words(target.image(), target.arch.word)
    manual = Ranges(sorted((start, end) for start, end, _size in heap.manual))
    parts: list[Live] = []
    for one in goroutines.all:
        low, high = one.stack
        if one.dead or not low < high:
            continue
        sp = low
        if one.status in _STOPPED and low <= one.sched[0] <= high:
            sp = one.sched[0]
        elif one.status == SYSCALL and low <= one.syscall[0] <= high:
            sp = min(one.syscall[0], one.sched[0]) if low <= one.sched[0] <= high else one.syscall[0]
        parts.extend(Live(start, end, one) for start, end in manual.within(sp, high))
    of_goroutines = {one.address for one in goroutines.all}
    pointer = target.arch.sp
    for thread in target.threads():
        sp = thread.registers.get(pointer, 0)
        bounds = list(_runtime_stacks(words, target, thread, of_goroutines))
        if sp in manual and not any(low <= sp <= high for low, high in bounds):
            parts.extend(Live(start, end, None) for start, end in _slot(heap, sp))
        for low, high in bounds:
            parts.extend(Live(start, end, None) for start, end in manual.within(low, high))
    return LiveStacks(parts)


def _runtime_stacks(words: Words, target: Target, thread: Thread, others: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the stacks g0 and gsignal of a thread that belongs to the runtime."""
    m = thread_m(target, words, thread)
    for one in (words.many(m, _M_WORDS) or ()) if m else ():
        fields = words.many(one, M // 8 + 1) if one and one % 8 == 0 and one not in others else None
        if fields is not None and fields[M // 8] == m and is_g(words, one):
            yield fields[0], fields[1]


def _slot(heap: GoHeap, sp: int) -> Iterator[tuple[int, int]]:
    """Yield the part above ``sp`` of the stack that holds it: a span holds several small ones."""
    for start, end, size in heap.manual:
        if start <= sp < end:
            top = start + (sp - start) // size * size + size if 0 < size < end - start else end
            yield sp, min(top, end)
